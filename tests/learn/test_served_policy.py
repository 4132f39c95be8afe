"""Policies that are trained here and answered by a server. The server is a mock, named so; vLLM's is tests/vllm."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from served_mock import serving
from small_run import BASE, COMA, GROUP, small

from baton.compose.training import begin, check_trainable, go_on, make_trainer
from baton.errors import BatonError, UsageError
from baton.learn.recipe import Recipe, parse
from baton.learn.scale import served, workers_scratch
from baton.trace.formats.sqlite.store_read import read_store
from baton.trace.trace import Trace

URL = "vllm:http://127.0.0.1:1"
QUICK = ["train.steps=3", "train.checkpoint_every=1", "rollout.groups=2", "rollout.group_size=2", "eval.episodes=2",
         "train.loggers=[]", "warm.steps=20", "warm.episodes=40"]  # fmt: skip


def recipe(engine: str, more: str = GROUP, **changes: Any) -> Recipe:
    listed = [f"{path.replace('__', '.')}={json.dumps(value)}" for path, value in changes.items()]
    return parse(BASE + more, "served", [*QUICK, f'policies.main.engine="{engine}"', *listed])


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def run(plan: Recipe, folder: Path) -> Any:
    session = begin(plan, "served", folder)
    try:
        for _ in session.steps():
            pass
        session.finish()
        return session
    finally:
        session.close()


def traces_of(folder: Path, step: int) -> list[Trace]:
    return [
        each
        for each in read_store(folder / "traces" / "run.db")
        if each.trace_id.startswith(f"step-{step:04d}/")
    ]


def versions_of(folder: Path, step: int) -> set[str]:
    return {str(call.policy_version) for trace in traces_of(folder, step) for call in trace.calls}


@pytest.mark.parametrize(("train", "lag"), [("full", 0), ("lora", 0), ("full", 1), ("lora", 2)])
def test_a_policy_on_a_server_is_trained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, train: str, lag: int
) -> None:
    plan = recipe("vllm:local", policies__main__train=train, scale__lag=lag, train__steps=3 + (lag == 2))
    with serving(monkeypatch) as servers:
        session = run(plan, tmp_path / "run")
        pushes = session.trainer.policies["main"].engine.pushes
        assert all(each.gap.mean < 1e-4 and each.num_tries == 1 for each in pushes)
        (server,) = servers
        assert len(server.adapters) <= lag + 2
    steps = plan.train.steps
    played = {str(max(0, step - 1 - lag)) for step in range(1, steps + 1)}
    assert {each.version for each in pushes} == played | {"0", str(steps)}
    assert [versions_of(tmp_path / "run", step) for step in range(1, steps + 1)] == [
        {str(max(0, step - 1 - lag))} for step in range(1, steps + 1)
    ]
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines] == list(range(1, steps + 1))
    assert all(0 <= line["push_gap"]["main"] < 1e-4 for line in lines)


def test_the_chances_of_options_are_those_of_the_weights_that_chose(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At a lag the server is asked; brute force: the model of the checkpoint, each option scored by a plain forward."""
    plan = recipe("vllm:local", scale__lag=1)
    with serving(monkeypatch):
        run(plan, tmp_path / "run")
    for step, version in ((2, 0), (3, 1)):
        model, tokenizer = model_at(tmp_path / "run", version)
        checked = 0
        for trace in traces_of(tmp_path / "run", step)[:2]:
            for call in trace.calls:  # and what was drawn has the log-probabilities of what drew it
                ids, said = list(trace.prompt_ids(call) or ()), list(call.completion_ids or ())
                assert np.abs(token_scores(model, ids, said) - list(call.logprobs or ())).max() < 1e-4
            for event in trace.events:
                if event.options is None or event.call is None:
                    continue
                prompt = list(trace.prompt_ids(trace.call_by_id[event.call]) or ())
                sums = np.array([plain_score(model, tokenizer, prompt, option) for option in event.options])
                chances = np.exp(sums) / np.exp(sums).sum()
                assert np.abs(chances - np.array(event.option_propensities)).max() < 1e-4
                checked += 1
        assert checked


def model_at(folder: Path, step: int) -> tuple[Any, Any]:
    from baton.learn.run import checkpoint

    plan = parse((folder / "recipe.toml").read_text(), "kept", ["policies.main.engine=null", "scale.lag=0"])
    trainer = make_trainer(plan, restored=True)
    checkpoint.load_weights(folder / "checkpoints" / f"step-{step:05d}", trainer.policies)
    policy = trainer.policies["main"]
    trainer.close()
    return policy.model, policy.tokenizer


def plain_score(model: Any, tokenizer: Any, prompt: list[int], option: str) -> float:
    said = [*tokenizer.encode(option, add_special_tokens=False), tokenizer.eos_token_id]
    return float(token_scores(model, prompt, said).sum())


def token_scores(model: Any, prompt: list[int], said: list[int]) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        rows = model(input_ids=torch.tensor([prompt + said])).logits[0].double().log_softmax(-1)
    return np.array([float(rows[len(prompt) - 1 + n, token]) for n, token in enumerate(said)])


@pytest.mark.parametrize("train", ["full", "lora"])
def test_a_run_that_was_cut_off_goes_on_to_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, train: str
) -> None:
    plan = recipe("vllm:local", policies__main__train=train)
    with serving(monkeypatch):
        run(plan, tmp_path / "whole")
    with serving(monkeypatch):
        session = begin(plan, "served", tmp_path / "cut")
        for _, _ in zip(range(2), session.steps(), strict=False):
            pass
        session.close()
    with serving(monkeypatch):  # another server, with the weights of the beginning
        session = go_on(tmp_path / "cut")
        for _ in session.steps():
            pass
        session.close()
    whole, cut = metrics(tmp_path / "whole"), metrics(tmp_path / "cut")
    for one, other in zip(whole, cut, strict=True):
        assert one["return"]["mean"] == pytest.approx(other["return"]["mean"], abs=1e-9)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("train", ["full", "lora"])
def test_what_a_server_drew_trains_as_if_this_process_had_drawn_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, train: str
) -> None:
    """Samplers draw differently by one seed; so the run here is given what the server drew, step by step."""
    drawn: list[Any] = []
    with serving(monkeypatch):
        session = begin(recipe("vllm:local", policies__main__train=train), "served", tmp_path / "run")
        take = session.trainer.rollouts.take

        def kept(number: int) -> Any:
            drawn.extend(groups := take(number))
            return groups

        monkeypatch.setattr(session.trainer.rollouts, "take", kept)
        there = [line["grad_norm"] for line in session.steps()]
        learned = session.trainer.policies["main"].state_dict()
        session.close()
    trainer = make_trainer(parse_plain(GROUP, policies__main__train=train))
    first = trainer.policies["main"].state_dict()
    trainer.rollouts.recall(drawn)
    here = [trainer.step().metrics["grad_norm"] for _ in range(3)]
    assert any(here)
    assert [each or 0.0 for each in there] == pytest.approx(
        [each or 0.0 for each in here], rel=1e-3, abs=1e-7
    )
    for name, each in trainer.policies["main"].state_dict().items():
        moved = float((each - first[name]).abs().mean())
        assert float((each - learned[name]).abs().mean()) <= 1e-3 * moved + 1e-9
    trainer.close()


def parse_plain(more: str, **changes: Any) -> Recipe:
    listed = [f"{path.replace('__', '.')}={json.dumps(value)}" for path, value in changes.items()]
    return parse(BASE + more, "plain", [*QUICK, *listed])


def test_updates_in_flight_are_told_token_by_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan = recipe("vllm:local", scale__lag=1, scale__updates="in-flight", train__steps=4, team__max_tokens=12)
    with serving(monkeypatch) as servers:
        session = begin(plan, "served", tmp_path / "run")
        servers[0].token_seconds = 0.01
        for _ in session.steps():
            pass
        session.close()
    calls = [
        call for step in (2, 3, 4) for trace in traces_of(tmp_path / "run", step) for call in trace.calls
    ]
    several = [call for call in calls if call.versions]
    for call in several:
        assert call.versions is not None
        assert call.policy_version == call.versions[0].version
        assert call.versions[-1].end == len(call.completion_ids or ())
    drawn = {call.policy_version for call in calls} | {
        s.version for call in several for s in call.versions or ()
    }
    assert drawn >= {"1", "2"}  # pinned, step 2 would be the work of version 0 alone
    assert all(np.isfinite(line["grad_norm"]) for line in metrics(tmp_path / "run"))


def test_a_push_that_cannot_be_made_stops_the_run_with_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serving(monkeypatch) as servers:
        session = begin(recipe("vllm:local"), "served", tmp_path / "run")
        steps = session.steps()
        next(steps)
        servers[0].faults["keep head"] = 2
        with pytest.raises(BatonError, match="could not be pushed") as told:
            next(steps)
        session.close()
    assert "\n" not in str(told.value)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"


@pytest.mark.parametrize(
    ("engine", "changes", "told"),
    [
        ("vllm:nowhere", {}, "expected vllm:local or vllm:URL"),
        ("vllm:local?pyhton=x", {}, "python"),
        ("vllm:local?transfer=pigeon", {}, "file"),
        ("vllm:http://10.1.2.3:8000", {}, "shared=DIR"),
        ("vllm:local", {"policies__main__train": "frozen"}, "is frozen, and engine is of policies that are trained"),
        ("vllm:local", {"scale__updates": "in-flight"}, "scale.lag is 0"),
        ("vllm:local", {"scale__updates": "in-flight", "policies__main__train": "lora", "scale__lag": 1}, "full w"),
        ("vllm:local", {"scale__lag": 1, "team__temperature": 0.5}, "at temperature 1 alone"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_starts(
    engine: str, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        check_trainable(recipe(engine, **changes))
    assert "\n" not in str(refused.value)


def test_updates_in_flight_need_a_server_and_no_chances_of_options() -> None:
    with pytest.raises(UsageError, match="no policy has one"):
        check_trainable(small(scale__updates="in-flight"))
    with pytest.raises(UsageError, match="estimator coma asks for the chances"):
        check_trainable(recipe("vllm:local", COMA, scale__updates="in-flight", scale__lag=1))


def test_no_server_where_one_was_named_is_one_line() -> None:
    with pytest.raises(UsageError, match="no vLLM server answers at http://127"):
        make_trainer(recipe(URL))


def test_a_server_is_looked_for_before_the_first_weights_are_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told: list[str] = []
    with pytest.raises(UsageError, match="no vLLM server answers"):
        make_trainer(recipe(URL), progress=told.append)
    assert not [line for line in told if "warm" in line]


def test_a_server_of_something_else_is_said_to_be_no_vllm(tmp_path: Path) -> None:
    import http.server
    import threading

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as strange:
        threading.Thread(target=strange.serve_forever, daemon=True).start()
        with pytest.raises(UsageError, match=r"is no vLLM server: it has no /v1/models\. Start one") as told:
            make_trainer(recipe(f"vllm:http://127.0.0.1:{strange.server_port}?shared={tmp_path}"))
        strange.shutdown()
    assert "<" not in str(told.value)


def test_a_server_that_is_not_there_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no vLLM server answers"):
        make_trainer(recipe(f"{URL}?shared={tmp_path}"))
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_run_that_was_killed_goes_with_the_next_run_and_that_of_one_that_lives_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left = tmp_path / "baton-vllm-left"
    left.mkdir()
    (left / "lock").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(workers_scratch, "_YOUNG_SECONDS", -1.0)
    with serving(monkeypatch):
        first = make_trainer(recipe("vllm:local"))
        second = make_trainer(recipe("vllm:local"))
        assert not left.exists()
        assert len(list(tmp_path.glob("baton-vllm-*"))) == 2
        first.close()
        second.close()


def test_two_policies_do_not_push_all_weights_to_one_server() -> None:
    two = """
[policies.other]
model = "tiny"
roles = ["worker"]
"""
    plan = parse(BASE + two + GROUP, "two", [f'policies.{n}.engine="{URL}"' for n in ("main", "other")])
    with pytest.raises(UsageError, match="push to one server"):
        served.check_served(plan, options=False)


def test_heads_that_the_cpu_build_cannot_attend_with_are_refused() -> None:
    with pytest.raises(UsageError, match="heads of 16"):
        make_trainer(recipe("vllm:local"))


def test_a_weight_that_two_layers_share_goes_once() -> None:
    from baton.learn.models.tiny import Tiny, make_tiny

    model, _ = make_tiny(["a b c"], Tiny(width=24, layers=1, heads=2, vocabulary=270), seed=0)
    sent = served.pushed_weights(model, model.state_dict())
    assert "lm_head.weight" in model.state_dict()
    assert "lm_head.weight" not in sent
    assert sum(each.numel() for each in sent.values()) == sum(each.numel() for each in model.parameters())
