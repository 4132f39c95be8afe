"""A worker's process without a model: real sockets, files and signals around traces that are written out.

What goes wrong is planned: the file that LIGHT_PLAN names holds one fault a line, and every start of a process takes
the next line (`-` is none). Faults that need a lot strike at the first one that the process is given.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from msgspec import structs
from sample_traces import whole_trace

from baton.errors import UsageError
from baton.learn.scale import workers_link
from baton.learn.scale.workers_lots import (
    Lot,
    PlayedLot,
    WorkerReady,
    WorkerSetup,
    digest_of,
    encode,
    played,
)
from baton.trace.records import Ints
from baton.trace.trace import Trace


def planned() -> str:
    """This process's fault."""
    place = os.environ.get("LIGHT_PLAN")
    if not place:
        return "-"
    with Path(place).open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = file.read().split()
        file.seek(0)
        file.truncate()
        file.write("\n".join(lines[1:]))
    return lines[0] if lines else "-"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def rollout(name: str, version: int) -> Trace:
    """A trace whose tokens depend on its name and on the weights, as those of a team do."""
    draw = random.Random(f"{name} {version}")
    trace = whole_trace(name)
    ids = Ints([draw.randrange(1000) for _ in range(draw.randrange(1, 9))])
    first = structs.replace(trace.calls[0], completion_ids=ids, logprobs=None, policy_version=str(version))
    return structs.replace(trace, calls=(first, *trace.calls[1:]))


class LightWorker:
    """Plays groups of two and, for odd ones, of three rollouts."""

    def __init__(self, setup: WorkerSetup, fault: str) -> None:
        self.done = 0
        self.fault = fault

    def ready(self) -> WorkerReady:
        return WorkerReady("here", os.getpid())

    def play(self, lot: Lot) -> PlayedLot:
        if self.fault == "weights":
            die()
        for each in lot.weights:
            assert digest_of(Path(each.path).read_bytes()) == each.digest
        if self.fault == "hang":
            time.sleep(3600)
        if self.fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.fault == "child":
            subprocess.Popen(["sleep", "3600"])
        if self.fault == "error":
            raise ValueError("the task broke\nin two lines")
        if self.fault == "full":
            raise OSError(28, "No space left on device")
        self.done += 1
        if self.fault in ("playing", "child"):
            die()
        time.sleep(float(os.environ.get("LIGHT_SECONDS", "0")))
        weights = lot.weights[0].version if lot.weights else lot.version
        names = [
            [f"step-{lot.step:04d}/{group:02d}-{n:02d}" for n in range(2 + group % 2)] for group in lot.groups
        ]
        found = played(lot, [[rollout(name, weights) for name in group] for group in names], 0.01)
        if self.fault == "damaged":
            found = structs.replace(found, traces=found.traces.replace(b"shapley", b"shapelx", 1))
        if self.fault == "foreign":
            found = structs.replace(found, traces=found.traces.replace(b"step-", b"stop-"))
        return found


def main() -> None:
    fault = planned()
    if fault == "start":
        die()
    if fault == "code":
        print("something was said\nModuleNotFoundError: no such thing", flush=True)
        os._exit(3)

    def make(setup: WorkerSetup) -> LightWorker:
        if fault == "refuse":
            raise UsageError("cannot import my_package. Type: pip install my-package")
        if fault == "building":
            die()
        return LightWorker(setup, fault)

    if fault in ("sending", "checksum"):
        plain = workers_link.send

        def send(link: socket.socket, message: object) -> None:
            if not isinstance(message, PlayedLot):
                plain(link, message)  # type: ignore[arg-type]  # a message
                return
            content = encode(message)
            frame = len(content).to_bytes(8, "big") + digest_of(content).encode() + content
            if fault == "sending":
                link.sendall(frame[: len(frame) // 2])
                die()
            link.sendall(frame[:-1] + bytes([frame[-1] ^ 1]))

        workers_link.send = send
    workers_link.serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]), make)
