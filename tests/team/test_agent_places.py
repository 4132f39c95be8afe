"""Each agent's own sandbox: its folder stays, siblings reach nothing of it, nobody gets more than those above."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from baton.team.agent import Role
from baton.team.protocol import Request
from baton.team.running import replay, run
from baton.team.team import Assignment, Team, Topology
from baton.team.tools import TOOLS
from baton.team.tools.agent_place import AgentPlaces, narrower
from baton.team.tools.agent_python import agent_python_tool
from baton.team.tools.sandbox import KeptFolder, SandboxResult, protection, run_python, why_no_bubblewrap
from baton.team.tools.sandbox_levels import LAYERS, Protection, SandboxLimits, SandboxRefused
from baton.team.tools.tool import Registry, invoke
from baton.trace.trace import Trace
from baton.trace.validation import validate

pytestmark = pytest.mark.skipif(
    not protection(tuple(each for each in LAYERS if each != "bubblewrap")).meets("landlock"),
    reason="no Landlock and seccomp here",
)
WITHOUT = tuple(each for each in LAYERS if each not in ("bubblewrap", "quota"))
WAYS = {
    "landlock": SandboxLimits(layers=WITHOUT, wall_seconds=20),
    "bubblewrap": SandboxLimits(least="bubblewrap", wall_seconds=20),
}
A, B = (("lead.a", "worker"), ("lead", "lead")), (("lead.b", "worker"), ("lead", "lead"))


@pytest.fixture(params=list(WAYS))
def limits(request: pytest.FixtureRequest) -> SandboxLimits:
    if request.param == "bubblewrap" and why_no_bubblewrap() is not None:
        pytest.skip(f"no bubblewrap: {why_no_bubblewrap()}")
    return WAYS[request.param]


@pytest.fixture
def places() -> Iterator[AgentPlaces]:
    made = AgentPlaces()
    yield made
    made.close()


def runs(
    places: AgentPlaces, line: tuple[tuple[str, str], ...], code: str, limits: SandboxLimits
) -> SandboxResult:
    place = places.of(line)
    with place.using() as folder:
        return run_python(code, place.limits(limits, {}), kept=KeptFolder(folder, place.over(limits, {})))


def test_what_an_agent_writes_stays_its_own(places: AgentPlaces, limits: SandboxLimits) -> None:
    assert (
        runs(places, A, "open('note', 'w').write('mine')\nimport os\nos.mkdir('deep')", limits).exit_code == 0
    )
    assert runs(places, A, "import os\nprint(open('note').read(), sorted(os.listdir()))", limits).output == (
        "mine ['deep', 'note']\n"
    )
    assert runs(places, B, "import os\nos.listdir()", limits).output == "[]\n"


LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
ESCAPES = {
    "read the folder by its path": "print(open({folder!r} + '/secret').read())",
    "write to it by its path": "open({folder!r} + '/planted', 'w').write('x')",
    "list it": "import os\nprint(os.listdir({folder!r}))",
    "list where folders are": "import os\nprint(os.listdir({root!r}))",
    "through a symbolic link": "import os\nos.symlink({folder!r}, 'link')\nprint(open('link/secret').read())",
    "through a hard link": "import os\nos.link({folder!r} + '/secret', 'link')\nprint(open('link').read())",
    "through dots": "print(open('../' + {folder!r}.rsplit('/', 1)[1] + '/secret').read())",
    "rename it here": "import os\nos.rename({folder!r}, 'mine')",
    "delete it": "import shutil\nshutil.rmtree({folder!r})",
    "its process in /proc": "print(open('/proc/{pid}/environ').read())",
    "its files in /proc": "import os\nprint(os.listdir('/proc/{pid}/cwd'))",
    "a signal to it": "import os\nos.kill({pid}, 9)",
    "its memory": "open('/proc/{pid}/mem', 'rb').read(1)",
    "a socket to it": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0sibling')",
    "loopback": "import socket\nsocket.create_connection(('127.0.0.1', 9))",
    "shared memory by name": "from multiprocessing.shared_memory import SharedMemory\n"
    "SharedMemory('sibling', create=True, size=9)",
    "System V shared memory": LIBC + "assert libc.shmget(77, 64, 0o1666) >= 0",
    "a message queue": LIBC + "assert libc.msgget(77, 0o1666) >= 0",
    "a file in /dev/shm": "open('/dev/shm/sibling', 'w').write('x')",
    "a file in /tmp": "open('/tmp/sibling-of-baton', 'w').write('x')\n"
    "assert __import__('os').path.realpath('/tmp') == '/tmp'",
    "a process that stays": "import os\nassert os.fork() >= 0",
    "ptrace": LIBC + "assert libc.ptrace(16, {pid}, 0, 0) == 0",
    "a mount over it": LIBC +
    "assert libc.mount(b'tmpfs', {folder!r}.encode(), b'tmpfs', 0, None) == 0",
    "a new namespace": LIBC + "assert libc.unshare(0x10000000) == 0",
}  # fmt: skip


@pytest.mark.parametrize("way", list(ESCAPES))
def test_a_sibling_gets_at_nothing(way: str, places: AgentPlaces, limits: SandboxLimits) -> None:
    """B knows where A's folder is and which process is at work there, which nobody tells it."""
    assert runs(places, A, "open('secret', 'w').write('planted-secret')", limits).exit_code == 0
    folder = places.of(A).made
    assert folder is not None
    code = ESCAPES[way].format(folder=str(folder), root=str(folder.parent), pid=os.getpid())
    result = runs(places, B, code, limits)
    assert result.exit_code != 0, result.output
    assert "planted-secret" not in result.output
    assert not any(wrong in result.output for wrong in ("SyntaxError", "NameError", "ModuleNotFoundError"))
    assert [path.name for path in folder.iterdir()] == ["secret"]
    assert not Path("/tmp/sibling-of-baton").exists()
    assert not Path("/dev/shm/sibling").exists()


def test_nothing_is_left_of_an_agent_that_is_gone(places: AgentPlaces, limits: SandboxLimits) -> None:
    runs(places, A, "import os\nopen('x', 'w').write('x')\nos.makedirs('a/b/c')", limits)
    folder = places.of(A).made
    assert folder is not None
    places.leave("lead.a")
    assert not folder.exists()
    assert (
        runs(places, A, "import os\nos.listdir()", limits).output == "[]\n"
    )  # of the same name, and another agent


def test_a_link_out_of_a_folder_is_not_followed_when_it_is_deleted(
    tmp_path: Path, places: AgentPlaces
) -> None:
    (tmp_path / "keep").write_text("kept")
    with places.of(A).using() as folder:
        (folder / "out").symlink_to(tmp_path)
        (folder / "deep").mkdir()
        (folder / "deep" / "out").symlink_to(tmp_path, target_is_directory=True)
    places.of(A).empty()
    assert (tmp_path / "keep").read_text() == "kept"
    assert folder.exists()
    places.close()
    assert (tmp_path / "keep").read_text() == "kept"
    assert not folder.exists()


def test_code_that_still_runs_keeps_its_folder_until_it_ends(places: AgentPlaces) -> None:
    cancelled = threading.Event()
    place = places.of(A)
    ended: list[SandboxResult] = []

    def work() -> None:
        with place.using() as folder:
            kept = KeptFolder(folder, lambda: False)
            ended.append(run_python("import time\ntime.sleep(60)", WAYS["landlock"], cancelled, kept=kept))

    thread = threading.Thread(target=work)
    thread.start()
    while place.made is None:
        time.sleep(0.01)
    places.leave("lead.a")
    folder = place.made
    assert folder is not None
    assert folder.exists()
    cancelled.set()
    thread.join(20)
    assert ended[0].stopped == "cancelled"
    assert not folder.exists()


def test_all_below_an_agent_hold_no_more_than_it_may(places: AgentPlaces) -> None:
    lead = structs.replace(WAYS["landlock"], disk_bytes=3 * 2**20)
    worker = structs.replace(lead, disk_bytes=2 * 2**20)
    by_role = {"lead": lead, "worker": worker}
    write = "import time\nfor k in range(15):\n    open(f'f{k}', 'wb').write(b'x' * 100_000)\ntime.sleep(0.4)"

    def of(line: tuple[tuple[str, str], ...]) -> SandboxResult:
        place = places.of(line)
        with place.using() as folder:
            return run_python(
                write, place.limits(worker, by_role), kept=KeptFolder(folder, place.over(worker, by_role))
            )

    assert of(A).exit_code == 0
    assert of(B).exit_code == 0
    third = (("lead.c", "worker"), ("lead", "lead"))
    assert of(third).stopped == "files"


def test_limits_are_the_lesser_of_all_above() -> None:
    wide = SandboxLimits(memory_bytes=2**30, cpu_seconds=9, least="landlock")
    tight = SandboxLimits(
        memory_bytes=2**28, cpu_seconds=20, least="bubblewrap", layers=("limits", "seccomp")
    )
    both = narrower(wide, tight)
    assert (both.memory_bytes, both.cpu_seconds, both.least) == (2**28, 9, "bubblewrap")
    assert set(both.layers) == set(LAYERS)
    places = AgentPlaces()
    got = places.of((("a.b", "worker"), ("a", "lead"))).limits(wide, {"lead": tight})
    assert got == narrower(wide, tight)


def test_a_weaker_level_is_refused_and_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool asks for Landlock at least, whatever it is told, and says so before anything runs."""
    weak = agent_python_tool(SandboxLimits(least="audit"))
    assert weak.check is not None
    found = Protection(level="seccomp", layers=("limits", "seccomp"), missing={"landlock": "not here"})
    monkeypatch.setattr("baton.team.tools.sandbox.protection", lambda _: found)
    with pytest.raises(SandboxRefused, match="at least 'landlock' was asked for"):
        weak.check()


TOOL = agent_python_tool(WAYS["landlock"])


def team_of(play: Callable[[Request], str]) -> Team:
    topology = Topology(
        name="centralized",
        root="lead",
        roles=(
            Role(name="lead", verbs=("spawn", "wait", "stop"), spawns=("worker",)),
            Role(name="worker", verbs=("call", "return"), tools=("python",)),
        ),
    )
    return Team.of(topology, {"default": play}, tools=Registry([TOOL]))


def folders() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("baton-agents-*")}


def test_a_run_gives_each_agent_its_own() -> None:
    def play(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "lead":
            return ["spawn worker: a\nspawn worker: b\nwait", "stop done"][turn]
        code = "import os; open(f'f{len(os.listdir())}', 'w'); sorted(os.listdir())"
        said = f'call python {{"code": "{code}"}}'
        return [said, said, "return done"][turn]

    before = folders()
    team, work = team_of(play), Assignment(task_id="work", prompt="work")
    trace: Trace = asyncio.run(run(team, work))
    assert validate(trace) == []
    said = {(e.agent, e.id): trace.text(e.content_ref) for e in trace.events if e.type == "tool_result"}
    for agent in ("worker1", "worker2"):
        assert [text for (who, _), text in said.items() if who == agent] == ["['f0']\n", "['f0', 'f1']\n"]
    levels = {e.extra["sandbox"] for e in trace.events if e.type == "tool_result"}
    assert levels == {"landlock"}
    assert folders() <= before
    assert asyncio.run(replay(trace, team, work)) == trace
    assert folders() <= before


def test_the_model_sees_no_place_and_the_tool_is_named() -> None:
    tool = TOOLS["python_with_files"]
    assert tool.name == "python"
    assert "place" not in str(tool.schema)
    assert not tool.pure
    outcome = asyncio.run(invoke(tool, {"code": "1"}, idempotency_key="k"))
    assert not outcome.ok
    assert Registry([TOOLS["python"]]).digest() == Registry([TOOLS["python"]]).digest()


def test_the_working_folder_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: SandboxLimits
) -> None:
    (tmp_path / "mine").write_text("x")
    monkeypatch.chdir(tmp_path)
    places = AgentPlaces()
    code = "import os, shutil\nfor name in os.listdir('.'):\n    os.remove(name)\n"
    code += "os.chdir('/')\nshutil.rmtree('.', True)"
    runs(places, A, code, limits)
    places.close()
    assert (tmp_path / "mine").read_text() == "x"
    assert Path.cwd() == tmp_path
