"""Result 17: every credit is tuned as much, only whole seeds count, and the start is taught until it wavers."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PLACE = Path(__file__).parents[2] / "benchmarks" / "learning"


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(PLACE))
    before = set(sys.modules)
    yield importlib.import_module("result17_diffusion_smollm2")
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(PLACE) in str(sys.modules[name].__file__):
            del sys.modules[name]


def record(job: dict[str, Any], end: float = 0.7) -> dict[str, Any]:
    """A run that ends so well."""
    kept = {key: job[key] for key in ("arm", "seed", "n", "credit", "still", "rate")}
    if job["still"]:
        return kept | {"p": 0.6, "q": 0.6, "gradients": [0.1, 0.3], "tokens": 10}
    return kept | {"curve": [[0, 0.6, 0.6], [160_000, end, end]], "steps": 3, "failed": 0.0}


def test_every_credit_is_tuned_as_much_and_on_no_test_seed(result: ModuleType) -> None:
    tuning = [job for job in result.first_jobs("start", quick=False) if job["seed"] == result.TUNING]
    assert set(Counter((job["n"], job["credit"]) for job in tuning).values()) == {len(result.RATES)}
    rates = result.chosen([record(job, 0.5 + 1000 * job["rate"]) for job in tuning])
    tests = [job for job in result.test_jobs("start", rates, quick=False) if not job["still"]]
    assert {job["rate"] for job in tests} == {max(result.RATES)}
    assert not {result.START, result.TUNING, 2000} & {job["seed"] for job in tests}
    assert len({json.dumps(job, sort_keys=True) for job in [*tuning, *tests]}) == len(tuning) + len(tests)


def test_a_size_takes_the_rate_of_the_nearest_below_that_was_tuned(result: ModuleType) -> None:
    assert [result.tuned_at(n) for n in (2, 8, 32, 128)] == [8, 8, 32, 32]


def test_seeds_that_a_cut_left_half_are_left_out(
    result: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rates = dict.fromkeys(((n, c) for n in result.TUNED for c in result.CREDITS), 1e-5)
    first, tests = result.first_jobs("start", quick=False), result.test_jobs("start", rates, quick=False)
    num_smaller = len(result.SMALL) * len(result.CREDITS)
    part = tmp_path / "part.jsonl"
    whole = [json.dumps(["key", record(job)]) for job in [*first, *tests[: 2 * num_smaller + 1]]]
    part.write_text("\n".join(whole) + '\n["key", {"arm', "utf-8")
    monkeypatch.setattr(result, "PART", part)
    kept = result.gathered(result.read_part(), {"looked": [[0.0, 30, 0.99, 0.98], [0.75, 20, 0.6, 0.63]]})
    assert Counter(each["seed"] for each in kept["test"] if not each["still"]) == dict.fromkeys(
        (0, 1), num_smaller
    )
    assert [each["seed"] for each in kept["left_out"]] == [2]
    lines = result.table(kept).splitlines()
    assert lines[-1].startswith("The start: 30 steps with 0 of the reports tossed, then right in 0.990")
    assert sum("| 2 |" in line for line in lines) == num_smaller


def test_a_broken_run_is_told_and_does_not_count(result: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = result.first_jobs("start", quick=False)
    tries = []

    def full(job: dict[str, Any]) -> None:
        tries.append(job)
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(result, "timed", full)
    monkeypatch.setattr(result, "WAIT", 0.0)
    broken = result.worker(jobs[-1])
    assert len(tries) == result.TRIES
    kept = result.gathered([record(jobs[-2]), broken], {"looked": [[0.0, 10, 0.9, 0.9]]})
    assert [len(kept[part]) for part in ("tuning", "test", "broken")] == [1, 0, 1]
    assert "broken: fork, n = 32, rate 3e-05, seed 1001, RuntimeError: CUDA out of memory" in result.table(
        kept
    )


def test_the_start_is_taught_until_both_chances_are_where_they_should_be(
    result: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Saved:
        device = type("device", (), {"type": "cpu"})
        dtype = "float32"

        def to(self, where: str) -> Saved:
            assert where == "cpu"
            return self

        def save_pretrained(self, place: Path) -> None:
            (place / "weights").touch()

    looked = iter([[0.97, 0.6], [0.96, 0.99], [0.9, 0.62], [0.65, 0.6], [0.0, 0.0]])
    monkeypatch.setattr("baton.learn.models.load_model", lambda _: (Saved(), Saved()))
    monkeypatch.setattr("baton.learn.models.start.spoken_rows", lambda _, spoken: list(spoken))
    monkeypatch.setattr("baton.learn.models.start.warm_rows", lambda *_, **__: 0.0)
    monkeypatch.setattr(result.there, "chances", lambda *_: next(looked))
    result.make_start("a model", result.WARM | {"instances": 5}, tmp_path)
    facts = json.loads((tmp_path / "start.json").read_text("utf-8"))
    assert [each[:2] for each in facts["looked"]] == [[0.0, 10], [0.0, 20], [0.75, 10], [0.75, 20]]
    assert (tmp_path / "weights").exists()


def test_the_picture_is_that_of_the_records_kept(result: ModuleType) -> None:
    rows = result.there.rows(json.loads(result.KEPT.read_text("utf-8"))["test"])
    kept = (PLACE.parents[1] / "docs" / "images" / "credit_diffusion_smollm2.svg").read_text("utf-8")
    assert result.draw(rows, result.fast) == kept


def test_what_was_tuned_and_tested_is_what_the_protocol_says(result: ModuleType) -> None:
    kept = json.loads(result.KEPT.read_text("utf-8"))
    rates = result.chosen(kept["tuning"])
    assert len(kept["tuning"]) == len(result.TUNED) * len(result.CREDITS) * len(result.RATES)
    runs = [each for each in kept["test"] if not each["still"]]
    assert all(each["rate"] == rates[result.tuned_at(each["n"]), each["credit"]] for each in runs)
    assert all(each["curve"][-1][0] >= result.TOKENS and not each["failed"] for each in runs)
    cells = Counter((each["n"], each["credit"]) for each in runs)
    assert set(cells) == {(n, c) for n in result.SMALL for c in result.CREDITS}
    assert len(set(cells.values())) == 1
    assert not kept["broken"]
