"""A model for Claude Code and Codex without state: which play it is in is told by the last `PLAY:name` a user said.

A script is `{play: [turn, ...]}` as in `scripted_coders`; the turn is how often the assistant has spoken since.
"""

from __future__ import annotations

import json
import re
from typing import Any

from baton.serve.exchange import Ask

_PLAY = re.compile(r"PLAY:([a-z0-9-]+)")
_AGENT = re.compile(r'agentId: (\w+)|"agent_id": ?"([\w-]+)"')
HERE = {"run_in_background": False}


def _agent(name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return (
        "Agent",
        {"description": name, "prompt": f"do PLAY:{name}", "subagent_type": "general-purpose", **fields},
    )


CLAUDE: dict[str, list[Any]] = {
    "main": [
        ["looking", ("Bash", {"command": "date; mktemp -u"})],
        [_agent("left", **HERE), _agent("right", **HERE)],
        [_agent("late")],
        [("Bash", {"command": "sleep 0.3"})],
        "waiting",
        "all done",
    ],
    "left": ["left's answer"],
    "right": [[("Bash", {"command": "echo r"})], "right's answer"],
    "late": [[("Bash", {"command": "sleep 0.3"})], "late's answer"],
}
CROWD: dict[str, list[Any]] = {
    "main": [
        [_agent("one"), _agent("two"), _agent("three")],
        [("Bash", {"command": "sleep 0.2"})],
        "waiting for three",
        "noted",
        "noted again",
        "all are back",
    ],
    "one": [[("Bash", {"command": "sleep 0.1"})], "one's answer"],
    "two": ["two's answer, at once"],
    "three": [[("Bash", {"command": "sleep 0.6"})], [("Bash", {"command": "echo 3"})], "three's answer"],
}
"""Three in the background at once; they come back while the main one works and after it has said that it waits."""
_SPACE = "multi_agent_v1/"
CODEX: dict[str, list[Any]] = {
    "main": [
        ["looking", ("exec_command", {"cmd": "date; echo hi"}), ("exec_command", {"cmd": "false"})],
        [
            (_SPACE + "spawn_agent", {"message": "do PLAY:left"}),
            (_SPACE + "spawn_agent", {"message": "do PLAY:right"}),
        ],
        [(_SPACE + "wait_agent", {"targets": ["$agent0"], "timeout_ms": 20000})],
        [(_SPACE + "wait_agent", {"targets": ["$agent1"], "timeout_ms": 20000})],
        "all done",
    ],
    "left": [["hm", ("exec_command", {"cmd": "echo l"})], "left's answer"],
    "right": ["right's answer"],
}


def claude(ask: Ask) -> Any:
    """What Claude Code's model says."""
    return _turn(ask, CLAUDE)


def claude_crowd(ask: Ask) -> Any:
    """The same with several agents in the background."""
    return _turn(ask, CROWD)


def codex(ask: Ask) -> Any:
    """What Codex's model says."""
    return _turn(ask, CODEX)


def _turn(ask: Ask, script: dict[str, list[Any]]) -> Any:
    named = [(place, one.text) for place, one in enumerate(ask.messages) if one.speaker == "user"]
    plays = [(place, name) for place, text in named for name in _PLAY.findall(text)]
    if not plays:
        return "nothing to do"
    begun, play = plays[-1]
    turn = sum(one.speaker == "assistant" for one in ask.messages[begun:])
    turns = script[play]
    said = turns[turn] if turn < len(turns) else turns[-1]
    agents = [one or other for text in ask.messages for one, other in _AGENT.findall(text.text)]
    text = json.dumps(said)
    for place, agent in enumerate(dict.fromkeys(agents)):
        text = text.replace(f"$agent{place}", agent)
    found = json.loads(text)
    return found if isinstance(found, str) else [one if isinstance(one, str) else tuple(one) for one in found]
