"""Answers for a supervised start: the grammar of the help desks, without which desk has what.

A small model that was never taught to write a tool call writes none, and then there is nothing to reward. This play
teaches it the form alone: the front desk hands over to a desk drawn by chance, a department names its aisle, and a
single agent names any of the aisles.
"""

from __future__ import annotations

import re
from random import Random

from baton.serve.exchange import Ask, ToolAsk, Utterance


def play(ask: Ask, random: Random) -> Utterance:
    """What is said to an ask."""
    told = [each for each in ask.messages if each.speaker == "tool"]
    if ask.tools and told:  # a desk has answered: repeat it
        return Utterance(speaker="assistant", text=told[-1].text)
    if ask.tools:
        question = next(each.text for each in ask.messages if each.speaker == "user")
        chosen = random.choice(ask.tools).name
        arguments = f'{{"input": "{question}"}}' if chosen.startswith("ask_") else "{}"
        return Utterance(speaker="assistant", uses=(ToolAsk(id="", name=chosen, arguments=arguments),))
    aisles = re.findall(r"[A-D]\d", ask.messages[0].text)
    return Utterance(speaker="assistant", text=random.choice(aisles))
