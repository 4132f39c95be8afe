"""Answers held to a form while they are drawn: random weights say JSON of the schema and use tools that they must."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import pytest
from chat_templates import LLAMA, QWEN, THINKS
from served_talks import asked, user
from tiny_model import tiny_model, tiny_tokenizer

from baton.engine.torch import TorchEngine
from baton.serve.backends.engine import EngineBackend, EngineOptions
from baton.serve.backends.torch import over_engine
from baton.serve.exchange import Ask, Reply, ToolOffer
from baton.trace.records import Sampling

SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 40}}, "required": ["n"],
     "additionalProperties": False},
    {"type": "object", "properties": {"way": {"enum": ["north", "süd", "o\"st"]}, "sure": {"type": "boolean"}},
     "required": ["way", "sure"], "additionalProperties": False},
    {"type": "array", "items": {"enum": ["a", "bb", "ccc"]}, "minItems": 2, "maxItems": 3},
    {"type": "object", "properties": {"one": {"$ref": "#/$defs/pair"}}, "required": ["one"],
     "additionalProperties": False,
     "$defs": {"pair": {"type": "object", "properties": {"x": {"const": 7}, "y": {"type": ["null", "boolean"]}},
                        "required": ["x", "y"], "additionalProperties": False}}},
]  # fmt: skip
TURN = ToolOffer(
    name="turn_to",
    parameters={
        "type": "object",
        "properties": {"way": {"enum": ["left", "right"]}},
        "required": ["way"],
        "additionalProperties": False,
    },
)
STOP = ToolOffer(name="stop", parameters={"type": "object", "properties": {}, "additionalProperties": False})


def backend_of(template: str = QWEN, **options: Any) -> EngineBackend:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    model = tiny_model(vocab=len(tokenizer), seed=1)
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.config.max_position_embeddings = 4096
    return over_engine(TorchEngine(model, tokenizer, name="tiny"), options=EngineOptions(**options))


def drawn(backend: EngineBackend, ask: Ask, key: str = "k") -> Reply:
    return asyncio.run(backend.reply(ask, key=key, growth=None))


def ask_of(**more: Any) -> Ask:
    return asked(user("which way?"), sampling=Sampling(max_tokens=200), **more)


def test_without_llguidance_answers_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    reply = drawn(backend_of(draws=2), ask_of(json_schema=SCHEMAS[0]))
    assert reply.rules["drawn"].startswith("draw 2 of at most 2: it is no JSON")


def test_training_is_held_to_nothing() -> None:
    reply = drawn(backend_of(draws=1, guided=False), ask_of(json_schema=SCHEMAS[0]))
    assert reply.rules["drawn"].startswith("draw 1 of at most 1: it is no JSON")


def test_alternatives_of_every_token_are_told() -> None:
    reply = drawn(backend_of(), ask_of(logprobs=3))
    (choice,) = reply.choices
    assert len(choice.alternatives) == len(choice.completion_ids or ())
    for place, top in zip(choice.logprobs or (), choice.alternatives, strict=True):
        assert [each.logprob for each in top] == sorted((each.logprob for each in top), reverse=True)
        assert len(top) == 3
        assert place <= top[0].logprob + 1e-6


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_random_weights_say_json_of_the_schema(number: int) -> None:
    pytest.importorskip("llguidance")
    backend = backend_of()
    for key in range(2):
        reply = drawn(backend, ask_of(json_schema=SCHEMAS[number]), f"k{key}")
        jsonschema.validate(json.loads(reply.choices[0].message.text), SCHEMAS[number])
        assert reply.rules["drawn"] == "held to the schema"
        assert all(value <= 0 for value in reply.choices[0].logprobs or ())


@pytest.mark.parametrize("template", [QWEN, LLAMA])
@pytest.mark.parametrize("choice", ["required", "tool:turn_to"])
def test_random_weights_ask_for_the_tool_that_has_to_be(template: str, choice: str) -> None:
    pytest.importorskip("llguidance")
    backend, names = backend_of(template), set()
    for key in range(3):
        reply = drawn(backend, ask_of(tools=(STOP, TURN), tool_choice=choice), f"k{key}")
        (use,) = reply.choices[0].message.uses
        offer = {"stop": STOP, "turn_to": TURN}[use.name]
        jsonschema.validate(json.loads(use.arguments), offer.parameters)
        names.add(use.name)
    assert names <= ({"turn_to"} if choice != "required" else {"turn_to", "stop"})


def test_a_schema_that_cannot_be_held_to_is_drawn_freely_and_says_why() -> None:
    pytest.importorskip("llguidance")
    odd = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}
    reply = drawn(backend_of(draws=2), ask_of(json_schema=odd))
    assert "free: " in reply.rules["drawn"]
    assert "not" in reply.rules["drawn"]


def test_a_cut_answer_says_what_is_wrong_and_is_not_drawn_again() -> None:
    pytest.importorskip("llguidance")
    ask = asked(user("which way?"), sampling=Sampling(max_tokens=3), json_schema=SCHEMAS[1])
    reply = drawn(backend_of(), ask)
    assert reply.rules["drawn"].startswith("held to the schema: it is no JSON")
    assert reply.completion_tokens == 3


def test_what_begins_with_a_thought_is_free() -> None:
    pytest.importorskip("llguidance")
    reply = drawn(backend_of(THINKS, draws=1), ask_of(json_schema=SCHEMAS[0]))
    assert reply.rules["drawn"].startswith("draw 1 of at most 1, free: the answer begins with a thought")
