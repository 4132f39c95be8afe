"""What commands print fits a terminal of 80 columns, loses nothing there, and is ASCII where that is all there is."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.terminal import sit_at

from baton.cli import COMMANDS, main
from baton.view.report.run_figures import Standing
from baton.view.terminal.fitting import cells, table_lines, wrapped
from baton.view.terminal.plain_characters import plain
from baton.view.terminal.screen import emit
from baton.view.terminal.training_result import standing_table

SRC = Path(__file__).parents[2] / "src" / "baton"
ODD = "名前-of-a-trace-that-somebody-called-by-a-rather-long-name-with-números-and-more"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of teams, groups and games, and a trace with an odd name."""
    folder = tmp_path_factory.mktemp("here")
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main(["run", "shard-sum", "--topology", "hierarchical", "--out", "sum"]) == 0
        assert main(["run", "shard-sum", "--set", "limits.tokens=3000", "--out", "poor"]) == 0
        groups = ["--policy", "random", "--instances", "0:2", "--rollouts", "3", "--out", "groups"]
        assert main(["run", "game:spawn-bandit", *groups]) == 0
        assert main(["convert", "sum", "odd.jsonl"]) == 0
        said = {"messages": [{"role": "user", "content": ODD * 3}, {"role": "assistant", "content": "Yes."}]}
        Path("talk.jsonl").write_text(json.dumps(said) + "\n")
        text = Path("odd.jsonl").read_text("utf-8").splitlines()
        Path("odd.jsonl").write_text("\n".join(text[:-1]).replace("shard-sum-hierarchical-0", ODD) + "\n")
    finally:
        os.chdir(before)
    return folder


SHOWN = [
    "run shard-sum --topology debate --out new", "run game:spawn-bandit --rollouts 2 --out new", "resume sum",
    "replay sum", "fork sum --bar lead1 --out fork.jsonl", "validate sum poor", "show sum", "show groups",
    "show poor --prompts", "show poor --text", "show odd.jsonl", "export html sum --out sum.html", "stats sum",
    "stats sum poor", "stats groups", "convert sum again.jsonl", "reward sum --recipe parl --monitor",
    "reward odd.jsonl --recipe shared", "credit --list", "credit groups --estimator group",
    "credit groups --partition", "credit sum --estimator shapley", "import talk.jsonl --from messages --out seen",
    "measure sum", "measure groups", "recipes", "recipes dr-mas",
    "recipes dr-mas --page", "game list", "game solve pandora", "game play pandora", "game regret groups",
    "game regret pandora", "game regret pandora --episodes 20", "advise sum --dynamic yes --bottleneck no",
    "corpus stats", "corpus list", "corpus list --excluded", "corpus show dr-mas", "corpus claims", "corpus cards",
    "corpus coverage", "corpus map", "corpus timeline", "corpus evidence", "corpus ledger", "corpus borderline",
    "corpus envelopes sum", "blame poor", "blame poor --no-forks", "notes odd.jsonl", "notes groups",
    "attack shard-sum --vector AV3 --topology centralized --episodes 1",
]  # fmt: skip
SHOWN += [name for name in ("tasks",) if name in COMMANDS]
CHANGES_PLACES = ("run", "fork", "export", "convert", "import")
NOT_ON_A_SCREEN = {
    "view",
    "receive",
    "serve",
    "train",
    "eval",
    "query",
    "seal",
    "completion",
    "sandbox",
    "doctor",
    "init",
    "steer",
}
"""Tested apart: they train, serve, steer, draw by another library, print a file, or end as the machine is."""


def test_every_command_is_looked_at() -> None:
    assert {line.split()[0] for line in SHOWN} | NOT_ON_A_SCREEN >= set(COMMANDS)


def typed(line: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    words = line.split()
    if words[0] in CHANGES_PLACES:
        for name in ("new", "fork.jsonl", "sum.html", "again.jsonl"):
            subprocess.run(["rm", "-rf", name], check=True)
    assert main(words) == 0


def said(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text))


@pytest.mark.parametrize("line", SHOWN)
def test_eighty_columns(
    line: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(line, place, monkeypatch)
    piped = capsys.readouterr().out
    screen = sit_at(monkeypatch)
    typed(line, place, monkeypatch)
    assert screen.width <= 80, max(screen.lines, key=cells)
    if "…" not in piped:
        unbroken = re.sub(r"\s+", "", screen.raw_text)
        lost = {word for word in said(piped) - said("\n".join(screen.lines)) if word not in unbroken}
        assert not lost


@pytest.mark.parametrize("name", [*COMMANDS, "game regret", "game play", "corpus list", ""])
def test_help_fits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = sit_at(monkeypatch)
    with suppress(SystemExit):  # argparse's way
        main([*name.split(), "--help"])
    assert "usage: baton" in screen.raw_text
    assert screen.width <= 80, max(screen.lines, key=cells)


def test_what_a_pipe_gets_does_not_hang_on_the_terminal(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = set()
    for columns in ("40", "80", "300"):
        monkeypatch.setenv("COLUMNS", columns)
        for line in ("recipes", "measure sum", "show sum", "credit --list", "game regret groups"):
            typed(line, place, monkeypatch)
        found.add(capsys.readouterr().out)
    assert len(found) == 1


@pytest.mark.parametrize("columns", [40, 80])
def test_the_table_of_a_training_run_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("total", "spawn", "delegate", "communicate", "aggregate", "stop", "invalid")
    rows = [
        Standing(
            who=who, step=2, episodes=episodes, failed=None, one_try=None, team_tokens=None, why_not="",
             mean=0.123 + k / 10, half=0.045, tokens=1234.0 + k, invalid=0.25,
            regret={name: (k + j) / 100 for j, name in enumerate(names)},
        )
        for k, (who, episodes) in enumerate([("untrained", 256), ("trained", 256), ("single agent", None)])
    ]  # fmt: skip
    screen = sit_at(monkeypatch, columns)
    emit(standing_table(rows))
    assert screen.width <= columns
    text = "\n".join(screen.lines)
    for figure in ("0.123", "0.223", "1,234", "1,236", "0.07", "communicate", "num invalid", "single agent"):
        assert re.sub(r"\s", "", figure) in re.sub(r"\s", "", text)


SIGNS = [
    "show sum", "show odd.jsonl", "show groups", "reward sum --recipe parl --monitor", "measure sum",
    "credit groups --partition", "recipes dr-mas", "recipes dr-mas --page", "game regret pandora --episodes 20",
    "corpus map", "corpus list",
]  # fmt: skip


@pytest.mark.parametrize("line", SIGNS)
def test_ascii_terminals(line: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With LANG=C Python takes the terminal for UTF-8, and says so in LC_CTYPE; with PYTHONIOENCODING it is ASCII."""
    by_locale = SIGNS.index(line) % 2
    asked = {"LANG": "C", "LC_CTYPE": "C.UTF-8"} if by_locale else {}
    screen = sit_at(monkeypatch, encoding="utf-8" if by_locale else "ascii", **asked)
    typed(line, place, monkeypatch)
    assert screen.raw_text.isascii()
    if "odd" not in line:  # a name that is escaped is longer
        assert screen.width <= 80, max(screen.lines, key=len)
        assert "\\u" not in screen.raw_text


def test_what_stands_for_what() -> None:
    assert plain("0.1 → 0.2 ±0.3 … −98 % ▁▄█ 3×4 ≠ 5") == "0.1 -> 0.2 +-0.3 ... -98 % _-# 3x4 != 5"
    assert plain("├─ a\n│  └─ b") == "|- a\n|  `- b"
    assert plain("Zoë") == "Zoë"  # nobody's name is changed; a stream that cannot take it shows its code


def test_every_sign_that_baton_prints_has_a_plain_one() -> None:
    for path in (*(SRC / "cli").glob("*.py"), *(SRC / "view" / "terminal").glob("*.py")):
        if path.name == "plain_characters.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert plain(node.value.replace("\xa0", " ")).isascii(), (path.name, node.value)


def test_a_dumb_terminal_in_ascii_gets_no_escapes(place: Path) -> None:
    environ = os.environ | {"TERM": "dumb", "PYTHONIOENCODING": "ascii", "LANG": "C"}
    done = subprocess.run(
        [sys.executable, "-m", "baton", "show", "poor"],
        cwd=place,
        env=environ,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    assert b"\x1b" not in done.stdout
    assert b"|- worker2#1" in done.stdout
    assert b"|-> " not in done.stdout


@pytest.mark.parametrize("width", [40, 61, 80])
@pytest.mark.parametrize(
    "text",
    [
        "took     5 agents, 4 calls, 19 events, 2,257 tokens, 4.42 s on the team's clock, and then some more of it",
        "│  ├─ lead1.worker1#1  3.46s tool_call read_shard [p=1] 593 tok took 0.56s FAILED: 名前名前名前名前名前名前",
        "a" * 200,
        "  x  " + "名前" * 70 + " end",
        "Type: baton fork runs/sum --at worker1#1 --replace 'a text of several words in quotes' --out other.jsonl",
    ],
)
def test_lines_are_broken_and_nothing_is_lost(text: str, width: int) -> None:
    found = [
        "".join(part for part, _ in line) for line in wrapped([(text[:9], "bold"), (text[9:], "")], width)
    ]
    assert all(cells(line) <= width for line in found) or "quotes" in text
    rails = re.sub(r"[\s│├─\\]", "", "".join(found))
    assert rails == re.sub(r"[\s│├─\\]", "", text)
    if text.startswith("Type: "):
        assert all(line.endswith(" \\") for line in found[:-1])
        assert "'a text of several words in quotes'" in " ".join(found)


def test_a_table_goes_on_below_with_its_first_column_again() -> None:
    head = ["who", *(f"figure-{k}" for k in range(12))]
    rows = [head, *([f"row {i}", *(f"{i * 100 + k}.25" for k in range(12))] for i in range(3))]
    lines = ["".join(text for text, _ in line) for line in table_lines(rows, 40, right=range(1, 13))]
    assert max(map(len, lines)) <= 40
    for row in rows[1:]:
        for cell in row[1:]:
            (found,) = [line for line in lines if cell in line.split()]
            assert found.startswith(row[0])


def test_wide_tables_are_left_alone_where_nobody_looks() -> None:
    rows = [["a", "b"], ["x" * 90, "y" * 90]]
    assert [line[0][0] for line in table_lines(rows)] == [f"{'a':<90}  b", f"{'x' * 90}  {'y' * 90}"]
