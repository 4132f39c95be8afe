"""Credit as it is asked for from the command line: one rollout is refused, forks are bounded and it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from baton.cli import main
from baton.credit import ESTIMATORS
from baton.trace.formats import read

COMPARING = sorted(name for name, each in ESTIMATORS.items() if {"group", "values or group"} & each.needs)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A single rollout."""
    place = tmp_path_factory.mktemp("one rollout") / "run"
    assert main(["run", "shard-sum", "--seed", "3", "--out", str(place)]) == 0
    return str(place)


@pytest.mark.parametrize("name", COMPARING)
def test_one_rollout_is_an_error_and_not_zeros(
    one: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """agent-, role-, input- and turn-group and return-to-go gave zeros."""
    capsys.readouterr()
    assert main(["credit", one, "--estimator", name]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert told.err.startswith("baton credit: ")
    assert "Traceback" not in told.err


def test_a_debate_is_replayed_within_a_bound_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everybody hears everybody, so each message is followed by most of the run."""
    place = str(tmp_path / "debate")
    sizes = ["--set", "topology.debaters=9", "--set", "topology.rounds=4"]
    assert main(["run", "shard-sum", "--topology", "debate", *sizes, "--out", place]) == 0
    trace = read(place)
    whole = sum((call.completion_tokens or 0) + len(call.prompt_ids or ()) for call in trace.calls)

    def asked(*more: str) -> tuple[int, set[str]]:
        capsys.readouterr()
        assert main(["credit", place, "--estimator", "message-replay", "--json", *more]) == 0
        credits = json.loads(capsys.readouterr().out)["traces"][0]["credits"]
        notes = {note for credit in credits for note in credit["assumes"]}
        return sum(credit["cost_tokens"] for credit in credits), notes

    cost, notes = asked()
    free, unsaid = asked("--set", "spend=1000")
    assert 0 < cost <= 20 * whole
    assert cost < free
    assert any("bound by spend 20" in note for note in notes)
    assert not any("spend" in note for note in unsaid)
