"""Spans become the team that a person would draw of them: GenAI, OpenInference and OpenLLMetry, in any order."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.support.otlp_spans import agent, chat, padded, request, span, team, tool

from baton.connect.assemble import assemble
from baton.connect.import_report import ImportReport
from baton.connect.readers.otlp.json_spans import spans_of
from baton.connect.readers.otlp.reader import OtlpSource
from baton.connect.readers.otlp.span import OtelSpan
from baton.connect.writers.otlp import protobuf_request
from baton.trace.trace import Trace
from baton.trace.validation.checks import validate

CAPTURES = Path(__file__).parents[2] / ".." / "shared" / "data" / "captures"


def written(path: Path, *requests: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in requests))
    return path


def traces_of(place: Path, report: ImportReport | None = None) -> list[Trace]:
    source = OtlpSource()
    assert source.recognises(place)
    report = ImportReport() if report is None else report
    return assemble(source.read(place, report), report, kind="otlp")


def acts(trace: Trace) -> list[tuple[Any, ...]]:
    """Agent, what, to whom or with which tool, words."""
    return [(e.agent, e.type, e.to or e.tool, trace.text(e.content_ref)) for e in trace.events]


def counted(trace: Trace, type: str) -> int:
    return sum(event.type == type for event in trace.events)


def test_a_team_with_delegation_by_tools(tmp_path: Path) -> None:
    (trace,) = traces_of(written(tmp_path / "spans.jsonl", request(*team())))
    assert validate(trace) == []
    assert set(acts(trace)) == {
        ("lead", "spawn", "scout", '{"q": "x"}'),
        ("lead", "spawn", "scout-2", '{"q": "y"}'),
        ("scout", "tool_call", "look", None),
        ("scout", "tool_result", "look", "found"),
        ("scout", "return", "lead", "x it is"),
        ("scout-2", "return", "lead", "y it is"),
        ("lead", "aggregate", None, None),
        ("lead", "orchestrator_decision", None, "both"),
    }
    assert [e.why for e in trace.events if e.inferred] == [
        "the first answer after several agents had returned"
    ]
    # 5 chats of 7 + 2 tokens; what the lead's own span repeats is not counted again.
    assert sum(event.tokens or 0 for event in trace.events) == 5 * 9


@pytest.mark.parametrize("seed", range(5))
def test_order_doubles_and_batches_change_nothing(tmp_path: Path, seed: int) -> None:
    (whole,) = traces_of(written(tmp_path / "a.jsonl", request(*team())))
    spans = team() + random.Random(seed).sample(team(), 4)
    random.Random(seed).shuffle(spans)
    cut = seed * 3
    (again,) = traces_of(written(tmp_path / "b.jsonl", request(*spans[:cut]), request(*spans[cut:])))
    assert acts(again) == acts(whole)
    assert again.edges == whole.edges


@pytest.mark.parametrize("cut", range(1, 11))
def test_a_part_gives_what_is_there(tmp_path: Path, cut: int) -> None:
    """Parents come last, so a program that runs has sent children without them."""
    report = ImportReport()
    (trace,) = traces_of(written(tmp_path / "part.jsonl", request(*team()[:cut])), report)
    assert {problem.code for problem in validate(trace)} == {"structure/unfinished"}
    chats = sum(one["name"] == "chat m" for one in team()[:cut])
    assert len(trace.calls) == chats


def test_a_handover_passes_control_and_a_swarm_gives_one_answer(tmp_path: Path) -> None:
    spans = [
        span("swarm", None, 0, 9, gen_ai__operation__name="invoke_swarm", gen_ai__input__messages="go"),
        agent("a1", "swarm", 1, 3, "a", gen_ai__output__messages=[{"role": "assistant", "content": "over"}]),
        tool("h", "a1", 2, 2.5, "transfer_to_b", "h1", gen_ai__tool__call__arguments={"message": "yours"}),
        agent("b1", "swarm", 4, 5, "b"),
        tool(
            "h2", "b1", 4.1, 4.2, "handoff_to_agent", "h2", gen_ai__tool__call__arguments={"agent_name": "a"}
        ),
        agent("a2", "swarm", 6, 8, "a", gen_ai__output__messages=[{"role": "assistant", "content": "done"}]),
    ]
    (trace,) = traces_of(written(tmp_path / "swarm.jsonl", request(*spans)))
    assert validate(trace) == []
    assert acts(trace) == [
        ("a", "message", "b", "yours"),
        ("b", "message", "a", None),
        ("a", "orchestrator_decision", None, "done"),
    ]
    assert [event.decision for event in trace.events] == ["delegate", "delegate", "stop"]
    assert trace.header.task_id == "go"


def test_an_agent_used_twice_is_two_unless_its_conversation_goes_on(tmp_path: Path) -> None:
    def used(*conversations: str | None) -> Trace:
        spans = [agent("lead", None, 0, 99, "lead", gen_ai__conversation__id="top")]
        for place, one in enumerate(conversations):
            more = {} if one is None else {"gen_ai__conversation__id": one}
            spans += [
                tool(f"t{place}", "lead", 10 * place + 1, 10 * place + 9, "ask", f"c{place}"),
                agent(f"s{place}", f"t{place}", 10 * place + 2, 10 * place + 8, "scout", **more),
            ]
        return traces_of(written(tmp_path / "used.jsonl", request(*spans)))[0]

    assert counted(used("p", "q", "r"), "spawn") == 3
    again = used("p", "q", "p")
    assert (counted(again, "spawn"), counted(again, "message"), counted(again, "return")) == (2, 1, 3)
    assert counted(used(None, None), "spawn") == 2
    # The program's own id on every span says nothing about one agent.
    assert counted(used("top", "top"), "spawn") == 2


def test_two_instrumentations_of_one_call_are_one_call(tmp_path: Path) -> None:
    spans = [
        agent("lead", None, 0, 9, "lead"),
        chat("outer", "lead", 1, 3, "hello", "hi"),
        span(
            "inner",
            "outer",
            1.5,
            2.5,
            "ChatCompletion",
            openinference__span__kind="LLM",
            llm__token_count__prompt=11,
            llm__token_count__completion=4,
        ),
    ]
    report = ImportReport()
    (trace,) = traces_of(written(tmp_path / "twice.jsonl", request(*spans)), report)
    (call,) = trace.calls
    assert (call.prompt_tokens, call.completion_tokens, trace.text(call.completion_ref)) == (11, 4, "hi")
    assert report.joined["a model that two instrumentations saw"] == 1


def test_fan_in_is_what_links_say(tmp_path: Path) -> None:
    spans = [
        span("run", None, 0, 20, "workflow.run", workflow__id="w", workflow__name="press"),
        *(
            one
            for n in range(3)
            for one in (
                span(f"e{n}", "run", 1 + n, 5 + n, "executor.process"),
                agent(f"p{n}", f"e{n}", 1.5 + n, 4 + n, f"p{n}"),
                span(f"m{n}", f"e{n}", 4.5 + n, 4.6 + n, "message.send"),
            )
        ),
        {**span("join", "run", 10, 11, "executor.process join"),
         "links": [{"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": padded(f"m{n}")} for n in range(3)]},
    ]  # fmt: skip
    (trace,) = traces_of(written(tmp_path / "fan.jsonl", request(*spans)))
    assert validate(trace) == []
    (fused,) = [event for event in trace.events if event.type == "aggregate"]
    assert not fused.inferred
    sources = {
        trace.event(edge.src).agent
        for edge in trace.edges
        if edge.dst == fused.id and edge.type == "aggregate"
    }
    assert sources == {"p0", "p1", "p2"}


@pytest.mark.parametrize(
    ("attributes", "told", "said"),
    [
        (
            {"llm__input_messages__0__message__role": "user", "llm__input_messages__0__message__content": "hey",
             "llm__output_messages__0__message__content": "yo", "openinference__span__kind": "LLM"},
            "hey", "yo",
        ),
        (
            {"gen_ai__prompt__0__role": "user", "gen_ai__prompt__0__content": "hey", "llm__request__type": "chat",
             "gen_ai__completion__0__role": "assistant", "gen_ai__completion__0__content": "yo"},
            "hey", "yo",
        ),
        (
            {"gen_ai__system": "test", "gen_ai__request__model": "m", "events": [
                {"event.name": "gen_ai.user.message", "content": "hey"},
                {"event.name": "gen_ai.choice", "message": {"role": "assistant", "content": "yo"}}]},
            "hey", "yo",
        ),
        (
            {"gen_ai__operation__name": "chat", "gen_ai__input__messages": [{"role": "user", "content": "hey"}],
             "gen_ai__output__messages": [{"role": "assistant", "content": [{"type": "text", "text": "yo"}]}]},
            "hey", "yo",
        ),
    ],
)  # fmt: skip
def test_messages_in_every_form(tmp_path: Path, attributes: dict[str, Any], told: str, said: str) -> None:
    spans = request(agent("lead", None, 0, 3, "lead"), span("c", "lead", 1, 2, "call", **attributes))
    (trace,) = traces_of(written(tmp_path / "one.jsonl", spans))
    (call,) = trace.calls
    assert json.loads(trace.text(call.prompt_ref) or "") == [{"speaker": "user", "text": told}]
    assert trace.text(call.completion_ref) == said


def test_a_conversation_is_kept_once(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = [{"role": "user", "parts": [{"type": "text", "content": "begin"}]}]
    spans = [agent("lead", None, 0, 100, "lead")]
    for turn in range(6):
        said = {"role": "assistant", "parts": [{"type": "text", "content": f"answer {turn}"}]}
        spans.append(
            span(
                f"c{turn}",
                "lead",
                turn + 1,
                turn + 1.5,
                gen_ai__operation__name="chat",
                gen_ai__input__messages=told,
                gen_ai__output__messages=[said],
            )
        )
        told = [*told, said, {"role": "user", "parts": [{"type": "text", "content": f"more {turn}"}]}]
    (trace,) = traces_of(written(tmp_path / "long.jsonl", request(*spans)))
    new = [[one["text"] for one in json.loads(trace.text(call.prompt_ref) or "[]")] for call in trace.calls]
    assert new == [["begin"], *([f"more {turn}"] for turn in range(5))]
    assert [call.parent for call in trace.calls] == [None, *(call.id for call in trace.calls[:-1])]


def test_unreadable_entries_are_told_and_the_rest_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "mixed.jsonl", request(*team()), {"resourceSpans": 3}, {"odd": 1})
    with path.open("a") as file:
        file.write('{"resourceSpans": [{"scopeSp')
    report = ImportReport()
    (trace,) = traces_of(path, report)
    assert counted(trace, "return") == 2
    assert report.skipped["an entry that is no span and no request"] == 3
    assert all("mixed.jsonl:" in place for place in report.places["an entry that is no span and no request"])


def test_spans_of_several_files_packed_and_printed_are_one_trace(tmp_path: Path) -> None:
    """A folder: a packed part, and what the console exporter prints over many lines."""
    (whole,) = traces_of(written(tmp_path / "whole.jsonl", request(*team())))
    folder = tmp_path / "parts"
    folder.mkdir()
    with gzip.open(folder / "a.json.gz", "wt") as file:
        file.write(json.dumps(request(*team()[:5])))
    written(folder / "b.jsonl", request(*team()[5:8]))
    printed = [json.dumps(console(one), indent=4) for one in team()[8:]]
    (folder / "c.json").write_text("\n".join(printed) + "\n")
    (again,) = traces_of(folder)
    assert acts(again) == acts(whole)


def console(one: dict[str, Any]) -> dict[str, Any]:
    """As `ReadableSpan.to_json` has it; its times end at microseconds."""
    from datetime import UTC, datetime

    def moment(nanos: str) -> str:
        return datetime.fromtimestamp(int(nanos) // 1000 / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    return {
        "name": one["name"],
        "context": {"trace_id": f"0x{one['traceId']}", "span_id": f"0x{one['spanId']}", "trace_state": "[]"},
        "parent_id": f"0x{one['parentSpanId']}" if "parentSpanId" in one else None,
        "start_time": moment(one["startTimeUnixNano"]),
        "end_time": moment(one["endTimeUnixNano"]),
        "status": {"status_code": "UNSET"},
        "attributes": {
            pair["key"]: pair["value"].get("stringValue", int(pair["value"].get("intValue", 0)))
            for pair in one["attributes"]
        },
        "events": [],
        "links": [],
    }


def test_clocks_that_are_behind_are_put_right(tmp_path: Path) -> None:
    """The scouts' machine is an hour behind."""
    (whole,) = traces_of(written(tmp_path / "a.jsonl", request(*team())))
    spans = team()
    for one in spans:
        if one["spanId"] in map(padded, ("s1", "t", "s2", "sc1", "s3", "sc2")):
            for name in ("startTimeUnixNano", "endTimeUnixNano"):
                one[name] = str(int(one[name]) - 3600 * 10**9)
    (again,) = traces_of(written(tmp_path / "b.jsonl", request(*spans)))
    assert validate(again) == []
    # Which of the two that began at once is the first has no answer any more.
    plain = [sorted(str(act).replace("scout-2", "scout") for act in acts(trace)) for trace in (again, whole)]
    assert plain[0] == plain[1]


_ASKED, _SCOUT, _ANSWERED = 51 + 10, 51 + 5 + 52 + 6, 53 + 11  # tokens of pydantic-ai's spans
CAPTURED: dict[str, list[dict[str, int]]] = {
    "pydantic-ai-otel": [
        {"spawn": 2, "return": 2, "tool_call": 2, "message": 0, "tokens": _ASKED + 2 * _SCOUT + _ANSWERED}
    ],
    "agent-framework-otel": [
        {"spawn": 1, "return": 1, "tool_call": 0, "tokens": 26},
        {"spawn": 2, "return": 2, "aggregate": 1, "tokens": 26},
    ],
    "strands-otel": [
        {"spawn": 1, "return": 1, "tool_call": 1, "tokens": 52},
        {"spawn": 0, "message": 1, "tool_call": 0, "tokens": 39},
    ],
    "smolagents-openinference": [{"spawn": 1, "return": 1, "tool_call": 3, "tokens": 52}],
    "openinference-oa": [
        {"spawn": 0, "message": 1, "tool_call": 1},
        {"spawn": 2, "return": 2, "tool_call": 1},
    ],
    "openinference-lg": [{"spawn": 3, "return": 3, "tool_call": 1}, {"spawn": 0, "return": 0}],
}


@pytest.mark.parametrize("name", CAPTURED)
def test_captures_of_real_programs(name: str) -> None:
    """Counted by hand in the captures; only where they are."""
    path = CAPTURES / f"{name}.jsonl"
    if not path.exists():
        pytest.skip("the captures are not here")
    found = traces_of(path)
    assert all(validate(trace) == [] for trace in found)
    left = list(CAPTURED[name])
    for trace in found:
        figures = {
            kind: counted(trace, kind) for kind in ("spawn", "return", "tool_call", "message", "aggregate")
        }
        figures["tokens"] = sum(event.tokens or 0 for event in trace.events)
        (match,) = [want for want in left if all(figures[key] == value for key, value in want.items())]
        left.remove(match)
    assert left == []


BROKEN: list[Any] = [
    {**span("odd", None, 0, 1), "startTimeUnixNano": "yesterday"},
    {**span("odd", None, 0, 1), "attributes": [7]},
    {**span("odd", None, 0, 1), "status": "bad"},
    "no span at all",
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_span_that_cannot_be_read_costs_no_other(tmp_path: Path, broken: Any) -> None:
    whole = traces_of(written(tmp_path / "whole.jsonl", request(*team())))
    report = ImportReport()
    spans = team()
    (trace,) = traces_of(written(tmp_path / "spans.jsonl", request(*spans[:3], broken, *spans[3:])), report)
    assert acts(trace) == acts(whole[0])
    assert report.skipped["a span that cannot be read"] == 1
    assert report.entries == len(spans) + 1
    assert "spans.jsonl:1" in report.places["a span that cannot be read"][0]


def test_a_span_of_protobuf_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    good = [one for one in spans_of(request(*team()), "") if isinstance(one, OtelSpan)]
    body = protobuf_request(good)
    # The name of the second span loses its meaning: where text was, there are bytes of none.
    name = good[1].name.encode()
    at = body.index(name)
    path = tmp_path / "spans.pb"
    path.write_bytes(body[: at - 2] + b"\x3a" + body[at - 1 :])  # a time that is no number
    report = ImportReport()
    (trace,) = traces_of(path, report)
    assert report.skipped["a span that cannot be read"] == 1
    assert report.entries == len(good)
    assert trace.events
