"""Rewards that come from a formal checker or from what a team agrees on: as published, against the recipes' rules."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from marked import marked
from reward_traces import Clock, recorded

from baton.compose.stage_from_recipe import make_stage
from baton.compose.training import reward_of
from baton.engine.scripted import ScriptedEngine
from baton.errors import TraceError
from baton.learn.recipe import load
from baton.learn.stage import Episode
from baton.reward import Gold
from baton.reward.rules.debate import Consensus, FormalCritic
from baton.tasks.formalise import SENTENCES, agrees
from baton.team.protocol import Request
from baton.trace.recorded_agent import RecordedAgent
from baton.trace.recorder import Recorder
from baton.trace.trace import Trace


def played(recipe: str, script: object, instance: int) -> Trace:
    stage = make_stage(load(recipe, ["team.max_tokens=200"]))  # tokens of a script are characters
    engines = dict.fromkeys(stage.roles, ScriptedEngine("s", script))  # type: ignore[arg-type]
    [trace] = asyncio.run(stage.play(engines, [Episode(name="t", instance=instance, seed=instance)]))
    return trace


# CriticLean.

VERDICTS = {
    "return accept": (True, True), "return reject": (False, True), "return accept, it is the same": (True, True),
    "return Reject: the sides are exchanged": (False, True), "return maybe": (None, False),
    "return the formula is wrong": (None, False),
}  # fmt: skip


@marked(["criticlean"], ["reward"])
def test_the_smaller_of_accuracy_and_format(recipe: str) -> None:
    rules = reward_of(load(recipe).reward)
    assert rules is not None
    seen: Counter[float] = Counter()
    for instance in range(9):
        drawn = make_stage(load(recipe)).task.instance(instance)
        label = agrees(drawn.gold, drawn.data)
        for said, (judgement, form) in VERDICTS.items():
            trace = played(recipe, lambda _, said=said: said, instance)
            gold = Gold(verify=lambda text, sentence=drawn.gold: float(agrees(sentence, text)))
            found = {reward.target: reward.value for reward in rules.score(trace, gold)}
            accuracy = float(judgement is not None and judgement == label)
            assert found == {"critic1": min(accuracy, float(form))}
            seen[found["critic1"]] += 1
    assert min(seen[0.0], seen[1.0]) >= 9


@marked(["criticlean"], ["policies", "rollouts"])
def test_the_critic_judges_what_is_given(recipe: str) -> None:
    plan = load(recipe)
    traces = [played(recipe, lambda _, said=said: said, 3) for said in ("return accept", "return reject")]
    for trace in traces:
        assert [call.role for call in trace.calls] == ["critic"], "nobody else is asked"
    assert len({trace.calls[0].id for trace in traces}) == 1
    texts = [[trace.text(e.content_ref) for e in trace.events if e.type == "spawn"] for trace in traces]
    assert texts[0] == texts[1], "the group has one sentence and one formula"
    assert plan.rollout.group_size > 1
    assert plan.rollout.fan_out == ()


def test_a_critic_in_a_team_of_another_kind() -> None:
    """Other names, two critics of two authors, a checker that knows no formulas."""

    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        for number, (text, verdict) in enumerate((("4", "accept"), ("5", "accept: fine"), ("6", "reject"))):
            author = lead.spawn(f"a{number}", role="prover", task="prove")
            author.returns(text)
            critic = lead.spawn(f"c {number}", role="referee", task="judge")
            critic.returns(verdict)
        lead.stop("4")

    rule = FormalCritic(critics=("referee",), authors=("prover",))
    trace = recorded(play)
    found = {
        r.target: r.value for r in rule.score(trace, Gold(verify=lambda text: float(int(text) % 2 == 0)))
    }
    assert found == {"c 0": 1.0, "c 1": 0.0, "c 2": 0.0}
    with pytest.raises(TraceError, match="needs an agent with the role"):
        FormalCritic().score(trace, Gold(answer="4"))


def test_a_critic_of_nothing_is_an_error() -> None:
    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        critic = lead.spawn("c", role="critic", task="judge")
        lead.spawn("f", role="formaliser", task="write")
        critic.returns("accept")
        lead.stop("x")

    with pytest.raises(TraceError, match="nothing to check"):
        FormalCritic().score(recorded(play), Gold(answer="x"))


# Multi-agent fine-tuning.


def debate(first: list[str], last: list[str]) -> Trace:
    """The shipped society of three, whose members say this."""

    def script(request: Request) -> str:
        seat = int(request.role[-1]) - 1
        return f"return {(first if request.role.startswith('generator') else last)[seat]}"

    return played("multiagent-finetuning", script, 0)


DEBATES = [
    (["7", "7", "3"], ["7", "7", "7"]), (["1", "2", "3"], ["3", "2", "3"]), (["5", "4", "9"], ["1", "2", "3"]),
    (["six", "Six ", "7"], ["6", "six.", "SIX"]), (["8", "8", "8"], ["2", "8", "2"]),
]  # fmt: skip


@marked(["multiagent-finetuning"], ["reward"])
@pytest.mark.parametrize(("first", "last"), DEBATES)
def test_agreement_with_the_consensus(recipe: str, first: list[str], last: list[str]) -> None:
    """The authors' sets: sorted by (count, answer), the last; generators by first answers, critics by last ones."""
    rules = reward_of(load(recipe).reward)
    assert rules is not None

    def same(text: str) -> str:
        return text.strip().rstrip(".").lower()

    counts = Counter(map(same, last))
    consensus = sorted((count, answer) for answer, count in counts.items())[-1][1]
    wanted = {f"generator{n + 1}": float(same(text) == consensus) for n, text in enumerate(first)}
    wanted |= {f"critic{n + 1}": float(same(text) == consensus) for n, text in enumerate(last)}
    trace = debate(first, last)
    roles = {call.id: call.role for call in trace.calls}
    assert {roles[r.target]: r.value for r in rules.score(trace)} == wanted
    only = {roles[r.target]: r.value for r in Consensus(corrected=True).score(trace)}
    for n, text in enumerate(first):
        fixed = wanted[f"critic{n + 1}"] == 1.0 and same(text) != consensus
        assert only[f"critic{n + 1}"] == float(fixed)
        assert only[f"generator{n + 1}"] == wanted[f"generator{n + 1}"]


def test_debaters_who_answer_again_have_a_first_and_a_last() -> None:
    """The plain debate, two rounds, and turns that call a tool before they answer."""

    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        crew = [lead.spawn(f"d{n}", role="debater", task="x") for n in range(3)]
        for n, member in enumerate(crew):
            member.call(completion_ids=[1])
            member.tool("look", {"n": n}).result("y")
            member.call(completion_ids=[2])
            member.returns("ab"[n % 2])
        lead.stop("a")

    found = Consensus().score(recorded(play))
    assert sorted(r.value for r in found) == [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    with pytest.raises(TraceError, match="nobody returned"):
        Consensus().score(recorded(lambda _, lead, clock: lead.stop("a") and None))


def test_every_sentence_has_a_formula_that_says_it() -> None:
    assert all(agrees(sentence, formula) for sentence, formula in SENTENCES.items())
