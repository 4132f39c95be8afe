"""A supervisor who interrupts: on traces as a person, replayed exactly, and what steering well is worth."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from baton.cli import main
from baton.errors import UsageError
from baton.games.game_trace import played
from baton.games.library.supervised import Supervised
from baton.games.solve import evaluate, reachable, solve
from baton.tasks.game_task import GameTask
from baton.team.running import replay, run
from baton.team.team import Team
from baton.trace.graph.lineage import Lineage
from baton.trace.trace import Trace
from baton.trace.validation import validate


def traced(policy: str, seed: int, **settings: float) -> tuple[Trace, GameTask, Team]:
    task = GameTask(Supervised(**settings))  # type: ignore[arg-type]
    from baton.engine.scripted import ScriptedEngine

    team = Team.of(task.topology(), ScriptedEngine(policy, task.script(policy)), seed=seed)
    return asyncio.run(run(team, task.assignment(task.instance(seed)))), task, team


def test_the_word_is_a_persons_and_comes_at_most_once() -> None:
    heard = 0
    for seed in range(20):
        trace, task, _ = traced("random", seed)
        words = [event for event in trace.events if event.type == "human_intervention"]
        heard += len(words)
        assert len(words) <= 1
        assert validate(trace) == []
        for word in words:
            assert (word.agent, word.to) == ("supervisor", trace.events[0].agent)
            assert trace.text(word.content_ref) == "something else is wanted"
            assert "supervisor" not in Lineage.of(trace).agents, "nobody of the team"
        assert played(trace, task.game).value == pytest.approx(
            sum(r.value for r in trace.rewards if r.unit == "team")
        )
    assert 5 <= heard <= 20


def test_everybody_is_interrupted_alike_and_a_replay_is_the_same() -> None:
    for seed in range(6):
        first, task, team = traced("optimal", seed, hazard=0.9)
        again = asyncio.run(replay(first, team, task.assignment(task.instance(seed))))
        assert again == first
        other, _, _ = traced("random", seed, hazard=0.9)
        drawn = [next(e.type for e in t.events if "draw" in e.extra) for t in (first, other)]
        assert drawn[0] == drawn[1], "the first round has the same luck, whoever plays"


def test_a_saved_run_replays_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    words = ["run", "game:supervised", "--policy", "optimal", "--set", "task.hazard=0.9", "--out", out]
    assert main(words) == 0
    assert main(["replay", out]) == 0
    assert main(["game", "regret", out]) == 0
    capsys.readouterr()


def test_without_a_supervisor_all_is_handed_out_at_once_and_with_one_little_is() -> None:
    quiet, watched = solve(Supervised(hazard=0.0)), solve(Supervised())
    start = (4, 0, 0)
    assert quiet.best(start) == "delegate worker: 4"
    assert watched.best(start) == "delegate worker: 1"
    said = [state for state in reachable(watched.game) if state[2] == 1]
    assert all(watched.best(state) == "send worker: drop it" for state in said)


def test_values_by_hand() -> None:
    one = Supervised(num_parts=1, hazard=0.5, round_cost=0.1, void_cost=0.2, unheeded=0.3)
    heed = -0.2 - 0.1 + 1
    assert solve(one).value == pytest.approx(-0.1 + 0.5 * 1 + 0.5 * heed)
    ignoring = evaluate(one, lambda s: {"send worker: go on" if s[2] == 1 else "delegate worker: 1": 1.0})
    assert ignoring.value == pytest.approx(-0.1 + 0.5 * 1 + 0.5 * 0.3)


@pytest.mark.parametrize(("field", "value"), [("num_parts", 0), ("hazard", 1.0), ("void_cost", -1.0)])
def test_impossible_parameters(field: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"supervised: {field} = .* is not possible"):
        Supervised(**{field: value})  # type: ignore[arg-type]
