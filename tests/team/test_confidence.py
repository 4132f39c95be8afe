"""Confidence on returns, and weighted votes that use it: on the surfaces, in the trace, through replay and forks."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import baton
from baton.cli import main
from baton.compose.run_settings import Settings
from baton.compose.voter_accuracies import estimated_accuracies
from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.tasks.voters import VotersTask
from baton.team import forking
from baton.team.action import VERBS, Return
from baton.team.agent import Role
from baton.team.aggregate import AggregateError, Claim, aggregator
from baton.team.forks import fork
from baton.team.intervene import MuteAgent, Replace
from baton.team.protocol import Request
from baton.team.running import replay, run
from baton.team.surface import Lines, Parsed, ParseError, make_surface
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.formats import read_all, write
from baton.trace.trace import Trace
from baton.trace.validation import validate

EVERY = frozenset(VERBS)
HASHES = """
centralized lines 302fd07fa5d7f9890c751a97
centralized tools 2ac19047b69c35ad06f97a57
planner_executor_critic lines 2cc37a3258402f593b94296d
planner_executor_critic tools b784d8c56196cc7c29f006d9
debate lines ceeb38919dbc421a1dcff63b
debate tools ec021c93732b438f549a021c
swarm lines 85b301ae4d9c58054510a4d5
swarm tools 2bbc9dab5b8aa2e4d7ab4631
hierarchical lines 657f145dff65e69d06880ac9
hierarchical tools c01ec51c1bd04cbe324833af
harness lines 1504e06e3c60242aa8d113b8
harness tools fc52cc02e774e65054eef120
"""


@pytest.mark.parametrize("line", HASHES.split("\n")[1:-1])
def test_teams_that_are_not_asked_how_sure_they_are_keep_their_harness(line: str) -> None:
    topology, surface, wanted = line.split()
    team = Team.of(make_topology(topology), lambda _: "", surface=surface)
    assert team.harness.hash == wanted


# -- surfaces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("surface", ["lines", "tools"])
@settings(max_examples=60)
@given(
    text=st.one_of(st.text(), st.sampled_from(['{"text":"a","confidence":0.5}', '{"text": "b"}', "42", ""])),
    confidence=st.one_of(st.none(), st.floats(0, 1)),
)
def test_a_return_reads_as_it_was_written(surface: str, text: str, confidence: float | None) -> None:
    if any("\ud800" <= c <= "\udfff" for c in text):
        return
    made = make_surface(surface, ())
    action = Return(text, confidence)
    (read,) = made.parse(made.render(action), EVERY)
    assert isinstance(read, Parsed)
    assert read.action == action


def test_what_is_no_confidence_stays_text() -> None:
    for said in (
        '{"text": "a"}',
        '{"text": "a", "confidence": 0.5, "why": "b"}',
        "{a}",
        "42 (confidence 0.8)",
    ):
        (read,) = Lines().parse(f"return {said}", EVERY)
        assert isinstance(read, Parsed)
        assert read.action == Return(said)


@pytest.mark.parametrize("confidence", ["1.5", "-0.1", '"high"', "true"])
@pytest.mark.parametrize("surface", ["lines", "tools"])
def test_a_confidence_is_a_probability(surface: str, confidence: str) -> None:
    said = f'{{"text": "a", "confidence": {confidence}}}'
    text = (
        f"return {said}"
        if surface == "lines"
        else f'<tool_call>{{"name": "return", "arguments": {said}}}</tool_call>'
    )
    (read,) = make_surface(surface, ()).parse(text, EVERY)
    assert isinstance(read, ParseError)
    assert "confidence" in read.message


@pytest.mark.parametrize("surface", ["lines", "tools"])
def test_a_role_that_is_asked_is_told_how_to_say_it(surface: str) -> None:
    plain = Role(name="judge", verbs=("return",))
    asked = Role(name="judge", verbs=("return",), confidence=True)
    boss = Role(name="boss", verbs=("spawn", "stop"), spawns=("judge",))

    def team(judge: Role) -> Team:
        from baton.team.team import Topology

        return Team.of(
            Topology(name="mixed", root="boss", roles=(boss, judge)), lambda _: "", surface=surface
        )

    told = team(asked).harness.commands["judge"]
    assert "confidence" in told
    assert "confidence" not in team(plain).harness.commands["judge"]
    assert team(asked).harness.hash != team(plain).harness.hash
    # What it is shown can be read.
    example = told.rpartition("0 to 1: ")[2]
    (read,) = team(asked).harness.surface.parse(example, EVERY)
    assert isinstance(read, Parsed)
    assert read.action == Return("25", 0.8)
    schemas = json.dumps(team(asked).harness.schemas["judge"])
    assert ("confidence" in schemas) == (surface == "tools")


# -- in a run ---------------------------------------------------------------------------------------


def voting(said: dict[str, str], *, surface: str = "lines", fusion: dict[str, object] | None = None) -> Trace:
    """Peers that say these lines, fused by log odds; run, replayed, validated."""

    def script(request: Request) -> str:
        return said[request.agent]

    team = Team.of(
        make_topology("swarm", peers=len(said), method="log_odds"),
        ScriptedEngine("s", script),
        surface=surface,
    )
    assignment = Assignment(
        task_id="vote",
        prompt="which?",
        verify=lambda answer: float(answer == "a"),
        fusion={} if fusion is None else {"log_odds": fusion},
    )
    trace = asyncio.run(run(team, assignment))
    assert validate(trace) == []
    assert asyncio.run(replay(trace, team, assignment)) == trace
    return trace


def sure(text: str, confidence: float) -> str:
    return f'return {{"text": "{text}", "confidence": {confidence}}}'


def test_one_who_knows_outvotes_two_who_guess() -> None:
    trace = voting({"peer1": sure("b", 0.6), "peer2": sure("b", 0.55), "peer3": sure("a", 0.9)})
    assert trace.rewards[0].value == 1.0
    told = {e.agent: e.extra.get("confidence") for e in trace.events if e.type == "return"}
    assert told == {"peer1": 0.6, "peer2": 0.55, "peer3": 0.9}
    fused = next(e for e in trace.events if e.type == "aggregate")
    odds = [math.log(p / (1 - p)) for p in (0.6, 0.55, 0.9)]
    order = [{"peer1": 0, "peer2": 1, "peer3": 2}[name] for name in fused.extra["sources"]]
    assert fused.extra["weights"] == pytest.approx([odds[k] / sum(odds) for k in order])
    against = 0.4 / 0.6 * 0.45 / 0.55 * 0.9 / 0.1
    assert fused.extra["posterior"]["a"] == pytest.approx(against / (1 + against))


def test_who_reads_a_return_reads_how_sure_it_was() -> None:
    heard: list[str] = []

    def script(request: Request) -> str:
        if request.role == "worker":
            return sure("a", 0.75)
        heard.extend(entry.text for entry in request.entries if entry.text.startswith("worker1 "))
        first = not any(entry.speaker == "assistant" for entry in request.entries)
        return "spawn worker: go\nwait" if first else "stop a"

    team = Team.of(make_topology("centralized"), ScriptedEngine("s", script))
    asyncio.run(run(team, Assignment(task_id="t", prompt="p")))
    assert heard == ["worker1 returned: a (confidence 0.75)"]


def test_nobody_is_so_sure_that_all_others_do_not_count() -> None:
    trace = voting({"peer1": sure("b", 1), **{f"peer{k}": sure("a", 0.95) for k in range(2, 6)}})
    assert trace.rewards[0].value == 1.0
    assert aggregator("log_odds").fuse([Claim("x", "a", 1.0), Claim("y", "b", 0.0)]).text == "a"
    with pytest.raises(AggregateError, match="above 0 and below 1"):
        aggregator("log_odds").fuse([Claim("x", "a")], {"accuracies": {"x": 1.0}})


def test_accuracies_go_before_what_is_claimed() -> None:
    said = {"peer1": sure("b", 0.99), "peer2": sure("b", 0.99), "peer3": sure("a", 0.5)}
    known = {"accuracies": {"peer1": 0.55, "peer2": 0.55, "peer3": 0.9}}
    assert voting(said).rewards[0].value == 0.0
    assert voting(said, fusion=known).rewards[0].value == 1.0
    # Without a word on how sure they are, accuracies are enough; without either it is said what is missing.
    plain = {name: f"return {'a' if name == 'peer3' else 'b'}" for name in said}
    assert voting(plain, fusion=known).rewards[0].value == 1.0
    failed = voting(plain)
    invalid = [failed.text(e.content_ref) or "" for e in failed.events if e.status == "invalid"]
    assert "nothing is known of how often" in invalid[0]


def test_forks_keep_what_was_claimed_and_a_muted_agent_claims_nothing() -> None:
    said = {"peer1": sure("b", 0.6), "peer2": sure("a", 0.9), "peer3": sure("a", 0.6)}

    def script(request: Request) -> str:
        return said[request.agent]

    team = Team.of(make_topology("swarm", peers=3, method="log_odds"), ScriptedEngine("s", script))
    assignment = Assignment(task_id="v", prompt="p", verify=lambda answer: float(answer == "a"))
    trace = asyncio.run(run(team, assignment))
    at = next(e.id for e in trace.events if e.type == "return" and e.agent == "peer2")
    other = asyncio.run(fork(trace, team, assignment, [Replace(at, "b")])).trace
    assert other.rewards[0].value == 0.0  # it is heard as loudly, saying something else
    muted = asyncio.run(fork(trace, team, assignment, [MuteAgent("peer2")])).trace
    (event,) = (e for e in muted.events if e.type == "return" and e.agent == "peer2")
    assert "confidence" not in event.extra


@pytest.mark.parametrize("topology", ["swarm", "debate", "mixed"])
def test_forks_that_copy_bystanders_hear_how_sure_they_were(
    topology: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forking, "_WORTH_COPYING", 0.0)  # copy whoever can be copied, however few

    def script(request: Request) -> str:
        if request.role == "orchestrator":
            first = not any(entry.speaker == "assistant" for entry in request.entries)
            return "spawn worker: a\nspawn worker: b\nwait" if first else "stop 1"
        number = sum(map(ord, request.agent)) % 7
        return sure(str(number % 2), 0.5 + number / 20)

    members = {"swarm": "peers", "debate": "debaters", "mixed": "members"}[topology]
    team = Team.of(make_topology(topology, method="log_odds", **{members: 6}), ScriptedEngine("s", script))
    assignment = Assignment(task_id="v", prompt="p", verify=lambda answer: float(answer == "1"))
    trace = asyncio.run(run(team, assignment))
    forks = forking.Forking(trace, team, lambda: assignment)
    returns = [event for event in trace.events if event.type == "return"]
    for event in returns:
        changes = [Replace(event.id, "7")]
        made, whole = (asyncio.run(forks.make(changes, whole=each)) for each in (False, True))
        assert made.trace == whole.trace
        fused = [e for e in made.trace.events if e.type == "aggregate"]
        assert fused
        assert all(e.status == "ok" for e in fused)
    assert len(returns) >= 6


# -- the task with unequal voters -------------------------------------------------------------------


def exact(skills: tuple[float, ...], num_classes: int, weights: list[float]) -> float:
    """How often the answer with the greatest weight is right, by going through every pattern of votes."""
    total = 0.0
    for votes in itertools.product(range(num_classes), repeat=len(skills)):
        chance = math.prod(
            p if vote == 0 else (1 - p) / (num_classes - 1) for p, vote in zip(skills, votes, strict=True)
        )
        scores = [sum(w for w, v in zip(weights, votes, strict=True) if v == k) for k in range(num_classes)]
        best = [k for k, score in enumerate(scores) if score >= max(scores) - 1e-12]
        total += chance * (0 in best) / len(best)
    return total


def shares(method: str, episodes: int, **task: object) -> float:
    made = VotersTask(**task)  # type: ignore[arg-type]
    right = 0.0
    for seed in range(episodes):
        trace = baton.run(
            made, topology="swarm", seed=seed, settings={"peers": len(made.skills), "method": method}
        )
        assert isinstance(trace, Trace)
        right += trace.rewards[0].value
    return right / episodes


@pytest.mark.parametrize(
    ("skills", "num_classes"), [((0.9, 0.6, 0.6, 0.55, 0.55), 2), ((0.8, 0.6, 0.5, 0.4, 0.4, 0.35), 3)]
)
def test_a_weighted_vote_beats_the_majority_of_unequal_voters(
    skills: tuple[float, ...], num_classes: int
) -> None:
    episodes = 60
    weights = [math.log(p * (num_classes - 1) / (1 - p)) for p in skills]
    best = exact(skills, num_classes, weights)
    plain = exact(skills, num_classes, [1.0] * len(skills))
    assert best > plain + 0.05
    weighted = shares("log_odds", episodes, skills=skills, num_classes=num_classes)
    majority = shares("majority", episodes, skills=skills, num_classes=num_classes)
    assert weighted > majority
    for found, wanted in ((weighted, best), (majority, plain)):  # four standard errors
        assert abs(found - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / episodes)


def test_the_command_with_accuracies_estimated_from_past_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    past, out = str(tmp_path / "past"), str(tmp_path / "out")
    quiet = ["--topology", "swarm", "--set", "peers=5", "--set", "task.confident=false"]
    for seed in range(12):
        assert main(["run", "voters", *quiet, "--seed", str(seed), "--out", past]) == 0
    capsys.readouterr()
    weighted = [*quiet, "--set", "method=log_odds"]
    assert main(["run", "voters", *weighted, "--seed", "99", "--accuracies", past, "--out", out]) == 0
    said = capsys.readouterr().out
    assert "accuracies  peer1 0." in said
    (trace,) = read_all(out)
    known = trace.header.meta["run"]["settings"]["fusion"]["log_odds"]["accuracies"]
    # By hand: Laplace's rule over the past returns.
    task = VotersTask(confident=False)
    for k in range(5):
        right = sum(str(task.instance(seed).data[k]) == str(task.instance(seed).gold) for seed in range(12))
        assert known[f"peer{k + 1}"] == pytest.approx((right + 1) / 14)
    assert (
        main(["run", "voters", "--topology", "swarm", "--set", "peers=5", "--out", str(tmp_path / "sure")])
        == 0
    )
    assert main(["show", str(tmp_path / "sure")]) == 0
    assert "confidence 0.9]" in capsys.readouterr().out
    assert main(["replay", out]) == 0  # the trace has the figures; the past runs are not needed again
    assert (
        main(["run", "voters", *weighted, "--out", out, "--set", "fusion.log_odds.accuracies.peer1=0.9"]) == 0
    )


def test_accuracies_that_cannot_be_estimated_are_refused(tmp_path: Path) -> None:
    assert main(["run", "shard-sum", "--topology", "swarm", "--out", str(tmp_path / "sum")]) == 0
    now = Settings(task="voters", topology="swarm", policies={})
    with pytest.raises(UsageError, match="worked on shard-sum/train/0"):
        estimated_accuracies([str(tmp_path / "sum")], now)


def test_rollouts_of_training_tell_as_well(tmp_path: Path) -> None:
    """They name their instance and no settings; the task of the new run judges them."""
    trace = baton.run("voters", topology="swarm", seed=7, settings={"peers": 3, "task.confident": False})
    assert isinstance(trace, Trace)
    rollout = structs.replace(trace, header=structs.replace(trace.header, meta={"train": {}}))
    write(rollout, tmp_path / "step.jsonl")
    now = Settings(task="voters", topology="swarm", policies={})
    votes, gold = (getattr(VotersTask().instance(7), name) for name in ("data", "gold"))
    assert estimated_accuracies([str(tmp_path / "step.jsonl")], now) == {
        f"peer{k + 1}": pytest.approx(2 / 3 if votes[k] == gold else 1 / 3) for k in range(3)
    }
