"""Learning from options not taken: the policy is moved towards what credit says of all of them, sampled or not.

Where a task names the options and a critic knows their values, the step's target at a situation is

    target(a) proportional to pi(a)^(1 - forget) exp((q(a) - max q) / temperature)

(mirror descent, as MPO's improved policy, arXiv 1806.06920 [M]), and the gradient that of the cross-entropy to it:
sum_a target(a) grad log pi(a). An option that the policy has all but given up still has a gradient here; in a policy
gradient over samples it has none until it is drawn again. And only answers that are options are trained on, so the
grammar holds. `forget` bounds how sure the policy can become. The answers are put through the model as rows of the
prefix forest; a situation met n times counts n times, and less in rollouts that count less. All options of a situation
go into one batch: a batch with some of them would raise those, whatever they are worth.

pi is the policy as it is: no loss corrects a target afterwards. So what other weights have played, ahead of this step
or before it, has to come with chances that were asked again.

The chances themselves are written onto the traces first (`with_propensities`). A language model says one of a task's
options token by token; the trace then knows the chance of what was said but not of the rest, which COMA, paired forks,
doubly robust credit and stop values need. So all options of all distinct prompts are put through the model at once, as
a prefix forest: each prompt is computed once. Chances are those of the whole answer, ended by the model itself, and are
normalised over the options ("given that one of them is said").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from msgspec import structs

from baton.credit.estimator import Prefix
from baton.forest.attention.parts import make_pass
from baton.forest.layout import pack, split
from baton.forest.logprobs import edge_logprobs, tree_attention
from baton.forest.rows import Row, answer_row
from baton.learn.recipe import Recipe
from baton.trace.outcome import cut_off
from baton.trace.records import Event
from baton.trace.trace import Trace


class Asked(NamedTuple):
    """Whose options, after which prompt."""

    policy: str | None
    prompt: bytes
    """Ids, as int32."""
    options: tuple[str, ...]
    temperature: float

    @classmethod
    def at(cls, trace: Trace, event: Event) -> Self | None:
        """What is asked at a choice of a trace; None where there is no telling what was read."""
        if event.options is None or event.call is None:
            return None
        call = trace.call_by_id[event.call]
        prompt = trace.prompt_ids(call)
        if prompt is None:
            return None
        temperature = 1.0 if call.sampling is None else call.sampling.temperature
        return cls(call.policy, prompt.tobytes(), event.options, temperature)

    def plain(self) -> list[Any]:
        """As plain values, for a checkpoint."""
        return [self.policy, self.prompt.hex(), list(self.options), self.temperature]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Self:
        """What `plain` gave."""
        policy, prompt, options, temperature = plain
        return cls(policy, bytes.fromhex(prompt), tuple(options), temperature)


def with_propensities(
    traces: Sequence[Trace],
    models: Mapping[str, tuple[Any, Any]],
    *,
    max_tokens: int = 65536,
    versions: Mapping[str, str] | None = None,
) -> list[Trace]:
    """The traces with `option_propensities` on every choice among options. `models` by policy: model, tokenizer.

    `versions` by policy: those that other weights of it have chosen are asked again.
    """
    places: list[tuple[int, int, Asked]] = []
    for number, trace in enumerate(traces):
        for place, event in enumerate(trace.events):
            known_already = event.option_propensities is not None and not _outdated(trace, event, versions)
            if not known_already and (asked := Asked.at(trace, event)) is not None:
                places.append((number, place, asked))
    known = chances_of(dict.fromkeys(asked for _, _, asked in places), models, max_tokens=max_tokens)
    changed: dict[int, list[Event]] = {}
    for number, place, asked in places:
        if asked not in known:
            continue
        events = changed.setdefault(number, list(traces[number].events))
        chances = known[asked]
        event = events[place]
        said = None if event.choice is None else chances[event.choice]
        events[place] = structs.replace(
            event, option_propensities=chances, propensity=said or event.propensity
        )
    return [
        structs.replace(trace, events=tuple(changed[number])) if number in changed else trace
        for number, trace in enumerate(traces)
    ]


def _outdated(trace: Trace, event: Event, versions: Mapping[str, str] | None) -> bool:
    call = trace.call_by_id.get(event.call or "")
    if not versions or call is None:
        return False
    return (
        call.versions is not None
        or versions.get(call.policy or "", call.policy_version) != call.policy_version
    )


def chances_of(
    asked: Iterable[Asked], models: Mapping[str, tuple[Any, Any]], *, max_tokens: int = 65536
) -> dict[Asked, tuple[float, ...]]:
    """The chances of options, where one of these policies answers for them."""
    by_policy: dict[str, list[Asked]] = {}
    for each in asked:
        if each.policy is not None and each.policy in models:
            by_policy.setdefault(each.policy, []).append(each)
    found: dict[Asked, tuple[float, ...]] = {}
    for policy, some in by_policy.items():
        found |= option_chances(*models[policy], some, max_tokens=max_tokens)
    return found


@torch.no_grad()
def option_chances(
    model: Any, tokenizer: Any, asked: Sequence[Asked], *, max_tokens: int = 65536
) -> dict[Asked, tuple[float, ...]]:
    """The chances of each prompt's options, summing to one. `model` may be who asks a server for them."""
    if (elsewhere := getattr(model, "option_chances", None)) is not None:
        found_there: dict[Asked, tuple[float, ...]] = elsewhere(tokenizer, asked)
        return found_there
    said: dict[str, list[int]] = {}
    rows: list[Row] = []
    for _, prompt, options, temperature in asked:
        ids = np.frombuffer(prompt, np.int32)
        for option in options:
            if option not in said:
                said[option] = [*tokenizer.encode(option, add_special_tokens=False), tokenizer.eos_token_id]
            rows.append(answer_row(ids, said[option], sample=str(len(rows)), temperature=temperature))
    sums = np.zeros(len(rows))
    for part in split(rows, max_tokens, "forest"):
        batch = pack(part, "forest")
        current = make_pass(batch.layout, model.dtype, model.device, "auto")
        with tree_attention(model, current):
            logprobs, _ = edge_logprobs(model, batch, current.layout)
        values = logprobs.double().cpu().numpy()[batch.of]
        totals = np.bincount(batch.sequence, values, len(part))
        for row, total in zip(part, totals.tolist(), strict=True):
            sums[int(row.sample)] = total
    found: dict[Asked, tuple[float, ...]] = {}
    at = 0
    for key in asked:
        size = len(key.options)
        weights = np.exp(sums[at : at + size] - sums[at : at + size].max())
        found[key] = tuple((weights / weights.sum()).tolist())
        at += size
    return found


def trained_decisions(recipe: Recipe) -> frozenset[str]:
    """Those that are learned and that some credit is for."""
    return frozenset(
        decision
        for decision in recipe.train.decisions
        if any(not part.decisions or decision in part.decisions for part in recipe.credit)
    )


def target_of(
    chances: Sequence[float], values: Sequence[float], *, temperature: float, forget: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The improved distribution over options."""
    level = np.array(values)
    logits = (1 - forget) * np.log(np.maximum(chances, 1e-12)) + (level - level.max()) / temperature
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum(), np.float64)


def option_rows(
    traces: Sequence[Trace],
    tokenizers: Mapping[str, Any],
    q: Callable[[Prefix, str], float],
    decisions: Collection[str],
    *,
    temperature: float,
    forget: float,
    cut_weight: float = 1.0,
    weights: Sequence[float] | None = None,
) -> list[Row]:
    """One row for each option of each situation in which one of `decisions` was made, or a player returned its move,
    which is none of the five. `tokenizers` by policy.

    Situations of rollouts that a budget cut off count `cut_weight`, and those of each trace its weight, where given. Of
    one that was met several times the first trace tells the chances.
    """
    met: dict[Asked, tuple[float, Trace, int]] = {}
    for trace, weight in zip(traces, weights or [1.0] * len(traces), strict=True):
        level = weight * (cut_weight if cut_off(trace) else 1.0)
        if not level:
            continue
        for place, event in enumerate(trace.events):
            if event.choice is None or event.status != "ok":
                continue
            if event.decision not in decisions and (event.type, event.decision) != ("return", "none"):
                continue
            asked = None if event.option_propensities is None else Asked.at(trace, event)
            if asked is not None and asked.policy in tokenizers:
                count, first, at = met.get(asked, (0.0, trace, place))
                met[asked] = (count + level, first, at)
    rows: list[Row] = []
    for number, (asked, (count, trace, place)) in enumerate(met.items()):
        values = [q(Prefix(trace, place), option) for option in asked.options]
        chances = trace.events[place].option_propensities or ()
        target = target_of(chances, values, temperature=temperature, forget=forget)
        policy = asked.policy or ""
        tokenizer = tokenizers[policy]
        for option, share in zip(asked.options, target.tolist(), strict=True):
            said = [*tokenizer.encode(option, add_special_tokens=False), tokenizer.eos_token_id]
            rows.append(
                answer_row(
                    np.frombuffer(asked.prompt, np.int32),
                    said,
                    sample=f"option/{len(rows)}",
                    group=f"situation/{number}",
                    advantage=share,
                    weight=count,
                    temperature=asked.temperature,
                    policy=policy,
                )
            )
    return rows
