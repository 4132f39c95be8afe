"""Rows for other trainers: ids as sampled, masks and advantages against a plain computation."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

import baton
from baton.cli import main
from baton.compose.training_rows import training_rows, trl_row, verl_row
from baton.trace.formats import read_all
from baton.trace.records import Credit, Sampling
from baton.trace.trace import Trace

TEAM, SPAWN, SENT, TURN = 2.0, -1.0, 0.5, 4.0


def credited() -> tuple[Trace, Trace]:
    """A lead that reasons, spawns, reasons, sends, is forced to stop; a worker whose call has no log-probabilities."""
    with baton.Recorder(None, task_id="t", trace_id="one") as team:
        lead = team.agent("lead", role="orchestrator")
        call = lead.call(
            prompt_ids=[1, 2, 3], completion_ids=[10, 11, 12, 13, 14, 15, 16, 17, 18], policy="p",
            logprobs=[-0.1 * n for n in range(1, 10)], policy_version="v7", sampling=Sampling(temperature=0.8),
        )  # fmt: skip
        worker = lead.spawn("worker", task="x", span=(2, 4))
        lead.send(worker, "hurry", span=(5, 7))
        lead.stop("enough", span=(7, 9), status="forced")
        first = team.trace()
    with baton.Recorder(None, task_id="t", trace_id="two") as team:
        alone = team.agent("alone")
        alone.call(prompt_ids=[1], completion_ids=[7, 8], policy="q")
        alone.stop("done")
        team.reward("shared", 1.0)
        second = team.trace()
    spawn, sent = (next(e.id for e in first.events if e.type == kind) for kind in ("spawn", "message"))
    credits = [
        Credit(unit="orchestrator", target=spawn, value=SPAWN, estimator="fine"),
        Credit(unit="message", target=sent, value=SENT, estimator="fine"),
        Credit(unit="team", target="one", value=TEAM, estimator="coarse"),
    ]
    del call
    turn = Credit(unit="turn", target=second.calls[0].id, value=TURN, estimator="coarse")
    return first.with_records(credits=credits), second.with_records(credits=[turn])


def test_masks_and_advantages_by_hand() -> None:
    """Tokens 0..3 lead up to the spawn and say it, 4..6 the message, 7 and 8 a stop that nobody chose."""
    first, second = credited()
    fine, other = [*training_rows([first], estimator="fine"), *training_rows([second])]
    assert fine.prompt == [1, 2, 3]
    assert fine.completion == [10, 11, 12, 13, 14, 15, 16, 17, 18]
    assert fine.mask == [1, 1, 1, 1, 1, 1, 1, 0, 0]
    assert fine.advantages == pytest.approx([SPAWN] * 4 + [SENT] * 3 + [0, 0])
    assert fine.logprobs == pytest.approx([-0.1 * n for n in range(1, 10)])
    assert (fine.version, fine.temperature, fine.policy, fine.agent) == ("v7", 0.8, "p", "lead")
    assert fine.reward is None  # nobody gave one
    assert (other.mask, other.advantages, other.logprobs, other.reward) == ([1, 1], [TURN, TURN], None, 1.0)


def test_layers_take_what_finer_ones_left() -> None:
    """As Baton's own trainer: a token that a finer credit reaches is not reached by a coarser one."""
    (row,) = training_rows([credited()[0]])
    assert row.advantages == pytest.approx([SPAWN] * 4 + [SENT] * 3 + [0, 0])
    (row,) = training_rows([credited()[0]], estimator="coarse")
    assert row.advantages == pytest.approx([TEAM] * 7 + [0, 0])


def group(tmp_path: Path) -> tuple[Path, list[Trace]]:
    runs, out = tmp_path / "runs", tmp_path / "credited.jsonl"
    run = ["run", "game:parallel-pandora", "--policy", "table", "--rollouts", "5", "--seed", "11"]
    assert main([*run, "--out", str(runs)]) == 0
    assert main(["credit", str(runs), "--estimator", "group", "--out", str(out)]) == 0
    return out, list(read_all(out))


def rows_of_file(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_dataset("parquet", data_files=str(path), cache_dir=str(path.parent / "cache"))
    return list(loaded["train"])


@pytest.mark.parametrize("form", ["trl-rows", "verl-rows"])
@pytest.mark.parametrize("ending", [".parquet", ".jsonl"])
def test_a_group_as_another_program_reads_it(tmp_path: Path, form: str, ending: str) -> None:
    source, traces = group(tmp_path)
    out = tmp_path / f"rows{ending}"
    assert main(["export", form, str(source), "--out", str(out)]) == 0
    rows = rows_of_file(out)
    prompt, said, mask, probs = (
        ("prompt_ids", "completion_ids", "tool_mask", "old_per_token_logps")
        if form == "trl-rows"
        else ("prompts", "responses", "response_mask", "rollout_log_probs")
    )
    # The plain formula of group-relative advantages (as TRL has it), from the traces' own rewards.
    returns = {trace.trace_id: sum(reward.value for reward in trace.rewards) for trace in traces}
    mean, spread = fmean(returns.values()), stdev(returns.values())
    calls = {(trace.trace_id, call.id): (trace, call) for trace in traces for call in trace.calls}
    assert {(row["trace_id"], row["call"]) for row in rows} == set(calls)
    for row in rows:
        trace, call = calls[row["trace_id"], row["call"]]
        size = len(call.completion_ids or ())
        assert row[prompt] == list(trace.prompt_ids(call) or ())
        assert row[said] == list(call.completion_ids or ())
        assert row[mask] == [1] * size
        assert row[probs] == pytest.approx(list(call.logprobs or ()))
        assert row["advantages"] == pytest.approx(
            [(returns[row["trace_id"]] - mean) / (spread + 1e-4)] * size
        )
        assert row["reward"] == pytest.approx(returns[row["trace_id"]])
        assert row["policy_version"] == call.policy_version


def test_names_are_those_of_the_trainers() -> None:
    row = next(training_rows([credited()[0]]))
    assert trl_row(row).keys() >= {
        "prompt_ids",
        "completion_ids",
        "tool_mask",
        "advantages",
        "old_per_token_logps",
    }
    assert verl_row(row).keys() >= {
        "prompts",
        "responses",
        "response_mask",
        "advantages",
        "rollout_log_probs",
        "uid",
    }


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, _ = group(tmp_path)
    bare = tmp_path / "runs"
    out = str(tmp_path / "rows.jsonl")
    for args, told in (
        (["export", "trl-rows", str(bare), "--out", out], "Type: baton credit"),
        (["export", "trl-rows", str(source), "--estimator", "grup", "--out", out], "'group'"),
        (["export", "html", str(source), "--estimator", "group", "--out", out], "--estimator is for rows"),
        (
            ["export", "verl-rows", str(source), "--without-payloads", "--out", out],
            "leave --without-payloads out",
        ),
    ):
        capsys.readouterr()
        assert main(args) == 2
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1
    assert not Path(out).exists()


def test_a_step_of_trls_trainer(tmp_path: Path) -> None:
    """TRL's own loss over exported rows, where nothing has moved: the mean of -advantage over the tokens that count."""
    trl = pytest.importorskip("trl", exc_type=ImportError)
    from trl_rows import batch_of, small_trainer

    source, _ = group(tmp_path)
    out = tmp_path / "rows.jsonl"
    assert main(["export", "trl-rows", str(source), "--out", str(out)]) == 0
    rows = rows_of_file(out)[:4]
    # A table says one token: here they are of unequal lengths, one of them masked.
    for length, row in enumerate(rows, 1):
        row["prompt_ids"] = [each % 97 for each in row["prompt_ids"][: 5 + length]]
        row["completion_ids"] = [(row["completion_ids"][0] + n) % 97 for n in range(length)]
        row["advantages"] = [row["advantages"][0] + n for n in range(length)]
        row["tool_mask"] = [1] * (length - 1) + [int(length != 3)]
        row["old_per_token_logps"] = None
    trainer = small_trainer(trl, tmp_path)
    loss = trainer.training_step(trainer.model, batch_of(rows), None)
    trained = [
        [a for a, kept in zip(row["advantages"], row["tool_mask"], strict=True) if kept] for row in rows
    ]
    assert float(loss) == pytest.approx(fmean(-fmean(each) for each in trained), abs=1e-5)
    grads = [parameter.grad for parameter in trainer.model.parameters() if parameter.grad is not None]
    assert sum(float(grad.abs().sum()) for grad in grads) > 0
