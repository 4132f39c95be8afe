"""Baton against SkyRL's own server of the Tinker protocol, on a CPU: `make test-tinker`.

The server runs in an environment of its own, whose Python the variable BATON_TINKER names.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_tensors
from small_run import BASE, GROUP
from warm_folder import warm_folder

from baton.cli import main
from baton.compose.training import begin, go_on, make_trainer
from baton.errors import UsageError
from baton.learn import lora
from baton.learn.recipe import Recipe, parse
from baton.learn.update import Gradients, Packed

PYTHON = os.environ.get("BATON_TINKER")
RANK = 16
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason="needs SkyRL in an environment of its own: make test-tinker"),
]


class Server:
    """SkyRL's server, and where it keeps things."""

    def __init__(self, folder: Path, model: Any) -> None:
        self.base, self.model = folder / "base", model
        self.checkpoints = folder / "checkpoints"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "max_lora_adapters": 8, "max_lora_rank": RANK, "sample_max_num_sequences": 4, "train_micro_batch_size": 4
        }  # fmt: skip
        assert PYTHON is not None
        with (folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    PYTHON, str(Path(__file__).with_name("skyrl_server.py")), "api", "--port", str(port),
                    "--base-model", str(self.base), "--backend", "jax", "--backend-config", json.dumps(settings),
                    "--checkpoints-base", str(self.checkpoints), "--database-url", f"sqlite:///{folder / 'tinker.db'}",
                ],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=os.environ | {"JAX_PLATFORMS": "cpu"},
            )  # fmt: skip
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.url}/api/v1/get_server_capabilities", timeout=1)
                return
            except OSError:
                assert self._process.poll() is None, (folder / "server.log").read_text()[-2000:]
                time.sleep(0.2)
        raise AssertionError("the server does not answer")

    def adapter(self, path: str) -> dict[str, torch.Tensor]:
        """The adapter that a sampler was saved with, under Baton's names."""
        model, _, name = path.removeprefix("tinker://").partition("/")
        file = self.checkpoints / model / "sampler_weights" / f"{name.rpartition('/')[2]}.tar.gz"
        with tarfile.open(file) as archive:
            member = next(
                each for each in archive.getmembers() if each.name.endswith("adapter_model.safetensors")
            )
            raw = archive.extractfile(member)
            assert raw is not None
            tensors = load_tensors(io.BytesIO(raw.read()).getvalue())
        return {
            key.removeprefix("base_model.model.").removesuffix(".weight"): each
            for key, each in tensors.items()
        }

    def stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("skyrl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        model, _ = warm_folder(folder / "base")
    running = Server(folder, model)
    yield running
    running.stop()


def recipe(server: Server, *changes: str) -> Recipe:
    given = [
        f"policies.main.model={json.dumps(str(server.base))}", "policies.main.train=lora", "warm=null",
        f"policies.main.engine={json.dumps('tinker:' + server.url)}", "train.steps=2", "rollout.groups=2",
        "rollout.group_size=2", "eval.episodes=2", "train.checkpoint_every=1", "train.loggers=[]",
        'credit.0.group_by="task"', "train.clip_norm=1e9", "train.learning_rate=0.001",
    ]  # fmt: skip
    return parse(BASE + GROUP, "at SkyRL", [*given, *changes])


def with_adapter(server: Server, path: str) -> Any:
    """The model of this process with the adapter that answered."""
    import copy

    model = copy.deepcopy(server.model)
    lora.attach(model, ["a"], RANK, 32)
    lora.load_adapter_state_dict(model, "a", server.adapter(path))
    return model


@pytest.mark.parametrize("kind", ["ppo", "reinforce"])
def test_log_probs_and_gradients_are_torch_s(server: Server, kind: str) -> None:
    """What SkyRL drew and what it computed, beside the same adapter through torch."""
    trainer = make_trainer(recipe(server, f"loss.kind={kind}"))
    try:
        for number in (1, 2):
            rows = [row for _, row in trainer.rows(number)]
            policy, learner = trainer.policies["main"], trainer.learners["main"]
            model = with_adapter(server, policy.engine.path)  # type: ignore[attr-defined]
            gradients = Gradients(model, learner.loss, Packed(check=False))
            with lora.use(model, "a"):
                for row in rows:
                    logits = (
                        model(input_ids=torch.tensor(row.ids[None].astype("int64"))).logits[0].log_softmax(-1)
                    )
                    plain = logits[row.places - 1, row.ids[row.places]].tolist()
                    assert row.sampler.tolist() == pytest.approx(plain, abs=1e-4)
                here = gradients.backward(rows, version=str(policy.version))
            norm = torch.nn.utils.get_total_norm(
                [p.grad for p in lora.parameters_of(model, "a") if p.grad is not None]
            )
            with policy.training():
                there = learner.backward(rows, version=str(policy.version))
                told = learner.advance(1e9)
                assert (learner.moved(rows) or 0) > 0
            assert there.loss == pytest.approx(here.loss, abs=1e-4)
            assert told == pytest.approx(float(norm), rel=1e-3)
    finally:
        trainer.close()


def metrics(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in ("loss", "grad_norm", "moved", "rollout_tokens")} for line in lines]


def test_a_recipe_is_trained_and_gone_on_with(server: Server, tmp_path: Path) -> None:
    whole = begin(recipe(server), "small", tmp_path / "whole")
    list(whole.steps())
    whole.finish()
    whole.close()
    cut = begin(recipe(server), "small", tmp_path / "cut")
    next(iter(cut.steps()))
    cut.folder.close()  # as if it had been killed: the service hears nothing of it
    again = go_on(tmp_path / "cut", trust=True)
    list(again.steps())
    again.close()
    for one, other in zip(metrics(tmp_path / "whole"), metrics(tmp_path / "cut"), strict=True):
        assert other == pytest.approx(one, rel=1e-3, abs=1e-5)


def test_the_command(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "service.toml"
    path.write_text(
        BASE.partition("[warm]")[0].partition("[policies.main]")[0]
        + f'[policies.main]\nmodel = "{server.base}"\ntrain = "lora"\nengine = "tinker:{server.url}"\n'
        + "[rollout]\ngroups = 2\ngroup_size = 2\n[train]\nsteps = 1\n[eval]\nepisodes = 2\nbest_of = 1\n" + GROUP
    )  # fmt: skip
    out = str(tmp_path / "run")
    assert main(["train", str(path), "--trust", "--out", out]) == 2
    assert "--set train.clip_norm=1e9" in capsys.readouterr().err  # SkyRL's optimiser does not clip
    assert main(["train", str(path), "--trust", "--out", out, "--set", "train.clip_norm=1e9"]) == 0
    assert main(["train", "--resume", "--trust", "--out", out, "--set", "train.steps=2"]) == 0
    assert main(["eval", out, "--trust"]) == 0
    assert main(["doctor", str(path), "--trust"]) in (0, 1)
    assert f"{server.url} has {server.base}" in capsys.readouterr().out.replace("\n", " ")


def test_another_base_model_is_refused(server: Server) -> None:
    spec = json.dumps(f"tinker:{server.url}?base=Qwen/Qwen3-8B")
    with pytest.raises(UsageError, match="has no base model 'Qwen/Qwen3-8B'"):
        make_trainer(recipe(server, f"policies.main.engine={spec}"))
