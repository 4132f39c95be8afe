"""Baton from Python, as a newcomer writes it: `import baton` and nothing else of Baton's."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import baton
from baton.trace.formats import read_all

SMALL = {
    "rollout.groups": 2, "rollout.group_size": 2, "warm.episodes": 20, "warm.steps": 2, "eval.episodes": 2,
    "team.max_tokens": 16, "policies.main.tiny.width": 16, "policies.main.tiny.layers": 1,
}  # fmt: skip


def policy(request: Any) -> str:
    first = not any(entry.speaker == "assistant" for entry in request.entries)
    if request.role == "worker":
        return "return 21"
    return "spawn worker: half\nspawn worker: half\nwait all" if first else "aggregate majority\nstop 42"


@pytest.fixture
def task() -> baton.Task:
    return baton.Task.of("What is twice 21?", verify="42", task_id="double")


@pytest.mark.parametrize(
    "lines",
    [
        "import baton\nbaton.credit",
        "import baton.credit.estimator\nimport baton",
        "import baton.measure.report.report, baton.credit.estimators.group, baton",
        "from baton.credit import find\nfrom baton import measure, credit, api\nimport baton",
    ],
)
def test_a_package_is_a_verb_in_any_order_of_imports(lines: str) -> None:
    after = (
        "\nt, u = (baton.run('shard-sum', instance=0, seed=n) for n in (0, 1))\n"
        "assert baton.credit([t, u], 'return-to-go')[0].credits\n"
        "assert baton.measure(t).all.traces == 1\nimport baton.credit.estimator, baton.measure.metric\n"
        "assert baton.credit.estimator.Estimator and baton.measure.metric\n"
        "assert baton.credit([t, u], 'return-to-go')[0].credits and callable(baton.measure)\n"
    )
    subprocess.run([sys.executable, "-c", lines + after], check=True)


def test_a_name_of_version_0_1_says_where_it_is_now() -> None:
    with pytest.raises(AttributeError, match=r"from baton\.trace import Event"):
        _ = baton.Event  # type: ignore[attr-defined]


def test_run_replay_and_fork_with_a_function_and_a_task(task: baton.Task) -> None:
    trace = baton.run(task, policy=policy)
    assert trace.rewards[0].value == 1.0
    assert baton.replay(trace, task=task) == trace
    what_if = baton.fork(trace, task=task, policy=policy, replace={"worker1#1": "12"}, person="me")
    assert what_if.usage.calls_reused == 3
    assert baton.fork(trace, task=task, policy=policy, bar="worker2").invalidated


def test_a_team_is_an_object_as_well(task: baton.Task) -> None:
    team = baton.Team.of("centralized", policy)
    trace = baton.run(task, team)
    assert baton.replay(trace, team, task) == trace
    assert baton.fork(trace, team, task, force={"orchestrator#1": "stop 7"}).trace.events


def test_what_was_an_object_is_asked_for_again(task: baton.Task) -> None:
    trace = baton.run(task, policy=policy)
    with pytest.raises(baton.BatonError, match="given as an object"):
        baton.replay(trace)
    with pytest.raises(baton.BatonError, match="give the same policy"):
        baton.fork(trace, task=task, bar="worker2")


def test_by_name_with_settings_into_a_folder_and_resumed(tmp_path: Path) -> None:
    trace = baton.run(
        "shard-sum", topology="hierarchical", settings={"task.num_shards": 4}, out=tmp_path / "run"
    )
    assert baton.replay(tmp_path / "run").events == trace.events
    assert baton.resume(tmp_path / "run") == []
    assert baton.fork(tmp_path / "run", drop="lead1.worker1#2").trace.trace_id != trace.trace_id


def test_score_credit_measure_take_one_or_many() -> None:
    one = baton.run("shard-sum")
    assert isinstance(baton.score(one, "parl"), baton.Trace)
    scored = baton.score([one, baton.run("shard-sum", seed=1)], "shared")
    assert [trace.rewards[-1].value for trace in scored] == [1.0, 1.0]
    assert baton.score(one, "shared", gold="-1").rewards[-1].value == 0.0
    assert all(trace.credits for trace in baton.credit(scored, "group", group_by="task"))
    assert baton.measure(scored).all.traces == 2


def test_in_a_loop_there_are_twins(task: baton.Task) -> None:
    async def work() -> None:
        with pytest.raises(baton.BatonError, match=r"await baton\.aio\.run"):
            baton.run(task, policy=policy)
        trace = await baton.aio.run(task, policy=policy)
        assert await baton.aio.replay(trace, task=task) == trace
        fork = await baton.aio.fork(trace, task=task, policy=policy, bar="worker2")
        with pytest.raises(baton.BatonError, match="a fork is no rollout of its own"):
            await baton.aio.credit([trace, fork.trace], "group")
        other = await baton.aio.run(task, policy=policy, seed=1)
        credited = await baton.aio.credit([trace, fork.trace, other], "mean", group_by="task")
        assert [bool(each.credits) for each in credited] == [True, False, True]
        assert (await baton.aio.measure(credited)).all.traces == 2
        assert await baton.aio.score(trace, "shared")

    asyncio.run(work())


def test_train_with_objects_then_evaluate_and_go_on(task: baton.Task, tmp_path: Path) -> None:
    from baton.credit.estimator import Credits, Estimator, make_credit
    from baton.reward.rules.shared import Success

    def by_luck(group: list[baton.Trace], *, reward: Any) -> Credits:
        return [[make_credit("by-luck", "team", trace.trace_id, reward(trace) - 0.5)] for trace in group]

    own = Estimator(
        name="by-luck", units=("team",), needs=frozenset(), source="", evidence="I", function=by_luck
    )
    lines: list[Any] = []
    run = baton.train(
        "grpo", task=task, policy="tiny", reward=Success(name="right"), credit=own, loss="reinforce",
        steps=1, settings=SMALL, out=tmp_path / "run", progress=lines.append,
    )  # fmt: skip
    assert [line["step"] for line in lines] == [1] == [line["step"] for line in run.metrics]
    assert run.before is not None
    assert run.after is not None
    assert "report" in (run.out / "report.html").read_text().lower()
    assert baton.run(task, policy=run.engines).events
    assert baton.evaluate(run)["after"]["return"] == run.after["return"]
    with pytest.raises(baton.BatonError, match="given as an object"):
        baton.evaluate(run.out)
    again = baton.evaluate(run.out, task=task, reward=Success(name="right"))
    assert again["after"]["return"] == run.after["return"]
    longer = baton.resume(run, settings={"train.steps": 2})
    assert [line["step"] for line in longer.metrics] == [1, 2]


def test_what_a_team_is_made_of_may_be_objects_in_training_too(task: baton.Task, tmp_path: Path) -> None:
    from baton.team.aggregate import Fused
    from baton.team.surface.lines import Lines

    class Longest:
        """The longest claim."""

        name, pure = "longest", True

        def fuse(self, claims: Any, params: Any = None) -> Fused:
            text = max((claim.text for claim in claims), key=len)
            return Fused(text, (1 / len(claims),) * len(claims), {})

    @baton.tool(pure=True, instant=True)
    def halve(number: int) -> str:
        """Half of a number."""
        return str(number / 2)

    def num_events(trace: baton.Trace) -> float:
        """How many events there are."""
        return float(len(trace.events))

    run = baton.train(
        "grpo", task=task, policy="tiny", surface=Lines(), tools=[halve], aggregators=[Longest()],
        metrics=[num_events], steps=1, settings=SMALL, out=tmp_path / "run",
    )  # fmt: skip
    recipe = (run.out / "recipe.toml").read_text()
    assert 'surface = "lines-2"' in recipe  # another than the shipped one, for all that Baton knows
    assert '"halve"' in recipe
    assert '"longest"' in recipe
    assert "num_events" in json.dumps(run.after)
    traces = list(read_all(run.out / "traces"))
    assert "longest" in json.dumps([trace.header.meta for trace in traces])
