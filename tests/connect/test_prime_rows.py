"""prime-rl's files, read back by its own definition of them, which is written out here from its source (0.8.0)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from baton.cli import main
from baton.compose.bridge_prime import write_prime_step
from baton.compose.training_rows import TrainingRow
from baton.errors import UsageError


class MicroBatch(msgspec.Struct, array_like=True, gc=False, omit_defaults=True):
    """prime_rl.transports.rollouts.types.MicroBatch, field by field."""

    input_ids: list[int]
    loss_mask: list[bool]
    advantages: list[float]
    inference_logprobs: list[float]
    position_ids: list[int]
    sequence_lengths: list[int]
    temperatures: list[float]
    env_names: list[str]
    seq_lens: list[int]
    ref_logprobs: list[float] | None = None
    routed_experts: Any = None
    mm_kwargs: Any = None
    mm_token_type_ids: list[int] | None = None
    rl_weights: list[float] | None = None
    ce_weights: list[float] | None = None
    ref_kl_weights: list[float] | None = None


def read(path: Path) -> list[MicroBatch]:
    return msgspec.msgpack.Decoder(type=list[MicroBatch]).decode(path.read_bytes())


def row(number: int, *, logprobs: list[float] | None = None) -> TrainingRow:
    said = list(range(50, 53 + number))
    return TrainingRow(
        prompt=[7, 8, 9][: 1 + number % 3], completion=said, mask=[1, 0] + [1] * (len(said) - 2),
        advantages=[0.5, 0.0] + [-1.0] * (len(said) - 2), logprobs=logprobs or [-0.1 * n for n in range(len(said))],
        group="g", policy="p", version="3", temperature=0.75, reward=None, trace="t", agent="ä", call=f"c{number}",
    )  # fmt: skip


def test_a_row_is_a_micro_batch(tmp_path: Path) -> None:
    [path] = write_prime_step([row(1)], tmp_path, step=4)
    assert path == tmp_path / "rollouts" / "step_4" / "rank_0.bin"
    [batch] = read(path)
    assert batch == MicroBatch(
        input_ids=[7, 8, 50, 51, 52, 53],
        loss_mask=[False, False, True, False, True, True],
        advantages=[0.0, 0.0, 0.5, 0.0, -1.0, -1.0],
        inference_logprobs=[0.0, 0.0, -0.0, -0.1, -0.2, pytest.approx(-0.3)],  # type: ignore[list-item]
        position_ids=[0, 1, 2, 3, 4, 5],
        sequence_lengths=[6],
        temperatures=[0.75] * 6,
        env_names=["baton"] * 6,
        seq_lens=[6],
    )


@pytest.mark.parametrize(("count", "ranks"), [(1, 3), (5, 2), (6, 3)])
def test_ranks_get_as_many_each(tmp_path: Path, count: int, ranks: int) -> None:
    """Filled up with rows that nothing is trained on, so that what is trained is what was given."""
    given = [row(number) for number in range(count)]
    found = [read(path) for path in write_prime_step(given, tmp_path, step=0, ranks=ranks)]
    assert {len(each) for each in found} == {-(-count // ranks)}
    trained = [batch for each in found for batch in each if any(batch.loss_mask)]
    assert [batch.input_ids for batch in trained] == [[*each.prompt, *each.completion] for each in given]


def test_what_it_cannot_weigh_is_refused(tmp_path: Path) -> None:
    bare = msgspec.structs.replace(row(0), logprobs=None)
    with pytest.raises(UsageError, match="no log-probabilities"):
        write_prime_step([bare], tmp_path, step=0)
    with pytest.raises(UsageError, match="no rows"):
        write_prime_step([], tmp_path, step=0)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "game")
    credited, out = str(tmp_path / "credited.jsonl"), tmp_path / "rollouts" / "step_0" / "rank_0.bin"
    play = ["run", "game:parallel-pandora", "--policy", "table", "--rollouts", "3", "--out", run]
    assert main(play) == 0
    assert main(["credit", run, "--estimator", "group", "--out", credited]) == 0
    assert main(["export", "prime-rows", credited, "--out", str(tmp_path / "rows.parquet")]) == 2
    assert "--out FILE.bin" in capsys.readouterr().err
    assert main(["export", "prime-rows", credited, "--out", str(out)]) == 0
    assert main(["export", "trl-rows", credited, "--out", str(tmp_path / "rows.jsonl")]) == 0
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    batches = read(out)
    assert [each.input_ids for each in batches] == [
        line["prompt_ids"] + line["completion_ids"] for line in lines
    ]
    assert [sum(each.advantages) for each in batches] == pytest.approx(
        [sum(line["advantages"]) for line in lines]
    )


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = Path(__file__).parents[2] / "examples" / "bridges" / "prime_rl.py"
    spec = importlib.util.spec_from_file_location("prime_rl_example", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = module.main(tmp_path, steps=1)
    assert [path.name for path in written] == ["rank_0.bin", "rank_1.bin"]
    for path in written:
        for batch in read(path):
            sizes = {
                len(batch.input_ids),
                len(batch.loss_mask),
                len(batch.advantages),
                len(batch.inference_logprobs),
            }
            assert sizes == {batch.sequence_lengths[0]}
            assert all(value <= 0 for value in batch.inference_logprobs)
