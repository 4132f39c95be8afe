"""A real server of one's own is gone after kill -9, with every process that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import vllm_server
from vllm_server import only_with_vllm

PYTHON = only_with_vllm()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

STARTER = """
import sys, time
from pathlib import Path
from vllm_server import make_server
server = make_server(Path(sys.argv[1]), sys.argv[2])
server.start()
print(server._keeper.pid, flush=True)
time.sleep(600)
"""


def _stats() -> dict[int, list[str]]:
    """Process -> its fields from its state on: state, parent, group, session."""
    found = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(place.parent.name)] = place.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
    return {pid: fields for pid, fields in found.items() if fields[0] != "Z"}


def _of_session(session: int) -> list[int]:
    return [pid for pid, fields in _stats().items() if int(fields[3]) == session]


@pytest.mark.parametrize("killed", ["baton", "keeper"])
def test_nothing_is_left_behind(model: tuple[Any, Path], killed: str) -> None:
    # Another process does not know where pytest looks for modules.
    environment = {**os.environ, "PYTHONPATH": str(Path(vllm_server.__file__).parent)}
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(model[1]), PYTHON],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as baton:
        assert baton.stdout is not None
        keeper = int(baton.stdout.readline())
        (server,) = [pid for pid, fields in _stats().items() if int(fields[1]) == keeper]
        before = _of_session(server)
        assert len(before) >= 3  # the endpoint, the engine and its worker
        os.kill(baton.pid if killed == "baton" else keeper, signal.SIGKILL)
        until = time.monotonic() + 90
        while _of_session(server) and time.monotonic() < until:
            time.sleep(0.2)
        left = _of_session(server)
        baton.kill()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []
    print(f"\nkill -9 of {killed}: {len(before)} processes of the server ended")
