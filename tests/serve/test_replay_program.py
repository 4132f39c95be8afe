"""`baton replay SESSION -- COMMAND` and `baton fork SESSION … -- COMMAND`, typed, with a program of a few lines."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from baton.cli import main
from baton.cli.program_replay import numbers_of
from baton.serve.journal import read_session
from baton.trace.formats import read_all

PROGRAM = Path(__file__).parent / "programs" / "plain.py"
ENGINE = "scripted:plain_answers:answer"


def typed(*words: object) -> int:
    return main([str(word) for word in words])


def command(*words: str) -> list[str]:
    return ["--", sys.executable, "-S", str(PROGRAM), *words]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("served")
    assert (
        typed("serve", "--engine", ENGINE, "--out", out, "--session", "first", *command("how many?", "4"))
        == 0
    )
    return out


def test_a_replay_is_identical_but_for_clock_ids_names_and_threads(
    recorded: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert typed("replay", recorded, *command("how many?", "4")) == 0
    said = capfd.readouterr().out
    assert "replayed 6 of 6 calls: 5 under masks, 1 renamed" in said
    assert "masked: uuid, in 6 calls" in said
    assert "output    identical but for name; exit code 0" in said
    assert said.rstrip().endswith("identical")


def test_the_first_difference_is_named_and_ends_the_program(
    recorded: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert typed("replay", recorded / "sessions" / "first.jsonl", *command("how much?", "4")) == 1
    said = capfd.readouterr().out
    assert "replayed 0 of 6 calls" in said
    assert re.search(
        r"DIFFERENT call 1 is in no recording; nearest is call 1 \(\w+\), which differs in message 1, "
        r"the user's: \[<uuid>\] lead: how \[-many-\]\{\+much\+\}\?",
        said,
    )


def test_calls_that_do_not_come_up_are_a_difference(
    recorded: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert typed("replay", recorded, *command("how many?", "3")) == 1
    assert "DIFFERENT call 5 is in no recording" in capfd.readouterr().out


def test_a_program_that_asks_nothing_is_different_in_all_calls(
    recorded: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert typed("replay", recorded, "--session", "first", "--", sys.executable, "-c", "print(1)") == 1
    assert "DIFFERENT 6 recorded calls not asked: 1, 2, 3, 4, 5, 6\n" in capfd.readouterr().out
    assert numbers_of(read_session(recorded / "sessions" / "first.jsonl").exchanges * 2).endswith(", …")


def test_exactly_means_exactly(recorded: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert typed("replay", recorded, "--exact", *command("how many?", "4")) == 1
    assert "message 1, the user's: [[-" in capfd.readouterr().out


def test_a_fork_runs_again_only_what_depends_on_it(recorded: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ("fork", recorded, "--session", "first", "--at", "3", "--replace", "100", "--trust")
    assert typed(*words, *command("how many?", "4")) == 0
    said = capfd.readouterr().out
    assert "calls: 1 ran, 4 of 6 were reused (67%)" in said
    name = re.search(r"fork     (first-\w{8}) in ", said)
    assert name is not None
    before = read_session(recorded / "sessions" / "first.jsonl")
    after = read_session(recorded / "sessions" / f"{name[1]}.jsonl")
    dropped = before.exchanges[2].reply
    assert dropped is not None
    old, new = (int(one.posted[-1].answer.split()[-1]) for one in (before, after))  # type: ignore[union-attr]
    assert new == old - int(dropped.choices[0].message.text) + 100
    (trace,) = read_all(recorded / f"{name[1]}.jsonl")
    assert trace.header.meta["forked_from"] == "serve-first"
    assert typed(*words, *command("how many?", "4")) == 2
    assert "already holds this fork" in capfd.readouterr().err


def test_a_redraw_is_another_draw_and_replicates_differ(
    recorded: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sums = set()
    for replicate in range(1, 4):
        words = ("fork", recorded, "--session", "first", "--at", "4", "--redraw", "--engine", ENGINE)
        assert typed(*words, "--replicate", replicate, *command("how many?", "4")) == 0
        said = capfd.readouterr().out
        sums.add(re.search(r"says (\d+)", said)[1])  # type: ignore[index]
    assert len(sums) > 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "$BATON_SESSION_URL/reward, or type: --score module:function"),
        (["--score", "faulty_score:score"], "faulty_score.py, line 2: ZeroDivisionError: division by zero"),
        (["--score", "unread_score:score"], "(unread_score.py, line 1)"),
    ],
)
def test_credit_that_cannot_be_given_says_what_is_missing(
    recorded: Path, words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "faulty_score.py").write_text("def score(run):\n    return 1 / 0\n\n\nscore(None)\n")
    (tmp_path / "unread_score.py").write_text("def score(run:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    asked = [
        "credit",
        str(recorded),
        "--session",
        "first",
        "--estimator",
        "message-replay",
        "--engine",
        ENGINE,
    ]
    assert typed(*asked, *words, *command("how many?", "4")) == 2
    line = capfd.readouterr().err
    assert said in line
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["replay", "{out}", "--"], "which program? Type it after --"),
        (["replay", "{out}", "python"], "A program stands after --"),
        (["replay", "{out}/none", "--", "true"], "there is no session in"),
        (["replay", "{out}", "--session", "frist", "--", "true"], "Did you mean 'first'?"),
        (
            ["replay", "{out}", "--session", "first", "--", "no-such-program"],
            "there is no program 'no-such-program'",
        ),
        (["replay", "{out}", "--session", "first", "--mask", "(", "--", "true"], "is no regular expression"),
        (
            ["replay", "{out}", "--session", "first", "--cwd", "/no/where", "--", "true"],
            "there is no folder /no/where",
        ),
        (["replay", "{out}", "--exact"], "--exact is for a program"),
        (
            ["fork", "{out}", "--replace", "x", "--session", "first", "--", "true"],
            "which call? Type: --at CALL",
        ),
        (
            ["fork", "{out}", "--replace", "x", "--session", "first", "--at", "99", "--", "true"],
            "there is no call 99",
        ),
        (
            ["fork", "{out}", "--drop", "--session", "first", "--at", "1", "--", "true"],
            "--drop is for a trace",
        ),
        (
            ["fork", "{out}", "--replace-tool", "hire", "x", "--session", "first", "--at", "1", "--", "true"],
            "no JSON",
        ),
        (
            ["fork", "{out}", "--replace", "x", "--session", "first", "--at", "1", "--", "true"],
            "type: --trust",
        ),
        (["fork", "{out}", "--redraw"], "--redraw is for a program"),
        (["fork", "{out}", "--replace", "x", "--at", "e1"], "where does the fork go? Type: --out"),
    ],
)
def test_mistakes_are_one_line(
    recorded: Path, words: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert typed(*(word.replace("{out}", str(recorded)) for word in words)) == 2
    line = capfd.readouterr().err
    assert said in line
    assert line.count("\n") == 1


BESIDE = """
import json, os, time, urllib.request

def get(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + path, data, headers)
    return json.load(urllib.request.urlopen(request))

model = get("/v1/models")["data"][0]["id"]
for words in ("the same", f"at {time.time_ns()} " + "x" * 40 * (time.time_ns() % 5), "the same"):
    print(get("/v1/messages/count_tokens", {"model": model, "messages": [{"role": "user", "content": words}]}))
ask = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "many?"}]}
print(get("/v1/messages", ask)["content"][0]["text"])
"""


def test_what_was_told_beside_answers_is_told_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Which models there are, and how many tokens a question has, also of one that words itself anew."""
    path = tmp_path / "beside.py"
    path.write_text(BESIDE)
    run = ["--", sys.executable, "-S", str(path)]
    assert typed("serve", "--engine", "scripted:echo", "--out", tmp_path / "out", *run) == 0
    session = read_session(tmp_path / "out" / "sessions" / "run-1.jsonl")
    assert (session.models, len(session.counted)) == (("echo",), 3)
    capfd.readouterr()
    for _ in range(2):
        assert typed("replay", tmp_path / "out", *run) == 0
    assert "replayed 1 of 1 call: 1 exactly" in capfd.readouterr().out
    fork = ["fork", tmp_path / "out", "--session", "run-1", "--at", "1", "--replace", "few", *run]
    assert typed(*fork) == 0
    said = capfd.readouterr()
    assert said.out.splitlines()[3] == "few"
