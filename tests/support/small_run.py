"""A run small enough for a test: the stopping chain, a model of 32 dimensions, warm-started in a second."""

from __future__ import annotations

from typing import Any

from baton.learn.recipe import Recipe, parse

BASE = """
about = "a small run"
[task]
name = "game:stopping-chain"
settings = {num_workers = 3, num_steps = 4}
[team]
template = ""
memory = "latest"
max_tokens = 12
[policies.main]
model = "tiny"
tiny = {width = 32, layers = 1, heads = 2, vocabulary = 300}
[warm]
play = "random"
episodes = 200
steps = 80
learning_rate = 0.01
[rollout]
groups = 4
group_size = 4
[train]
steps = 4
checkpoint_every = 2
learning_rate = 0.003
[eval]
episodes = 16
best_of = 1
"""
TEAM = """
about = "a small team of two roles"
[task]
name = "shard-sum"
settings = {num_shards = 2, per_shard = 1, largest = 3}
[team]
topology = "hierarchical"
settings = {levels = 2, max_turns = 6}
template = "{role}"
max_tokens = 48
[warm]
play = "reference"
episodes = 100
steps = 150
rows = 32
learning_rate = 0.02
[rollout]
groups = 2
group_size = 4
[train]
steps = 2
learning_rate = 0.003
[eval]
episodes = 4
best_of = 1
"""
TINY = 'model = "tiny"\ntiny = {width = 32, layers = 1, heads = 2, vocabulary = 400}\n'
GROUP = '[[credit]]\nestimator = "group"\n'
COMA = '[[credit]]\nestimator = "coma"\nweight = 5.0\n[critic]\nkind = "table"\n'


def small(more: str = GROUP, **changes: Any) -> Recipe:
    """`more` is added to the recipe; changes are by path, with __ for a dot."""
    listed = [f"{path.replace('__', '.')}={_json(value)}" for path, value in changes.items()]
    return parse(BASE + more, "small", listed)


def team(policies: str, more: str = GROUP, **changes: Any) -> Recipe:
    """The team of two roles, manager and worker, with these policies."""
    listed = [f"{path.replace('__', '.')}={_json(value)}" for path, value in changes.items()]
    return parse(TEAM + policies + more, "team", listed)


def _json(value: Any) -> str:
    import json

    return json.dumps(value)
