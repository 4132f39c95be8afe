"""Weights that are trained here and answered with by a vLLM server: `AdapterEngine` for adapters, `FullEngine` for all.

`publish` pushes, compares checksums and asks the server for log-probabilities before anything is answered with the new
weights; a push that fails is made once more and then refused, and from then on nothing is answered. An adapter's
versions are apart on the server, each under a name and path of its own, so calls of several may be in flight (`at`) and
what a version answers is the same again later. Of full weights the server has one version at a time: calls in flight
are ended first, or, where updates in flight were asked for, go on with the new weights, and the answer says from which
token.

Invariant: an answer carries the version of the weights that drew it, as they were pushed from here and verified; an
answer by any others (a server that somebody started again, say) is an error.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from msgspec import Struct, structs

from baton.engine.posting import NoAnswer
from baton.engine.vllm.weights import (
    HalfPush,
    SentWeights,
    Transfer,
    check_file,
    digests_of,
    sent_of,
    write_adapter,
)
from baton.engine.vllm.weights_probe import Gap, Probe, ProbeScores, WrongWeights
from baton.errors import BatonError
from baton.team.protocol import Answer, EngineError, Entry, Request
from baton.trace.records import Ints, VersionSpan

if TYPE_CHECKING:
    from torch import Tensor

    from baton.engine.vllm.client import VllmClient
    from baton.engine.vllm.engine import VllmEngine

T = TypeVar("T")
TRIES = 2
Updates = Literal["pinned", "in-flight"]


class Pushed(Struct, frozen=True, kw_only=True):
    """One verified push."""

    version: str
    sent: SentWeights
    gap: Gap
    num_tries: int
    """2: the first was cut off, or found wrong."""


class Host:
    """A server that policies are pushed to, perhaps several: one that is there, or one of our own."""

    def __init__(
        self,
        client: VllmClient,
        folder: Path,
        *,
        start_again: Callable[[], bool] | None = None,
        close: Callable[[], None] | None = None,
        seconds: float = 0.0,
    ) -> None:
        """`folder` is read by the server; `start_again` starts one of our own that has died, and says whether it
        had; that may take so many seconds."""
        self.client = client
        self.folder = folder
        self.seconds = seconds
        self.generation = 0
        """How often the server was started again: it has none of the weights pushed before."""
        self._start_again = start_again
        self._close = close
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where the server is asked, whoever asks: connections are kept from one play to the next."""

    def run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask, and wait; from any thread but the host's own."""
        return asyncio.run_coroutine_threadsafe(begin(), self._running()).result()

    async def ask(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask from another event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(begin(), self._running()))

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="baton-vllm", daemon=True)
                self._thread.start()
            return self._loop

    def revive(self) -> bool:
        """Start our own server again if it has died. False: it is not ours, or it lives."""
        with self._lock:
            if self._start_again is None or not self._start_again():
                return False
            self.generation += 1
            return True

    def close(self) -> None:
        """End our own server; several policies may ask for it."""
        end, self._close, self._start_again = self._close, None, None
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self.client.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
        if end is not None:
            end()


class TrainedEngine:
    """What both kinds share: who answers, and which of their versions are pushed and verified."""

    def __init__(self, host: Host, engine: VllmEngine, probe: Probe) -> None:
        """`engine` asks the server's base model, under the policy's name."""
        self.name = engine.name
        self.charging = engine.charging
        self._host = host
        self._engine = engine
        self._probe = probe
        self.version = ""
        """Which weights answer now; empty: none were pushed."""
        self.pushes: list[Pushed] = []
        self._why = "no weights were pushed yet"
        self._generation = host.generation
        self._repairing = threading.RLock()

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        return self._engine.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return await self.answer_at(self.version, requests)

    async def answer_at(self, version: str, requests: Sequence[Request]) -> list[Answer | EngineError]:
        """Answer with the weights of a version that was pushed. A server of our own that died is started again."""
        generation = self._host.generation
        given = await self._host.ask(lambda: self._asked(version, requests))
        lost = [place for place, each in enumerate(given) if isinstance(each, EngineError)]
        repaired: bool = bool(lost) and await asyncio.to_thread(self._repaired)
        if repaired or (lost and self._host.generation != generation):
            left = [requests[place] for place in lost]
            again = await self._host.ask(lambda: self._asked(version, left))
            for place, each in zip(lost, again, strict=True):
                given[place] = each
        return given

    def expect(self) -> ProbeScores:
        """What the trainer's weights of now give the probe, for a push of them that comes later."""
        return self._probe.expect()

    def publish(
        self, version: str, weights: Mapping[str, Tensor] | None = None, expected: ProbeScores | None = None
    ) -> None:
        """Push weights, and verify that the server computes with them. Nothing is answered with any others.

        `expected` is what `expect` gave when the weights were the trainer's; None: they are so now.
        """
        if weights is None:
            raise EngineError("a server is not told a new version without its weights")
        with self._repairing:  # what is restored meanwhile is not what is pushed
            self._publish(version, weights, expected or self.expect())

    def _publish(self, version: str, weights: Mapping[str, Tensor], expected: ProbeScores) -> None:
        tries: list[str] = []
        behind = False
        for number in range(1, TRIES + 1):
            if self._host.revive() or self._generation != self._host.generation:
                self._anew()
                behind = True
            if not self.pushes:
                self._host.run(self._engine.check_trainable)
            try:
                if behind:
                    self._host.run(lambda: self._restore_beside(version))
                    behind = False
                sent, gap = self._host.run(lambda: self._push(version, weights, expected))
            except (NoAnswer, HalfPush, WrongWeights) as error:
                tries.append(str(error))
                continue
            self.version = version
            self.pushes.append(Pushed(version=version, sent=sent, gap=gap, num_tries=number))
            return
        self.version = ""  # not before: calls may be asked while a push is under way
        self._why = f"weights {version} could not be pushed: {'; then: '.join(dict.fromkeys(tries))}"
        raise EngineError(
            f"policy {self.name}: {self._why}. The server at {self._host.client.url} answers no calls of this run with "
            "other weights. Start it again, then go on with --resume."
        )

    def outdated(self) -> None:
        """The trainer's weights were set from outside: a version of the same name may be of others."""
        self.version = ""

    async def scores(self, texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
        """The log-probability of each completion after its prompt, at temperature 1, by the weights that answer."""
        found = await asyncio.gather(*(self._view().score(*each) for each in texts))
        return [float(sum(each)) for each in found]

    def score_all(self, texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
        """`scores`, from any thread. A server of our own that died is started again."""
        try:
            return self._host.run(lambda: self.scores(texts))
        except NoAnswer:
            if not self._repaired():
                raise
            return self._host.run(lambda: self.scores(texts))

    def mend(self) -> bool:
        """Where our own server has died: start it again and push what it had. False: it is not ours, or it lives."""
        with self._repairing:
            try:
                if not self._host.revive() and self._generation == self._host.generation:
                    return False
                self._anew()
                self._host.run(self._restore)
            except BatonError as error:
                self.version, self._why = "", f"the server died and cannot be started again: {error}"
                raise EngineError(f"policy {self.name}: {self._why}") from error
            return True

    @property
    def host(self) -> Host:
        return self._host

    @property
    def base(self) -> str:
        """The server's name for its model."""
        return self._engine.model

    def asked_as(self) -> tuple[str, str]:
        """How others ask the server for the weights that answer now: its name for who answers; of full weights its
        name for them, or nothing."""
        raise NotImplementedError

    def holds(self, model: str, label: str) -> bool:
        """Whether the server has what `asked_as` gave, as it was verified; waits where it is being restored."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the server."""
        self._host.close()

    def _view(self) -> VllmEngine:
        """The engine that asks for the weights that answer now."""
        raise NotImplementedError

    def _repaired(self) -> bool:
        """`mend`, for calls that stay lost and say why where it fails."""
        try:
            return self.mend()
        except BatonError:
            return False

    def _anew(self) -> None:
        """The server has none of what was pushed before."""
        self._generation = self._host.generation
        self._probe.forget()

    async def _asked(self, version: str, requests: Sequence[Request]) -> list[Answer | EngineError]:
        raise NotImplementedError

    async def _push(
        self, version: str, weights: Mapping[str, Tensor], expected: ProbeScores
    ) -> tuple[SentWeights, Gap]:
        raise NotImplementedError

    async def _restore(self) -> None:
        raise NotImplementedError

    async def _restore_beside(self, version: str) -> None:
        """What the server has to have besides a version that is about to be pushed to it anew."""


class FullEngine(TrainedEngine):
    """All weights of a server's model: one version at a time."""

    def __init__(
        self, host: Host, engine: VllmEngine, probe: Probe, transfer: Transfer, *, updates: Updates = "pinned"
    ) -> None:
        super().__init__(host, engine, probe)
        self.updates = updates
        self._transfer = transfer
        self._nonce = secrets.token_hex(4)
        """So that weights of another run, or of a server's start, are never taken for ours."""
        self._versions: dict[str, str] = {}
        """What the server calls weights -> our version of them."""
        self._last: tuple[str, Mapping[str, Tensor], ProbeScores] | None = None

    async def _push(
        self, version: str, weights: Mapping[str, Tensor], expected: ProbeScores
    ) -> tuple[SentWeights, Gap]:
        self._last = (version, weights, expected)
        label = f"{version}@{self._nonce}"
        mode: Literal["keep", "wait"] = "keep" if self.updates == "in-flight" else "wait"
        self._versions[label] = version  # before the push: calls in flight may end by them at once
        try:
            sent = await self._transfer.push(label, weights, mode=mode)
            return sent, await self._probe.check(self._host.client, self._engine.model, expected)
        except BaseException:
            del self._versions[label]
            raise

    def asked_as(self) -> tuple[str, str]:
        return self._view().model, f"{self.version}@{self._nonce}"

    def holds(self, model: str, label: str) -> bool:
        with self._repairing:
            return bool(self.version) and (model, label) == self.asked_as()

    async def _restore(self) -> None:
        if self._last is not None:
            await self._push(*self._last)

    def _view(self) -> VllmEngine:
        if not self.version:
            raise EngineError(self._why)
        return self._engine

    def _anew(self) -> None:
        super()._anew()
        self._transfer.close()

    def close(self) -> None:
        self._transfer.close()
        super().close()

    async def _asked(self, version: str, requests: Sequence[Request]) -> list[Answer | EngineError]:
        if not version:
            return [EngineError(self._why) for _ in requests]
        given = await self._engine.answer(requests)
        return [each if isinstance(each, EngineError) else self._named(version, each) for each in given]

    def _named(self, asked: str, answer: Answer) -> Answer | EngineError:
        """The answer under our versions, or an error where the server drew by weights that are not ours."""
        told = answer.versions or (VersionSpan(version=answer.policy_version, end=0),)
        spans: list[VersionSpan] = []
        for span in told:
            version = self._versions.get(span.version)
            if version is None:
                return EngineError(
                    f"the server answered with weights that it calls {span.version!r}, which this run did not push: "
                    f"it was "
                    "started again, somebody else pushes to it, or it was started without --enable-scale-out"
                )
            spans.append(VersionSpan(version=version, end=span.end))
        drawn = {span.version for span in spans}
        if self.updates == "pinned" and drawn != {asked}:
            return EngineError(f"weights {', '.join(sorted(drawn))} answered, and {asked} were asked")
        # Where several drew, the first stands for all: losses take such a call for an older one, and correct each of
        # its tokens by the log-probability that it was drawn with.
        first, several = spans[0].version, len(drawn) > 1
        return structs.replace(answer, policy_version=first, versions=tuple(spans) if several else None)


class _Served(NamedTuple):
    """An adapter that the server holds."""

    name: str
    folder: Path
    sent: SentWeights
    expected: ProbeScores


def _sent(weights: Mapping[str, Tensor]) -> SentWeights:
    return sent_of(weights, digests_of(weights))


class AdapterEngine(TrainedEngine):
    """An adapter over a server's base model; each version is under a name of its own."""

    def __init__(self, host: Host, engine: VllmEngine, probe: Probe, *, alpha: int, keep: int = 2) -> None:
        """`keep`: so many versions stay on the server, the last ones; plays need no older ones."""
        super().__init__(host, engine, probe)
        self._alpha = alpha
        self._keep = keep
        self._served: dict[str, _Served] = {}
        """By version."""

    def at(self, version: str) -> AdapterView:
        """Answers with the weights of one version, whatever is pushed meanwhile."""
        return AdapterView(self, version)

    def drop(self, version: str) -> None:
        """A version that no play needs any more; calls that are being answered with it end well."""
        if (served := self._served.pop(version, None)) is not None:
            self._host.run(lambda: self._unload(served))

    @property
    def versions(self) -> list[str]:
        """Those that the server holds, oldest first."""
        return list(self._served)

    def publish(
        self, version: str, weights: Mapping[str, Tensor] | None = None, expected: ProbeScores | None = None
    ) -> None:
        """Push an adapter, or answer with one again that is there."""
        with self._repairing:
            known = self._served.get(version)
            if known is not None and weights is not None and known.sent.digest == _sent(weights).digest:
                self.version = version
                self._served[version] = self._served.pop(version)  # now the last
                return
            super().publish(version, weights, expected)
            for old in self.versions[: -self._keep]:
                self.drop(old)

    def asked_as(self) -> tuple[str, str]:
        return self._view().model, ""

    def holds(self, model: str, label: str) -> bool:
        with self._repairing:
            return (
                bool(self.version) and not label and any(model == each.name for each in self._served.values())
            )

    async def _push(
        self, version: str, weights: Mapping[str, Tensor], expected: ProbeScores
    ) -> tuple[SentWeights, Gap]:
        sent = _sent(weights)
        # A name or path that is used again would be answered from what was computed before.
        name = f"{self.name}-{version}-{sent.digest}-{secrets.token_hex(2)}"
        served = _Served(name, self._host.folder / name, sent, expected)
        digest = write_adapter(served.folder, weights, alpha=self._alpha)
        try:
            gap = await self._load(served, digest)
        except BaseException:
            await self._unload(served)
            raise
        if (old := self._served.pop(version, None)) is not None:
            await self._unload(old)
        self._served[version] = served
        return sent, gap

    async def _load(self, served: _Served, digest: str | None = None) -> Gap:
        client = self._host.client
        if digest is not None:
            await check_file(client, served.folder / "adapter_model.safetensors", digest)
        await client.load_adapter(served.name, str(served.folder))
        return await self._probe.check(client, served.name, served.expected)

    async def _unload(self, served: _Served) -> None:
        shutil.rmtree(served.folder, ignore_errors=True)
        with suppress(EngineError):  # a server that was started again, or never got it, has it not
            await self._host.client.unload_adapter(served.name)

    def _view(self) -> VllmEngine:
        if self.version not in self._served:
            raise EngineError(self._why)
        return self._engine.with_model(self._served[self.version].name, self.version)

    async def _restore(self) -> None:
        await self._restore_beside("")

    async def _restore_beside(self, version: str) -> None:
        for each in [served for known, served in self._served.items() if known != version]:
            await self._load(each)

    async def _asked(self, version: str, requests: Sequence[Request]) -> list[Answer | EngineError]:
        served = self._served.get(version)
        if served is None:
            why = self._why if not version else f"weights {version} are not on the server any more"
            return [EngineError(why) for _ in requests]
        return await self._engine.with_model(served.name, version).answer(requests)


class AdapterView:
    """An adapter engine as of one version."""

    def __init__(self, engine: AdapterEngine, version: str) -> None:
        self.name = engine.name
        self.charging = engine.charging
        self.version = version
        self._engine = engine

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        return self._engine.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return await self._engine.answer_at(self.version, requests)
