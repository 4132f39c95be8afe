"""The viewer without a browser: what it answers, to whom, and what it says of files that cannot be read."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from starlette.testclient import TestClient
from strategies import arbitrary_traces, valid_traces
from viewer_runs import (
    BIDI,
    LONG,
    SCRIPT,
    credited,
    hostile,
    more_training,
    odd,
    run_team,
    tainted,
    training_run,
)

from baton.cli import main
from baton.cli.view import attached
from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.parallel import span
from baton.trace import Edge, Trace, read, write
from baton.trace.formats.parquet.sealing import seal_store
from baton.trace.formats.sqlite.store import write_store
from baton.view.web.assets import PAGE, bundle
from baton.view.web.attached import Attached
from baton.view.web.diff import compare
from baton.view.web.picture import picture
from baton.view.web.server import make_app
from baton.view.web.traces import Library


def client(*paths: Path, forks: bool = False, base_url: str = "http://127.0.0.1:8321") -> TestClient:
    return TestClient(make_app(Library(paths), attached(forks=forks)), base_url=base_url)


def ask(page: TestClient, name: str, **query: object) -> Any:
    return page.get(f"/api/{name}", params={key: str(value) for key, value in query.items()}).json()


def rows(page: TestClient, place: str) -> list[dict[str, Any]]:
    for _ in range(400):
        found = ask(page, "table", q=f'place="{place}"', place=place)
        if "error" in found:
            raise AssertionError(found["error"])
        if found["progress"]["complete"]:
            return list(found["rows"])
        time.sleep(0.1)
    raise AssertionError("the list is never complete")


def problem(page: TestClient, place: str) -> str:
    """Why a place cannot be read."""
    for _ in range(400):
        (*found,) = ask(page, "table", place=place)["progress"]["problems"]
        if found:
            return str(found[0]["why"])
        time.sleep(0.1)
    raise AssertionError("nothing is wrong")


@pytest.fixture(scope="module")
def team() -> Trace:
    return credited(run_team("shard-sum", "hierarchical", 3))


@pytest.fixture
def file(tmp_path: Path, team: Trace) -> Path:
    path = tmp_path / "team.jsonl"
    write(team, path)
    return path


class TestSafety:
    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "10.0.0.1:8321"])
    def test_other_hosts_are_refused(self, file: Path, host: str) -> None:
        reply = client(file).get("/api/setup", headers={"host": host})
        assert reply.status_code == 403
        assert "token" not in reply.json()

    @pytest.mark.parametrize("host", ["localhost:99", "127.0.0.1", "[::1]:8321"])
    def test_this_machine_is_answered(self, file: Path, host: str) -> None:
        assert client(file).get("/api/setup", headers={"host": host}).status_code == 200

    def test_pages_of_others_get_no_answers(self, file: Path) -> None:
        page = client(file)
        assert page.get("/api/setup", headers={"sec-fetch-site": "cross-site"}).status_code == 403
        assert (
            page.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200
        )  # a link may lead here

    def test_every_reply_carries_the_policy(self, file: Path) -> None:
        page = client(file)
        for path in ("/", "/page/all.js", "/api/setup", "/api/nothing", "/nowhere"):
            policy = page.get(path).headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "require-trusted-types-for 'script'" in policy

    @pytest.mark.parametrize("name", ["../server.py", "..%2f..%2ferrors.py", "/etc/passwd", "app.js"])
    def test_only_its_own_files_are_served(self, file: Path, name: str) -> None:
        assert client(file).get(f"/page/{name}").status_code == 404

    def test_places_are_never_paths(self, file: Path, tmp_path: Path) -> None:
        other = tmp_path.parent / "secret.jsonl"
        other.write_bytes(file.read_bytes())
        for place in ("secret.jsonl", str(other), "team.jsonl/../../secret.jsonl"):
            assert "there is no place" in ask(client(file), "table", place=place)["error"]

    def test_a_change_needs_the_token_and_the_own_origin(self, file: Path, team: Trace) -> None:
        page = client(file, forks=True)
        token = ask(page, "setup")["token"]
        own = {"origin": "http://127.0.0.1:8321", "x-baton-token": token}
        where = "/api/fork?place=team.jsonl&id=" + team.trace_id
        for headers in ({}, {**own, "x-baton-token": "no"}, {**own, "origin": "http://evil.example"}):
            assert page.post(where, headers=headers, content=b"{}").status_code == 403
        reply = page.post(where, headers=own, content=b"{}")
        assert reply.status_code == 400
        assert "cannot be read" in reply.json()["error"]

    def test_a_runtime_that_is_not_attached_changes_nothing(self, file: Path, team: Trace) -> None:
        page = client(file)
        headers = {"origin": "http://127.0.0.1:8321", "x-baton-token": ask(page, "setup")["token"]}
        body = b'{"at": "lead1#1", "do": "drop"}'
        reply = page.post(f"/api/fork?place=team.jsonl&id={team.trace_id}", headers=headers, content=body)
        assert "--fork" in reply.json()["error"]


class TestPicture:
    def test_columns_are_rows_of_the_trace(self, team: Trace) -> None:
        made = picture(team)
        for name, column in made["events"].items():
            assert len(column) == len(team.events), name
        names = made["agents"]["name"]
        assert [names[lane] for lane in made["events"]["lane"]] == [event.agent for event in team.events]
        assert made["agents"]["parent"][0] == -1
        assert all(parent < lane for lane, parent in enumerate(made["agents"]["parent"]))

    def test_what_was_not_measured_is_none(self, team: Trace) -> None:
        bare = structs.replace(
            team, events=tuple(structs.replace(e, tokens=None, duration_s=None) for e in team.events)
        )
        made = picture(bare)
        assert set(made["events"]["tokens"]) == {None}
        assert made["critical"] is None
        assert made["trace"]["figures"]["span_s"] is None

    def test_the_critical_path_is_as_long_as_the_measured_span(self) -> None:
        for topology in ("hierarchical", "debate", "swarm"):
            trace = run_team("shard-sum", topology, 1)
            made = picture(trace)
            assert made["span_s"] == pytest.approx(span.of(MeasuredTrace(trace)))
            seqs = [trace.events[i].seq for i in made["critical"]]
            assert seqs == sorted(seqs)

    def test_edges_to_nowhere_are_left_out_and_said(self, team: Trace) -> None:
        made = picture(structs.replace(team, edges=(*team.edges, Edge("ghost", team.events[0].id, "causal"))))
        assert len(made["edges"]["src"]) == len(team.edges)
        assert any("1 of" in note for note in made["notes"])

    @settings(max_examples=25)
    @given(arbitrary_traces() | valid_traces())
    def test_any_trace_can_be_drawn(self, trace: Trace) -> None:
        made = picture(trace)
        assert len(made["events"]["id"]) == len(trace.events)
        assert json.dumps(made, default=str)

    def test_channels_keep_units_and_values(self, team: Trace) -> None:
        found = {(one["kind"], one["name"], one["unit"]): one for one in picture(team)["channels"]}
        shapley = found["credit", "shapley", "agent"]
        assert shapley["on"] == "agent"
        assert sum(shapley["value"]) == pytest.approx(
            sum(credit.value for credit in team.credits if credit.estimator == "shapley")
        )
        assert found["credit", "turn-group", "turn"]["on"] == "call"
        assert found["reward", "parl", "team"]["value"] == [1.35]
        ((event, lane, value),) = found["credit", "message-replay", "message"]["receivers"]
        assert team.events[event].to == picture(team)["agents"]["name"][lane]
        assert value == 0.4


class TestDetail:
    def test_an_event_says_what_it_said_and_earned(self, file: Path, team: Trace) -> None:
        at = team.position["lead1.worker1#2"]
        found = ask(client(file), "event", place="team.jsonl", id=team.trace_id, at=at)
        assert found["content"]["text"] == team.text(team.events[at].content_ref)
        assert {one["name"] for one in found["worth"]} >= {"shapley", "turn-group"}
        assert all(team.events[other].seq < team.events[at].seq for other, _, _ in found["into"])

    def test_tokens_carry_their_advantage(self, file: Path, team: Trace) -> None:
        found = ask(client(file), "call", place="team.jsonl", id=team.trace_id, at=0)
        assert "".join(found["tokens"]) == team.text(team.calls[0].completion_ref)
        by_name = {one["name"]: one["values"] for one in found["advantages"]}
        want = next(c.value for c in team.credits if c.unit == "turn" and c.target == team.calls[0].id)
        assert by_name["turn-group"] == pytest.approx([want] * len(found["tokens"]))

    def test_long_content_comes_when_it_is_asked_for(self, tmp_path: Path) -> None:
        hostile(tmp_path / "bad.jsonl")
        trace = read(tmp_path / "bad.jsonl")
        page = client(tmp_path / "bad.jsonl")
        at = next(i for i, event in enumerate(trace.events) if event.type == "tool_result")
        found = ask(page, "event", place="bad.jsonl", id=trace.trace_id, at=at)["content"]
        assert found["characters"] > len(LONG) > len(found["text"])
        whole = ask(page, "content", place="bad.jsonl", id=trace.trace_id, ref=found["ref"])
        assert whole["text"].endswith(LONG)

    @pytest.mark.parametrize("at", ["-1", "99999", "x", "1e3", "٣"])
    def test_what_is_not_there_is_a_sentence(self, file: Path, team: Trace, at: str) -> None:
        assert "error" in ask(client(file), "event", place="team.jsonl", id=team.trace_id, at=at)

    def test_taint_reaches_the_payment(self, tmp_path: Path) -> None:
        tainted(tmp_path / "pay.jsonl")
        trace = read(tmp_path / "pay.jsonl")
        found = ask(client(tmp_path / "pay.jsonl"), "taint", place="pay.jsonl", id=trace.trace_id)
        (violation,) = found["violations"]
        assert trace.events[violation].tool == "pay"
        assert "clean" not in found["agents"]

    def test_the_ledger_adds_up(self, tmp_path: Path) -> None:
        trace = run_team("game:parallel-pandora", "centralized", 2001, "random")
        write(trace, tmp_path / "game.jsonl")
        found = ask(client(tmp_path / "game.jsonl"), "ledger", place="game.jsonl", id=trace.trace_id)
        assert found["value"] == pytest.approx(
            found["optimum"] - sum(found["parts"].values()) + found["luck"]
        )
        assert sum(loss["regret"] for loss in found["losses"]) == pytest.approx(sum(found["parts"].values()))
        assert [trace.events[loss["row"]].id for loss in found["losses"]] == [
            loss["event"] for loss in found["losses"]
        ]

    def test_other_traces_say_why_they_have_none(self, file: Path, team: Trace) -> None:
        assert "no game" in ask(client(file), "ledger", place="team.jsonl", id=team.trace_id)["why_not"]


class TestPlaces:
    def test_a_directory_of_everything(self, tmp_path: Path, team: Trace) -> None:
        write(team, tmp_path / "one.jsonl")
        (tmp_path / "live").mkdir()
        write_store([team], tmp_path / "live" / "run.db")
        write([read(tmp_path / "one.jsonl")], f"{tmp_path / 'sealed'}/")
        training_run(tmp_path / "trained", steps=2, episodes=2)
        page = client(tmp_path)
        places = {place["key"].split("/", 1)[1]: place["training"] for place in ask(page, "setup")["places"]}
        assert places == {"one.jsonl": False, "live": False, "sealed": False, "trained": True}
        for name in ("one.jsonl", "live", "sealed"):
            (row,) = rows(page, f"{tmp_path.name}/{name}")
            assert (row["id"], row["events"], row["reward"]) == (team.trace_id, len(team.events), 2.35)
            found = ask(page, "trace", place=f"{tmp_path.name}/{name}", id=team.trace_id)
            assert found["events"]["id"] == [event.id for event in team.events]
        assert len(rows(page, f"{tmp_path.name}/trained")) == 2 * 2 + 4

    def test_a_list_grows_with_its_store(self, tmp_path: Path, team: Trace) -> None:
        write_store([team], tmp_path / "run.db")
        page = client(tmp_path)
        assert len(rows(page, tmp_path.name)) == 1
        write_store(
            [structs.replace(team, header=structs.replace(team.header, trace_id="two"))], tmp_path / "run.db"
        )
        assert {row["id"] for row in rows(page, tmp_path.name)} == {team.trace_id, "two"}

    def test_what_is_sealed_beside_a_store_stays_in_the_list(self, tmp_path: Path, team: Trace) -> None:
        two = structs.replace(team, header=structs.replace(team.header, trace_id="two"))
        write_store([team], tmp_path / "run.db")
        page = client(tmp_path)
        assert len(rows(page, tmp_path.name)) == 1
        seal_store(tmp_path / "run.db", tmp_path)
        write_store([two], tmp_path / "run.db")
        for looking in (page, client(tmp_path)):
            assert {row["id"] for row in rows(looking, tmp_path.name)} == {team.trace_id, "two"}
            for name in (team.trace_id, "two"):
                found = ask(looking, "trace", place=tmp_path.name, id=name)
                assert len(found["events"]["id"]) == len(team.events)

    def test_a_run_in_a_folder_named_like_a_shard(self, tmp_path: Path, team: Trace) -> None:
        (tmp_path / "shard-sum").mkdir()
        write_store([team], tmp_path / "shard-sum" / "run.db")
        assert len(rows(client(tmp_path), f"{tmp_path.name}/shard-sum")) == 1

    def test_a_trace_that_is_being_written(self, tmp_path: Path, team: Trace) -> None:
        path = tmp_path / "live.jsonl"
        write(team, path)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:40]) + lines[40][:10])
        page = client(path)
        before = ask(page, "trace", place="live.jsonl", id=team.trace_id)
        assert not before["trace"]["finished"]
        path.write_bytes(b"".join(lines))
        assert ask(page, "stamp", place="live.jsonl", id=team.trace_id)["stamp"] != before["stamp"]
        assert ask(page, "trace", place="live.jsonl", id=team.trace_id)["trace"]["finished"]

    def test_damage_is_a_sentence(self, tmp_path: Path, team: Trace) -> None:
        write_store([team], tmp_path / "run.db")
        raw = bytearray((tmp_path / "run.db").read_bytes())
        raw[len(raw) // 2 :: 97] = b"\xff" * len(raw[len(raw) // 2 :: 97])
        (tmp_path / "run.db").write_bytes(raw)
        page = client(tmp_path / "run.db")
        assert "damaged" in problem(page, "run.db")
        assert "damaged" in ask(page, "trace", place="run.db", id=team.trace_id)["error"]
        (tmp_path / "junk.jsonl").write_bytes(b"\x00\x01nonsense")
        assert "no trace" in problem(client(tmp_path / "junk.jsonl"), "junk.jsonl")

    @pytest.mark.parametrize("trace", odd(), ids=lambda trace: trace.trace_id)
    def test_an_odd_trace_is_answered(self, tmp_path: Path, trace: Trace) -> None:
        write(trace, tmp_path / "odd.jsonl")
        assert "error" not in ask(
            client(tmp_path / "odd.jsonl"), "trace", place="odd.jsonl", id=trace.trace_id
        )

    def test_a_file_that_went_away(self, file: Path, team: Trace) -> None:
        page = client(file)
        file.unlink()
        assert "error" in ask(page, "trace", place="team.jsonl", id=team.trace_id)

    def test_a_run_that_has_only_begun(self, tmp_path: Path) -> None:
        training_run(tmp_path / "run", steps=1, episodes=2, status="running")
        (tmp_path / "run" / "traces" / "run.db").unlink()
        (tmp_path / "run" / "metrics.jsonl").unlink()
        page = client(tmp_path / "run")
        assert rows(page, "run") == []
        assert ask(page, "training", place="run")["done"] == 0

    def test_training_goes_on_and_bad_lines_are_counted(self, tmp_path: Path) -> None:
        training_run(tmp_path / "run", steps=2, episodes=2, status="running")
        page = client(tmp_path / "run")
        first = ask(page, "training", place="run")
        assert (first["done"], first["status"]) == (2, "running")
        assert ask(page, "training", place="run", stamp=first["stamp"]) == {
            "stamp": first["stamp"],
            "unchanged": True,
        }
        more_training(tmp_path / "run", 2)
        with (tmp_path / "run" / "metrics.jsonl").open("a") as lines:
            lines.write('[1]\n{"step": 3, "half-wri')
        found = ask(page, "training", place="run", stamp=first["stamp"])
        assert found["done"] == 3
        assert "1 line of the run’s files cannot be read" in json.dumps(found["heading"], ensure_ascii=False)

    def test_what_a_run_says_reaches_the_page_as_text(self, tmp_path: Path) -> None:
        training_run(tmp_path / "run", steps=2, episodes=2, status="running")
        told = json.loads((tmp_path / "run" / "run.json").read_text())
        (tmp_path / "run" / "run.json").write_text(
            json.dumps({**told, "about": SCRIPT, "recipe": f'"{SCRIPT}'})
        )
        found = ask(client(tmp_path / "run"), "training", place="run")

        def tags(element: Any) -> set[str]:
            if isinstance(element, str):
                return set()
            return {element[0]}.union(*map(tags, element[2]))

        shown = [*found["heading"], *(each for part in found["sections"] for each in part["body"])]
        assert "script" not in set[str]().union(*map(tags, shown))
        assert ["p", {}, [SCRIPT]] in found["heading"]


class TestDiff:
    def test_a_fork_differs_where_it_was_changed(self, file: Path, team: Trace) -> None:
        page = client(file, forks=True)
        headers = {"origin": "http://127.0.0.1:8321", "x-baton-token": ask(page, "setup")["token"]}
        body = json.dumps({"at": "lead1.worker1#2", "do": "replace", "text": "0"}).encode()
        made = page.post(
            f"/api/fork?place=team.jsonl&id={team.trace_id}", headers=headers, content=body
        ).json()
        assert made["calls_reused"] > 0
        found = ask(page, "diff", place="team.jsonl", id=team.trace_id, place2="team.jsonl", id2=made["id"])
        changed = {team.events[a].id: what for a, _, what in found["changed"]}
        assert changed["lead1.worker1#2"] == ["content"]
        shared = next(one for one in found["deltas"] if one["what"] == "shared")
        assert shared["values"] == [1.0, 0.0]
        assert {row["id"] for row in rows(page, "team.jsonl")} == {team.trace_id, made["id"]}

    def test_games_are_compared_by_regret_not_by_luck(self, tmp_path: Path) -> None:
        worse = run_team("game:parallel-pandora", "centralized", 2001, "random")
        better = run_team("game:parallel-pandora", "centralized", 2001, "optimal")
        better = structs.replace(better, header=structs.replace(better.header, trace_id="better"))
        write([worse, better], tmp_path / "games.jsonl")
        page, place = client(tmp_path / "games.jsonl"), "games.jsonl"
        found = ask(page, "diff", place=place, id=worse.trace_id, place2=place, id2="better")
        values = {one["what"]: one["values"] for one in found["deltas"]}
        assert values["regret"][0] > values["regret"][1] == 0.0
        assert len(values["luck"]) == 2

    def test_a_trace_is_itself(self, team: Trace) -> None:
        found = compare(team, team)
        assert len(found["same"]) == len(team.events)
        assert not any(
            found[name] for name in ("changed", "added", "removed", "agents_added", "agents_removed")
        )

    @settings(max_examples=25)
    @given(valid_traces(), valid_traces() | arbitrary_traces(), st.booleans())
    def test_every_event_is_in_one_row(self, left: Trace, right: Trace, again: bool) -> None:
        found = compare(left, left if again else right)
        of_left = [a for a, _ in found["same"]] + [a for a, _, _ in found["changed"]] + found["removed"]
        of_right = [b for _, b in found["same"]] + [b for _, b, _ in found["changed"]] + found["added"]
        assert sorted(of_left) == list(range(len(left.events)))
        assert sorted(of_right) == list(range(len((left if again else right).events)))


class TestExport:
    def test_one_file_without_markup_from_the_trace(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        hostile(tmp_path / "bad.jsonl")
        out = tmp_path / "bad.html"
        assert main(["export", "html", str(tmp_path / "bad.jsonl"), "--out", str(out)]) == 0
        page = out.read_text("utf-8")
        assert "default-src 'none'" in page.replace("&#x27;", "'")
        assert SCRIPT not in page
        assert BIDI not in page
        assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", page)
        inside = re.search(r'id="answers">(.*?)</script>', page, re.DOTALL)
        assert inside is not None
        assert "<" not in inside[1]
        assert json.loads(inside[1])["trace"]["trace"]["task"] == SCRIPT
        assert main(["export", "html", str(tmp_path / "bad.jsonl"), "--out", str(out)]) == 2
        assert "--force" in capsys.readouterr().err

    def test_payloads_can_stay_at_home(self, tmp_path: Path, file: Path, team: Trace) -> None:
        out = tmp_path / "bare.html"
        assert main(["export", "html", str(file), "--out", str(out), "--without-payloads"]) == 0
        assert str(team.text(team.calls[0].completion_ref)) not in out.read_text("utf-8")

    def test_the_bundle_holds_every_module_once(self) -> None:
        script = bundle("app")
        names = sorted(path.stem for path in PAGE.glob("*.js"))
        assert [name for name in names if script.count(f"const module_{name} = ") != 1] == []
        assert not re.search(r"^(?:import|export) ", script, re.MULTILINE)
        assert "</script" not in script

    def test_the_page_never_makes_markup(self) -> None:
        for path in PAGE.glob("*.js"):
            source = path.read_text("utf-8")
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", source
            ), path


class TestCommand:
    def test_mistakes_are_one_line(
        self, tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for nothing in ("nowhere", "empty"):
            assert main(["view", str(tmp_path / nothing)]) == 2
            assert "baton run" in capsys.readouterr().err
            (tmp_path / "empty").mkdir(exist_ok=True)
        (tmp_path / "page.md").write_text("# no trace\n")
        assert main(["view", str(tmp_path / "page.md")]) == 2
        assert "which is no trace" in capsys.readouterr().err
        assert main(["view", str(file), "--policy", "table"]) == 2
        assert "--fork" in capsys.readouterr().err
        with pytest.raises(SystemExit):
            main(["view", str(file), "--port", "seventy"])

    def test_nothing_attached_is_said(self, file: Path, team: Trace) -> None:
        page = TestClient(make_app(Library([file]), Attached()), base_url="http://localhost")
        assert "solver" in ask(page, "ledger", place="team.jsonl", id=team.trace_id)["why_not"]
