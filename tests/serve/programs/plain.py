"""A plain program without any framework: workers in threads, a clock and random ids in its prompts, one tool.

python plain.py QUESTION [NUM_WORKERS]
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from typing import Any

RUN = str(uuid.uuid4())


def ask(*messages: dict[str, Any], tools: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """One answer of the model."""
    body = {"model": "any", "messages": messages, **({"tools": tools} if tools else {})}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)["choices"][0]["message"]
    return found


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def worker(place: int, question: str, out: list[str]) -> None:
    time.sleep(random.random() * 0.01)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    system = {"role": "system", "content": f"You are a worker of run {RUN}. It is {now}."}
    out[place] = str(ask(system, user(f"guess: {question}"))["content"])


TOOL = {"type": "function", "function": {"name": "hire", "parameters": {"type": "object", "properties": {}}}}


def main() -> int:
    question, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    opening = [user(f"[{RUN}] lead: {question}")]
    said = ask(*opening, tools=[TOOL])
    opening.append(said)
    for use in said.get("tool_calls") or ():
        name = random.choice(["Ada", "Bob", "Cyd"]) + "".join(random.choices("aeiou", k=9))
        told = json.dumps({"agent_id": f"w{random.getrandbits(40):010x}", "nickname": name})
        opening.append({"role": "tool", "tool_call_id": use["id"], "content": told})
    out = [""] * count
    threads = [threading.Thread(target=worker, args=(place, question, out)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opening.append(user(f"guesses: {sorted(out)}"))
    print(ask(*opening, tools=[TOOL])["content"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
