"""Running somebody else's program as one session: its environment, its processes, its output, its end.

The program is started as it is, in a process group of its own; environment variables that its SDK reads anyway point it
at the endpoint. Its standard output is kept, and passed on where somebody looks at it. Whatever ends the run (the
program itself, a time limit, whoever calls this), nothing of its group is alive afterwards; a process that left the
group by a session of its own is out of reach.

Invariant: what a program did wrong is data in a `ProgramRun`. Only a command that cannot be started is an error.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from baton.errors import UsageError

KEPT_BYTES = 16 * 2**20
"""Of standard output; what a program says beyond it is read and let go."""
TAIL_BYTES = 64 * 2**10
"""Of standard error."""
_LOOK_SECONDS = 0.02
_GRACE_SECONDS = 3.0
"""Between asking a group to end and ending it."""
_DRAIN_SECONDS = 1.0
"""That processes which a program left behind may hold its output open."""

Stdin = bytes | Literal["inherit"] | None


class ProgramRun(Struct, frozen=True, kw_only=True):
    """How a program's run went."""

    command: tuple[str, ...]
    exit_code: int
    """Of the program; below zero: the signal that ended it."""
    stdout: bytes
    stderr_tail: bytes
    seconds: float
    cut: str | None = None
    """Why it was ended from outside; None: it ended by itself."""
    stdout_cut: bool = False
    """It said more than is kept."""

    @property
    def text(self) -> str:
        """Its standard output; bytes that are no UTF-8 are replaced."""
        return self.stdout.decode(errors="replace")

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than by itself with exit code 0."""
        return self.exit_code != 0 or self.cut is not None


def program_environment(
    address: str, session: str, *, env: Mapping[str, str] | None = None, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables of a program that is to speak to a session: `base` (by itself this process's), then the addresses,
    then `env`, which has the last word. Keys of providers are replaced by one that names the session, so that a
    person's own key is not sent anywhere by accident."""
    told = dict(os.environ if base is None else base)
    place = f"{address.rstrip('/')}/s/{session}"
    key = f"baton-{session}"
    told |= {
        "OPENAI_BASE_URL": f"{place}/v1",
        "OPENAI_API_BASE": f"{place}/v1",
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": place,
        "ANTHROPIC_API_KEY": key,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{place}/v1/traces",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "BATON_SESSION": session,
        "BATON_SESSION_URL": place,
    }
    if "ANTHROPIC_AUTH_TOKEN" in told:
        told["ANTHROPIC_AUTH_TOKEN"] = key
    for name in ("NO_PROXY", "no_proxy"):  # a proxy outside cannot reach this machine's own address
        told[name] = ",".join(filter(None, (told.get(name), "127.0.0.1,localhost,::1")))
    return told | dict(env or {})


class ProgramStopped(KeyboardInterrupt):
    """Somebody stopped this process while it ran a program, which has ended now."""

    def __init__(self, by: signal.Signals) -> None:
        super().__init__(f"it was stopped by {by.name}")
        self.by = by


async def run_program(
    command: Sequence[str],
    *,
    address: str,
    session: str,
    env: Mapping[str, str] | None = None,
    base: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout_s: float | None = None,
    stdin: Stdin = None,
    passing_on: bool = False,
    last_output: bool = False,
    cut_when: Callable[[], str | None] | None = None,
) -> ProgramRun:
    """Run a command as a session. `cut_when` is asked now and then, and ends it by saying why.

    `stdin` None: it reads nothing. `passing_on`: its output is also this process's. `last_output`: of too much output
    the end is kept and not the beginning.
    """
    begun = time.monotonic()
    process = await _started(command, program_environment(address, session, env=env, base=base), cwd, stdin)
    out, err = (
        _Output(KEPT_BYTES, 1 if passing_on else None, tail=last_output),
        _Output(TAIL_BYTES, 2 if passing_on else None, tail=True),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    readers = [
        asyncio.create_task(out.read(process.stdout)),
        asyncio.create_task(err.read(process.stderr)),
        asyncio.create_task(_feed(process, stdin)),
    ]
    cut: str | None = None
    try:
        cut = await _until_its_end(process, begun, timeout_s, cut_when)
    finally:
        await _end_group(process)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*readers, return_exceptions=True), _DRAIN_SECONDS)
        _kill(process.pid, signal.SIGKILL)  # what it left behind, and what would not end
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    assert process.returncode is not None
    return ProgramRun(
        command=tuple(command),
        exit_code=process.returncode,
        stdout=bytes(out.kept),
        stderr_tail=bytes(err.kept),
        seconds=time.monotonic() - begun,
        cut=cut,
        stdout_cut=out.dropped > 0,
    )


def run_program_here(
    command: Sequence[str],
    *,
    address: str,
    session: str,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout_s: float | None = None,
    stdin: Stdin = None,
    passing_on: bool = False,
    cut_when: Callable[[], str | None] | None = None,
) -> ProgramRun:
    """`run_program` where no event loop runs. Ctrl-C and SIGTERM end the program first, then raise `ProgramStopped`."""

    async def going() -> ProgramRun:
        task = asyncio.current_task()
        assert task is not None
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not in a thread, not everywhere
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await run_program(
            command,
            address=address,
            session=session,
            env=env,
            cwd=cwd,
            timeout_s=timeout_s,
            stdin=stdin,
            passing_on=passing_on,
            cut_when=cut_when,
        )

    try:
        return asyncio.run(going())
    except asyncio.CancelledError:
        raise ProgramStopped(signal.SIGTERM) from None
    except KeyboardInterrupt:
        raise ProgramStopped(signal.SIGINT) from None


async def _started(
    command: Sequence[str], env: dict[str, str], cwd: str | Path | None, stdin: Stdin
) -> asyncio.subprocess.Process:
    if not command:
        raise UsageError("which program? Type it after --, for example: -- python my_agent.py")
    where = {None: asyncio.subprocess.DEVNULL, "inherit": None}
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE if isinstance(stdin, bytes) else where[stdin],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except FileNotFoundError:
        if cwd is not None and not Path(cwd).is_dir():
            raise UsageError(f"there is no folder {cwd} for the program to run in.") from None
        raise UsageError(
            f"there is no program {command[0]!r}. Give what you would type in a terminal: -- {shlex.join(command)}"
        ) from None
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started: {error.strerror}.") from None


async def _until_its_end(
    process: asyncio.subprocess.Process,
    begun: float,
    timeout_s: float | None,
    cut_when: Callable[[], str | None] | None,
) -> str | None:
    """Wait; why it has to be ended, or None once it ended.

    `process.wait()` would also wait for whoever else holds its output open.
    """
    while process.returncode is None:
        if timeout_s is not None and time.monotonic() - begun >= timeout_s:
            return f"it ran longer than {timeout_s:g} s"
        if cut_when is not None and (why := cut_when()) is not None:
            return why
        await asyncio.sleep(_LOOK_SECONDS)
    return None


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """Nothing of the group is left but what would not end, which is killed afterwards."""
    _kill(process.pid, signal.SIGTERM)
    begun = time.monotonic()
    while process.returncode is None:
        if time.monotonic() - begun > _GRACE_SECONDS:
            _kill(process.pid, signal.SIGKILL)
        await asyncio.sleep(_LOOK_SECONDS)


def _kill(group: int, how: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, how)


async def _feed(process: asyncio.subprocess.Process, stdin: Stdin) -> None:
    if process.stdin is None or not isinstance(stdin, bytes):
        return
    with suppress(BrokenPipeError, ConnectionResetError):  # it did not read on
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()


class _Output:
    """What is kept of a stream, its beginning or its end, while all of it is read."""

    def __init__(self, most: int, onto: int | None, *, tail: bool = False) -> None:
        self.kept = bytearray()
        self.dropped = 0
        self._most = most
        self._onto = onto
        self._tail = tail

    async def read(self, stream: asyncio.StreamReader) -> None:
        while piece := await stream.read(2**16):
            if self._onto is not None:
                _pass_on(piece, self._onto)
            self.kept += piece
            if (over := len(self.kept) - self._most) > 0:
                self.dropped += over
                del self.kept[slice(over) if self._tail else slice(self._most, None)]


def _pass_on(piece: bytes, onto: int) -> None:
    stream = sys.stdout if onto == 1 else sys.stderr
    with suppress(BrokenPipeError, ValueError):
        raw = getattr(stream, "buffer", None)
        if raw is None:  # a stream in memory, such as a test's
            stream.write(piece.decode(errors="replace"))
        else:
            stream.flush()
            raw.write(piece)
        stream.flush()
