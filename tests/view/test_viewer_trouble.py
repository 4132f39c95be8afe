"""What may not take the viewer's page away: many runs, odd files, links out of the folder, and strangers."""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from starlette.testclient import TestClient
from viewer_runs import run_team

from baton.cli.view import attached
from baton.errors import UsageError
from baton.trace import Trace, write
from baton.trace.formats import read_all
from baton.view.web.attached import Attached, Change, ForkMade, ForkWatch
from baton.view.web.diff import changed_words, compare
from baton.view.web.picture import picture
from baton.view.web.places import find_places
from baton.view.web.server import make_app
from baton.view.web.traces import Library


def client(*paths: Path, forks: bool = False, key: str | None = None) -> TestClient:
    app = make_app(Library(paths), attached(forks=forks), key=key)
    return TestClient(app, base_url="http://127.0.0.1:8321", follow_redirects=False)


def ask(page: TestClient, name: str, **query: object) -> Any:
    return page.get(f"/api/{name}", params={key: str(value) for key, value in query.items()}).json()


@pytest.fixture(scope="module")
def trace() -> Trace:
    return run_team("shard-sum", "centralized", 5)


def run_folder(path: Path, text: str = '{"recipe": "flagship", "status": "finished"}') -> Path:
    path.mkdir(parents=True)
    (path / "run.json").write_text(text)
    return path


def test_no_run_is_left_out_however_many_there_are(tmp_path: Path) -> None:
    for number in range(730):
        run_folder(tmp_path / "runs" / f"flagship-{number:04d}")
    found = find_places([tmp_path / "runs"])
    assert len(found) == 730
    assert found[-1].key == "runs/flagship-0729"


def test_a_place_that_came_a_moment_ago_is_found(
    tmp_path: Path, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baton.view.web.traces._PLACES_SECONDS", 3600.0)
    library = Library([tmp_path])
    assert library.places() == []
    write(trace, tmp_path / "new.jsonl")
    assert library.place(f"{tmp_path.name}/new.jsonl").key == f"{tmp_path.name}/new.jsonl"
    with pytest.raises(UsageError, match="there is no place"):
        library.place(f"{tmp_path.name}/other.jsonl")


def test_one_bad_run_takes_no_other_away(tmp_path: Path, trace: Trace) -> None:
    runs = tmp_path / "runs"
    run_folder(runs / "good")
    run_folder(runs / "nested", '{"a":' * 5000 + "1" + "}" * 5000)
    odd = run_folder(runs / "odd")
    (odd / "metrics.jsonl").write_text('[1]\n{"step": "x", "return": []}\n' + '{"a":' * 5000 + "\n")
    os.mkfifo(runs / "pipe.jsonl")
    (runs / "loop").symlink_to(runs / "loop")
    write(trace, runs / "team.jsonl")
    page = client(runs)
    keys = {place["key"]: place for place in ask(page, "setup")["places"]}
    assert set(keys) == {"runs/good", "runs/nested", "runs/odd", "runs/team.jsonl"}
    assert keys["runs/good"]["run"]["status"] == "finished"
    assert keys["runs/nested"]["run"] is None
    assert "nested" in ask(page, "training", place="runs/nested")["error"]
    assert "sections" in ask(page, "training", place="runs/odd")


def test_a_folder_that_cannot_be_looked_into_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_folder(tmp_path / "runs" / "good")
    run_folder(tmp_path / "runs" / "locked")
    is_file, iterdir = Path.is_file, Path.iterdir

    def refused(path: Path) -> None:
        if "locked" in path.parts:
            raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", lambda self: refused(self) or is_file(self))
    monkeypatch.setattr(Path, "iterdir", lambda self: refused(self) or iterdir(self))
    assert [place.key for place in find_places([tmp_path / "runs"])] == ["runs/good"]


def test_links_do_not_lead_out_of_the_folder(tmp_path: Path, trace: Trace) -> None:
    run_folder(tmp_path / "private" / "run")
    write(trace, tmp_path / "private" / "secret.jsonl")
    runs = tmp_path / "runs"
    run_folder(runs / "own")
    (runs / "out").symlink_to(tmp_path / "private" / "run")
    (runs / "secret.jsonl").symlink_to(tmp_path / "private" / "secret.jsonl")
    (runs / "again").symlink_to(runs / "own")
    assert [place.key for place in find_places([runs])] == ["runs/again", "runs/own"]
    (tmp_path / "link").symlink_to(runs)
    assert len(find_places([tmp_path / "link"])) == 2, "a path that a person gives may be a link"


class TestKey:
    def test_nobody_without_the_key_is_answered(self, tmp_path: Path, trace: Trace) -> None:
        write(trace, tmp_path / "team.jsonl")
        page = client(tmp_path / "team.jsonl", key="s3cret")
        for path in ("/", "/api/setup", "/page/all.js", "/?key=wrong", "/api/setup?key=S3CRET"):
            reply = page.get(path)
            assert reply.status_code == 403, path
            assert "s3cret" not in reply.text
            assert "content-security-policy" in reply.headers
        assert "address that `baton view` printed" in page.get("/").text

    def test_the_printed_address_opens_the_page(self, tmp_path: Path, trace: Trace) -> None:
        write(trace, tmp_path / "team.jsonl")
        page = client(tmp_path / "team.jsonl", key="s3cret")
        reply = page.get("/?key=s3cret")
        assert reply.status_code == 303
        assert reply.headers["location"] == "/"
        cookie = reply.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert page.get("/").status_code == 200
        assert ask(page, "setup")["places"]

    def test_two_viewers_do_not_forget_each_other(self, tmp_path: Path, trace: Trace) -> None:
        write(trace, tmp_path / "team.jsonl")
        names = []
        for port in (8321, 9000):
            app = make_app(Library([tmp_path / "team.jsonl"]), attached(), key="k")
            page = TestClient(app, base_url=f"http://127.0.0.1:{port}", follow_redirects=False)
            names.append(page.get("/?key=k").headers["set-cookie"].partition("=")[0])
        assert names[0] != names[1]


def test_a_trace_is_found_in_whichever_place_it_is(tmp_path: Path, trace: Trace) -> None:
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    write(trace, tmp_path / "runs" / "b.jsonl")
    shutil.copy(tmp_path / "runs" / "b.jsonl", tmp_path / "runs" / "c.jsonl")
    found = ask(client(tmp_path / "runs"), "where", id=trace.trace_id)
    assert found == {"places": ["runs/b.jsonl", "runs/c.jsonl"]}
    assert ask(client(tmp_path / "runs"), "where", id="nobody") == {"places": []}


class TestForks:
    def post(self, page: TestClient, name: str, body: object = None, **query: str) -> Any:
        headers = {"origin": "http://127.0.0.1:8321", "x-baton-token": ask(page, "setup")["token"]}
        return page.post(f"/api/{name}", params=query, headers=headers, json=body).json()

    def place(self, tmp_path: Path, trace: Trace) -> dict[str, str]:
        write(trace, tmp_path / "team.jsonl")
        return {"place": "team.jsonl", "id": trace.trace_id}

    def test_of_many_at_once_each_is_made_in_its_turn(self, tmp_path: Path, trace: Trace) -> None:
        where = self.place(tmp_path, trace)
        page = client(tmp_path / "team.jsonl", forks=True)
        at = next(event.id for event in trace.events if event.type == "return")
        inside = []
        again = attached(forks=True).fork
        assert again is not None

        def watched(*given: Any) -> Any:
            inside.append(1)
            assert len(inside) == 1, "two forks at once"
            try:
                return again(*given)
            finally:
                inside.pop()

        app = make_app(Library([tmp_path / "team.jsonl"]), Attached(fork=watched))
        page = TestClient(app, base_url="http://127.0.0.1:8321")
        with ThreadPoolExecutor(6) as pool:
            changes = [{"at": at, "do": "replace", "text": str(n)} for n in range(6)]
            made = list(pool.map(lambda change: self.post(page, "fork", change, **where), changes))
        assert len({each["id"] for each in made}) == 6

    def test_one_that_is_called_off_ends(self, tmp_path: Path, trace: Trace) -> None:
        where = self.place(tmp_path, trace)
        begun = threading.Event()

        def slow(_at: Path, _trace: Trace, _change: Change, watch: ForkWatch) -> ForkMade:
            begun.set()
            for _ in range(200):
                watch.events += 1
                watch.check()
                time.sleep(0.02)
            raise AssertionError("it was called off")

        app = make_app(Library([tmp_path / "team.jsonl"]), Attached(fork=slow))
        page = TestClient(app, base_url="http://127.0.0.1:8321")
        change = {"at": trace.events[0].id, "do": "drop"}
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(self.post, page, "fork", change, **where, job="a")
            assert begun.wait(5)
            second = pool.submit(self.post, page, "fork", change, **where, job="b")
            while ask(page, "forking", job="b")["state"] == "none":
                time.sleep(0.01)
            assert ask(page, "forking", job="a")["state"] == "running"
            assert ask(page, "forking", job="b") == {"state": "waiting", "before": 1}
            for job in ("b", "a"):
                assert self.post(page, "cancel", job=job) == {"cancelled": True}
            assert "called off" in first.result()["error"]
            assert "called off" in second.result()["error"]
        assert self.post(page, "cancel", job="a") == {"cancelled": False}

    def test_one_can_be_kept_on_disk(self, tmp_path: Path, trace: Trace) -> None:
        runs = tmp_path / "runs"
        runs.mkdir()
        write(trace, runs / "team.jsonl")
        where = {"place": "runs/team.jsonl", "id": trace.trace_id}
        page = client(runs, forks=True)
        at = next(event.id for event in trace.events if event.type == "return")
        made = self.post(page, "fork", {"at": at, "do": "replace", "text": "7"}, **where)
        found = self.post(page, "save", place="runs/team.jsonl", id=made["id"])
        assert found == {"saved": str(runs / "team-forks")}
        (kept,) = read_all(runs / "team-forks")
        assert kept.trace_id == made["id"]
        assert "no fork" in self.post(page, "save", **where)["error"]
        fresh = client(runs)
        assert ask(fresh, "where", id=trace.trace_id)["places"] == ["runs/team.jsonl"]
        assert ask(fresh, "where", id=made["id"])["places"] == ["runs/team-forks"]

    def test_a_stop_that_stops_nothing_is_told(self, tmp_path: Path) -> None:
        game = run_team("game:parallel-pandora", "centralized", 2001, "optimal")
        where = self.place(tmp_path, game)
        page = client(tmp_path / "team.jsonl", forks=True)
        at = next(event.id for event in game.events if event.options is not None)
        made = self.post(page, "fork", {"at": at, "do": "stop", "text": "no such box"}, **where)
        assert "played on: 'no such box'" in made["note"]
        assert "options are" in made["note"]


def test_one_event_more_shifts_no_other(trace: Trace) -> None:
    place = next(n for n, event in enumerate(trace.events) if event.type == "tool_call")
    new = structs.replace(trace.events[place], id="inserted", content_ref=None, tool="other")
    events = [*trace.events[:place], new, *trace.events[place:]]
    # Ids count, as a run's do: all after the new one are called otherwise.
    numbered = [structs.replace(event, id=f"e{n}", seq=n) for n, event in enumerate(events)]
    after = structs.replace(trace, events=tuple(numbered), edges=())
    before = structs.replace(
        trace, events=tuple(structs.replace(e, id=f"e{n}") for n, e in enumerate(trace.events)), edges=()
    )
    found = compare(before, after)
    assert len(found["same"]) == len(trace.events)
    assert (found["changed"], found["removed"], found["added"]) == ([], [], [place])


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("the sum is 12", "the sum is 13.", [("same", "the sum is "), ("gone", "12"), ("new", "13.")]),
        ("", "new", [("new", "new")]),
        ("a b", "a b", [("same", "a b")]),
        ("日本 語", "日本 画", [("same", "日本 "), ("gone", "語"), ("new", "画")]),
    ],
)
def test_what_changed_in_a_text(before: str, after: str, found: list[tuple[str, str]]) -> None:
    assert changed_words(before, after) == found
    assert "".join(text for kind, text in found if kind != "new") == before


def test_a_decision_is_called_by_what_it_chose() -> None:
    game = run_team("game:parallel-pandora", "centralized", 2001, "random")
    made = picture(game)["events"]["chosen"]
    for event, chosen in zip(game.events, made, strict=True):
        if event.options is not None and event.type == "orchestrator_decision":
            assert event.choice is not None
            assert chosen == event.options[event.choice]
        else:
            assert chosen is None
