"""A supervised start: the policy learns to say what scripted play says, so that RL begins from the grammar.

Minimises -log pi(what was said) over calls of scripted traces, each drawn as often as it came up: with REINFORCE's
loss at advantage 1 it is the same update as any other (`baton.learn.update`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from baton.engine.torch.template import Encoder
from baton.errors import TraceError
from baton.learn.losses import Loss
from baton.learn.rows import Row, answer_row
from baton.learn.update import Gradients, Packed
from baton.team.policy import Entry
from baton.trace.trace import Trace

__all__ = ["Spoken", "spoken_in", "spoken_rows", "texts_of", "warm_start"]

Spoken = tuple[tuple[tuple[str, str], ...], str]
"""A whole context as (speaker, text) pairs, and what was said there."""


def spoken_in(traces: Iterable[Trace], roles: Sequence[str] | None = None) -> Counter[Spoken]:
    """Every call of these roles, and how often it came up."""
    found: Counter[Spoken] = Counter()
    for trace in traces:
        contexts: dict[str, tuple[tuple[str, str], ...]] = {}
        for call in trace.calls:
            new = trace.text(call.prompt_ref)
            said = trace.text(call.completion_ref)
            if new is None or said is None:
                raise TraceError(f"call {call.id} of {trace.trace_id} has no text to learn from.")
            before = contexts.get(call.parent or "", ())
            context = (*before, *((e["speaker"], e["text"]) for e in json.loads(new)))
            contexts[call.id] = (*context, ("assistant", said))
            if roles is None or call.role in roles:
                found[context, said] += 1
    return found


def texts_of(spoken: Iterable[Spoken]) -> list[str]:
    """Everything read or said, once each, in a fixed order: what a tokenizer is trained on."""
    return sorted({text for context, said in spoken for text in (*(each for _, each in context), said)})


def warm_start(
    model: Any,
    tokenizer: Any,
    spoken: Counter[Spoken],
    *,
    steps: int,
    rows: int,
    learning_rate: float,
    seed: int,
    parameters: Sequence[torch.nn.Parameter] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> float:
    """Train in place; returns the last loss. The learning rate falls to a tenth along a cosine.

    `parameters` are those that learn; None: all.
    """
    every = spoken_rows(tokenizer, spoken)
    chance = np.array(list(spoken.values()), float)
    chance /= chance.sum()
    gradients = Gradients(model, Loss(kind="reinforce", correction="off"), Packed(duplicates="row_exact"))
    learned = list(model.parameters()) if parameters is None else list(parameters)
    optimizer = torch.optim.AdamW(learned, lr=learning_rate, weight_decay=0.0, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps), 0.1 * learning_rate)
    random = np.random.default_rng(seed)
    loss = float("nan")
    for step in range(steps):
        batch = [every[i] for i in random.choice(len(every), rows, p=chance)]
        optimizer.zero_grad()
        loss = gradients.backward(batch).loss
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        schedule.step()
        if progress is not None:
            progress(step + 1, loss)
    return loss


def spoken_rows(tokenizer: Any, spoken: Iterable[Spoken]) -> list[Row]:
    """Each call as a model would read and say it."""
    encoder = Encoder(tokenizer, None)
    found = []
    for number, (context, said) in enumerate(spoken):
        prompt = encoder.encode([Entry(speaker, text) for speaker, text in context], None)  # type: ignore[arg-type]
        answer = [*tokenizer.encode(said, add_special_tokens=False), tokenizer.eos_token_id]
        found.append(answer_row(prompt, answer, sample=str(number)))
    return found
