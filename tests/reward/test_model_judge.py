"""A model as judge: asked over HTTP by name, recorded on the trace, and the same numbers again without it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from reward_traces import Clock, recorded

from baton.cli import main
from baton.engine.judge import asked_of, score_in
from baton.trace.formats import read, write
from baton.trace.recorded_agent import RecordedAgent
from baton.trace.recorder import Recorder
from baton.trace.trace import Trace

RIGHT = "Reykjavík"


class ServerStandIn(ThreadingHTTPServer):
    """Stands in for a served model: an OpenAI-compatible endpoint on this machine, with an opinion of its own."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.prompts: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: ServerStandIn

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][-1]["content"]
        self.server.prompts.append(prompt)
        said = prompt.split(" said: ")[1].split("\n")[0]
        reply = "I would rather not say" if "?" in said else "9" if RIGHT in said else "I give it 2/10"
        if body["model"] == "lenient" and reply != "9":
            reply = "7"
        message: dict[str, Any] = {"role": "assistant", "content": reply}
        found = {
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "model": body["model"],
        }
        data = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ServerStandIn]:
    with ServerStandIn() as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()


def debated(answers: list[str]) -> Trace:
    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        crew = [
            lead.spawn(f"d{k}", role="debater", task="What is the capital of Iceland?")
            for k in range(len(answers))
        ]
        for worker, text in zip(crew, answers, strict=True):
            clock.seconds += 1
            worker.returns(text)
        lead.aggregate(crew, answers[0], method="first")
        lead.stop(answers[0])

    return recorded(play, topology="debate", outcome=1.0, trace_id="iceland")


def panel(path: Path, how: str) -> str:
    (path / f"{how}.toml").write_text(f'[[rules]]\nrule = "judge_panel"\nhow = "{how}"\n')
    return str(path / f"{how}.toml")


def values(capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    (trace,) = json.loads(capsys.readouterr().out)["traces"]
    return {reward["target"]: reward["value"] for reward in trace["rewards"]}


def test_two_models_judge_and_the_saved_trace_says_the_same(
    server: ServerStandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = debated([f"It is {RIGHT}.", "Oslo", "surely Akureyri"])
    write(trace, tmp_path / "t.jsonl")
    said = [e.id for e in trace.events if e.type == "return"]
    judges = ["--judge", f"strict=openai:stern@{server.url}", "--judge", f"kind=openai:lenient@{server.url}"]
    recipe, saved = panel(tmp_path, "mean"), tmp_path / "judged.jsonl"
    assert (
        main(
            ["reward", str(tmp_path / "t.jsonl"), "--recipe", recipe, *judges, "--json", "--out", str(saved)]
        )
        == 0
    )
    found = values(capsys)
    # By hand: 9 and 9, 2 and 7, 2 and 7, of ten.
    assert found == pytest.approx(dict(zip(said, [0.9, 0.45, 0.45], strict=True)))
    assert len(server.prompts) == 6
    assert all("What is the capital of Iceland?" in prompt for prompt in server.prompts)
    # Nobody is asked again, and other rules read the same verdicts.
    assert main(["reward", str(saved), "--recipe", recipe, "--json"]) == 0
    assert values(capsys) == found
    assert main(["reward", str(saved), "--recipe", panel(tmp_path, "strict"), "--json"]) == 0
    assert values(capsys) == pytest.approx(dict(zip(said, [1.0, 0.0, 0.0], strict=True)))
    assert len(server.prompts) == 6
    kept = [r for r in read(saved).rewards if r.name == "verdict"]
    assert {(r.by or "").split(" # ")[0] for r in kept} == {"strict", "kind"}
    assert any((r.by or "").endswith("# I give it 2/10") for r in kept)


def test_a_reply_without_a_number_is_no_verdict(
    server: ServerStandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(debated([f"{RIGHT}", "who knows?"]), tmp_path / "t.jsonl")
    judge = f"openai:stern@{server.url}"
    assert (
        main(["reward", str(tmp_path / "t.jsonl"), "--recipe", panel(tmp_path, "mean"), "--judge", judge])
        == 2
    )
    err = capsys.readouterr().err
    assert "gave no verdict on iceland:" in err
    assert "rather not say" in err


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("7", 0.7), ("10", 1.0), ("0", 0.0), ("8/10", 0.8), ("Score: 3.", 0.3), ("first 2, then 9", 0.9),
        ("7.0", 0.7), ("11", None), ("7.5", None), ("-3", None), ("", None), ("ten", None), ("42 of 100", None),
    ],
)  # fmt: skip
def test_reading_a_score(reply: str, score: float | None) -> None:
    assert score_in(reply) == score


def test_what_was_asked() -> None:
    trace = debated(["a", "b"])
    by_type = {e.type: e for e in trace.events}
    assert asked_of(trace, by_type["return"]) == "What is the capital of Iceland?"
    stop = next(e for e in trace.events if e.decision == "stop")
    assert asked_of(trace, stop) == "What is the capital of Iceland?"  # as the leader handed it on


def test_what_is_typed_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(debated(["a", "b"]), tmp_path / "t.jsonl")
    path = str(tmp_path / "t.jsonl")
    assert main(["reward", path, "--recipe", "shared", "--ask", "why?"]) == 2
    assert "--judge" in capsys.readouterr().err
    assert main(["reward", path, "--recipe", "shared", "--judge", "scripted:echo"]) == 2
    assert re.search("nothing .* is to be judged", capsys.readouterr().err)
    assert main(["reward", path, "--recipe", "maporl", "--judge", "nobody"]) == 2
    assert "there is no engine 'nobody'" in capsys.readouterr().err
