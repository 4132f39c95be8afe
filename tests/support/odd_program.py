"""A program with manners of all kinds, in plain Python: run as `python odd_program.py MANNER`."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path


def ask(system: str, text: str, tools: tuple[str, ...] = ()) -> dict:
    body = {
        "model": "m",
        "temperature": 0.2,
        "top_p": 0.5,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": text}],
    }
    if tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": name, "parameters": {"type": "object", "properties": {}}},
            }
            for name in tools
        ]
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]


def main(manner: str) -> int:
    if manner == "exits":
        return 0
    if manner == "fails":
        raise ValueError("no such bird: ☃")
    first = ask("You lead.", f"Which way, {manner}?", ("go_north", "go_south"))
    if manner == "hangs":
        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(60)", str(Path.cwd())]
        )  # in its group
        time.sleep(60)
    if manner == "floods":
        for _ in range(3000):
            print("x" * 10_000)
    if manner == "asks":
        for number in range(10_000):
            ask("You lead.", f"again {number}")
    if manner == "crashes":
        os.abort()
    chosen = [call["function"]["name"] for call in first.get("tool_calls") or ()]
    said = ask(f"You go: {' '.join(chosen)}", f"Which way, {manner}?")
    print("ANSWER", said.get("content"))
    return 7 if manner == "exits badly" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
