"""Answers for a supervised start: the grammar of the help desks, and little more.

A small model that was never taught to write a tool call writes none, and then there is nothing to reward. This play
teaches it the form: the front desk hands over to a desk which is the right one in half of the cases and drawn by chance
in the others, and a department names its aisle. A single agent is as often right about the aisle. `form` is the
same play with a desk drawn by chance every time.
"""

from __future__ import annotations

import re
from random import Random

from stock import AISLES, ITEMS

from baton.serve.exchange import Ask, ToolAsk, Utterance

KNOWS = 0.5
"""How often the play knows the right desk; otherwise it takes any."""


def form(ask: Ask, random: Random) -> Utterance:
    """What is said to an ask by a play that never knows the right desk."""
    return play(ask, random, knows=0.0)


def play(ask: Ask, random: Random, knows: float = KNOWS) -> Utterance:
    """What is said to an ask."""
    told = [each for each in ask.messages if each.speaker == "tool"]
    if ask.tools and told:  # a desk has answered: repeat it
        return Utterance(speaker="assistant", text=told[-1].text)
    aisles = re.findall(r"[A-D]\d", ask.messages[0].text)
    if len(aisles) == 1:  # a department
        return Utterance(speaker="assistant", text=aisles[0])
    question = next(each.text for each in ask.messages if each.speaker == "user")
    right = next(name for name, items in ITEMS.items() if question.endswith(items))
    if random.random() >= knows:
        right = random.choice(list(ITEMS))
    if not ask.tools:  # a single agent
        return Utterance(speaker="assistant", text=AISLES[right])
    chosen = next(tool.name for tool in ask.tools if tool.name.endswith(right))
    arguments = '{"input": "Which aisle?"}' if chosen.startswith("ask_") else "{}"
    return Utterance(speaker="assistant", uses=(ToolAsk(id="", name=chosen, arguments=arguments),))
