"""A help desk of two agents in plain Python: a front desk hands over to a department, which answers.

    OPENAI_BASE_URL=... python desk_plain.py "Where is the rake?"

It uses nothing but the standard library, and knows nothing of Baton.
"""

import json
import os
import sys
import urllib.request

from stock import AISLES, FRONT, knows, knows_all


def ask(system: str, question: str, tools: list | None = None) -> dict:
    """One call of Chat Completions; its message."""
    body = {
        "model": os.environ.get("MODEL", "any"),
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
    }
    if tools:
        body["tools"] = tools
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]


def main() -> None:
    if sys.argv[1] == "--alone":
        print(ask(knows_all(), sys.argv[2])["content"])
        return
    question = sys.argv[1]
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"transfer_to_{name}",
                "description": f"Hand over to the {name} desk.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
        for name in AISLES
    ]
    said = ask(FRONT, question, tools)
    chosen = [call["function"]["name"].removeprefix("transfer_to_") for call in said.get("tool_calls") or ()]
    if chosen and chosen[0] in AISLES:
        said = ask(knows(chosen[0]), question)
    print(said.get("content") or "")


main()
