"""Running the same seed again gives the same draws: they are shown, and count once."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import made, traces
from msgspec import structs

import baton
from baton.cli import main
from baton.trace.formats import write
from baton.trace.trace import drawn, repeats

NOISY = """
from baton.tasks.shard_sum import play as right
from baton.team.clock import uniform

def play(request):
    said = right(request)
    wrong = request.agent == "worker1" and uniform(request.sampling.key) < 0.5
    return said + "7" if said.startswith("return") and wrong else said
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five rollouts of one instance, the second of them twice."""
    (tmp_path / "noisy_play.py").write_text(NOISY)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "odd name"
    words = [
        "run",
        "shard-sum",
        "--policy",
        "scripted:noisy_play:play",
        "--instances",
        "4",
        "--out",
        str(out),
    ]
    assert main([*words, "--rollouts", "5"]) == 0
    first = traces(out)
    again = structs.replace(first[1], header=structs.replace(first[1].header, trace_id="by another name"))
    write([*first, again], tmp_path / "group.jsonl")
    return tmp_path / "group.jsonl"


def test_a_second_run_of_a_seed_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path, "--seed", "5")
    assert "draw for draw" not in capsys.readouterr().out
    made(tmp_path, "--seed", "5")
    told = capsys.readouterr().out
    assert (
        "again    as shard-sum-centralized-5, draw for draw: the two count as one rollout. For another: --seed 6"
        in told
    )
    first, second = traces(tmp_path)
    assert second.trace_id == "shard-sum-centralized-5.2"
    assert repeats([first, second]) == {1: 0}
    assert main(["credit", str(tmp_path), "--estimator", "group", "--unit", "team"]) == 2
    assert "the seed of another" in capsys.readouterr().err  # a group of one


def test_a_repeat_changes_no_credit_and_no_figure(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_repeat = traces(place)
    alone = with_repeat[:5]
    assert drawn(with_repeat) == alone
    values, expected = (
        [[credit.value for credit in each.credits] for each in baton.credit(given, "group", unit="team")]
        for given in (with_repeat, alone)
    )
    assert values == [*expected, []]
    assert len({value for mine in expected for value in mine}) > 1
    assert main(["credit", str(place), "--estimator", "group", "--unit", "team"]) == 0
    told = capsys.readouterr().err
    assert "a repeat, draw for draw, is no rollout of its own: by another name (" in told
    assert main(["measure", str(place)]) == 0
    out = capsys.readouterr()
    assert "1 repeat left out" in out.err
    assert out.out.startswith("5 traces measured")


def test_what_was_said_otherwise_is_a_draw_of_its_own(place: Path) -> None:
    first = traces(place)[0]
    call = structs.replace(first.calls[-1], completion_ref="b2:" + "0" * 40)
    other = structs.replace(first, calls=(*first.calls[:-1], call))  # a server that does not keep to its seed
    unkeyed = structs.replace(first, calls=tuple(structs.replace(c, sampling=None) for c in first.calls))
    newer = structs.replace(first, calls=tuple(structs.replace(c, policy_version="9") for c in first.calls))
    assert repeats([first, other, newer, unkeyed, unkeyed]) == {}
    assert repeats([other, first, other, first]) == {2: 0, 3: 1}
