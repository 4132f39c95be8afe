"""Another server as a backend: asks are passed on, answers are written down and passed back.

In the program's own dialect the request goes out as it came and the answer comes back as it is. A server that speaks
another one is asked in that (`?dialect=chat`), as far as it can be said there. An answer is collected whole before
the program hears any of it, because what was not written down must not have been heard.

The key comes from an environment variable (`?key=NAME`; OPENAI_API_KEY or ANTHROPIC_API_KEY otherwise), or is the one
that the program sends itself (`?key=program`). It is neither kept nor written.
"""

from __future__ import annotations

import os
import re
from typing import Any

import msgspec
from msgspec.structs import replace

from baton.engine import read_options
from baton.engine.openai import ServerLimits
from baton.engine.posting import check_address, read_json, seed_of
from baton.errors import UsageError, nearest
from baton.serve.backend import GrownAsk, Unanswerable
from baton.serve.backends.posting import PROGRAM, ProgramPoster, find_secret
from baton.serve.backends.prompts import common_ids, kept_ids
from baton.serve.dialects import CODECS, codec_of
from baton.serve.exchange import Ask, Dialect, Reply
from baton.serve.growth import how_echoed
from baton.trace.records import Ints

FORM = "upstream:URL[?dialect=chat&model=NAME&key=ENVIRONMENT_VARIABLE]"
_PLACES: dict[Dialect, str] = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}
_KEYS: dict[Dialect, str] = {
    "chat": "OPENAI_API_KEY",
    "responses": "OPENAI_API_KEY",
    "messages": "ANTHROPIC_API_KEY",
}
_VERSION = re.compile(r"/v\d+\w*$")


class UpstreamBackend:
    """A server behind the backend's contract."""

    def __init__(
        self,
        url: str,
        *,
        dialect: Dialect | None = None,
        model: str | None = None,
        key: str | None = None,
        extra: dict[str, Any] | None = None,
        seeded: bool = False,
        limits: ServerLimits | None = None,
    ) -> None:
        """`dialect`: what the server speaks; None: whatever it is asked in. `model`: asked for in place of the
        program's. `key`: an environment variable, or `program`. `extra`: further fields of each request's body.
        `seeded`: the server draws by a seed, which is made of the exchange's key where the program gives none."""
        self._url = check_address(url, FORM)
        self.name = model or re.sub(r"^https?://", "", self._url).partition("/")[0]
        self._dialect = dialect
        self._model = model
        self._key = key
        self._extra = extra or {}
        self._seeded = seeded
        self._poster = ProgramPoster(limits)

    async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
        dialect = self._dialect or ask.dialect
        codec = codec_of(dialect)
        if ask.n > 1 and dialect != "chat":
            raise Unanswerable(
                f"{self.name} is asked in {dialect}, which knows one answer; {ask.n} were asked for."
            )
        asked = ask if self._model is None else replace(ask, model=self._model)
        body = {**codec.request_body(asked), **self._extra}
        if dialect == "chat" and body.get("stream"):
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        if self._seeded:
            body.setdefault("seed", seed_of(key))
        header = "x-api-key" if dialect == "messages" else "authorization"

        def read(raw: bytes, kind: str) -> Reply:
            streamed = kind.partition(";")[0].strip() == "text/event-stream"
            told = codec.gather([raw]) if streamed else read_json(raw, kind)
            return _with_ids(codec.reply(told, policy=asked.model), told)

        reply = await self._poster.post(
            self._place(dialect),
            body,
            secret=find_secret(self._key or _key_of(dialect), header),
            read=read,
            headers=codec.request_headers(asked),
        )
        return _told(reply, ask, dialect, growth)

    async def close(self) -> None:
        await self._poster.close()

    def _place(self, dialect: Dialect) -> str:
        base = self._url if _VERSION.search(self._url) else f"{self._url}/v1"
        return f"{base}/{_PLACES[dialect]}"


def _key_of(dialect: Dialect) -> str:
    """Where the key is: in the usual variable if that is set, otherwise the program may have one."""
    return _KEYS[dialect] if os.environ.get(_KEYS[dialect]) else PROGRAM


def _told(reply: Reply, ask: Ask, dialect: Dialect, growth: GrownAsk | None) -> Reply:
    rules = dict(reply.rules)
    if dialect != ask.dialect:
        rules["dialect"] = f"asked as {dialect}"
        reply = replace(reply, raw=None)
    if growth is not None and (echo := how_echoed(ask, growth)) is not None:
        rules["echo"] = echo
    kept = kept_ids(growth, reply.policy)
    keep = 0 if kept is None or reply.prompt_ids is None else common_ids(kept, reply.prompt_ids)
    if kept is not None and keep < len(kept):
        rules["prefix"] = "broken: the server encodes every conversation anew"
    return replace(reply, rules=rules, keep=keep)


def _with_ids(reply: Reply, body: dict[str, Any]) -> Reply:
    """With the token ids that some servers give beside an answer (vLLM with `return_token_ids`)."""
    try:
        prompt = _ids(body.get("prompt_token_ids"))
        given = [_ids(each.get("token_ids")) for each in body.get("choices") or ()]
    except (msgspec.MsgspecError, AttributeError, OverflowError):
        raise Unanswerable("the server's token ids are no list of whole numbers.", status=502) from None
    if len(given) != len(reply.choices) or None in given:
        return replace(reply, prompt_ids=prompt)
    choices = tuple(
        replace(choice, completion_ids=ids, **_fitting(choice.logprobs, choice.token_ends, ids))
        for choice, ids in zip(reply.choices, given, strict=True)
    )
    return replace(reply, prompt_ids=prompt, choices=choices)


def _ids(given: Any) -> Ints | None:
    return None if given is None else Ints(msgspec.convert(given, list[int]))


def _fitting(logprobs: Any, ends: Any, ids: Ints | None) -> dict[str, Any]:
    """What is told token by token, only where it is as long as the ids."""
    size = len(ids or ())
    return {
        "logprobs": logprobs if logprobs is not None and len(logprobs) == size else None,
        "token_ends": ends if ends is not None and len(ends) == size else None,
    }


def upstream_backend(rest: str) -> UpstreamBackend:
    """From what stands after `upstream:`."""
    url, given = read_options(rest, ("dialect", "model", "key"))
    if not url:
        raise UsageError(f"upstream needs a server's address. Type: {FORM}")
    dialect = given.get("dialect")
    if dialect is not None and dialect not in CODECS:
        raise UsageError(f"there is no dialect {dialect!r}. {nearest(dialect, CODECS)}")
    return UpstreamBackend(url, dialect=dialect, model=given.get("model"), key=given.get("key"))
