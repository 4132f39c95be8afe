"""A server on a folder that has sessions: nobody waits for another's journal; traces left behind are made by and by."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from baton.serve import following, journal, sessions
from baton.serve.backends.scripted import ScriptedBackend
from baton.serve.exchange import Ask
from baton.serve.server import Serving


def echo(ask: Ask) -> str:
    return f"heard {ask.messages[-1].text}"


def said(serving: Serving, session: str, *texts: str) -> httpx.Response:
    messages = [{"role": "assistant" if k % 2 else "user", "content": text} for k, text in enumerate(texts)]
    body = {"model": "m", "messages": messages}
    return httpx.post(f"{serving.address}/s/{session}/v1/chat/completions", json=body, timeout=30)


def served_before(out: Path, *names: str) -> None:
    with Serving(out, ScriptedBackend(echo), traces=False) as serving:
        for number, name in enumerate(names):
            for turn in range(1 + number % 3):
                assert said(serving, name, f"{name} {turn}").status_code == 200


def test_nobody_waits_while_a_sessions_journal_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served_before(tmp_path, "old-one", "other")
    readers: list[str] = []
    go_on = threading.Event()
    plainly = journal.read_session

    def slowly(path: Path) -> journal.KeptSession:
        readers.append(threading.current_thread().name)
        if path.name == "old-one.jsonl":
            assert go_on.wait(20)
        return plainly(path)

    monkeypatch.setattr(journal, "read_session", slowly)
    with Serving(tmp_path, ScriptedBackend(echo), traces=False) as serving, ThreadPoolExecutor(2) as pool:
        first = [pool.submit(said, serving, "old-one", "x", "heard x", f"go {k}") for k in range(2)]
        while not readers:
            time.sleep(0.01)
        assert said(serving, "new-one", "hi").json()["choices"][0]["message"]["content"] == "heard hi"
        assert said(serving, "other", "hi").status_code == 200
        assert httpx.get(f"{serving.address}/s/other").json()["calls"] == 3
        go_on.set()
        assert [each.result().status_code for each in first] == [200, 200]
        assert len(serving.session("old-one").exchanges) == 3
    assert "baton-serve" not in readers
    assert len(readers) == 2, "once for each session, whoever asks at once"


@pytest.mark.parametrize("path", ["reward", "end", ""])
def test_whatever_comes_first_the_journal_is_read_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    served_before(tmp_path, "old")
    made: list[str] = []
    plainly = sessions.SessionJournal

    def watched(place: Path) -> journal.SessionJournal:
        made.append(threading.current_thread().name)
        return plainly(place)

    monkeypatch.setattr(sessions, "SessionJournal", watched)
    with Serving(tmp_path, ScriptedBackend(echo), traces=False) as serving:
        where = f"{serving.address}/s/old/{path}".rstrip("/")
        body = b'{"value": 0.5}' if path == "reward" else b""
        assert (httpx.post(where, content=body) if path else httpx.get(where)).json()["calls"] == 1
    assert made
    assert "baton-serve" not in made


def test_traces_left_behind_are_made_with_rests_and_all_are_there_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{k}" for k in range(5)]
    served_before(tmp_path, *names)
    rests: list[float] = []
    three = threading.Event()

    def rest(self: following.Following, began: float) -> bool:
        rests.append(began)
        if len(rests) == 3:
            three.set()
            return bool(self._closing.wait(20))  # the rest is left for the end
        return False

    monkeypatch.setattr(following.Following, "_rest", rest)
    with Serving(tmp_path, ScriptedBackend(echo)) as serving:
        assert three.wait(20)
        assert len(list(tmp_path.glob("*.jsonl"))) == 3
        assert said(serving, "s4", "s4 0", "heard s4 0", "and?").status_code == 200
    assert sorted(path.stem for path in tmp_path.glob("*.jsonl")) == names


def test_what_is_said_of_a_session_that_is_not_there_makes_none(tmp_path: Path) -> None:
    served_before(tmp_path, "search-7")
    with Serving(tmp_path, ScriptedBackend(echo)) as serving:
        for path, body in (("reward", b'{"value": 1}'), ("end", b"{}")):
            answer = httpx.post(f"{serving.address}/s/serach-7/{path}", content=body)
            assert answer.status_code == 404
            told = answer.json()["error"]["message"]
            assert "'serach-7'" in told
            assert "search-7" in told.replace("serach-7", "")
        assert not journal.journal_path(tmp_path, "serach-7").exists()
        serving.open_session("waiting")  # its program has asked nothing yet
        assert httpx.post(f"{serving.address}/s/waiting/reward", content=b'{"value": 1}').status_code == 200


def test_digests_that_are_known_are_the_same_as_those_that_are_not(tmp_path: Path) -> None:
    served_before(tmp_path, "a", "b", "c")
    kept = journal.read_session(journal.journal_path(tmp_path, "c"))
    for exchange in kept.exchanges:
        assert kept.digests_of(exchange.ask) == journal.digests(exchange.ask)
        picture = replace(exchange.ask.messages[0], others=({"type": "image", "n": [1]},))
        other = replace(exchange.ask, messages=(*exchange.ask.messages, picture))
        assert kept.digests_of(other) == journal.digests(other)
