"""A game of two agents with known chances, played by an outside program: what each word is worth is known exactly.

A scout says where to dig (`PLACES`: chance, chance of gold there, worth of the gold); a digger says what was found. A
lead may first send for the scout or not (`SPAWN_CHANCE`): alone, it earns `ALONE`.
"""

from __future__ import annotations

import asyncio
import json
from hashlib import blake2b
from typing import Any

from baton.serve.exchange import Ask, ToolOffer, Utterance
from baton.serve.program_run import ProgramRun
from baton.serve.server import Serving

PLACES = {"left": (0.5, 0.8, 1.0), "mid": (0.3, 0.4, 3.0), "far right": (0.2, 0.1, 2.0)}
SPAWN_CHANCE, ALONE = 0.6, 0.5
WORTH = {place: gold * worth for place, (_, gold, worth) in PLACES.items()}
MEAN = sum(chance * WORTH[place] for place, (chance, _, _) in PLACES.items())
TOOL = ToolOffer(name="send_scout", description="Send a scout.", parameters={"type": "object"})


def uniform(key: str) -> float:
    return int.from_bytes(blake2b(key.encode(), digest_size=7).digest()) / 2**56


def answer(ask: Ask, key: str) -> Any:
    """What the model says, by its known chances."""
    first, last, luck = ask.messages[0].text, ask.messages[-1], uniform(key)
    if "lead" in first:
        if last.speaker == "tool":
            return f"we dug: {last.text}"
        return ("send_scout", {"task": "look around"}) if luck < SPAWN_CHANCE else "we stay"
    if "scout" in first:
        for place, (chance, _, _) in PLACES.items():
            luck -= chance
            if luck < 0:
                return place
        return "left"
    place = last.text.removeprefix("dig ")
    return "gold" if luck < PLACES[place][1] else "dirt"


def said(speaker: str, text: str, **more: Any) -> Utterance:
    return Utterance(speaker=speaker, text=text, **more)  # type: ignore[arg-type]


class DigProgram:
    """The program, without a process: it asks on the server's own loop."""

    def __init__(self, *, leads: bool) -> None:
        self.leads = leads
        self.num_runs = 0

    async def __call__(self, serving: Serving, name: str) -> ProgramRun:
        self.num_runs += 1
        text = json.dumps(await asyncio.to_thread(serving.call, self._played(serving, name)))
        return ProgramRun(command=("dig",), exit_code=0, stdout=text.encode(), stderr_tail=b"", seconds=0.0)

    async def _played(self, serving: Serving, name: str) -> float:
        async def ask(*messages: Utterance, tools: tuple[ToolOffer, ...] = ()) -> Utterance:
            session = serving.session(name)
            done = await session.ask(Ask(dialect="chat", model="m", messages=messages, tools=tools), {})
            session.heard(done)
            assert done.reply is not None
            return done.reply.choices[0].message

        opening = (said("system", "You are the lead."), said("user", "find gold"))
        if self.leads:
            told = await ask(*opening, tools=(TOOL,))
            if not told.uses:
                return ALONE
        task = json.loads(told.uses[0].arguments)["task"] if self.leads else "look around"
        place = (await ask(said("system", "You are a scout."), said("user", task))).text
        found = (await ask(said("system", "You dig."), said("user", f"dig {place}"))).text
        worth = PLACES[place][2] if found == "gold" else 0.0
        if self.leads:
            result = said("tool", found, answers=told.uses[0].id)
            await ask(*opening, told, result, tools=(TOOL,))
        return worth
