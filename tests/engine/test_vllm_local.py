"""Servers of one's own: started, ended and never left behind; with a fake in the place of vLLM (`fake_vllm_python`)."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import fake_vllm_python
import pytest

from baton.engine.vllm.local import LocalOptions, LocalServer
from baton.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "some model é"
    made.mkdir()
    (made / "config.json").write_text('{"model_type": "llama"}')
    return made


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A program that is run as a Python with vLLM would be."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {fake_vllm_python.__file__} "$@"\n')
    script.chmod(0o755)
    return str(script)


def _server(folder: Path, python: str, how: str, **more: object) -> LocalServer:
    given = {
        "python": python,
        "seconds": 20.0,
        "env": {"FAKE_VLLM": how},
        "log": folder.parent / "log.txt",
        **more,
    }
    return LocalServer(folder, LocalOptions(**given))  # type: ignore[arg-type]


def _gone(pid: int) -> bool:
    for _ in range(200):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def _child(server: LocalServer) -> int:
    found = re.search(r"child (\d+)", server.log.read_text())
    assert found
    return int(found[1])


def test_it_answers_and_ends(folder: Path, python: str) -> None:
    server = _server(folder, python, "serve", args=("--dtype", "float32"))
    assert not server.alive()
    url = server.start()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
    assert server.start() == url  # there already
    child = _child(server)
    command = server.log.read_text().splitlines()[0]
    for word in (
        "--enable-scale-out",
        "processed_logprobs",
        "--enforce-eager",
        "--dtype float32",
        "127.0.0.1",
    ):
        assert word in command
    assert server.model == "some model é"
    server.close()
    assert not server.alive()
    assert _gone(child)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("memory", r"has not enough memory: torch.OutOfMemoryError: CUDA out of memory.* Type: &args="),
        ("broken", r"ended: ValueError: Model architectures \['OddModel'\] are not supported \(in "),
        ("none", r"has no vLLM. Type: .* -m pip install vllm"),
        ("old", r"has vLLM 0.9.2, .* expected 0.11 or newer. Type: .* pip install -U vllm"),
        ("hang", r"did not answer within 0.4 s. .*log.txt; .* type &seconds="),
        ("taken", r"is taken. Type another"),
    ],
)
def test_why_it_does_not_start_is_one_line(folder: Path, python: str, how: str, why: str) -> None:
    server = _server(folder, python, how, seconds=0.4 if how == "hang" else 20.0)
    with pytest.raises(UsageError, match=why) as told:
        server.start()
    assert "\n" not in str(told.value)
    assert not server.alive()


def test_a_port_that_somebody_has(folder: Path, python: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} of this machine is taken"):
            _server(folder, python, "serve", port=port).start()
    with pytest.raises(UsageError, match="cannot be run as Python"):
        _server(folder, "/nowhere/python", "serve").start()
    with pytest.raises(UsageError, match="there is no folder"):
        LocalServer(folder / "none")


STARTER = """
import os, sys, time
from pathlib import Path
from baton.engine.vllm.local import LocalOptions, LocalServer
options = LocalOptions(python=sys.argv[2], env={"FAKE_VLLM": "serve"}, log=Path(sys.argv[3]))
server = LocalServer(sys.argv[1], options)
server.start()
print(server._keeper.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("killed", ["baton", "keeper"])
def test_kill_9_leaves_nothing_behind(folder: Path, python: str, tmp_path: Path, killed: str) -> None:
    log = tmp_path / "log.txt"
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(folder), python, str(log)], stdout=subprocess.PIPE, text=True
    ) as baton:
        assert baton.stdout is not None
        keeper = int(baton.stdout.readline())
        found = re.search(r"child (\d+)", log.read_text())
        assert found
        os.kill(baton.pid if killed == "baton" else keeper, signal.SIGKILL)
        if killed == "baton":
            assert _gone(int(found[1]))
            assert _gone(keeper)
        else:  # the server itself is told by the system; its children are its own to end
            assert _gone(_parent(int(found[1])))
            os.kill(int(found[1]), signal.SIGKILL)
        baton.kill()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_a_server_that_died_says_why(folder: Path, python: str) -> None:
    server = _server(folder, python, "die")
    server.start()
    for _ in range(100):
        if not server.alive():
            break
        time.sleep(0.02)
    assert "head_dim=16" in str(server.why())
    server.close()
