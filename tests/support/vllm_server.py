"""A real vLLM server for tests: a small model with random weights, made here and served by vLLM's CPU build.

`BATON_VLLM` names the Python of an environment that has vLLM; `make test-vllm` makes one.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_templates import two_for_one_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from baton.engine.vllm.local import LocalOptions, LocalServer
from baton.learn.scale import served

ARGS = (
    "--dtype", "float32", "--enable-lora", "--max-lora-rank", "16", "--max-loras", "4", "--max-model-len", "3072",
    "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
)  # fmt: skip
DEV = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "OMP_NUM_THREADS": "1"}


def only_with_vllm() -> str:
    """The Python that has vLLM; the tests of a module are skipped without one."""
    found = os.environ.get("BATON_VLLM")
    if not found:
        pytest.skip("needs an environment of its own: make test-vllm", allow_module_level=True)
    return found


def make_model(folder: Path, *, seed: int = 0) -> Any:
    """A Llama whose tokenizer has two ids for one text, in a folder; given back as transformers has it."""
    tokenizer = two_for_one_tokenizer()
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=128,  # heads of 32: vLLM has no kernel for smaller ones on a CPU
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=len(tokenizer),
        max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.eos_token_id,
        initializer_range=0.1,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def make_server(folder: Path, python: str, *more: str) -> LocalServer:
    """A server for it, not yet started, with adapters and the development endpoints."""
    options = LocalOptions(python=python, args=(*ARGS, *more), env=DEV, log=folder.parent / "vllm.log")
    return LocalServer(folder, options)


class Remembered(LocalServer):
    """A server of ours that counts how often it is started."""

    starts = 0

    def _launch(self, *args: Any) -> None:
        self.starts += 1
        super()._launch(*args)


def remembered_servers(monkeypatch: pytest.MonkeyPatch) -> list[Remembered]:
    """The servers that runs make for their policies from here on."""
    made: list[Remembered] = []

    def make(*args: Any, **kwargs: Any) -> Remembered:
        made.append(Remembered(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(served, "LocalServer", make)
    return made


def kill_server(server: LocalServer) -> None:
    """kill -9 of the server and of all that it started."""
    assert server._keeper is not None
    children = Path(f"/proc/{server._keeper.pid}/task/{server._keeper.pid}/children").read_text().split()
    for each in children:
        os.killpg(int(each), signal.SIGKILL)
    server._keeper.wait(30)
