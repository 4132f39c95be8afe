"""What a span is, and what it calls things: GenAI, OpenInference and OpenLLMetry, old names and new ones.

One place for all attribute names but those of messages. A function here reads one span and knows nothing of others.
"""

from __future__ import annotations

import math
import re
from enum import Enum, auto
from typing import Any

from baton.connect.readers.otlp.messages import Message, as_json, as_text, messages, parsed, talk_of
from baton.connect.readers.otlp.span import OtelSpan


class Kind(Enum):
    """What a span says happened."""

    AGENT = auto()
    WORKFLOW = auto()
    """A program that calls agents, and so does a team's work of leading."""
    TEAM = auto()
    """A frame around agents that pass control to each other: a swarm, a runner."""
    MODEL = auto()
    TOOL = auto()
    GUARD = auto()
    DECISION = auto()
    EVENT = auto()
    """An event that Baton wrote as a span, because no convention has a word for it."""
    CHAIN = auto()
    """A step of a program; it may say more about itself in its metadata."""
    NONE = auto()


_OPERATIONS = {
    "chat": Kind.MODEL,
    "text_completion": Kind.MODEL,
    "completion": Kind.MODEL,
    "generate_content": Kind.MODEL,
    "responses": Kind.MODEL,
    "call_llm": Kind.MODEL,
    "invoke_agent": Kind.AGENT,
    "execute_tool": Kind.TOOL,
    "retrieval": Kind.TOOL,
    "plan": Kind.DECISION,
    "invoke_workflow": Kind.WORKFLOW,
    "invoke_graph": Kind.WORKFLOW,
    "invoke_swarm": Kind.TEAM,
}
_OPENINFERENCE = {
    "AGENT": Kind.AGENT,
    "LLM": Kind.MODEL,
    "TOOL": Kind.TOOL,
    "RETRIEVER": Kind.TOOL,
    "RERANKER": Kind.TOOL,
    "GUARDRAIL": Kind.GUARD,
    "DECISION": Kind.DECISION,
    "CHAIN": Kind.CHAIN,
}
_TRACELOOP = {
    "agent": Kind.AGENT,
    "tool": Kind.TOOL,
    "workflow": Kind.TEAM,
    "task": Kind.CHAIN,
}
_NAME_ENDS = re.compile(r"(\.run|\._execute_core|\.execute_task|\.agent|\.kickoff)$")
_NAME_STARTS = re.compile(
    r"^(invoke_agent|execute_tool|create_agent|running tool:?|invoke_workflow|agent run)\s*"
)
_NODE = re.compile(r'"langgraph_node": ?"((?:[^"\\]|\\.)*)"')
_PUSHED = re.compile(r'"langgraph_triggers": ?\[[^\]]*"__pregel_push"')
_HANDOFF = re.compile(r"^(?:handoff|transfer|hand_off|delegate)[_ ]to[_ ](.+)$", re.IGNORECASE)


def kind_of(span: OtelSpan) -> Kind:
    """What a span is, by the conventions in the order in which they are sure."""
    a = span.attributes
    if "baton.event.type" in a:
        return Kind.EVENT
    operation = a.get("gen_ai.operation.name")
    if operation is not None:
        return _OPERATIONS.get(str(operation), Kind.NONE)
    kind = a.get("openinference.span.kind")
    if kind is not None:
        return _OPENINFERENCE.get(str(kind).upper(), Kind.NONE)
    kind = a.get("traceloop.span.kind")
    if kind is not None:
        return _TRACELOOP.get(str(kind), Kind.NONE)
    if "llm.request.type" in a:
        return Kind.MODEL if a["llm.request.type"] in ("chat", "completion") else Kind.NONE
    if "gen_ai.tool.name" in a:  # pydantic-ai before it named the operation
        return Kind.TOOL
    if "workflow.id" in a and span.name == "workflow.run":
        return Kind.WORKFLOW
    if "agent_name" in a and ("final_result" in a or span.name == "agent run"):
        return Kind.AGENT
    if ("gen_ai.system" in a or "gen_ai.provider.name" in a) and "gen_ai.request.model" in a:
        return Kind.MODEL
    return Kind.NONE


def agent_name(span: OtelSpan) -> str | None:
    """What an agent's span calls its agent."""
    a = span.attributes
    named = _known(
        a, "gen_ai.agent.name", "agent.name", "agent_name", "graph.node.id", "traceloop.entity.name"
    )
    if named is not None:
        return named
    return _NAME_STARTS.sub("", _NAME_ENDS.sub("", span.name)) or span.name or None


def is_unnamed_frame(span: OtelSpan) -> bool:
    """OpenInference marks an openai-agents trace as AGENT, too; it has no name of an agent."""
    a = span.attributes
    return (
        "openinference.span.kind" in a
        and _known(a, "agent.name", "graph.node.id", "gen_ai.agent.name") is None
    )


def is_ours(span: OtelSpan) -> bool:
    """Whether Baton wrote it: then its words are kept as they are, and nothing is concluded from them."""
    return span.scope == "baton" or "baton.event.id" in span.attributes


def agent_identity(span: OtelSpan) -> str:
    """Tells one agent from another where names may be shared."""
    return _known(span.attributes, "gen_ai.agent.id") or agent_name(span) or ""


def named_agent(span: OtelSpan) -> str | None:
    """The agent that a span which is no agent's says it belongs to."""
    return _known(span.attributes, "gen_ai.agent.name", "agent.name")


def conversation(span: OtelSpan) -> str | None:
    return _known(span.attributes, "gen_ai.conversation.id", "gcp.vertex.agent.session_id")


def workflow_name(span: OtelSpan) -> str:
    found = _known(span.attributes, "gen_ai.workflow.name", "workflow.name", "traceloop.entity.name")
    return found or _NAME_STARTS.sub("", span.name) or span.name


def tool_name(span: OtelSpan) -> str:
    a = span.attributes
    found = _known(a, "gen_ai.tool.name", "tool.name", "traceloop.entity.name", "gen_ai.data_source.id")
    return found or _NAME_STARTS.sub("", span.name) or span.name


def tool_call_id(span: OtelSpan) -> str | None:
    return _known(span.attributes, "gen_ai.tool.call.id", "tool_call.id", "tool.id")


def tool_arguments(span: OtelSpan) -> str | None:
    found = _value(
        span.attributes,
        "gen_ai.tool.call.arguments", "tool_arguments", "gcp.vertex.agent.tool_call_args", "tool.parameters_used",
        "input.value", "traceloop.entity.input", "gen_ai.retrieval.query.text",
    )  # fmt: skip
    if found is None:
        found = next(
            (e.attributes.get("content") for e in span.events if e.name == "gen_ai.tool.message"), None
        )
    inner = parsed(found)
    if isinstance(inner, dict) and "sanitize_inputs_outputs" in inner:  # smolagents wraps them
        return as_json(inner.get("kwargs") or inner.get("args") or {})
    return None if found is None else as_text(found)


def tool_result(span: OtelSpan) -> str | None:
    found = _value(
        span.attributes,
        "gen_ai.tool.call.result", "tool_response", "gcp.vertex.agent.tool_response", "output.value",
        "traceloop.entity.output",
    )  # fmt: skip
    if found is None:
        said = next((e.attributes.get("message") for e in span.events if e.name == "gen_ai.choice"), None)
        if said is None:
            return None
        found = "\n".join(message.text for message in messages([{"content": said}]))
    inner = parsed(found)
    if isinstance(inner, dict) and isinstance(inner.get("data"), dict) and "content" in inner["data"]:
        return as_text(inner["data"]["content"])  # LangChain's ToolMessage
    return as_text(found)


def handed_to(span: OtelSpan) -> str | None:
    """The name of the agent that a tool passes control to; None: it is an ordinary tool."""
    found = _HANDOFF.match(tool_name(span))
    if found is None or is_ours(span):
        return None
    if found[1].lower() not in ("agent", "another_agent"):
        return found[1]
    arguments = parsed(tool_arguments(span))
    if not isinstance(arguments, dict):
        return None
    return next(
        (str(arguments[key]) for key in ("agent_name", "agent", "to", "name") if arguments.get(key)), None
    )


def hands_over(span: OtelSpan) -> bool:
    """Whether a tool passes control, even where its arguments, which say to whom, were kept out of the span."""
    return _HANDOFF.match(tool_name(span)) is not None and not is_ours(span)


def task_of(span: OtelSpan) -> str | None:
    """What an agent was asked, out of its own span."""
    a = span.attributes
    whole = parsed(a.get("pydantic_ai.all_messages"))
    told = messages(whole) if isinstance(whole, list) else talk_of(span).told
    first = _last_before_answer(told)
    if first is None or is_ours(span):
        return None if first is None else first.text
    return _worded(first.text, ("task", "input", "query", "question"))


def _worded(text: str, names: tuple[str, ...]) -> str:
    """The words in a program's input or output, where it is an object with messages or one of these names."""
    inner = parsed(text) if text.startswith("{") else None
    if not isinstance(inner, dict):
        return text
    found = next((inner[name] for name in names if isinstance(inner.get(name), str)), None)
    listed = inner.get("messages")
    if found is None and isinstance(listed, list) and listed:
        last = listed[-1]
        pair = isinstance(last, list) and len(last) == 2  # LangGraph takes (role, text)
        found = as_text(last[1]) if pair else messages([last])[-1].text if isinstance(last, dict) else None
    return found if isinstance(found, str) else text


def _last_before_answer(told: list[Message]) -> Message | None:
    """The user's message that the run began with: the last one before the first answer."""
    found: Message | None = None
    for message in told:
        if message.role == "assistant":
            if found is not None:
                break
        elif message.role == "user":
            found = message
    return found


def answer_of(span: OtelSpan) -> str | None:
    """What an agent gave back, out of its own span."""
    a = span.attributes
    if a.get("final_result") is not None:
        return as_text(a["final_result"])
    whole = parsed(a.get("pydantic_ai.all_messages"))
    said = messages(whole) if isinstance(whole, list) else talk_of(span).said
    if is_ours(span):
        return said[-1].text if "gen_ai.output.messages" in a and said else None
    found = next((m.text for m in reversed(said) if m.role == "assistant" and m.text), None)
    if found is None and isinstance(a.get("output.value"), str):
        found = a["output.value"]
    return None if found is None else _worded(found, ("answer", "output", "result", "response"))


def usage(span: OtelSpan) -> tuple[int | None, int | None]:
    """Tokens of the prompt and of the answer, as billed."""
    a = span.attributes
    return (
        _count(a, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
        _count(
            a, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"
        ),
    )


_USAGE_DETAILS = (
    "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cache_write_input_tokens",
    "gen_ai.usage.details.cache_read_tokens", "gen_ai.usage.details.reasoning_tokens",
    "gen_ai.usage.reasoning.output_tokens", "llm.token_count.prompt_details.cache_read",
    "llm.token_count.completion_details.reasoning", "gen_ai.provider.name", "gen_ai.system", "gen_ai.response.id",
)  # fmt: skip
_ANY_DETAIL = frozenset(_USAGE_DETAILS)
_COUNTED = 1 << 53  # past it, a number is none that a counter gave


def details(span: OtelSpan) -> dict[str, Any]:
    """What else is known of a call, under the source's own names."""
    a = span.attributes
    if _ANY_DETAIL.isdisjoint(a):
        return {}
    return {name: a[name] for name in _USAGE_DETAILS if a.get(name) not in (None, 0, "")}


def model_name(span: OtelSpan) -> str | None:
    return _known(
        span.attributes,
        "gen_ai.response.model",
        "gen_ai.request.model",
        "llm.model_name",
        "embedding.model_name",
    )


def temperature(span: OtelSpan) -> float | None:
    a = span.attributes
    found = a.get("gen_ai.request.temperature")
    if found is None and "llm.invocation_parameters" in a:
        inner = parsed(a["llm.invocation_parameters"])
        found = inner.get("temperature") if isinstance(inner, dict) else None
    return _number(found)


def failure(span: OtelSpan) -> str | None:
    """What went wrong, in words; None: nothing is said to have."""
    a = span.attributes
    if is_ours(span):
        return None  # it says the status itself
    if not span.failed and a.get("error.type") is None and a.get("gen_ai.tool.status") != "error":
        return None
    for event in span.events:
        if event.name == "exception" and event.attributes.get("exception.message"):
            return as_text(event.attributes["exception.message"])
    return span.message or as_text(a.get("error.message") or a.get("error.type") or "it failed")


def graph_node(span: OtelSpan) -> str | None:
    """The LangGraph node in which a span ran; None: it names none."""
    found = _NODE.search(_metadata(span))
    return None if found is None else found[1]


def was_sent(span: OtelSpan) -> bool:
    """Whether LangGraph ran it for a Send; a node that follows by an edge is pulled."""
    return _PUSHED.search(_metadata(span)) is not None


def _metadata(span: OtelSpan) -> str:
    # Searched and not decoded: it may have been cut off, and it is the same for all spans below a node.
    text = span.attributes.get("metadata")
    return text if isinstance(text, str) else ""


def message_of(tool: OtelSpan) -> str | None:
    """What an agent says when it passes control."""
    arguments = parsed(tool_arguments(tool))
    if not isinstance(arguments, dict):
        return None
    return next((str(arguments[key]) for key in ("message", "reason", "input") if arguments.get(key)), None)


def _known(a: dict[str, Any], *names: str) -> str | None:
    for name in names:
        found = a.get(name)
        if found is not None and found != "":
            return str(found)
    return None


def _value(a: dict[str, Any], *names: str) -> Any:
    for name in names:
        if (found := a.get(name)) is not None:
            return found
    return None


def _count(a: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = a.get(name)
        if type(value) is int and 0 <= value < _COUNTED:
            return value
        found = _number(value)
        if found is not None and found >= 0 and found == int(found):
            return int(found)
    return None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None
