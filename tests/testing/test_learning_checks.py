"""Conformance of losses, critics and monitors: those that ship conform, and ones that do not are caught."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from msgspec import structs
from torch import Tensor

from baton.learn.critics.table import TableCritic
from baton.learn.loss import LOSSES, PPO, Tokens
from baton.learn.watch import MONITORS, Warned
from baton.testing import CheckFailed, check_critic, check_loss, check_monitor
from baton.trace.trace import Trace


@pytest.mark.parametrize("name", LOSSES)
def test_losses_that_ship_conform(name: str) -> None:
    check_loss(name, detached=name == "cispo")


def weighted(tokens: Tokens, low: float, high: float) -> Tensor:
    return tokens.weight * PPO.per_token(tokens, low, high)


def averaged(tokens: Tokens, low: float, high: float) -> Tensor:
    return PPO.per_token(tokens, low, high) + tokens.advantage.mean()


def upside_down(tokens: Tokens, low: float, high: float) -> Tensor:
    return -PPO.per_token(tokens, low, high)


def held(tokens: Tokens, low: float, high: float) -> Tensor:
    return PPO.per_token(tokens, low, high) * tokens.new.detach().exp()


@pytest.mark.parametrize(
    ("per_token", "said"),
    [
        (weighted, "applies weights"),
        (averaged, "other rows"),
        (upside_down, "likelier"),
        (held, "slope"),
        (LOSSES["reinforce"].per_token, "uses_ratio"),
    ],
)
def test_losses_that_break_the_contract_are_caught(per_token: Any, said: str) -> None:
    with pytest.raises(CheckFailed, match=said):
        check_loss(structs.replace(PPO, name="broken", per_token=per_token))


@pytest.mark.parametrize("name", ["table", "agents"])
def test_critics_that_ship_conform(name: str) -> None:
    check_critic(name)


class Forgetful(TableCritic):
    def state_dict(self) -> dict[str, Any]:
        whole = super().state_dict()
        return whole | {"values": dict.fromkeys(whole["values"], 0.0)}


class Counting(TableCritic):
    calls = 0

    def value(self, prefix: Any) -> float:
        Counting.calls += 1
        return float(Counting.calls)


class Aliased(TableCritic):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.log: list[int] = []

    def observe(self, traces: Iterable[Trace]) -> None:
        super().observe(traces)
        self.log.append(1)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"log": self.log}


@pytest.mark.parametrize(
    ("kind", "said"), [(Forgetful, "load_state_dict"), (Counting, "otherwise"), (Aliased, "give a copy")]
)
def test_critics_that_break_the_contract_are_caught(kind: Any, said: str) -> None:
    with pytest.raises(CheckFailed, match=said):
        check_critic(kind.from_recipe)


@pytest.mark.parametrize("name", MONITORS)
def test_monitors_that_ship_conform(name: str) -> None:
    check_monitor(name)


def wordless(metrics: Mapping[str, Any], traces: Sequence[Trace]) -> list[Any]:
    return ["something is wrong"]


def meddling(metrics: Any, traces: Sequence[Trace]) -> list[Warned]:
    metrics["seen"] = True
    return []


@pytest.mark.parametrize(
    ("monitor", "said"), [(wordless, "expected Warned"), (meddling, "changed the metrics")]
)
def test_monitors_that_break_the_contract_are_caught(monitor: Any, said: str) -> None:
    with pytest.raises(CheckFailed, match=said):
        check_monitor(monitor)
