"""The processes that compute updates together, as the first of them sees them: begun, told what to do, and ended.

    one machine     the first process starts the others itself
    several         `torchrun` starts `baton train` everywhere, and all but the first wait here to be told

Invariant: nobody waits for ever. A process that ends closes its channel and its connections, which the others notice at
once; one that hangs is given up after `scale.trainer_patience`; if the first is killed the others end by themselves.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path
from typing import IO, Any, NoReturn

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed.rendezvous import rendezvous

from baton.errors import BatonError, UsageError
from baton.learn.scale.sharded_rank import Rank, RankPlace, serve

_GRACE_SECONDS = 3.0
"""How long processes may take to say why they end."""
_START_SECONDS = 600.0
"""How long they may take to begin: a busy machine loads torch for a minute."""
_KEY = "baton/channel"


class UpdateLost(BatonError):
    """One of the processes that compute updates is gone, so this update is."""


class Ranks:
    """All processes; this is the first."""

    def __init__(self, world: int, device: str, *, patience_seconds: float, threads: int | None) -> None:
        if dist.is_initialized():
            raise UsageError(
                "this process is in a group of torch.distributed already, and scale.trainer_processes makes its own. "
                "Set it to 1, or call torch.distributed.destroy_process_group() before."
            )
        self.world = world
        self.patience_seconds = self._waited = patience_seconds
        self._why = ""
        """Why nothing can be computed any more."""
        self._turn = threading.RLock()
        self._processes: list[subprocess.Popen[bytes] | None] = []
        self._channels: list[Connection] = []
        self._said: list[IO[bytes] | None] = []
        self._device = torch.device(device).type
        try:
            if "TORCHELASTIC_RUN_ID" in os.environ:
                self.rank = Rank(self._place(0, threads), self._join(threads))
            else:
                with _loopback():
                    self.rank = Rank(self._place(0, threads), self._start(threads))
        except BaseException as error:
            self._end(error)

    def _place(self, rank: int, threads: int | None) -> RankPlace:
        where = f"cuda:{rank}" if self._device == "cuda" else "cpu"
        return RankPlace(
            rank=rank, world=self.world, device=where, threads=threads, patience_seconds=self.patience_seconds
        )

    def _start(self, threads: int | None) -> Any:
        """Begin the others on this machine."""
        if self._device == "cuda" and torch.cuda.device_count() < self.world:
            raise UsageError(
                f"scale.trainer_processes is {self.world}, and torch sees {torch.cuda.device_count()} GPUs: each "
                "process needs one of its own. Give fewer, or start on several machines with torchrun."
            )
        store = TCPStore(
            "127.0.0.1",
            0,
            self.world,
            is_master=True,
            timeout=timedelta(seconds=self.patience_seconds),
            wait_for_workers=False,
        )
        path = os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])
        for rank in range(1, self.world):
            mine, theirs = socket.socketpair()
            said = tempfile.TemporaryFile()  # noqa: SIM115  # closed at the end
            self._said.append(said)
            with theirs:
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "baton.learn.scale.sharded_rank", str(theirs.fileno())],
                        pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL,
                        stdout=said,
                        stderr=said,
                        env={**os.environ, "PYTHONPATH": path},
                    )
                )
            self._channels.append(Connection(mine.detach()))
            self._channels[-1].send((self._place(rank, threads), store.port))
        self._hear(_START_SECONDS)
        return store

    def _join(self, threads: int | None) -> Any:
        """Be the first of those that torchrun started."""
        if int(os.environ["WORLD_SIZE"]) != self.world:
            raise UsageError(
                f"torchrun started {os.environ['WORLD_SIZE']} processes, and scale.trainer_processes is {self.world}. "
                f"Type: --set scale.trainer_processes={os.environ['WORLD_SIZE']}"
            )
        store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=self.patience_seconds)))
        key = secrets.token_bytes(32)
        host = os.environ["MASTER_ADDR"]
        with Listener((host, 0), authkey=key, backlog=self.world) as listener:
            address = f"{host} {listener.address[1]} {key.hex()} {self.patience_seconds}"
            store.set(_KEY, address)
            found = [listener.accept() for _ in range(1, self.world)]
        named = {each.recv(): each for each in found}
        self._channels = [named[rank] for rank in sorted(named)]
        for each in self._channels:
            each.send((self._device, threads))
        self._processes = [None] * len(found)
        self._said = [None] * len(found)
        return store

    def run(self, command: str, *args: Any, own: Any = None) -> Any:
        """Carry out a command in all processes; what it gave in this one. `own` is given to this one alone."""
        with self._turn:
            if self._why:
                raise UpdateLost(self._why)
            try:
                for channel in self._channels:
                    channel.send((command, args))
                more = {} if own is None else {"own": own}
                with self._watched():
                    found = getattr(self.rank, command)(*args, **more)
                self._hear()
            except BaseException as error:
                self._end(error)
            return found

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """gloo notices at once that another process has ended. NCCL does not, so it is told."""
        if self._device != "cuda":
            yield
            return
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                if any(each is not None and each.poll() is not None for each in self._processes):
                    dist.distributed_c10d._abort_process_group()
                    return

        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _hear(self, seconds: float | None = None) -> None:
        """Wait until all others have carried it out, or are there to begin with."""
        self._waited = seconds or self.patience_seconds
        until = time.monotonic() + self._waited
        for channel in self._channels:
            if not channel.poll(max(0.0, until - time.monotonic())):
                raise TimeoutError
            kind, _ = channel.recv()
            if kind != "done":
                raise EOFError

    def _end(self, error: BaseException) -> NoReturn:
        """End all of them, and say what came first."""
        told = self._told()
        self._why = self._line(error, told)
        refused = next((text for kind, text in told.values() if kind == "refused"), None)
        self.close()
        if isinstance(error, BatonError) or not isinstance(error, Exception):
            raise error
        raise (UsageError(refused) if refused else UpdateLost(self._why)) from error

    def _told(self) -> dict[int, tuple[str, str]]:
        """What the others say of their end: rank -> how, and why."""
        found: dict[int, tuple[str, str]] = {}
        until = time.monotonic() + _GRACE_SECONDS
        open_ = {channel: rank for rank, channel in enumerate(self._channels, 1)}
        while open_ and (ready := wait(list(open_), max(0.0, until - time.monotonic()))):
            for channel in ready:
                assert isinstance(channel, Connection)
                rank = open_[channel]
                try:
                    kind, text = channel.recv()
                except (EOFError, OSError):
                    found.setdefault(rank, ("ended", self._how(rank)))
                    del open_[channel]
                else:
                    if kind != "done":
                        found[rank] = (kind, text or "")
            if any(kind == "ended" for kind, _ in found.values()):
                until = min(until, time.monotonic() + 0.5)
        return found

    def _how(self, rank: int) -> str:
        """How a process ended."""
        process = self._processes[rank - 1]
        if process is None:
            return "ended"
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
        code = process.returncode
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        said = self._said[rank - 1]
        assert said is not None
        said.seek(0)
        last = said.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"ended with code {code}" + (f" ({last[0][:300]})" if last else "")

    def _line(self, error: BaseException, told: dict[int, tuple[str, str]]) -> str:
        go_on = "Its last checkpoint is whole: go on with baton train --resume."
        name = f"of the {self.world} processes that compute updates"
        dead = {rank: text for rank, (kind, text) in told.items() if kind == "ended"}
        first = next((rank for rank, text in dead.items() if "killed" in text), None)
        if first is not None:
            return f"process {first} {name} {dead[first]}. {go_on}"
        silent = [rank for rank in range(1, self.world) if rank not in told]
        if silent:
            which = ", ".join(map(str, silent))
            seconds = f"{self._waited:g}"
            return f"process {which} {name} did not answer within {seconds} seconds. {go_on}"
        failed = next(((rank, text) for rank, (kind, text) in told.items() if kind == "failed"), None)
        if failed is not None:
            return f"process {failed[0]} {name} failed: {_short(failed[1])}. {go_on}"
        if dead:
            rank = min(dead)
            return f"process {rank} {name} {dead[rank]}. {go_on}"
        return f"process 0 {name} failed: {_short(f'{type(error).__name__}: {error}')}. {go_on}"

    def close(self) -> None:
        """End the others. They are told by their channels, and killed where they do not listen."""
        self._why = self._why or "the processes that compute updates have ended."
        for channel in self._channels:
            with suppress(OSError):
                channel.close()
        until = time.monotonic() + _GRACE_SECONDS
        for process in filter(None, self._processes):
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for said in filter(None, self._said):
            said.close()
        self._channels, self._processes, self._said = [], [], []
        if (rank := getattr(self, "rank", None)) is not None:
            del self.rank
            with suppress(Exception):  # the others are gone
                rank.close()


@contextmanager
def _loopback() -> Iterator[None]:
    """gloo's connections stay on this machine, whatever its name resolves to."""
    name = "GLOO_SOCKET_IFNAME"
    if name in os.environ or not sys.platform.startswith("linux"):
        yield
        return
    os.environ[name] = "lo"
    try:
        yield
    finally:
        del os.environ[name]


def _short(text: str) -> str:
    return text.strip().splitlines()[0][:300].rstrip(".")


def wait_to_be_told() -> int:
    """A process of torchrun that is not the first: carry out what the first sends. Does not return but for errors."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    store, _, _ = next(rendezvous("env://", timeout=timedelta(days=7)))
    while not store.check([_KEY]):  # the first one makes the weights before it asks for anybody
        time.sleep(0.2)
    host, port, key, patience = store.get(_KEY).decode().split()
    channel = Client((host, int(port)), authkey=bytes.fromhex(key))
    channel.send(rank)
    device, threads = channel.recv()
    where = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else "cpu"
    place = RankPlace(rank=rank, world=world, device=where, threads=threads, patience_seconds=float(patience))
    serve(channel, place, store)
    return 1
