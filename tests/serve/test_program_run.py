"""Running a program of somebody else's: its output, its end, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from baton.errors import UsageError
from baton.serve.program_run import ProgramRun, program_environment, run_program, run_program_here

WHERE = {"address": "http://127.0.0.1:9", "session": "odd-name_1.x"}


def python(code: str, **more: object) -> ProgramRun:
    return run_program_here([sys.executable, "-S", "-c", code], **WHERE, **more)  # type: ignore[arg-type]


def test_the_environment_names_the_session_and_hides_the_own_keys() -> None:
    base = {"OPENAI_API_KEY": "sk-real", "ANTHROPIC_AUTH_TOKEN": "real", "NO_PROXY": "corp", "HOME": "/h"}
    told = program_environment("http://127.0.0.1:7/", "b.c", base=base, env={"EXTRA": "1"})
    assert told["OPENAI_BASE_URL"] == "http://127.0.0.1:7/s/b.c/v1"
    assert told["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:7/s/b.c"
    assert {told[name] for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")} == {
        "baton-b.c"
    }
    assert told["NO_PROXY"].split(",")[:2] == ["corp", "127.0.0.1"]
    assert told["EXTRA"] == "1"
    assert "real" not in "".join(told.values())


def test_output_exit_code_and_input_are_kept() -> None:
    ran = python(
        "import os,sys; sys.stdout.write(sys.stdin.read()[::-1]); print(os.environ['BATON_SESSION'], file=sys.stderr);"
        "sys.exit(7)",
        stdin="añb".encode(),
    )
    assert (ran.exit_code, ran.text, ran.cut) == (7, "bña", None)
    assert ran.stderr_tail == b"odd-name_1.x\n"
    assert ran.failed


def test_a_time_limit_ends_a_group_that_ignores_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baton.serve.program_run._GRACE_SECONDS", 0.2)
    code = (
        "import os,signal,sys,time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"child = os.fork()\nopen({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "print('here', flush=True)\ntime.sleep(60)"
    )
    ran = python(code, timeout_s=1.0)
    assert ran.cut == "it ran longer than 1 s"
    assert ran.exit_code == -9
    assert ran.text.startswith("here")
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        assert _dies(pid)


def _dies(pid: int) -> bool:
    """Whether it is gone soon: what was killed still has to be let die."""
    until = time.monotonic() + 20
    while (alive := _alive(pid)) and time.monotonic() < until:
        time.sleep(0.01)
    return not alive


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_program_leaves_behind_neither_holds_its_run_up_nor_lives_on(tmp_path: Path) -> None:
    code = (
        "import os,sys,time\n"
        f"if os.fork() == 0:\n    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(60); os._exit(0)\n"
        f"while not os.path.exists({str(tmp_path / 'pid')!r}) or not open({str(tmp_path / 'pid')!r}).read():\n"
        "    time.sleep(.01)\nprint('done')"
    )
    ran = python(code)
    assert (ran.exit_code, ran.text, ran.cut) == (0, "done\n", None)
    assert _dies(int((tmp_path / "pid").read_text()))


def test_somebody_else_ends_it_and_says_why() -> None:
    begun = time.monotonic()
    ran = python(
        "import time; time.sleep(60)", cut_when=lambda: "no more" if time.monotonic() - begun > 0.2 else None
    )
    assert ran.cut == "no more"
    assert ran.exit_code == -15


def test_several_at_once_on_one_loop_keep_apart() -> None:
    async def both() -> list[ProgramRun]:
        code = "import os; print(os.environ['OPENAI_BASE_URL'])"
        return await asyncio.gather(
            *(
                run_program([sys.executable, "-S", "-c", code], address="http://127.0.0.1:9", session=f"s{n}")
                for n in range(3)
            )
        )

    assert [ran.text for ran in asyncio.run(both())] == [f"http://127.0.0.1:9/s/s{n}/v1\n" for n in range(3)]


def test_more_output_than_is_kept_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton.serve.program_run.KEPT_BYTES", 1000)
    ran = python("print('x' * 300_000)")
    assert len(ran.stdout) == 1000
    assert ran.stdout_cut
    assert ran.exit_code == 0


def test_being_cancelled_ends_the_program(tmp_path: Path) -> None:
    async def cancelled() -> None:
        code = f"import os,time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
        task = asyncio.create_task(run_program([sys.executable, "-S", "-c", code], **WHERE))
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert _dies(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([], "which program"),
        (["no-such-program-here", "x y"], "there is no program 'no-such-program-here'"),
        ([os.devnull], "cannot be started"),
    ],
)
def test_a_command_that_cannot_be_started_is_one_sentence(command: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run_program_here(command, **WHERE)  # type: ignore[arg-type]
