"""An unmodified program on the openai SDK, `baton serve`'s endpoint, and vLLM itself behind it."""

from __future__ import annotations

import json
import math
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import vllm_server
from vllm_server import only_with_vllm

from baton.engine.vllm.local import LocalServer
from baton.serve.backends import make_backend
from baton.serve.server import Serving
from baton.trace import Trace, read_all

PYTHON = only_with_vllm()
PROGRAM = Path(vllm_server.__file__).with_name("vllm_sdk_client.py")
pytestmark = pytest.mark.slow


def _play(folder: Path, spec: str) -> tuple[dict[str, Any], Trace]:
    with Serving(folder / "served", make_backend(spec)) as serving:
        done = subprocess.run(
            [PYTHON, str(PROGRAM), serving.address, "odd", "odd-llama"],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (trace,) = read_all(folder / "served")
    return json.loads(done.stdout), trace


def _check_answers(told: dict[str, Any], *, ordered: bool = True) -> None:
    """`ordered`: alternatives stand by their chance; vLLM's own chat endpoint has the drawn one first."""
    for text in told["json"]:
        value = json.loads(text)
        assert value.keys() == {"colour", "sure"}
        assert value["colour"] in ("red", "green", "deep blue")
        assert isinstance(value["sure"], bool)
    (required, named) = told["tools"]
    assert required[1][0][0] in ("look_up", "go-to")
    assert [name for name, _ in named[1]] == ["go-to"]
    for _, calls in (required, named):
        for _, arguments in calls:
            assert json.loads(arguments)["place"] in ("Rome", "Århus", "Łódź")
    for logprob, tops in told["top_logprobs"]:
        assert len(tops) == 4
        chances = [each[1] for each in tops]
        assert not ordered or chances == sorted(chances, reverse=True)
        assert sum(map(math.exp, chances)) <= 1.0 + 1e-6
        assert logprob <= max(chances) + 1e-6
    assert len(told["n"]) == 3
    assert len(set(told["n"])) > 1
    assert told["streamed"] == told["free"]
    assert len(told["turns"]) == 50


def test_asked_in_ids_nothing_drifts(server: LocalServer, model: tuple[Any, Path], tmp_path: Path) -> None:
    told, trace = _play(tmp_path, f"vllm:odd-llama@{server.url}?tokenizer={model[1]}")
    _check_answers(told)
    talk = trace.calls[-50:]
    kept = 0
    for before, call in pairwise(talk):
        whole = [*(trace.prompt_ids(before) or ()), *(before.completion_ids or ())]
        assert list(trace.prompt_ids(call) or ())[: len(whole)] == whole
        kept += call.keep == len(whole)
    assert kept == 49
    tokenizer = make_backend(f"vllm:odd-llama@{server.url}?tokenizer={model[1]}")._sampler._engine.tokenizer  # type: ignore[attr-defined]
    other = 0
    for call in talk:
        ids = list(call.completion_ids or ())
        spoken = ids[:-1] if ids[-1] == tokenizer.eos_token_id else ids
        other += tokenizer.encode(tokenizer.decode(spoken), add_special_tokens=False) != spoken
    print(f"\n50 turns: {kept} of 49 grow from kept ids; encoded anew {other} of 50 answers would differ")
    assert other > 10
    assert all(len(call.logprobs or ()) == len(call.completion_ids or ()) for call in trace.calls)


def test_by_its_chat_endpoint_everything_is_answered_too(server: LocalServer, tmp_path: Path) -> None:
    told, trace = _play(tmp_path, f"vllm:odd-llama@{server.url}/v1")
    _check_answers(told, ordered=False)
    assert all(call.completion_ids is not None for call in trace.calls)
