"""Runs in folders: begun, cut off, gone on with, finished; full disks and diverged losses."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from small_run import COMA, GROUP, small

from baton.compose.training import MAY_CHANGE, begin, go_on, make_trainer, may_change, open_run
from baton.errors import CorruptError, UsageError
from baton.learn.recipe import load, parse
from baton.learn.run import checkpoint
from baton.learn.run.folder import Folder, read_lines
from baton.learn.run.session import Session
from baton.learn.trainer import Diverged, Trainer
from baton.trace.formats import read_all
from baton.trace.records import Credit

pytestmark = pytest.mark.usefixtures("first_weights")
TIMES = ("seconds", "rollout_seconds", "update_seconds", "tokens_per_second", "idle")
NETWORK = (
    '[[credit]]\nestimator = "gae"\nsettings = {gamma = 1.0}\n'
    '[critic]\nkind = "network"\nsteps = 3\nlearning_rate = 0.003\n'
)


def numbers(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what depends on the clock."""
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def whole(out: Path, recipe: Any) -> list[dict[str, Any]]:
    session = begin(recipe, "small", out)
    found = list(session.steps())
    session.finish()
    session.close()
    return numbers(found)


@pytest.mark.parametrize(
    ("more", "changes"),
    [
        (NETWORK, {}),
        (GROUP, {"rollout__overlap": True, "rollout__replay": 2, "rollout__staleness": 2}),
        (GROUP, {"rollout__overlap": True, "policies__main__train": "lora"}),
    ],
    ids=["network", "overlap and replay", "overlap with an adapter"],
)
def test_a_run_that_is_cut_off_gives_the_same_numbers(
    tmp_path: Path, more: str, changes: dict[str, Any]
) -> None:
    recipe = small(more, **changes)
    expected = whole(tmp_path / "whole", recipe)
    session = begin(recipe, "small", tmp_path / "cut")
    steps = session.steps()
    for _ in range(3):
        next(steps)
    session.close()  # the last checkpoint is of step 2, so step 3 is done again
    again = go_on(tmp_path / "cut")
    assert again.trainer.step_number == 2
    list(again.steps())
    again.finish()
    again.close()
    lines = read_lines(tmp_path / "cut" / "metrics.jsonl")
    assert numbers(lines) == expected
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    for name in ("whole", "cut"):
        told = json.loads((tmp_path / name / "run.json").read_text())
        assert told["status"] == "finished"
    ends = [numbers(read_lines(tmp_path / name / "evals.jsonl")) for name in ("whole", "cut")]
    assert ends[0] == ends[1]


def test_cut_off_before_the_first_checkpoint_it_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(train__steps=1)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "checkpoint", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            begin(recipe, "small", tmp_path / "run")
    session = go_on(tmp_path / "run")
    assert [line["step"] for line in session.steps()] == [1]
    session.close()
    who = [line["who"] for line in read_lines(tmp_path / "run" / "evals.jsonl")]
    assert who.count("untrained") == 1


def test_a_finished_run_says_so(tmp_path: Path) -> None:
    whole(tmp_path / "run", small(train__steps=1))
    with pytest.raises(UsageError, match="finished: all 1 steps are done"):
        go_on(tmp_path / "run")


def examples(out: Path) -> dict[str, str]:
    """Example traces -> which weights played them."""
    found = {}
    for trace in read_all(out / "traces" / "run.db"):
        if trace.trace_id.startswith(("before-", "after-")):
            found[trace.trace_id] = "".join({call.policy_version or "" for call in trace.calls})
    return found


def test_a_finished_run_goes_on_for_more_steps(tmp_path: Path) -> None:
    whole(tmp_path / "long", small(train__steps=4))
    out = tmp_path / "run"
    whole(out, small(train__steps=2))
    assert set(examples(out).values()) == {"0", "2"}
    session = go_on(out, changes=["train.steps=4"])
    assert [line["step"] for line in session.steps()] == [3, 4]
    session.finish()
    session.close()
    for name in ("metrics.jsonl", "evals.jsonl"):
        assert numbers(read_lines(out / name)) == numbers(read_lines(tmp_path / "long" / name))
    assert examples(out) == examples(tmp_path / "long"), "those of the end are of the new end"
    assert set(examples(out).values()) == {"0", "4"}
    told = json.loads((out / "run.json").read_text())
    assert (told["steps"], told["status"]) == (4, "finished")
    assert told["changes"] == [{"step": 2, "set": ["train.steps=4"]}]
    assert parse((out / "recipe.toml").read_text()).train.steps == 4


def test_a_run_goes_on_with_another_learning_rate(tmp_path: Path) -> None:
    out = tmp_path / "run"
    session = begin(small(), "small", out)
    steps = session.steps()
    for _ in range(3):
        next(steps)
    session.close()
    again = go_on(out, changes=["train.learning_rate=0.0001"])
    optimizer = again.trainer.policies["main"].optimizer
    assert optimizer is not None
    assert [group["lr"] for group in optimizer.param_groups] == [0.0001]
    kept = {trace.trace_id for trace in read_all(out / "traces" / "run.db")}
    assert next(again.steps())["step"] == 3
    again.close()
    assert any(name.startswith("step-0002") for name in kept)
    assert not any(name.startswith("step-0003") for name in kept), "step 3 is played by other weights now"


def test_rates_that_a_run_can_go_on_with_are_those_it_has() -> None:
    assert may_change(small())[len(MAY_CHANGE) :] == ("policies.main.learning_rate",)
    assert "critic.learning_rate" not in may_change(small(COMA))
    assert "critic.learning_rate" in may_change(small(NETWORK))
    assert "policies.workers.learning_rate" not in may_change(load("parl"))


def test_a_policys_own_rate_is_what_to_lower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    session = begin(small(policies__main__learning_rate=0.003), "small", out)
    monkeypatch.setattr("torch.nn.utils.clip_grad_norm_", lambda *_: float("nan"))
    with pytest.raises(Diverged, match=r"Lower policies\.main\.learning_rate") as caught:
        next(session.steps())
    session.close()
    assert caught.value.lower == "policies.main.learning_rate"
    again = go_on(out, changes=["policies.main.learning_rate=0.001"])
    optimizer = again.trainer.policies["main"].optimizer
    assert optimizer is not None
    assert [group["lr"] for group in optimizer.param_groups] == [0.001]
    again.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("rollout.groups=2", "Expected one of: policies.main.learning_rate, scale"),
        ("train.stepz=9", "Did you mean 'train.steps'"),
        ("train.steps=1", "and 2 are done"),
        ("train.learning_rate=-1", "above 0"),
    ],
)
def test_a_run_does_not_go_on_with_what_it_was_not(tmp_path: Path, change: str, says: str) -> None:
    session = begin(small(), "small", tmp_path / "run")
    steps = session.steps()
    for _ in range(3):
        next(steps)
    session.close()
    with pytest.raises(UsageError, match=says):
        go_on(tmp_path / "run", changes=[change])


def test_a_checkpoint_that_leads_nowhere_is_not_the_last_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = begin(small(train__checkpoint_every=1), "small", tmp_path / "run")
    next(session.steps())
    session.close()
    monkeypatch.setattr(Trainer, "step", lambda self: (_ for _ in ()).throw(Diverged("nan.")))
    for says, left in (
        ("no going on from step-00001, so it is gone; the last good checkpoint is step-00000", "step-00000"),
        ("The last good checkpoint is step-00000", "step-00000"),
    ):
        again = go_on(tmp_path / "run")
        with pytest.raises(Diverged, match=says):
            next(again.steps())
        again.close()
        assert checkpoint.latest(tmp_path / "run" / "checkpoints").name == left


def test_a_critic_that_diverged_is_not_kept(tmp_path: Path) -> None:
    session = begin(small(NETWORK, train__checkpoint_every=1), "small", tmp_path / "run")
    steps = session.steps()
    next(steps)
    net = session.trainer.critic.net  # type: ignore[attr-defined]  # the network's
    observe = session.trainer.critic.observe

    def broken(traces: Any) -> None:
        observe(traces)
        next(iter(net.parameters())).data.fill_(float("nan"))

    session.trainer.critic.observe = broken  # type: ignore[method-assign]  # one that diverges
    with pytest.raises(Diverged, match=r"critic\.learning_rate.*last good checkpoint is step-00001"):
        next(steps)
    session.close()
    assert checkpoint.latest(tmp_path / "run" / "checkpoints").name == "step-00001"
    assert "step-00001" in json.loads((tmp_path / "run" / "run.json").read_text())["why"]


def test_a_return_that_is_no_number_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = begin(small(COMA), "small", tmp_path / "run")
    credit = session.trainer.crediting.credit

    async def broken(*args: Any) -> Any:
        made = await credit(*args)
        wrong = Credit(unit="team", target="x", value=float("nan"), estimator="coma")
        return structs.replace(made, traces=[structs.replace(t, credits=(wrong,)) for t in made.traces])

    monkeypatch.setattr(session.trainer.crediting, "credit", broken)
    with pytest.raises(Diverged, match=r"credit of coma on team x is nan at step 1.*step-00000"):
        next(session.steps())
    session.close()


def test_finishing_leaves_the_trained_weights_where_they_were(tmp_path: Path) -> None:
    session = begin(small(train__steps=1), "small", tmp_path / "run")
    list(session.steps())
    policy = session.trainer.policies["main"]
    before = policy.state_dict()
    session.finish()
    session.close()
    assert all((value == policy.state_dict()[key]).all() for key, value in before.items())
    assert policy.version == 1


def test_nan_ends_the_run_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = begin(small(train__checkpoint_every=1), "small", tmp_path / "run")
    steps = session.steps()
    next(steps)
    policy = session.trainer.policies["main"]
    good = policy.state_dict()
    backward = session.trainer.gradients["main"].backward

    def broken(*args: Any, **kwargs: Any) -> Any:
        report = backward(*args, **kwargs)
        next(iter(policy.model.parameters())).grad[0] = float("nan")
        return report

    monkeypatch.setattr(session.trainer.gradients["main"], "backward", broken)
    with pytest.raises(
        Diverged, match=r"step 2 .*Lower train\.learning_rate.*last good checkpoint is step-00001"
    ):
        next(steps)
    session.close()
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["status"] == "diverged"
    assert "step 2" in told["why"]
    kept = open_run(tmp_path / "run")
    assert kept.trainer.step_number == 1
    assert all(
        (value == kept.trainer.policies["main"].state_dict()[key]).all() for key, value in good.items()
    )


def test_a_full_disk_says_so_and_the_checkpoint_before_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = begin(small(train__checkpoint_every=1), "small", tmp_path / "run")
    steps = session.steps()
    next(steps)

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_put", full)
        with pytest.raises(
            UsageError, match=r"step 2 .*No space left.*last good one is step-00001.*--resume"
        ):
            next(steps)
    session.close()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"
    assert not list((tmp_path / "run" / "checkpoints").glob(".step*"))
    again = go_on(tmp_path / "run")
    assert again.trainer.step_number == 1
    again.close()


def test_a_full_disk_while_a_line_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UsageError, match=r"metrics\.jsonl cannot be written: No space left on device"):
        folder.add("metrics", {"step": 1})


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    out = tmp_path / "run"
    whole(out, small(train__steps=2, train__checkpoint_every=1))
    notes: list[str] = []
    weights = out / "checkpoints" / "step-00002" / "main.safetensors"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    assert checkpoint.latest(out / "checkpoints", notes.append).name == "step-00001"
    assert "step-00002 is damaged (main.safetensors has changed)" in notes[0]
    for place in (out / "checkpoints").glob("step-*"):
        (place / "state.json").write_text("{")
    with pytest.raises(CorruptError, match=r"step-00000 is damaged.*Start the run anew"):
        checkpoint.latest(out / "checkpoints")


def test_tensors_anywhere_in_what_is_remembered(tmp_path: Path) -> None:
    import torch

    trainer = make_trainer(small())
    told = {"total_tokens": 1, "a": [{"b": torch.arange(3)}, 0.1, None], "e": {}}
    place = checkpoint.save(tmp_path, 7, trainer.policies, told)
    saved = checkpoint.restore(place, trainer.policies).remembered
    assert saved["step"] == 7
    assert saved["a"][0]["b"].tolist() == [0, 1, 2]
    assert saved["a"][1:] == [0.1, None]


def computed(session: Any) -> tuple[int, int]:
    """Tokens of prompts that the policy computed, and those it had computed before."""
    engine = session.trainer.policies["main"].engine
    return engine.prefilled_tokens, engine.reused_tokens


def test_from_its_very_beginning_a_run_goes_on_with_the_same_sums(tmp_path: Path) -> None:
    """What was computed for the untrained team's measurement is not there after a kill, and must not be used before."""
    session = begin(small(), "small", tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "cut")
    before = computed(session)
    expected = numbers(list(session.steps()))
    after = computed(session)
    session.close()
    again = go_on(tmp_path / "cut")
    assert again.trainer.step_number == 0
    assert numbers(list(again.steps())) == expected
    assert computed(again) == (after[0] - before[0], after[1] - before[1])
    again.close()
