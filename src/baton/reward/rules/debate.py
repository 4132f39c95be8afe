"""R6, debate and verification: who held what, who changed to what, and what judges say. Lands on messages and agents.

Risk: collusion and over-communication. Heterogeneous verifiers count by kind, not by head, and their
disagreement costs; see also `monitors.verifier_collusion`.
"""

from __future__ import annotations

import math
import re
from typing import ClassVar, Literal

from msgspec import field

from baton.errors import TraceError
from baton.reward.reading import agents_in, judged, outcome, verdicts
from baton.reward.rule import Rule
from baton.trace.acts import last_said, said_in, turns
from baton.trace.gold import Gold, verifier
from baton.trace.graph.arrays import Graph
from baton.trace.graph.lineage import NO_EFFECT, Lineage, in_seq_order
from baton.trace.outcome import final_event, plain
from baton.trace.records import Event, Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit, RewardFamily


class Resolution(Rule, tag="resolution", frozen=True, kw_only=True):
    """r_i = (2 x 1[i's last answer is the resolved one] - 1)(2 R - 1): siding with what proved right. [I]

    Dissent from a wrong resolution earns what agreeing with a right one does, so conforming is not
    paid as such. Answers are compared without case, runs of space and closing punctuation.
    Source: resolution-based debate rewards, R6 of the survey, arXiv 2605.02801; this form is ours [I].
    """

    family: ClassVar[RewardFamily] = "debate"
    name: str = "resolution"
    roles: tuple[str, ...] = ()
    """Who debates; empty: everyone who answered but the one who resolved."""

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        final = final_event(trace)
        if final is None:
            raise TraceError(
                f"trace {trace.trace_id}: {self.name} compares with the resolved answer; there is none."
            )
        resolved = plain(said_in(trace, final))
        value, basis = outcome(trace, gold)
        heard = _debaters(trace, self.roles, final.agent, self.name)
        return [
            self.reward(
                "agent",
                agent,
                (1 if plain(said_in(trace, event)) == resolved else -1) * (2 * value - 1),
                basis,
            )
            for agent, event in heard.items()
        ]


class Swing(Rule, tag="swing", frozen=True, kw_only=True):
    """r = to_right where an agent turns from a wrong answer to a right one, to_wrong where it turns back. [I]

    The first thing an agent says changes nothing. Events in which nothing changed have no record.
    Source: flips between right and wrong, as debate studies count them; this form is ours [I].
    """

    family: ClassVar[RewardFamily] = "debate"
    name: str = "swing"
    roles: tuple[str, ...] = ()
    """Who debates; empty: everyone but the one who resolved."""
    to_right: float = 1.0
    to_wrong: float = -1.0
    right_from: float = 0.5

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        verify = verifier(gold, self.name)
        final = final_event(trace)
        heard = _debaters(trace, self.roles, final.agent if final is not None else None, self.name)
        was: dict[str, bool] = {}
        records = []
        for event in in_seq_order(trace):
            if event.agent not in heard or not _speaks(event):
                continue
            right = verify(said_in(trace, event)) >= self.right_from
            if was.setdefault(event.agent, right) != right:
                records.append(self.reward("message", event.id, self.to_right if right else self.to_wrong))
            was[event.agent] = right
        return records


class JudgePanel(Rule, tag="judge_panel", frozen=True, kw_only=True):
    """A panel's score of what each agent last said, or of the team's answer.

    strict: 1 when every judge's score reaches `threshold`, else 0, as in Debate-as-Reward's strict binary
    panel [A]; majority: 1 when more than half do; mean: the mean score [M].
    Source: Debate-as-Reward's strict binary panel [A]; majority and mean [M].
    """

    family: ClassVar[RewardFamily] = "debate"
    name: str = "judge_panel"
    how: Literal["mean", "majority", "strict"] = "mean"
    threshold: float = 0.5
    of: Literal["agents", "answers", "answer"] = "agents"
    """`agents`: on the message each last answered with. `answers`: on every one. `answer`: on the team."""

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        records = []
        for unit, target, event in _judgeable(trace, self.of, self.name):
            scores = list(verdicts(trace, gold, event, self.name).values())
            reached = sum(score >= self.threshold for score in scores)
            value = {
                "mean": math.fsum(scores) / len(scores),
                "majority": float(2 * reached > len(scores)),
                "strict": float(reached == len(scores)),
            }[self.how]
            records.append(self.reward(unit, target, value, f"{len(scores)} judges"))
        return records


class Verifiers(Rule, tag="verifiers", frozen=True, kw_only=True):
    """Heterogeneous verifiers: r = mean_k(m_k) - disagreement x std_k(m_k), m_k the mean score within kind k. [I]

    Ten copies of one model are one opinion: judges of the same kind count together once. Judges that
    `kinds` does not name are each a kind of their own.
    Source: heterogeneous verifiers, R6 of the survey, arXiv 2605.02801; this form is ours [I].
    """

    family: ClassVar[RewardFamily] = "debate"
    name: str = "verifiers"
    kinds: dict[str, str] = field(default_factory=dict)
    """Judge -> what kind of verifier it is."""
    disagreement: float = 0.5
    of: Literal["agents", "answer"] = "answer"

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        records = []
        for unit, target, event in _judgeable(trace, self.of, self.name):
            groups: dict[str, list[float]] = {}
            for judge, score in verdicts(trace, gold, event, self.name).items():
                groups.setdefault(self.kinds.get(judge, f"judge {judge}"), []).append(score)
            means = [math.fsum(group) / len(group) for _, group in sorted(groups.items())]
            middle = math.fsum(means) / len(means)
            spread = math.sqrt(math.fsum((mean - middle) ** 2 for mean in means) / len(means))
            value = middle - self.disagreement * spread
            records.append(self.reward(unit, target, value, f"{len(means)} kinds, spread {spread:g}"))
        return records


class Consensus(Rule, tag="consensus", frozen=True, kw_only=True):
    """Multi-agent fine-tuning: a first or last answer earns 1 where it is the team's consensus, else 0. [C]

    The consensus is the answer that most gave last; of equally many the greatest, as the authors' code sorts them. No
    truth is asked for. It lands on the turns in which the answer was made; answers between have none. In a team of
    generators and critics (`society`) a generator's answer is a first one and its critic's a last one; agents who
    answer again have both. With `corrected` a last answer earns only where the first was another.
    Source: the authors' code of arXiv 2501.05707 [C].
    """

    family: ClassVar[RewardFamily] = "debate"
    name: str = "consensus"
    corrected: bool = False

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:  # noqa: ARG002 (no truth is asked for)
        final = final_event(trace)
        said = _answers(trace, final.agent if final is not None else Lineage.of(trace).root)
        if not said:
            raise TraceError(
                f"trace {trace.trace_id}: {self.name} compares answers, and nobody returned any."
            )
        last = [answers[-1][0] for answers in said.values()]
        consensus = max(last, key=lambda answer: (last.count(answer), answer))
        records = []
        for answers in said.values():
            (first, made), (end, remade) = answers[0], answers[-1]
            records += [self.reward("turn", call, float(first == consensus)) for call in made]
            if len(answers) > 1:
                earned = end == consensus and not (self.corrected and first == consensus)
                records += [self.reward("turn", call, float(earned)) for call in remade]
        return records


def _answers(trace: Trace, resolver: str | None) -> dict[str, list[tuple[str, list[str]]]]:
    """Seat in the debate -> what was answered in it, in order, each with the calls that made the answer."""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    open_: dict[str, list[str]] = {}
    for turn in turns(trace):
        open_.setdefault(turn.agent, []).append(turn.call)
        for event in (trace.events[place] for place in turn.events):
            if event.type == "return" and event.agent != resolver and _speaks(event):
                answer = plain(said_in(trace, event)), open_.pop(turn.agent, [])
                found.setdefault(_seat(turn.role, event.agent), []).append(answer)
    return found


def _seat(role: str | None, agent: str) -> str:
    """Whose place in a debate an agent has: generator 2 and critic 2 have the same."""
    found = re.fullmatch(r"(?:generator|critic)(\d+)", role or "")
    return agent if found is None else f"seat {found[1]}"


class FormalCritic(Rule, tag="formal_critic", frozen=True, kw_only=True):
    """CriticLean: r = min(accuracy, format), accuracy 1 where a critic's verdict agrees with the checker's, else 0. [P]

    The checker is `verify` of the gold data, asked about what the critic judged: the latest thing that an author said
    among what the verdict depends on. In CriticLean it is experts' labels beside the Lean compiler; here it can be any
    decision procedure (the task `formalise` has one). Format is 1 where none of the critic's own events is invalid and
    its answer begins with accept or reject.
    Source: CriticLean, arXiv 2507.06181 [P]; what counts as form [I].
    """

    family: ClassVar[RewardFamily] = "debate"
    name: str = "formal_critic"
    critics: tuple[str, ...] = ("critic",)
    authors: tuple[str, ...] = ("formaliser",)
    right_from: float = 0.5
    """Score from which the checker passes something."""

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        check = verifier(gold, self.name)
        lineage, graph = Lineage.of(trace), Graph.of(trace)
        authors = agents_in(trace, lineage, self.authors, self.name)
        critics = agents_in(trace, lineage, self.critics, self.name)
        broken = {event.agent for event in trace.events if event.status == "invalid"}
        heard = last_said(trace, lineage)
        records = []
        for agent in critics:
            if agent not in heard:
                records.append(self.reward("agent", agent, 0.0, "said nothing"))
                continue
            about = judged(trace, graph, heard[agent], authors)
            if about is None:
                raise TraceError(
                    f"trace {trace.trace_id}: {agent}'s verdict {heard[agent].id} depends on nothing that "
                    f"{' or '.join(self.authors)} said, so there is nothing to check."
                )
            said = plain(said_in(trace, heard[agent]))
            formed = agent not in broken and said.startswith(("accept", "reject"))
            passed = check(said_in(trace, about)) >= self.right_from
            accurate = said.startswith("accept") == passed
            records.append(self.reward("agent", agent, float(min(accurate, formed)), "checked"))
        return records


class SolutionEvaluation(Rule, tag="solution_evaluation", frozen=True, kw_only=True):
    """CoMAS: a scorer's tau in {1, 2, 3} gives r_solution = (tau - 1) / 2 and r_evaluation = 1 - r_solution. [A/M]

    Each thing a scorer said that holds such a number scores the evaluation it read last and the solution
    that evaluation read last. A scorer that named no tau scored nothing. With no scorers, judges of the solution
    stand for them: tau = 1 + 2 x their mean score from 0 to 1 [I].
    Source: CoMAS [A]; the two shares sum to one [M].
    """

    family: ClassVar[RewardFamily] = "debate"
    name: str = "solution_evaluation"
    solvers: tuple[str, ...] = ("solver",)
    evaluators: tuple[str, ...] = ("evaluator",)
    scorers: tuple[str, ...] = ("scorer",)

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        lineage, graph = Lineage.of(trace), Graph.of(trace)
        solvers = agents_in(trace, lineage, self.solvers, self.name)
        evaluators = agents_in(trace, lineage, self.evaluators, self.name)
        scorers = agents_in(trace, lineage, self.scorers, self.name) if self.scorers else evaluators
        scores: dict[str, list[float]] = {}
        for event in in_seq_order(trace):
            if event.agent not in scorers or not _speaks(event):
                continue
            evaluation = judged(trace, graph, event, evaluators) if self.scorers else event
            solution = None if evaluation is None else judged(trace, graph, evaluation, solvers)
            if evaluation is None or solution is None:
                continue
            value = self._scored(trace, gold, event, solution)
            if value is not None:
                scores.setdefault(solution.id, []).append(value)
                scores.setdefault(evaluation.id, []).append(1 - value)
        if not scores:
            raise TraceError(
                f"trace {trace.trace_id}: {self.name} found no scorer that read an evaluation of a solution and "
                "said 1, 2 or 3."
            )
        # Scored more than once: the mean.
        return [
            self.reward("message", target, math.fsum(values) / len(values))
            for target, values in sorted(scores.items(), key=lambda item: trace.event(item[0]).seq)
        ]

    def _scored(self, trace: Trace, gold: Gold | None, event: Event, solution: Event) -> float | None:
        """(tau - 1) / 2, by what a scorer said or by the judges; None: it named no tau."""
        if not self.scorers:
            scores = verdicts(trace, gold, solution, self.name).values()
            return math.fsum(scores) / len(scores)
        tau = re.findall(r"(?<![\d.])[123](?![\d.]*\d)", said_in(trace, event))
        return (int(tau[-1]) - 1) / 2 if tau else None


def _speaks(event: Event) -> bool:
    return (
        event.type in ("message", "return")
        and event.decision != "delegate"
        and event.status not in NO_EFFECT
        and event.content_ref is not None
    )


def _debaters(trace: Trace, roles: tuple[str, ...], resolver: str | None, what: str) -> dict[str, Event]:
    """Who took part -> the last thing each said."""
    lineage = Lineage.of(trace)
    heard = last_said(trace, lineage)
    if roles:
        wanted = agents_in(trace, lineage, roles, what)
        return {agent: event for agent, event in heard.items() if agent in wanted}
    found = {agent: event for agent, event in heard.items() if agent != resolver and _speaks(event)}
    if not found:
        raise TraceError(
            f"trace {trace.trace_id}: {what} needs agents that answered before it was resolved; none did."
        )
    return found


def _judgeable(trace: Trace, of: str, what: str) -> list[tuple[CreditUnit, str, Event]]:
    """Unit, target and event of everything a panel is asked about."""
    final = final_event(trace)
    if of == "answer":
        if final is None:
            raise TraceError(f"trace {trace.trace_id}: {what} judges the team's answer and there is none.")
        return [("team", trace.trace_id, final)]
    heard = _debaters(trace, (), final.agent if final is not None else None, what)
    if of == "answers":
        said_by = [e for e in in_seq_order(trace) if e.agent in heard and _speaks(e)]
        return [("message", event.id, event) for event in said_by]
    return [("message", event.id, event) for event in heard.values()]
