"""Each collapse planted and seen, and not seen where there is none; hacking modes that set in during a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import structs
from small_run import small

from baton.compose.stage_from_recipe import make_stage
from baton.learn.stage import Episode
from baton.learn.watch import Watch
from baton.trace.recorded_agent import RecordedAgent
from baton.trace.recorder import Recorder
from baton.trace.records import Reward
from baton.trace.trace import Trace

Play = Callable[[Recorder, RecordedAgent], None]


def recorded(play: Play, trace_id: str = "t") -> Trace:
    with Recorder(None, task_id="task", topology="centralized", trace_id=trace_id, clock=lambda: 0.0) as team:
        play(team, team.agent("lead", role="orchestrator"))
        team.reward("shared", 0.5)
    return team.trace()


def observed(steps: Sequence[Sequence[Trace]], returns: Sequence[float] | None = None) -> list[list[str]]:
    """The monitors that spoke, step by step."""
    watch = Watch(small())
    found = []
    for number, traces in enumerate(steps):
        metrics = {"return": {"mean": 0.5 if returns is None else returns[number], "half": 0.0}}
        found.append([warned.monitor for warned in watch.observe(metrics, traces)])
    return found


def played(name: str, count: int = 12) -> list[Trace]:
    stage = make_stage(
        small(task__name="game:parallel-pandora", task__settings={"num_boxes": 2}, team__max_tokens=64)
    )
    episodes = [Episode(name=f"{name}-{n}", instance=n, seed=n) for n in range(count)]
    return asyncio.run(stage.play(dict.fromkeys(stage.roles, stage.script(name)), episodes))


def test_serial_collapse() -> None:
    eager, never = played("eager"), played("never-spawn")
    assert observed([eager] * 3 + [never] * 3)[-1] == ["serial-collapse"]
    assert observed([eager] * 6) == [[]] * 6
    assert observed([never] * 6) == [[]] * 6, "a team that never spawned has not collapsed"


def test_it_speaks_once_and_after_a_checkpoint_not_again() -> None:
    eager, never = played("eager", 4), played("never-spawn", 4)
    spoke = observed([eager] * 3 + [never] * 6)
    assert [step for step, said in enumerate(spoke) if said] == [5]
    watch = Watch(small())
    for traces in [eager] * 3 + [never] * 3:
        watch.observe({"return": {"mean": 0.0}}, traces)
    again = Watch(small())
    again.load_state_dict(watch.state_dict())
    assert not again.observe({"return": {"mean": 0.0}}, never)
    assert again.state_dict() == {**watch.state_dict(), "last": again.state_dict()["last"]}


def test_the_message_says_what_was_seen_and_what_to_change() -> None:
    watch = Watch(small())
    for traces in [played("eager", 4)] * 3 + [played("never-spawn", 4)] * 3:
        said = watch.observe({"return": {"mean": 0.0}}, traces)
    assert "0% of the last" in said[0].message
    for setting in ("spawn-fork", 'critic.backup = "best-first"', "critic.entropy_bonus"):
        assert setting in said[0].message


def worked(shares: Sequence[int]) -> list[Trace]:
    def play(_: Recorder, lead: RecordedAgent) -> None:
        workers = [lead.spawn(f"w{n}", role="worker", task=f"part {n}") for n in range(len(shares))]
        for worker, share in zip(workers, shares, strict=True):
            for n in range(share):
                worker.tool("look", {"n": n}).result(f"found {n}")
            worker.returns(f"by {worker.name}" if hasattr(worker, "name") else "done")
        lead.stop("done")

    return [recorded(play)]


def test_dominant_agent() -> None:
    even, one = worked((5, 5, 5)), worked((60, 0, 0))
    assert "dominant-agent" in observed([even] * 3 + [one] * 3)[-1]
    assert "dominant-agent" not in observed([even] * 6)[-1]
    assert "dominant-agent" not in observed([one] * 6)[-1]
    assert "dominant-agent" not in observed([worked((9,))] * 6)[-1], "one sub-agent dominates nobody"


def chatted(count: int) -> list[Trace]:
    def play(_: Recorder, lead: RecordedAgent) -> None:
        worker = lead.spawn("w", role="worker", task="work")
        for n in range(count):
            worker.send(lead, f"word{n}")
        worker.returns("done")
        lead.stop("done")

    return [recorded(play)]


def test_over_communication() -> None:
    steps = [chatted(2)] * 3 + [chatted(8)] * 3
    assert "over-communication" in observed(steps)[-1]
    assert "over-communication" not in observed(steps, [0.2, 0.2, 0.2, 0.6, 0.6, 0.6])[-1], "it pays"
    assert "over-communication" not in observed([chatted(8)] * 6)[-1]


def answered(texts: Sequence[str], answer: str, trace_id: str) -> Trace:
    def play(_: Recorder, lead: RecordedAgent) -> None:
        workers = [lead.spawn(f"w{n}", role="worker", task="solve") for n in range(len(texts))]
        for worker, text in zip(workers, texts, strict=True):
            worker.returns(text)
        lead.stop(answer)

    return recorded(play, trace_id)


def test_aggregation_leakage_is_text_copied_as_progress() -> None:
    parts = (
        "the river rose by two metres after the long storm",
        "three cellars near the old market were flooded",
    )
    own = [answered(parts, "A storm: high water at the river and in some houses of the town.", "own")]
    copied = [answered(parts, ". ".join(parts), "copied")]
    assert "aggregation-leakage" in observed([own] * 3 + [copied] * 3)[-1]
    assert "aggregation-leakage" not in observed([own] * 6)[-1]
    assert "aggregation-leakage" not in observed([copied] * 6)[-1], "the team began so"
    votes = [answered(("a", "b", "b"), "b", f"v{n}") for n in range(4)]
    assert "aggregation-leakage" not in observed([own] * 3 + [votes] * 3)[-1], "an answer is no copy"


def test_a_run_of_an_earlier_version_goes_on_under_the_new_name() -> None:
    watch = Watch(small())
    watch.load_state_dict(
        {"first": {"leakage": [0.5] * 3}, "last": {"leakage": [1.0] * 3}, "firing": ["aggregation-leakage"]}
    )
    state = watch.state_dict()
    assert state["first"]["one_source"] == [0.5] * 3
    assert state["last"]["one_source"] == [1.0] * 3
    assert state["firing"] == ["one-source"]
    assert "copied" not in state["first"]


def test_one_source() -> None:
    split = [("a", "b", "b"), ("b", "a", "b"), ("a", "a", "b"), ("b", "b", "a")]
    votes = [answered(each, max(set(each), key=each.count), f"v{n}") for n, each in enumerate(split)]
    first = [answered(each, each[0], f"f{n}") for n, each in enumerate(split)]
    assert "one-source" in observed([votes] * 3 + [first] * 3)[-1]
    assert "one-source" not in observed([votes] * 6)[-1]
    agree = [answered(("a", "a"), "a", f"a{n}") for n in range(4)]
    assert "one-source" not in observed([votes] * 3 + [agree] * 3)[-1]


@pytest.mark.parametrize("told", [True, False])
def test_hacking_that_sets_in(told: bool) -> None:
    def play(_: Recorder, lead: RecordedAgent) -> None:
        worker = lead.spawn("w", role="worker", task="work")
        for n in range(6):
            worker.tool("look", {"n": 0 if told else n}).result("found")
        worker.returns("done")
        lead.stop("done")

    def honest(_: Recorder, lead: RecordedAgent) -> None:
        worker = lead.spawn("w", role="worker", task="work")
        for n in range(6):
            worker.tool("look", {"n": n}).result(f"found {n}")
        worker.returns("done")
        lead.stop("done")

    clean, now = [recorded(honest)], [recorded(play)]
    spoke: Any = observed([clean] * 3 + [now] * 3)[-1]
    assert ("tool-spam" in spoke) is told


def test_large_steps() -> None:
    def spoken(moved: Sequence[float | None], returns: Sequence[float], **changes: Any) -> list[str]:
        watch, traces = Watch(small(**changes)), worked((1, 1))
        for far, value in zip(moved, returns, strict=True):
            said = watch.observe({"return": {"mean": value}, "moved": far}, traces)
        return [warned.message for warned in said]

    falls = [0.8, 0.8, 0.8, 0.3, 0.3, 0.3]
    [message] = spoken([0.9] * 6, falls)
    assert "from 0.8 to 0.3" in message
    assert "Lower train.learning_rate" in message
    [message] = spoken([0.9] * 6, falls, policies__main__learning_rate=0.01)
    assert "Lower policies.main.learning_rate" in message
    assert spoken([0.9] * 3 + [0.0] * 3, falls), "a policy that has collapsed is moved no more"
    assert not spoken([0.02] * 6, falls), "it falls for another reason"
    assert not spoken([0.9] * 6, [0.3] * 6), "large steps that do no harm"
    assert not spoken([None] * 6, falls)


def test_judges_that_drift_with_the_policy() -> None:
    """A policy that learns to please its judge: verdicts stay high while what they judge gets worse."""

    def judged(verdict: float, won: float) -> list[Trace]:
        trace = structs.replace(answered(("a", "b"), "a", "j"), rewards=())
        final = next(e for e in trace.events if e.decision == "stop")
        mine = (
            Reward(family="shared", unit="team", target=trace.trace_id, value=won),
            Reward(
                family="debate", unit="orchestrator", target=final.id, value=verdict, name="verdict", by="m"
            ),
        )
        return [structs.replace(trace, rewards=mine)]

    assert "judge-drift" in observed([judged(0.8, 0.7)] * 3 + [judged(0.9, 0.3)] * 3)[-1]
    assert "judge-drift" not in observed([judged(0.5, 0.4)] * 3 + [judged(0.9, 0.8)] * 3)[-1], (
        "both got better"
    )
    assert "judge-drift" not in observed([judged(0.9, 0.3)] * 6)[-1], "it was so from the start"


def test_credit_that_rests_on_the_return_alone() -> None:
    watch = Watch(small())
    line = {"return": {"mean": 0.5, "half": 0.0}}
    rests = {"events": 40, "zero": 0.1, "borrowed": 0.05, "alone": 0.8}
    (warned,) = watch.observe({**line, "credit_grounds": rests}, [])
    assert warned.monitor == "bare-credit"
    assert "of 40 events 80% have a credit that rests on the return alone" in warned.message
    assert watch.observe({**line, "credit_grounds": {**rests, "borrowed": 0.8, "alone": 0.1}}, []) == []
    assert watch.observe(line, []) == []  # a run of an earlier version has no such figure
