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
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from baton.credit.contract import Prefix
from baton.learn.buffer import cut_off
from baton.learn.recipe import Recipe
from baton.learn.rows import Row, answer_row
from baton.trace.trace import Trace

__all__ = ["option_rows", "target_of", "trained_decisions"]


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
) -> list[Row]:
    """One row for each option of each situation in which one of `decisions` was made. `tokenizers` by policy.

    Situations of rollouts that a budget cut off count `cut_weight`. Of one that was met several times the first trace
    tells the chances.
    """
    met: dict[tuple[str, bytes, tuple[str, ...], float], tuple[float, Trace, int]] = {}
    for trace in traces:
        level = cut_weight if cut_off(trace) else 1.0
        if not level:
            continue
        for place, event in enumerate(trace.events):
            call = trace.call_by_id.get(event.call or "")
            if event.options is None or event.choice is None or event.status != "ok" or call is None:
                continue
            if (
                event.decision not in decisions
                or event.option_propensities is None
                or call.policy not in tokenizers
            ):
                continue
            prompt = trace.prompt_ids(call)
            if prompt is None or call.policy is None:
                continue
            drawn_at = 1.0 if call.sampling is None else call.sampling.temperature
            key = (call.policy, prompt.numpy().astype(np.int32).tobytes(), event.options, drawn_at)
            count, first, at = met.get(key, (0.0, trace, place))
            met[key] = (count + level, first, at)
    rows: list[Row] = []
    for number, ((policy, prompt_ids, options, drawn_at), (count, trace, place)) in enumerate(met.items()):
        event = trace.events[place]
        values = [q(Prefix(trace, place), option) for option in options]
        chances = event.option_propensities or ()
        target = target_of(chances, values, temperature=temperature, forget=forget)
        tokenizer = tokenizers[policy]
        for option, share in zip(options, target.tolist(), strict=True):
            said = [*tokenizer.encode(option, add_special_tokens=False), tokenizer.eos_token_id]
            rows.append(
                answer_row(
                    np.frombuffer(prompt_ids, np.int32),
                    said,
                    sample=f"option/{len(rows)}",
                    group=f"situation/{number}",
                    advantage=share,
                    weight=count,
                    temperature=drawn_at,
                    policy=policy,
                )
            )
    return rows
