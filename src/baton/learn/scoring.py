"""Rewards of a step's traces by the recipe's rules, with weights that move as the run goes on.

A hybrid's schedules (linear, cosine, or tied to measured progress) and balances advance by one `observe` per step.
A rollout that a rule cannot read (nobody answered, a verdict on nothing) earns 0 there: it is data, and not an error,
unless it is so of all of them. Forks that an estimator compares with earn by the same rules.

Judging: what a task knows about its rollouts, as reward rules ask for it. The task itself is the judge, unless the
recipe names models (`judging`): it scores what an agent said against the subtask the agent was given (`Task.judge`).
Where a rule compares with a team that lacks somebody (difference, CCPO) or has only some of its agents (SHARP), the
trace is run again with the others barred, under the same luck; an agent that leads cannot be barred, for without it
there is no answer, and that is worth 0.

Balancing: rewards with `balance = "gradient"` (GradNorm's fixed point, Chen et al. 2018 [M]) ask how hard each term
pulls. Every few steps the traces are given each term's rewards in place of the sum's, credited by the recipe's own
estimators, and taken backwards; nothing is stepped, and nothing is remembered but the norms.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.credit import find
from baton.credit.estimators.shapley_forks import players_of, shapley_of
from baton.errors import TraceError, UsageError
from baton.learn.recipe import Recipe
from baton.learn.stage import Stage
from baton.reward.hybrid import Hybrid, MixState, Term
from baton.reward.reward_recipe import RewardRecipe, with_rewards
from baton.reward.rule import Rule
from baton.reward.rules.individual import ShapleyShare
from baton.team.forks import Forks
from baton.team.intervene import BarAgent
from baton.trace.acts import agents
from baton.trace.gold import Gold, Judge
from baton.trace.graph.lineage import Lineage
from baton.trace.outcome import rule_settings, task_score, team_return, total
from baton.trace.records import Event, Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit

_FORKS = frozenset({"without", "shapley", "solo"})
"""Needs of rules that compare with runs without somebody."""


def flat(rules: Iterable[Rule]) -> Iterator[Rule]:
    """Rules and their terms, whatever the depth."""
    for rule in rules:
        yield rule
        if isinstance(rule, Hybrid):
            yield from flat(term.of for term in rule.terms)


def hybrids(rules: Iterable[Rule]) -> list[Hybrid]:
    return [rule for rule in flat(rules) if isinstance(rule, Hybrid)]


def each_hybrid(rule: Rule, change: Callable[[Hybrid], Hybrid]) -> Rule:
    """The rule with every hybrid in it changed, the innermost first."""
    if not isinstance(rule, Hybrid):
        return rule
    terms = tuple(structs.replace(term, of=each_hybrid(term.of, change)) for term in rule.terms)
    return change(structs.replace(rule, terms=terms))


def of_forks(rule: Rule) -> Rule:
    """The rule without terms that compare with runs without an agent: what those earned is not known of a fork."""
    if not any(each.needs & _FORKS for each in flat([rule])):
        return rule
    return each_hybrid(rule, _of_forks)


def _of_forks(rule: Hybrid) -> Hybrid:
    weights = rule.weights()  # as they are with all terms: balances look at each
    kept = tuple(
        Term(of=term.of, weight=weights[term.of.name], gate=term.gate)
        for term in rule.terms
        if not term.of.needs & _FORKS
    )
    return structs.replace(rule, terms=kept, balance="none") if kept else rule


def rule_state(rule: Rule) -> dict[str, Any] | None:
    """What a checkpoint keeps of a rule; None: nothing in it moves."""
    if not isinstance(rule, Hybrid):
        return None
    inner = [rule_state(term.of) for term in rule.terms]
    mine: dict[str, Any] = msgspec.to_builtins(rule.state)
    return mine | ({"terms": inner} if any(inner) else {})


def with_rule_state(rule: Rule, kept: Mapping[str, Any] | None) -> Rule:
    """The rule as it was when `rule_state` looked."""
    if not isinstance(rule, Hybrid) or not kept:
        return rule
    mine = {key: value for key, value in kept.items() if key != "terms"}
    inner = kept.get("terms") or [None] * len(rule.terms)
    terms = tuple(
        structs.replace(term, of=with_rule_state(term.of, told))
        for term, told in zip(rule.terms, inner, strict=True)
    )
    return structs.replace(rule, terms=terms, state=msgspec.convert(mine, MixState))


EVERY = 5
"""Steps between two measurements, beginning with the first step."""


def balanced(rules: Iterable[Rule]) -> list[Hybrid]:
    """The rewards whose terms are weighed by their gradients."""
    return [rule for rule in rules if isinstance(rule, Hybrid) and rule.balance == "gradient"]


def check_balance(recipe: Recipe, rules: Sequence[Rule]) -> None:
    """Refuse estimators that cannot credit one term alone, and what cannot be one."""
    inner = [rule for rule in hybrids(rules) if rule.balance == "gradient" and rule not in balanced(rules)]
    if inner:
        raise UsageError(
            f"hybrid {inner[0].name!r} is a term of another, and gradients are measured of a whole reward's terms. "
            'Set its balance = "variance" or "none".'
        )
    if not balanced(rules):
        return
    for part in recipe.credit:
        estimator = find(part.estimator)
        if {"runtime", "counterfactuals", "values"} & estimator.needs:
            raise UsageError(
                f'a reward with balance = "gradient" is credited term by term, and estimator {estimator.name} runs '
                'traces again or asks a critic about the whole sum. Set balance = "variance", or take an estimator '
                "that compares rollouts, such as group."
            )


def alone(term: Rule, traces: Sequence[Trace], gold: Sequence[Gold]) -> list[Trace]:
    """The traces as if this term were the whole reward; 0 where it cannot be read or says nothing of the team."""
    found = []
    for trace, known in zip(traces, gold, strict=True):
        try:
            rewards = term.score(trace, known)
        except TraceError:
            rewards = []
        if not any(reward.unit == "team" for reward in rewards):
            rewards = [*rewards, term.reward("team", trace.trace_id, 0.0)]
        found.append(structs.replace(trace, rewards=tuple(rewards)))
    return found


def norm_of(parameters: Iterable[object]) -> float:
    """The norm of the gradients as they are."""
    grads = [p.grad for p in parameters if getattr(p, "grad", None) is not None]  # type: ignore[attr-defined]
    return math.sqrt(math.fsum(float(grad.double().pow(2).sum()) for grad in grads))


def outcome_of(trace: Trace) -> float:
    """What the task itself says a run was worth."""
    return sum(r.value for r in trace.rewards if r.unit == "team" and r.family == "shared" and not r.name)


async def returns_without(
    forks: Forks, trace: Trace, names: Sequence[str], reward: Callable[[Trace], float]
) -> dict[str, float]:
    """Agent -> the return of the trace run again without it; 0 without the one who leads."""
    root = Lineage.of(trace).root
    others = [name for name in names if name != root]
    made = await asyncio.gather(*(forks.fork(trace, [BarAgent(name)]) for name in others))
    found = {name: reward(each.trace) for name, each in zip(others, made, strict=True)}
    return {name: found.get(name, 0.0) for name in names}


class Judging(Struct, frozen=True):
    """A stage's task, asked about traces of it."""

    stage: Stage
    rules: tuple[Rule, ...]

    async def gold(self, traces: Sequence[Trace], runner: Callable[[], Forks]) -> tuple[list[Gold], int]:
        """What is known of each trace, and the tokens it took to run some of them again."""
        every = list(flat(self.rules))
        needs_forks = any(rule.needs & _FORKS for rule in every)
        forks = runner() if needs_forks else None
        found = list(await asyncio.gather(*(self._one(trace, every, forks) for trace in traces)))
        return found, 0 if forks is None else forks.cost.tokens

    async def _one(self, trace: Trace, rules: Sequence[Rule], forks: Forks | None) -> Gold:
        task = self.stage.task
        told = trace.header.meta["train"]
        instance = task.instance(told["instance"], told["split"])
        parts = task.parts(instance)
        without: dict[str, float] | None = None
        solo: float | None = None
        shapley: dict[str, float] | None = None
        if forks is not None:
            roles = agents(trace)
            thinkers = {
                role for rule in rules if "solo" in rule.needs for role in getattr(rule, "thinkers", ())
            }
            all_ = any("without" in rule.needs for rule in rules)
            names = [agent for agent, role in roles.items() if all_ or role in thinkers]
            known = await returns_without(forks, trace, names, outcome_of)
            without = known if all_ else None
            shapley = await _shapley(forks, trace, rules)
            solo = next((value for agent, value in known.items() if roles[agent] in thinkers), None)
        return Gold(
            verify=self.stage.assignment(told["instance"], told["split"]).verify,
            milestones=task.milestones(instance) or None,
            reached=lambda prefix: task.reached(instance, prefix),
            parts=parts or None,
            covers=(lambda text: task.covers(instance, text)) if parts else None,
            judges={"task": _judge(self.stage, trace, rules)},
            without=without,
            shapley=shapley,
            solo=solo,
        )

    def in_scope(self, trace: Trace, agent: str) -> bool | None:
        """Whether what an agent returned answers the subtask it was given; None: it returned nothing."""
        said = [e for e in trace.events if e.agent == agent and e.type == "return" and e.status == "ok"]
        return None if not said else _judge(self.stage, trace, ())(trace, said[-1].id) >= 0.5


async def _shapley(forks: Forks, trace: Trace, rules: Sequence[Rule]) -> dict[str, float] | None:
    """Values of the spawned agents, within the most evaluations that a rule allows; None: no rule asks."""
    allowed = [rule.max_evaluations for rule in rules if isinstance(rule, ShapleyShare)]
    if not allowed:
        return None
    if not players_of(trace)[0]:
        return {}
    players, found = await shapley_of(
        forks, trace, method="sampled", max_evaluations=max(allowed), reward=outcome_of
    )
    return dict(zip(players, found.values, strict=True))


def _judge(stage: Stage, trace: Trace, rules: Sequence[Rule]) -> Judge:
    """0 to 1; from 1 to 10 where a rule wants that."""
    told = trace.header.meta["train"]
    instance = stage.task.instance(told["instance"], told["split"])
    of_ten = any("of_ten" in rule.needs for rule in rules)

    def judge(trace: Trace, event_id: str) -> float:
        event = trace.event(event_id)
        score = stage.task.judge(instance, _asked(trace, event), trace.text(event.content_ref) or "")
        return 1 + 9 * score if of_ten else score

    return judge


def _asked(trace: Trace, event: Event) -> str:
    """The latest task its agent was given before."""
    given = [
        other
        for other in trace.events[: trace.position[event.id]]
        if other.to == event.agent and (other.type == "spawn" or other.decision == "delegate")
    ]
    return (trace.text(given[-1].content_ref) or "") if given else ""


class Scoring:
    """Gives traces their rewards by the recipe's rules; without any, the task's own score is the reward."""

    def __init__(self, recipe: RewardRecipe | None) -> None:
        self.recipe = recipe
        self.weights()  # one that cannot be is an error now, and not after the first rollouts
        self._gold: dict[str, Gold] = {}
        """What is known of the step's traces."""
        self._of_task: dict[str, Gold] = {}
        """What is known of the step's instances, for forks of whatever generation."""
        self._units: list[set[CreditUnit]] = []
        """Whom each rule rewards."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        return () if self.recipe is None else self.recipe.rules

    def score(self, traces: Sequence[Trace], gold: Sequence[Gold]) -> list[Trace]:
        """The traces with their rewards."""
        self._gold = {trace.trace_id: known for trace, known in zip(traces, gold, strict=True)}
        self._of_task = {trace.header.task_id: known for trace, known in zip(traces, gold, strict=True)}
        self._units = []
        found: list[list[Reward]] = [[] for _ in traces]
        for rule in self.rules:
            every = _scored(rule, traces, gold)
            self._units.append({reward.unit for new in every for reward in new})
            for mine, new in zip(found, every, strict=True):
                mine += new
        return [
            with_rewards(trace, mine) if mine else trace for trace, mine in zip(traces, found, strict=True)
        ]

    def team_return(self, trace: Trace) -> float:
        """What the team earned: by the recipe's rules where they say something of the team, else by the task."""
        by_rules = any(rule_settings(r.by) for r in trace.rewards if r.unit == "team")
        if "forked_from" in trace.header.meta and not by_rules:
            mine = self._of_fork(trace)
            if mine:
                return total(mine)
        return team_return(trace)

    def _of_fork(self, trace: Trace) -> list[Reward]:
        """What the rules give the team of a run that an estimator compares with."""
        known = self._of_task.get(trace.header.task_id)
        if known is None:
            return []
        found: list[Reward] = []
        for rule, units in zip(self.rules, self._units, strict=True):
            if "team" in units:
                read = _read(of_forks(rule), trace, known)
                found += _nothing(rule, trace, units) if read is None else read
        return [reward for reward in found if reward.unit == "team"]

    def observe(
        self, traces: Sequence[Trace], norms: Mapping[str, Mapping[str, float]] | None = None
    ) -> None:
        """One step is over: schedules and balances move. `norms`: hybrid -> term -> norm of its gradient."""
        if self.recipe is None:
            return
        success = sum(_success(trace) for trace in traces) / len(traces)

        def moved(rule: Hybrid) -> Hybrid:
            mine = (norms or {}).get(rule.name)
            return rule.observe(self._totals(rule, traces), success=success, gradient_norms=mine)

        rules = tuple(each_hybrid(rule, moved) for rule in self.recipe.rules)
        self.recipe = structs.replace(self.recipe, rules=rules)

    def _totals(self, rule: Hybrid, traces: Sequence[Trace]) -> list[dict[str, float]]:
        found = []
        for trace in traces:
            with contextlib.suppress(TraceError):  # it earned 0 there, and tells nothing about the terms
                found.append(rule.totals(trace, self._gold.get(trace.trace_id)))
        return found

    def weights(self) -> dict[str, float]:
        """Each hybrid term's weight now."""
        if self.recipe is None:
            return {}
        return {name: weight for rule in hybrids(self.rules) for name, weight in rule.weights().items()}

    def state_dict(self) -> list[Any]:
        return [rule_state(rule) for rule in self.rules]

    def load_state_dict(self, state: Sequence[Mapping[str, Any] | None]) -> None:
        if self.recipe is None:
            return
        rules = tuple(
            with_rule_state(rule, kept) for rule, kept in zip(self.recipe.rules, state, strict=True)
        )
        self.recipe = structs.replace(self.recipe, rules=rules)


def _scored(rule: Rule, traces: Sequence[Trace], gold: Sequence[Gold]) -> list[list[Reward]]:
    found = [_read(rule, trace, known) for trace, known in zip(traces, gold, strict=True)]
    units = {reward.unit for mine in found if mine is not None for reward in mine}
    if found and all(mine is None for mine in found):
        rule.score(traces[-1], gold[-1])  # raises, with what is wrong
    return [
        _nothing(rule, trace, units) if mine is None else mine
        for trace, mine in zip(traces, found, strict=True)
    ]


def _read(rule: Rule, trace: Trace, known: Gold) -> list[Reward] | None:
    """None: it cannot be read."""
    try:
        return rule.score(trace, known)
    except TraceError:
        return None


def _nothing(rule: Rule, trace: Trace, units: set[Any]) -> list[Reward]:
    """0 to everyone the rule rewards elsewhere."""
    if "team" in units:
        return [rule.reward("team", trace.trace_id, 0.0, "not to be read")]
    if "agent" in units:
        return [rule.reward("agent", agent, 0.0, "not to be read") for agent in Lineage.of(trace).agents]
    return []


def _success(trace: Trace) -> float:
    """The task's own score."""
    found = task_score(trace)
    return team_return(trace) if found is None else found[0]
