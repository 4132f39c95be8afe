"""Every backend passes the same check, and faulty ones do not."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from chat_templates import LLAMA, QWEN, two_for_one_tokenizer
from mock_servers import MockVllm, mock_server
from msgspec.structs import replace
from tiny_model import tiny_model, tiny_tokenizer

from baton.engine.torch import TorchEngine
from baton.serve.backends import make_backend
from baton.serve.backends.scripted import ScriptedBackend
from baton.serve.backends.torch import over_engine
from baton.serve.exchange import Ask, Reply, ReplyChoice, ToolAsk, Utterance
from baton.testing import CheckFailed, check_backend
from baton.trace.records import Ints


def script(ask: Ask) -> Any:
    return ["well", ("look_up", {"what": "x"}), ("look_up", {"what": "x"})]


@pytest.mark.parametrize("spec", ["scripted:echo", "engine:scripted:echo", "engine:scripted:first"])
def test_backends_without_a_model(spec: str) -> None:
    check_backend(make_backend(spec), max_tokens=1000)


def test_scripts() -> None:
    check_backend(ScriptedBackend(script))


@pytest.mark.parametrize("template", [None, QWEN, LLAMA], ids=["plain", "qwen", "llama"])
def test_local_models(template: str | None) -> None:
    tokenizer = two_for_one_tokenizer(template or "")
    tokenizer.chat_template = template
    model = tiny_model(vocab=len(tokenizer))
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.config.max_position_embeddings = 2048
    from baton.engine.torch import PlainTemplate

    engine = TorchEngine(model, tokenizer, name="tiny", template=None if template else PlainTemplate())
    check_backend(over_engine(engine), max_tokens=6, turns=4)


def test_vllm_as_a_mock_has_it(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = QWEN
    tokenizer.save_pretrained(tmp_path)
    call = '<tool_call>{"name": "look_up", "arguments": {"what": "x"}}</tool_call><|im_end|>'
    with mock_server(MockVllm(tokenizer, call)) as server:
        check_backend(make_backend(f"vllm:base@{server.url}/v1?tokenizer={tmp_path}"), max_tokens=100)
        check_backend(make_backend(f"vllm:base@{server.url}/v1"), max_tokens=100)


def changed(**fields: Any) -> Any:
    """A backend whose replies are wrong in one way."""
    good = make_backend("engine:scripted:echo")

    class Wrong:
        name = "wrong"

        async def reply(self, ask: Ask, *, key: str, growth: Any) -> Any:
            reply = await good.reply(ask, key=key, growth=growth)
            first = fields.get("choice", {})
            made = {name: value for name, value in fields.items() if name != "choice"}
            if callable(first):
                return replace(reply, choices=tuple(map(first, reply.choices)), **made)
            return replace(reply, choices=tuple(replace(each, **first) for each in reply.choices), **made)

        async def close(self) -> None: ...

    return Wrong()


numbers = itertools.count()
WRONG: list[tuple[str, Any, str]] = [
    ("a policy", {"policy": ""}, "which policy"),
    ("a count", {"prompt_tokens": -1}, "prompt tokens"),
    ("kept ids", {"keep": 10**6}, "ids kept of"),
    ("kept and not told", {"keep": 1}, "do not say why"),
    ("who speaks", {"choice": {"message": Utterance(speaker="user")}}, "an answer by 'user'"),
    ("tools that are none", {"choice": {"finish": "tool_calls"}}, "asks for none"),
    (
        "an id twice",
        {
            "choice": {
                "message": Utterance(
                    speaker="assistant",
                    uses=(ToolAsk(id="a", name="look_up", arguments=""),),
                )
            }
        },
        "given twice",
    ),
    ("ends", {"choice": {"token_ends": Ints([9, 1])}}, "token_ends for each"),
    (
        "another answer",
        {"choice": lambda each: ReplyChoice(message=Utterance(speaker="assistant", text=str(next(numbers))))},
        "in two ways",
    ),
]


@pytest.mark.parametrize(("fields", "why"), [each[1:] for each in WRONG], ids=[each[0] for each in WRONG])
def test_faults_are_found(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(CheckFailed, match=why):
        check_backend(changed(**fields), max_tokens=1000)


def test_only_one_kind_of_error() -> None:
    class Raises:
        name = "raises"

        async def reply(self, ask: Ask, *, key: str, growth: Any) -> Reply:
            raise KeyError("x")

        async def close(self) -> None: ...

    with pytest.raises(CheckFailed, match="Unanswerable and nothing else"):
        check_backend(Raises())
