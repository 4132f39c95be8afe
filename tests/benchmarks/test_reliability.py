"""The campaigns of faults in small: each finds its faults, and nothing that is promised is broken."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import reliability
from baton.team.budget import Budget, Reservation
from campaigns.campaign import Row, Tally, run_child
from campaigns.full_disk import can_fill, run_on_full_disk
from campaigns.ledger import ledger
from campaigns.run_kills import _count
from campaigns.scale_kills import _children

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes"),
    pytest.mark.filterwarnings(
        "ignore:This process:DeprecationWarning"
    ),  # forks beside the threads of pytest's workers
]


@pytest.mark.parametrize("name", list(reliability.CAMPAIGNS))
def test_campaigns(name: str) -> None:
    command = [sys.executable, reliability.__file__, "--quick", "--only", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("|")][2:]
    assert rows
    for what, tries, faults, *_ in rows:
        assert int(tries.replace(",", "")) > 0, what
        assert int(faults.replace(",", "")) > 0, what


def test_a_row_is_clean_when_nothing_promised_is_broken() -> None:
    tally = Tally("x")
    assert tally.row().is_clean
    tally.silent("a flip")
    assert not tally.row().is_clean
    assert tally.row().notes == ("x: silent: a flip",)
    told = Row(
        what="x", tries=1, faults=1, lost=0, wrong=0, silent=1, unclear=0, seconds=0.0, is_checked=False
    )
    assert told.is_clean


def test_a_child_is_killed_and_what_it_acknowledged_is_kept(tmp_path: Path) -> None:
    def work(pipe: int) -> None:
        print("said", flush=True)
        os.write(pipe, b"one\ntwo\nthr")
        os.kill(os.getpid(), signal.SIGKILL)

    died = run_child(work, tmp_path / "said")
    assert (died.killed, died.code, died.said) == (True, -9, "said\n")
    assert died.lines() == ["one", "two"]
    ended = run_child(lambda _: 3, tmp_path / "said")
    assert (ended.killed, ended.code, ended.said) == (False, 3, "")


@pytest.mark.skipif(not can_fill(), reason="Linux on x86-64")
@pytest.mark.parametrize(("full_from", "full_for", "kept"), [(9, 9, 5), (1, 1, 4), (2, 9, 1), (0, 9, 0)])
def test_a_disk_is_full_for_one_process_alone(
    tmp_path: Path, full_from: int, full_for: int, kept: int
) -> None:
    place = tmp_path / "disk"
    place.mkdir()

    def work(pipe: int) -> None:
        (tmp_path / "elsewhere").write_text("not asked about")
        try:
            file = os.open(place / "file", os.O_WRONLY | os.O_CREAT)  # the first write
        except OSError as error:
            os.write(pipe, f"{error.strerror}\n".encode())
            return
        for _ in range(5):
            try:
                os.write(file, b"x")
            except OSError as error:
                os.write(pipe, f"{error.strerror}\n".encode())

    died, count = run_on_full_disk(work, place, tmp_path / "said", full_from=full_from, full_for=full_for)
    assert died.code == 0, died.said
    assert set(died.lines()) <= {"No space left on device"}
    assert len(died.lines()) == (5 - kept if full_from else 1)
    assert count == (6 if full_from else 1)
    if full_from:
        assert (place / "file").read_bytes() == b"x" * kept


def test_the_ledger_campaign_sees_a_budget_that_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ledger(400, 3, tmp_path).is_clean
    close = Reservation._close

    def forgetful(self: Reservation, changes: tuple[tuple[int, int, int], ...]) -> None:
        close(self, tuple((index, held, spent // 2) for index, held, spent in changes))

    monkeypatch.setattr(Reservation, "_close", forgetful)
    assert ledger(400, 3, tmp_path).wrong > 0
    monkeypatch.undo()
    monkeypatch.setattr(Budget, "_take", lambda self, asked: Reservation(self, asked))
    assert ledger(400, 3, tmp_path).wrong > 0


def test_only_answers_that_were_heard_are_paid_for_twice() -> None:
    def logged(*lines: tuple[float, str]) -> list[dict[str, object]]:
        return [{"t": t, "what": what, "name": "run", "key": "k"} for t, what in lines]

    def lost(kills: list[float], *lines: tuple[float, str]) -> int:
        tally = Tally("x")
        _count(tally, "here", logged(*lines), "run", kills)
        return tally.row().lost

    again = ((0.0, "asked"), (1.0, "answered"), (5.0, "asked"), (6.0, "answered"))
    assert lost([2.5], *again) == 1
    assert lost([1.1], *again) == 0  # on its way to the journal
    assert lost([0.5], *again) == 0  # nobody was there to hear it
    assert lost([2.0], *again[:2]) == 0


def test_the_page_names_tests_that_are_there() -> None:
    root = Path(__file__).parents[2]
    named = set(re.findall(r"`(test_\w+)`", (root / "docs" / "reliability.md").read_text()))
    assert len(named) > 10
    known = {
        name
        for path in root.glob("tests/*/test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert named <= known, named - known


def test_children_are_those_of_one_process() -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "baton"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE) as mine,
        subprocess.Popen(command[:3], stdin=subprocess.PIPE) as other,
    ):
        found = _children(os.getpid())
        assert mine.pid in found
        assert other.pid not in found  # what runs no Baton is left alone
        assert mine.stdin is not None
        assert other.stdin is not None
        mine.stdin.close()
        other.stdin.close()
