"""A record that is wrong is named: file, number, key, and what to write instead."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.corpus import VOCABULARIES, parse
from baton.corpus.records_read import texts
from baton.errors import FormatError

TEXTS = texts()
GOOD = """
[[paper]]
key = "new-one"
category = "rl_method"
title = "A new method"
first_author = "Doe, Jane"
year = 2026
arxiv = "2607.01234"
venue = "arXiv"
links = ["https://arxiv.org/abs/2607.01234"]
rl = "yes"
reward = "shared"
credit = "agent"
scenario = "general"
standing = "supporting"
verified = "yes"
about = "It does something."
unpublished = "Nothing is known of its update."
"""
WHERE = "beyond.toml, record 6 (new-one): "


def refused(record: str, file: str = "beyond.toml") -> str:
    with pytest.raises(FormatError) as error:
        parse(TEXTS | {file: TEXTS[file] + record})
    return str(error.value)


def test_adding_a_record_is_one_edit() -> None:
    corpus = parse(TEXTS | {"beyond.toml": TEXTS["beyond.toml"] + GOOD})
    assert corpus.beyond[-1].key == "new-one"
    assert len(corpus.papers) == 84


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('reward = "shared"', 'reward = "hybird"', "'hybird' is not in the vocabulary. Did you mean 'hybrid'?"),
        ('reward = "shared"', 'reward = "NA"', "Leave the field out for NA."),
        ('credit = "agent"', 'credti = "agent"', "there is no field 'credti'. Did you mean 'credit'?"),
        ('year = 2026\n', "", "'year' is missing."),
        ("year = 2026", "year = 26", "year = 26; expected four digits."),
        ("year = 2026", 'year = "2026"', "Expected `int`, got `str`"),
        ('arxiv = "2607.01234"', 'arxiv = "arXiv:2607.01234"', "arxiv = 'arXiv:2607.01234'; expected the form"),
        ('arxiv = "2607.01234"', 'arxiv = "2607.99999"', "links to arXiv 2607.01234 while arxiv is '2607.99999'"),
        ("https://arxiv", "ftp://arxiv", "expected an address that starts with https://"),
        ('links = ["https://arxiv.org/abs/2607.01234"]', "links = []", "links is empty"),
        ('unpublished = "Nothing is known of its update."', "", "exactly one of recipe, unpublished, not_written"),
        ('rl = "yes"', 'rl = "no"', "unpublished is for entries with an RL method"),
        ("unpublished =", "recipe = 'grop'\nunpublished =", "it has recipe, unpublished"),
        ("unpublished =", 'same_mechanism = "It is alike."\nunpublished =', "same_mechanism needs a recipe"),
        ('unpublished = "Nothing is known of its update."', 'recipe = "mine"', "needs a table [paper.card]"),
        ("unpublished =", 'version = "v1"\nunpublished =', "version = 'v1'; expected the form"),
        ("unpublished =", 'decisions = ["spwan"]\nunpublished =', "Did you mean 'spawn'?"),
        ("A new method", "malt: improving Reasoning with multi-agent LLM Training", "same title as rl_method.toml"),
    ],
)  # fmt: skip
def test_a_wrong_record_is_named(old: str, new: str, said: str) -> None:
    assert old in GOOD
    message = refused(GOOD.replace(old, new))
    assert message.startswith(WHERE)
    assert said in message


def test_a_key_that_is_taken() -> None:
    message = refused(GOOD.replace('"new-one"', '"dr-mas"'))
    assert message == (
        "beyond.toml, record 6 (dr-mas): the same key as rl_method.toml, record 4 (dr-mas): 'dr-mas'."
    )


def test_an_identifier_that_was_screened_before() -> None:
    message = refused(GOOD.replace("2607.01234", "2308.08155"))
    assert "the same identifier" in message
    assert "E003" in message


def test_a_recipe_that_another_paper_has() -> None:
    taken = GOOD.replace('unpublished = "Nothing is known of its update."', 'recipe = "dr-mas"')
    assert "the same recipe as rl_method.toml, record 4 (dr-mas)" in refused(
        taken + '[paper.card]\nevidence = "[C]"\n'
    )


def test_a_category_in_the_wrong_file() -> None:
    assert "category = 'rl_method' belongs in rl_method.toml" in refused(GOOD, "survey.toml")


def test_corrections_are_checked_too() -> None:
    wrong = GOOD + '[[paper.ours]]\nfield = "{}"\nsurvey = "{}"\nours = "{}"\nwhy = "Read again."\n'
    assert "ours: survey = 'no' while the record's rl is 'yes'" in refused(
        wrong.format("rl", "no", "partial")
    )
    assert "Did you mean 'partial'?" in refused(wrong.format("rl", "yes", "partail"))
    assert "Did you mean 'mechanism'?" in refused(wrong.format("mecanism", "a", "b"))
    assert "there is no field ours.'whi'" in refused(wrong.format("rl", "yes", "no") + 'whi = "x"\n')


def test_every_problem_is_told_at_once() -> None:
    two = GOOD.replace('"agent"', '"agnet"') + GOOD.replace("new-one", "New One")
    lines = refused(two).splitlines()
    assert any(line.startswith(WHERE) for line in lines)
    assert any(
        line.startswith("beyond.toml, record 7 (New One): key = 'New One'; expected") for line in lines
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("beyond.toml", "[[paper]\n", "beyond.toml: not valid TOML"),
        ("beyond.toml", "[paper]\nkey = 'x'\n", "with two brackets"),
        ("beyond.toml", "[[papers]]\nkey = 'x'\n", "there is no table 'papers' here"),
        (
            "benchmarks.toml",
            "",
            "there is no file of records 'benchmarks.toml'. Did you mean 'benchmark.toml'?",
        ),
    ],
)
def test_files_that_are_none(name: str, text: str, said: str) -> None:
    with pytest.raises(FormatError, match=re.escape(said)):
        parse(TEXTS | {name: text})


@given(
    field=st.sampled_from(sorted({"reward", "credit", "form"})),
    word=st.text("abcdefghij_", min_size=1, max_size=12),
)
def test_no_word_outside_a_vocabulary_gets_in(field: str, word: str) -> None:
    plain = "\n".join(line for line in GOOD.splitlines() if not line.startswith(f"{field} ="))
    record = plain.replace("scenario", f'{field} = "{word}"\nscenario')
    if word in VOCABULARIES[field]:
        return
    with pytest.raises(FormatError) as error:
        parse({"beyond.toml": record})
    assert f"record 1 (new-one): {field} = {word!r} is not in the vocabulary." in str(error.value)


def test_the_check_runs_by_itself() -> None:
    done = subprocess.run([sys.executable, "-m", "baton.corpus"], capture_output=True, text=True, check=True)
    assert done.stdout == "84 retained, 32 excluded and 5 further records are in order.\n"
