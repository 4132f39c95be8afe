"""The receiver: what it acknowledges is on disk, what it cannot read it refuses, and a bad client harms no other."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.otlp_spans import request, team

from baton.cli import main
from baton.connect.importing import import_traces
from baton.connect.readers.otlp.json_spans import spans_of
from baton.connect.receive import ReceiveLimits, Receiver
from baton.connect.writers.otlp import protobuf_request
from baton.errors import UsageError
from baton.trace.formats import read_all

PROTOBUF = "application/x-protobuf"
SMALL = ReceiveLimits(body_bytes=20_000, unpacked_bytes=40_000, seconds=20, connections=64)


@contextmanager
def receiving(out: Path, limits: ReceiveLimits = SMALL, **content: Any) -> Iterator[Receiver]:
    receiver = Receiver(out, port=0, limits=limits, **content)
    thread = threading.Thread(target=receiver.serve)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.stop()
        thread.join()
        receiver.close()


def post(
    receiver: Receiver, body: bytes, kind: str = PROTOBUF, path: str = "/v1/traces", **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=10)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", path, body, {"Content-Type": kind, **named})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def as_protobuf(*spans: dict[str, Any]) -> bytes:
    return protobuf_request([one for one in spans_of(request(*spans), "") if hasattr(one, "links")])


def returned(out: Path) -> list[int]:
    return [sum(event.type == "return" for event in trace.events) for trace in read_all(out)]


def test_both_encodings_packed_and_in_any_batches_are_one_trace(tmp_path: Path) -> None:
    spans = team()
    with receiving(tmp_path) as receiver:
        assert post(receiver, as_protobuf(*spans[:4])) == (200, b"")
        body = gzip.compress(json.dumps(request(*spans[4:8])).encode())
        assert post(receiver, body, "application/json; charset=utf-8", Content_Encoding="gzip") == (
            200,
            b"{}",
        )
        assert post(receiver, as_protobuf(*spans[8:], *spans[:2])) == (200, b"")
        assert post(receiver, b"\x0a\x00", path="/v1/metrics") == (200, b"")
        assert receiver.counts["metrics requests dropped"] == 1
    assert returned(tmp_path) == [2]
    # The journal is a source of its own.
    assert {path.suffix for path in (tmp_path / "received").iterdir()} == {".pb", ".jsonl"}


def test_a_chunked_body_and_one_connection_for_many_requests(tmp_path: Path) -> None:
    with receiving(tmp_path) as receiver:
        connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=10)
        for one in team():
            parts = iter([as_protobuf(one)[:7], as_protobuf(one)[7:]])
            connection.request("POST", "/v1/traces", parts, {"Content-Type": PROTOBUF}, encode_chunked=True)
            assert connection.getresponse().read() == b""
        connection.close()
    assert returned(tmp_path) == [2]


def test_events_that_come_as_log_records_belong_to_their_spans(tmp_path: Path) -> None:
    chat = next(one for one in team() if one["name"] == "chat m")
    chat = {**chat, "attributes": [p for p in chat["attributes"] if "messages" not in p["key"]]}
    record = {
        "traceId": chat["traceId"], "spanId": chat["spanId"], "eventName": "gen_ai.choice", "timeUnixNano": "5",
        "body": {"kvlistValue": {"values": [{"key": "message", "value": {"stringValue": "by log"}}]}},
    }  # fmt: skip
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
    with receiving(tmp_path) as receiver:
        assert post(receiver, json.dumps(logs).encode(), "application/json", "/v1/logs")[0] == 200
        assert post(receiver, as_protobuf(chat))[0] == 200
    (trace,) = read_all(tmp_path)
    (call,) = trace.calls
    assert trace.text(call.completion_ref) == "by log"


@pytest.mark.parametrize(
    ("body", "kind", "headers", "status", "says"),
    [
        (b"\x0a\xff\xff\x03abc", PROTOBUF, {}, 400, "a field of 65,535 bytes"),
        (b"no protobuf", PROTOBUF, {}, 400, "this is no OTLP protobuf request"),
        (b"{not json", "application/json", {}, 400, "this is no OTLP JSON request"),
        (b"[1, 2]", "application/json", {}, 400, "list where an object is expected"),
        (b'{"resourceSpans": 7}', "application/json", {}, 400, "no list of objects"),
        (b"x", "text/plain", {}, 415, "expected application/x-protobuf"),
        (b"x", "application/grpc", {}, 415, "gRPC is not spoken"),
        (b"x" * 20_001, PROTOBUF, {}, 413, "at most 20,000"),
        (gzip.compress(b"x" * 50_000, mtime=0), PROTOBUF, {"Content_Encoding": "gzip"}, 413, "once unpacked"),
        (gzip.compress(b"x" * 500, mtime=0)[:20], PROTOBUF, {"Content_Encoding": "gzip"}, 400, "cut off"),
        (b"plain", PROTOBUF, {"Content_Encoding": "gzip"}, 400, "cannot be unpacked"),
        (b"x", PROTOBUF, {"Content_Encoding": "br"}, 415, "expected gzip"),
        (b"x", PROTOBUF, {"Host": "evil.example"}, 403, "this machine only"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_a_reason(
    tmp_path: Path, body: bytes, kind: str, headers: dict[str, str], status: int, says: str
) -> None:
    with receiving(tmp_path) as receiver:
        found, answer = post(receiver, body, kind, **headers)
        assert found == status
        assert says.encode() in answer
        assert post(receiver, as_protobuf(*team()))[0] == 200
    assert returned(tmp_path) == [2]


def test_a_span_that_cannot_be_read_is_rejected_and_the_rest_is_kept(tmp_path: Path) -> None:
    odd = {**team()[0], "endTimeUnixNano": "late"}
    with receiving(tmp_path) as receiver:
        status, answer = post(receiver, json.dumps(request(*team(), odd)).encode(), "application/json")
        assert status == 200
        partial = json.loads(answer)["partialSuccess"]
        assert partial["rejectedSpans"] == "1"
        assert "late" in partial["errorMessage"]
        status, answer = post(receiver, json.dumps(request(odd)).encode(), "application/json")
        assert status == 400  # nothing of it can be read
        assert receiver.counts["spans rejected"] == 1
    assert returned(tmp_path) == [2]


def test_spans_without_ids_are_rejected_and_the_rest_is_kept(tmp_path: Path) -> None:
    nameless = {**team()[0], "spanId": "0000000000000000"}
    with receiving(tmp_path) as receiver:
        body = json.dumps(request(*team(), nameless)).encode()
        _, answer = post(receiver, body, "application/json")
        assert json.loads(answer)["partialSuccess"]["rejectedSpans"] == "1"
        _, answer = post(receiver, as_protobuf(nameless, nameless))
        assert answer[:4] == bytes(
            [0x0A, len(answer) - 2, 0x08, 2]
        )  # partial_success { rejected_spans: 2 ...
    assert returned(tmp_path) == [2]


KEY = "sk-ant-api03-Abcdefghijklmnop1234567890"


def secretive() -> list[dict[str, Any]]:
    """The team of the other tests, with secrets in odd places."""
    first, *rest = team()
    first["attributes"] += [
        {"key": "http.headers", "value": {"kvlistValue": {"values": [
            {"key": "authorization", "value": {"stringValue": "hunter2hunter2"}},
            {"key": KEY, "value": {"arrayValue": {"values": [{"stringValue": f"x {KEY}"}, {}, {"doubleValue": 0.5}]}}},
        ]}}},
        {"key": "body", "value": {"stringValue": json.dumps({"inner": json.dumps({"password": "hunter2hunter2"})})}},
    ]  # fmt: skip
    first["events"] = [
        {
            "name": f"log {KEY}",
            "timeUnixNano": "5",
            "attributes": [{"key": "m", "value": {"stringValue": KEY}}],
        }
    ]
    return [first, *rest]


def logs_of(span: dict[str, Any]) -> dict[str, Any]:
    record = {
        "traceId": span["traceId"], "spanId": span["spanId"], "eventName": "gen_ai.choice", "timeUnixNano": "5",
        "body": {"kvlistValue": {"values": [{"key": "message", "value": {"stringValue": f"by log {KEY}"}}]}},
    }  # fmt: skip
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}


def written_below(out: Path) -> str:
    texts = [text for trace in read_all(out) for ref in trace.payloads if (text := trace.text(ref))]
    files = [path.read_bytes().decode("utf-8", "replace") for path in out.rglob("*") if path.is_file()]
    return "\n".join([*texts, *files])


@pytest.mark.parametrize("as_json", [True, False])
def test_secrets_never_reach_the_disk(tmp_path: Path, as_json: bool) -> None:
    spans = secretive()
    with receiving(tmp_path, redact=["Par.s"]) as receiver:
        body = json.dumps(request(*spans)).encode() if as_json else as_protobuf(*spans)
        assert post(receiver, body, "application/json" if as_json else PROTOBUF)[0] == 200
        logs = json.dumps(logs_of(spans[0])).encode()
        assert post(receiver, logs, "application/json", "/v1/logs")[0] == 200
        assert receiver.counts["secrets redacted"] >= 6
    said = written_below(tmp_path)
    assert "Paris" not in said
    assert "hunter2" not in said
    assert KEY not in said
    assert "[redacted API key]" in said
    assert returned(tmp_path) == [2]
    # The journal says the same as the traces that were made of it.
    (journal,) = import_traces(tmp_path / "received").traces
    (trace,) = read_all(tmp_path)
    assert [event.type for event in journal.events] == [event.type for event in trace.events]
    with receiving(tmp_path, redact=["Par.s"]):
        pass
    assert returned(tmp_path) == [2]


def test_without_payloads_who_did_what_is_kept_and_nothing_that_was_said(tmp_path: Path) -> None:
    with receiving(tmp_path / "all") as receiver:
        assert post(receiver, as_protobuf(*secretive()))[0] == 200
    with receiving(tmp_path / "bare", payloads=False) as receiver:
        assert post(receiver, as_protobuf(*secretive()))[0] == 200
    (whole,), (bare,) = read_all(tmp_path / "all"), read_all(tmp_path / "bare")
    for type_ in ("spawn", "return", "tool_call", "tool_result"):
        assert sum(e.type == type_ for e in bare.events) == sum(e.type == type_ for e in whole.events)
    tokens = [
        [(call.prompt_tokens, call.completion_tokens) for call in trace.calls] for trace in (whole, bare)
    ]
    assert tokens[0] == tokens[1]
    said = written_below(tmp_path / "bare")
    assert not any(word in said for word in ("Paris", "hunter2", "sk-ant"))


def test_slow_and_broken_clients_are_let_go(tmp_path: Path) -> None:
    with receiving(tmp_path, ReceiveLimits(seconds=0.5, connections=8)) as receiver:
        silent = [socket.create_connection(("127.0.0.1", receiver.port)) for _ in range(3)]
        slow = socket.create_connection(("127.0.0.1", receiver.port))
        slow.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        slow.sendall(b"Content-Length: 900\r\n\r\n{")
        odd = socket.create_connection(("127.0.0.1", receiver.port))
        odd.sendall(b"\x16\x03\x01 this is TLS, not HTTP\r\n\r\n")
        assert b"400" in odd.recv(1000)
        assert post(receiver, as_protobuf(*team()))[0] == 200
        slow.settimeout(5)
        assert slow.recv(10) == b""  # after half a second it was closed
        for one in (*silent, slow, odd):
            one.close()
    assert returned(tmp_path) == [2]
    assert any("stopped sending" in why for why in receiver.complaints)


def test_more_connections_than_allowed_are_asked_to_come_back(tmp_path: Path) -> None:
    with receiving(tmp_path, ReceiveLimits(connections=2, seconds=5)) as receiver:
        held = [socket.create_connection(("127.0.0.1", receiver.port)) for _ in range(2)]
        third = socket.create_connection(("127.0.0.1", receiver.port))
        third.settimeout(5)
        assert b"503" in third.recv(200)
        for one in (*held, third):
            one.close()


def test_several_programs_at_once(tmp_path: Path) -> None:
    def program(number: int) -> None:
        spans = [{**one, "traceId": f"{number + 1:032x}"} for one in team()]
        for one in spans:
            assert post(receiver, as_protobuf(one))[0] == 200

    with receiving(tmp_path) as receiver:
        threads = [threading.Thread(target=program, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert returned(tmp_path) == [2] * 6


def test_a_journal_that_cannot_be_written_is_no_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with receiving(tmp_path) as receiver:
        monkeypatch.setattr(os, "fdatasync", full)
        status, answer = post(receiver, as_protobuf(*team()))
        assert (status, b"No space left" in answer) == (503, True)
        monkeypatch.undo()
        assert post(receiver, as_protobuf(*team()))[0] == 200
    assert returned(tmp_path) == [2]


def test_killed_it_has_what_it_acknowledged_and_the_next_one_makes_traces_of_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with started(out) as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for one in team():
            connection.request("POST", "/v1/traces", as_protobuf(one), {"Content-Type": PROTOBUF})
            assert connection.getresponse().read() == b""
        connection.close()
        process.kill()
    (journal,) = (out / "received").iterdir()
    journal.write_bytes(
        journal.read_bytes() + b"\x80\x01\x0a cut off"
    )  # as a kill in the middle of a write leaves it
    with started(out) as (process, _):
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
        assert process.returncode == 0
    assert "1 trace" in said
    assert returned(out) == [2]


@contextmanager
def started(out: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "baton", "receive", "--out", str(out), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline().split("127.0.0.1:")[1].split("/")[0])


def test_a_place_that_cannot_be_used_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with receiving(tmp_path) as receiver:
        assert main(["receive", "--out", str(tmp_path / "b"), "--port", str(receiver.port)]) == 2
        assert "Type: --port 0" in capsys.readouterr().err
        assert main(["receive", "--out", str(tmp_path), "--port", "0"]) == 2
        assert "one process at a time" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["receive", "--out", str(tmp_path / "file"), "--port", "0"]) == 2
    assert "--out DIR" in capsys.readouterr().err
    with pytest.raises(UsageError, match="this machine only"):
        Receiver(tmp_path / "c", host="0.0.0.0")
