"""Protocol overhead and tokens per delegation, counted again from the calls' texts."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import Scene, reading, team_of

from baton.cli import main
from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.delegation import delegated, tokens_by_role, tokens_per_delegation
from baton.measure.metrics.protocol import (
    _Returned,
    coordination_tokens,
    protocol_seconds,
    protocol_tokens,
    return_tokens,
    tool_tokens,
)
from baton.trace.formats import read
from baton.trace.trace import Trace

TOPOLOGIES = ("centralized", "planner_executor_critic", "debate", "swarm", "hierarchical", "harness")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    folder: Path = tmp_path_factory.mktemp("protocol")
    for topology in TOPOLOGIES:
        assert (
            main(["run", "shard-sum", "--topology", topology, "--seed", "5", "--out", str(folder / topology)])
            == 0
        )
    return {topology: read(folder / topology) for topology in TOPOLOGIES}


def counted(trace: Trace) -> dict[str, float]:
    """By the texts: four letters of shard-sum's scripted play are a token, and a line that is no command is a note.

    What is read, the whole prompt at each call, is shared by letters over its entries, of which "X returned: ..." are
    returns and the agent's own earlier words are nothing.
    """
    root = trace.events[0].agent
    spent = {"coordination": 0.0, "returns": 0.0, "tools": 0.0}
    whole = 0.0
    contexts: dict[str | None, list[tuple[str, str]]] = {None: []}
    begun_by: dict[str | None, str] = {}
    for call in trace.calls:
        answer = trace.text(call.completion_ref) or ""
        new = [(e["speaker"], e["text"]) for e in json.loads(trace.text(call.prompt_ref) or "[]")]
        context = [*contexts[call.parent], *new]
        begun_by[call.id] = begun_by.get(call.parent, call.agent)
        contexts[call.id] = [*context, ("assistant", answer)]
        said = math.ceil(len(answer) / 4)
        read_ = sum(3 + math.ceil(len(text) / 4) for _, text in context)
        whole += said + read_
        for line in (trace.text(call.completion_ref) or "").splitlines():
            verb = line.split(" ")[0]
            if verb in ("spawn", "wait", "stop", "return", "call"):
                use = {"return": "returns", "call": "tools"}.get(verb, "coordination")
                spent[use] += said * len(line) / (len(answer) + 1)  # and its end
        letters = sum(len(text) for _, text in context)
        for k, (speaker, text) in enumerate(context):
            if speaker in ("system", "assistant") or (begun_by[call.id] == root and k == 1):
                continue
            use = "tools" if speaker == "tool" else "returns" if " returned: " in text else ""
            spent[use or "coordination"] += read_ * len(text) / letters
    return {use: tokens / whole for use, tokens in spent.items()}


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_protocol_shares_counted_again_from_the_texts(topology: str, traces: dict[str, Trace]) -> None:
    one, expected = MeasuredTrace(traces[topology]), counted(traces[topology])
    # The runtime's spans are of lines; a line's own end is nobody's.
    assert coordination_tokens(one).value == pytest.approx(expected["coordination"], abs=1e-9)
    assert return_tokens(one).value == pytest.approx(expected["returns"], abs=1e-9)
    assert tool_tokens(one).value == pytest.approx(expected["tools"], abs=1e-9)
    assert protocol_tokens(one).value == pytest.approx(sum(expected.values()))
    assert 0 < (protocol_tokens(one).value or 0) < 1  # debate and swarm as well
    assert 0 < (protocol_seconds(one).value or 0) <= 1


def test_without_texts_a_turn_counts_as_what_its_event_is() -> None:
    one = team_of(workers=3, tokens=10)  # five turns: a spawn, three returns, an aggregate
    assert coordination_tokens(one).value == pytest.approx(0.4)
    assert return_tokens(one).value == pytest.approx(0.6)
    assert tool_tokens(one).value == 0
    assert protocol_tokens(one).value == pytest.approx(1.0)
    assert protocol_seconds(one).value == pytest.approx(1.0)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_delegations_share_the_tokens_of_all_sub_agents(topology: str, traces: dict[str, Trace]) -> None:
    trace = traces[topology]
    one = MeasuredTrace(trace)
    found = delegated(one)
    root = trace.events[0].agent
    spent = sum((e.tokens or 0) for e in trace.events if e.agent != root)
    assert sum(d.tokens for d in found) == spent
    given = [e for e in trace.events if e.type == "spawn" or e.decision == "delegate"]
    assert tokens_per_delegation(one).value == pytest.approx(spent / len(given))
    for role, figure in tokens_by_role([one]).items():
        mine = [d.tokens for d in found if d.role == role]
        assert figure.value == pytest.approx(sum(mine) / len(mine))


def test_a_second_delegation_starts_a_new_count() -> None:
    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead", role="orchestrator")
        odd = lead.spawn("w:1", role="worker", task="a")
        other = lead.spawn("w:2", role="critic", task="b")
        for tokens in (30, 5):
            stage.says(odd, tokens=tokens)
            if tokens == 30:
                odd.send(lead, "x")
                lead.delegate(odd, "again")
        odd.returns("x")
        stage.says(other, tokens=7)
        other.returns("y")
        lead.stop("x")

    one = reading(play)
    assert [d.tokens for d in delegated(one)] == [30, 7, 5]
    assert tokens_per_delegation(one).value == pytest.approx(14)
    assert {role: f.value for role, f in tokens_by_role([one]).items()} == {"worker": 17.5, "critic": 7}
    assert tokens_per_delegation(reading(lambda stage: stage.team.agent("a").stop("x"))).value is None


NAMES = st.sampled_from(["w", "worker1", "worker12", "worker", "", "ü"])
SAID = st.sampled_from(["", "42", "2", "two\nlines", "said: 42"])


@given(st.lists(st.tuples(NAMES, SAID), max_size=8), NAMES, st.sampled_from(["", " returned: ", "x"]), SAID)
def test_what_tells_a_result_is_found_as_by_comparing_all(
    returned: list[tuple[str, str]], who: str, between: str, what: str
) -> None:
    heard = _Returned()
    for each in returned:
        heard.add(*each)
    text = who + between + what
    assert heard.is_told_by(text) == any(text.startswith(w) and text.endswith(t) for w, t in returned)
