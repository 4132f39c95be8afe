"""A scripted model for programs of other frameworks, and what is true of each program by hand.

A play says what each agent says, turn by turn. Who asks is told by the instruction ("You are the scout"), and the turn
by which of its own turns stand in the prompt already, in whatever form: so a play needs no memory. `$n` in a text is a
number that no other answer has.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

from msgspec import Struct

from baton.serve.backend import GrownAsk, Unanswerable
from baton.serve.exchange import Ask, Reply, ReplyChoice, ToolAsk, Utterance

Turn = str | list[tuple[str, dict[str, Any]]]
Plays = dict[str, list[Turn]]
_WHO = re.compile(r"You(?: are|'re) (?:a helpful agent named |the )'?(\w+)")


class Program(Struct, frozen=True, kw_only=True):
    """One program file, what its model says, and what is true of it."""

    file: str
    env: str
    """Whose packages it needs: a name of tests/serve/programs/NAME.txt."""
    plays: Plays
    spawns: tuple[tuple[str, str], ...]
    """(parent, child), once for each spawn, in the order of the children's first calls."""
    returns: int
    answer: str
    """What the program prints in the end."""
    handoffs: tuple[tuple[str, str], ...] = ()
    settings: dict[str, str] = {}


class PlayBackend:
    """Answers by a play."""

    name = "play"

    def __init__(self, plays: Plays) -> None:
        self.plays = plays
        self.asked: list[str] = []
        """Who asked, in order."""
        self._numbers = itertools.count(1)
        self._uses = itertools.count(1)

    async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
        who = self._who(ask)
        if who is None:
            heads = [message.text[:200] for message in ask.messages]
            raise Unanswerable(f"no play is for this prompt: {heads}")
        self.asked.append(who)
        done = _shown(ask)
        turns = self.plays[who]
        place = 0
        while place < len(turns) - 1 and _is_done(turns[place], done):
            place += 1
        turn = turns[place]
        if isinstance(turn, str):
            number = str(next(self._numbers))
            said = Utterance(speaker="assistant", text=turn.replace("$n", number))
        else:
            uses = tuple(
                ToolAsk(id=f"call_{next(self._uses):04}", name=name, arguments=json.dumps(arguments))
                for name, arguments in turn
            )
            said = Utterance(speaker="assistant", uses=uses)
        finish = "tool_calls" if said.uses else "stop"
        choice = ReplyChoice(message=said, finish=finish)
        return Reply(choices=(choice,), policy="play", prompt_tokens=7, completion_tokens=3)

    async def close(self) -> None:
        """Nothing is held."""

    def _who(self, ask: Ask) -> str | None:
        for message in ask.messages:
            for name in _WHO.findall(message.text):
                if name in self.plays:
                    return str(name)
        return (
            "lead"
            if "lead" in self.plays and "assistant" not in {m.speaker for m in ask.messages[:1]}
            else None
        )


def _shown(ask: Ask) -> str:
    parts = []
    for message in ask.messages:
        if message.speaker != "system":
            parts.append(message.text)
            parts += [f"{use.name} {use.arguments}" for use in message.uses]
    return "\n".join(parts)


def _is_done(turn: Turn, shown: str) -> bool:
    if isinstance(turn, str):
        return turn.partition("$n")[0] in shown
    return all(name in shown and all(str(value) in shown for value in given.values()) for name, given in turn)


_SCOUT: list[Turn] = [[("lookup", {"q": "the old harbour"})], "The harbour is old ($n)."]
_JUDGE: list[Turn] = ["That seems right ($n)."]


def _teams(research: str, weigh: str, question: str = "question", claim: str = "claim") -> Plays:
    """A lead who asks a scout twice, once in the same words as another at once, and a judge."""
    same = (research, {question: "How old is the harbour of Riga?"})
    return {
        "lead": [
            [same, same, (weigh, {claim: "It is older than the bridge."})],
            [(research, {question: "And the bridge?"})],
            "Both are old.",
        ],
        "scout": _SCOUT,
        "judge": _JUDGE,
    }


_FOUR = (("lead", "scout"), ("lead", "scout"), ("lead", "judge"), ("lead", "scout"))
PROGRAMS: dict[str, Program] = {
    "openai-agents, agents as tools": Program(
        file="openai_agents_tools.py", env="openai_agents",
        plays={
            "lead": [
                [("ask_scout", {"input": "How old is the harbour?"}),
                 ("ask_scout", {"input": "How old is the harbour?"}),
                 ("ask_judge", {"input": "Is it older than the bridge?"})],
                [("ask_judge", {"input": "And the tower?"})],
                "All are old.",
            ],
            "scout": [[("lookup", {"q": "harbour"}), ("ask_helper", {"input": "Where is the harbour?"})], "Old ($n)."],
            "helper": ["It is in the north ($n)."],
            "judge": _JUDGE,
        },
        spawns=(("lead", "scout"), ("lead", "scout"), ("lead", "judge"), ("scout", "helper"), ("scout", "helper"),
                ("lead", "judge")),
        returns=6, answer="All are old.",
    ),
    "openai-agents, handoff": Program(
        file="openai_agents_handoff.py", env="openai_agents",
        plays={
            "triage": [[("transfer_to_expert", {})], "The expert says it is filed."],
            "expert": [[("ask_clerk", {"input": "Please file this."})], [("transfer_to_triage", {})]],
            "clerk": ["It is filed ($n)."],
        },
        spawns=(("expert", "clerk"),), returns=1, handoffs=(("triage", "expert"), ("expert", "triage")),
        answer="The expert says it is filed.",
    ),
    "LangGraph, supervisor and subgraph": Program(
        file="langgraph_supervisor.py", env="langgraph",
        plays={**_teams("research", "improve", claim="text"), "polisher": ["It shines ($n)."]},
        spawns=(("lead", "scout"), ("lead", "scout"), ("lead", "polisher"), ("lead", "scout")), returns=4,
        answer="Both are old.",
    ),
    "LangGraph, Send": Program(
        file="langgraph_send.py", env="langgraph",
        plays={
            "planner": ["rivers; lakes; rivers"], "worker": ["There are many ($n)."],
            "merger": ["Water is everywhere."],
        },
        spawns=(("program", "planner"), ("program", "worker"), ("program", "worker"), ("program", "worker"),
                ("program", "merger")),
        returns=5, answer="Water is everywhere.",
    ),
    "pydantic-ai": Program(
        file="pydantic_ai_delegate.py", env="pydantic_ai",
        plays={**_teams("research", "weigh"), "judge": [[("final_result", {"verdict": "so it is", "marks": 7})]]},
        spawns=_FOUR, returns=4, answer="Both are old.",
    ),
    "strands": Program(
        file="strands_tools.py", env="strands", plays=_teams("research", "weigh"), spawns=_FOUR, returns=4,
        answer="Both are old.",
    ),
    "agent-framework": Program(
        file="agent_framework_tools.py", env="agent_framework", plays=_teams("research", "weigh"), spawns=_FOUR,
        returns=4, answer="Both are old.",
    ),
    "AutoGen, agents as tools": Program(
        file="autogen_agent_tools.py", env="autogen",
        plays={
            "lead": [
                [("scout", {"task": "How old is the harbour of Riga?"})], [("judge", {"task": "Is that right?"})],
                "Both are old.",
            ],
            "scout": _SCOUT, "judge": _JUDGE,
        },
        spawns=(("lead", "scout"), ("lead", "judge")), returns=2, answer="Both are old.",
    ),
    "AutoGen, round robin": Program(
        file="autogen_round_robin.py", env="autogen",
        plays={"writer": ["A line on rivers ($n)."], "critic": ["It needs more water ($n)."]},
        spawns=(("program", "writer"), ("program", "critic")), returns=0, answer="It needs more water (4).",
    ),
    "smolagents": Program(
        file="smolagents_managed.py", env="smolagents",
        plays={
            "lead": [
                [("scout", {"task": "How old is the harbour of Riga?"})],
                [("judge", {"task": "Is it older than the bridge?"})],
                [("scout", {"task": "And the tower of Riga?"})],
                [("final_answer", {"answer": "Both are old."})],
            ],
            "scout": [[("lookup", {"q": "the old harbour"})], [("final_answer", {"answer": "The harbour is old."})]],
            "judge": [[("final_answer", {"answer": "That seems right."})]],
        },
        spawns=(("lead", "scout"), ("lead", "judge"), ("lead", "scout")), returns=3, answer="Both are old.",
    ),
    "AG2": Program(
        file="ag2_tools.py", env="ag2", plays=_teams("task_scout", "task_judge", "objective", "objective"),
        spawns=_FOUR, returns=4, answer="Both are old.",
    ),
    "crewAI": Program(
        file="crewai_crew.py", env="crewai",
        plays={
            "lead": [
                [("delegate_work_to_coworker", {"task": "Measure the harbour of Riga", "context": "It is old.",
                                                "coworker": "scout"})],
                "The lead says it is measured.",
            ],
            "scout": ["The harbour is old ($n)."], "writer": ["A harbour, old and measured."],
        },
        spawns=(("program", "lead"), ("lead", "scout"), ("program", "writer")), returns=3,
        answer="A harbour, old and measured.",
    ),
}  # fmt: skip
"""Name -> program."""
