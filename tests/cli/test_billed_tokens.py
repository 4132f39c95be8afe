"""Tokens are those of the bill: what a server's own books say, every command says, and the budget is spent by it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from billing_server import billing_server, by_words

import baton
from baton.cli import main
from baton.reward.rules.shared import RunCost
from baton.team.budget import estimate_tokens
from baton.team.protocol import Answer, Entry
from baton.trace.formats import read_all
from baton.trace.trace import Trace

pytest.importorskip("httpx", reason="needs the extra `http`")


def run(out: Path, policy: str, *more: str, topology: str = "centralized") -> Trace:
    main(["run", "shard-sum", "--topology", topology, "--policy", policy, *more, "--out", str(out)])
    (trace,) = read_all(out)
    return trace


def said_by_all(out: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The number of tokens as `show`, `stats` and `measure` print it, and as their JSON has it."""
    capsys.readouterr()
    found: dict[str, str] = {}
    assert main(["show", str(out)]) == 0
    shown = re.search(r"(~?[\d,]+) tokens", capsys.readouterr().out)
    assert main(["stats", str(out)]) == 0
    stats = re.search(r"^tokens +(\S+)", capsys.readouterr().out, re.MULTILINE)
    assert main(["measure", str(out)]) == 0
    measured = re.search(r"^tokens a trace +(\S+)", capsys.readouterr().out, re.MULTILINE)
    for name, match in (("show", shown), ("stats", stats), ("measure", measured)):
        assert match is not None
        found[name] = match[1]
    assert main(["stats", str(out), "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["traces"]
    found |= {"json": f"{line['tokens']:,.0f}", "estimated": f"{line['estimated_tokens']:,.0f}"}
    return found


@pytest.mark.parametrize(
    ("topology", "more"),
    [
        ("centralized", ("--set", "task.num_shards=3")),
        ("hierarchical", ("--set", "task.num_shards=5", "--clock", "real")),
        ("debate", ("--set", "rounds=3", "--set", "task.largest=100000")),
        ("swarm", ("--seed", "8")),
        ("planner_executor_critic", ()),
    ],
)
def test_all_say_what_the_server_s_books_say(
    topology: str, more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with billing_server() as server:
        trace = run(tmp_path, server.policy, *more, topology=topology)
    took = re.search(r"(~?[\d,]+) tokens", capsys.readouterr().out)
    assert took is not None
    assert took[1] == f"{server.billed:,}"
    assert len(server.books) == len(trace.calls) > 2
    said = said_by_all(tmp_path, capsys)
    assert said.pop("estimated") == "0"
    assert set(said.values()) == {f"{server.billed:,}"}
    assert sum(event.tokens or 0 for event in trace.events) == trace.costs["tokens"] == server.billed
    booked = sorted((each["prompt_tokens"], each["completion_tokens"]) for each in server.books)
    assert sorted((call.prompt_tokens, call.completion_tokens) for call in trace.calls) == booked
    (priced,) = RunCost(per_token=2.0).score(trace)
    assert priced.value == 2.0 * server.billed
    assert main(["replay", str(tmp_path)]) == 0


def test_a_small_bill_is_not_refused_for_the_letters_of_its_prompt(tmp_path: Path) -> None:
    """The prompt of 1,226 letters was charged as so many tokens, and a limit of 500 refused the first call."""
    with billing_server(lambda *_: {"prompt_tokens": 10, "completion_tokens": 3}) as server:
        trace = run(tmp_path, server.policy, "--set", "limits.tokens=500")
    assert server.books
    assert trace.costs["tokens"] == 13 * len(server.books) == server.billed


def test_a_limit_that_is_not_spent_says_what_was_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """'limits.tokens=40 was reached' beside '0 tokens' is no reason."""
    with billing_server(lambda *_: {"prompt_tokens": 10, "completion_tokens": 3}) as server:
        trace = run(tmp_path, server.policy, "--set", "limits.tokens=40")
    assert not server.books
    (asked,) = {event.extra["asked"] for event in trace.events if "budget" in event.extra}
    said = " ".join(capsys.readouterr().err.split())
    assert (
        f"counts in full before it is sent: the first refused wanted {asked:,.0f}, 0 were used. For more"
        in said
    )


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_huge_bill_ends_the_spending(
    clock: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with billing_server(lambda *_: {"prompt_tokens": 100_000, "completion_tokens": 10}) as server:
        trace = run(tmp_path, server.policy, "--set", "limits.tokens=5000", "--clock", clock)
    assert len(server.books) == 1  # it was 9, and 900,090 of 5,000 tokens
    assert trace.costs["tokens"] == server.billed == 100_010
    said = capsys.readouterr()
    assert "~" not in said.out
    assert "limits.tokens=5000 was reached" in said.err
    assert int(said.err.rpartition("--set limits.tokens=")[2]) > 100_010  # by the bill, not by the limit
    assert main(["replay", str(tmp_path)]) == 0


@pytest.mark.parametrize(("factor", "over"), [(1.0, 0), (3.0, 3)])
def test_a_long_debate_stays_within_its_limit(factor: float, over: int, tmp_path: Path) -> None:
    """It billed 73,197 of 30,000. Only calls on their way may pass a limit, where the bill is above the estimate."""

    def bill(prompt: str, answer: str) -> dict[str, int]:
        return {k: math.ceil(factor * len(text) / 4) for k, text in _named(prompt, answer)}

    with billing_server(bill) as server:
        more = ("--set", "rounds=30", "--set", "limits.tokens=30000")
        trace = run(tmp_path, server.policy, *more, topology="debate")
    assert trace.costs["tokens"] == server.billed
    before = server.books[: len(server.books) - over]
    assert sum(sum(each.values()) for each in before) <= 30_000
    assert server.billed > 24_000


def _named(prompt: str, answer: str) -> list[tuple[str, str]]:
    return [("prompt_tokens", prompt), ("completion_tokens", answer)]


ODD: list[Any] = [
    None,
    {},
    [],
    "12",
    {"prompt_tokens": 0, "completion_tokens": 0},
    {"prompt_tokens": "１０", "completion_tokens": " 3"},
    {"prompt_tokens": 10.5, "completion_tokens": True},
    {"prompt_tokens": 41},
    {"completion_tokens": 5},
    {"total_tokens": "some"},
]
EXACT: list[Any] = [
    {"prompt_tokens": "10", "completion_tokens": "3"},
    {"prompt_tokens": 10.0, "completion_tokens": 3.0},
    {"prompt_tokens": 10, "total_tokens": 13},
    {"completion_tokens": "3", "total_tokens": 13.0},
    {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 999},
]


@pytest.mark.parametrize("usage", EXACT, ids=str)
def test_a_count_is_one_however_it_is_written(
    usage: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with billing_server(lambda *_: usage) as server:
        trace = run(tmp_path, server.policy, "--set", "task.num_shards=2")
    assert {(call.prompt_tokens, call.completion_tokens, call.estimated) for call in trace.calls} == {
        (10, 3, False)
    }
    assert trace.costs["tokens"] == 13 * len(server.books)
    said = capsys.readouterr()
    assert "~" not in said.out
    assert "estimate" not in said.err


def test_a_total_alone_is_charged_as_it_is_and_its_parts_are_estimates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with billing_server(lambda *_: {"total_tokens": 12}) as server:
        trace = run(tmp_path, server.policy, "--set", "task.num_shards=3")
    assert trace.costs["tokens"] == 12 * len(server.books)
    assert all(call.estimated for call in trace.calls)
    for call in trace.calls:
        answer = trace.text(call.completion_ref) or ""
        assert call.completion_tokens == min(11, math.ceil(len(answer.encode()) / 4))
        assert (call.prompt_tokens or 0) + (call.completion_tokens or 0) == 12
    said = " ".join(capsys.readouterr().err.split())
    assert said.count('usage as {"total_tokens":12}') == 1
    assert said.count("estimate") == 1


def test_python_is_warned_once_of_a_server_that_does_not_count(tmp_path: Path) -> None:
    with (
        billing_server(lambda *_: {"prompt_tokens": "many"}) as server,
        pytest.warns(RuntimeWarning) as found,
    ):
        baton.run("shard-sum", policy=server.policy, out=str(tmp_path))
    (said,) = [str(each.message) for each in found]
    assert 'usage as {"prompt_tokens":"many"}' in said
    assert "estimated" in said


@pytest.mark.parametrize("usage", ODD, ids=str)
def test_what_nobody_counts_is_estimated_and_said_to_be(
    usage: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with billing_server(lambda *_: usage) as server:
        trace = run(tmp_path, server.policy, "--set", "task.num_shards=2")
    if not all(call.estimated for call in trace.calls):  # a usage that is no object is no chat completion
        assert not isinstance(usage, dict)
        assert all(call.finish_reason == "error" for call in trace.calls)
        return
    told = usage if isinstance(usage, dict) else {}
    expected = 0
    contexts: dict[str | None, list[str]] = {None: []}
    for call in trace.calls:
        new = [entry["text"] for entry in json.loads(trace.text(call.prompt_ref) or "")]
        answer = trace.text(call.completion_ref) or ""
        contexts[call.id] = [*contexts[call.parent], *new, answer]
        prompt = sum(3 + math.ceil(len(text.encode()) / 4) for text in contexts[call.id][:-1])
        given = {k: v for k, v in told.items() if type(v) is int and v > 0}
        expected += given.get("prompt_tokens", prompt)
        expected += given.get("completion_tokens", math.ceil(len(answer.encode()) / 4))
    assert capsys.readouterr().err.count("tokens are estimated") == 1
    said = said_by_all(tmp_path, capsys)
    assert said == {
        "show": f"~{expected:,}",
        "stats": f"~{expected:,}",
        "measure": f"~{expected:,}",
        "json": f"{expected:,}",
        "estimated": f"{expected:,}",
    }
    assert main(["replay", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    "usage", [{"prompt_tokens": 2**70, "completion_tokens": 1}, {"prompt_tokens": 1, "completion_tokens": -5}]
)
def test_a_bill_that_no_call_can_have_is_an_error(usage: Any, tmp_path: Path) -> None:
    with billing_server(lambda *_: usage) as server:
        trace = run(tmp_path, server.policy)
    assert {call.finish_reason for call in trace.calls} == {"error"}
    assert trace.costs["tokens"] == 0


def test_a_reply_that_cannot_be_used_is_paid_for_all_the_same(tmp_path: Path) -> None:
    with billing_server(answers=lambda _: "nonsense") as server:
        trace = run(tmp_path, server.policy)
    assert {call.finish_reason for call in trace.calls} == {"error"}
    assert trace.costs["tokens"] == server.billed > 0
    assert main(["replay", str(tmp_path)]) == 0


def _impatient(entries: list[Entry]) -> str:
    if "the worker of" in entries[0].text:
        return f"return {len(entries[0].text)}" + " and more" * (7 * len(entries[-1].text))
    first = not any(entry.speaker == "assistant" for entry in entries)
    return "spawn worker: a\nspawn worker: bb\nspawn worker: cccc\nwait any" if first else "stop 1"


def test_calls_that_are_dropped_are_paid_for(tmp_path: Path) -> None:
    """Under the virtual clock all were asked at once, and the longest answer came too late."""
    with billing_server(answers=_impatient) as server:
        trace = run(tmp_path, server.policy, "--set", "max_tokens=4000")
    assert [call.finish_reason for call in trace.calls].count("cancelled") == 1
    assert len(server.books) == len(trace.calls) == 5
    assert trace.costs["tokens"] == server.billed
    assert main(["replay", str(tmp_path)]) == 0


def test_functions_may_count_and_mixed_teams_say_who_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def worker(_: Any) -> Answer:
        return Answer(text="return 5", policy="mine", prompt_tokens=70, completion_tokens=4)

    def lead(request: Any) -> str:
        first = not any(entry.speaker == "assistant" for entry in request.entries)
        return "spawn worker: größer, 大きい\nwait all" if first else "stop 5"

    trace = baton.run(
        baton.Task.of("What is it?", verify="5"),
        topology="centralized",
        policy={"worker": worker, "default": lead},
        out=str(tmp_path),
    )
    assert isinstance(trace, Trace)
    counted = [call for call in trace.calls if not call.estimated]
    assert [(call.role, call.prompt_tokens, call.completion_tokens) for call in counted] == [
        ("worker", 70, 4)
    ]
    said = said_by_all(tmp_path, capsys)
    assert said["show"] == f"~{trace.costs['tokens']:,.0f}"
    assert said["estimated"] == f"{trace.costs['tokens'] - 74:,.0f}"
    assert main(["show", str(tmp_path)]) == 0
    assert re.search(r"worker1 .* 74 tokens", capsys.readouterr().out)


@pytest.mark.parametrize(
    "text", ["", "a", "abcd", "abcde", "größer, 大きい", "9" * 77, "\ud800", "a b\n" * 30]
)
def test_the_estimate_is_a_token_for_four_bytes(text: str) -> None:
    assert estimate_tokens(text) == math.ceil(len(text.encode("utf-8", "surrogatepass")) / 4)


def test_the_bill_of_the_words_is_not_our_estimate() -> None:
    """Or the tests above could not tell one from the other."""
    text = "sum the numbers in shards 1 2, then return."
    assert by_words(text, text)["prompt_tokens"] != estimate_tokens(text)


def test_forks_mark_what_they_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line of what ran again and what was reused, as the lines above it."""
    assert main(["run", "shard-sum", "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    args = ("--at", "worker2#2", "--replace", "0", "--out")
    assert main(["fork", str(tmp_path / "run"), *args, str(tmp_path / "fork")]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("again")]
    assert re.search(r"1 ran \(~[\d,]+ tokens\), 9 were reused \(~[\d,]+ tokens\)", line)
    assert "(estimated)" in line
    with billing_server() as server:
        counted = run(tmp_path / "billed", server.policy)
        assert counted.costs["tokens"] == server.billed
        capsys.readouterr()
        assert main(["fork", str(tmp_path / "billed"), *args, str(tmp_path / "other"), "--trust"]) == 0
    said = capsys.readouterr().out
    assert "~" not in said.replace(f"{counted.trace_id}~", "")
    assert "estimated" not in said


def test_measures_mark_every_row_of_tokens_that_were_estimated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ("tokens a trace", "tokens (tokens)", "tokens per delegation (tokens)", "dead tokens", "worker")
    assert main(["run", "shard-sum", "--out", str(tmp_path / "run")]) == 0
    with billing_server() as server:
        run(tmp_path / "billed", server.policy)
    for place, mark in (("run", "~"), ("billed", "")):
        capsys.readouterr()
        assert main(["measure", str(tmp_path / place)]) == 0
        said = capsys.readouterr().out.splitlines()
        for row in rows:
            (line,) = [each for each in said if re.match(re.escape(row) + r"  ", each)]
            assert line.removeprefix(row).lstrip().startswith("~") == bool(mark), line
