"""Rollout workers that ask the trainer's vLLM servers: they hold no weights, and a lot names those that answer.

The trainer pushes and verifies; a worker asks by the server's own name for what was pushed. A server that the trainer
keeps is started again by it where it dies, with what was pushed before, while the worker waits: the seed of a call
makes what comes then the same draw.

Invariant: an answer was drawn by the weights that the lot names, or it is an error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from baton.engine.vllm.client import VllmClient
from baton.engine.vllm.engine import VllmEngine
from baton.engine.vllm.trained import Host, TrainedEngine
from baton.learn.policy import Policy
from baton.learn.recipe import PolicyPart
from baton.learn.scale.served import ServedOptions
from baton.learn.scale.workers_lots import Lot, ServedWeights, WorkersFailed
from baton.team.budget import Charging
from baton.team.protocol import Answer, EngineError, Entry, Request
from baton.trace.records import Ints

if TYPE_CHECKING:
    from baton.learn.policy import Load

T = TypeVar("T")
_GLANCE_SECONDS = 1.0


def served_weights(policies: Mapping[str, Policy]) -> tuple[ServedWeights, ...]:
    """Have the servers answer with the weights of now, and say how workers ask for these."""
    found = []
    for name, policy in policies.items():
        if isinstance(policy.engine, TrainedEngine):
            policy.publish()
            model, label = policy.engine.asked_as()
            host = policy.engine.host
            found.append(
                ServedWeights(
                    policy=name,
                    version=policy.version,
                    url=host.client.url,
                    base=policy.engine.base,
                    model=model,
                    label=label,
                    seconds=host.seconds,
                )
            )
    return tuple(found)


def mend_servers(policies: Mapping[str, Policy]) -> None:
    """Start servers of our own again that have died, with what was pushed to them. Raises where that cannot be."""
    for policy in policies.values():
        if isinstance(policy.engine, TrainedEngine) and policy.engine.pushes:
            policy.engine.mend()


def check_held(lot: Lot, policies: Mapping[str, Policy]) -> None:
    """Raise where a server has not, or not any more, what this lot was played with."""
    for told in lot.served:
        engine = policies[told.policy].engine
        if isinstance(engine, TrainedEngine) and not engine.holds(told.model, told.label):
            raise WorkersFailed(
                f"policy {told.policy}: the server at {told.url} lost weights {told.version} while rollout workers "
                "played with them. Start it again, then type: baton train --resume --out DIR"
            )


def asking_policy(name: str, part: PolicyPart, roles: Sequence[str], load: Load) -> Policy:
    """A policy of a worker that a server answers for. Of its model only the tokenizer is needed."""
    _, tokenizer = load(part)
    engine = AskingEngine(name, tokenizer)
    made = Policy(name, part, roles, engine, tokenizer=tokenizer, apart=True)
    made.chances = lambda: ServedOptions(engine)
    return made


class AskingEngine:
    """Asks a server of the trainer's for the weights of the lot that is played."""

    def __init__(self, name: str, tokenizer: Any) -> None:
        self.name = name
        self.charging: Charging = VllmEngine.charging
        self.version = ""
        self._tokenizer = tokenizer
        self._told: ServedWeights | None = None
        self._host: Host | None = None
        self._plain: VllmEngine | None = None
        self._engine: VllmEngine | None = None

    def use(self, told: ServedWeights) -> None:
        """From here on these weights answer."""
        if self._plain is None or self._host is None or self._plain.client.url != told.url:
            self.close()
            self._host = Host(VllmClient(told.url), Path())
            self._plain = VllmEngine(self._host.client, told.base, self._tokenizer, name=self.name)
        self._told, self.version = told, str(told.version)
        adapter = told.model != told.base
        self._engine = self._plain.with_model(told.model, self.version) if adapter else self._plain

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        assert self._plain is not None, "a lot names the weights before anything is played"
        return self._plain.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        assert self._host is not None
        return await self._host.ask(lambda: self._answered(requests))

    def score_all(self, texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
        """The log-probability of each completion after its prompt, at temperature 1, by the lot's weights."""
        assert self._host is not None
        return self._host.run(lambda: self._scored(texts))

    def close(self) -> None:
        """Let go of the connections."""
        if self._host is not None:
            self._host.close()
            self._host = None

    async def _answered(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return await self._patiently(self._asked, requests)

    async def _scored(self, texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
        found = await self._patiently(self._sums, texts)
        for each in found:
            if isinstance(each, EngineError):
                raise each
        return [each for each in found if not isinstance(each, EngineError)]

    async def _patiently(
        self, ask: Callable[[Sequence[Any]], Awaitable[list[T | EngineError]]], every: Sequence[Any]
    ) -> list[T | EngineError]:
        """Ask, and where something is lost again: once of a server that stands, until then of one that comes back."""
        assert self._told is not None
        given = await ask(every)
        until, stood = time.monotonic() + self._told.seconds, False
        while not stood and (lost := [n for n, each in enumerate(given) if isinstance(each, EngineError)]):
            stood = await self._stands()
            if not stood and time.monotonic() > until:
                break
            if not stood:
                await asyncio.sleep(_GLANCE_SECONDS)
                continue
            for place, each in zip(lost, await ask([every[n] for n in lost]), strict=True):
                given[place] = each
        return given

    async def _stands(self) -> bool:
        """Whether the server answers, and with the lot's weights."""
        assert self._told is not None
        assert self._plain is not None
        try:
            if self._told.label:
                return await self._plain.client.weight_version() == self._told.label
            return any(each.id == self._told.model for each in await self._plain.client.models())
        except EngineError:
            return False

    async def _asked(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        assert self._engine is not None
        return [self._named(each) for each in await self._engine.answer(requests)]

    def _named(self, answer: Answer | EngineError) -> Answer | EngineError:
        """Of full weights: an error where others answered than the lot names."""
        assert self._told is not None
        if isinstance(answer, EngineError) or not self._told.label:
            return answer
        drawn = {span.version for span in answer.versions or ()} | {answer.policy_version}
        if drawn != {self._told.label}:
            names = ", ".join(map(repr, sorted(drawn)))
            return EngineError(
                f"the server at {self._told.url} answered with weights that it calls {names}, "
                f"and {self._told.label!r} were asked: somebody else pushes to it, or it was started again"
            )
        return structs.replace(answer, policy_version=self.version)

    async def _sums(self, texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float | EngineError]:
        assert self._engine is not None
        engine = self._engine

        async def one(prompt: Sequence[int], said: Sequence[int]) -> float | EngineError:
            try:
                return float(sum(await engine.score(prompt, said)))
            except EngineError as error:
                return error

        return list(await asyncio.gather(*(one(*each) for each in texts)))
