"""What a call is charged with, by who answers it; each against a plain formula."""

from __future__ import annotations

import math

import pytest

import baton
from baton.engine.scripted import ScriptedEngine
from baton.engine.tokens import completion
from baton.team.budget import Charging, PromptCharge, bill_of
from baton.team.protocol import Answer, EngineError, Request
from baton.trace.records import Ints
from baton.trace.trace import Trace


def asked(charging: Charging | None, *, counted: bool = True) -> PromptCharge:
    return PromptCharge(charging=charging, new=11, whole=70, counted=counted, max_tokens=9)


IDS = Ints(range(6))


@pytest.mark.parametrize(
    ("charge", "answer", "charged", "estimated"),
    [
        (
            asked("billed"),
            Answer(text="größer", policy="p", prompt_tokens=81, completion_tokens=4),
            85,
            False,
        ),
        (asked("billed"), Answer(text="größer", policy="p", completion_ids=IDS), 70 + 6, False),
        (asked("billed", counted=False), Answer(text="größer", policy="p", completion_ids=IDS), 70 + 6, True),
        (asked("billed", counted=False), Answer(text="größer", policy="p"), 70 + 2, True),
        (
            asked("kept"),
            Answer(text="größer", policy="p", prompt_tokens=70, completion_ids=IDS),
            11 + 6,
            False,
        ),
        (asked("estimated"), Answer(text="größer", policy="p", completion_ids=IDS), 70 + 2, True),
        (asked("estimated"), Answer(text="x", policy="p", prompt_tokens=3, completion_tokens=1), 4, False),
        (asked("estimated"), Answer(text="", policy="p", completion_ids=Ints([260])), 70, True),
        (asked(None), Answer(text="größer", policy="p", completion_ids=IDS), 11 + 6, False),
        (asked(None), Answer(text="w" * 90, policy="p"), 11 + 9, False),  # at most what was reserved, in 0.2
        (asked("billed"), EngineError("no"), 0, False),
    ],
)
def test_a_bill(charge: PromptCharge, answer: Answer | EngineError, charged: int, estimated: bool) -> None:
    found = bill_of(charge, answer)
    assert (found.charged, found.estimated) == (charged, estimated)


class _Kept(ScriptedEngine):
    """Like a local model: it counts, and keeps what it has read."""

    charging: Charging = "kept"


def _talk(request: Request) -> Answer:
    turn = sum(entry.speaker == "assistant" for entry in request.entries)
    text = "stop 3" if turn == 3 else f"aggregate {'m' * turn}"
    ids, ends, zeros = completion(text)
    return Answer(
        text=text,
        policy="kept",
        completion_ids=ids,
        logprobs=zeros,
        token_ends=ends,
        prompt_tokens=len(request.prompt_ids or ()),
        completion_tokens=len(ids),
    )


@pytest.mark.parametrize("charging", ["kept", "billed"])
def test_a_model_that_keeps_its_context_reads_each_token_once(charging: Charging) -> None:
    """As training counts, and counted before; a server that is asked the same bills every prompt again."""
    engine = _Kept("kept", _talk)
    engine.charging = charging
    trace = baton.run(baton.Task.of("Anything."), baton.Team.of("centralized", engine))
    assert isinstance(trace, Trace)
    assert len(trace.calls) == 4
    new = [len(call.prompt_ids or ()) for call in trace.calls]
    said = [len(call.completion_ids or ()) for call in trace.calls]
    whole, read = [], 0
    for k in range(4):
        read += new[k]
        whole.append(read)
        read += said[k]
    expected = math.fsum(said) + math.fsum(new if charging == "kept" else whole)
    assert trace.costs["tokens"] == expected
    assert [call.prompt_tokens for call in trace.calls] == whole
