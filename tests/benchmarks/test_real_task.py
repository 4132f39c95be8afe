"""The benchmark on real tasks runs, with a model of no sense."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("reasoning_gym", reason="needs the extra `reasoning`")
pytest.importorskip("torch", reason="needs the extra `torch`")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "real_task.py"


def test_the_untrained_team_is_measured() -> None:
    done = subprocess.run(
        [
            sys.executable, str(SCRIPT), "--measure", "untrained", "--model", "tiny?device=cpu",
            "--families", "chain_sum", "shortest_path", "--instances", "2", "--max-tokens", "4",
        ],
        capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("| family | team | surface | parse rate | success | tokens |")
    rows = [line.strip("| ").split(" | ") for line in lines[2:] if line.startswith("|")]
    assert [(row[0], row[1], row[2]) for row in rows][:4] == [
        ("chain_sum", "small", "lines"), ("chain_sum", "small", "tools"),
        ("chain_sum", "single", "lines"), ("chain_sum", "single", "tools"),
    ]  # fmt: skip
    assert len(rows) == 8
    assert all(row[4].startswith("0.000 [0.000, ") for row in rows)
    read = [row for row in rows if row[:3] == ["chain_sum", "small", "lines"]]
    assert all(row[3].startswith("0.000 [0.000, ") and int(row[5]) > int(row[6]) > 0 for row in read)
    assert all(row[3].startswith("0.000 [0.000, ") for row in rows if row[1:3] == ["small", "tools"])


class Typed:
    """The script as if typed, in this process: torch is loaded once."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cache: Path
    ) -> None:
        self._patch, self._capsys = monkeypatch, capsys
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        monkeypatch.syspath_prepend(SCRIPT.parent)

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit status, output, errors."""
        self._patch.setattr(sys, "argv", [str(SCRIPT), *words])
        with pytest.raises(SystemExit) as ended:
            importlib.import_module("real_task").main()
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Typed:
    return Typed(monkeypatch, capsys, tmp_path)


MINIATURE = [
    word
    for change in (
        "policies.orchestrator.model=tiny", "policies.worker.model=tiny", "policies.orchestrator.device=cpu",
        "policies.worker.device=cpu", 'policies.orchestrator.tiny={"width":32,"layers":1,"heads":2}',
        'policies.worker.tiny={"width":32,"layers":1,"heads":2}', "task.settings.size=3", "warm.episodes=40",
        "warm.steps=20", "warm.rows=8", "warm.learning_rate=0.01", "rollout.groups=2", "rollout.group_size=2",
        "train.steps=2", "eval.episodes=2",
    )
    for word in ("--set", change)
]  # fmt: skip
"""The recipe `reasoning` with a model of one layer in place of the pretrained one."""


def test_training_in_slices(tmp_path: Path, typed: Typed) -> None:
    out = str(tmp_path / "run")
    small = ["--train", "reasoning", "--out", out, "--instances", "2", "--tries", "2"]
    status, said, wrong = typed(*small, "--minutes", "0", *MINIATURE)
    assert status == 0, wrong
    assert "1 of 2 steps. To go on, type: python benchmarks/real_task.py --train reasoning --out" in said
    status, _, wrong = typed(*small, *MINIATURE)
    assert status == 1
    assert "leave --set out" in wrong
    status, said, wrong = typed(*small)
    assert status == 0, wrong
    assert "finished" in said
    assert {path.stem for path in (tmp_path / "run" / "examples").iterdir()} == {
        f"{who}-{number}" for who in ("base", "warm", "trained") for number in (1, 2)
    }
    status, said, wrong = typed("--compare", out, "--plot", str(tmp_path / "curves.svg"))
    assert status == 0, wrong
    [line] = ElementTree.parse(tmp_path / "curves.svg").iter("{http://www.w3.org/2000/svg}polyline")
    assert len(line.attrib["points"].split()) == 2
    whos = [
        line.split(" | ")[1] for line in said.splitlines() if line.startswith("| reasoning (chain_sum) |")
    ]
    assert whos[:7] == [
        "base", "warm", "warm, best-of-2", "warm, majority-of-2", "trained", "trained, best-of-2",
        "trained, majority-of-2",
    ]  # fmt: skip
    assert "When it stops" not in said
    assert "**The supervised start**" in said


def test_stopping_beside_fixed_rounds(tmp_path: Path, typed: Typed) -> None:
    out = str(tmp_path / "run")
    status, _, wrong = typed(
        "--train", "reasoning-stop", "--out", out, "--instances", "2", "--tries", "2", *MINIATURE
    )
    assert status == 0, wrong
    status, said, wrong = typed("--compare", out)
    assert status == 0, wrong
    table = said.partition("**When it stops, on test instances**")[2].partition("**A step**")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| reasoning")]
    assert [row[1] for row in rows] == ["base", "warm", "trained", "fixed-1", "fixed-2", "fixed-3", "found"]
    assert [row[5][:4] for row in rows[3:6]] == ["1.00", "2.00", "3.00"]
    for row in rows:
        right, tokens, earned = (float(cell.split()[0]) for cell in row[2:5])
        assert earned == pytest.approx(right - 2 * tokens / 1000, abs=0.002)


def test_a_folder_without_a_run_is_said(tmp_path: Path, typed: Typed) -> None:
    status, _, wrong = typed("--compare", str(tmp_path))
    assert status == 1
    assert "holds no run. Type: python benchmarks/real_task.py --train" in wrong
