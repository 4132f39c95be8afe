"""A run whose policy is at a service of the Tinker protocol, by a mock of it that is named so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_run import BASE, GROUP
from tinker_mock import MockService
from warm_folder import warm_folder

from baton.cli import main
from baton.compose.training import begin, check_trainable, go_on, make_trainer
from baton.engine.torch import TorchEngine
from baton.errors import UsageError
from baton.learn.recipe import parse
from baton.learn.scale.tinker_client import KEY

QUICK = [
    "warm=null", "train.steps=2", "rollout.groups=2", "rollout.group_size=2", "eval.episodes=1",
    "train.checkpoint_every=1", "train.loggers=[]", 'credit.0.group_by="task"',
]  # fmt: skip


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, weights_folder: Path) -> tuple[Path, Any]:
    made = tmp_path_factory.mktemp("base") / "a model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(weights_folder))
        return made, warm_folder(made)[0]


@pytest.fixture
def service(folder: tuple[Path, Any]) -> Iterator[MockService]:
    with MockService(folder[1], str(folder[0]), means=True) as running:
        yield running


def recipe(service: MockService, *changes: str) -> Any:
    given = [
        f"policies.main.model={json.dumps(service.base)}", "policies.main.train=lora", "policies.main.rank=4",
        f"policies.main.engine={json.dumps('tinker:' + service.at)}", *QUICK,
    ]  # fmt: skip
    return parse(BASE + GROUP, "at a service", [*given, *changes])


def metrics(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k and k not in ("warnings",)} for line in lines]


@pytest.fixture(scope="session")
def whole(folder: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps that nothing happened to."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    with MockService(folder[1], str(folder[0]), means=True) as running:
        session = begin(recipe(running), "small", out)
        list(session.steps())
        session.finish()
        session.close()
        assert not running.models  # the service was told that it may forget
    return out


def evals(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "evals.jsonl").read_text().splitlines()]


def test_a_run_and_the_same_cut_off(whole: Path, service: MockService, tmp_path: Path) -> None:
    lines = metrics(whole)
    assert [line["step"] for line in lines] == [1, 2]
    assert all(line["loss"] is not None and line["grad_norm"] > 0 and line["moved"] > 0 for line in lines)
    assert evals(whole)[-1]["why"].startswith("its weights are elsewhere")
    cut = begin(recipe(service), "small", tmp_path / "cut")
    next(iter(cut.steps()))
    cut.folder.close()  # killed after the first step: the service hears nothing of it
    again = go_on(tmp_path / "cut", trust=True)
    list(again.steps())
    again.finish()
    again.close()
    assert metrics(tmp_path / "cut") == lines
    assert evals(tmp_path / "cut") == evals(whole)


def test_answers_are_those_of_the_model_itself(service: MockService, folder: tuple[Path, Any]) -> None:
    """Log-probabilities of what the service drew, beside the same ids through the model here."""
    import torch

    trainer = make_trainer(recipe(service))
    try:
        groups = trainer.rollouts.take(1)
        calls = [(trace, call) for group in groups for trace in group.traces for call in trace.calls]
        assert {call.policy_version for _, call in calls} == {"0"}
        for trace, call in calls:
            prompt, said = trace.prompt_ids(call), call.completion_ids
            assert prompt is not None
            assert said is not None
            assert call.logprobs is not None
            ids = torch.tensor([[*prompt, *said]])
            with torch.no_grad():
                logits = folder[1](input_ids=ids).logits[0].log_softmax(-1)
            places = torch.arange(len(prompt), ids.shape[1])
            plain = logits[places - 1, ids[0, places]]
            assert call.logprobs.tolist() == pytest.approx(plain.tolist(), abs=1e-4)
            assert trace.text(call.completion_ref) == trainer.policies["main"].tokenizer.decode(
                list(said), skip_special_tokens=True
            )
        assert len({call.sampling.key for _, call in calls if call.sampling}) == len(calls)
    finally:
        trainer.close()


def test_a_promise_is_asked_for_again(whole: Path, service: MockService, tmp_path: Path) -> None:
    """A connection that drops while a result is waited for costs nothing."""
    held = begin(recipe(service), "small", tmp_path / "held")
    service.drop = {"retrieve_future": 2, "asample": 1, "forward": 1}
    list(held.steps())
    held.close()
    assert not any(service.drop.values())
    assert metrics(tmp_path / "held") == metrics(whole)


@pytest.mark.parametrize("path", ["forward_backward", "optim_step", "save_weights_for_sampler"])
def test_what_may_have_been_done_is_not_done_twice(
    whole: Path, service: MockService, tmp_path: Path, path: str
) -> None:
    """Dropped after it was carried out: one line, and going on gives the numbers of a run that was not cut off."""
    cut = begin(recipe(service), "small", tmp_path / "cut")
    steps = cut.steps()
    next(steps)
    service.drop = {path: 1}
    with pytest.raises(Exception, match=f"(?s){path}.*dropped.*--resume") as told:
        next(steps)
    assert "\n" not in str(told.value)
    cut.close()
    again = go_on(tmp_path / "cut", trust=True)
    list(again.steps())
    again.close()
    assert metrics(tmp_path / "cut") == metrics(whole)


def test_a_sampler_with_old_weights_is_found_out(service: MockService, tmp_path: Path) -> None:
    session = begin(recipe(service, "train.learning_rate=0.05"), "small", tmp_path / "run")
    steps = session.steps()
    next(steps)
    service.stale_samplers = True
    with pytest.raises(Exception, match="answers with old weights"):
        next(steps)
    session.close()


REFUSED = {
    "policies.main.train=full": "trains adapters alone",
    "policies.main.dtype=float32": "would do nothing",
    "loss.kl=0.1": "no reference",
    "loss.entropy=0.1": "no entropy",
    "team.temperature=0.7": "drawn at 1",
    "scale.lag=1": "older weights",
    "rollout.overlap=true": "older weights",
    "scale.rollout_workers=2": "copies of the weights",
    "scale.trainer_processes=2": "share the weights",
    "pack.packing=rows": "would do nothing",
    'warm={"steps"=3}': "scripted play",
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_the_protocol_cannot_express(folder: tuple[Path, Any], change: str) -> None:
    """Before anything is asked of a service: there is none at this address."""
    more = "[warm]\nsteps = 3\n" if change.startswith("warm") else ""
    base = BASE.partition("[warm]")[0] + more + "[rollout]" + BASE.partition("[rollout]")[2]
    changes = [
        f"policies.main.model={json.dumps(str(folder[0]))}", "policies.main.train=lora",
        'policies.main.engine="tinker:http://127.0.0.1:9"', *([] if more else [change]),
    ]  # fmt: skip
    with pytest.raises(UsageError, match=REFUSED[change]) as told:
        check_trainable(parse(base + GROUP, "r", changes))
    assert "\n" not in str(told.value)


def test_options_pairs_and_conflicts_are_refused(folder: tuple[Path, Any]) -> None:
    base = BASE.partition("[warm]")[0] + "[rollout]" + BASE.partition("[rollout]")[2]
    changes = [
        f"policies.main.model={json.dumps(str(folder[0]))}", "policies.main.train=lora",
        'policies.main.engine="tinker:http://127.0.0.1:9"',
    ]  # fmt: skip
    coma = '[[credit]]\nestimator = "coma"\n[critic]\nkind = "table"\n'
    for more, change, match in (
        (coma, "train.options=all", "not taken"),
        (GROUP, "loss.kind=dpo", "pairs"),
        (GROUP, "train.conflict=rewards", "terms|gradients"),
    ):
        with pytest.raises(UsageError, match=match):
            check_trainable(parse(base + more, "r", [*changes, change]))


def test_what_a_service_lacks(folder: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, name = folder[1], str(folder[0])
    cases: list[tuple[dict[str, Any], list[str], str]] = [
        ({"losses": ("cross_entropy",)}, [], "loss ppo takes ppo"),
        ({"losses": ("cross_entropy", "ppo")}, ["loss.kind=gspo"], "takes importance_sampling"),
        ({"clips": False}, [], "clip_norm=1e9"),
        ({"key": "tml-right"}, [], KEY),
    ]
    for settings, changes, match in cases:
        with MockService(model, name, **settings) as service:
            with pytest.raises(UsageError, match=match) as told:
                make_trainer(recipe(service, *changes))
            assert "\n" not in str(told.value)
            assert "create_model" not in service.asked
    with MockService(model, name, clips=False, key="tml-right") as service:
        monkeypatch.setenv(KEY, "tml-right")
        make_trainer(recipe(service, "train.clip_norm=1e9")).close()
        service.base = "Qwen/Qwen3-8B"
        with pytest.raises(UsageError, match="Qwen/Qwen3-8B"):
            make_trainer(recipe(service, f"policies.main.model={json.dumps(name)}"))


def test_another_tokenizer_is_refused(service: MockService, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in Path(service.base).iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    tokenizer = other / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"stop"', '"halt"').replace("<end>", "<fin>"))
    spec = json.dumps(f"tinker:{service.at}?base={service.base}")
    with pytest.raises(UsageError, match="would mean other words"):
        make_trainer(
            recipe(service, f"policies.main.model={json.dumps(str(other))}", f"policies.main.engine={spec}")
        )


def test_nobody_answers(
    folder: tuple[Path, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from baton.learn.scale import tinker_client

    quick = tinker_client.ServicePatience(retries=1, first_wait_seconds=0.01)
    monkeypatch.setattr(tinker_client, "ServicePatience", lambda: quick)
    path = tmp_path / "r.toml"
    path.write_text(BASE + GROUP)
    given = [
        f"policies.main.model={json.dumps(str(folder[0]))}", "policies.main.train=lora", "warm=null",
        'policies.main.engine="tinker:http://127.0.0.1:9"',
    ]  # fmt: skip
    sets = [word for change in given for word in ("--set", change)]
    assert main(["train", str(path), *sets, "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "no service that speaks the Tinker protocol answers at http://127.0.0.1:9" in err
    for wrong, match in (
        ("tinker:gopher", "address"),
        ("tinker:https://far.example", KEY),
        ("tinker:http://me:pw@h", KEY),
    ):
        monkeypatch.delenv(KEY, raising=False)
        assert main(["train", str(path), *sets, "--set", f"policies.main.engine={json.dumps(wrong)}",
                     "--out", str(tmp_path / "run2")]) == 2  # fmt: skip
        assert match in capsys.readouterr().err


def test_a_state_that_the_service_lost(service: MockService, tmp_path: Path) -> None:
    session = begin(recipe(service, "train.steps=1"), "small", tmp_path / "run")
    list(session.steps())
    session.close()
    service.states.clear()
    with pytest.raises(UsageError, match="does not give back tinker://"):
        go_on(tmp_path / "run", changes=["train.steps=2"], trust=True)


def test_the_engine_alone_fails_call_by_call(service: MockService) -> None:
    trainer = make_trainer(recipe(service))
    try:
        trainer.rollouts.publish()
        policy = trainer.policies["main"]
        assert not isinstance(policy.engine, TorchEngine)
        service.samplers.clear()
        groups = None
        with pytest.raises(Exception, match="Checkpoint not found"):
            groups = trainer.rollouts.take(1)
        assert groups is None
    finally:
        trainer.close()
    assert asyncio.run(policy.engine.answer([])) == []
