"""People act on a run at every moment of it, and its trace is still run again exactly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import pytest
from chaos import TOPOLOGY_NAMES, make_team
from hypothesis import given, settings
from hypothesis import strategies as st
from test_resume import Crash, CrashingJournal

from baton.engine.scripted import ScriptedEngine
from baton.team.people import Act, RunStanding
from baton.team.protocol import Request
from baton.team.running import Run, header_of, replay, resuming, start
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.canonical import canonical_hash
from baton.trace.formats import read
from baton.trace.formats.sqlite.store import Store
from baton.trace.records import Event
from baton.trace.trace import Trace
from baton.trace.validation import validate

Clock = Literal["virtual", "real"]


class Hand:
    """A person who acts when the run has so many events, and lets a paused run go on when everything is done."""

    def __init__(self, acts: Sequence[tuple[int, Act]], *, forgets: bool = False) -> None:
        self.acts = list(acts)
        self.run: Run | None = None
        self.seen: list[RunStanding] = []
        self.forgets = forgets

    def heard(self) -> list[Act]:
        assert self.run is not None
        happened = len(self.run.writer.events)
        if self.run.state.paused and not self.seen:
            return []  # who looks first acts next
        due = [act for when, act in self.acts if when <= happened or self.run.state.paused]
        if self.forgets:
            return due
        self.acts = [each for each in self.acts if each[1] not in due]
        return due

    def tell(self, standing: RunStanding) -> None:
        self.seen.append(standing)


def steered(team: Team, assignment: Assignment, *acts: tuple[int, Act]) -> tuple[Trace, Hand]:
    hand = Hand(acts)
    hand.run = start(team, assignment, steering=hand)
    return asyncio.run(hand.run.go()), hand


def again(trace: Trace, team: Team, assignment: Assignment) -> None:
    """The trace is valid and is run again exactly."""
    assert validate(trace) == []
    assert canonical_hash(asyncio.run(replay(trace, team, assignment)), times=True) == canonical_hash(
        trace, times=True
    )


def people(trace: Trace) -> list[Event]:
    return [event for event in trace.events if event.type == "human_intervention"]


def talkative(clock: Clock = "virtual") -> tuple[Team, Assignment]:
    """An orchestrator with two workers, who repeat what they were told."""

    def script(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        heard = request.entries[-1].text.replace("\n", " / ")
        if request.role == "worker":
            return f"return {heard}"
        return ["spawn worker: one\nspawn worker: two", "wait", f"stop {heard}"][min(turn, 2)]

    team = Team.of(make_topology("centralized"), ScriptedEngine("s", script), clock=clock)
    return team, Assignment(task_id="t", prompt="p")


@pytest.mark.parametrize("clock", ["virtual", "real"])
@pytest.mark.parametrize("at", range(9))
def test_pause_speak_and_go_on_at_every_event(clock: Clock, at: int) -> None:
    team, assignment = talkative(clock)
    acts = (Act(id="1", do="pause"), Act(id="2", to="orchestrator", text="be quick"), Act(id="3", do="go"))
    trace, _ = steered(team, assignment, *((at, act) for act in acts))
    again(trace, team, assignment)
    told = people(trace)
    assert [event.extra["do"] for event in told] == ["pause", "say", "go"][: len(told)]
    assert len(told) == 3 or at > 4  # the last blocks of a run have more than one event


@st.composite
def some_acts(draw: st.DrawFn) -> list[tuple[int, Act]]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        agent = draw(
            st.sampled_from(["", "orchestrator", "planner", "worker1", "peer1", "lead1", "a b", "ü"])
        )
        do = draw(st.sampled_from(["say", "say", "edit", "edit", "stop", "pause", "go", "approve"]))
        to = f"{agent}#{draw(st.integers(1, 8))}" if do == "edit" else agent
        text = draw(st.sampled_from(["", "7", "return 3", "two\nlines", "\u202eü"]))
        found.append((draw(st.integers(0, 40)), Act(id=f"a{number}", do=do, to=to, text=text)))
    return [*found, (10**6, Act(id="last", do="go"))]


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@given(seed=st.integers(0, 10**6), acts=some_acts())
@settings(max_examples=15)
def test_whatever_people_do_the_run_is_run_again_exactly(
    topology: str, seed: int, acts: list[tuple[int, Act]]
) -> None:
    team, assignment = make_team(topology, seed)
    trace, _ = steered(team, assignment, *acts)
    assert trace.finished
    again(trace, team, assignment)


@given(seed=st.integers(0, 10**6), acts=some_acts())
@settings(max_examples=10)
def test_nobody_who_steers_changes_nothing(seed: int, acts: list[tuple[int, Act]]) -> None:
    team, assignment = make_team("hierarchical", seed)
    trace, _ = steered(team, assignment)
    alone = asyncio.run(start(team, assignment).go())
    assert canonical_hash(trace, times=True) == canonical_hash(alone, times=True)
    assert acts


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@pytest.mark.parametrize("clock", ["virtual", "real"])
@given(
    seed=st.integers(0, 10**6),
    acts=some_acts(),
    crashes=st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=4),
)
@settings(max_examples=5)
def test_whatever_is_killed_every_act_is_done_once(
    tmp_path_factory: pytest.TempPathFactory,
    topology: str,
    clock: Clock,
    seed: int,
    acts: list[tuple[int, Act]],
    crashes: list[tuple[int, bool]],
) -> None:
    """The run dies at any commit; who steers keeps all acts for good, as a file does."""
    team, assignment = make_team(topology, seed, clock=clock)
    path = tmp_path_factory.mktemp("store") / "run.db"
    header = header_of(team, assignment)
    points = iter(crashes)
    while not (path.exists() and read(path).finished):
        dies_at, after = next(points, (10**9, False))
        trace = read(path) if path.exists() else None
        store = Store.open(path, durability="process")
        try:
            journal = CrashingJournal(store, trace, header, dies_at, after)
            store.commit()
            hand = Hand(acts, forgets=True)
            if trace is None:
                hand.run = Run(team, assignment, header, journal=journal, steering=hand)
            else:
                hand.run = resuming(trace, team, assignment, journal, steering=hand)
            asyncio.run(hand.run.go())
        except Crash:
            for kept in (store._records, store._links, store._payloads, store._ahead, store._changed):
                kept.clear()
        finally:
            store.close()
    trace = read(path)
    again(trace, team, assignment)
    done = [event.extra["act"] for event in people(trace)]
    assert len(done) == len(set(done))


class TestActs:
    def test_a_word_to_everybody_is_one_event(self) -> None:
        team, assignment = talkative()
        trace, _ = steered(team, assignment, (2, Act(id="1", text="hurry", by="ann")))
        (event,) = people(trace)
        assert (event.to, event.extra["team"], event.extra["by"]) == (
            None, ["orchestrator", "worker1", "worker2"], "ann",
        )  # fmt: skip
        assert "instruction: hurry" in "".join(payload.text() or "" for payload in trace.payloads.values())
        again(trace, team, assignment)

    def test_what_was_not_read_is_edited(self) -> None:
        team, assignment = talkative()

        def script(request: Request) -> str:
            turn = sum(entry.speaker == "assistant" for entry in request.entries)
            heard = request.entries[-1].text.replace("\n", " / ")
            if request.role == "worker":
                return ["send orchestrator: a secret", f"return {heard}"][min(turn, 1)]
            return ["spawn worker: one", "wait", f"stop {heard}"][min(turn, 2)]

        team = Team.of(make_topology("centralized"), ScriptedEngine("s", script))
        trace, hand = steered(
            team, assignment, (3, Act(id="1", do="pause")),
            (99, Act(id="2", do="edit", to="worker1#1", text="nothing")), (99, Act(id="3", do="go")),
        )  # fmt: skip
        shown = [each for standing in hand.seen for each in (*standing.unread, *standing.coming)]
        assert any(each["text"] == "a secret" for each in shown)
        again(trace, team, assignment)
        (edit,) = [event for event in people(trace) if event.extra["do"] == "edit"]
        assert edit.status == "ok"

    def test_what_is_to_come_is_edited(self) -> None:
        team, assignment = talkative()
        trace, _ = steered(team, assignment, (2, Act(id="1", do="edit", to="worker1#1", text="forty")))
        returned = trace.event("worker1#1")
        assert trace.text(returned.content_ref) == "forty"
        (edit,) = people(trace)
        assert (edit.extra["edits"], edit.extra["act"], edit.agent) == ("worker1#1", "1", "human")
        assert any((edge.src, edge.dst) == (edit.id, returned.id) for edge in trace.edges)
        again(trace, team, assignment)

    def test_what_has_no_text_stays_as_it_is(self) -> None:
        team, assignment = talkative()
        trace, _ = steered(team, assignment, (2, Act(id="1", do="edit", to="orchestrator#3", text="x")))
        (edit,) = people(trace)
        assert (edit.status, edit.extra["why"]) == ("invalid", "a wait has no text")
        assert trace.event("orchestrator#3").decision == "wait"
        again(trace, team, assignment)

    def test_a_branch_is_stopped_and_the_rest_goes_on(self) -> None:
        team, assignment = talkative()
        trace, _ = steered(team, assignment, (2, Act(id="1", do="stop", to="worker1", text="too dear")))
        (event,) = people(trace)
        left = trace.event("worker1#1")
        assert (left.type, left.status, left.extra["why"]) == (
            "return", "forced", "a person stopped it: too dear",
        )  # fmt: skip
        assert any((edge.src, edge.dst) == (event.id, left.id) for edge in trace.edges)
        assert trace.finished
        assert trace.event("worker2#1").status == "ok"
        again(trace, team, assignment)

    def test_stopping_the_root_ends_the_run(self) -> None:
        team, assignment = talkative()
        trace, _ = steered(team, assignment, (2, Act(id="1", do="stop", to="orchestrator")))
        assert trace.finished
        assert trace.events[-1].type in ("despawn", "orchestrator_decision")
        again(trace, team, assignment)

    @pytest.mark.parametrize(
        ("act", "why"),
        [
            (Act(id="1", to="worker9", text="x"), "there is no agent 'worker9'"),
            (Act(id="1", do="stop", to="nobody"), "there is no agent 'nobody'"),
            (Act(id="1", do="edit", to="orchestrator#1", text="x"), "cannot be edited any more"),
            (Act(id="1", do="edit", to="nothing", text="x"), "there is no event 'nothing'"),
            (Act(id="1", do="go"), "it is not paused"),
            (Act(id="1", do="approve", to="q"), "nothing called 'q' waits"),
        ],
    )
    def test_what_cannot_be_done_says_why(self, act: Act, why: str) -> None:
        team, assignment = talkative()
        trace, _ = steered(team, assignment, (5, act))
        (event,) = people(trace)
        assert event.status == "invalid"
        assert why in event.extra["why"]
        again(trace, team, assignment)


def test_time_stands_still_while_a_run_is_paused() -> None:
    """A person may think for longer than the team may take."""

    async def slow(request: Request) -> str:
        await asyncio.sleep(0.05)
        return f"stop {len(request.entries)}"

    class Thinks(Hand):
        def heard(self) -> list[Act]:
            assert self.run is not None
            if not self.run.state.paused:
                return super().heard()
            self.acts.clear()
            self.waited = getattr(self, "waited", 0) + 1
            return [Act(id="go", do="go")] if self.waited == 8 else []

    from baton.team.budget import Limits

    team = Team.of(
        make_topology("centralized"), ScriptedEngine("s", slow), clock="real", limits=Limits(seconds=0.5)
    )
    assignment = Assignment(task_id="t", prompt="p")
    hand = Thinks([(0, Act(id="pause", do="pause"))])
    hand.run = start(team, assignment, steering=hand)
    trace = asyncio.run(hand.run.go())
    assert trace.events[-1].decision == "stop"
    assert trace.events[-1].status == "ok"
    assert (trace.costs["wall_clock_s"] or 0) < 0.5
    again(trace, team, assignment)


def test_a_slow_model_on_the_virtual_clock_does_not_keep_people_waiting() -> None:
    asked = asyncio.Event()

    class Slow:
        name = "slow"

        def encode(self, entries: object, after: object) -> None:
            return None

        async def answer(self, requests: Sequence[Request]) -> list[object]:
            from baton.team.protocol import Answer

            if len(requests[0].entries) < 4:
                await asyncio.wait_for(asked.wait(), 20)
            return [Answer(text="stop 1", policy="slow") for _ in requests]

    class Notices(Hand):
        def heard(self) -> list[Act]:
            if any(event.type == "human_intervention" for event in self.run.writer.events):  # type: ignore[union-attr]
                asked.set()  # the model answers only when the person was heard
            return super().heard()

    team = Team.of(make_topology("centralized"), Slow())  # type: ignore[arg-type]
    hand = Notices([(0, Act(id="1", to="orchestrator", text="still there?"))])
    hand.run = start(team, Assignment(task_id="t", prompt="p"), steering=hand)
    trace = asyncio.run(hand.run.go())
    assert trace.events[0].type == "human_intervention"
