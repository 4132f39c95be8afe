"""Runs a program again with one answer different: what does not depend on it comes from the recording.

A question that is asked as it was recorded gets its recorded answer, wherever in the run it is asked: only words that
differ are asked again. Those are drawn under the recorded session's random stream, so that two forks of one session
that ask the same get the same answer (common random numbers); `replicate` names other draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.connect.assembly.building import trace_id_of
from baton.errors import UsageError
from baton.serve.backend import Backend
from baton.serve.exchange import Exchange, Reply, ReplyChoice, ToolAsk, Utterance
from baton.serve.journal import FOLDER, SUFFIX, KeptSession
from baton.serve.program_run import ProgramRun, Stdin
from baton.serve.program_session import run_session
from baton.serve.replay.beside import RecordedBeside
from baton.serve.replay.find import answered
from baton.serve.replay.masks import Masks
from baton.serve.replay.recorded import RecordedBackend
from baton.serve.server import Serving
from baton.trace.records import Ints


class ForkedProgram(Struct, frozen=True, kw_only=True):
    """A program's run with one answer different, and what it took."""

    name: str
    """Of the session."""
    run: ProgramRun
    calls_reused: int
    calls_run: int
    calls_changed: int
    """Whose answer was given in the place of the recorded one: 1, unless the call did not come up."""
    tokens_reused: int
    tokens_run: int
    not_asked: tuple[Exchange, ...]
    """Recorded calls that did not come up again."""
    liberties: str

    @property
    def share_reused(self) -> float:
        """Of its calls."""
        return self.calls_reused / max(1, self.calls_reused + self.calls_run + self.calls_changed)


class ProgramFork(Struct, frozen=True, kw_only=True):
    """What is different in a fork of a session; written down beside it."""

    forked_from: str
    at: str
    """The exchange whose answer is another one."""
    instead: Reply | None
    """None: it was drawn anew."""
    replicate: int = 0


def another_reply(recorded: Exchange, text: str, uses: Sequence[tuple[str, str]] = ()) -> Reply:
    """The answer of an exchange with other words, or with other tools asked for (name and arguments)."""
    assert recorded.reply is not None
    before = recorded.reply.choices[0].message.uses
    tools = tuple(
        ToolAsk(
            id=before[place].id
            if place < len(before)
            else f"call_{_digest(recorded.id, place, name, arguments)}",
            name=name,
            arguments=arguments,
        )
        for place, (name, arguments) in enumerate(uses)
    )
    said = Utterance(speaker="assistant", text=text, uses=tools)
    choice = ReplyChoice(message=said, finish="tool_calls" if tools else "stop")
    return Reply(
        choices=(choice,),
        policy=recorded.reply.policy,
        policy_version=recorded.reply.policy_version,
        prompt_ids=recorded.reply.prompt_ids,
        keep=recorded.reply.keep,
        prompt_tokens=recorded.reply.prompt_tokens,
        completion_tokens=max(1, len(f"{text}{''.join(map(''.join, uses))}".encode()) // 4),
        estimated=True,
        rules={**recorded.reply.rules, "fork": "replaced"},
    )


def with_ids(reply: Reply, live: Backend) -> Reply:
    """A reply that a person wrote, with the ids that the engine's tokenizer gives it; as it is where there is none."""
    encode = getattr(live, "encode_said", None)
    found: tuple[str, Ints] | None = None if encode is None else encode(reply.choices[0].message)
    if found is None:
        return reply
    said, ids = found
    choice = structs.replace(reply.choices[0], said=said, completion_ids=ids)
    rules = {**reply.rules, "fork": "replaced, encoded by the tokenizer without an end mark"}
    return structs.replace(reply, choices=(choice,), completion_tokens=len(ids), estimated=False, rules=rules)


def read_reply(path: Path, recorded: Exchange) -> Reply:
    """An answer from a file: a text, or as JSON {"text": ..., "tools": [[name, arguments], ...]}."""
    try:
        content = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the reply {path} cannot be read: {error}.") from None
    if path.suffix != ".json":
        return another_reply(recorded, content.removesuffix("\n"))
    try:
        given = msgspec.json.decode(content, type=_ReplyFile)
    except msgspec.DecodeError as error:
        form = '{"text": "...", "tools": [["search", {"query": "x"}]]}'
        raise UsageError(f"{path}: {error}. Expected {form}.") from None
    uses = [(name, msgspec.json.encode(arguments).decode()) for name, arguments in given.tools]
    return another_reply(recorded, given.text, uses)


class _ReplyFile(Struct, forbid_unknown_fields=True):
    """A reply as a person writes it."""

    text: str = ""
    tools: list[tuple[str, dict[str, Any]]] = []


def _digest(*parts: object) -> str:
    return blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def fork_name(session: str, change: ProgramFork) -> str:
    """The name of a fork: the same change to the same session has the same one."""
    told = blake2b(msgspec.json.encode([change.at, _said(change.instead), change.replicate]), digest_size=4)
    return f"{session[:118]}-{told.hexdigest()}"


def _said(reply: Reply | None) -> Any:
    return None if reply is None else [structs.replace(one.message, sign=None) for one in reply.choices]


def fork_program(
    session: KeptSession,
    command: Sequence[str],
    *,
    change: ProgramFork,
    live: Backend,
    out: Path,
    name: str | None = None,
    masks: Masks | None = None,
    cwd: Path | None = None,
    timeout_s: float | None = None,
    passing_on: bool = False,
    stdin: Stdin = None,
    seed: str = "0",
) -> ForkedProgram:
    """Run a program with one answer different, as a session of its own in the folder `out`."""
    called = name or fork_name(session.name, change)
    if (out / FOLDER / f"{called}{SUFFIX}").exists():
        raise UsageError(
            f"{out} already holds this fork, {called}. Choose another --out, or --replicate N for other draws."
        )
    if change.instead is not None:
        change = structs.replace(change, instead=with_ids(change.instead, live))
    backend = forking_backend(session, change, live, masks=masks, seed=seed)
    with Serving(out, backend) as serving:
        run = run_session(
            serving,
            called,
            command,
            cwd=cwd,
            timeout_s=timeout_s,
            passing_on=passing_on,
            stdin=stdin,
            about=_about(session, change),
        )
    return told_of(called, run, backend)


def _about(session: KeptSession, change: ProgramFork) -> dict[str, Any]:
    """What stands in the header of a fork's trace."""
    told = {"at": change.at, "replicate": change.replicate, "instead": _words(change.instead)}
    return {
        "forked_from": trace_id_of("serve", session.name),
        "fork": told,
        "engine": session.about.get("engine"),
    }


def _words(reply: Reply | None) -> str | None:
    """What was said instead; None: it was drawn anew."""
    if reply is None:
        return None
    message = reply.choices[0].message
    return " ".join((message.text, *(f"{use.name}{use.arguments}" for use in message.uses))).strip()


def forking_backend(
    session: KeptSession, change: ProgramFork, live: Backend, *, masks: Masks | None = None, seed: str = "0"
) -> RecordedBackend:
    """Who answers in a fork."""
    found = answered(session)
    stream = f"{seed}/{session.name}" + (f"/{change.replicate}" if change.replicate else "")
    instead = change.instead if change.instead is not None else f"{stream}/redraw"
    return RecordedBackend(
        found,
        masks=masks,
        live=live,
        instead={change.at: instead},
        beside=RecordedBeside(session),
        stream=stream,
    )


def told_of(name: str, run: ProgramRun, backend: RecordedBackend) -> ForkedProgram:
    """What a fork took."""
    reused = [one for one in backend.given if one.match is not None and not one.changed]
    ran = [one for one in backend.given if one.match is None]
    return ForkedProgram(
        name=name,
        run=run,
        calls_reused=len(reused),
        calls_run=len(ran),
        calls_changed=sum(one.changed and one.match is not None for one in backend.given),
        tokens_reused=sum(one.tokens or 0 for one in reused),
        tokens_run=sum(one.tokens or 0 for one in ran),
        not_asked=tuple(backend.matcher.left),
        liberties=backend.liberties(),
    )
