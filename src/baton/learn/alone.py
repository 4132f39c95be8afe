"""The single agent beside the team: the same weights, spawning not allowed, as many tries as the team's tokens buy.

On a game the policy is asked for the chances of its options, and what is drawn adds as few agents as can be. On other
tasks the root works by itself: it has the tools of the whole team and no verb that needs others. Where a program
spawns, or nobody can, there is no such agent to measure: `NotAlone` says why.

Invariant: n is how many tries come nearest to the team's tokens, by the tokens of the first try at every instance.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import structs

from baton.errors import BatonError
from baton.learn.evaluate import held_out, mean_tokens, tries_for
from baton.learn.lockstep import Lockstep
from baton.learn.policies.policy import Policy
from baton.learn.propensities import Asked, option_chances
from baton.learn.recipe import Recipe
from baton.learn.stage import Stage
from baton.tasks.game import Game
from baton.tasks.game_team import read_state
from baton.tasks.policies import by_spawns
from baton.team.policy import Answer, Engine, EngineError, Entry, Request
from baton.team.randomness import uniform
from baton.trace.numbers import Ints
from baton.trace.trace import Trace

__all__ = ["NotAlone", "alone_at_tokens"]

_MOST_TRIES = 64
_NEED_OTHERS = frozenset({"spawn", "delegate", "send", "wait", "cancel", "aggregate"})
_INSTRUCTIONS = "Do the task by yourself and stop with the answer."


class NotAlone(BatonError):
    """There is no single agent to compare this team with; the message says why."""


def alone_at_tokens(
    stage: Stage,
    policies: Mapping[str, Policy],
    recipe: Recipe,
    tokens: float,
    score: Callable[[Trace], float],
) -> tuple[list[Trace], list[list[float]]]:
    """All traces, and the returns of the n tries at each held-out instance."""
    policy = next(each for each in policies.values() if stage.topology.root in each.roles)
    if stage.game is None:
        stage, engine = _by_itself(stage), policy.engine
    else:
        engine = _Unspawning(stage.game, policy)
    engines: dict[str, Engine] = {stage.topology.root: Lockstep(engine, policy=policy.name)}
    traces = asyncio.run(stage.play(engines, held_out(recipe, "alone", 0)))
    if isinstance(engine, _Unspawning) and not engine.num_barred:
        raise NotAlone("nobody is spawned by choice in this game, so it is played alike without")
    tries = tries_for(tokens, mean_tokens(traces), _MOST_TRIES)
    returns = [[score(trace)] for trace in traces]
    if tries > 1:
        more = asyncio.run(stage.play(engines, held_out(recipe, "alone", 0, first=1, tries=tries)))
        for number, trace in enumerate(more):
            returns[number // (tries - 1)].append(score(trace))
        traces += more
    return traces, returns


def _by_itself(stage: Stage) -> Stage:
    """The same task, and the root alone."""
    topology = stage.topology
    root = next(role for role in topology.roles if role.name == topology.root)
    if topology.root in topology.programs:
        raise NotAlone(f"in a {topology.name} team a program spawns the others, not a policy")
    if not root.spawns:
        raise NotAlone("the team is a single agent already")
    tools = tuple(dict.fromkeys(tool for role in topology.roles for tool in role.tools))
    own = tuple(verb for verb in root.verbs if verb not in _NEED_OTHERS and verb != "call")
    verbs = ("call", *own) if tools else own
    root = structs.replace(root, verbs=verbs, spawns=(), tools=tools, instructions=_INSTRUCTIONS)
    alone = copy.copy(stage)
    alone.topology = structs.replace(topology, roles=(root,))
    return alone


class _Unspawning:
    """A game's policy, drawn from by its chances of the options that add the fewest agents."""

    def __init__(self, game: Game, policy: Policy) -> None:
        self.name = policy.engine.name
        self.num_barred = 0
        """Choices at which an option was not allowed."""
        self._game = game
        self._policy = policy

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        return self._policy.engine.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        asked = [self._asked(request) for request in requests]
        policy = self._policy
        known = option_chances(policy.sampler, policy.tokenizer, list(dict.fromkeys(asked)))
        return [
            self._drawn(request, each.options, known[each])
            for request, each in zip(requests, asked, strict=True)
        ]

    def _asked(self, request: Request) -> Asked:
        assert request.options is not None
        assert request.state is not None
        state = read_state(request.state)
        fewest = by_spawns(self._game, state, 0)
        named = zip(request.options, self._game.options(state), strict=True)
        allowed = tuple(shown for shown, option in named if option in fewest)
        self.num_barred += len(allowed) < len(request.options)
        prompt = np.asarray(request.prompt_ids, np.int32).tobytes()
        return Asked(self.name, prompt, allowed, request.sampling.temperature)

    def _drawn(self, request: Request, allowed: Sequence[str], chances: Sequence[float]) -> Answer:
        assert request.options is not None
        bounds = np.cumsum(chances)
        at = int(np.searchsorted(bounds, uniform(request.sampling.key or "") * bounds[-1], side="right"))
        text = allowed[min(at, len(allowed) - 1)]
        tokenizer: Any = self._policy.tokenizer
        said = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
        return Answer(
            text=text,
            policy=self.name,
            policy_version=str(self._policy.version),
            completion_ids=Ints(said),
            choice=request.options.index(text),
        )
