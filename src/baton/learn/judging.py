"""Models as judges of traces: what a reward recipe wants judged is asked, and the verdicts go onto the trace.

What is wanted shows when the recipe is scored with judges that only take note. All of it is asked at once, recorded,
and the rules then score from the records: so the numbers are those that anyone gets from the saved trace. In training
the judges of `[reward.judges]` are asked at every step, in the place of the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct, structs

from baton.credit import find
from baton.engine import make_engine
from baton.engine.judge import QUESTION, ModelJudge, ToJudge, Unjudged
from baton.errors import TraceError, UsageError
from baton.learn.recipe import Recipe
from baton.learn.scoring import flat
from baton.reward.reading import VERDICT
from baton.reward.rule import Rule
from baton.trace.gold import Gold
from baton.trace.records import Reward
from baton.trace.trace import Trace


class Judged(Struct, frozen=True, kw_only=True):
    """Traces with the verdicts on them, and what no verdict was given on."""

    traces: tuple[Trace, ...]
    num_asked: int
    """Things that the rules wanted judged."""
    unjudged: tuple[Unjudged, ...]


def judges_of(specs: Sequence[str], question: str | None = None) -> list[ModelJudge]:
    """Judges from what was typed: SPEC, or NAME=SPEC, of any engine (`openai:MODEL@URL`, `torch:DIR`, ...)."""
    found: dict[str, ModelJudge] = {}
    for given in specs:
        name, equals, spec = given.partition("=")
        if not equals or not name.replace("-", "").replace("_", "").isalnum():
            name, spec = given, given
        if name in found:
            raise UsageError(f"two judges are called {name!r}. Type: --judge NAME=SPEC")
        found[name] = ModelJudge(name, make_engine(spec), question=question or QUESTION)
    return list(found.values())


def recipe_judges(recipe: Recipe) -> list[ModelJudge]:
    """The judges that a training recipe names."""
    return [ModelJudge(name, make_engine(spec)) for name, spec in recipe.reward.judges.items()]


async def judge_traces(
    rules: Sequence[Rule], traces: Sequence[Trace], gold: Sequence[Gold], judges: Sequence[ModelJudge]
) -> Judged:
    """The traces with all verdicts that rules ask for; those of earlier judges of the same names go."""
    wanted: list[list[str]] = [_wanted(rules, *pair) for pair in zip(traces, gold, strict=True)]
    asked = [
        ToJudge(trace=trace, event=event)
        for trace, events in zip(traces, wanted, strict=True)
        for event in events
    ]
    given = await _all(judges, asked) if asked else [[] for _ in judges]
    of_ten = any("of_ten" in rule.needs for rule in flat(rules))
    verdicts: dict[tuple[str, str], list[Reward]] = {}
    unjudged = []
    for each in given:
        for one, verdict in zip(asked, each, strict=True):
            if isinstance(verdict, Unjudged):
                unjudged.append(verdict)
                continue
            value = 1 + 9 * verdict.value if of_ten else verdict.value
            key = one.trace.trace_id, one.event
            verdicts.setdefault(key, []).append(structs.replace(verdict, value=value))
    ours = {judge.name for judge in judges}
    made = []
    for trace, events in zip(traces, wanted, strict=True):
        kept = [
            r for r in trace.rewards if r.channel != VERDICT or (r.by or "").partition(" # ")[0] not in ours
        ]
        new = [r for event in events for r in verdicts.get((trace.trace_id, event), ())]
        made.append(structs.replace(trace, rewards=(*kept, *new)))
    return Judged(traces=tuple(made), num_asked=len(asked), unjudged=tuple(unjudged))


async def _all(judges: Sequence[ModelJudge], asked: Sequence[ToJudge]) -> list[list[Reward | Unjudged]]:
    found = list(await asyncio.gather(*(judge.verdicts(asked) for judge in judges)))
    for judge in judges:
        if close := getattr(judge.engine, "close", None):
            await close()
    return found


def _wanted(rules: Sequence[Rule], trace: Trace, gold: Gold) -> list[str]:
    """The events that rules ask judges about, in the order in which they do."""
    events: dict[str, None] = {}

    def note(_: Trace, event: str) -> float:
        events.setdefault(event)
        return 0.5

    for rule in rules:
        try:
            rule.score(trace, structs.replace(gold, judges={"judge": note}))
        except TraceError:
            continue  # what it lacks besides is said when it is scored
    return list(events)


def check_judges(recipe: Recipe) -> None:
    """Refuse estimators that run traces again where models judge: nobody would judge those runs."""
    if not recipe.reward.judges:
        return
    for part in recipe.credit:
        estimator = find(part.estimator)
        if {"runtime", "counterfactuals"} & estimator.needs:
            raise UsageError(
                f"[reward.judges] names models, and estimator {estimator.name} runs traces again, which they would not "
                "judge. Take an estimator that compares rollouts, such as group, or let the task judge (no judges)."
            )
