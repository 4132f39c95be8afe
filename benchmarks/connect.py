"""Other systems' files: how many entries a second become traces, and how much memory that takes.

Files are made here, of the form that each system writes: one agent that answers and calls tools, most of a session's
entries. An entry is what the system writes as one: a line, a span, a message. `json` only parses the same bytes, line
by line; the floor of an import into a folder parses them with msgspec and encodes the traces that came of them, made
already. `--of` measures files that are there instead, all entries of them as they are. `--memory` reads sessions of so
many megabytes, each in a process of its own, for their peaks of memory.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from baton.connect.importing import import_traces
from baton.connect.readers.otlp.json_spans import spans_of
from baton.connect.readers.otlp.span import OtelSpan
from baton.connect.writers.otlp import protobuf_request
from baton.trace.formats.jsonl import encode_trace
from contest import cpu
from table import machine, print_table, row

_TEXT = "What an agent says of its work, in some words, and what a tool gives it back. "
_DAY = "2026-11-16T"


def _clock(number: int) -> str:
    seconds = number // 10
    return f"{_DAY}{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{number % 10}00Z"


def claude_code(entries: int, text: str) -> Iterator[dict[str, Any]]:
    """A session: answers with one tool call each, and the tools' results."""
    base = {"isSidechain": False, "cwd": "/p", "sessionId": "s-1", "version": "2.1.325"}
    first = {"role": "user", "content": "begin"}
    yield {**base, "parentUuid": None, "type": "user", "message": first, "uuid": "u0", "timestamp": _clock(0)}
    for n in range(1, entries):
        usage = {"input_tokens": 10, "cache_read_input_tokens": 1000, "output_tokens": 70}
        if n % 2:
            call = {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": f"{n} {text}"}}
            message = {"id": f"m{n}", "role": "assistant", "model": "m", "content": [call], "usage": usage}
        else:
            result = {"type": "tool_result", "tool_use_id": f"t{n - 1}", "content": f"{n} {text}"}
            message = {"role": "user", "content": [result]}
        yield {
            **base, "parentUuid": f"u{n - 1}", "type": message["role"], "message": message, "uuid": f"u{n}",
            "timestamp": _clock(n),
        }  # fmt: skip


def codex(entries: int, text: str) -> Iterator[dict[str, Any]]:
    """A rollout: function calls and their outputs."""
    meta = {
        "id": "01a1e42d-c22b-7603-a0e8-52f9072b4daa",
        "cwd": "/p",
        "cli_version": "0.166.0",
        "source": "exec",
    }
    yield {"timestamp": _clock(0), "type": "session_meta", "payload": {**meta, "timestamp": _clock(0)}}
    for n in range(1, entries):
        payload: dict[str, Any]
        if n % 2:
            payload = {"type": "function_call", "id": f"f{n}", "name": "shell", "call_id": f"c{n}",
                       "arguments": json.dumps({"command": f"{n} {text}"})}  # fmt: skip
        else:
            payload = {"type": "function_call_output", "call_id": f"c{n - 1}", "output": f"{n} {text}"}
        yield {"timestamp": _clock(n), "type": "response_item", "payload": payload}


def messages(entries: int, text: str) -> Iterator[dict[str, Any]]:
    """Conversations of 40 messages, one a line."""
    for start in range(0, entries, 40):
        talk: list[dict[str, Any]] = [{"role": "user", "content": f"task {start}"}]
        for n in range(start + 1, min(start + 40, entries)):
            function = {"name": "shell", "arguments": json.dumps({"command": f"{n} {text}"})}
            call = {"id": f"c{n}", "type": "function", "function": function}
            if (n - start) % 2:
                talk.append({"role": "assistant", "content": None, "tool_calls": [call]})
            else:
                talk.append({"role": "tool", "tool_call_id": f"c{n - 1}", "content": f"{n} {text}"})
        yield {"messages": talk}


def otlp(entries: int, text: str) -> Iterator[dict[str, Any]]:
    """Spans with the GenAI conventions, a hundred a batch: chats and tools under one agent."""

    def attributes(**given: Any) -> list[dict[str, Any]]:
        kinds = {str: "stringValue", int: "intValue"}
        return [{"key": k.replace("__", "."), "value": {kinds[type(v)]: v}} for k, v in given.items()]

    def span(n: int, name: str, **given: Any) -> dict[str, Any]:
        start = 1_794_829_566_000_000_000 + n * 10_000_000
        return {
            "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": f"{n + 1:016x}", "name": name, "kind": 1,
            "parentSpanId": "" if n == 0 else f"{1:016x}", "startTimeUnixNano": str(start),
            "endTimeUnixNano": str(start + 9_000_000), "attributes": attributes(**given), "status": {},
        }  # fmt: skip

    spans: list[dict[str, Any]] = [
        span(0, "invoke_agent a", gen_ai__operation__name="invoke_agent", gen_ai__agent__name="a")
    ]
    scope = {"name": "bench"}
    for n in range(1, entries):
        said = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": f"{n} {text}"}]}])
        if n % 2:
            spans.append(
                span(n, "chat m", gen_ai__operation__name="chat", gen_ai__request__model="m",
                     gen_ai__usage__input_tokens=10, gen_ai__usage__output_tokens=7, gen_ai__output__messages=said)
            )  # fmt: skip
        else:
            spans.append(
                span(n, "execute_tool x", gen_ai__operation__name="execute_tool", gen_ai__tool__name="x",
                     gen_ai__tool__call__id=f"c{n}", gen_ai__tool__call__result=f"{n} {text}")
            )  # fmt: skip
        if len(spans) >= 100:
            yield {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": scope, "spans": spans}]}]}
            spans = []
    if spans:
        yield {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": scope, "spans": spans}]}]}


def atif(entries: int, text: str) -> Iterator[dict[str, Any]]:
    """Trajectories of 40 steps, one a line; a step is a call, its tool call and the result."""

    def step(n: int, text: str) -> dict[str, Any]:
        use = {"tool_call_id": f"c{n}", "function_name": "shell", "arguments": {"command": f"{n}"}}
        result = {"source_call_id": f"c{n}", "content": f"{n} {text}"}
        return {
            "step_id": n, "timestamp": _clock(n), "source": "agent", "message": f"{n}", "tool_calls": [use],
            "observation": {"results": [result]}, "metrics": {"prompt_tokens": 100, "completion_tokens": 10},
        }  # fmt: skip

    for start in range(0, entries, 40):
        first = {"step_id": 1, "source": "user", "message": f"task {start}"}
        steps = [first, *(step(n, text) for n in range(2, min(40, entries - start) + 1))]
        agent = {"name": "a", "version": "1", "model_name": "m"}
        yield {"schema_version": "ATIF-v1.8", "session_id": f"s{start}", "agent": agent, "steps": steps}


def who_and_when(entries: int, text: str) -> Iterator[dict[str, Any]]:
    """Runs of 40 entries, one a line."""
    speakers = ("Orchestrator (thought)", "Orchestrator (-> WebSurfer)", "WebSurfer")
    for start in range(0, entries, 40):
        said = [
            {"role": speakers[n % 3], "content": f"{n} {text}"}
            for n in range(start, min(start + 40, entries))
        ]
        yield {
            "question": "q",
            "question_ID": f"q{start}",
            "mistake_step": "3",
            "ground_truth": "x",
            "history": said,
        }


def inspect(entries: int, text: str) -> Iterator[dict[str, Any]]:
    """One log: a sample in which an agent answers and calls tools."""
    events: list[dict[str, Any]] = [{"event": "span_begin", "id": "A", "type": "agent", "name": "a"}]
    for n in range(1, entries):
        base = {"uuid": f"u{n}", "span_id": "A", "timestamp": _clock(n)}
        if n % 2:
            use = {"id": f"c{n}", "function": "shell", "arguments": {"command": f"{n}"}}
            message = {"role": "assistant", "content": f"{n} {text}", "tool_calls": [use]}
            output = {"choices": [{"message": message}], "usage": {"total_tokens": 110, "output_tokens": 10}}
            events.append({**base, "event": "model", "model": "m", "input": [], "output": output})
        else:
            call = {"id": f"c{n - 1}", "function": "shell", "arguments": {"command": f"{n}"}}
            events.append({**base, "event": "tool", **call, "result": f"{n} {text}"})
    sample = {"id": 1, "epoch": 1, "uuid": "s", "input": "q", "target": "t", "events": events}
    yield {"version": 2, "status": "success", "eval": {"run_id": "r", "task": "t"}, "samples": [sample]}


def otlp_protobuf(entries: int, text: str) -> Iterator[bytes]:
    """The same spans in protobuf, each request behind its length."""
    for request in otlp(entries, text):
        body = protobuf_request([span for span in spans_of(request, "") if isinstance(span, OtelSpan)])
        length, size = b"", len(body)
        while size > 0x7F:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        yield length + bytes([size]) + body


MAKERS: dict[str, Callable[[int, str], Iterator[dict[str, Any] | bytes]]] = {
    "claude-code": claude_code,
    "codex": codex,
    "messages": messages,
    "atif": atif,
    "inspect": inspect,
    "who-and-when": who_and_when,
    "otlp": otlp,
    "otlp protobuf": otlp_protobuf,
}
_NAMES = {
    "codex": "rollout-2026-11-16T11-46-06-01a1e42d-c22b-7603-a0e8-52f9072b4daa.jsonl",
    "inspect": "log.json",
    "otlp protobuf": "otlp.pb",
}


def made(folder: Path, kind: str, entries: int, text: str) -> Path:
    """A file of a kind."""
    path = folder / _NAMES.get(kind, f"{kind}.jsonl")
    with path.open("wb") as file:
        for each in MAKERS[kind](entries, text):
            file.write(
                each if isinstance(each, bytes) else json.dumps(each, separators=(",", ":")).encode() + b"\n"
            )
    return path


def calls_of(run: Callable[[], Any]) -> int:
    """How many calls of Python functions and of built-in ones a run makes: a figure that no other load changes."""
    profile = cProfile.Profile()
    profile.runcall(run)
    return sum(entry.callcount for entry in profile.getstats())


def measured(kind: str, place: Path, runs: int, where: str) -> Iterator[tuple[str, ...]]:
    """Importing into memory and into a folder, parsing alone, and the floor: parsing, and the same traces encoded."""
    source = kind.partition(" ")[0]
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in files)
    imported = import_traces(place, source=source)
    entries, events, traces = imported.report.entries, imported.events, imported.traces
    assert events >= entries // 3 or not place.is_file(), f"{kind}: {events} events of {entries} entries"

    def read() -> None:
        import_traces(place, source=source)

    def written() -> None:
        with tempfile.TemporaryDirectory() as out:
            import_traces(place, source=source, out=out)

    def parsed(decode: Callable[[bytes], Any]) -> None:
        for path in files:
            with path.open("rb") as file:
                for line in file:
                    with suppress(ValueError):  # what is no JSON
                        decode(line)

    def floor() -> None:
        parsed(msgspec.json.Decoder().decode)
        for trace in traces:
            for _ in encode_trace(trace):
                pass

    ours, with_files, theirs, least = cpu(
        runs, lambda: read, lambda: written, lambda: partial(parsed, json.loads), lambda: floor
    )
    is_json = "protobuf" not in kind
    what = f"{kind}: {entries:,} entries of {size / entries:,.0f} B"
    calls = calls_of(read) / entries
    for how, seconds, more, against, other in (
        ("read and assembled", ours, f", {calls:.0f} calls an entry", "json, parsed alone", theirs),
        ("imported into a folder", with_files, "", "msgspec parses, the same traces are encoded", least),
    ):
        yield row(
            f"{what}, {how}",
            f"{entries / seconds:,.0f} entries/s, {size / seconds / 1e6:,.1f} MB/s{more}",
            against if is_json else "",
            f"{entries / other:,.0f} entries/s, {size / other / 1e6:,.1f} MB/s" if is_json else "",
            other / seconds if is_json else None,
            where,
        )


def memory(sizes: list[int], where: str) -> Iterator[tuple[str, ...]]:
    """One session of each of so many megabytes, in a process of its own; last, how its peak grows with its size."""
    found: list[tuple[float, float]] = []
    for megabytes in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            text = _TEXT * 25
            path = made(Path(scratch), "claude-code", int(megabytes * 1e6 / (len(text) + 300)), text)
            size = path.stat().st_size
            command = [sys.executable, __file__, "--one", str(path), "--out", f"{scratch}/out"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            peak, seconds, events = done.stdout.split()
        found.append((float(size), float(peak)))
        told = f"{float(peak) / 1e6:,.0f} MB at most, {float(seconds):.0f} s, {int(events):,} events"
        of = f"{size / 1e6:,.0f} MB"
        yield row(f"claude-code: one session of {of}", told, "the file", of, size / float(peak), where)
    for (before, low), (size, peak) in pairwise(found):
        yield row(
            f"claude-code: memory, from {before / 1e6:,.0f} to {size / 1e6:,.0f} MB",
            f"{(peak - low) / (size - before):.2f} B more for each byte more", "", "", None, where,
        )  # fmt: skip


def one(path: str, out: str) -> None:
    """Import one file, and say what it took."""
    began = time.process_time()
    imported = import_traces(path, out=out)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(peak, time.process_time() - began, imported.events)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="small sizes: figures mean nothing")
    parser.add_argument("--entries", type=int, default=60_000)
    parser.add_argument(
        "--memory", type=int, nargs="+", metavar="MB", help="only sessions of so many megabytes"
    )
    parser.add_argument("--kinds", nargs="+", choices=list(MAKERS), default=list(MAKERS))
    parser.add_argument("--of", nargs="+", metavar="KIND=PLACE", help="only files that are there")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args.one, args.out)
        return
    where = machine()
    entries, runs = (400, 1) if args.smoke else (args.entries, 3)

    def rows() -> Iterator[tuple[str, ...]]:
        if args.memory or args.smoke:
            yield from memory([1, 2] if args.smoke else args.memory, where)
        for kind, place in (each.split("=", 1) for each in args.of or ()):
            yield from measured(kind, Path(place), runs, where)
        if args.memory or args.of:
            return
        with tempfile.TemporaryDirectory() as scratch:
            for kind in args.kinds:
                yield from measured(kind, made(Path(scratch), kind, entries, _TEXT * 3), runs, where)

    print_table(rows())


if __name__ == "__main__":
    main()
