"""The model of Claude Code and Codex as a backend of the endpoint: it plays `scripted_coders`' scripts."""

from __future__ import annotations

import json
from collections import Counter

from scripted_coders import _AGENT, _PLAY, Script

from baton.serve.backend import GrownAsk
from baton.serve.exchange import Ask, Reply, ReplyChoice, ToolAsk, Utterance
from baton.serve.lineage.reading import texts


class ScriptedBackend:
    """The play that the user's side named last says what comes next; one turn for each ask of it."""

    name = "scripted"

    def __init__(self, script: Script) -> None:
        self.script = script
        self.plays: list[str] = []
        self._turns: Counter[str] = Counter()

    async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
        told = texts(ask.messages, "user")
        shown = json.dumps([message.text for message in ask.messages])
        agents = list(dict.fromkeys(one or other for one, other in _AGENT.findall(shown)))
        named = [name for text in told for name in _PLAY.findall(text)]
        play = named[-1] if named else "nobody"
        turn = self._turns[play]
        self._turns[play] += 1
        self.plays.append(play)
        turns = self.script.get(play, [])
        blocks = turns[turn] if turn < len(turns) else [f"done ({play})"]
        number = len(self.plays)
        uses, words = [], []
        for place, block in enumerate(blocks):
            if isinstance(block, str):
                words.append(block)
                continue
            text = json.dumps(block[1])
            for index, agent in enumerate(agents):
                text = text.replace(f"$agent{index}", agent)
            name = block[0]
            known = {tool.name for tool in ask.tools}
            if name not in known:
                name = next((tool for tool in sorted(known) if tool.endswith(name.rpartition("/")[2])), name)
            uses.append(ToolAsk(id=f"toolu_{number:06d}_{place}", name=name, arguments=text))
        said = Utterance(speaker="assistant", text="\n".join(words), uses=tuple(uses))
        choice = ReplyChoice(message=said, finish="tool_calls" if uses else "stop")
        return Reply(
            choices=(choice,), policy="scripted", prompt_tokens=100 + number, completion_tokens=number
        )

    async def close(self) -> None:
        """Nothing is held."""
