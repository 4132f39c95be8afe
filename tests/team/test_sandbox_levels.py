"""Levels of the sandbox: the strongest that there is, named in result and trace; what is weaker is refused."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sandbox_escapes import table

import baton
from baton.cli import main
from baton.compose.runs import run_into
from baton.errors import UsageError
from baton.tasks.catalog import make_task
from baton.team.protocol import Request
from baton.team.team import Assignment, Team
from baton.team.tools import bubblewrap, sandbox
from baton.team.tools.sandbox import protection, python_tool, require, run_python, why_no_bubblewrap
from baton.team.tools.sandbox_levels import LAYERS, LEVELS, NEEDED, SandboxLimits, SandboxRefused, level_of
from baton.team.topology import make_topology

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the levels are Linux's")

WEAK = ("limits", "seccomp")
HERE = protection().level if sys.platform == "linux" else None


@pytest.fixture(autouse=True)
def tried_anew() -> Iterator[None]:
    """What a test makes of the machine is forgotten after it."""
    yield
    why_no_bubblewrap.cache_clear()
    protection.cache_clear()


def test_levels_add_up() -> None:
    assert [level_of(NEEDED[level]) for level in LEVELS] == list(LEVELS)
    assert level_of(LAYERS) == "bubblewrap"
    assert level_of(("namespaces", "limits", "landlock", "seccomp")) == "seccomp"  # a root keeps its powers
    assert level_of(("limits", "audit")) == "audit"


def test_without_landlock_and_bubblewrap_nothing_runs(tmp_path: Path) -> None:
    """It once ran there, with every file of the user's open to it."""
    code = f"open({str(tmp_path / 'ran')!r}, 'w')"
    result = run_python(code, SandboxLimits(layers=WEAK))
    assert (result.stopped, result.exit_code, result.level) == ("refused", None, "seccomp")
    assert not (tmp_path / "ran").exists()
    for said in (
        "'seccomp'",
        "'landlock'",
        "your files are open",
        "install bubblewrap",
        "sandbox=seccomp",
        'least="seccomp"',
    ):
        assert said in result.output
    assert run_python("1 + 1", SandboxLimits(layers=WEAK, least="seccomp")).output == "2\n"


@pytest.mark.parametrize("least", LEVELS)
@pytest.mark.parametrize(("layers", "level"), [(WEAK, "seccomp"), (("limits",), "audit")])
def test_what_is_asked_for_is_met_or_refused(least: str, layers: tuple[str, ...], level: str) -> None:
    limits = SandboxLimits(layers=layers, least=least)  # type: ignore[arg-type]  # any of them
    result = run_python("'ran'", limits)
    assert result.level == level
    assert (result.output == "'ran'\n") is (LEVELS.index(least) <= LEVELS.index(level))
    if result.stopped == "refused":
        with pytest.raises(SandboxRefused, match="was asked for"):
            require(limits)
    else:
        require(limits)


def test_a_level_that_is_none() -> None:
    with pytest.raises(UsageError, match="Did you mean 'landlock'"):
        SandboxLimits(least="landlok")  # type: ignore[arg-type]  # a mistake


def fake_bwrap(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    made = folder / "bwrap"
    made.write_text(f"#!/bin/sh\n{script}\n")
    made.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: str(made))
    why_no_bubblewrap.cache_clear()
    protection.cache_clear()


def test_namespaces_that_are_forbidden_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_bwrap(tmp_path, monkeypatch, "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    assert why_no_bubblewrap() == "bwrap: No permissions to create new namespace"
    with pytest.raises(SandboxRefused, match=r"bubblewrap: bwrap: No permissions.*install bubblewrap"):
        require(SandboxLimits(least="bubblewrap"))
    assert run_python("1", SandboxLimits(least="audit")).level != "bubblewrap"


def changed(word: str, into: str) -> str:
    """Shell that puts one word of the arguments in another's place."""
    return f'for w; do shift; [ "$w" = {word} ] && w={into}; set -- "$@" "$w"; done; '


@pytest.mark.skipif(HERE != "bubblewrap", reason="bubblewrap does not work here")
def test_where_no_folder_may_be_mounted_inside_files_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a security module takes the capabilities of what bubblewrap starts."""
    real = bubblewrap.find_bubblewrap()
    fake_bwrap(tmp_path, monkeypatch, f'{changed("CAP_SYS_ADMIN", "CAP_KILL")} exec {real} "$@"')
    small = SandboxLimits(least="bubblewrap", num_files=50, disk_bytes=2**20)
    result = run_python("print(1)", small)
    assert (result.output, result.level) == ("1\n", "bubblewrap")
    assert "quota" not in result.layers
    flood = "import time\nfor i in range(60): open(str(i), 'w')\ntime.sleep(60)"
    assert run_python(flood, small).stopped == "files"
    full = run_python("open('f', 'wb').write(bytes(2**21))", small)
    # Whoever counts may come before the program has said what it met.
    assert "No space left" in full.output or full.stopped == "files"


def test_a_bwrap_that_isolates_nothing_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts the program as it is, so that the process has neither its own numbers nor its own mounts."""
    child = Path(sandbox.__file__).with_name("sandbox_child.py")
    script = 'while [ "$1" != "--" ]; do shift; done; shift; '
    fake_bwrap(tmp_path, monkeypatch, script + changed(bubblewrap.CHILD, str(child)) + 'exec "$@"')
    mounts = Path("/proc/self/mounts").read_text()
    assert why_no_bubblewrap() is not None
    assert protection().level != "bubblewrap"
    assert (
        Path("/proc/self/mounts").read_text() == mounts
    )  # nor does the child lay anything over what is there


def test_no_bwrap_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    why_no_bubblewrap.cache_clear()
    assert why_no_bubblewrap() == "there is no bwrap command"


def ask_python(request: Request) -> str:
    said = [entry.text for entry in request.entries if entry.speaker == "tool"]
    return f"stop {said[0]}" if said else 'call python {"code": "print(6 * 7)"}'


def team_with(limits: SandboxLimits, policy: Callable[[Request], str] = ask_python) -> Team:
    return Team.of(make_topology("centralized", tools=("python",)), policy, tools=[python_tool(limits)])


@pytest.mark.skipif(HERE not in ("landlock", "bubblewrap"), reason="this machine keeps nothing in")
def test_the_trace_says_what_protected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    team = team_with(SandboxLimits())
    task = baton.Task.of("What is 6 * 7?", verify="42")
    trace = baton.run(task, team)
    (result,) = [event for event in trace.events if event.type == "tool_result"]
    assert result.extra == {"sandbox": HERE}
    assert baton.replay(trace, team, task) == trace
    baton.write(trace, tmp_path / "trace.jsonl")
    assert main(["show", str(tmp_path / "trace.jsonl")]) == 0
    assert f"[sandbox {HERE}]" in capsys.readouterr().out


def test_a_run_is_refused_before_anything_is_asked() -> None:
    asked: list[str] = []

    def policy(request: Request) -> str:
        asked.append(request.role)
        return "stop 1"

    team = team_with(SandboxLimits(layers=WEAK), policy)
    with pytest.raises(SandboxRefused, match="reaches level 'seccomp' here"):
        baton.run(baton.Task.of("?", verify="1"), team)
    assert asked == []


def test_a_refused_run_leaves_no_folder(tmp_path: Path) -> None:
    team, assignment = team_with(SandboxLimits(layers=WEAK)), Assignment(task_id="odd", prompt="?")
    with pytest.raises(SandboxRefused):
        asyncio.run(run_into(tmp_path / "run" / "run.db", None, team, assignment))
    assert list(tmp_path.iterdir()) == []


def test_the_hash_of_a_harness_is_what_it_was() -> None:
    """The level is the machine's business, not what a policy is shown."""
    teams = [team_with(limits) for limits in (SandboxLimits(), SandboxLimits(least="audit"))]
    assert teams[0].harness.hash == teams[1].harness.hash
    assert python_tool().description.startswith("Run Python code and return what it prints")


def test_a_task_names_its_level() -> None:
    with pytest.raises(UsageError, match="seccomp"):
        make_task("reasoning:products", python=True, sandbox="seccomb")


def test_the_command_says_what_holds(capsys: pytest.CaptureFixture[str]) -> None:
    met = HERE in ("landlock", "bubblewrap")
    assert main(["sandbox"]) == (0 if met else 1)
    out = capsys.readouterr().out
    assert f"sandbox level: {HERE}" in out
    assert all(level in out for level in LEVELS)
    assert max(map(len, out.splitlines())) <= 80
    assert main(["sandbox", "--json", "--least", "audit"]) == 0
    assert f'"level": "{HERE}"' in capsys.readouterr().out


def test_the_command_refuses_what_is_weaker(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    why_no_bubblewrap.cache_clear()
    protection.cache_clear()
    assert main(["sandbox", "--least", "bubblewrap"]) == 1
    seen = capsys.readouterr()
    assert "bubblewrap  no" in seen.out
    assert "Type: apt-get install bubblewrap" in seen.err


def test_the_page_says_what_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text()
    assert f"{len(table())} programs" in page
    for name in (*LEVELS, *LAYERS, "audit"):
        assert f"| `{name}` |" in page, name
    code = page.partition("```python\n")[2].partition("```")[0]
    said = [line.rpartition("  # ") for line in code.splitlines() if "  # " in line]
    names = {"SandboxLimits": SandboxLimits, "run_python": run_python}
    values = [repr(eval(line.replace("while True: pass", "while"), names)) for line, _, _ in said]
    assert values[0] == said[0][2]
    assert values[1] == "None"  # its program was shortened to one with a mistake: a loop takes its time
    assert values[2] in said[2][2]
    assert values[3] in ("None", "'refused'")


def test_training_is_refused_before_torch_is_loaded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("reasoning_gym")
    monkeypatch.setenv("PATH", os.devnull)
    why_no_bubblewrap.cache_clear()
    protection.cache_clear()
    out = tmp_path / "trained"
    typed = ["train", "reasoning-tools", "--set", "task.settings.sandbox=bubblewrap", "--out", str(out)]
    assert main(typed) == 2
    assert "at least 'bubblewrap' was asked for" in capsys.readouterr().err
    assert not out.exists()
