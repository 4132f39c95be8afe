# ruff: noqa: E501 -- what is sent reads best as it is sent
"""Clients that mean harm, or are broken, get a clear error or none, and nobody else notices them."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from baton.serve.backends.scripted import ScriptedBackend
from baton.serve.limits import ClientLimits
from baton.serve.server import Serving

PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
SECONDS = 0.6


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    def answer(ask: Any) -> str:
        return ask.messages[-1].text * (200_000 if ask.messages[-1].text == "much " else 1)

    limits = ClientLimits(body_bytes=300_000, seconds=SECONDS, connections=256)
    out = tmp_path_factory.mktemp("hostile") / "out"
    with Serving(out, ScriptedBackend(answer), client_limits=limits, traces=False) as running:
        yield running


@pytest.fixture(autouse=True)
def nobody_is_harmed(serving: Serving, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """After whatever came, a good client is answered, nothing was printed, and nothing lies where it should not."""
    capfd.readouterr()
    yield
    status, _, body = asked(serving, ask("good day"))
    assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "good day")
    assert capfd.readouterr() == ("", "")
    parent = serving.out.parent
    assert sorted(path.name for path in parent.iterdir()) == ["out"]
    assert all(path.parent == serving.out / "sessions" for path in parent.rglob("*.jsonl"))


def ask(text: str, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **more}).encode()


def post(body: bytes, path: str = PATHS[0], *headers: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}", *headers]
    return "\r\n".join(head).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


def connection(serving: Serving) -> socket.socket:
    return socket.create_connection(("127.0.0.1", serving.port), timeout=10)


def heard(raw: socket.socket) -> bytes:
    """All that the server says before it hangs up."""
    try:
        return b"".join(iter(lambda: raw.recv(1 << 16), b""))
    except ConnectionResetError:
        return b""


def sent(serving: Serving, data: bytes) -> bytes:
    with connection(serving) as raw:
        raw.sendall(data)
        return heard(raw)


def asked(serving: Serving, body: bytes, path: str = PATHS[0], *headers: str) -> tuple[int, str, bytes]:
    got = sent(serving, post(body, path, *headers, "connection: close"))
    head, _, told = got.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), _unchunked(told) if b"chunked" in head else told


def _unchunked(told: bytes) -> bytes:
    parts = []
    while told:
        size, _, told = told.partition(b"\r\n")
        parts.append(told[: int(size, 16)])
        told = told[int(size, 16) + 2 :]
    return b"".join(parts)


def refused(serving: Serving, body: bytes, path: str = PATHS[0], *headers: str) -> str:
    """Why, in the dialect's shape; it is not asked again."""
    status, head, told = asked(serving, body, path, *headers)
    assert 400 <= status < 500, (status, told)
    assert "x-should-retry: false" in head
    error = json.loads(told)["error"]
    assert "Traceback" not in told.decode()
    return str(error["message"])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"nothing", b"[]", b'"text"', b"12", b"null", b"\xff\xfe{}", b'{"model": NaN}', b'{"a": 1e999}',
        b'{"model": "\\ud83d"}', b"[" * 100_000, b'{"a":' * 50_000, b'{"messages":[' + b"[" * 500 + b"]" * 500 + b"]}",
        b'{"model":"m","max_tokens":5,"messages":{},"input":{}}', b'{"model":5,"max_tokens":5,"messages":[],"input":[]}',
        b'{"model":"m","max_tokens":5,"messages":[7],"input":[7]}',
        b'{"model":"m","max_tokens":5,"messages":[{"role":"nobody","content":""}],"input":[{"role":"nobody","content":""}]}',
        b"\x00" * 1000, b"--boundary\r\ncontent-disposition: form-data\r\n\r\n{}",
    ],
)  # fmt: skip
def test_what_is_no_question(serving: Serving, path: str, body: bytes) -> None:
    before = set(serving.sessions)
    why = refused(serving, body, f"/s/wrong{path}")
    assert why.endswith(".")
    assert len(why) < 300
    assert set(serving.sessions) == before, "a question that is none opens no session"


_NAMES_ONE = (
    {"type": "function", "function": {"name": "sell"}}, {"type": "function", "name": "sell"}, {"type": "tool", "name": "sell"}
)  # fmt: skip


@pytest.mark.parametrize("offered", [[], ["buy", "look"]])
@pytest.mark.parametrize(("path", "choice"), list(zip(PATHS, _NAMES_ONE, strict=True)))
def test_a_choice_of_a_tool_that_is_not_offered(
    serving: Serving, path: str, choice: dict[str, Any], offered: list[str]
) -> None:
    forms: dict[str, list[dict[str, Any]]] = {
        PATHS[0]: [{"type": "function", "function": {"name": name}} for name in offered],
        PATHS[1]: [{"type": "function", "name": name, "parameters": {}} for name in offered],
        PATHS[2]: [{"name": name, "input_schema": {"type": "object"}} for name in offered],
    }
    why = refused(serving, ask("go", input="go", max_tokens=9, tools=forms[path], tool_choice=choice), path)
    assert "tool_choice" in why
    assert all(name in why for name in offered)


@pytest.mark.parametrize("many", [b"[]", b"{}", b'""', b"0"])
def test_a_body_of_very_many_values(serving: Serving, many: bytes) -> None:
    body = b'{"model":"m","messages":[' + b",".join([many] * (250_000 // (len(many) + 1))) + b"]}"
    assert "messages" in refused(serving, body)


def test_very_many_messages(serving: Serving) -> None:
    one = b'{"role":"user"}'
    body = b'{"model":"m","messages":[' + b",".join([one] * 15_000) + b"]}"
    why = refused(serving, body)
    assert "15,000" in why


def test_a_body_that_is_too_large(serving: Serving) -> None:
    assert "300,000" in refused(serving, ask("x" * 400_000))
    lied = b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999999999\r\n\r\n"
    assert b" 413 " in sent(serving, lied)
    endless = b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
    assert b" 413 " in sent(serving, endless + (b"10000\r\n" + b"x" * 0x10000 + b"\r\n") * 6)


@pytest.mark.parametrize("packing", ["gzip", "deflate", "zstd"])
def test_a_small_body_that_unpacks_to_a_huge_one(serving: Serving, packing: str) -> None:
    huge = ask("x" * 30_000_000)
    packed = {
        "gzip": lambda: gzip.compress(huge, 1),
        "deflate": lambda: zlib.compress(huge, 1),
        "zstd": lambda: _zstd(huge),
    }[packing]()
    assert len(packed) < 300_000
    assert "300,000" in refused(serving, packed, PATHS[0], f"content-encoding: {packing}")


def _zstd(data: bytes) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    return bytes(pyarrow.compress(data, codec="zstd", asbytes=True))


@pytest.mark.parametrize(
    ("packing", "body"),
    [
        ("gzip", b"not packed"), ("gzip", gzip.compress(ask("cut off"))[:-9]), ("deflate", b"\x00"),
        ("deflate", zlib.compress(ask("cut off"))[:-5]), ("zstd", b"\x28\xb5\x2f\xfd\x00"), ("br", b"x"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"{}"))), ("GZIP;q=\xff", b"x"),
    ],
    # Named by hand: gzip writes the second it packed into its bytes, and a test's name may not move.
    ids=["gzip plain", "gzip cut", "deflate zero", "deflate cut", "zstd cut", "brotli", "gzip twice", "odd name"],
)  # fmt: skip
def test_what_cannot_be_unpacked(serving: Serving, packing: str, body: bytes) -> None:
    assert refused(serving, body, PATHS[0], f"content-encoding: {packing}")


@pytest.mark.parametrize(
    "path",
    [
        "/s/../../etc/v1/messages", "/s/%2e%2e%2f%2e%2e/v1/messages", "/s/..%5c..%5c/v1/messages", "/s/.hidden/v1/messages",
        "/s/a%00b/v1/messages", "/s/%0d%0aset-cookie:x/v1/messages", "/s//v1/messages", "/s/a/../b/v1/messages",
        "/s/" + "n" * 129 + "/v1/messages", "/s/%C3%A9/v1/messages", "/s/a%2Fb/v1/messages", "/s/con:/v1/messages",
        "/v1/../s/x", "//v1/messages", "/s/x/v1/messages/../../..", "/%2e%2e/%2e%2e/etc/passwd", "/s/x%3b/v1/messages",
        "/s/x/v1/chat/completions%00", "/" + "a/" * 5_000, "http://evil.example/s/x/v1/messages", "*", "/s/%/v1/messages",
    ],
)  # fmt: skip
def test_path_tricks(serving: Serving, path: str) -> None:
    before = set(serving.sessions)
    status, _, told = asked(serving, ask("x", max_tokens=5), path)
    assert 400 <= status < 500, told
    assert set(serving.sessions) == before
    assert b"Traceback" not in told


@pytest.mark.parametrize(
    "key", ["baton-../../x", "baton-", "baton-" + "x" * 500, "baton-a/b", "baton-.x", "baton-a b", "baton-é"]
)
def test_key_tricks(serving: Serving, key: str) -> None:
    before = set(serving.sessions)
    assert "session" in refused(serving, ask("x"), PATHS[0], f"authorization: Bearer {key}")
    assert set(serving.sessions) == before


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n" * 5_000, b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00" * 40, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/messages HTTP/9.9\r\nhost: 127.0.0.1\r\n\r\n", b"POST /v1/messages HTTP/1.1\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
        b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nbad name: x\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx: a\x00b\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"x-bomb: y\r\n" * 20_000 + b"\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"y" * 200_000 + b"\r\n\r\n",
        b"POST /" + b"a" * 200_000 + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example\r\n\r\n", b"TRACE / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    ],
    ids=range(17),
)  # fmt: skip
def test_what_is_no_http(serving: Serving, data: bytes) -> None:
    got = sent(serving, data)
    assert not got or got.startswith(b"HTTP/1.1 4"), got[:200]
    assert b"Traceback" not in got


def test_two_lengths_do_not_smuggle_a_question(serving: Serving) -> None:
    """A chunked body with a length as well is one body; what stands after its end is a request of its own or nothing."""
    inner = post(ask("smuggled"), "/s/victim/v1/chat/completions")
    body = b"0\r\n\r\n" + inner
    head = b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n"
    got = sent(serving, head + f"content-length: {len(body)}\r\n\r\n".encode() + body)
    assert got.startswith(b"HTTP/1.1 400")
    assert "victim" not in serving.sessions


def test_half_a_request_and_gone(serving: Serving) -> None:
    whole = post(ask("half"), "/s/half/v1/chat/completions")
    for end in (1, 20, 60, len(whole) - 30, len(whole) - 1):
        with connection(serving) as raw:
            raw.sendall(whole[:end])
    time.sleep(0.2)
    assert "half" not in serving.sessions


@pytest.mark.parametrize("trickle", ["head", "body", "second head"])
def test_a_client_that_writes_a_byte_now_and_then_is_let_go(serving: Serving, trickle: str) -> None:
    with connection(serving) as raw:
        if trickle == "second head":
            raw.sendall(post(ask("first")))
            raw.recv(1 << 16)
        if trickle == "body":
            raw.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5000\r\n\r\n")
        else:
            raw.sendall(b"POST /v1/messages HTTP/1.1\r\nx: ")
        began = time.monotonic()
        while time.monotonic() - began < 12 * SECONDS:
            time.sleep(SECONDS / 4)
            try:
                raw.sendall(b" ")
            except OSError:
                return
        pytest.fail("it may go on for ever")


def test_a_client_that_does_not_read_is_let_go(serving: Serving) -> None:
    with connection(serving) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(24):
            raw.sendall(post(ask("much ", stream=True), "/s/mute/v1/chat/completions"))
        assert raw.recv(12) == b"HTTP/1.1 200"
        began = time.monotonic()
        while _connections(serving) and time.monotonic() - began < 12 * SECONDS:
            time.sleep(0.1)
        assert _connections(serving) == 0


def _connections(serving: Serving) -> int:
    assert serving._server is not None
    return len(serving._server.server_state.connections)


def test_two_hundred_connections_at_once(serving: Serving) -> None:
    """A hundred that say nothing, fifty that say half, fifty that ask: those who ask are answered."""
    idle = [connection(serving) for _ in range(100)]
    half = [connection(serving) for _ in range(50)]
    for raw in half:
        raw.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 50\r\n\r\n{")
    got: dict[int, bytes] = {}

    def good(number: int) -> None:
        status, _, body = asked(serving, ask(f"number {number}"), f"/s/good{number}{PATHS[0]}")
        got[number] = body if status == 200 else b"%d" % status

    _at_once(good, 50)
    for raw in (*idle, *half):
        raw.close()
    assert {n: json.loads(body)["choices"][0]["message"]["content"] for n, body in got.items()} == {
        n: f"number {n}" for n in range(50)
    }


def _at_once(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)


def test_a_question_that_is_slow_to_read_does_not_hold_others_up(serving: Serving) -> None:
    """Reading the worst that the limits allow leaves the loop to others."""
    worst = b'{"model":"m","messages":[' + b",".join([b'{"role":"user","content":[]}'] * 9_000) + b"]}"
    waits: list[float] = []

    def bad(number: int) -> None:
        asked(serving, worst, f"/s/worst{number}{PATHS[0]}")

    busy = threading.Thread(target=_at_once, args=(bad, 3))
    busy.start()
    while busy.is_alive():
        began = time.monotonic()
        assert asked(serving, ask("quick"))[0] == 200
        waits.append(time.monotonic() - began)
    busy.join()
    assert waits


@pytest.mark.parametrize("body", [b"", b"{", b'{"value": "much"}', b'{"value": NaN}', b'{"value": 1e999}', b"[1]",
                                  b'{"value": 1, "target": "nobody"}', b'{"value": 1, "odd": 2}', b"\xff"])  # fmt: skip
def test_rewards_that_are_none(serving: Serving, body: bytes) -> None:
    status, _, told = asked(serving, body, "/s/rewarded/reward")
    assert 400 <= status < 500
    assert json.loads(told)["error"]["message"]


def test_an_outside_path_is_never_written(serving: Serving, tmp_path: Path) -> None:
    target = tmp_path / "x"
    status, _, _ = asked(serving, ask("x"), f"/s/{str(target).replace('/', '%2F')}{PATHS[0]}")
    assert 400 <= status < 500
    assert not list(tmp_path.iterdir())
