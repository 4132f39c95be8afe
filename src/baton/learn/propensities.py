"""What else could have been said, and how likely: the chance of every option, written onto the trace.

A language model says one of a task's options token by token; the trace then knows the chance of what was said but
not of the rest, which COMA, paired forks, doubly robust credit and stop values need. So all options of all distinct
prompts are put through the model at once, as a prefix forest: each prompt is computed once. Chances are those of the
whole answer, ended by the model itself, and are normalised over the options ("given that one of them is said").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from msgspec import structs

from baton.learn.attention import make_pass, tree_attention
from baton.learn.batch import pack
from baton.learn.logprobs import edge_logprobs
from baton.learn.rows import Row, answer_row
from baton.learn.split import split
from baton.trace.event import Event
from baton.trace.trace import Trace

__all__ = ["Asked", "chances_of", "option_chances", "with_propensities"]


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
        return cls(call.policy, prompt.numpy().astype(np.int32).tobytes(), event.options, temperature)

    def plain(self) -> list[Any]:
        """For a checkpoint."""
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
    return versions.get(call.policy or "", call.policy_version) != call.policy_version


def chances_of(
    asked: Iterable[Asked], models: Mapping[str, tuple[Any, Any]], *, max_tokens: int = 65536
) -> dict[Asked, tuple[float, ...]]:
    """Of all that these policies answer for."""
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
    """For each prompt the chances of its options, summing to one."""
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
