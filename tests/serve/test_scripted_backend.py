"""Answers without a model: functions and rules."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from served_talks import SEARCH, Talk, asked, result, said, system, user

from baton.cli.program_words import named_backend
from baton.errors import UsageError
from baton.serve.backend import Unanswerable
from baton.serve.backends import BACKENDS, make_backend
from baton.serve.backends.scripted import ScriptedBackend
from baton.serve.exchange import Ask, Reply, ReplyChoice, Utterance
from baton.serve.tool_parsers import PARSERS
from baton.trace.records import Sampling


def test_a_text_a_tool_and_both() -> None:
    answers: dict[str, Any] = {
        "text": "hello",
        "tool": ("search", {"q": "é"}),
        "both": ["One moment.", ("search", {"q": "x"}), ("search", {"q": "x"})],
        "utterance": said("as it is", thinking="hm"),
        "choice": ReplyChoice(message=said("cut"), finish="length"),
        "reply": Reply(choices=(ReplyChoice(message=said("whole")),), policy="other", prompt_tokens=3),
    }
    talk = Talk(ScriptedBackend(lambda ask: answers[ask.messages[-1].text], name="mine"))
    reply = talk.ask(asked(user("text")))
    assert (reply.choices[0].message, reply.policy, reply.estimated) == (said("hello"), "mine", True)
    tool = talk.ask(asked(user("tool"), tools=(SEARCH,))).choices[0]
    assert (tool.finish, tool.message.uses[0].name) == ("tool_calls", "search")
    assert tool.message.uses[0].arguments == '{"q": "é"}'
    both = talk.ask(asked(user("both"))).choices[0].message
    assert both.text == "One moment."
    assert len({use.id for use in (*both.uses, *tool.message.uses)}) == 3
    assert talk.ask(asked(user("utterance"))).choices[0].message.thinking == "hm"
    assert talk.ask(asked(user("choice"))).choices[0].finish == "length"
    assert talk.ask(asked(user("reply"))).policy == "other"


def test_async_keys_n_and_stop() -> None:
    async def keyed(ask: Ask, key: str) -> str:
        return f"{key}: a STOP b END"

    talk = Talk(ScriptedBackend(keyed))
    reply = talk.ask(asked(user("q"), n=3, sampling=Sampling(stop=("END", "STOP"))))
    assert [each.message.text for each in reply.choices] == [
        "0/talk/0: a ",
        "0/talk/0/1: a ",
        "0/talk/0/2: a ",
    ]
    assert {each.stop for each in reply.choices} == {"STOP"}


def test_faults_are_sentences() -> None:
    def broken(ask: Ask) -> str:
        raise KeyError("gone")

    for function, why in (
        (broken, "KeyError"),
        (lambda ask: 7, "returned 7"),
        (lambda ask: [1], "Return a text"),
    ):
        with pytest.raises(Unanswerable, match=why) as caught:
            Talk(ScriptedBackend(function)).ask(asked(user("q")))
        assert caught.value.status == 500
    with pytest.raises(Unanswerable, match="alternatives"):
        Talk(make_backend("scripted:echo")).ask(asked(user("q"), logprobs=2))


RULES = """
# who asks, and what comes back
{"system": "researcher", "match": "(?P<city>Paris|Rome)[^0-9]*([0-9]+)", "say": "{city} has {2}; {unknown} {last}"}
{"when": ["capital", "france"], "turn": 0, "use": ["search", {"q": "{last}", "deep": {"n": ["{turn}", 7]}}]}
{"speaker": "tool", "use": [["search", {"q": "a"}], ["search", {"q": "b"}]], "think": "more", "turn": 1}
{"speaker": "tool", "say": "So {last}."}
{"tool": "search", "model": "m", "say": "with a tool"}
"""


def test_what_a_harness_adds_in_the_systems_name_is_not_the_last_message(tmp_path: Path) -> None:
    """Claude Code 2.1.325 puts its environment after the person's words."""
    path = tmp_path / "rules.jsonl"
    path.write_text(
        '{"speaker": "system", "when": "secret", "say": "hush"}\n{"when": "capitals", "say": "{last}!"}\n{"say": "?"}\n'
    )
    talk = Talk(make_backend(f"scripted:{path}"))
    said = [
        talk.ask(asked(*messages)).choices[0].message.text
        for messages in (
            (system("s"), user("Capitals?"), system("# Environment")),
            (user("Capitals?"), system("a secret")),
            (system("of capitals"),),
        )
    ]
    assert said == ["Capitals?!", "hush", "of capitals!"]


def test_rules(tmp_path: Path) -> None:
    path = tmp_path / "story.jsonl"
    path.write_text(RULES)
    backend = make_backend(f"scripted:{path}")
    assert backend.name == "story"
    talk = Talk(backend)
    reply = talk.ask(asked(system("You are the Researcher."), user("Rome, 3 M?")))
    assert reply.choices[0].message.text == "Rome has 3; {unknown} Rome, 3 M?"
    question = user("The CAPITAL of France?")
    first = talk.ask(asked(question, tools=(SEARCH,))).choices[0].message
    assert first.uses[0].arguments == '{"q": "The CAPITAL of France?", "deep": {"n": ["0", 7]}}'
    history = [question, first, result(first.uses[0].id, "Paris")]
    second = talk.ask(asked(*history, tools=(SEARCH,))).choices[0].message
    assert (len(second.uses), second.thinking) == (2, "more")
    forbidden = Talk(backend).ask(asked(*history, tools=(SEARCH,), tool_choice="none")).choices[0].message
    assert (forbidden.uses, forbidden.text) == ((), "So Paris."), "the next rule that asks for none answers"
    history += [second, result(second.uses[0].id, "A"), result(second.uses[1].id, "B")]
    assert talk.ask(asked(*history, tools=(SEARCH,))).choices[0].message.text == "So B."
    assert [each.grows_from for each in talk.exchanges] == [None, None, "1", "2"]
    assert talk.ask(asked(user("else"), tools=(SEARCH,))).choices[0].message.text == "with a tool"
    with pytest.raises(Unanswerable, match=r'no rule .* fits.*"when": "what now then my"'):
        talk.ask(asked(user("what now, then, my friend?")))


def test_the_same_ask_has_the_same_answer(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"use": ["search", {"q": "x"}], "say": "t", "think": "h"}')
    backend = make_backend(f"scripted:{path}")
    ask = asked(user("q"), tools=(SEARCH,))
    one, two, other = (asyncio.run(backend.reply(ask, key=key, growth=None)) for key in ("k", "k", "l"))
    assert one == two
    assert one.choices[0].message.uses[0].id != other.choices[0].message.uses[0].id


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"sy": "x"}', "Did you mean 'say'"),
        ('{"say": 3}', "Expected `str`"),
        ("{", "story.jsonl:2"),
        ('{"use": ["search"]}', r"expected \[name, arguments\]"),
        ('{"match": "("}', "no regular expression"),
    ],
)
def test_rules_that_are_none(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "story.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(UsageError, match=why):
        make_backend(f"scripted:{path}")


def test_specifications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_script_here.py").write_text(
        "def answer(ask):\n    return 'mine'\nnumber = 3\n"
        "class Own:\n    name = 'own'\n    def __init__(self, rest): self.rest = rest\n"
        "    async def reply(self, ask, *, key, growth): ...\n    async def close(self): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert Talk(make_backend("scripted:my_script_here:answer")).ask(asked(user("q"))).choices[
        0
    ].message == said("mine")
    assert make_backend("my_script_here:Own:abc").rest == "abc"  # type: ignore[attr-defined]
    for spec, why in (
        ("scripted:eco", "Did you mean 'echo'"),
        ("scripted:my_script_here:number", "expected a function"),
        ("scripted:nothing.jsonl", "cannot be read"),
        ("scriptd:echo", "Did you mean 'scripted'"),
        ("torch:", "torch needs the folder"),
        ("torch:/nowhere", "there is no folder"),
        ("engine:", "engine needs"),
        ("my_script_here:answer:x", "gives no backend"),
    ):
        with pytest.raises(UsageError, match=why):
            make_backend(spec)
    assert make_backend("table").name == "table"


def test_what_the_page_shows(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/serve/engines.md").read_text()
    (tmp_path / "page.jsonl").write_text(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])
    talk = Talk(make_backend(f"scripted:{tmp_path / 'page.jsonl'}"))
    told = {"capital of France?": "search", "hm": "I do not know."}
    for question, answer in told.items():
        said_ = talk.ask(asked(user(question))).choices[0].message
        assert answer in (said_.text, *(use.name for use in said_.uses))
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], names)
    choice = Talk(ScriptedBackend(names["answer"])).ask(asked(user("q"))).choices[0]
    assert (choice.message.text, choice.message.uses[0].name) == ("One moment.", "search")
    for name in (*BACKENDS, *PARSERS):
        assert f"`{name}" in page or f"`{name}:" in page


def test_models_by_name() -> None:
    backend = named_backend("tiny")
    assert backend.name == "tiny"
    assert Talk(backend).ask(asked(user("q"), sampling=Sampling(max_tokens=2))).completion_tokens == 2
    with pytest.raises(UsageError, match="Did you mean 'smollm2'"):
        named_backend("smollm")
    with pytest.raises(UsageError, match="there is no backend 'nobody'"):
        named_backend("nobody")


def test_any_engine_answers() -> None:
    """Baton's own engines, with ids of bytes, kept from turn to turn."""
    talk = Talk(make_backend("engine:scripted:echo"))
    first = talk.ask(asked(system("s"), user("call search x"), tools=(SEARCH,)))
    choice = first.choices[0]
    assert choice.message.uses[0].arguments == '{"q": "x"}'
    assert first.prompt_ids is not None
    assert choice.completion_ids is not None
    history = (system("s"), user("call search x"), choice.message, result(choice.message.uses[0].id, "found"))
    second = talk.ask(asked(*history, tools=(SEARCH,)))
    assert second.prompt_ids is not None
    assert second.keep == len(first.prompt_ids) + len(choice.completion_ids)
    assert second.prompt_ids[: second.keep] == first.prompt_ids + choice.completion_ids
    assert second.choices[0].message == said("found")
    assert isinstance(second.choices[0].message, Utterance)
