"""The survey's tables as data: cards, decisions, coverage map, timeline, evidence, ledger, borderline, envelopes.

Expected values are typed in from the survey's text, not read from our files.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

from baton.corpus import (
    CLAIM_KINDS,
    ENVELOPES,
    EVIDENCE,
    INDUSTRY,
    VOCABULARIES,
    load,
    place,
    select,
    stats,
    timeline,
)

CORPUS = load()
BY_KEY = {paper.key: paper for paper in CORPUS.papers}
PAPERS = Path(__file__).parents[2] / ".." / "shared" / "data" / "survey" / "papers.csv"


def test_the_thirteen_cards_are_the_surveys_in_its_order() -> None:
    cards = sorted((p for p in CORPUS.papers if p.entry_card), key=lambda p: p.entry_card.number)  # type: ignore[union-attr]
    names = "puppeteer kimi-k2-5 malt m-grpo matpo magrpo maporl dr-mas sharp marsrl context-folding c3"
    assert " ".join(paper.key for paper in cards) == f"{names} agent-lightning"
    for paper in cards:
        card = paper.entry_card
        assert card is not None
        assert all((card.claim, card.reward, card.credit, card.form, card.result, card.limitation))
    assert [p.entry_card.number for p in cards if p.entry_card] == list(range(1, 14))  # type: ignore[union-attr]
    figures = {"malt": "14.14", "matpo": "18.38", "m-grpo": "86.5"}
    for key, figure in figures.items():
        assert figure in BY_KEY[key].entry_card.result  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("decision", "keys"),
    [
        ("spawn", {"kimi-k2-5", "agentspawn", "halo"}),
        ("delegate", {"puppeteer", "paramanager", "wideseek-r1-2026"}),
        ("communicate", {"debate-as-reward", "c3", "agent-qmix2026", "latentmas"}),
        ("aggregate", {"m-grpo", "context-folding"}),
        ("stop", set()),
    ],
)
def test_decisions_follow_section_8_2(decision: str, keys: set[str]) -> None:
    assert {paper.key for paper in select(CORPUS.papers, {"decisions": [decision]})} == keys


def test_batons_own_reading_of_decisions_stands_beside_the_surveys() -> None:
    assert {p.key for p in select(CORPUS.papers, {"also_decides": ["stop"]})} == {"puppeteer"}
    assert all(not set(p.decisions) & set(p.also_decides) for p in CORPUS.papers)


def test_the_third_cross_tab() -> None:
    table = stats(CORPUS).category_by_verified
    assert sum(n for cells in table.values() for n in cells.values()) == 84
    if PAPERS.exists():
        with PAPERS.open(encoding="utf-8", newline="") as file:
            counted = Counter((row["category"], row["verified"]) for row in csv.DictReader(file))
        assert {(a, b): n for a, cells in table.items() for b, n in cells.items() if n} == dict(counted)
    # C.2 of the survey names eight partial rows.
    assert {p.key for p in CORPUS.papers if p.verified == "partial"} == (
        {"rema2025", "collabuiagents2025", "comas2026", "owl2025", "sirius2025", "multiagent-finetuning2025",
         "depart2026", "sage2026"}
    )  # fmt: skip


def test_the_timeline_has_every_tagged_entry_once_and_in_its_quarter() -> None:
    found = timeline(CORPUS.papers)
    assert list(found) == list(VOCABULARIES["credit"])
    placed = [(unit, when, key) for unit, row in found.items() for when, keys in row.items() for key in keys]
    assert Counter(key for _, _, key in placed) == Counter(p.key for p in CORPUS.papers if p.credit)
    for unit, when, key in placed:
        paper = BY_KEY[key]
        assert paper.credit == unit
        if paper.arxiv is None:
            assert when in ("earlier", f"{paper.year} undated")
            continue
        months = 12 * (2000 + int(paper.arxiv[:2])) + int(paper.arxiv[2:4]) - 1
        year, month = divmod(months, 12)
        assert when == ("earlier" if months < 12 * 2024 + 9 else f"{year} Q{month // 3 + 1}")
    for row in found.values():  # in the order of time, those without a month after their year
        order = [(when != "earlier", when[:4], when.endswith("undated"), when) for when in row]
        assert order == sorted(order)


COVERS = {
    "magrpo": "ddii-", "malt": "dddi-", "c3": "ddii-", "halo": "didi-", "marsrl": "ddid-", "rema2025": "didi-",
    "owl2025": "dddd-", "sirius2025": "didi-", "mas-zero2025": "didi-", "langmarl2026": "dddi-",
    "depart2026": "dddii", "openai-codex": "iidii", "agentdojo2024": "-iidd", "swe-bench2024": "--idi",
}  # fmt: skip


@pytest.mark.parametrize("key", COVERS)
def test_the_coverage_map_is_figure_3(key: str) -> None:
    covers = BY_KEY[key].covers
    assert covers is not None
    cells = (covers.reward, covers.credit, covers.orchestration, covers.evaluation, covers.safety)
    assert "".join({"direct": "d", "indirect": "i", "none": "-"}[cell] for cell in cells) == COVERS[key]


def test_the_map_has_the_surveys_39_entries() -> None:
    assert sum(paper.covers is not None for paper in CORPUS.papers) == 39


def test_every_source_has_a_class_and_every_class_a_row() -> None:
    assert [row.source_class for row in EVIDENCE] == list(VOCABULARIES["source_class"])
    matrix = {row.source_class: " ".join(getattr(row, kind) for kind in CLAIM_KINDS) for row in EVIDENCE}
    assert matrix == {
        "paper": "yes partial partial partial partial",
        "submission": "partial partial partial partial limited",
        "company_report": "partial partial yes yes limited",
        "docs": "no no yes partial no",
        "case_study": "no no yes partial no",
        "benchmark": "no no partial partial partial",
    }
    for key, wanted in {
        "malt": "paper", "puppeteer": "paper", "dr-mas": "paper", "kimi-k2-5": "company_report", "kimi-k2-6": "docs",
        "openai-codex": "docs", "claude-code-subagents": "docs", "anthropic-c-compiler": "case_study",
        "rema2025": "submission", "depart2026": "submission", "gaia2023": "benchmark",
    }.items():  # fmt: skip
        assert BY_KEY[key].source_class == wanted
    assert all((p.category == "benchmark") == (p.source_class == "benchmark") for p in CORPUS.papers)


def test_the_ledger_of_industry_has_six_claims_with_confidence() -> None:
    assert [(each.entry, each.confidence) for each in INDUSTRY] == [
        ("kimi-k2-5", "high"),
        ("kimi-k2-5", "high"),
        ("kimi-k2-6", "medium-high"),
        ("openai-codex", "high"),
        ("claude-code-subagents", "high"),
        ("anthropic-c-compiler", "medium"),
    ]
    assert all(BY_KEY[each.entry].category == "industry" and each.boundary for each in INDUSTRY)


def test_sparse_rows_say_why_they_are_tagged() -> None:
    sparse = {p.key: p for p in CORPUS.papers if p.credit in ("message", "orchestrator")}
    assert len(sparse) == 10
    assert {p.key for p in CORPUS.papers if p.sparse} == set(sparse)
    strict = {key for key, p in sparse.items() if p.sparse and p.sparse.reading == "strict"}
    assert strict == {"puppeteer", "paramanager", "kimi-k2-5", "owl2025", "wideseek-r1-2026", "c3"}


def test_borderline_cases_say_why() -> None:
    assert {p.key for p in CORPUS.papers if p.borderline} == {
        "mas-zero2025", "sirius2025", "multiagent-finetuning2025", "kimi-k2-5", "openai-codex", "claude-code-subagents",
    }  # fmt: skip
    names = " ".join(record.title for record in CORPUS.excluded if record.borderline)
    assert all(name in names for name in ("AutoGen", "CAMEL", "MetaGPT", "AgentBench", "AgentBoard"))


def test_envelopes_are_tables_8_and_9() -> None:
    assert {each.name: (each.sub_agents, each.steps, each.unit) for each in ENVELOPES} == {
        "single-agent": (0, (10, 100), "steps"),
        "academic": (None, (10, 100), "steps"),
        "harness-frameworks": (None, (10, 100), "steps"),
        "c-compiler": (16, (2000, 2000), "sessions"),
        "kimi-k2.5": (100, (1500, 1500), "steps"),
        "kimi-k2.6": (300, (4000, 4000), "steps"),
    }


@pytest.mark.parametrize(
    ("team", "steps", "by_team", "by_length"),
    [
        (0, 7, "single-agent", "academic"),
        (1, 100, "c-compiler", "academic"),
        (16, 101, "c-compiler", "kimi-k2.5"),
        (17, 1500, "kimi-k2.5", "kimi-k2.5"),
        (101, 1501, "kimi-k2.6", "kimi-k2.6"),
        (300, 4000, "kimi-k2.6", "kimi-k2.6"),
        (301, 4001, None, None),
    ],
)
def test_where_a_team_stands(team: int, steps: int, by_team: str | None, by_length: str | None) -> None:
    found = place(team, steps)
    assert (found.by_team, found.by_length) == (by_team, by_length)
    assert found.baselines == (steps / 100, steps / 10)


def test_a_card_without_its_flag_is_refused() -> None:
    from baton.corpus.records_read import parse, texts
    from baton.errors import FormatError

    given = texts()
    given["framework.toml"] = re.sub(r"^thirteen = true\n", "", given["framework.toml"], flags=re.MULTILINE)
    with pytest.raises(FormatError, match=r"agent-lightning.*entry_card"):
        parse(given)
