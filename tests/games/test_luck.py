"""What nobody chose is luck: nature's draws are events of their own, and an exact partition tells them from choices."""

from __future__ import annotations

import gzip
import math
from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import pvariance

import pytest
from game_teams import play

from baton.cli import main
from baton.credit.estimators.partition import Partition, partition
from baton.games.exact_value import ExactValue, optimal_value
from baton.games.game import Game, Policy, State
from baton.games.game_trace import played, regret_of_trace
from baton.games.library import make_game
from baton.games.on_team import steps_of
from baton.games.reference import reference
from baton.trace.acts import unit_of
from baton.trace.formats import read_all
from baton.trace.trace import Trace
from baton.trace.validation import validate

GAMES = (
    "parallel-pandora", "spawn-bandit", "stopping-chain", "length-ladder", "signalling-chain", "best-of-n", "dec-tiger",
    "silo",
)  # fmt: skip
WITHOUT_DRAWS = ("signalling-chain",)
"""Nature deals there before play begins, and then no more."""
OLD = Path(__file__).parents[1] / "golden" / "games-0.2.jsonl.gz"
"""Written by version 0.2: `baton run game:NAME --policy P --seed 4`, and a fork with `--replicate 1` of one of them."""


def by_hand(game: Game, policy: Policy) -> tuple[dict[State, float], dict[tuple[State, str], float]]:
    """V and Q of a policy, by plain recursion over the game's own branches."""
    q: dict[tuple[State, str], float] = {}

    @cache
    def value(state: State) -> float:
        total = 0.0
        for option in game.options(state):
            q[state, option] = sum(p * (r + value(s)) for p, s, r in game.step(state, option))
            total += policy(state).get(option, 0.0) * q[state, option]
        return total

    values = {branch.state: value(branch.state) for branch in game.start()}
    return values | {state: value(state) for state, _ in list(q)}, q


def split(name: str, num: int) -> tuple[Game, list[Trace], list[Partition], Policy]:
    game = make_game(name, {})
    policy = reference("random", game, None)
    traces, _ = play(name, num)
    value = ExactValue(game, policy)
    return game, traces, [partition(trace, value=value) for trace in traces], policy


@pytest.mark.parametrize("name", GAMES)
def test_a_choice_has_its_advantage_and_the_draw_the_rest(name: str) -> None:
    game, traces, found, policy = split(name, 24)
    values, q = by_hand(game, policy)
    drawn = 0
    by_choice: dict[tuple[State, str], list[float]] = defaultdict(list)
    for trace, each in zip(traces, found, strict=True):
        assert validate(trace) == []
        steps, credit = steps_of(trace.events), {c.target: c.value for c in each.credits}
        luck = 0.0
        for step in steps:
            event = trace.events[step.event]
            advantage = q[step.state, step.option] - values[step.state]
            assert credit.pop(event.id) == pytest.approx(advantage, abs=1e-12)
            by_choice[step.state, step.option].append(advantage)
            luck += step.reward + values.get(step.after, 0.0) - q[step.state, step.option]
            if step.drawn != step.event:
                drawn += 1
                assert unit_of(trace.events[step.drawn]) is None
                assert trace.events[step.drawn].seq > event.seq
        rest = credit.values()  # reports, and the end: no choices of the game
        assert all(abs(value) < 1e-12 for value in rest)
        assert each.luck["environment"] == pytest.approx(luck, abs=1e-12)
        assert each.luck["outcome"] == pytest.approx(0, abs=1e-12)
        start = steps[0].state if steps else played(trace).end
        total = math.fsum(each.channels.values())
        assert total == pytest.approx(trace.rewards[0].value - values[start], abs=1e-12)
    assert bool(drawn) == (name not in WITHOUT_DRAWS)
    assert all(max(same) - min(same) < 1e-12 for same in by_choice.values())


@pytest.mark.parametrize("name", ["spawn-bandit", "best-of-n", "parallel-pandora", "stopping-chain"])
def test_rollouts_with_the_same_choices_differ_in_luck_alone(name: str) -> None:
    """The first choice the same, all that follows nature's: where play is one choice, the whole difference is luck."""
    _, traces, found, _ = split(name, 60)
    groups: dict[tuple[State, str], list[tuple[float, float, float]]] = defaultdict(list)
    for trace, each in zip(traces, found, strict=True):
        steps = steps_of(trace.events)
        if len(steps) == 1:  # every choice is shared
            luck = each.channels["luck"]
            chosen = math.fsum(c.value for c in each.credits)
            groups[steps[0].state, steps[0].option].append((trace.rewards[0].value, chosen, luck))
    for same in groups.values():
        returns, chosen, lucks = (list(column) for column in zip(*same, strict=True))
        assert pvariance(chosen) == pytest.approx(0, abs=1e-24)
        assert pvariance(lucks) == pytest.approx(pvariance(returns), abs=1e-12)
    if name == "spawn-bandit":
        assert any(pvariance([r for r, _, _ in same]) > 0.01 for same in groups.values())


@pytest.mark.parametrize("name", GAMES)
def test_luck_is_the_ledgers(name: str) -> None:
    """Against the optimum, a choice's credit is minus its regret, so the partition and the ledger must agree."""
    traces, _ = play(name, 8)
    for trace in traces:
        ledger, found = regret_of_trace(trace), partition(trace, value=optimal_value)
        assert -math.fsum(c.value for c in found.credits) == pytest.approx(ledger.regret, abs=1e-9)
        start = found.baseline - ledger.optimum  # the instance that nature dealt, before anyone played
        assert found.channels["luck"] + start == pytest.approx(ledger.luck, abs=1e-9)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "games.jsonl"
    path.write_bytes(gzip.decompress(OLD.read_bytes()))
    return path


def test_traces_of_0_2_open_and_have_the_same_ledger(old: Path) -> None:
    """There the draw stood with the choice. The regrets are those that 0.2 printed."""
    traces = list(read_all(old))
    assert [len(trace.events) for trace in traces] == [23, 17, 4, 3]
    for trace in traces:
        assert validate(trace) == []
        assert played(trace).value == trace.rewards[0].value
        assert steps_of(trace.events)
        assert all(step.event == step.drawn for step in steps_of(trace.events))
    regrets = [regret_of_trace(trace).regret for trace in traces]
    assert regrets == pytest.approx([0.0, 0.0, 0.08, 0.0], abs=1e-9)


def test_traces_of_0_2_are_replayed_and_forked_in_their_own_form(
    old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for trace in read_all(old):
        assert main(["replay", str(old), "--trace", trace.trace_id]) == 0
        assert "identical" in capsys.readouterr().out
    name, out = "game:parallel-pandora-centralized-4", tmp_path / "fork.jsonl"
    forced = ["--at", "orchestrator#11", "--do", "stop box 2"]
    assert main(["fork", str(old), "--trace", name, *forced, "--out", str(out)]) == 0
    (branch,) = read_all(out)
    assert not any("draw" in event.extra for event in branch.events)
    assert played(branch).steps[:-1] == played(list(read_all(old))[1]).steps[:-1]
