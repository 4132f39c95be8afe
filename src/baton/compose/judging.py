"""Models as judges of traces: what a reward recipe wants judged is asked, and the verdicts go onto the trace.

What is wanted shows when the recipe is scored with judges that only take note. All of it is asked at once, recorded,
and the recipe is then scored from the records: so the numbers are those that anyone gets from the saved trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from baton.engine import make_engine
from baton.engine.judge import QUESTION, ModelJudge, ToJudge, Unjudged
from baton.errors import TraceError, UsageError
from baton.reward.hybrid import Hybrid
from baton.reward.reading import VERDICT
from baton.reward.reward_recipe import RewardRecipe
from baton.reward.rule import Rule
from baton.trace.gold import Gold
from baton.trace.records import Reward
from baton.trace.trace import Trace


class Judged(Struct, frozen=True, kw_only=True):
    """Traces with the verdicts on them, and what no verdict was given on."""

    traces: tuple[Trace, ...]
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


def judge_traces(
    recipe: RewardRecipe, traces: Sequence[Trace], gold: Sequence[Gold], judges: Sequence[ModelJudge]
) -> Judged:
    """The traces with all verdicts that the recipe asks for; those of earlier judges of the same names go."""
    wanted: list[list[str]] = [_wanted(recipe, *pair) for pair in zip(traces, gold, strict=True)]
    asked = [
        ToJudge(trace=trace, event=event)
        for trace, events in zip(traces, wanted, strict=True)
        for event in events
    ]
    if not asked:
        names = ", ".join(rule.name for rule in recipe.rules)
        raise UsageError(f"nothing in these traces is to be judged by {names}. Leave --judge out.")
    given = asyncio.run(_all(judges, asked))
    of_ten = any("of_ten" in rule.needs for rule in _flat(recipe.rules))
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
    return Judged(traces=tuple(made), unjudged=tuple(unjudged))


async def _all(judges: Sequence[ModelJudge], asked: Sequence[ToJudge]) -> list[list[Reward | Unjudged]]:
    found = list(await asyncio.gather(*(judge.verdicts(asked) for judge in judges)))
    for judge in judges:
        if close := getattr(judge.engine, "close", None):
            await close()
    return found


def _wanted(recipe: RewardRecipe, trace: Trace, gold: Gold) -> list[str]:
    """The events that rules ask judges about, in the order in which they do."""
    events: dict[str, None] = {}

    def note(_: Trace, event: str) -> float:
        events.setdefault(event)
        return 0.5

    for rule in recipe.rules:
        try:
            rule.score(trace, structs.replace(gold, judges={"judge": note}))
        except TraceError:
            continue  # what it lacks besides is said when it is scored
    return list(events)


def _flat(rules: Iterable[Rule]) -> Iterable[Rule]:
    for rule in rules:
        yield rule
        if isinstance(rule, Hybrid):
            yield from _flat(term.of for term in rule.terms)
