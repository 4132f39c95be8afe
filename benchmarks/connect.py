"""Other systems' files: how many entries a second become traces, and how much memory that takes.

Files are made here, of the form that each system writes: one agent that answers and calls tools, most of a session's
entries. An entry is what the system writes as one: a line, a span, a message. `json` only parses the same bytes, line
by line. `--large` reads one session of a gigabyte in a process of its own, for its peak of memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from baton.connect.assemble import Assembler
from baton.connect.import_report import ImportReport
from baton.connect.importing import find_source, import_traces
from baton.connect.readers import SOURCES
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
        usage = {"input_tokens": 10, "cache_read_input_tokens": 1000, "output_tokens": 7}
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


MAKERS: dict[str, Callable[[int, str], Iterator[dict[str, Any]]]] = {
    "claude-code": claude_code,
    "codex": codex,
    "messages": messages,
    "atif": atif,
    "inspect": inspect,
    "who-and-when": who_and_when,
    "otlp": otlp,
}
_NAMES = {
    "codex": "rollout-2026-11-16T11-46-06-01a1e42d-c22b-7603-a0e8-52f9072b4daa.jsonl",
    "inspect": "log.json",
}


def made(folder: Path, kind: str, entries: int, text: str) -> Path:
    """A file of a kind."""
    path = folder / _NAMES.get(kind, f"{kind}.jsonl")
    with path.open("w") as file:
        for each in MAKERS[kind](entries, text):
            file.write(json.dumps(each, separators=(",", ":")) + "\n")
    return path


def measured(kind: str, path: Path, entries: int, runs: int, where: str) -> Iterator[tuple[str, ...]]:
    """Reading and assembling, the same with writing, and parsing alone."""
    source = find_source(kind)

    def assembled() -> None:
        assembler = Assembler(kind, ImportReport())
        assembler.see(source.read(path, assembler.report))
        events = sum(len(trace.events) for trace in assembler.traces())
        assert events >= entries // 3, f"{kind}: {events} events of {entries} entries"

    def written() -> None:
        with tempfile.TemporaryDirectory() as out:
            import_traces(path, source=source, out=out)

    def parsed() -> None:
        with path.open("rb") as file:
            for line in file:
                json.loads(line)

    ours, with_files, theirs = cpu(runs, lambda: assembled, lambda: written, lambda: parsed)
    size = path.stat().st_size / entries
    rates = [f"{entries / seconds:,.0f} entries/s" for seconds in (ours, with_files, theirs)]
    what = f"{kind}: {entries:,} entries of {size:,.0f} B"
    yield row(f"{what}, read and assembled", rates[0], "json, parsed alone", rates[2], theirs / ours, where)
    yield row(
        f"{what}, imported into a folder",
        rates[1],
        "json, parsed alone",
        rates[2],
        theirs / with_files,
        where,
    )


def large(megabytes: int, where: str) -> tuple[str, ...]:
    """One session of so many megabytes, in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        text = _TEXT * 25
        path = made(Path(scratch), "claude-code", int(megabytes * 1e6 / (len(text) + 300)), text)
        size = path.stat().st_size
        command = [sys.executable, __file__, "--one", str(path), "--out", f"{scratch}/out"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        peak, seconds, events = done.stdout.split()
    ratio = size / float(peak)
    told = f"{float(peak) / 1e6:,.0f} MB at most, {float(seconds):.0f} s, {int(events):,} events"
    return row(
        f"claude-code: one session of {size / 1e6:,.0f} MB",
        told,
        "the file",
        f"{size / 1e6:,.0f} MB",
        ratio,
        where,
    )


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
    parser.add_argument("--large", type=int, metavar="MB", help="only one session of so many megabytes")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args.one, args.out)
        return
    where = machine()
    entries, runs = (400, 1) if args.smoke else (args.entries, 3)

    def rows() -> Iterator[tuple[str, ...]]:
        if args.large or args.smoke:
            yield large(2 if args.smoke else args.large, where)
        if args.large:
            return
        with tempfile.TemporaryDirectory() as scratch:
            for kind in MAKERS:
                if kind in SOURCES:
                    path = made(Path(scratch), kind, entries, _TEXT * 3)
                    yield from measured(kind, path, entries, runs, where)

    print_table(rows())


if __name__ == "__main__":
    main()
