"""What traces cost in money: by hand, in parts, and never zero where it is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from baton.cli import main
from baton.errors import BatonError
from baton.measure.prices import Price, PriceTable, price, read_prices
from baton.trace import Call, Event, Header, Trace, write

TABLE = PriceTable(
    models={
        "gpt-x": Price(prompt=2.0, cached=0.5, completion=8.0),
        "qwen*": Price(prompt=1.0, completion=1.0),
        "qwen-large*": Price(prompt=4.0, completion=4.0),
        "free": Price(prompt=0.0, completion=0.0),
    }
)


def call(name: str, policy: str | None, asked: int | None, said: int | None, agent: str = "lead") -> Call:
    return Call(id=name, agent=agent, policy=policy, prompt_tokens=asked, completion_tokens=said)


def trace(*calls: Call, events: tuple[Event, ...] = ()) -> Trace:
    return Trace(header=Header(trace_id="t", task_id=""), calls=calls, events=events)


def test_prompt_cached_and_completion_by_hand() -> None:
    events = (
        Event(
            id="e",
            t=0,
            seq=1,
            type="message",
            agent="lead",
            role="boss",
            call="a",
            extra={"cached_tokens": 400},
        ),
        Event(id="s", t=0, seq=2, type="spawn", agent="lead", to="w", role="worker"),
    )
    found = price(
        trace(call("a", "gpt-x", 1000, 100), call("b", "gpt-x", 500, 10, "w"), events=events), TABLE
    )
    assert found.cost.prompt == pytest.approx((600 + 500) * 2e-6)
    assert found.cost.cached == pytest.approx(400 * 0.5e-6)
    assert found.cost.completion == pytest.approx(110 * 8e-6)
    assert found.cost.total == found.known == pytest.approx(0.0022 + 0.0002 + 0.00088)
    assert found.cost.cached_tokens == 400
    assert found.roles.keys() == {"boss", "worker"}
    assert found.roles["worker"].total == found.agents["w"].total == pytest.approx(0.00108)
    assert found.agents["w"].cached is None, "nobody said how much a cache gave"
    assert found.dearest == "a"
    assert found.why_not is None


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("gpt-x", 2.0),
        ("openai:gpt-x@https://api.example/v1", 2.0),
        ("openai/gpt-x", 2.0),
        ("qwen-tiny", 1.0),
        ("vllm:Qwen/qwen-large-9@http://127.0.0.1:8000", 4.0),
        ("gpt-x-mini", None),
        ("", None),
        (None, None),
    ],
)
def test_a_model_is_found_by_its_name(name: str | None, rate: float | None) -> None:
    found = TABLE.of(name)
    assert (None if found is None else found.prompt) == rate


def test_unknown_is_unknown_and_never_zero() -> None:
    found = price(trace(call("a", "gpt-x", 1000, 0), call("b", "odd ] [", 10, 1)), TABLE)
    assert found.cost.total is None
    assert found.known == pytest.approx(0.002)
    assert "'odd ] ['" in str(found.why_not)
    found = price(trace(call("a", "gpt-x", None, 5)), TABLE)
    assert (found.cost.total, found.cost.completion, found.known) == (None, pytest.approx(4e-5), None)
    assert "1 of 1 calls" in str(found.why_not)
    found = price(trace(), TABLE)
    assert (found.cost.total, found.cost.prompt_tokens, found.known, found.dearest) == (
        None,
        None,
        None,
        None,
    )
    assert price(trace(call("a", "gpt-x", 1, 1)), PriceTable()).why_not == "no prices were given"


def test_what_is_free_costs_zero_though_nobody_counted() -> None:
    found = price(trace(call("a", "free", None, None)), TABLE)
    assert (found.cost.total, found.cost.prompt_tokens, found.dearest) == (0.0, None, None)


@pytest.mark.parametrize("told", ["400", True, -1, 1e30, None, [400]])
def test_a_count_of_cached_tokens_that_is_none_counts_nothing(told: object) -> None:
    events = (Event(id="e", t=0, seq=1, type="message", agent="a", call="a", extra={"cached_tokens": told}),)
    found = price(trace(call("a", "gpt-x", 1000, 0), events=events), TABLE)
    assert (found.cost.cached_tokens, found.cost.total) == (None, pytest.approx(0.002))


def test_more_cached_than_asked_is_all_of_it() -> None:
    events = (Event(id="e", t=0, seq=1, type="message", agent="a", call="a", extra={"cached_tokens": 9999}),)
    found = price(trace(call("a", "gpt-x", 1000, 0), events=events), TABLE)
    assert found.cost.total == pytest.approx(0.0005)


def test_a_table_is_read_and_its_mistakes_are_a_line(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('currency = "EUR"\n[models."größe"]\nprompt = 1\ncompletion = 2.5\n')
    assert read_prices(path) == PriceTable(
        currency="EUR", models={"größe": Price(prompt=1.0, completion=2.5)}
    )
    for text, said in (
        ("[models.x]\npromt = 1\ncompletion = 1", "Did you mean 'prompt'"),
        ("[models.x]\nprompt = -1\ncompletion = 1", "0 or more"),
        ("[models.x]\nprompt = 1", "completion"),
        ("prices = {}", "has no setting 'prices'"),
        ("[models", "not valid TOML"),
    ):
        path.write_text(text)
        with pytest.raises(BatonError, match=said):
            read_prices(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BatonError, match="UTF-8"):
        read_prices(path)
    with pytest.raises(BatonError, match="is a folder"):
        read_prices(tmp_path)
    with pytest.raises(BatonError, match="no price table"):
        read_prices(tmp_path / "none.toml")


def test_stats_say_it_by_role_and_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = trace(call("a", "gpt-x", 1000, 100), call("b", "gpt-x", 500, 10, "w"))
    write(found, tmp_path / "t.jsonl")
    (tmp_path / "p.toml").write_text("[models.gpt-x]\nprompt = 2.0\ncompletion = 8.0\n")
    assert main(["stats", str(tmp_path / "t.jsonl"), "--prices", str(tmp_path / "p.toml")]) == 0
    rows = {
        line.rpartition("  ")[0].split("  ")[0]: line.split() for line in capsys.readouterr().out.splitlines()
    }
    assert rows["agent lead"][2:] == ["1", "1,000", "unknown", "100", "0.0028"]
    assert rows["all"] == ["all", "2", "1,500", "unknown", "110", "0.00388"]
    (tmp_path / "p.toml").write_text("[models.other]\nprompt = 2.0\ncompletion = 8.0\n")
    assert main(["stats", str(tmp_path / "t.jsonl"), "--prices", str(tmp_path / "p.toml")]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].split() == ["all", "2", "1,500", "unknown", "110", "unknown"]
    assert "has no price for 'gpt-x'" in err
