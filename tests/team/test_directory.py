"""Looking agents up by description: order of words, ties, nobody, and the same answer however many others there are."""

from __future__ import annotations

import random

import pytest

from baton.errors import UsageError
from baton.team.directory import Directory, words_of

CARDS = {
    "anna": "tailor expert",
    "ben": "Plumber, novice",
    "cleo": "plumber expert",
    "dora": "plumber expert",
}


def test_words_count_in_the_order_in_which_they_are_said() -> None:
    directory = Directory(CARDS)
    assert directory.find("plumber-expert") == ("cleo",)
    assert directory.find("expert plumber", most=4) == ("cleo", "dora", "anna", "ben")
    assert directory.find("tailor novice", most=9) == ("anna", "ben")
    assert directory.find("a PLUMBER, able", most=2) == ("ben", "cleo")


def test_nobody_fits_what_no_card_says() -> None:
    assert Directory(CARDS).find("welder") == ()
    assert Directory(CARDS).find("") == ()
    assert Directory({}).find("welder") == ()
    with pytest.raises(UsageError, match="at least 1"):
        Directory(CARDS).find("welder", most=0)


def test_a_look_up_is_the_order_of_all_cards_by_what_they_have() -> None:
    toss = random.Random(0)
    words = [f"w{k}" for k in range(6)]
    for _ in range(200):
        cards = {
            f"n{k}": " ".join(toss.sample(words, toss.randint(1, 4))) for k in range(toss.randint(1, 12))
        }
        wanted = toss.sample(words, 3)
        fits = {who: [word not in words_of(card) for word in wanted] for who, card in cards.items()}
        order = sorted((who for who in cards if not all(fits[who])), key=fits.__getitem__)
        for most in (1, 2, 20):
            assert Directory(cards).find("-".join(wanted), most) == tuple(order[:most])


def test_who_else_there_is_does_not_change_who_is_found() -> None:
    more = {f"other{k}": "tailor novice" for k in range(500)}
    assert Directory(CARDS | more).find("plumber-expert") == Directory(CARDS).find("plumber-expert")


def test_it_is_a_tool_for_teams_that_have_no_program() -> None:
    who = Directory(CARDS).tool("who", most=2)
    assert who.name == "who"
    assert who("plumber-novice") == "ben: Plumber, novice\ncleo: plumber expert"
    assert who("welder") == "nobody"
