"""The endpoint: what a call costs beside the engine that answers it.

A server with the scripted backend runs in a process of its own; clients in this one ask it over HTTP, as an SDK would,
in one session or in many at once, each its own conversation that grows by a turn a call. The bar is 5 ms a call: of
latency above that of a bare `GET /` of the same server, taken by turns with one session, and of the server's processor
time with many (two cores do not answer 64 at once any sooner).
`resumed` is a server on the folder of one that was killed: it reads journals and makes traces beside its calls.
`shares` takes one call apart in this process: JSON, the ask's name, growth, the journal. `prompts` is what the backend
of a local model adds before its engine: the template and the tokenizer, for a conversation that begins and one that
grows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from baton.serve.backends.scripted import ScriptedBackend
from baton.serve.dialects import codec_of
from baton.serve.exchange import Ask, Exchange, Reply, ReplyChoice, Utterance
from baton.serve.growth import GrowthIndex
from baton.serve.journal import SessionJournal, digests, journal_path
from baton.serve.server import Serving
from baton.serve.session_keys import ask_digest
from table import machine, print_table, row

_BAR_MS = 5.0
_WORDS = "What an agent says of its work, in some words. "
TOOLS = [
    {"type": "function", "function": {"name": f"tool{k}", "description": _WORDS,
     "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}}
    for k in range(8)
]  # fmt: skip


HTTP = (
    (1, 1, 1_000), (8, 1, 1_000), (64, 1, 1_000), (1, 1, 10_000), (8, 1, 10_000), (64, 1, 10_000),
    (1, 10, 10_000), (1, 200, 10_000), (64, 200, 10_000),
)  # fmt: skip
"""Sessions at once, turns of the conversation, tokens of the prompt."""


def talk(turns: int, tokens: int, name: str = "") -> list[dict[str, Any]]:
    """The messages of a conversation at its n-th turn, with so many tokens in all (four characters each)."""
    size = max(4, 4 * tokens // max(1, 2 * turns - 1))
    text = (_WORDS * (size // len(_WORDS) + 1))[:size]
    messages = [{"role": "system", "content": f"You are an agent. {name}"}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{turn} {text}"})
        messages.append({"role": "assistant", "content": _said(f"{turn} {text}")})
    return messages[:-1]


def _said(text: str) -> str:
    return f"about {text}"


def answer(ask: Ask) -> str:
    """The script: what was asked, again, so that a client's conversation can be known beforehand."""
    return _said(ask.messages[-1].text)


def body(messages: list[dict[str, Any]]) -> bytes:
    return json.dumps({"model": "m", "messages": messages, "tools": TOOLS, "temperature": 0.7}).encode()


def serve(out: str, *, traces: bool) -> None:
    """The server's process: says its address, then its processor time whenever it is asked."""
    with Serving(Path(out), ScriptedBackend(answer), traces=traces) as serving:
        print(serving.address, flush=True)
        for _ in sys.stdin:
            print(time.process_time(), flush=True)


class Server:
    """The other process."""

    def __init__(self, out: str, *, traces: bool = False) -> None:
        command = [sys.executable, __file__, "--serve", out, *(["--traces"] if traces else [])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self._line()

    def cpu_seconds(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


async def ask_all(
    address: str, name: str, sessions: int, turns: int, tokens: int, calls: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of every call, each session asking the last turns of its conversation; and of a bare GET."""
    import httpx

    alone: list[float] = []
    limits = httpx.Limits(max_connections=sessions, max_keepalive_connections=sessions)
    async with httpx.AsyncClient(timeout=60, limits=limits) as client:

        async def one(session: int) -> list[float]:
            whole = talk(turns, tokens, f"{name}-{session}")
            first = max(1, turns - calls + 1)
            bodies = [body(whole[: 2 * turn]) for turn in range(first, turns + 1)]
            if turns == 1:
                bodies = [body([*whole, {"role": "user", "content": str(k)}]) for k in range(calls)]
            took = []
            for each in bodies:
                if sessions == 1:
                    begin = time.perf_counter()
                    await client.get(address)
                    alone.append(1000 * (time.perf_counter() - begin))
                begin = time.perf_counter()
                response = await client.post(
                    f"{address}/s/{name}-{session}/v1/chat/completions",
                    content=each,
                    headers={"content-type": "application/json"},
                )
                took.append(1000 * (time.perf_counter() - begin))
                assert response.status_code == 200, response.text
            return took[1:]  # the first opens the connection and the session

        took = [ms for each in await asyncio.gather(*map(one, range(sessions))) for ms in each]
        return took, alone[1:]


def over_http(
    server: Server, calls: int, cases: tuple[tuple[int, int, int], ...]
) -> Iterator[tuple[str, ...]]:
    """Latency and the server's processor time."""
    asyncio.run(ask_all(server.address, "warm", 4, 1, 100, 20))
    for sessions, turns, tokens in cases:
        each = max(3, calls // sessions)
        name = f"s{sessions}-t{turns}-k{tokens}"
        before = server.cpu_seconds()
        took, alone = asyncio.run(ask_all(server.address, name, sessions, turns, tokens, each))
        spent = 1000 * (server.cpu_seconds() - before) / (len(took) + sessions)
        where = f"{sessions} at once, {tokens:,} tokens, turn {turns}"
        if sessions == 1:
            bare = statistics.median(alone)
            ms = max(0.05, statistics.median(took) - bare)
            yield row(f"a call above GET / ({bare:.1f} ms), {where}", f"{ms:.1f} ms", "bar", f"{_BAR_MS:g} ms",
                      _BAR_MS / ms, machine())  # fmt: skip
        yield row(f"server's processor time a call, {where}", f"{spent:.1f} ms", "bar", f"{_BAR_MS:g} ms",
                  _BAR_MS / spent, machine())  # fmt: skip


def resumed(sessions: int, turns: int, calls: int) -> Iterator[tuple[str, ...]]:
    """A server that was killed, without its traces, and one that goes on in its folder and makes them meanwhile."""
    with tempfile.TemporaryDirectory() as out:
        before = Server(out)
        asyncio.run(ask_all(before.address, "r", sessions, turns - calls, 10_000, turns - calls))
        before.kill()
        server = Server(out, traces=True)
        try:
            began = server.cpu_seconds()
            took, _ = asyncio.run(ask_all(server.address, "r", sessions, turns, 10_000, calls))
            spent = 1000 * (server.cpu_seconds() - began) / (len(took) + sessions)
        finally:
            server.close()
        what = f"server's processor time a call, opened again: {sessions} sessions of {turns - calls} calls"
        yield row(what, f"{spent:.1f} ms", "bar", f"{_BAR_MS:g} ms", _BAR_MS / spent, machine())


def shares(turns: int, tokens: int, repeats: int) -> Iterator[tuple[str, ...]]:
    """One call in its parts, the session having all of its conversation before."""
    codec = codec_of("chat")
    messages = talk(turns, tokens)
    raw = body(messages)
    ask = codec.read(raw)
    known = GrowthIndex()
    for turn in range(1, turns):
        known.add(_exchange(replace(ask, messages=ask.messages[: 2 * turn]), str(turn)))
    exchange = _exchange(ask, "now")
    assert exchange.reply is not None
    reply = exchange.reply
    with tempfile.TemporaryDirectory() as folder:
        journal = SessionJournal(journal_path(Path(folder), "one"))
        for turn in range(1, turns):
            earlier = _exchange(replace(ask, messages=ask.messages[: 2 * turn]), str(turn))
            journal.asked(earlier, *digests(earlier.ask))
        parts: dict[str, Callable[[], object]] = {
            "read the body (JSON)": lambda: codec.read(raw),
            "name the ask (digests)": lambda: ask_digest(ask, *digests(ask)),
            "find what it grows from, and add it": lambda: (known.find(ask), known.add(exchange)),
            "journal: asked and answered": lambda: _journal(journal, exchange, reply),
            "write the answer (JSON)": lambda: json.dumps(codec.body(exchange)),
        }
        for what, part in parts.items():
            ms = _cpu_ms(part, repeats)
            yield row(f"{what}, {tokens:,} tokens, turn {turns}", f"{ms:.2f} ms", "bar of all", f"{_BAR_MS:g} ms",
                      _BAR_MS / max(ms, 1e-3), machine())  # fmt: skip


def _exchange(ask: Ask, id: str) -> Exchange:
    said = Utterance(speaker="assistant", text=answer(ask))
    reply = Reply(choices=(ReplyChoice(message=said),), policy="m", prompt_tokens=1, completion_tokens=1)
    return Exchange(session="one", id=id, number=0, ask=ask, reply=reply)


def _journal(journal: SessionJournal, exchange: Exchange, reply: Reply) -> None:
    asked = replace(exchange, reply=None)
    journal.asked(asked, *digests(asked.ask))
    journal.answered(asked, reply, 0.1)


def prompts(repeats: int) -> Iterator[tuple[str, ...]]:
    """What a local model's backend does before its engine: a whole prompt, and one that grows."""
    from baton.learn.models import load_model
    from baton.serve.backend import GrownAsk
    from baton.serve.backends.template_prompts import TemplatePrompts
    from baton.trace.records import Ints

    maker = TemplatePrompts(load_model("tiny")[1], policy="m")
    for turns, tokens in ((1, 1_000), (1, 10_000), (200, 10_000)):
        ask = codec_of("chat").read(body(talk(turns, tokens)))
        ms = _cpu_ms(lambda ask=ask: asyncio.run(maker.prompt(ask, None)), repeats)
        size = len(asyncio.run(maker.prompt(ask, None)).ids or ())
        yield row(f"a whole prompt of {size:,} ids, turn {turns}", f"{ms:.1f} ms", "bar", f"{_BAR_MS:g} ms",
                  _BAR_MS / ms, machine())  # fmt: skip
    before = _exchange(replace(ask, messages=ask.messages[:-2]), "before")
    assert before.reply is not None
    whole = asyncio.run(maker.prompt(before.ask, None)).ids
    choice = replace(before.reply.choices[0], completion_ids=Ints([5, 6, 7]))
    before = replace(before, reply=replace(before.reply, prompt_ids=whole, choices=(choice,)))
    growth = GrownAsk(before=before, choice=0, new=ask.messages[-1:])
    ms = _cpu_ms(lambda: asyncio.run(maker.prompt(ask, growth)), repeats)
    yield row(
        "the same, grown by a message", f"{ms:.1f} ms", "bar", f"{_BAR_MS:g} ms", _BAR_MS / ms, machine()
    )


def _cpu_ms(part: Callable[[], object], repeats: int) -> float:
    took = []
    for _ in range(repeats):
        begin = time.process_time()
        part()
        took.append(1000 * (time.process_time() - begin))
    return statistics.median(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", metavar="DIR", help="be the server")
    parser.add_argument("--traces", action="store_true", help="be one that writes traces too")
    parser.add_argument("--calls", type=int, default=200, help="of each row")
    parser.add_argument("--only", choices=("http", "resumed", "shares", "prompts"))
    parser.add_argument("--smoke", action="store_true", help="a few calls, to see that it runs")
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, traces=args.traces)
        return
    print_table(_rows(args.only, 4 if args.smoke else args.calls, HTTP[::4] if args.smoke else HTTP))


def _rows(only: str | None, calls: int, cases: tuple[tuple[int, int, int], ...]) -> Iterator[tuple[str, ...]]:
    if only in (None, "http"):
        with tempfile.TemporaryDirectory() as out:
            server = Server(out)
            try:
                yield from over_http(server, calls, cases)
            finally:
                server.close()
    if only in (None, "resumed"):
        yield from resumed(2 if calls < 20 else 16, 8 if calls < 20 else 100, 4 if calls < 20 else 20)
    if only in (None, "shares"):
        for turns, tokens in ((1, 1_000), (200, 10_000)):
            yield from shares(turns, tokens, max(3, calls // 4))
    if only in (None, "prompts"):
        yield from prompts(max(3, calls // 10))


if __name__ == "__main__":
    main()
