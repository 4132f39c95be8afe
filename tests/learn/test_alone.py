"""The single agent at the team's tokens: it spawns nobody, n is the nearest, and what cannot be measured says why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from small_run import TINY, small, team

from baton.compose.training import begin, make_trainer
from baton.learn.recipe import Recipe
from baton.learn.run.evaluate import NotAlone, alone_at_tokens, mean_tokens, tries_for
from baton.learn.run.folder import read_lines
from baton.learn.stage import Unanswered
from baton.trace.outcome import task_return
from baton.trace.trace import Trace

ONE = f"[policies.main]\n{TINY}"
BOXES: dict[str, Any] = {
    "task__name": "game:parallel-pandora",
    "task__settings": {"num_boxes": 2},
    "team__max_tokens": 32,
    "eval__episodes": 24,
}


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "alone"))


def alone(recipe: Recipe, tokens: float) -> tuple[list[Trace], list[list[float]]]:
    trainer = make_trainer(recipe)
    score = task_return
    return alone_at_tokens(trainer.stage, trainer.policies, recipe, tokens, score)


def test_n_is_the_nearest_to_the_tokens() -> None:
    assert [tries_for(tokens, 100.0, 4) for tokens in (10.0, 149.0, 151.0, 260.0, 900.0)] == [1, 1, 2, 3, 4]
    assert tries_for(100.0, 0.0, 4) == 1


def test_on_a_game_nobody_is_spawned_and_all_answers_are_options() -> None:
    traces, returns = alone(small(**BOXES), 200.0)
    events = [event for trace in traces for event in trace.events]
    assert not any(event.type == "spawn" and event.call for event in events)
    assert not any(event.status == "invalid" for event in events)
    chosen = Counter(event.extra["step"]["option"] for event in events if "step" in event.extra)
    assert len(chosen) > 1, "the policy still chooses among the rest"
    n, one = len(returns[0]), mean_tokens(traces[:24])
    assert len(returns) == 24
    assert len(traces) == 24 * n
    assert abs(n * one - 200.0) == min(abs(k * one - 200.0) for k in range(1, 65))
    assert len({(trace.header.task_id, trace.header.meta["run"]["seed"]) for trace in traces}) == len(traces)


def test_where_options_differ_in_agents_the_policys_own_chances_decide() -> None:
    """Of spawn-bandit's two options one is left."""
    traces, _ = alone(small(task__name="game:spawn-bandit", task__settings={}, team__max_tokens=32), 1.0)
    assert {e.extra["step"]["option"] for t in traces for e in t.events if "step" in e.extra} == {
        "stop alone"
    }


def test_on_a_task_the_root_works_by_itself_with_the_teams_tools() -> None:
    traces, returns = alone(team(ONE, warm__steps=50), 1.0)
    assert {event.agent for trace in traces for event in trace.events} == {"orchestrator"}
    assert all(len(each) == 1 for each in returns)
    told = traces[0].text(traces[0].calls[0].prompt_ref)
    assert told is not None
    assert "orchestrator" in told


@pytest.mark.parametrize(
    ("recipe", "why"),
    [
        (small(), "nobody is spawned by choice in this game"),
        (
            team(ONE, team__topology="debate", team__settings={}, warm__steps=1, warm__episodes=5),
            "in a debate team a program spawns the others",
        ),
    ],
    ids=["nobody to spawn", "a program"],
)
def test_what_cannot_be_measured_says_why(recipe: Recipe, why: str) -> None:
    with pytest.raises(NotAlone, match=why):
        alone(recipe, 100.0)


@pytest.mark.parametrize("game", [True, False])
def test_a_run_ends_with_both_token_counts_or_the_reason(game: bool, tmp_path: Path) -> None:
    session = begin(small(train__steps=1, **(BOXES if game else {})), "small", tmp_path / "run")
    list(session.steps())
    after, best, line = session.finish()
    session.close()
    assert read_lines(tmp_path / "run" / "evals.jsonl")[-2:] == [best, line]
    assert best["team_tokens"] == after["tokens"]
    if not game:
        assert (line["who"], line["episodes"]) == ("alone", 0)
        assert "nobody is spawned" in line["why"]
        return
    assert line["who"] == f"alone-{line['tries']}"
    assert line["team_tokens"] == after["tokens"]
    assert abs(line["tokens"] - after["tokens"]) < after["tokens"]
    assert line["one_try"] <= line["return"]["mean"]


def test_an_agent_that_cannot_answer_alone_does_not_spoil_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise Unanswered("its prompts are too long")

    monkeypatch.setattr("baton.learn.run.session.alone_at_tokens", silent)
    session = begin(small(train__steps=1), "small", tmp_path / "run")
    list(session.steps())
    assert session.finish()[-1]["why"] == "its prompts are too long"
    session.close()
