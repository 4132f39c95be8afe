"""The machine: Python, cores, memory, disk, loopback; torch, its kernels, GPUs and gloo, tried in two processes.

Torch is loaded in processes of their own: one that dies while it is loaded (other kernels than the processor's, no
memory) is a finding and not the end of the doctor. A container's limits count where they are lower than the machine's.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from baton.compose.doctor.diagnosis import Diagnosis, in_gigabytes
from baton.installed import install_hint

OLDEST, NEWEST = (3, 11), (3, 13)
_LITTLE_DISK = 1_000_000_000
_LITTLE_MEMORY = 1_000_000_000
_LITTLE_SHARED = 1_000_000_000
GLOO_SECONDS = 120.0
_CGROUP = Path("/sys/fs/cgroup")


def machine(out: Path) -> list[Diagnosis]:
    """Everything about this machine that needs no package."""
    return [python(), cores(), memory(), *disk(out), loopback()]


def python(version: tuple[int, int] | None = None) -> Diagnosis:
    """The Python that runs this."""
    found = version or sys.version_info[:2]
    said = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if OLDEST <= found <= NEWEST:
        return Diagnosis(part="Python", state="ok", said=said)
    expected = f"{'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}"
    how = f"make a virtual environment with Python {expected}"
    return Diagnosis(part="Python", state="bad", said=f"{said}; expected {expected}", type=how)


def num_cores() -> int:
    """Cores that this process may use: fewer than the machine's where it is bound, or in a container."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _first_line(_CGROUP / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        bound = min(bound, max(1, int(quota) // int(period)))
    return bound


def cores() -> Diagnosis:
    """Cores, and how busy they are."""
    count = num_cores()
    busy = f", {os.getloadavg()[0]:.1f} of them busy" if hasattr(os, "getloadavg") else ""
    return Diagnosis(part="cores", state="ok", said=f"{count}{busy}")


def memory_bytes() -> tuple[int, int] | None:
    """All memory and what is free of it; None: nobody says."""
    told = {}
    for line in _lines(Path("/proc/meminfo")):
        name, _, rest = line.partition(":")
        told[name] = int(rest.split()[0]) * 1024
    if "MemTotal" not in told:
        return None
    whole, free = told["MemTotal"], told.get("MemAvailable", told.get("MemFree", 0))
    limit, used = _first_line(_CGROUP / "memory.max"), _first_line(_CGROUP / "memory.current")
    if limit.isdigit() and used.isdigit() and int(limit) < whole:
        whole, free = int(limit), min(free, max(0, int(limit) - int(used)))
    return whole, free


def memory() -> Diagnosis:
    """Memory of the machine, or of the container."""
    found = memory_bytes()
    if found is None:
        return Diagnosis(part="memory", state="unknown", said="not told by this system")
    whole, free = found
    said = f"{in_gigabytes(whole)}, {in_gigabytes(free)} of it free"
    if free < _LITTLE_MEMORY:
        return Diagnosis(
            part="memory", state="missing", said=said, type="end what else runs: torch takes 0.5 GB"
        )
    return Diagnosis(part="memory", state="ok", said=said)


def disk(out: Path) -> Iterator[Diagnosis]:
    """Room where runs are kept, where there are temporary files, and in shared memory."""
    places = {"disk": out, "temporary files": Path(tempfile.gettempdir())}
    for part, place in places.items():
        there = next(each for each in (place.absolute(), *place.absolute().parents) if each.exists())
        free = shutil.disk_usage(there).free
        said = f"{in_gigabytes(free)} free in {there}"
        if not os.access(there, os.W_OK):
            yield Diagnosis(
                part=part, state="bad", said=f"{there} may not be written", type="--out another folder"
            )
        elif free < _LITTLE_DISK:
            yield Diagnosis(part=part, state="bad", said=said, type="make room, or --out another disk")
        else:
            yield Diagnosis(part=part, state="ok", said=said)
    shared = Path("/dev/shm")
    if shared.is_dir():
        whole = shutil.disk_usage(shared).total
        said = f"{in_gigabytes(whole)} in {shared}, for Ray and NCCL"
        if whole < _LITTLE_SHARED:
            how = "docker run --shm-size=4g, or: mount -o remount,size=4g /dev/shm"
            yield Diagnosis(part="shared memory", state="missing", said=said, type=how)
        else:
            yield Diagnosis(part="shared memory", state="ok", said=said)


def loopback() -> Diagnosis:
    """Whether processes of this machine can reach each other over 127.0.0.1."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
                other, _ = server.accept()
                with other:
                    client.sendall(b"baton")
                    said = other.recv(5)
    except OSError as error:
        how = "allow connections to 127.0.0.1: workers, gloo and servers of this machine need them"
        return Diagnosis(
            part="loopback", state="bad", said=f"a port cannot be opened and reached: {error}", type=how
        )
    if said != b"baton":
        how = "look for a proxy or a filter on the interface lo"
        return Diagnosis(
            part="loopback", state="bad", said="what was sent to a port did not arrive", type=how
        )
    return Diagnosis(part="loopback", state="ok", said="a port of 127.0.0.1 was opened and reached")


def torch(seconds: float = GLOO_SECONDS) -> list[Diagnosis]:
    """Torch, its kernels, GPUs, and whether two processes can add up tensors over gloo."""
    began = time.monotonic()
    told, ends = _probed(seconds)
    install = install_hint("train")
    if told is None:
        why = ends[-1] if ends else f"nothing was heard for {seconds:.0f} s"
        missing = "No module named 'torch'" in why
        said = "not installed: nothing can be trained" if missing else f"cannot be loaded: {why}"
        return [Diagnosis(part="torch", state="bad", said=said, type=install)]
    said = f"{told['version']}, {told['kernels']} kernels"
    return [
        Diagnosis(part="torch", state="ok", said=said),
        _gpus(told["gpus"]),
        _gloo(told, ends, time.monotonic() - began),
    ]


def _gpus(found: list[dict[str, Any]]) -> Diagnosis:
    if not found:
        how = (
            "install a driver, and torch for CUDA: https://pytorch.org/get-started/locally"
            if _card()
            else None
        )
        there = "a card is there, and torch does not see it" if _card() else "none: all runs on the processor"
        return Diagnosis(part="GPUs", state="missing", said=there, type=how)
    each = ", ".join(f"{one['name']} ({in_gigabytes(one['memory'])})" for one in found)
    return Diagnosis(part="GPUs", state="ok", said=f"{len(found)}: {each}")


def _card() -> bool:
    return Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi") is not None


def _gloo(told: dict[str, Any], ends: list[str], seconds: float) -> Diagnosis:
    if not told["distributed"]:
        return Diagnosis(
            part="gloo",
            state="missing",
            said="this torch has no torch.distributed",
            type=install_hint("train"),
        )
    if told.get("sum") == told.get("expected") is not None:
        return Diagnosis(
            part="gloo", state="ok", said=f"two processes added up their tensors ({seconds:.0f} s)"
        )
    why = ends[-1] if ends else "one of two processes did not answer"
    how = (
        "export GLOO_SOCKET_IFNAME=lo, and see that the machine's own name resolves: getent hosts $(hostname)"
    )
    return Diagnosis(
        part="gloo", state="missing", said=f"two processes could not add up tensors: {why}", type=how
    )


def _probed(seconds: float) -> tuple[dict[str, Any] | None, list[str]]:
    """What the first of two processes said of torch and of the sum; and the last lines that both complained with."""
    with tempfile.TemporaryDirectory(prefix="baton-doctor-") as folder:
        command = [sys.executable, "-m", "baton.compose.doctor.gloo_probe", f"{folder}/store", f"{seconds}"]
        outs = [(Path(folder) / f"{rank}.out", Path(folder) / f"{rank}.err") for rank in range(2)]
        running = []
        for rank, (out, err) in enumerate(outs):
            with out.open("wb") as said, err.open("wb") as complained:
                running.append(subprocess.Popen([*command, str(rank)], stdout=said, stderr=complained))
        until = time.monotonic() + seconds
        for process in running:
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        told: dict[str, Any] | None = None
        for line in _lines(outs[0][0]):
            told = {**(told or {}), **msgspec.json.decode(line)}
        return told, [line for _, err in outs for line in _lines(err)[-1:]]


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return []


def _first_line(path: Path) -> str:
    return (_lines(path) or [""])[0].strip()
