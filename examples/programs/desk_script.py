"""Answers for a supervised start: the grammar of the help desks, without knowing which desk has what.

A small model that was never taught to write a tool call writes none, and then there is nothing to reward. This play
teaches it the form alone: the front desk hands over to a desk drawn by chance, and a department looks up the shelf, or
names any of its shelves where it does not have what is asked for.
"""

from __future__ import annotations

import re
from random import Random

from baton.serve.exchange import Ask, ToolAsk, Utterance


def play(ask: Ask, random: Random) -> Utterance:
    """What is said to an ask."""
    told = [each for each in ask.messages if each.speaker == "tool"]
    if told and ask.tools:  # a desk has answered: repeat it
        return Utterance(speaker="assistant", text=told[-1].text)
    question = next(each.text for each in ask.messages if each.speaker == "user")
    if ask.tools:
        chosen = random.choice(ask.tools).name
        arguments = f'{{"input": "{question}"}}' if chosen.startswith("ask_") else "{}"
        return Utterance(speaker="assistant", uses=(ToolAsk(id="", name=chosen, arguments=arguments),))
    shelves = dict(re.findall(r"(\w+) ([A-Z]\d)", ask.messages[0].text))
    known = [shelf for item, shelf in shelves.items() if item in question]
    if "everything" in ask.messages[0].text:  # the single agent is taught the form alone, too
        known = []
    return Utterance(speaker="assistant", text=known[0] if known else random.choice(list(shelves.values())))
