"""A loopback server that plays the model of Claude Code (Messages API) and of Codex (Responses API), from a script.

A script is `{play: [turn, ...]}` and a turn is a list of blocks: a text, or `(tool, arguments)`. Which play a request
belongs to is said by the last `PLAY:name` in what the user's side of the conversation says, so a program is led by its
prompts alone: the main agent's prompt names one play, the prompts it gives to sub-agents name others. `$agent0` in an
argument stands for the id of the first agent that the conversation has named, and so on. What a request is billed is a
number of its own, never the same twice, and is kept in `billed`: that is the truth a trace is held against.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Block = str | tuple[str, dict[str, Any]]
Script = dict[str, list[list[Block]]]
_PLAY = re.compile(r"PLAY:([a-z0-9-]+)")
_AGENT = re.compile(r'agentId: (\w+)|\\"agent_id\\": ?\\"([\w-]+)\\"')


class ScriptedModel:
    """Answers by the script, over HTTP on a free port of loopback; a context manager."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.billed: list[dict[str, Any]] = []
        """One record per answer: play, turn, what was billed, the request's own headers."""
        self.requests: list[dict[str, Any]] = []
        self._turns: Counter[str] = Counter()
        self._lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                self._send(b"{}", "application/json")

            do_HEAD = do_GET

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if "/messages" in self.path and "count_tokens" not in self.path:
                    said = json.loads(body)
                    self._send(model.messages(said, dict(self.headers)), "text/event-stream")
                elif self.path.endswith("/responses"):
                    said = json.loads(body)
                    self._send(model.responses(said, dict(self.headers)), "text/event-stream")
                else:
                    self._send(b'{"input_tokens": 1}', "application/json")

            def _send(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ScriptedModel:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _turn(
        self, said: list[str], request: dict[str, Any], headers: dict[str, str]
    ) -> tuple[list[Block], int]:
        """The blocks of the next turn of the play that was last named, and the number of the answer."""
        self.requests.append({"headers": headers, "body": request})
        named = [one or other for one, other in _AGENT.findall(json.dumps(request))]
        agents = list(dict.fromkeys(named))
        plays = [name for text in said for name in _PLAY.findall(text)]
        play = plays[-1] if plays else "nobody"
        with self._lock:
            turn = self._turns[play]
            self._turns[play] += 1
            turns = self.script.get(play, [])
            blocks: list[Block] = list(turns[turn]) if turn < len(turns) else [f"done ({play})"]
            number = len(self.billed) + 1
            self.billed.append(
                {
                    "play": play,
                    "turn": turn,
                    "number": number,
                    "model": request.get("model"),
                    "ids": _ids(headers),
                }
            )
        for place, block in enumerate(blocks):
            if not isinstance(block, str):
                text = json.dumps(block[1])
                for index, agent in enumerate(agents):
                    text = text.replace(f"$agent{index}", agent)
                blocks[place] = (block[0], json.loads(text))
        return blocks, number

    def messages(self, request: dict[str, Any], headers: dict[str, str]) -> bytes:
        """One answer of the Messages API, as a stream."""
        said = [text for m in request["messages"] if m["role"] == "user" for text in _texts(m["content"])]
        blocks, number = self._turn(said, request, headers)
        usage = {
            "input_tokens": 100 + number,
            "cache_creation_input_tokens": 10 * number,
            "cache_read_input_tokens": 1000 * number,
        }
        output = 7 * number
        with self._lock:
            self.billed[number - 1].update(usage, output_tokens=output, id=f"msg_{number:06d}")
        start = {
            "id": f"msg_{number:06d}",
            "type": "message",
            "role": "assistant",
            "model": request.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**usage, "output_tokens": 1},
        }
        events: list[tuple[str, dict[str, Any]]] = [("message_start", {"message": start})]
        for index, block in enumerate(blocks):
            if isinstance(block, str):
                opened: dict[str, Any] = {"type": "text", "text": ""}
                delta = {"type": "text_delta", "text": block}
            else:
                opened = {
                    "type": "tool_use",
                    "id": f"toolu_{number:06d}_{index}",
                    "name": block[0],
                    "input": {},
                }
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block[1])}
            events.append(("content_block_start", {"index": index, "content_block": opened}))
            events.append(("content_block_delta", {"index": index, "delta": delta}))
            events.append(("content_block_stop", {"index": index}))
        reason = "tool_use" if any(not isinstance(b, str) for b in blocks) else "end_turn"
        ended = {
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {**usage, "output_tokens": output},
        }
        events += [("message_delta", ended), ("message_stop", {})]
        return _sse(events)

    def responses(self, request: dict[str, Any], headers: dict[str, str]) -> bytes:
        """One answer of the Responses API, as a stream."""
        said = [
            text
            for item in request["input"]
            if item.get("role") == "user" or item.get("type") == "agent_message"
            for text in _texts(item.get("content") or "")
        ]
        blocks, number = self._turn(said, request, headers)
        usage = {
            "input_tokens": 1100 * number,
            "input_tokens_details": {"cached_tokens": 1000 * number},
            "output_tokens": 7 * number,
            "output_tokens_details": {"reasoning_tokens": number},
            "total_tokens": 1107 * number,
        }
        with self._lock:
            self.billed[number - 1].update(usage, id=f"resp_{number:06d}")
        items: list[dict[str, Any]] = []
        for index, block in enumerate(blocks):
            if isinstance(block, str):
                text = {"type": "output_text", "text": block, "annotations": []}
                items.append(
                    {
                        "type": "message",
                        "role": "assistant",
                        "id": f"m_{number:06d}_{index}",
                        "content": [text],
                    }
                )
            else:
                name, _, space = block[0].rpartition("/")[2], "", block[0].rpartition("/")[0]
                item: dict[str, Any] = {
                    "type": "function_call",
                    "id": f"f_{number:06d}_{index}",
                    "call_id": f"call_{number:06d}_{index}",
                    "name": name,
                    "arguments": json.dumps(block[1]),
                }
                if space:
                    item["namespace"] = space
                items.append(item)
        response = {"id": f"resp_{number:06d}", "object": "response", "model": request.get("model")}
        events: list[tuple[str, dict[str, Any]]] = [("response.created", {"response": response})]
        for index, item in enumerate(items):
            events.append(("response.output_item.added", {"output_index": index, "item": item}))
            events.append(("response.output_item.done", {"output_index": index, "item": item}))
        events.append(("response.completed", {"response": {**response, "output": items, "usage": usage}}))
        return _sse(events)


def _texts(content: Any) -> list[str]:
    """The texts a user's message says; what a tool gave back names no play."""
    if isinstance(content, str):
        return [content]
    said = [part.get("text") or part.get("encrypted_content") for part in content]
    return [text for text in said if isinstance(text, str)]


def _ids(headers: dict[str, str]) -> dict[str, str]:
    """The headers by which a program says who asks."""
    wanted = ("claude-code", "thread", "session", "codex", "subagent")
    return {k.lower(): v for k, v in headers.items() if any(word in k.lower() for word in wanted)}


def _sse(events: list[tuple[str, dict[str, Any]]]) -> bytes:
    lines = [f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in events]
    return "".join(lines).encode()
