"""A call that weights changed under says which drew which tokens, in every format and everywhere it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from baton.compose.training_rows import TrainingRow, trl_row, verl_row, write_rows
from baton.engine.scripted import ScriptedEngine
from baton.team.question import has_weights
from baton.trace import Trace, read_all, validate, write
from baton.trace.canonical import canonical_hash
from baton.trace.records import Call, Event, Floats, Ints, VersionSpan
from baton.trace.trace import Header
from baton.view.terminal.prompts import call_rows

SPANS = (
    VersionSpan(version="7", end=2),
    VersionSpan(version="8", end=3),
    VersionSpan(version="nine/é", end=5),
)


def _call(**more: object) -> Call:
    fields = {
        "id": "c0", "agent": "lead", "policy": "p", "policy_version": "7", "versions": SPANS,
        "prompt_ids": Ints([4, 5]), "completion_ids": Ints([1, 2, 3, 2, 1]), "logprobs": Floats([-0.1] * 5),
    }  # fmt: skip
    return Call(**{**fields, **more})  # type: ignore[arg-type]


def _trace(*calls: Call) -> Trace:
    events = [Event(id="e0", t=0.0, type="orchestrator_decision", agent="lead", seq=0, call=calls[0].id)]
    return Trace(
        header=Header(trace_id="t", system="s", task_id="k"), events=tuple(events), calls=calls,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["t.jsonl", "t.sqlite", "sealed/"])
def test_they_come_back_from_every_format(tmp_path: Path, name: str) -> None:
    trace = _trace(_call(), _call(id="c1", versions=None))
    write(trace, f"{tmp_path}/{name}")
    (back,) = read_all(f"{tmp_path}/{name}")
    assert [call.versions for call in back.calls] == [SPANS, None]
    assert canonical_hash(back) == canonical_hash(trace)


def test_the_hash_of_calls_without_them_is_as_it_was() -> None:
    """Written down before the field was there: a trace of one version keeps its hash."""
    plain = _trace(_call(versions=None))
    assert canonical_hash(plain) == "fd50e2ffb3eefe54f2efb53c8e48325bb43861f1"
    assert canonical_hash(plain) != canonical_hash(_trace(_call()))
    other = (SPANS[0], structs.replace(SPANS[1], end=4), SPANS[2])
    assert canonical_hash(_trace(_call())) != canonical_hash(_trace(_call(versions=other)))


@pytest.mark.parametrize(
    ("versions", "was"),
    [
        ((VersionSpan(version="7", end=2), VersionSpan(version="8", end=4)), "end at token 4"),
        ((VersionSpan(version="7", end=2), VersionSpan(version="8", end=6)), "end at token 6"),
        (
            (
                VersionSpan(version="7", end=3),
                VersionSpan(version="8", end=3),
                VersionSpan(version="9", end=5),
            ),
            "3 after 3",
        ),
        ((VersionSpan(version="8", end=5),), "begin with '8'"),
        ((), "none"),
    ],
)
def test_what_does_not_fit_is_a_problem(versions: tuple[VersionSpan, ...], was: str) -> None:
    problems = [
        each for each in validate(_trace(_call(versions=versions))) if each.code == "structure/versions"
    ]
    assert len(problems) == 1
    assert was in str(problems[0])
    assert not [each for each in validate(_trace(_call())) if each.code == "structure/versions"]


def test_training_rows_name_the_version_of_each_token(tmp_path: Path) -> None:
    row = TrainingRow(
        prompt=[4, 5], completion=[1, 2, 3, 2, 1], mask=[1] * 5, advantages=[0.5] * 5, logprobs=None, group="g",
        policy="p", version="7", versions=["7", "7", "8", "nine/é", "nine/é"], temperature=1.0, reward=None, trace="t",
        agent="lead", call="c0",
    )  # fmt: skip
    for named, form in ((trl_row, "trl-rows"), (verl_row, "verl-rows")):
        assert named(row)["policy_versions"] == ["7", "7", "8", "nine/é", "nine/é"]
        parquet = pytest.importorskip("pyarrow.parquet")
        write_rows([row, structs.replace(row, versions=None)], form, tmp_path / f"{form}.parquet")
        told = parquet.read_table(tmp_path / f"{form}.parquet").to_pylist()
        assert [each["policy_versions"] for each in told] == [row.versions, None]


def test_people_see_them() -> None:
    shown = "\n".join(text for text, _ in call_rows(_trace(_call()), _call()))
    assert "7 up to token 2, 8 up to 3, nine/é up to 5" in shown


def test_no_engine_has_the_weights_of_a_mixed_call() -> None:
    engine = ScriptedEngine("s", lambda _: "x")
    engine.version = "7"
    assert has_weights(_call(versions=None), engine)
    assert not has_weights(_call(), engine)
