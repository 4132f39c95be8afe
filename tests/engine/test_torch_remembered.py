"""What the encoder remembers is what the template says now."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import CHATML, tiny_tokenizer

import baton.engine.template as template_module
from baton.engine.template import Encoder, PlainTemplate
from baton.learn.models.tiny import CHAT_TEMPLATE
from baton.team.protocol import Answer, EngineError, Entry
from baton.trace.records import Ints

END = 257
TEMPLATES = {
    "chatml": CHATML,
    "tiny": CHAT_TEMPLATE,
    "with a default system entry": (
        "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
        "{{ '<|im_start|>system\\nBe good.<|im_end|>\\n' }}{% endif %}"
        "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    ),
    "another form for the last entry": (
        "{% for m in messages %}{% if loop.last %}LAST{% endif %}{{ m.role ~ ':' ~ m.content ~ loop.revindex }}"
        "{% endfor %}{% if add_generation_prompt %}>{% endif %}"
    ),
    "by number of entries": "{{ messages | length }}{% for m in messages %}{{ m.content | trim }}{% endfor %}>",
    "by turns only": (
        "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('by turns') }}{% endif %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}[assistant]"
    ),
    "without earlier answers": "{% for m in messages if m.role != 'assistant' %}{{ m.content }}{% endfor %}>",
    "never": "{{ raise_exception('never') }}",
}

ENTRY = st.builds(
    Entry,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.sampled_from(["", "a", " a ", "<|im_end|>", "baton7answer", "é\n"]),
)
AFTER = st.sampled_from([None, Ints([]), Ints([5]), Ints([5, END]), Ints([6, 256])])
ASKED = st.lists(st.tuples(st.lists(ENTRY, min_size=1, max_size=3), AFTER), min_size=1, max_size=6)


def made(template: str) -> Any:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


def outcome(encoder: Encoder, entries: list[Entry], after: Ints | None) -> list[int] | str:
    answer = None if after is None else Answer(text="?", policy="p", completion_ids=after)
    try:
        return encoder.encode(entries, answer).tolist()
    except EngineError as error:
        return str(error)


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@settings(max_examples=25)
@given(asked=ASKED)
def test_asked_twice_is_as_asked_once(template: str, asked: list[tuple[list[Entry], Ints | None]]) -> None:
    tokenizer = made(template)
    remembers = Encoder(tokenizer, None)
    for entries, after in [*asked, *asked]:
        assert outcome(remembers, entries, after) == outcome(Encoder(tokenizer, None), entries, after)


@pytest.mark.parametrize("template", [t for n, t in TEMPLATES.items() if n not in ("by turns only", "never")])
@given(entries=st.lists(ENTRY.filter(lambda e: "<|" not in e.text), min_size=1, max_size=3))
@settings(max_examples=25)
def test_a_beginning_is_the_chat_template(template: str, entries: list[Entry]) -> None:
    tokenizer = made(template)
    encoder = Encoder(tokenizer, None)
    messages = [{"role": e.speaker, "content": e.text} for e in entries]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    for _ in range(2):
        assert encoder.encode(entries, None).tolist() == tokenizer.encode(text, add_special_tokens=False)


def test_a_template_that_is_put_in_later_is_followed() -> None:
    tokenizer = made(CHATML)
    encoder = Encoder(tokenizer, None)
    before = encoder.encode([Entry("user", "a")], None)
    tokenizer.chat_template = "{{ messages[0].content }}>"
    assert tokenizer.decode(encoder.encode([Entry("user", "a")], None).tolist()) == "a>"
    tokenizer.chat_template = CHATML
    assert encoder.encode([Entry("user", "a")], None) == before


@pytest.mark.parametrize(
    ("template", "length", "renderings"),
    [
        (CHATML, 1, 1),
        (CHATML, 100_000, 3),
        ("{{ strftime_now('%Y') }}{{ messages[0].content }}", 1, 3),
        ("{{ [1, 2] | random }}{{ messages[0].content }}", 1, 3),
    ],
)
def test_what_is_rendered_again(
    template: str, length: int, renderings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries once; very long ones, and templates that ask for the date or for chance, every time."""
    encoder = Encoder(made(template), None)
    count = 0
    plain = Encoder._render

    def counted(self: Encoder, entries: list[Entry]) -> str:
        nonlocal count
        count += 1
        return plain(self, entries)

    monkeypatch.setattr(Encoder, "_render", counted)
    for _ in range(3):
        encoder.encode([Entry("user", "a" * length)], None)
    assert count == renderings


def test_no_more_is_kept_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "_REMEMBERED", 4)
    encoder = Encoder(tiny_tokenizer(chat=False), PlainTemplate())
    for number in range(20):
        encoder.encode([Entry("user", str(number))], None)
    assert encoder._remembered.cache_info().currsize == 4
