"""Which recorded answer a question gets: never another's, whatever clocks, random numbers and threads do."""

from __future__ import annotations

import random
import string
import time
import uuid
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import UsageError
from baton.serve.exchange import Ask, Exchange, Posted, Reply, ReplyChoice, ToolAsk, Utterance
from baton.serve.program_run import ProgramRun
from baton.serve.replay.difference import inline, miss_said
from baton.serve.replay.masks import Mask, Masks, MaskSettings, read_masks
from baton.serve.replay.match import Match, Matcher, Miss
from baton.serve.replay.output import compare_output
from baton.serve.replay.recorded import renamed_reply

DAY = 86_400.0
THEN = 1_790_000_000.0  # 2026-09-21
NOW = THEN + 40 * DAY


def utter(speaker: str, text: str = "", **more: Any) -> Utterance:
    return Utterance(speaker=speaker, text=text, **more)  # type: ignore[arg-type]


def ask(*messages: Utterance | str, **more: Any) -> Ask:
    said = tuple(utter("user", one) if isinstance(one, str) else one for one in messages)
    return Ask(dialect="chat", model="m", messages=said, **more)


def reply(text: str, *uses: ToolAsk) -> Reply:
    return Reply(choices=(ReplyChoice(message=utter("assistant", text, uses=uses)),), policy="p")


def recorded(*pairs: tuple[Ask, str | Reply]) -> list[Exchange]:
    return [
        Exchange(
            session="s",
            id=f"x{place}",
            number=place,
            ask=question,
            reply=reply(answer) if isinstance(answer, str) else answer,
            begun=THEN + place,
        )
        for place, (question, answer) in enumerate(pairs)
    ]


def matcher(*pairs: tuple[Ask, str | Reply], masks: Masks | None = None) -> Matcher:
    return Matcher(recorded(*pairs), masks or Masks(), now=NOW)


def text_of(found: Match | Miss) -> str:
    assert isinstance(found, Match), found
    assert found.exchange.reply is not None
    return found.exchange.reply.choices[0].message.text


# -- random sessions ------------------------------------------------------------------------------

SOME = ("pear", "Kiwi", "17", "3.5", "-2", "sum", "of", "the,", "list!", "naïve", "東京", "a/b", "x=1", "v2")
WORDS = st.lists(st.sampled_from(SOME), min_size=1, max_size=8)
SLOTS = ("uuid", "stamp", "hex", "port", "took")
SHAPES = st.lists(
    st.tuples(WORDS, st.lists(st.sampled_from(SLOTS), max_size=3), WORDS), min_size=1, max_size=6
)


def filled(slot: str, draw: random.Random) -> str:
    if slot == "uuid":
        return str(uuid.UUID(int=draw.getrandbits(128), version=4))
    if slot == "hex":
        return "a1" + "".join(draw.choices("0123456789abcdef", k=14))
    return (
        f"localhost:{draw.randrange(1024, 65535)}" if slot == "port" else f"took {draw.randrange(1, 9999)} ms"
    )


def played(shapes: list[Any], seed: int, at: float) -> list[Ask]:
    """The same session with the clock and the random numbers of one run. Equal forms of time in both runs."""
    draw, forms = random.Random(seed), random.Random(0)
    asks = []
    for place, (before, slots, after) in enumerate(shapes):
        values = []
        for slot in slots:
            if slot == "stamp":
                form = forms.choice(
                    ["%Y-%m-%dT%H:%M:%SZ", "%a %b %d %H:%M:%S UTC %Y", "%B %d, %Y at %H:%M:%S"]
                )
                values.append(time.strftime(form, time.gmtime(at + draw.randrange(3600))))
            else:
                values.append(filled(slot, draw))
        said = f"question {place}: {' '.join(before)} | {' | '.join(values)} | {' '.join(after)}"
        asks.append(ask(utter("system", "be brief"), said))
    return asks


@settings(max_examples=25, deadline=None)
@given(SHAPES, st.integers(0, 2**32), st.integers(0, 2**32))
def test_another_clock_other_random_numbers_and_another_order_change_nothing(
    shapes: list[Any], one: int, other: int
) -> None:
    before, after = played(shapes, one, THEN), played(shapes, other + 2**33, NOW)
    found = matcher(*((question, f"answer {place}") for place, question in enumerate(before)))
    places = list(range(len(after)))
    random.Random(one).shuffle(places)
    for place in places:
        assert text_of(found.find(after[place])) == f"answer {place}"
    assert found.left == []


@settings(max_examples=25, deadline=None)
@given(SHAPES, st.integers(0, 2**32), st.data())
def test_a_word_that_differs_is_a_miss_and_the_first_one_is_named(
    shapes: list[Any], seed: int, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(shapes) - 1))
    word = data.draw(
        st.text(string.ascii_letters + string.digits, min_size=1, max_size=6).map(lambda w: f"zz{w}")
    )
    pairs = [(question, "an answer") for question in played(shapes, seed, THEN)]
    before, slots, after = shapes[place]
    changed = [*shapes]
    changed[place] = ([*before, word], slots, [*after, "another", "difference"])
    found = matcher(*pairs)
    miss = found.find(played(changed, seed + 1, NOW)[place])
    assert isinstance(miss, Miss)
    assert miss.nearest is not None
    said = miss_said(miss, place + 1, Masks())
    assert f"call {place + 1} is in no recording" in said
    assert "message 2, the user's" in said
    assert word in said
    assert said.index(word) < said.index("another")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_equal_questions_are_interchangeable_and_no_answer_is_given_twice(
    kinds: list[int], draw: random.Random
) -> None:
    pairs = [(ask(f"question {kind}"), f"{kind}/{place}") for place, kind in enumerate(kinds)]
    found = matcher(*pairs)
    draw.shuffle(kinds)
    answers = [text_of(found.find(ask(f"question {kind}"))) for kind in kinds]
    assert Counter(answers) == Counter(answer for _, answer in pairs)
    assert [answer.split("/")[0] for answer in answers] == [str(kind) for kind in kinds]
    assert isinstance(found.find(ask(f"question {kinds[0]}")), Miss)


# -- what is no liberty ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("days from 2020-01-01 to 2020-02-03", "days from 2020-01-01 to 2020-02-04"),
        ("the sum of 17 and 4", "the sum of 18 and 4"),
        ("John 3:16", "John 3:17"),
        ("wait 5 seconds", "wait 6 seconds"),
        ("wait 3.5 seconds", "wait 4.5 seconds"),
        ("read /tmp/one/a.py", "read /tmp/one/b.py"),
        ("port 8000 of db.example.org:5432", "port 8000 of db.example.org:5433"),
        ("version 1.2.3", "version 1.2.4"),
        ("the id is seven", "the id is eight"),
        ("order_id: A-17-x", "order_id: A-18-x"),
        ("pick feedbac", "pick acedfab"),
        ("", " "),
        ("2026-09-21 in words", "2026-10-31"),
    ],
)
def test_what_only_looks_like_a_clock_or_an_id_has_to_be_equal(before: str, after: str) -> None:
    assert isinstance(matcher((ask(f"q: {before}"), "a")).find(ask(f"q: {after}")), Miss)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("2026-09-21", "2026-10-31"),
        ("now 1790000123.25", "now 1793456123.5"),
        ("now 1790000123000 ms", "now 1793456123999 ms"),
        ("Wall time: 0.0521 seconds", "Wall time: 1.2000 seconds"),
        ('{"duration_ms": 12}', '{"duration_ms": 3456}'),
        ("<duration_ms>1</duration_ms>", "<duration_ms>1176</duration_ms>"),
        ("http://127.0.0.1:4444/x", "http://127.0.0.1:35121/x"),
        ("in /tmp/tmpab3d_x9z/work", "in /tmp/tmp0k3yyx8a/work"),
        ("pid 812", "pid 90211"),
        ("call_8fJ2kLmQ91", "call_0aZZkL2m77"),
    ],
)
def test_what_a_clock_or_an_allocator_made_may_differ(before: str, after: str) -> None:
    found = matcher((ask(f"q: {before} end"), "a")).find(ask(f"q: {after} end"))
    assert isinstance(found, Match)
    assert found.liberty == "under masks"
    exact = matcher((ask(f"q: {before} end"), "a"), masks=Masks(exact=True))
    assert isinstance(exact.find(ask(f"q: {after} end")), Miss)


def test_the_same_id_is_the_same_id_throughout() -> None:
    one, other, third = (str(uuid.uuid4()) for _ in range(3))
    found = matcher((ask(f"{one} is not {other}"), "a"), (ask(f"again {one}"), "b"))
    assert text_of(found.find(ask(f"{third} is not {one}"))) == "a"
    assert isinstance(found.find(ask(f"again {other}")), Miss)
    assert text_of(found.find(ask(f"again {third}"))) == "b"
    assert isinstance(matcher((ask(f"{one} {other}"), "a")).find(ask(f"{third} {third}")), Miss)


# -- names that tools make ------------------------------------------------------------------------


def spawned(nickname: str, thread: str) -> tuple[Utterance, ...]:
    use = ToolAsk(id="call_1", name="spawn", arguments='{"task": "dig"}')
    told = f'{{"agent_id":"{thread}","nickname":"{nickname}"}}'
    return utter("user", "go"), utter("assistant", "", uses=(use,)), utter("tool", told, answers="call_1")


def test_names_come_from_tools_and_answers_are_given_with_them() -> None:
    old, new = str(uuid.uuid4()), str(uuid.uuid4())
    found = matcher(
        (
            ask(*spawned("Galileo", old)),
            reply("", ToolAsk(id="c2", name="wait", arguments=f'{{"id": "{old}"}}')),
        ),
        (ask("You are Galileo."), "I am Galileo, not Galileos"),
    )
    first = found.find(ask(*spawned("Maxwell", new)))
    assert isinstance(first, Match)
    assert first.liberty == "renamed"
    assert first.exchange.reply is not None
    now = renamed_reply(first.exchange.reply, found.names.changed)
    assert now.choices[0].message.uses[0].arguments == f'{{"id": "{new}"}}'
    second = found.find(ask("You are Maxwell."))
    assert isinstance(second, Match)
    assert second.exchange.reply is not None
    assert renamed_reply(second.exchange.reply, found.names.changed).choices[0].message.text == (
        "I am Maxwell, not Galileos"
    )


def test_a_name_in_a_prompt_is_a_word_until_a_tool_told_it() -> None:
    found = matcher((ask(*spawned("Galileo", "th-1x2y3z")), "a"), (ask("You are Galileo."), "b"))
    assert isinstance(found.find(ask("You are Maxwell.")), Miss)
    assert isinstance(found.find(ask(*spawned("Maxwell", "th-9x9y9z"))), Match)
    assert isinstance(found.find(ask("You are Maxwell.")), Match)


def test_two_names_do_not_become_one() -> None:
    def team(*names: str) -> Ask:
        return ask(
            "go", *(utter("tool", f"nickname: {name}", answers=f"call_{n}") for n, name in enumerate(names))
        )

    assert isinstance(matcher((team("Ada", "Bob"), "a")).find(team("Cyd", "Cyd")), Miss)
    assert isinstance(matcher((team("Ada", "Ada"), "a")).find(team("Cyd", "Dan")), Miss)
    assert isinstance(matcher((team("Ada", "Bob"), "a")).find(team("Bob", "Ada")), Match)


def test_what_was_asked_for_by_id_is_not_a_name_that_the_tool_made() -> None:
    def bought(id: str) -> Ask:
        use = ToolAsk(id="call_1", name="find", arguments=f'{{"q": "{id}"}}')
        told = utter("tool", f"order_id: {id}, paid", answers="call_1")
        return ask("who?", utter("assistant", "", uses=(use,)), told)

    assert isinstance(matcher((bought("ACME-77-b"), "a")).find(bought("ACME-78-b")), Miss)


@pytest.mark.parametrize(
    ("before", "after"), [("it works", "it fails"), ("total: 5", "total: 6"), ("id: 5", "id: 6")]
)
def test_a_tool_that_says_something_else_is_a_difference(before: str, after: str) -> None:
    one, other = (ask("go", utter("tool", text, answers="call_1")) for text in (before, after))
    miss = matcher((one, "a")).find(other)
    assert isinstance(miss, Miss)
    said = miss_said(miss, 1, Masks())
    assert "message 2, a tool's result" in said
    assert f"[-{before.split()[-1]}-]{{+{after.split()[-1]}+}}" in said


# -- notes ----------------------------------------------------------------------------------------


def note(who: str, took: int = 5) -> Utterance:
    return utter("system", f"<task-notification>{who} is done, duration_ms: {took}</task-notification>")


def turn(text: str) -> Utterance:
    return utter("assistant", text)


LAUNCHED = (
    utter("user", "go"),
    utter("assistant", "", uses=(ToolAsk(id="call_1", name="Agent", arguments="{}"),)),
)
RESULT = utter("tool", "launched", answers="call_1")


def test_a_note_that_comes_before_an_answer_that_only_waited_for_it() -> None:
    found = matcher(
        (ask(*LAUNCHED, RESULT), "waiting"),
        (ask(*LAUNCHED, RESULT, turn("waiting"), note("Ann")), "all done"),
    )
    early = found.find(ask(*LAUNCHED, RESULT, note("Ann", 77)))
    assert isinstance(early, Match)
    assert text_of(early) == "all done"
    assert (early.note, early.skipped) == ("skipped", ("x0",))
    assert found.left == []


def test_a_note_that_comes_after_the_last_answer() -> None:
    found = matcher((ask(*LAUNCHED, RESULT, note("Ann")), "all done"))
    late = found.find(ask(*LAUNCHED, RESULT))
    assert isinstance(late, Match)
    assert (text_of(late), late.note) == ("all done", "late")
    after = ask(*LAUNCHED, RESULT, turn("all done"), note("Ann", 9))
    again = found.find(after)
    assert isinstance(again, Match)
    assert (text_of(again), again.note) == ("all done", "again")
    assert isinstance(found.find(after), Miss)
    # The program prints each answer that it is given.
    for printed, same in (
        ("all done\n", "identical"),
        ("all done\nall done\n", "but for notes"),
        ("all done all done all done\n", "different"),
        ("all gone\n", "different"),
    ):
        run = ProgramRun(command=(), exit_code=0, stdout=printed.encode(), stderr_tail=b"", seconds=1.0)
        end = Posted(session="s", ended=True, exit_code=0, answer="all done\n")
        assert compare_output(run, end, found).how == same, printed


def test_an_output_of_which_no_more_is_kept_is_not_called_identical() -> None:
    run = ProgramRun(
        command=(), exit_code=0, stdout=b"all done", stderr_tail=b"", seconds=1.0, stdout_cut=True
    )
    end = Posted(session="s", ended=True, exit_code=0, answer="all done")
    told = compare_output(run, end, matcher())
    assert (told.how, told.same) == ("as far as kept", True)
    assert "first 8 bytes" in told.said


def test_notes_in_another_order() -> None:
    found = matcher(
        (ask(*LAUNCHED, RESULT), "waiting"),
        (ask(*LAUNCHED, RESULT, turn("waiting"), note("Ann")), "still waiting"),
        (
            ask(*LAUNCHED, RESULT, turn("waiting"), note("Ann"), turn("still waiting"), note("Bob")),
            "all done",
        ),
    )
    base = (*LAUNCHED, RESULT)
    assert text_of(found.find(ask(*base))) == "waiting"
    assert text_of(found.find(ask(*base, turn("waiting"), note("Bob")))) == "still waiting"
    last = ask(*base, turn("waiting"), note("Bob"), turn("still waiting"), note("Ann"))
    assert text_of(found.find(last)) == "all done"


def test_a_note_that_says_something_else_is_a_difference() -> None:
    found = matcher(
        (ask(*LAUNCHED, RESULT), "waiting"), (ask(*LAUNCHED, RESULT, turn("waiting"), note("Ann")), "done")
    )
    assert isinstance(found.find(ask(*LAUNCHED, RESULT, note("Eve"))), Miss)
    plain = matcher((ask("go"), "a"))
    assert isinstance(plain.find(ask("go", note("Ann"))), Miss)


# -- masks of a person's own ----------------------------------------------------------------------


def test_a_mask_of_ones_own() -> None:
    own = Masks(
        MaskSettings(
            mask=(Mask(name="build", pattern=r"build \d+"), Mask(name="ticket", pattern=r"T\d+", ids=True))
        )
    )
    found = matcher((ask("build 7 of T1"), "T1 it is"), masks=own).find(ask("build 812 of T99"))
    assert isinstance(found, Match)
    assert found.masked == ("build", "ticket")
    assert isinstance(matcher((ask("T1 T1"), "x"), masks=own).find(ask("T1 T2")), Miss)


@pytest.mark.parametrize("pattern", ["(", "a*", r"(a)\1"])
def test_a_mask_that_cannot_be_one_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="mask"):
        read_masks(None, [pattern])


def test_masks_from_a_file(tmp_path: Any) -> None:
    path = tmp_path / "masks.toml"
    path.write_text('name_fields = ["handle"]\n[[mask]]\nname = "dice"\npattern = "d\\\\d+"\n')
    found = read_masks(path)
    assert isinstance(matcher((ask("d6"), "a"), masks=found).find(ask("d20")), Match)
    path.write_text('[[mask]]\nname = "dice"\npatern = "x"\n')
    with pytest.raises(UsageError, match="patern"):
        read_masks(path)


def test_an_inline_difference_is_short_and_in_words() -> None:
    before = "word " * 500 + "the cat sat on the mat " + "word " * 500
    said = inline(before, before.replace("cat", "dog"))
    assert "the [-cat-]{+dog+} sat" in said
    assert len(said) < 300
