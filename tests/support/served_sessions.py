"""Sessions of made-up programs, as a server would have written them down: exchanges with byte tokens."""

from __future__ import annotations

import json
from typing import Any

from baton.serve.exchange import Ask, Exchange, Reply, ReplyChoice, ToolAsk, ToolOffer, Utterance
from baton.trace.records import Floats, Ints, Sampling

Said = tuple[str, ...]


def user(text: str, **more: Any) -> Utterance:
    return Utterance(speaker="user", text=text, **more)


def system(text: str) -> Utterance:
    return Utterance(speaker="system", text=text)


def assistant(text: str = "", *uses: ToolAsk) -> Utterance:
    return Utterance(speaker="assistant", text=text, uses=uses)


def result(use: ToolAsk, text: str, **more: Any) -> Utterance:
    return Utterance(speaker="tool", text=text, answers=use.id, name=use.name, **more)


class Talk:
    """A conversation that grows."""

    def __init__(
        self, played: Played, *messages: Utterance, tools: tuple[str, ...] = (), **headers: str
    ) -> None:
        self.played = played
        self.messages = list(messages)
        self.tools = tools
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.before: Exchange | None = None

    def hear(self, *messages: Utterance) -> Talk:
        self.messages += messages
        return self

    def say(self, text: str = "", *tools: tuple[str, dict[str, Any]], grown: bool = True) -> list[ToolAsk]:
        """Ask, be answered, and keep the answer; gives the tools that the answer asks for."""
        uses = tuple(self.played.use(name, arguments) for name, arguments in tools)
        self.before = self.played.add(
            self.messages, assistant(text, *uses), self.tools, self.headers, self.before if grown else None
        )
        self.messages.append(assistant(text, *uses))
        return list(uses)


class Played:
    """A session's exchanges, in the order of their asks; times go on by a second a call."""

    def __init__(self, name: str = "made-up") -> None:
        self.name = name
        self.exchanges: list[Exchange] = []
        self.clock = 1000.0
        self._uses = 0

    def talk(self, *messages: Utterance, tools: tuple[str, ...] = (), **headers: str) -> Talk:
        return Talk(self, *messages, tools=tools, **headers)

    def use(self, name: str, arguments: dict[str, Any]) -> ToolAsk:
        self._uses += 1
        return ToolAsk(id=f"call_{self._uses}", name=name, arguments=json.dumps(arguments))

    def add(
        self, messages: list[Utterance], answer: Utterance, tools: tuple[str, ...], headers: dict[str, str],
        before: Exchange | None, *, begun: float | None = None, duration: float = 0.5,
    ) -> Exchange:  # fmt: skip
        number = len(self.exchanges)
        self.clock += 1.0
        said = answer.text + _calls(answer)
        asked = "".join(f"[{m.speaker}]{m.text}{_calls(m)}" for m in messages) + "[assistant]"
        prompt, ids = Ints(list(asked.encode())), Ints(list(said.encode()))
        keep = 0
        if before is not None:
            assert before.reply is not None
            assert before.reply.prompt_ids is not None
            keep = len(before.reply.prompt_ids + (before.reply.choices[0].completion_ids or Ints()))
        made = Exchange(
            session=self.name, id=f"x{number}", number=number, headers=headers,
            ask=Ask(
                dialect="chat", model="m", messages=tuple(messages),
                tools=tuple(ToolOffer(name=name) for name in tools),
                sampling=Sampling(temperature=0.7, key=f"0/{self.name}/x{number}"),
            ),
            reply=Reply(
                choices=(
                    ReplyChoice(
                        message=answer, said=said, completion_ids=ids,
                        logprobs=Floats(-0.01 * (place + 1) for place in range(len(ids))),
                        token_ends=Ints(_ends(said)), finish="tool_calls" if answer.uses else "stop",
                    ),
                ),
                policy="tiny", policy_version="7", prompt_ids=prompt, keep=keep, prompt_tokens=len(prompt),
                completion_tokens=len(ids),
            ),
            grows_from=None if before is None else before.id,
            begun=self.clock if begun is None else begun, duration_s=duration,
        )  # fmt: skip
        self.exchanges.append(made)
        return made


def _calls(message: Utterance) -> str:
    return "".join(
        f'\n<tool_call>\n{{"name": "{use.name}", "arguments": {use.arguments}}}\n</tool_call>'
        for use in message.uses
    )


def _ends(said: str) -> list[int]:
    """A token is a byte: a character of several ends with the last of them."""
    ends: list[int] = []
    for place, character in enumerate(said):
        size = len(character.encode())
        ends += [place] * (size - 1) + [place + 1]
    return ends
