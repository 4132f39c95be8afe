"""The official SDKs for JavaScript as clients, from npm: what their helpers compute is what was scripted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sdk_plays import LOGPROBS, LONG, TOKENS, Plays, only_with_sdks, served

only_with_sdks()

CALLS = [["odd_sum", '{"of": [1, 3]}'], ["look-up", '{"what": "Århus"}']]
CITY = {"city": "Århus", "km": 12.5}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Plays]:
    assert shutil.which("node") is not None, "the JavaScript SDKs need node"
    with served(tmp_path_factory.mktemp("js")) as (serving, plays):
        command = ["node", str(Path(__file__).with_name("clients.mjs")), serving.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(os.environ))
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout), plays


def test_chat(seen: tuple[dict[str, Any], Plays]) -> None:
    told = seen[0]
    usage = {
        "prompt_tokens": 31, "completion_tokens": 17, "total_tokens": 48,
        "prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 5},
    }  # fmt: skip
    assert told["chat"] == {"text": LONG, "usage": usage}
    assert told["chatStream"] == {"text": LONG, "usage": usage}
    assert told["chatTools"] == {"text": "Let me see.", "calls": CALLS}
    assert told["chatResults"] == "odd_sum=0 and look-up=1"
    assert told["chatParsed"] == CITY
    assert told["chatLogprobs"] == [list(pair) for pair in zip(TOKENS, LOGPROBS, strict=True)]
    assert told["chatSeveral"] == ["answer 0", "answer 1", "answer 2"]


def test_responses(seen: tuple[dict[str, Any], Plays]) -> None:
    told = seen[0]
    assert told["responses"]["text"] == LONG
    assert told["responses"]["usage"]["total_tokens"] == 48
    assert told["responsesTools"]["calls"] == CALLS
    kinds = told["responsesTools"]["kinds"]
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert kinds.count("response.output_item.done") == 3
    assert told["responsesKept"] == "odd_sum=0 and look-up=1"
    assert told["responsesParsed"] == CITY


def test_messages(seen: tuple[dict[str, Any], Plays]) -> None:
    told = seen[0]
    assert (told["messages"]["text"], told["messages"]["reason"]) == (LONG, "end_turn")
    assert told["messages"]["usage"]["input_tokens"] == 23
    assert told["messagesTools"] == {
        "text": "Let me see.", "uses": [["odd_sum", {"of": [1, 3]}], ["look-up", {"what": "Århus"}]],
        "last": {"what": "Århus"},
    }  # fmt: skip
    assert told["messagesResults"] == "odd_sum=0 and look-up=1"
    assert [block["type"] for block in told["thought"]] == ["thinking", "text"]
    assert (told["thought"][0]["thinking"], told["thought"][0]["signature"]) == ("A dozen. " * 9, "c2ln")
    assert told["counted"] > 0


def test_refusals_are_heard_once(seen: tuple[dict[str, Any], Plays]) -> None:
    told, plays = seen
    for name in ("openai", "anthropic"):
        status, why = told[f"{name}Refused"]
        assert status == 400
        assert "This question has no answer here." in why
    assert plays.asked["refused"] == 2
