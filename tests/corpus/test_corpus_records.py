"""The records against the survey's own files, where those are at hand, and against its published counts."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from baton.corpus import Excluded, Paper, load, stats

SURVEY = Path(__file__).parents[2] / ".." / "shared" / "data" / "survey"
needs_survey = pytest.mark.skipif(
    not (SURVEY / "papers.csv").exists(), reason="the survey's CSV files are not here"
)
CORPUS = load()

COUNTS = {
    "category": "rl_method 42 benchmark 18 classical_marl 10 industry 6 survey 5 framework 3",
    "rl": "yes 49 partial 9 no 26",
    "reward": "hybrid 15 shared 10 orchestration 7 verifier 6 debate 4 individual 4 role 3 process 2 NA 33",
    "credit": "agent 23 role 10 orchestrator 8 turn 5 message 2 NA 36",
    "form": "centralized 18 hierarchical 13 debate 8 planner_executor_critic 4 swarm 4 harness 3 NA 34",
}


def pairs(text: str) -> dict[str, int]:
    words = text.split()
    return {word: int(n) for word, n in zip(words[::2], words[1::2], strict=True)}


def rows(name: str) -> list[dict[str, str]]:
    with (SURVEY / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("field", COUNTS)
def test_counts_are_the_surveys(field: str) -> None:
    assert stats(CORPUS).counts[field] == pairs(COUNTS[field])


def test_totals_and_stages() -> None:
    found = stats(CORPUS)
    assert (found.retained, found.excluded) == (84, 32)
    assert found.stages == pairs("abstract 16 full_text 9 artifact 6 duplicate 1")
    assert all(sum(counts.values()) == 84 for counts in found.counts.values())


def test_cross_tabs_add_up_to_the_counts() -> None:
    found = stats(CORPUS)
    for table, field in ((found.reward_by_credit, "reward"), (found.form_by_credit, "form")):
        assert {row: sum(cells.values()) for row, cells in table.items()} == found.counts[field]
        columns = {
            column: sum(cells[column] for cells in table.values()) for column in found.counts["credit"]
        }
        assert columns == found.counts["credit"]
    assert found.reward_by_credit["hybrid"] == pairs("agent 6 role 4 orchestrator 1 turn 4 message 0 NA 0")
    assert found.form_by_credit["hierarchical"] == pairs(
        "agent 2 role 5 orchestrator 3 turn 3 message 0 NA 0"
    )


def test_our_tags_change_what_they_correct_and_nothing_else() -> None:
    theirs, ours = stats(CORPUS), stats(CORPUS, ours=True)
    assert ours.counts["rl"] == pairs("yes 48 no 26 partial 10")  # MALT trains by SFT and DPO
    assert {field for field in theirs.counts if theirs.counts[field] != ours.counts[field]} == {"rl"}


def test_the_five_errors_of_the_survey_are_corrected_beside_its_tags() -> None:
    corrected = {paper.key: paper for paper in CORPUS.papers if paper.ours}
    assert set(corrected) == {"puppeteer", "dr-mas", "m-grpo", "malt", "c3"}
    assert corrected["malt"].rl == "yes"
    assert all(correction.why for paper in corrected.values() for correction in paper.ours)


def test_there_are_thirteen_cards_and_one_for_every_recipe() -> None:
    assert sum(paper.thirteen for paper in CORPUS.papers) == 13
    assert all(paper.card is not None for paper in CORPUS.all_papers if paper.recipe or paper.thirteen)


@needs_survey
def test_facts_are_those_of_the_survey() -> None:
    def known(text: str) -> str | None:
        return None if text in ("NA", "unknown", "") else text

    ours = {paper.key: paper for paper in CORPUS.papers}
    theirs = rows("papers.csv")
    assert set(ours) == {row["key"] for row in theirs}
    for row in theirs:
        paper = ours[row["key"]]
        assert paper.title == row["title"]
        assert paper.first_author == row["first_author"].replace("\\'{e}", "é")
        assert paper.affiliation == known(row["affiliation"])
        assert (paper.year, paper.arxiv, paper.venue) == (
            int(row["year"]),
            known(row["arxiv_id"]),
            row["venue"],
        )
        assert list(paper.links) == row["url"].split(" ; ")
        assert paper.category == row["category"]
        assert paper.rl == row["is_rl"]
        assert paper.reward == known(row["reward_type"])
        assert paper.credit == known(row["credit_granularity"])
        assert paper.form == known(row["orchestration_form"])
        assert (paper.scenario, paper.standing, paper.verified) == (
            row["scenario"],
            row["is_core"],
            row["verified"],
        )
        assert paper.version is None or paper.version in row["notes"]


@needs_survey
def test_facts_of_excluded_records() -> None:
    ours = {record.key: record for record in CORPUS.excluded}
    theirs = rows("excluded.csv")
    assert set(ours) == {row["record_id"] for row in theirs}
    for row in theirs:
        record = ours[row["record_id"]]
        assert record.title == row["screening_label"]
        assert (record.source, record.family) == (row["source"], row["query_family"])
        assert (record.identifier, record.link) == (row["identifier"], row["url"])
        assert (record.screened, f"{record.stage}_screen") == (row["date_screened"], row["stage"])


def runs_of_words(text: str, length: int) -> set[tuple[str, ...]]:
    words = re.findall(r"[\w']+", text.lower())
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def sentences(record: Paper | Excluded) -> list[str]:
    if isinstance(record, Excluded):
        return [record.why]
    said = [record.about, record.note, record.unpublished, record.not_written, record.same_mechanism]
    said += [correction.why for correction in record.ours]
    return [text for text in said if text is not None]


@needs_survey
def test_no_sentence_is_the_surveys() -> None:
    theirs = {row["key"]: f"{row['one_liner']} | {row['notes']}" for row in rows("papers.csv")}
    theirs |= {row["record_id"]: row["exclusion_reason"] for row in rows("excluded.csv")}
    for record in (*CORPUS.papers, *CORPUS.excluded):
        for text in sentences(record):
            assert not runs_of_words(text, 5) & runs_of_words(theirs[record.key], 5), record.key


@pytest.mark.parametrize("record", [*CORPUS.all_papers, *CORPUS.excluded], ids=lambda record: record.key)
def test_sentences_are_sentences(record: Paper | Excluded) -> None:
    for text in sentences(record):
        assert text[0].isupper() or text[0].isdigit()
        assert text[-1] in ".?"
        assert text == text.strip()
        assert len(text) <= 260
