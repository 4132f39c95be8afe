"""The page is told what changed, on one channel, by a real server."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from viewer_runs import more_training, run_team, training_run

from baton.cli.view import attached
from baton.trace import Trace, write
from baton.view.web.server import listen, make_app, server_of
from baton.view.web.stream import MOST_WATCHED, Glances
from baton.view.web.traces import Library


@contextmanager
def served(*paths: Path, key: str | None = None) -> Iterator[int]:
    server = server_of(make_app(Library(paths), attached(), key=key))
    at = listen(0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [at]})
    thread.start()
    try:
        yield at.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "a page that listens keeps the server from ending"


class Listener:
    def __init__(self, port: int, *topics: str, headers: dict[str, str] | None = None) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        query = urlencode([("watch", topic) for topic in topics])
        self.connection.request("GET", f"/api/stream?{query}", headers=headers or {})
        self.reply = self.connection.getresponse()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.reply.close()
        self.connection.close()

    def next(self) -> dict[str, Any]:
        while True:
            line = self.reply.readline()
            if line.startswith(b"data: "):
                return dict(json.loads(line[6:]))


@pytest.fixture(scope="module")
def trace() -> Trace:
    return run_team("shard-sum", "centralized", 5)


def topic(name: str, **query: str) -> str:
    return f"{name}?{urlencode(query)}"


def test_a_stamp_comes_at_once_and_when_it_changes(tmp_path: Path, trace: Trace) -> None:
    path = tmp_path / "team.jsonl"
    write(trace, path)
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:9]))
    of_trace = topic("trace", place="team.jsonl", id=trace.trace_id)
    with served(path) as port, Listener(port, of_trace) as page:
        assert page.reply.headers["content-type"].startswith("text/event-stream")
        assert "default-src 'none'" in page.reply.headers["content-security-policy"]
        first = page.next()
        assert first["topic"] == of_trace
        path.write_bytes(whole)
        second = page.next()
        assert (second["topic"], second["stamp"] != first["stamp"]) == (of_trace, True)
        path.unlink()
        assert "error" in page.next()


def test_a_run_and_the_list_of_places(tmp_path: Path, trace: Trace) -> None:
    training_run(tmp_path / "runs" / "one", steps=1, episodes=2)
    topics = (topic("training", place="runs/one"), topic("places"))
    with served(tmp_path / "runs") as port, Listener(port, *topics) as page:
        assert {page.next()["topic"].partition("?")[0] for _ in range(2)} == {"training", "places"}
        more_training(tmp_path / "runs" / "one", 1)
        heard: set[str] = set()
        while heard != {"training", "places"}:  # a look in the midst of writing tells of one of them twice
            heard.add(page.next()["topic"].partition("?")[0])


def test_what_cannot_be_watched_is_said(tmp_path: Path, trace: Trace) -> None:
    write(trace, tmp_path / "team.jsonl")
    with served(tmp_path / "team.jsonl") as port:
        for name, said in (("trase?place=x", "cannot be watched"), ("training?place=other", "no place")):
            with Listener(port, name) as page:
                assert said in page.next()["error"]
        for topics in ([], [f"training?place={n}" for n in range(MOST_WATCHED + 1)]):
            with Listener(port, *topics) as page:
                assert page.reply.status == 400
                assert "to watch" in json.loads(page.reply.read())["error"]


@pytest.mark.parametrize(
    ("cookie", "site", "status"),
    [(None, "none", 403), ("wrong", "none", 403), ("k", "cross-site", 403), ("k", "same-origin", 200)],
)
def test_nobody_without_the_key_hears_anything(
    tmp_path: Path, trace: Trace, cookie: str | None, site: str, status: int
) -> None:
    write(trace, tmp_path / "team.jsonl")
    with served(tmp_path / "team.jsonl", key="k") as port:
        headers = {"sec-fetch-site": site} | ({"cookie": f"baton-{port}={cookie}"} if cookie else {})
        with Listener(port, "places?", headers=headers) as page:
            assert page.reply.status == status


def test_many_listeners_are_one_look() -> None:
    looked: list[str] = []

    def stamp_of(name: str, query: dict[str, str]) -> str:
        looked.append(name)
        return query["place"]

    glances = Glances(stamp_of)
    for _ in range(50):
        assert glances.look(["trace?place=a%20b"]) == [{"topic": "trace?place=a%20b", "stamp": "a b"}]
    assert len(looked) < 50
