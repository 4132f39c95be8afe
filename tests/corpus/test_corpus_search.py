from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from baton.corpus import (
    PAPER_FIELDS,
    VOCABULARIES,
    AdviceAnswers,
    Corpus,
    Excluded,
    Paper,
    advise,
    bibtex,
    check_claims,
    coverage,
    find,
    load,
    select,
    stats,
)
from baton.corpus.advice import ROLES
from baton.credit import ESTIMATORS
from baton.errors import UsageError

CORPUS = load()
OF_BATON = {"spawn", "stop", "message", "flagship"}
"""Recipes that no paper stands behind."""


@pytest.mark.parametrize("record", [*CORPUS.all_papers, *CORPUS.excluded], ids=lambda record: record.key)
def test_every_record_is_found_by_key_title_and_number(record: Paper | Excluded) -> None:
    assert find(CORPUS, record.key) is record
    assert find(CORPUS, record.title.upper()) is record
    if isinstance(record, Paper) and record.arxiv is not None:
        assert find(CORPUS, f"https://arxiv.org/abs/{record.arxiv}v3") is record


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        ("Dr. MAS", "dr-mas"),
        ("drmas", "dr-mas"),
        ("Multi-Agent Collaboration via Evolving", "puppeteer"),
        ("PARL", "kimi-k2-5"),
        ("fold-grpo", "context-folding"),
        ("QMIX", "qmix2018"),
        ("agent q mix", "agent-qmix2026"),
        ("arXiv:2602.08847", "dr-mas"),
        ("MetaGPT", "E007"),
        ("GRPO", "deepseekmath2024"),
        ("Stronger-MAS", "at-grpo"),
    ],
)
def test_a_paper_by_what_it_is_called(asked: str, key: str) -> None:
    assert find(CORPUS, asked).key == key


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("dr-mass", "Did you mean 'dr-mas'"),
        ("wideseek-r2", "Did you mean 'wideseek-r1-2026'"),
        ("Kimi", "is in 2 records: kimi-k2-5, kimi-k2-6"),
        ("1234.56789", "no record has the arXiv number 1234.56789"),
        ("xyzzy", "Type: baton corpus list"),
        ("", "there is no record"),
    ],
)
def test_unknown_and_open_keys_say_what_to_type(asked: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        find(CORPUS, asked)


def test_filters_meet_the_counts() -> None:
    for field in ("reward", "credit", "form", "rl", "category"):
        for word, n in stats(CORPUS).counts[field].items():
            assert len(select(CORPUS.papers, {field: [word]})) == n


def test_filters_on_other_fields() -> None:
    assert len(select(CORPUS.papers, {"year": ["2025-2026"]})) == 59
    assert [p.key for p in select(CORPUS.papers, {"title": ["dr. mas"]})] == ["dr-mas"]
    assert [p.key for p in select(CORPUS.papers, {"also_decides": ["stop"]})] == ["puppeteer"]
    assert len(select(CORPUS.papers, {"thirteen": ["yes"]})) == 13
    assert all(p.affiliation is None for p in select(CORPUS.papers, {"affiliation": ["NA"]}))
    both = select(CORPUS.papers, {"credit": ["message", "turn"], "year": ["2026"]})
    assert {p.key for p in both} == {"c3", "debate-as-reward", "marshal2026"}
    assert [r.key for r in select(CORPUS.excluded, {"stage": ["duplicate"]})] == ["E022"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("reward", "hybird", "Did you mean 'hybrid'"),
        ("form", "hierarchcal", "Did you mean 'hierarchical'"),
        ("year", "recent", "Type: 2026"),
        ("thirteen", "yess", "Did you mean 'yes'"),
        ("rewrad", "hybrid", "Did you mean 'reward'"),
    ],
)
def test_bad_filters_suggest_the_right_one(field: str, value: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        select(CORPUS.papers, {field: [value]})


@given(
    st.dictionaries(st.sampled_from(sorted({*PAPER_FIELDS} & {*VOCABULARIES})), st.integers(0, 9), max_size=3)
)
def test_more_conditions_never_find_more(wanted: dict[str, int]) -> None:
    filters = {
        field: [(*VOCABULARIES[field], "NA")[n % (len(VOCABULARIES[field]) + 1)]]
        for field, n in wanted.items()
    }
    found = select(CORPUS.papers, filters)
    for left_out in filters:
        fewer = {field: words for field, words in filters.items() if field != left_out}
        assert {p.key for p in found} <= {p.key for p in select(CORPUS.papers, fewer)}


def test_claims() -> None:
    found = check_claims(CORPUS)
    assert found["message-credit"].rows == ("c3", "debate-as-reward")
    assert found["message-credit"].found.endswith("counterfactual: c3")
    assert len(found["orchestrator-credit"].rows) == 8
    strict = found["orchestrator-credit"].found.rpartition(": ")[2].split(", ")
    assert sorted(strict) == ["kimi-k2-5", "owl2025", "paramanager", "puppeteer", "wideseek-r1-2026"]
    assert found["stop"].verdict == "does not hold"
    assert found["native-benchmark"].verdict == "holds"
    assert {finding.verdict for finding in found.values()} == {"holds", "does not hold", "not in the data"}


def test_claims_follow_the_records() -> None:
    """A claim is counted, not written down: without Puppeteer nobody trains stopping."""
    papers = tuple(paper for paper in CORPUS.papers if paper.key not in ("puppeteer", "c3"))
    found = check_claims(Corpus(papers=papers, beyond=(), excluded=CORPUS.excluded))
    assert found["stop"].verdict == "holds"
    assert found["message-credit"].found.endswith("counterfactual: none")


def test_coverage_accounts_for_every_method_once() -> None:
    rows = coverage(CORPUS, {"dr-mas"})
    methods = [paper.key for paper in CORPUS.all_papers if paper.rl != "no" and paper.category != "survey"]
    assert [row.key for row in rows] == methods
    assert len([paper for paper in CORPUS.papers if paper.is_method]) == 54
    status = {row.key: row.status for row in rows}
    assert status["dr-mas"] == "recipe"
    assert status["magrpo"] == "recipe not installed"
    assert status["paramanager"] == "no formula published"
    assert status["maddpg2017"] == "no recipe"
    assert all(row.said for row in rows)


def test_bibtex_is_well_formed() -> None:
    text = bibtex(CORPUS.papers)
    assert text.isascii()
    assert text.count("{") == text.count("}")
    entries = text.split("\n\n")
    assert len(entries) == 84
    keys = [entry.partition("{")[2].partition(",")[0] for entry in entries]
    assert keys == [paper.key for paper in CORPUS.papers]
    assert "author = {Mialon, Gr{\\'{e}}goire and others}" in text
    assert "author = {Littman, Michael L.}," in text
    assert "author = {{Kimi Team}}" in text
    assert "Value Function Factorisation" in text


@given(st.text("&%$#_{}éüñA ", max_size=20))
def test_bibtex_escapes_what_tex_would_act_on(title: str) -> None:
    paper = find(CORPUS, "dr-mas")
    assert isinstance(paper, Paper)
    (line,) = [
        line
        for line in bibtex([structs.replace(paper, title=title)]).splitlines()
        if line.startswith("  title")
    ]
    inner = line.removeprefix("  title = {{").removesuffix("}},")
    plain = inner.replace("\\{", "").replace("\\}", "")
    assert plain.count("{") == plain.count("}")
    assert all(inner[i - 1] == "\\" for i, char in enumerate(inner) if char in "&%$#_")


ALL_ANSWERS = [
    AdviceAnswers(dynamic=dynamic, bottleneck=bottleneck, long=long, roles=roles)
    for dynamic, bottleneck, long, roles in itertools.product(
        (False, True), (False, True), (False, True), ROLES
    )
]


@pytest.mark.parametrize("answers", ALL_ANSWERS, ids=str)
def test_every_answer_has_a_recipe_and_an_estimator_that_exist(answers: AdviceAnswers) -> None:
    advice = advise(answers)
    known = {paper.recipe for paper in CORPUS.all_papers} | OF_BATON
    assert {advice.recipe, *advice.instead} <= known
    assert advice.unit in ESTIMATORS[advice.estimator].units
    assert advice.recipe not in advice.instead
    assert 2 <= len(advice.reasons) <= 4
    assert all(reason.endswith(".") and reason[0].isupper() for reason in advice.reasons)


def test_what_the_answers_change() -> None:
    def recipe(**answers: object) -> str:
        usual = {"dynamic": False, "bottleneck": False, "long": False, "roles": "heterogeneous"}
        return advise(AdviceAnswers(**(usual | answers))).recipe  # type: ignore[arg-type]

    assert recipe() == "dr-mas"
    assert recipe(roles="debate") == "c3"
    assert recipe(roles="debate", long=True) == "message"
    assert recipe(bottleneck=True, dynamic=True) == "spawn"
    assert recipe(bottleneck=True) == "puppeteer"
    assert recipe(dynamic=True) == "m-grpo"
