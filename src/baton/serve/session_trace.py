"""From a session's exchanges to its orchestration trace."""

from __future__ import annotations

from collections.abc import Sequence

from baton.connect.assemble import assemble
from baton.connect.seen import Seen, SeenAgent, SeenCall, SeenSession
from baton.serve.exchange import Exchange, Posted
from baton.serve.journal import SpansLine
from baton.trace.trace import Trace


def session_trace(
    exchanges: Sequence[Exchange],
    posted: Sequence[Posted],
    spans: Sequence[SpansLine],  # noqa: ARG001
    *,
    name: str,
) -> Trace:
    """What happened in a session, as one trace."""
    seen: list[Seen] = [
        SeenSession(session=name, key=name, system="baton serve", finished=any(one.ended for one in posted)),
        SeenAgent(session=name, key="main", name="main"),
    ]
    seen += [
        SeenCall(
            session=name,
            key=one.id,
            agent="main",
            order=(one.number,),
            t=one.begun,
            policy=one.reply.policy,
            completion=one.reply.choices[0].message.text,
        )
        for one in exchanges
        if one.reply is not None
    ]
    return assemble(seen, kind="serve")[0]
