"""A trace somebody else made: what it names is neither imported nor sent anything, unless the person says so."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from changed import unsealed
from cli_runs import SLOW_RUN, made, started, traces

from baton.cli import main
from baton.cli.view import attached
from baton.errors import UsageError
from baton.trace.formats import read, write
from baton.view.web.attached import Change, ForkWatch

MODULE = """
from pathlib import Path
from baton.tasks.shard_sum import play

def f(request):
    Path(__file__).with_name("called").touch()
    return play(request)

Path(__file__).with_name("imported").touch()
"""
RUN_AGAIN = [
    ("fork", "--bar", "worker3", "--out", "fork.jsonl"),
    ("credit", "--estimator", "shapley"),
    ("measure", "--replay"),
    ("measure", "--safety", "--untrusted", "read_shard"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the module of a stranger lies, as a folder that came with a trace."""
    (tmp_path / "strange_play.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "strange_play", raising=False)
    return tmp_path


def naming(here: Path, spec: str) -> Path:
    """The example's trace, which says that it was played by `spec`."""
    made(here / "run")
    path = here / "trace.jsonl"
    write(traces(here / "run")[0], path)
    header, rest = unsealed(path.read_text()).split("\n", 1)
    told = json.loads(header)
    told["meta"]["run"]["settings"]["policies"] = {"default": spec}
    rest = re.sub(r',"crc":\d+}\n$', "}\n", rest)  # who changes a file takes its checksum away
    path.write_text(json.dumps(told) + "\n" + rest)
    return path


class Server(HTTPServer):
    """A model that stops at once. Remembers who asked, and with which key."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.sent: list[str | None] = []

    @property
    def spec(self) -> str:
        return f"openai:m@http://127.0.0.1:{self.server_port}/v1"


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        self.server.sent.append(self.headers["Authorization"])
        choice = {"message": {"role": "assistant", "content": "stop 1"}, "finish_reason": "stop"}
        body = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def told(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """What a command that must not run a trace's policies says; a measurement says it beside what it lacks."""
    capsys.readouterr()
    code = main(list(command))
    shown = capsys.readouterr()
    if command[0] == "measure":
        assert code == 0
        return next(line for line in shown.out.splitlines() if "--trust" in line)
    assert code == 2
    (line,) = shown.err.splitlines()
    return line


@pytest.mark.parametrize("command", RUN_AGAIN, ids=" ".join)
def test_a_module_that_a_trace_names_is_not_imported(
    command: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = naming(here, "scripted:strange_play:f")
    line = told(capsys, command[0], str(path), *command[1:])
    assert "'strange_play'" in line
    assert "--trust" in line
    assert not (here / "imported").exists()


@pytest.mark.parametrize("command", RUN_AGAIN, ids=" ".join)
def test_it_is_called_where_the_person_says_so(command: tuple[str, ...], here: Path) -> None:
    path = naming(here, "scripted:strange_play:f")
    assert main([command[0], str(path), *command[1:], "--trust"]) == 0
    assert (here / "imported").exists()


@pytest.mark.parametrize("command", RUN_AGAIN, ids=" ".join)
def test_no_key_goes_to_an_address_that_a_trace_names(
    command: tuple[str, ...], here: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    path = naming(here, server.spec)
    line = told(capsys, command[0], str(path), *command[1:])
    assert f"http://127.0.0.1:{server.server_port}/v1" in line
    assert "OPENAI_API_KEY" in line
    assert server.sent == []


def test_the_key_goes_there_where_the_person_says_so(here: Path, server: Server) -> None:
    path = naming(here, server.spec)
    assert main(["fork", str(path), "--bar", "worker1", "--out", "a.jsonl", "--trust"]) == 0
    assert "Bearer sk-mine" in server.sent


def test_a_replay_imports_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = naming(here, "scripted:strange_play:f")
    assert main(["replay", str(path)]) == 0
    assert "identical" in capsys.readouterr().out
    assert not (here / "imported").exists()


def test_a_replay_reaches_no_server(here: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    made(here / "run", "--policy", server.spec)
    server.sent.clear()
    assert main(["replay", "run"]) == 0
    assert "identical" in capsys.readouterr().out
    assert server.sent == []


def test_what_is_typed_in_this_call_is_trusted(here: Path) -> None:
    path = naming(here, "scripted:nowhere:f")
    change = ["--bar", "worker1", "--policy"]
    assert main(["fork", str(path), *change, "reference", "--out", "a.jsonl"]) == 0
    assert main(["fork", str(path), *change, "scripted:strange_play:f", "--out", "b.jsonl"]) == 0
    assert (here / "called").exists()


@pytest.mark.parametrize("spec", ["reference", "scripted:echo", "scripted", "table"])
def test_what_comes_with_baton_is_never_asked_about(spec: str, here: Path) -> None:
    assert main(["fork", str(naming(here, spec)), "--bar", "worker1", "--out", "a.jsonl"]) == 0


def test_the_page_refuses_as_well(here: Path) -> None:
    path = naming(here, "scripted:strange_play:f")
    trace = read(path)
    change = Change(at=trace.events[0].id, do="stop", text="no")
    fork = attached(forks=True).fork
    assert fork is not None
    with pytest.raises(UsageError, match="--trust"):
        fork(path, trace, change, ForkWatch())
    assert not (here / "imported").exists()
    trusting = attached(forks=True, trust=True).fork
    assert trusting is not None
    assert trusting(path, trace, change, ForkWatch()).trace.events
    assert (here / "imported").exists()


def test_trust_without_forks_means_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(here / "run")
    assert "--fork" in told(capsys, "view", "run", "--trust")


def test_a_store_is_resumed_by_its_own_module_only_when_told(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started(here, SLOW_RUN, until_events=4)
    process.kill()
    process.communicate()
    monkeypatch.delitem(sys.modules, "slow_play", raising=False)
    assert "'slow_play'" in told(capsys, "resume", "out")
    assert "slow_play" not in sys.modules
    assert main(["resume", "out", "--trust"]) == 0


OWN = """
from pathlib import Path
from baton.team.topology.centralized import centralized
from baton.team.tools.tool import tool

def star(*, tools=()):
    return centralized(tools=tools)

@tool
def shout(text: str) -> str:
    "Say it louder."
    return text.upper()

Path(__file__).with_name("imported").touch()
"""


@pytest.fixture
def own(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a person types to run with a topology and a tool of their own."""
    (here / "own_parts.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    return ["run", "shard-sum", "--topology", "own_parts:star", "--tool", "own_parts:shout", "--out", "run"]


def test_parts_of_ones_own_survive_replay_and_fork_with_trust(
    own: list[str], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(own) == 0
    assert (here / "imported").exists()
    monkeypatch.delitem(sys.modules, "own_parts")
    (here / "imported").unlink()
    again = (("replay", "run"), ("fork", "run", "--bar", "worker3", "--out", "f.jsonl"))
    for command in again:
        line = told(capsys, *command)
        assert "own_parts:star" in line
        assert "--trust" in line
    assert not (here / "imported").exists()
    for command in again:
        assert main([*command, "--trust"]) == 0


PHASE = '[[phases]]\nname = "late"\n[phases.set]\n"reward.judges" = {{strict = "{}"}}\n[rollout]'


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (('model = "tiny"', 'model = "openai:m@http://127.0.0.1:9/v1"\ntrain = "frozen"'), "OPENAI_API_KEY"),
        (('model = "tiny"', 'model = "tiny"\nengine = "vllm:http://127.0.0.1:9"'), "VLLM_API_KEY"),
        (('model = "tiny"', 'model = "tiny"\nengine = "vllm:local?python=/tmp/odd"'), "run '/tmp/odd'"),
        (('model = "tiny"', 'model = "vllm:m@http://127.0.0.1:9"\ntrain = "frozen"'), "VLLM_API_KEY"),
        (('model = "tiny"', 'model = "tiny"\nengine = "tinker:http://127.0.0.1:9"'), "127.0.0.1:9"),
        (('name = "game:parallel-pandora"', 'name = "strange_play:T"'), "'strange_play'"),
        (("about = ", 'import = ["strange_play"]\nabout = '), "'strange_play'"),
        (("[rollout]", PHASE.format("openai:m@http://127.0.0.1:9/v1")), "OPENAI_API_KEY"),
        (("[rollout]", PHASE.format("scripted:strange_play:f")), "'strange_play'"),
    ],
    ids=[
        "a server",
        "weights to a server",
        "a program",
        "vLLM",
        "a service",
        "a task",
        "an import",
        "a judge of a phase",
        "a judge's module of a phase",
    ],
)
def test_a_recipe_that_came_as_a_file_is_asked_about(
    change: tuple[str, str], named: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["recipes", "team-advantage"]) == 0
    text = capsys.readouterr().out
    assert change[0] in text
    (here / "strange.toml").write_text(text.replace(*change))
    (here / "folder").mkdir()
    (here / "folder" / "recipe.toml").write_text(text.replace(*change))
    (here / "folder" / "run.json").write_text('{"recipe": "strange", "status": "stopped"}')
    for command in (("train", "strange.toml"), ("train", "--resume", "--out", "folder"), ("eval", "folder")):
        line = told(capsys, *command)
        assert named in line
        assert "--trust" in line
    assert not (here / "imported").exists()
