"""Watching a run: a step in figures, and monitors that warn when a team degenerates.

    failed-calls          some calls were not answered (where none is, the run stops: `baton.learn.stage`)
    serial-collapse       hardly anybody is spawned any more, though agents were spawned before (O1)
    dominant-agent        one sub-agent does nearly all the work of those that were spawned (O2)
    over-communication    messages grow while the return does not (O3)
    aggregation-leakage   what sub-agents returned is handed on word for word as if it were progress (O4)
    one-source            the final answer is one source's, whatever the others said (O4)
    bare-credit           most credit rests on the return alone: no rollout of a group is like another
    large-steps           each step changes the policy a lot, and the return falls
    judge-drift           judges give answers more and more beyond what they are worth (R6)
    reward-hacking        the ways of gaming each family of rewards (`baton.reward.monitors`), on some of the traces

Each compares the last steps with the run's own first ones: a team that never spawned is not called collapsed, and a
game whose agents are always idle does not ride free; failed-calls and bare-credit look at the step itself. A monitor
speaks when it begins to see something, not at every step that it still does. Thresholds are ours [I]; the modes are
the survey's, but for failed-calls, bare-credit and large-steps.

A monitor of your own is a function `(metrics, traces) -> warnings`, or a class that is made with the recipe and has
such a method `observe`, with `state_dict` and `load_state_dict` where it remembers something. A recipe adds it by
`[train] monitors = ["module:attr"]`, and `baton.testing.check_monitor` checks it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, get_args

import numpy as np
from msgspec import Struct

from baton import registry
from baton.credit.core.covering import Grounds
from baton.errors import TraceError
from baton.learn.recipe import Recipe
from baton.learn.stage import failures, first_line
from baton.learn.update import UpdateReport
from baton.measure.figure import student_t
from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.leakage import RUN, aggregation_leakage
from baton.reward import monitors as hacking
from baton.reward.paid_monitors import judge_gap
from baton.trace.acts import last_said
from baton.trace.graph.lineage import NO_EFFECT, dominance
from baton.trace.outcome import cut_off, final_event, plain
from baton.trace.trace import Trace


def interval(groups: Sequence[Sequence[float]]) -> dict[str, float | None]:
    """Mean, and half-width of its 95 % interval (Student's t over groups; None for one group).

    Rollouts of one group are of one instance, so the group is what was drawn. Groups may differ in size.
    """
    values = [value for group in groups for value in group]
    mean, num = float(np.mean(values)), len(groups)
    if num < 2:
        return {"mean": mean, "half": None}
    left = math.fsum((math.fsum(group) - mean * len(group)) ** 2 for group in groups)
    return {"mean": mean, "half": student_t(num - 1) * math.sqrt(left * num / (num - 1)) / len(values)}


def rewards(traces: Sequence[Trace]) -> dict[str, float]:
    """Mean over traces of each channel's sum."""
    sums: dict[str, list[float]] = {}
    for trace in traces:
        for reward in trace.rewards:
            sums.setdefault(reward.channel, []).append(reward.value)
    return {channel: math.fsum(values) / len(traces) for channel, values in sorted(sums.items())}


def sizes(traces: Sequence[Trace]) -> dict[str, float]:
    """Means over traces of how much there is in them."""

    def mean(count: Callable[[Trace], int]) -> float:
        return sum(map(count, traces)) / len(traces)

    return {
        "agents": mean(lambda t: 1 + sum(e.type == "spawn" and e.status == "ok" for e in t.events)),
        "events": mean(lambda t: len(t.events)),
        "calls": mean(lambda t: len(t.calls)),
        "messages": mean(lambda t: sum(e.type == "message" for e in t.events)),
        "invalid": mean(lambda t: sum(e.status == "invalid" for e in t.events)),
        "failed": mean(lambda t: sum(1 for _ in failures(t))),
        "cut_off": mean(lambda t: int(cut_off(t))),
    }


def learned(
    reports: Sequence[UpdateReport], norms: Sequence[float], moved: Sequence[float]
) -> dict[str, float | None]:
    """Means over the step's optimiser steps (`moved`: over policies); None where nothing was there to learn from."""

    def mean(name: str) -> float | None:
        found = [report.means[name] for report in reports if name in report.means]
        return float(np.mean(found)) if found else None

    return {
        "loss": float(np.mean([report.loss for report in reports])) if reports else None,
        "grad_norm": float(np.mean(norms)) if norms else None,
        "entropy": mean("entropy"),
        "kl": mean("kl"),
        "clip_fraction": mean("clipped"),
        **({} if (share := mean("preferred")) is None else {"preferred": share}),
        "moved": float(np.mean(moved)) if moved else None,
        "computed_tokens": float(sum(report.num_computed for report in reports)),
        "row_tokens": float(sum(report.num_row_tokens for report in reports)),
    }


_STEPS = 3
"""How many of the first steps, and of the last, are compared."""
_HACKING_TRACES = 16
"""Traces of a step that are looked at for hacking; all would take longer than training on them."""
_MOVED = 0.2
"""KL of an answer over one step that is a lot: a tenth of it is usual."""
_RISE = 0.2
"""A share that is this much above that of the first steps has risen."""
_ONE_SOURCE_BEFORE = "leakage"
"""What the figure of one-source was called in runs of version 0.2 and before."""


class Warned(Struct, frozen=True, kw_only=True):
    """What a monitor says, and under which name."""

    monitor: str
    message: str


class Monitor(Protocol):
    """Looks at each step and says what is wrong with the run."""

    def observe(self, metrics: Mapping[str, Any], traces: Sequence[Trace]) -> Sequence[Warned]:
        """What is to be said after a step; the same again for as long as it is so."""
        ...


class Watch:
    """All monitors of a run: those that Baton ships, and those that the recipe adds."""

    def __init__(self, recipe: Recipe) -> None:
        names = dict.fromkeys((*MONITORS, *recipe.train.monitors))
        found = {name: registry.resolve("monitor", name) for name in names}
        self._monitors = {
            name: each(recipe) if isinstance(each, type) else each for name, each in found.items()
        }
        self._firing: list[str] = []

    def observe(self, metrics: Mapping[str, Any], traces: Sequence[Trace]) -> list[Warned]:
        """What is to be said after a step and was not said after the one before."""
        found: list[Warned] = []
        for monitor in self._monitors.values():
            found += getattr(monitor, "observe", monitor)(metrics, traces)
        new = [warned for warned in found if warned.monitor not in self._firing]
        self._firing = [warned.monitor for warned in found]
        return new

    def state_dict(self) -> dict[str, Any]:
        """Figures of all monitors that compare some, and what the others remember."""
        comparing = [each for each in self._monitors.values() if isinstance(each, Comparing)]
        return {
            "first": {name: values for each in comparing for name, values in each.first.items()},
            "last": {name: values for each in comparing for name, values in each.last.items()},
            "firing": self._firing,
            "own": {name: each.state_dict() for name, each in self._remembering()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        first, last = (_as_now(state[part]) for part in ("first", "last"))
        for each in self._monitors.values():
            if isinstance(each, Comparing):
                each.first = {name: list(first[name]) for name in each.compares if name in first}
                each.last = {name: list(last[name]) for name in each.compares if name in last}
        self._firing = list(state["firing"])
        if _ONE_SOURCE_BEFORE in state["first"]:
            self._firing = ["one-source" if name == "aggregation-leakage" else name for name in self._firing]
        own = state.get("own", {})  # version 0.1 had no monitors but its own
        for name, monitor in self._remembering():
            if name in own:
                monitor.load_state_dict(own[name])

    def _remembering(self) -> list[tuple[str, Any]]:
        return [(name, each) for name, each in self._monitors.items() if hasattr(each, "state_dict")]


def _as_now(figures: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """Figures by the names they have now."""
    return {"one_source" if name == _ONE_SOURCE_BEFORE else name: kept for name, kept in figures.items()}


class Comparing:
    """A monitor that compares figures of the last steps with those of the run's first ones."""

    name = ""
    compares: tuple[str, ...] = ()
    """The figures it looks at; monitors that look at the same one call it the same."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.first: dict[str, list[float]] = {}
        """Figure -> its first values; a step in which it could not be measured is left out."""
        self.last: dict[str, list[float]] = {}

    def observe(self, metrics: Mapping[str, Any], traces: Sequence[Trace]) -> list[Warned]:
        """Note the step's figures, and judge."""
        self.note(self.figures(metrics, traces))
        message = self.judge()
        return [] if message is None else [Warned(monitor=self.name, message=message)]

    def figures(self, metrics: Mapping[str, Any], traces: Sequence[Trace]) -> dict[str, float | None]:
        """What is compared, of one step; None where it could not be measured."""
        raise NotImplementedError

    def judge(self) -> str | None:
        """What is wrong and what to do about it; None: nothing."""
        raise NotImplementedError

    def note(self, figures: Mapping[str, float | None]) -> None:
        """Keep a step's figures."""
        for name, value in figures.items():
            if value is None:
                continue
            if len(self.first.setdefault(name, [])) < _STEPS:
                self.first[name].append(value)
            else:
                self.last[name] = [*self.last.get(name, []), value][-_STEPS:]

    def compared(self, name: str) -> tuple[float, float] | None:
        """Means over the first steps and over the last; None before there are both."""
        first, last = self.first.get(name, ()), self.last.get(name, ())
        if len(last) < _STEPS:
            return None
        return sum(first) / len(first), sum(last) / len(last)


class SerialCollapse(Comparing):
    """Hardly anybody is spawned any more (O1)."""

    name = "serial-collapse"
    compares = ("spawned",)

    def figures(self, metrics: Mapping[str, Any], traces: Sequence[Trace]) -> dict[str, float | None]:  # noqa: ARG002  # every monitor's
        return {"spawned": _mean(float(_spawned(trace)) for trace in traces)}

    def judge(self) -> str | None:
        pair = self.compared("spawned")
        if pair is None or pair[0] < 0.1 or pair[1] >= 0.25 * pair[0]:
            return None
        return (
            f"agents were spawned in {pair[0]:.0%} of the first rollouts, and in {pair[1]:.0%} of the last. If "
            'the task gains from them: credit spawning by both of its branches (estimator = "spawn-fork"), judge '
            'early choices as if later ones were made well (critic.backup = "best-first"), keep options tried '
            '(critic.entropy_bonus), or reward parallel work at first (reward.recipe = "parl-progress").'
        )


class DominantAgent(Comparing):
    """One sub-agent does nearly all the work (O2)."""

    name = "dominant-agent"
    compares = ("dominance",)

    def figures(self, metrics: Mapping[str, Any], traces: Sequence[Trace]) -> dict[str, float | None]:  # noqa: ARG002  # every monitor's
        return {"dominance": _mean(dominance(trace) for trace in traces)}

    def judge(self) -> str | None:
        pair = self.compared("dominance")
        if pair is None or pair[1] < 0.8 or pair[1] - pair[0] < _RISE:
            return None
        return (
            f"the busiest sub-agent is {pair[1]:.0%} of the way from an equal share of the work to all of it "
            f'(in the first steps: {pair[0]:.0%}). Give agents credit of their own (estimator = "agent-group" or '
            '"shapley"), or count agents alike in the loss (loss.scale = ["trace", "agent"]).'
        )


class OverCommunication(Comparing):
    """Messages grow while the return does not (O3)."""

    name = "over-communication"
    compares = ("return", "messages")

    def figures(self, metrics: Mapping[str, Any], traces: Sequence[Trace]) -> dict[str, float | None]:
        messages = _mean(float(_num_messages(trace)) for trace in traces)
        return {"return": metrics["return"]["mean"], "messages": messages}

    def judge(self) -> str | None:
        pair, returns = self.compared("messages"), self.compared("return")
        if pair is None or returns is None or pair[1] < max(1.5 * pair[0], pair[0] + 1):
            return None
        if returns[1] > returns[0] + 0.02 * max(1.0, abs(returns[0])):
            return None
        return (
            f"{pair[1]:.1f} messages per rollout, after {pair[0]:.1f} in the first steps, and the return went "
            f"from {returns[0]:.3g} to {returns[1]:.3g}. Credit each message by what it changed (estimator = "
            '"message-replay"), or price tokens (reward.recipe = "success-less-tokens").'
        )


class AggregationLeakage(Comparing):
    """Sub-agents' text is handed on word for word as if it were progress (O4), the survey's aggregation leakage."""

    name = "aggregation-leakage"
    compares = ("copied",)

    def figures(self, metrics: Mapping[str, Any], traces: Sequence[Trace]) -> dict[str, float | None]:  # noqa: ARG002  # every monitor's
        long = [trace for trace in traces if _fuses_at_length(trace)]  # most answers are a word
        return {"copied": _mean(aggregation_leakage(MeasuredTrace(trace)).value for trace in long)}

    def judge(self) -> str | None:
        pair = self.compared("copied")
        if pair is None or pair[1] < 0.8 or pair[1] - pair[0] < _RISE:
            return None
        return (
            f"{pair[1]:.0%} of the words in fused texts stand just so in what sub-agents returned (in the first steps: "
            f"{pair[0]:.0%}). Pay for what fusing adds (the reward rule aggregation), price tokens (reward.recipe = "
            '"success-less-tokens"), or credit aggregation on its own (a [[credit]] entry with decisions = '
            '["aggregate"]).'
        )


class OneSource(Comparing):
    """The final answer is one source's, whatever the others said (O4). Called aggregation-leakage up to 0.2."""

    name = "one-source"
    compares = ("one_source",)

    def figures(self, metrics: Mapping[str, Any], traces: Sequence[Trace]) -> dict[str, float | None]:  # noqa: ARG002  # every monitor's
        return {"one_source": _one_source(traces)}

    def judge(self) -> str | None:
        pair = self.compared("one_source")
        if pair is None or pair[1] < 0.9 or pair[1] - pair[0] < _RISE:
            return None
        return (
            f"where sub-agents disagreed, {pair[1]:.0%} of final answers were those of one and the same source "
            f"(in the first steps: {pair[0]:.0%}). Credit aggregation on its own (a [[credit]] entry with decisions = "
            '["aggregate"]), let the team aggregate by vote, or reward fused answers (reward.recipe = '
            '"orchestration").'
        )


class LargeSteps(Comparing):
    """Each step changes the policy a lot, and the return falls."""

    name = "large-steps"
    compares = ("return", "moved")

    def figures(self, metrics: Mapping[str, Any], traces: Sequence[Trace]) -> dict[str, float | None]:  # noqa: ARG002  # every monitor's
        return {"return": metrics["return"]["mean"], "moved": metrics.get("moved")}

    def judge(self) -> str | None:
        pair, returns = self.compared("moved"), self.compared("return")
        if pair is None or returns is None or max(pair) < _MOVED:
            return None
        if returns[1] >= returns[0] - 0.05 * max(1.0, abs(returns[0])):
            return None
        learning = [name for name, part in self.recipe.policies.items() if part.train != "frozen"]
        rates = " and ".join(dict.fromkeys(map(self.recipe.rate_setting, learning)))
        return (
            f"a step changes an answer's chances by {max(pair):.2g} (KL), and the return went from "
            f"{returns[0]:.3g} to {returns[1]:.3g}. Lower {rates} (to a third, for a start), or play more "
            "rollouts a step (rollout.groups)."
        )


class JudgeDrift(Comparing):
    """Judges give the team's answers more and more beyond what they are worth: judge and policy drift together (R6)."""

    name = "judge-drift"
    compares = ("judge_gap",)

    def figures(self, metrics: Mapping[str, Any], traces: Sequence[Trace]) -> dict[str, float | None]:  # noqa: ARG002  # every monitor's
        judged = [trace for trace in traces if any(r.family == "debate" for r in trace.rewards)]
        return {"judge_gap": judge_gap(judged) if judged else None}

    def judge(self) -> str | None:
        pair = self.compared("judge_gap")
        if pair is None or pair[1] - pair[0] < _RISE:
            return None
        return (
            f"judges give answers {pair[1]:+.2f} beyond the truth (in the first steps: {pair[0]:+.2f}). Hold some "
            "verdicts against the truth (a term success beside the judges), mix kinds of judges (the rule verifiers), "
            "or change the judge."
        )


class RewardHacking(Comparing):
    """The ways of gaming a reward, each a warning of its own name."""

    compares = get_args(hacking.Mode)

    def observe(self, metrics: Mapping[str, Any], traces: Sequence[Trace]) -> list[Warned]:  # noqa: ARG002  # every monitor's
        """Note the modes' scores, and warn of those that fire and have risen."""
        step = max(1, len(traces) // _HACKING_TRACES)
        every = hacking.watch(traces[::step])
        self.note({finding.mode: finding.score for finding in every})
        found = []
        for finding in every:
            pair = self.compared(finding.mode) if finding.fired else None
            if pair is not None and pair[1] >= finding.threshold and pair[1] - pair[0] >= _RISE:
                told = f"{finding.message} (The first steps: {pair[0]:.0%}; the last: {pair[1]:.0%}.)"
                found.append(Warned(monitor=finding.mode.replace("_", "-"), message=told))
        return found


def failed_calls(metrics: Mapping[str, Any], traces: Sequence[Trace]) -> list[Warned]:  # noqa: ARG001  # every monitor's
    """Some calls of this step were not answered."""
    failed = [failure for trace in traces for failure in failures(trace)]
    if not failed:
        return []
    roles = ", ".join(dict.fromkeys(role for role, _ in failed))
    calls = sum(len(trace.calls) for trace in traces)
    return [
        Warned(
            monitor="failed-calls",
            message=f"{len(failed)} of {calls} calls were not answered (role {roles}). The first error: "
            f"{first_line(failed[0][1])}. What the team did without them is trained on as it is. Where a server "
            "answers: see its log, or ask it for less at once (rollout.groups, rollout.group_size).",
        )
    ]


def bare_credit(metrics: Mapping[str, Any], traces: Sequence[Trace]) -> list[Warned]:  # noqa: ARG001  # every monitor's
    """Most credit of this step rests on the return alone."""
    if "credit_grounds" not in metrics or not (found := Grounds(**metrics["credit_grounds"])).is_bare:
        return []
    return [
        Warned(
            monitor="bare-credit",
            message=f"of {found.events} events {found.alone:.0%} have a credit that rests on the return alone, because "
            f"no other rollout of their group is like them ({found.zero:.0%} have none): no decision is told from "
            'another. Play larger groups (rollout.group_size), compare over instances (group_by = "task"), train a '
            'critic (critic.kind), or fork (estimator = "spawn-fork", "message-replay").',
        )
    ]


MONITORS: Mapping[str, Callable[[Recipe], Monitor] | Callable[..., Sequence[Warned]]] = {
    "failed-calls": failed_calls,
    "bare-credit": bare_credit,
    "serial-collapse": SerialCollapse,
    "dominant-agent": DominantAgent,
    "over-communication": OverCommunication,
    "aggregation-leakage": AggregationLeakage,
    "one-source": OneSource,
    "large-steps": LargeSteps,
    "judge-drift": JudgeDrift,
    "reward-hacking": RewardHacking,
}
"""What Baton ships, and runs in every training."""


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _spawned(trace: Trace) -> bool:
    """Whether a policy spawned somebody."""
    return any(e.type == "spawn" and e.call is not None and e.status not in NO_EFFECT for e in trace.events)


def _num_messages(trace: Trace) -> int:
    return sum(
        e.type == "message" and e.decision != "delegate" and e.status not in NO_EFFECT for e in trace.events
    )


def _fuses_at_length(trace: Trace) -> bool:
    """Whether some text that may fuse others is long enough to copy them."""
    texts = (
        trace.text(e.content_ref)
        for e in trace.events
        if e.type in ("aggregate", "return") or e.decision == "stop"
    )
    return any(text is not None and len(text.split()) >= RUN for text in texts)


def _one_source(traces: Sequence[Trace]) -> float | None:
    """The share of the source (by birth) that most answers follow, among those given where sources disagreed."""
    followed: Counter[int] = Counter()
    disagreed = 0
    for trace in traces:
        try:
            final = final_event(trace)
            heard = last_said(trace)
        except TraceError:
            continue
        answer = None if final is None else trace.text(final.content_ref)
        told = [trace.text(event.content_ref) for event in heard.values() if event is not final]
        texts = [plain(text) for text in told if text is not None]
        if answer is None or len(set(texts)) < 2:
            continue
        disagreed += 1
        followed.update(number for number, text in enumerate(texts) if text == plain(answer))
    return max(followed.values(), default=0) / disagreed if disagreed >= 4 else None
