"""Who answers a program: each ask goes to the policy of the role that asks, drawn as training needs it.

A role is told by its system prompt or by a header of its request (`[program.roles]`), which is all there is when an
ask comes: who spawned whom is known only afterwards. A policy answers at the run's temperature and with the whole
distribution, whatever the program asks for: a draw from a cut distribution could not be trained on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, structs

from baton.errors import UsageError
from baton.learn.program.part import ProgramPart
from baton.serve.backend import Backend, GrownAsk, Unanswerable, caller_headers
from baton.serve.exchange import Ask, Reply
from baton.serve.session_keys import telling_headers
from baton.trace.records import Sampling

_HEADER = "header:"


class RolePattern(Struct, frozen=True, kw_only=True):
    """How a role is told."""

    header: str | None
    """The header that tells it, in lower case; None: the system prompt does."""
    pattern: re.Pattern[str]

    @staticmethod
    def of(text: str) -> RolePattern:
        """From what a recipe says: a pattern, or `header:NAME=PATTERN`."""
        if not text.startswith(_HEADER):
            return RolePattern(header=None, pattern=re.compile(text))
        name, equals, pattern = text.removeprefix(_HEADER).partition("=")
        name = name.strip().lower()
        if not equals or not telling_headers({name: "x"}):
            raise UsageError(
                f"{text!r} names no header that is kept with a call. Expected header:NAME=PATTERN with a name such as "
                "x-baton-agent, x-openai-subagent or thread-id."
            )
        return RolePattern(header=name, pattern=re.compile(pattern))


class ProgramRoles:
    """The roles of a program, by their system prompts and headers."""

    def __init__(self, part: ProgramPart) -> None:
        self._patterns = {role: RolePattern.of(text) for role, text in part.roles.items()}
        self._rest = part.role

    def of(self, ask: Ask, headers: Mapping[str, str]) -> str:
        """The first role whose pattern is found; else the one of all others."""
        told = "\n".join(each.text for each in ask.messages if each.speaker == "system")
        for role, each in self._patterns.items():
            where = told if each.header is None else headers.get(each.header)
            if where is not None and each.pattern.search(where):
                return role
        return self._rest


class RoleBackend:
    """Answers for a program by the policies of its roles."""

    name = "policies"

    def __init__(self, part: ProgramPart, by_role: Mapping[str, Backend]) -> None:
        self._part = part
        self._roles = ProgramRoles(part)
        self._by_role = dict(by_role)

    async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
        role = self._roles.of(ask, telling_headers(caller_headers.get()))
        backend = self._by_role.get(role) or self._by_role[self._part.role]
        return await backend.reply(as_drawn(ask, self._part), key=key, growth=growth)

    async def close(self) -> None:
        """The policies go on."""


def as_drawn(ask: Ask, part: ProgramPart) -> Ask:
    """The ask as it is answered."""
    asked = ask.sampling
    most = part.max_tokens if asked.max_tokens is None else min(asked.max_tokens, part.max_tokens)
    return structs.replace(
        ask, sampling=Sampling(temperature=part.temperature, max_tokens=most, stop=asked.stop), seed=None
    )


class NobodyBackend:
    """Answers nobody: rollouts have sessions of their own."""

    name = "nobody"

    async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:  # noqa: ARG002 (to everybody)
        raise Unanswerable(
            "this endpoint answers the rollouts of a training run, each under its own session."
        )

    async def close(self) -> None:
        """There is nothing to let go of."""
