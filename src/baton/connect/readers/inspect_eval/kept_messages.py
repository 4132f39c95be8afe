"""A sample whose events were not kept, told by the conversation that was.

Inspect may be told to log no events; the messages of the sample are there all the same. Each answer in them was a call
of the model and each tool's message a tool's result. When they came and what they cost is not known.
"""

from __future__ import annotations

from typing import Any

from baton.connect.import_report import ImportReport
from baton.connect.readers.chat_messages import as_text

TOLD = "a sample told by its messages, as its events were not kept"


def events_of_messages(messages: Any, at: str, report: ImportReport) -> list[dict[str, Any]]:
    """Events as Inspect would have logged them; none where there are no messages."""
    events: list[dict[str, Any]] = []
    new: list[dict[str, Any]] = []
    uses: dict[str, dict[str, Any]] = {}
    for place, message in enumerate(messages if isinstance(messages, list) else ()):
        if not isinstance(message, dict):
            report.read()
            report.skip("a message that is none", f"{at}#{place}")
        elif message.get("role") == "assistant":
            output = {"choices": [{"message": message}]}
            events.append({"event": "model", "model": message.get("model"), "input": new, "output": output})
            new = []
            for use in message.get("tool_calls") or ():
                if isinstance(use, dict):
                    uses[as_text(use.get("id"))] = use
        elif message.get("role") == "tool":
            use = uses.get(as_text(message.get("tool_call_id")), {})
            events.append(
                {
                    "event": "tool", "id": message.get("tool_call_id"), "result": message.get("content"),
                    "function": message.get("function") or use.get("function"), "error": message.get("error"),
                    "arguments": use.get("arguments", {}),
                }
            )  # fmt: skip
        else:
            report.read()  # it stands in the prompt of the next answer
            new.append(message)
    if events:
        report.join(TOLD)
    return events
