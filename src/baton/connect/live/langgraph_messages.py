"""What LangChain's messages and LangGraph's commands say, in plain values."""

from __future__ import annotations

from typing import Any

from baton.connect.live.prompts import spoken, text_of

_SPEAKERS = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "developer": "system"}


def said_by(message: Any) -> tuple[str, list[tuple[str, Any, str | None]]]:
    """A message's text, and its tool calls as (name, arguments, id)."""
    calls = [
        (call["name"], call["args"], call.get("id")) for call in getattr(message, "tool_calls", None) or ()
    ]
    content = getattr(message, "content", message)
    if isinstance(content, list):  # a part that is a tool call stands among the tool calls
        content = [
            part for part in content if not (isinstance(part, dict) and part.get("type") in _CALL_PARTS)
        ]
    return text_of(content), calls


_CALL_PARTS = ("tool_use", "function_call", "tool_call", "reasoning", "thinking")


def entry_of(message: Any) -> tuple[str, str]:
    """A message of a prompt as (speaker, text)."""
    text, calls = said_by(message)
    kind = getattr(message, "type", "user")
    return _SPEAKERS.get(kind, kind), spoken(text, [(name, arguments) for name, arguments, _ in calls])


def usage_of(message: Any, response: Any) -> dict[str, Any]:
    """Tokens, the model's name and why it ended, as far as the provider told."""
    usage = getattr(message, "usage_metadata", None) or {}
    about = getattr(message, "response_metadata", None) or {}
    billed = (getattr(response, "llm_output", None) or {}).get("token_usage") or {}
    told = {
        "prompt_tokens": usage.get("input_tokens", billed.get("prompt_tokens")),
        "completion_tokens": usage.get("output_tokens", billed.get("completion_tokens")),
        "policy": about.get("model_name") or about.get("model"),
        "finish_reason": about.get("finish_reason") or about.get("stop_reason"),
    }
    return {name: value for name, value in told.items() if value is not None}


def final_text(state: Any, *, speaker: str | None = None) -> str | None:
    """The last message's text of a state, or of what a node adds to it; None where there are no messages."""
    if isinstance(state, list) and state:
        found = [final_text(part, speaker=speaker) for part in state]
        return next((text for text in reversed(found) if text is not None), None)
    update = getattr(state, "update", None)
    if update is not None and not callable(update):
        return final_text(update, speaker=speaker)
    messages = state.get("messages") if isinstance(state, dict) else getattr(state, "messages", None)
    if not isinstance(messages, list | tuple):
        messages = [messages] if hasattr(messages, "content") else []
    for message in reversed(messages):
        content = (
            message.get("content") if isinstance(message, dict) else getattr(message, "content", message)
        )
        kind = message.get("role") if isinstance(message, dict) else getattr(message, "type", None)
        if isinstance(message, tuple) and len(message) == 2:
            kind, content = message
        if speaker is None or _SPEAKERS.get(str(kind), kind) == _SPEAKERS[speaker]:
            return text_of(content)
    return None


def _commands(outputs: Any) -> list[Any]:
    return [
        each
        for each in (outputs if isinstance(outputs, list | tuple) else [outputs])
        if hasattr(each, "goto")
    ]


def gotos(outputs: Any) -> list[str]:
    """The nodes that commands pass control to."""
    found: list[str] = []
    for command in _commands(outputs):
        goto = command.goto if isinstance(command.goto, list | tuple) else [command.goto]
        found += [
            target for target in goto if isinstance(target, str) and target and not target.startswith("__end")
        ]
    return found


def sends(outputs: Any) -> list[Any]:
    """What is sent to nodes: each starts one of them with a state of its own."""
    whole = outputs if isinstance(outputs, list | tuple) else [outputs]
    for command in _commands(outputs):
        whole = [*whole, *(command.goto if isinstance(command.goto, list | tuple) else [command.goto])]
    return [each for each in whole if hasattr(each, "node") and hasattr(each, "arg")]
