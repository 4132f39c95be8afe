"""Everything runs from traces that were saved and read back, with identical numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from credit_teams import make_trace

from baton.credit import ESTIMATORS
from baton.credit.estimator import Prefix
from baton.credit.estimators.mixing import MonotoneMix
from baton.credit.estimators.partition import partition
from baton.credit.project import project
from baton.trace import Call, Credit, Reward, Trace, read_all, write

ROLLOUTS = (("a", 1.0, ["x"]), ("b", 0.25, ["x"]), ("c", 0.0, ["y"]), ("d", 0.5, ["z", "x"]))


def rollouts() -> list[Trace]:
    return [
        make_trace(
            name,
            total,
            workers=1 if name != "d" else 2,
            said=said,
            more_rewards=[
                Reward(family="process", unit="turn", target="w1:1", value=total / 3),
                Reward(
                    family="tool", unit="tool_call", target=f"w1#{2 if name != 'd' else 3}", value=total / 7
                ),
            ],
        )
        for name, total, said in ROLLOUTS
    ]


def value(prefix: Prefix) -> float:
    return prefix.num_events / 13


GIVEN: dict[str, dict[str, Any]] = {
    "gae": {"value": value},
    "telescope": {"value": value},
    "token-gae": {"value": lambda _, call: [0.1] * len(call.completion_ids or ())},
    "coma": {"q": lambda prefix, option: len(option) / 3 + prefix.num_events},
    "difference": {"without": lambda trace, agent: len(agent) / 11},
    "vdn": {"q": lambda trace, agent: len(agent) / 11},
    "qmix": {
        "q": lambda trace, agent: len(agent) / 11,
        "mix": lambda trace: MonotoneMix([[0.3] * (3 if trace.trace_id == "d" else 2)], [0.1], [0.7], 0.0),
    },
}

PURE = sorted(name for name, found in ESTIMATORS.items() if "runtime" not in found.needs)
OURS = {
    "agent-group", "anchor-group", "branch-scope", "coma", "critical-steps", "difference", "gae", "group",
    "leave-one-out", "maporl", "mean", "qmix", "rank", "reinforce-cost", "return-to-go", "role-ema", "role-group",
    "siblings", "telescope", "token-gae", "tool-group", "tree-backup", "turn-group", "vdn",
}  # fmt: skip


def test_every_published_mechanism_is_listed() -> None:
    assert set(PURE) >= OURS


@pytest.mark.parametrize("name", sorted(OURS))
def test_saved_traces_give_identical_numbers(name: str, tmp_path: Path) -> None:
    group = rollouts()
    fresh = ESTIMATORS[name](group, **GIVEN.get(name, {}))
    assert any(fresh)
    for place in (tmp_path / "a.jsonl", tmp_path / "a.db", tmp_path / "shards"):
        write(group, f"{place}/" if not place.suffix else place)
        again = sorted(read_all(place), key=lambda trace: trace.trace_id)
        assert ESTIMATORS[name](again, **GIVEN.get(name, {})) == fresh


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_estimate_projects_and_is_stored(name: str, tmp_path: Path) -> None:
    group = rollouts()
    fresh = ESTIMATORS[name](group, **GIVEN.get(name, {}))
    credited = [t.with_records(credits=mine) for t, mine in zip(group, fresh, strict=True)]
    write(credited, tmp_path / "b.jsonl")
    for before, after in zip(credited, read_all(tmp_path / "b.jsonl"), strict=True):
        assert after.credits == before.credits
        assert project(after, after.credits) == project(before, before.credits)


def test_a_partition_from_a_file_is_the_same(tmp_path: Path) -> None:
    trace = rollouts()[0]
    write(trace, tmp_path / "a.jsonl")
    (again,) = read_all(tmp_path / "a.jsonl")
    assert partition(again, value=value) == partition(trace, value=value)


def test_estimators_leave_the_trace_alone() -> None:
    group = rollouts()
    for name in OURS:
        ESTIMATORS[name](group, **GIVEN.get(name, {}))
    assert group == rollouts()
    assert all(isinstance(c, Credit) for c in ESTIMATORS["mean"](group)[0])
    assert isinstance(group[0].calls[0], Call)
