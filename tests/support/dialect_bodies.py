# ruff: noqa: E501 -- a table of shapes reads best a shape a line
"""Requests of each dialect as programs may write them, for property tests: every field odd or left out."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from baton.serve.exchange import Dialect

Body = dict[str, Any]
texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["", "Grüße\n", "a\u2028b", "{}", "\x00"]
)
names = st.sampled_from(["odd_sum", "look-up", "Bash", "weiter"])
ids = st.sampled_from(["call_1", "toolu_2", "x", "call_3"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=3)
schemas = st.just({"type": "object", "properties": {"a": {"type": "integer"}}}) | objects
marks = st.just({"cache_control": {"type": "ephemeral"}})


def some(
    required: dict[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]
) -> st.SearchStrategy[Body]:
    return st.fixed_dictionaries(required, optional=optional)


def const(value: Any) -> st.SearchStrategy[Any]:
    return st.just(value)


temperature = st.sampled_from([0, 0.5, 1, 1.0, 2])
numbers = {"temperature": temperature, "top_p": st.sampled_from([0.1, 1, 1.0])}
arguments = st.sampled_from(['{"a": 1}', "{}", "", "not json", '{"b":[1,2.5,null]}'])

# Chat Completions
_chat_part = (
    some({"type": const("text"), "text": texts}, cache_control=objects)
    | some({"type": const("image_url"), "image_url": objects})
    | some({"type": const("file"), "file": objects})
)
_chat_content = texts | st.lists(_chat_part, max_size=3)
_chat_call = some(
    {"id": ids, "type": const("function"), "function": some({"name": names, "arguments": arguments})}
) | some({"id": ids, "type": const("custom"), "custom": some({"name": names, "input": texts})}, odd=scalars)
_chat_message = (
    some({"role": st.sampled_from(["system", "developer", "user"]), "content": _chat_content}, name=names)
    | some(
        {"role": const("assistant")},
        content=_chat_content | const(None),
        refusal=texts | const(None),
        tool_calls=st.lists(_chat_call, max_size=3) | const(None),
        function_call=some({"name": names, "arguments": arguments}) | const(None),
        reasoning_content=texts,
        audio=const(None),
    )
    | some({"role": const("tool"), "tool_call_id": ids, "content": _chat_content}, name=names, odd=scalars)
    | some({"role": const("function"), "name": names, "content": texts})
)
_chat_tool = some(
    {
        "type": const("function"),
        "function": some({"name": names}, description=texts, parameters=schemas, strict=st.booleans()),
    }
) | some({"type": const("custom"), "custom": some({"name": names}, description=texts, format=objects)})
_chat_choice = st.sampled_from(
    [
        "auto", "none", "required", {"type": "function", "function": {"name": "odd_sum"}},
        {"type": "custom", "custom": {"name": "Bash"}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
    ]
)  # fmt: skip
_chat = some(
    {"model": names, "messages": st.lists(_chat_message, min_size=1, max_size=5)},
    **numbers,
    top_k=st.sampled_from([-1, 0, 40]),
    max_tokens=st.integers(1, 9),
    max_completion_tokens=st.integers(1, 9),
    stop=const("x") | st.lists(const("y"), max_size=3) | const(None),
    seed=st.integers(-9, 9),
    n=st.integers(1, 4),
    logprobs=st.booleans(),
    top_logprobs=st.integers(0, 20),
    stream=st.booleans(),
    stream_options=const({"include_usage": True}),
    tools=st.lists(_chat_tool, max_size=3),
    functions=st.lists(some({"name": names}, parameters=schemas), max_size=2),
    tool_choice=_chat_choice,
    function_call=const("auto") | const({"name": "odd_sum"}),
    parallel_tool_calls=st.booleans(),
    response_format=const({"type": "text"}) | const({"type": "json_object"})
    | some({"type": const("json_schema"), "json_schema": some({"name": names, "schema": schemas}, strict=st.booleans())}),
    logit_bias=objects,
    metadata=objects,
    odd_field=json_values,
)  # fmt: skip

# Responses
_input_part = (
    some({"type": const("input_text"), "text": texts})
    | some({"type": const("input_image")}, image_url=texts, detail=const("auto"))
    | some({"type": const("input_file")}, file_id=texts)
)
_output_part = some({"type": const("output_text"), "text": texts}, annotations=const([])) | some(
    {"type": const("refusal"), "refusal": texts}
)
_item = (
    some(
        {"role": st.sampled_from(["user", "system", "developer"]), "content": texts | st.lists(_input_part, max_size=3)},
        type=const("message"), id=ids, status=const("completed"),
    )
    | some({"role": const("assistant"), "content": texts | st.lists(_output_part, max_size=2)}, type=const("message"), id=ids)
    | some({"type": const("function_call"), "call_id": ids, "name": names, "arguments": arguments}, id=ids, namespace=names)
    | some({"type": const("custom_tool_call"), "call_id": ids, "name": names, "input": texts}, id=ids)
    | some({"type": const("function_call_output"), "call_id": ids, "output": texts | st.lists(_input_part, max_size=2)}, id=ids)
    | some({"type": const("custom_tool_call_output"), "call_id": ids, "output": texts})
    | some({"type": const("local_shell_call"), "call_id": ids, "action": objects}, id=ids)
    | some({"type": const("local_shell_call_output"), "id": ids, "output": texts})
    | some(
        {"type": const("reasoning"), "id": ids, "summary": st.lists(some({"type": const("summary_text"), "text": texts}), max_size=2)},
        encrypted_content=texts, content=st.lists(some({"type": const("reasoning_text"), "text": texts}), max_size=2),
    )
    | some({"type": const("web_search_call"), "id": ids}, action=objects)
    | some({"type": const("agent_message")}, content=st.lists(_input_part, max_size=2), author=names)
    | some({"type": const("compaction"), "encrypted_content": texts}, id=ids)
)  # fmt: skip
_responses_tool = (
    some({"type": const("function"), "name": names}, description=texts, parameters=schemas, strict=st.booleans())
    | some({"type": const("custom"), "name": names}, description=texts, format=objects)
    | some({"type": st.sampled_from(["web_search", "local_shell"])}, external_web_access=st.booleans())
    | some(
        {"type": const("namespace"), "name": names, "tools": st.lists(some({"type": const("function"), "name": names}), max_size=2)},
        description=texts,
    )
)  # fmt: skip
_responses = some(
    {"model": names, "input": texts.filter(bool) | st.lists(_item, min_size=1, max_size=5)},
    **numbers,
    instructions=texts,
    max_output_tokens=st.integers(1, 9),
    top_logprobs=st.integers(0, 20),
    include=st.lists(st.sampled_from(["reasoning.encrypted_content", "message.output_text.logprobs"]), max_size=2),
    stream=st.booleans(),
    tools=st.lists(_responses_tool, max_size=3),
    tool_choice=st.sampled_from(["auto", "none", "required", {"type": "function", "name": "odd_sum"}, {"type": "web_search"}]),
    parallel_tool_calls=st.booleans(),
    text=some({}, format=const({"type": "text"}) | some({"type": const("json_schema"), "name": names, "schema": schemas}), verbosity=names),
    reasoning=objects,
    store=st.booleans(),
    client_metadata=objects,
    odd_field=json_values,
)  # fmt: skip

# Messages
_text_block = some({"type": const("text"), "text": texts}, cache_control=objects, citations=const([]))
_picture = some({"type": const("image"), "source": objects}, cache_control=objects)
_result = some(
    {"type": const("tool_result"), "tool_use_id": ids},
    content=texts | st.lists(_text_block | _picture, max_size=2), is_error=st.booleans(), cache_control=objects,
)  # fmt: skip
_said = (
    _text_block
    | some({"type": const("thinking"), "thinking": texts, "signature": texts})
    | some({"type": const("redacted_thinking"), "data": texts})
    | some({"type": const("tool_use"), "id": ids, "name": names, "input": objects}, cache_control=objects)
)
_message = (
    some({"role": const("user"), "content": texts | st.lists(_text_block | _picture | _result, max_size=4)})
    | some({"role": const("assistant"), "content": texts | st.lists(_said, max_size=4)})
    | some(
        {"role": const("system"), "content": texts | st.lists(_text_block, max_size=2)}, output_config=objects
    )
)
_messages = some(
    {"model": names, "max_tokens": st.integers(1, 9), "messages": st.lists(_message, min_size=1, max_size=5)},
    **numbers,
    system=texts | st.lists(_text_block, max_size=3),
    top_k=st.integers(0, 9),
    stop_sequences=st.lists(const("y"), max_size=2),
    stream=st.booleans(),
    tools=st.lists(
        some({"name": names, "input_schema": schemas}, description=texts, type=const("custom"), cache_control=objects)
        | some({"type": const("bash_20250124"), "name": const("bash")}), max_size=3,
    ),
    tool_choice=some({"type": st.sampled_from(["auto", "any", "none"])}, disable_parallel_tool_use=st.booleans())
    | const({"type": "tool", "name": "odd_sum"}),
    output_config=some({}, effort=names, format=some({"type": const("json_schema"), "schema": schemas})),
    output_format=some({"type": const("json_schema"), "schema": schemas}),
    thinking=const({"type": "adaptive"}),
    metadata=objects,
    odd_field=json_values,
)  # fmt: skip

bodies: dict[Dialect, st.SearchStrategy[Body]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
}
