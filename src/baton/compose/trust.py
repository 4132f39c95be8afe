"""What a trace may make happen when it is run again: nothing outside Baton, unless the person says so in this call.

A trace is a file, perhaps a stranger's, and it names the policies that played it. Some of these are code to import,
some an address to which the API key would go. `--trust-policies` lets them; what is typed as --policy needs no leave.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from baton.engine import ENGINES, make_engine
from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.team.team import Assignment, Team
from baton.trace.trace import Trace

TRUST = "--trust-policies"

_WITHIN = ("table", "torch")
"""Kinds of engines that read files of this machine and do no more."""


def add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        TRUST,
        action="store_true",
        help="import the modules and ask the servers (with your API key) that the trace names as its policies",
    )


def needs_trust(spec: str) -> bool:
    """Whether a policy is code to import or an address to reach. An engine that is not known here counts as such."""
    kind, _, rest = spec.partition(":")
    if kind == "scripted":
        return ":" in rest
    return kind in ENGINES and kind not in _WITHIN


def check_trusted(policies: Mapping[str, str], whose: str) -> None:
    """Refuse what a file names and nobody vouched for. `whose` is the file, in words."""
    for name, spec in policies.items():
        if needs_trust(spec):
            raise UsageError(
                f"{whose} names {spec!r} as policy {name!r}: {_outcome(spec)}. If you trust it, type: {TRUST}"
            )


def _outcome(spec: str) -> str:
    kind, _, rest = spec.partition(":")
    if kind == "scripted":
        return f"that would import the Python module {rest.partition(':')[0]!r} and call it"
    return f"that would send the key in OPENAI_API_KEY and what the team reads to {rest.rpartition('@')[2]!r}"


def team_again(trace: Trace, policies: Mapping[str, str], *, trust: bool) -> tuple[Team, Assignment]:
    """The team that made a trace; `policies`, typed now, take the place of its own."""
    from baton.compose.build import make_team, settings_of  # takes a while, and not every command gets here

    settings = settings_of(trace, policies, trust=trust)
    if not trust:
        own = {name: spec for name, spec in settings.policies.items() if name not in policies}
        check_trusted(own, f"trace {trace.trace_id!r}")
    return make_team(settings)


def silent_engine(spec: str) -> Engine:
    """What stands for a policy in a replay, which has its answers: ids as the policy gives them, nothing outside."""
    if not needs_trust(spec):
        return make_engine(spec)
    kind, _, rest = spec.partition(":")
    return ScriptedEngine(rest, _silent) if kind == "scripted" else _Silent(rest.rpartition("@")[0])


def _silent(_request: Request) -> str:
    raise EngineError("this was not recorded")


class _Silent:
    """A server's model, which has no ids here."""

    def __init__(self, name: str) -> None:
        self.name = name

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> None:  # noqa: ARG002  # the protocol's
        return None

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return [EngineError("this was not recorded") for _ in requests]
