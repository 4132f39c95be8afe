"""Adapters at a lag of two on vLLM itself: a run that was cut off goes on, and each step is of the weights it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_run import BASE, GROUP
from vllm_server import only_with_vllm

from baton.compose.training import begin, go_on, make_trainer
from baton.learn.recipe import Recipe, parse
from baton.learn.run import checkpoint
from baton.learn.scale import served
from baton.trace.formats.sqlite.store_read import read_store

pytestmark = pytest.mark.slow

STEPS, LAG = 5, 2
LARGER = BASE.replace("width = 32, layers = 1, heads = 2", "width = 64, layers = 2, heads = 2")


def plan(log: Path) -> Recipe:
    engine = f"vllm:local?python={only_with_vllm()}&log={log}"
    changes = ['policies.main.train="lora"', f"policies.main.engine={json.dumps(engine)}", f"scale.lag={LAG}",
               f"train.steps={STEPS}", "train.checkpoint_every=1", "rollout.groups=2", "rollout.group_size=3",
               "eval.episodes=2", "train.loggers=[]"]  # fmt: skip
    return parse(LARGER + GROUP, "real", changes)


def one_server(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All runs of the test ask the server that the first one starts: they begin with one base. Returns who ends it."""
    ends: list[Any] = []
    known: list[tuple[str, str]] = []
    real = served._local

    def local(part: Any, spec: Any, folder: Path, model: Any, tokenizer: Any, **more: Any) -> Any:
        if known:
            return served.Host(served.VllmClient(known[0][0]), folder), known[0][1], folder
        host, name, folder = real(part, spec, folder, model, tokenizer, **more)
        known.append((host.client.url, name))
        ends.extend((host._close, host))  # the host as well: its folder is the server's model
        host._close = None
        return host, name, folder

    monkeypatch.setattr(served, "_local", local)
    return ends


def test_a_run_at_a_lag_of_two_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ends = one_server(monkeypatch)
    recipe = plan(tmp_path / "server.log")
    try:
        session = begin(recipe, "real", tmp_path / "whole")
        pushes = session.trainer.policies["main"].engine.pushes  # type: ignore[attr-defined]
        for _ in session.steps():
            pass
        session.close()
        session = begin(recipe, "real", tmp_path / "cut")
        for _, _ in zip(range(3), session.steps(), strict=False):
            pass
        session.close()
        session = go_on(tmp_path / "cut")
        again = session.trainer.policies["main"].engine.pushes  # type: ignore[attr-defined]
        for _ in session.steps():
            pass
        session.close()
    finally:
        ends[0]()
    print(
        "gaps of pushes",
        [each.gap.mean for each in pushes],
        "after going on",
        [(e.version, e.gap.mean) for e in again],
    )
    assert all(each.gap.mean < 2e-5 and each.num_tries == 1 for each in (*pushes, *again))
    whole, cut = metrics(tmp_path / "whole"), metrics(tmp_path / "cut")
    assert [each["step"] for each in cut] == list(range(1, STEPS + 1))
    gaps = [gap for name in ("whole", "cut") for gap in gaps_of_calls(tmp_path / name)]
    print(f"{len(gaps)} calls, largest gap {max(gaps):.1e}")
    assert max(gaps) < 1e-4
    for one, other in zip(whole, cut, strict=True):
        assert one["return"]["mean"] == pytest.approx(other["return"]["mean"], abs=1e-9)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3, abs=1e-7)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def gaps_of_calls(folder: Path) -> list[float]:
    """Each call of a step is of the weights max(0, step - 1 - lag), by its name and by its log-probabilities."""
    bare = parse((folder / "recipe.toml").read_text(), "kept", ["policies.main.engine=null", "scale.lag=0"])
    trainer = make_trainer(bare, restored=True)
    found: list[float] = []
    for step in range(1, STEPS + 1):
        version = max(0, step - 1 - LAG)
        checkpoint.load_weights(folder / "checkpoints" / f"step-{version:05d}", trainer.policies)
        model = trainer.policies["main"].current
        played = [
            t for t in read_store(folder / "traces" / "run.db") if t.trace_id.startswith(f"step-{step:04d}/")
        ]
        assert played
        for trace in played:
            for call in trace.calls:
                assert (call.policy_version, call.versions) == (str(version), None)
                ids, said = list(trace.prompt_ids(call) or ()), list(call.completion_ids or ())
                told = np.array(list(call.logprobs or ()))
                found.append(float(np.abs(token_scores(model, ids, said) - told).max()))
    trainer.close()
    return found


def token_scores(model: Any, prompt: list[int], said: list[int]) -> np.ndarray[Any, Any]:
    """By the plain formula: one forward of transformers, log of softmax, the tokens picked out."""
    with torch.no_grad():
        rows = model(input_ids=torch.tensor([prompt + said])).logits[0].double().log_softmax(-1)
    return np.array([float(rows[len(prompt) - 1 + n, token]) for n, token in enumerate(said)])
