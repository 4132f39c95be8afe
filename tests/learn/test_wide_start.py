"""A wide team's vocabulary comes from a few episodes of scripted play: two hundred would be a million calls."""

from __future__ import annotations

import pytest
from msgspec import structs

from baton.compose.stage_from_recipe import make_stage
from baton.learn.models import start
from baton.learn.recipe import load


def test_scripted_play_stops_at_so_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load("grpo", ["team.topology=swarm", "task.name=shard-sum", "task.settings={}"])
    recipe = structs.replace(recipe, warm=None)
    stage = make_stage(recipe)
    monkeypatch.setattr(start, "_MOST_CALLS", 10**9)
    whole = start.scripted_traces(recipe, stage)
    assert len(whole) == 200
    monkeypatch.setattr(start, "_MOST_CALLS", 7 * len(whole[0].calls) + 1)
    assert start.scripted_traces(recipe, stage) == whole[:7]
    monkeypatch.setattr(start, "_MOST_CALLS", 1)
    assert start.scripted_traces(recipe, stage) == whole[:2]
