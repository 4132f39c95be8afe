"""The supervised start: what is read and said in scripted play, and that a model learns to say it."""

from __future__ import annotations

import asyncio

import torch
from small_run import small

from baton.compose.stage_from_recipe import make_stage
from baton.learn.models.start import spoken_in, texts_of, warm_start
from baton.learn.models.tiny import Tiny, make_tiny
from baton.learn.stage import Episode
from baton.trace.trace import Trace


def scripted(memory: str, count: int = 20) -> list[Trace]:
    stage = make_stage(small(team__memory=memory))
    episodes = [Episode(name=f"w{n}", instance=n, seed=n) for n in range(count)]
    return asyncio.run(stage.play(dict.fromkeys(stage.roles, stage.script("random")), episodes))


def test_every_call_is_there_with_all_it_had_read() -> None:
    traces = scripted("all")
    spoken = spoken_in(traces)
    assert spoken.total() == sum(len(trace.calls) for trace in traces)
    longest = max((context for context, _ in spoken), key=len)
    assert [who for who, _ in longest].count("assistant") == max(len(t.calls) for t in traces) - 1
    latest = spoken_in(scripted("latest"))
    assert all("assistant" not in [who for who, _ in context] for context, _ in latest)
    assert not spoken_in(traces, roles=("nobody",))


def test_a_model_learns_what_was_said_and_the_same_seed_gives_the_same_weights() -> None:
    torch.set_num_threads(1)
    spoken = spoken_in(scripted("latest", 60))
    made = []
    for _ in range(2):
        model, tokenizer = make_tiny(
            texts_of(spoken), Tiny(width=32, layers=1, heads=2, vocabulary=300), seed=3
        )
        losses: list[float] = []
        last = warm_start(
            model,
            tokenizer,
            spoken,
            steps=40,
            rows=32,
            learning_rate=0.01,
            seed=3,
            progress=lambda _, loss, told=losses: told.append(loss),  # type: ignore[misc]  # bound now
        )
        assert last == losses[-1] < 0.2 * losses[0]
        made.append(model.state_dict())
    assert all(torch.equal(made[0][key], made[1][key]) for key in made[0])
