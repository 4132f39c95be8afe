"""Programs as rollouts: how they end, what their traces say, and that these can be credited and trained on."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs

from baton.compose.program_stage import check_without_forks, make_program_stage
from baton.credit import ESTIMATORS, find
from baton.engine.torch import TorchEngine
from baton.errors import UsageError
from baton.forest.rows import rows_of
from baton.learn.crediting import Crediting, advantages
from baton.learn.models.tiny import Tiny, make_tiny
from baton.learn.program.stage import ProgramStage
from baton.learn.recipe import load, parse
from baton.learn.stage import Episode, Unanswered
from baton.serve.backends.scripted import ScriptedBackend
from baton.serve.exchange import Ask
from baton.serve.journal import read_session
from baton.trace.outcome import answer_of, cut_off, team_return
from baton.trace.records import Floats
from baton.trace.trace import Trace
from baton.trace.validation import validate

PROGRAM = Path(__file__).parents[1] / "support" / "odd_program.py"
MANNERS = ("well", "exits", "fails", "floods", "asks", "crashes", "exits badly")
RECIPE = """
about = "x"
task = {{name = "jsonl", settings = {{file = "odd.jsonl", prompt = "manner", gold = "right", test_share = 0.0}}}}
[program]
command = ["{python}", "{program}", "{{manner}}"]
answer = 'pattern:ANSWER (\\w+)'
timeout_s = {timeout}
limits = {{calls = 12}}
max_tokens = 6
temperature = 0.8
roles = {{goer = "You go"}}
[[credit]]
estimator = "group"
"""


def stage_of(
    folder: Path, manners: tuple[str, ...], *, timeout: float = 20.0, more: str = ""
) -> ProgramStage:
    rows = [json.dumps({"manner": manner, "right": "north"}) for manner in manners]
    (folder / "odd.jsonl").write_text("\n".join(rows))
    (folder / "recipe.toml").write_text(
        RECIPE.format(python=sys.executable, program=PROGRAM, timeout=timeout) + more
    )
    recipe = load(str(folder / "recipe.toml"), trust=True)
    assert recipe.program is not None
    stage = make_program_stage(recipe, recipe.program)
    stage.settle(folder / "run")
    return stage


def says(ask: Ask) -> Any:
    return ("go_north", {}) if ask.tools else "north" if "north" in ask.messages[0].text else "nowhere"


def episodes(stage: ProgramStage, count: int, **more: Any) -> list[Episode]:
    return [
        Episode(name=f"step-0001/{n:02d}-00", instance=n, seed=11 * n, step=1, **more) for n in range(count)
    ]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ProgramStage, dict[str, Trace]]]:
    """One run of each manner."""
    folder = tmp_path_factory.mktemp("odd folder")
    stage = stage_of(folder, MANNERS)
    stage.house.tried = True
    engines: Any = {"agent": ScriptedBackend(says), "goer": ScriptedBackend(says)}
    traces = asyncio.run(stage.play_all(engines, episodes(stage, len(MANNERS))))
    manners = [stage.task.instance(n).prompt for n in range(len(MANNERS))]
    yield stage, dict(zip(manners, traces, strict=True))
    stage.close()


def test_how_a_program_ended_is_told_apart(played: tuple[ProgramStage, dict[str, Trace]]) -> None:
    stage, traces = played
    told = {manner: trace.header.meta["program"] for manner, trace in traces.items()}
    assert {manner: each["ended"] for manner, each in told.items()} == {
        "well": "ok", "exits": "empty", "fails": "failed", "floods": "ok", "asks": "cut",
        "crashes": "failed", "exits badly": "failed",
    }  # fmt: skip
    assert "no such bird: ☃" in told["fails"]["stderr"]
    assert told["crashes"]["exit_code"] == -6
    assert told["exits badly"]["exit_code"] == 7
    assert told["asks"]["calls"] == 12
    assert told["fails"]["calls"] == told["exits"]["calls"] == 0
    figures = stage.figures(list(traces.values()))["program"]
    assert [figures[each] for each in ("ok", "failed", "cut", "empty")] == [2 / 7, 3 / 7, 1 / 7, 1 / 7]


def test_rewards_answers_and_ends_stand_on_the_traces(played: tuple[ProgramStage, dict[str, Trace]]) -> None:
    _, traces = played
    for manner, trace in traces.items():
        assert validate(trace) == [], manner
        assert team_return(trace) == float(manner in ("well", "floods", "exits badly"))
        assert cut_off(trace) == (manner == "asks")
        assert trace.header.meta["train"]["split"] == "train"
    assert answer_of(traces["well"]) == "north"


def test_a_journal_has_every_call_and_goes_when_its_trace_is_kept(
    played: tuple[ProgramStage, dict[str, Trace]],
) -> None:
    stage, _ = played
    folder = stage.house.place() / "sessions"
    kept = {path.stem: read_session(path) for path in folder.glob("*.jsonl")}
    assert len(kept) == len(MANNERS)
    calls = sorted(sum(each.reply is not None for each in one.exchanges) for one in kept.values())
    assert calls == [0, 0, 1, 2, 2, 2, 12]
    assert not any((stage.house.place() / "work").iterdir())
    stage.house.sweep(2)
    assert len(list(folder.glob("*.jsonl"))) == len(MANNERS)
    stage.house.sweep(3)
    assert not list(folder.glob("*.jsonl"))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, list[Trace]]]:
    """Two groups of rollouts, of unequal size, by a model that knows nothing."""
    stage = stage_of(tmp_path_factory.mktemp("drawn"), ("well",))
    model, tokenizer = make_tiny(["Which way, well?", "go_north go_south"], Tiny(width=32, heads=2), seed=3)
    engine: Any = TorchEngine(model, tokenizer, name="main")
    names = [*(f"a/{n}" for n in range(3)), *(f"b/{n}" for n in range(2))]
    some = [Episode(name=name, instance=0, seed=n, step=1) for n, name in enumerate(names)]
    traces = asyncio.run(stage.play({"agent": engine, "goer": engine}, some))
    yield (stage, engine, some), traces
    stage.close()


def test_ids_and_logprobs_are_those_of_the_weights(drawn: tuple[Any, list[Trace]]) -> None:
    """By a plain forward pass over the whole row, at the recipe's temperature and without the program's cuts."""
    (_, engine, _), traces = drawn
    for trace in traces:
        assert [call.role for call in trace.calls] == ["agent", "goer"]
        ones = {call.id: Floats([1.0] * len(call.completion_ids or ())) for call in trace.calls}
        for row, call in zip(rows_of(trace, ones), trace.calls, strict=True):
            assert call.sampling is not None
            assert (call.sampling.temperature, call.sampling.top_p, call.sampling.max_tokens) == (0.8, 1.0, 6)
            with torch.no_grad():
                logits = engine.model(torch.tensor(row.ids[None].astype(np.int64))).logits[0] / 0.8
            plain = torch.log_softmax(logits.double(), -1)
            again = [float(plain[place - 1, row.ids[place]]) for place in row.places]
            assert again == pytest.approx(list(row.sampler), abs=1e-4)


def test_the_same_episode_draws_the_same(drawn: tuple[Any, list[Trace]]) -> None:
    (stage, engine, some), traces = drawn
    again = asyncio.run(stage.play({"agent": engine, "goer": engine}, some[::-1]))[::-1]
    for one, other in zip(traces, again, strict=True):
        assert [call.completion_ids for call in one.calls] == [call.completion_ids for call in other.calls]
        assert [call.sampling for call in one.calls] == [call.sampling for call in other.calls]


def value(seen: Any, call: Any = None) -> Any:
    """A critic that is asked for a situation, or for every token of a call."""
    return 0.1 * (seen.num_events % 3) if call is None else [0.1 * n for n in range(len(call.completion_ids))]


GIVEN: dict[str, Any] = {
    "value": value,
    "q": lambda prefix, option: 0.5,
    "in_scope": lambda trace, agent: True,
    "stops": lambda event: (),
    "complete": lambda traces: list(traces),
}
"""What a run gives estimators that ask for it."""
NOTHING_HERE = {
    "critical-steps": "the longest chain of work is the whole rollout here",
    "maporl": "nobody debates in rounds",
    "qmix": "no critic of single agents is given",
    "reinforce-cost": "a spawn's cost, and nobody is spawned",
    "spawn-doubly-robust": "nobody is spawned",
    "tool-group": "no tool but the one that hands over",
}
"""Estimator -> why it has nothing to say of these rollouts; it runs all the same."""
WITHOUT_FORKS = sorted(
    name for name in ESTIMATORS if not {"runtime", "counterfactuals", "options"} & find(name).needs
)


@pytest.mark.parametrize("name", WITHOUT_FORKS)
def test_credit_without_forks_works_on_what_was_inferred(name: str, drawn: tuple[Any, list[Trace]]) -> None:
    """Rollouts of one instance with returns that differ; somebody gets credit, and it reaches tokens."""
    _, traces = drawn
    earning = [
        structs.replace(trace, rewards=(structs.replace(trace.rewards[-1], value=value),))
        for trace, value in zip(traces, (1.0, 0.0, 0.25, 1.0, 0.0), strict=True)
    ]
    recipe = parse(f'about = "x"\ntask = {{name = "jsonl"}}\n[[credit]]\nestimator = "{name}"\n')
    crediting = Crediting(recipe, {**GIVEN, "reward": team_return})
    credited = asyncio.run(crediting.credit([earning[:3], earning[3:]], lambda: None))  # type: ignore[arg-type, return-value]
    found = [value for trace in credited.traces for each in advantages(trace).values() for value in each]
    assert all(map(math.isfinite, found))
    assert any(found) != (name in NOTHING_HERE)


def test_one_that_hangs_is_cut_with_its_children(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, ("hangs",), timeout=1.0)
    stage.house.tried = True
    engines: Any = {"agent": ScriptedBackend(says)}
    (trace,) = asyncio.run(stage.play_all(engines, episodes(stage, 1)))
    stage.close()
    assert trace.header.meta["program"]["ended"] == "cut"
    assert cut_off(trace)
    assert validate(trace) == []
    until = time.monotonic() + 20  # what was killed still has to be let die
    while (left := _running(str(tmp_path))) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left


def _running(words: str) -> list[Path]:
    return [each for each in Path("/proc").glob("[0-9]*/cmdline") if words.encode() in _read(each)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_estimators_with_forks_are_refused() -> None:
    head = 'about = "x"\ntask = {name = "jsonl"}\nprogram = {command = ["python"]}\n'
    refused = sorted(name for name in ESTIMATORS if {"runtime", "counterfactuals"} & find(name).needs)
    assert refused
    for name in refused:
        recipe = parse(f'{head}[[credit]]\nestimator = "{name}"\n')
        with pytest.raises(UsageError, match="baton fork SESSION"):
            check_without_forks(recipe, ())
    with pytest.raises(UsageError, match="baton fork SESSION"):
        check_without_forks(
            parse(f'{head}rollout = {{fan_out = [2]}}\n[[credit]]\nestimator = "group"\n'), ()
        )


def test_a_program_that_never_runs_is_shown_with_what_it_said(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, ("fails",))
    engines: Any = {"agent": ScriptedBackend(says)}
    with pytest.raises(
        UsageError, match=r"before it asked for anything.*no such bird.*Try it by hand: baton serve"
    ):
        asyncio.run(stage.play(engines, episodes(stage, 1)))
    with pytest.raises(Unanswered, match="none of 2 programs asked for anything"):
        asyncio.run(stage.play(engines, episodes(stage, 2)))
    stage.close()


def test_scripted_runs_end_with_the_first_where_the_program_does_not_run(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, ("fails", "fails", "fails"))
    with pytest.raises(UsageError, match=r"before it asked for anything.*no such bird.*Try it by hand"):
        asyncio.run(stage.results(ScriptedBackend(says), episodes(stage, 3)))
    sessions = [path.name for path in (tmp_path / "run" / "program" / "sessions").iterdir()]
    stage.close()
    assert len(sessions) <= 1, "one run, and not one for each episode"


def test_scripted_runs_end_with_the_first_where_the_script_raises(tmp_path: Path) -> None:
    def broken(ask: Ask) -> Any:
        raise KeyError(ask.messages[0].text)

    stage = stage_of(tmp_path, ("well", "well"))
    with pytest.raises(UsageError, match=r"first call was not answered.*KeyError.*You lead"):
        asyncio.run(stage.results(ScriptedBackend(broken), episodes(stage, 2)))
    stage.close()
