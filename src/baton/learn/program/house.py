"""Where a run's programs live: the endpoint that answers them, their working folders, and the processes themselves.

All of it is on disk under the run's folder while it matters: journals are written before answers leave, so that a run
that is killed has every call that was acknowledged (`program/sessions`). Journals of rollouts whose traces are in the
run's folder are taken away; one that a killed run left is put aside when its rollout is played again.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from baton.errors import UsageError
from baton.learn.program import preload_client, preload_server
from baton.learn.program.filling import FilledProgram, base_environment, expand_env
from baton.learn.program.part import ProgramPart
from baton.learn.program.roles import NobodyBackend
from baton.serve.backend import Backend
from baton.serve.exchange import Posted
from baton.serve.journal import journal_path
from baton.serve.limits import SessionLimits
from baton.serve.program_run import ProgramRun, program_environment, run_program
from baton.serve.server import Serving
from baton.serve.sessions import ProgramSession
from baton.settings import decode

_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]")
_BEHIND = 2
"""Steps after which a rollout's trace is on disk, also where the next step is played ahead."""


def session_name(episode: str) -> str:
    """The session of an episode."""
    return _UNUSUAL.sub(".", episode).lstrip(".")[:128]


class ProgramHouse:
    """Starts and ends what a run's programs need. Nothing is started before the first of them runs."""

    def __init__(self, part: ProgramPart) -> None:
        self.part = part
        self.limits = decode(SessionLimits, part.limits, "", "program.limits").check()
        self.tried = False
        """A program was seen to run."""
        self.backends: dict[Any, Backend] = {}
        """Engine -> what puts it behind the endpoint."""
        self._folder: Path | None = None
        self._made: Path | None = None
        """A temporary folder, where nobody gave one."""
        self._serving: Serving | None = None
        self._preloaded: _Preloaded | None = None
        self._gates: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
        self._done: dict[str, int] = {}
        """Sessions that are over -> their step."""

    def settle(self, folder: Path) -> None:
        """Keep everything under a run's folder from here on."""
        self.close()
        self._folder = folder / "program"

    def place(self) -> Path:
        if self._folder is None:
            self._folder = self._made = Path(tempfile.mkdtemp(prefix="baton-program-"))
        return self._folder

    def serving(self) -> Serving:
        """The endpoint."""
        if self._serving is None:
            self._serving = Serving(self.place(), NobodyBackend(), traces=False)
        return self._serving

    def gate(self) -> asyncio.Semaphore:
        """Lets so many run at once, on the loop that asks."""
        loop = asyncio.get_running_loop()
        if loop not in self._gates:
            self._gates = {each: gate for each, gate in self._gates.items() if not each.is_closed()}
            self._gates[loop] = asyncio.Semaphore(self.part.at_once)
        return self._gates[loop]

    def open_session(self, name: str, backend: Backend, seed: int) -> ProgramSession:
        """A session that begins anew; what a killed run left of it is put aside."""
        left = journal_path(self.place(), name)
        if left.exists():
            aside = (left.with_name(f"{left.stem}.cut-{n}{left.suffix}") for n in range(1, 10_000))
            left.rename(next(each for each in aside if not each.exists()))
        return self.serving().open_session(name, backend=backend, limits=self.limits, seed=str(seed))

    async def post(self, session: ProgramSession, posted: Posted) -> None:
        """Say something of a session, on the loop that it lives on."""

        async def post() -> None:
            session.post(posted)

        await asyncio.to_thread(self.serving().call, post())

    async def end_session(self, name: str, step: int) -> None:
        """The session is over and its trace made."""
        await asyncio.to_thread(self.serving().end_session, name)
        self._done[name] = step

    def sweep(self, step: int) -> None:
        """Take away journals of steps whose traces are on disk by now."""
        for name in [name for name, at in self._done.items() if at <= step - _BEHIND]:
            journal_path(self.place(), name).unlink(missing_ok=True)
            del self._done[name]

    def work_folder(self, name: str) -> Path:
        """A new folder for one run."""
        folder = self.place() / "work" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    async def run(self, filled: FilledProgram, session: ProgramSession, work: Path) -> ProgramRun:
        """Run it to its end, whatever that is."""
        base = base_environment()
        address = self.serving().address
        told = program_environment(address, session.name, env=filled.env, base=base)
        command = expand_env(filled.command, sorted(name for name in told if told[name] != base.get(name)))
        if self.part.preload:
            command = (await self._forked()).command(command)
        return await run_program(
            command,
            address=address,
            session=session.name,
            env=filled.env,
            base=base,
            cwd=work,
            timeout_s=self.part.timeout_s,
            stdin=filled.stdin,
            last_output=True,
            cut_when=lambda: _limit_reached(session),
        )

    def close(self) -> None:
        """End the endpoint, and take away what was only ours."""
        if self._serving is not None:
            self._serving.close()
            self._serving = None
        if self._preloaded is not None:
            self._preloaded.close()
            self._preloaded = None
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)
            self._made = self._folder = None

    async def _forked(self) -> _Preloaded:
        if self._preloaded is None:
            self._preloaded = _Preloaded(self.part)
        return self._preloaded


def _limit_reached(session: ProgramSession) -> str | None:
    """Why a session's program has to end: a limit ended the session, so no ask of it is answered any more."""
    ended = session.ended
    return "the session reached a limit" if ended is not None and ended.status == "cut" else None


class _Preloaded:
    """A process with the program's modules, which forks for every run."""

    def __init__(self, part: ProgramPart) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="baton-fork-"))
        self._socket = str(self._folder / "s")
        python = part.command[0]
        self._errors = (self._folder / "errors").open("w+")
        self._process = subprocess.Popen(
            [python, preload_server.__file__, self._socket, *part.preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=part.folder,
            env={**base_environment(), **part.env},
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            self._errors.seek(0)
            said = " | ".join(line.strip() for line in self._errors.read().splitlines()[-4:])
            self.close()
            raise UsageError(
                f"program.preload: {python} cannot import {', '.join(part.preload)}. It said: {said}. "
                "Install what is missing there, or leave preload out."
            )

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """The same run, as a fork."""
        python, *rest = command
        return (python, "-I", "-S", preload_client.__file__, self._socket, *rest)

    def close(self) -> None:
        """Its runs end with it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def check_preload(part: ProgramPart) -> None:
    """Refuse what cannot be forked."""
    if not part.preload:
        return
    if part.wrap or len(part.command) < 2 or not part.command[1].endswith(".py"):
        raise UsageError(
            'program.preload is for a command ["python", "file.py", ...] that runs here, without wrap. Leave it out.'
        )
    if sys.platform == "win32":
        raise UsageError("program.preload needs fork, which this system has not. Leave it out.")
