"""`baton replay`: identical, or an error that says what has changed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from changed import unsealed
from cli_runs import made, traces
from msgspec import structs

import baton
from baton.cli import main
from baton.compose.again import recorded_team
from baton.team.protocol import Entry
from baton.team.topology import TOPOLOGIES
from baton.trace.formats import write
from baton.trace.records import Ints


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_identical_in_every_format(topology: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "out", topology=topology)
    (trace,) = traces(tmp_path / "out")
    write(trace, tmp_path / "trace.jsonl")
    for place in (tmp_path / "out", tmp_path / "out" / "run.db", tmp_path / "trace.jsonl"):
        capsys.readouterr()
        assert main(["replay", str(place)]) == 0
        out = capsys.readouterr().out
        assert out.rstrip().endswith("identical")
        assert f"{len(trace.events)} events, no model was asked" in out


def tampered(tmp_path: Path, before: str, after: str) -> Path:
    """The example's trace with some of its text changed."""
    made(tmp_path / "out")
    path = tmp_path / "trace.jsonl"
    write(traces(tmp_path / "out")[0], path)
    text = unsealed(path.read_text())
    assert before in text
    text = text.replace(before, after, 1)
    path.write_text(re.sub(r',"crc":\d+}\n$', "}\n", text))  # who changes a file takes its checksum away
    return path


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('"settings":{', '"settings":{"seed":1,', "does not repeat its trace"),
        ('"settings":{', '"sittings":{', "was not made by `baton run`"),
        ('"topology":"centralized","policies"', '"topology":"swarm","policies"', "harness"),
        ('"to":"worker2"', '"to":"worker3"', "worker"),
    ],
    ids=["another seed", "no settings", "another topology", "another event"],
)
def test_a_changed_trace_is_not_replayed(
    before: str, after: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tampered(tmp_path, before, after)
    capsys.readouterr()
    assert main(["replay", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_a_store_changed_by_hand_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(tmp_path / "out") / "run.db"
    raw = path.read_bytes()
    at = raw.rindex(b"read_shard")
    path.write_bytes(raw[:at] + b"READ_SHARD" + raw[at + 10 :])
    capsys.readouterr()
    assert main(["replay", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("baton replay: ")


def test_which_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path)
    made(tmp_path, "--seed", "1")
    capsys.readouterr()
    assert main(["replay", str(tmp_path)]) == 2
    assert "holds 2 traces. Type: --trace ID" in capsys.readouterr().err
    assert main(["replay", str(tmp_path), "--trace", "shard-sum-centralized-1"]) == 0
    assert main(["replay", str(tmp_path), "--trace", "shard-sum-centralised-1"]) == 2
    assert "Did you mean 'shard-sum-centralized-1'?" in capsys.readouterr().err


def test_a_trace_of_another_system_has_nothing_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = Path(__file__).parents[1] / "golden" / "v1"
    assert main(["replay", str(next(golden.glob("*.jsonl")))]) == 2
    assert "was not made by `baton run`" in capsys.readouterr().err
    (tmp_path / "x.jsonl").write_text(json.dumps({"kind": "nonsense"}) + "\n")
    assert main(["replay", str(tmp_path / "x.jsonl")]) == 2
    assert main(["replay", str(tmp_path / "none")]) == 2


def test_each_role_reads_by_its_own_record_what_another_reads_through_another_tokenizer() -> None:
    trace = baton.run("shard-sum")
    first = trace.calls[0]
    other = next(call for call in trace.calls if call.role == "worker")
    other = structs.replace(other, prompt_ref=first.prompt_ref, parent=None, prompt_ids=Ints([1, 2]))
    meta = trace.header.meta
    named = {"run": meta["run"] | {"policies": {"orchestrator": "a", "worker": "b"}}}
    header = structs.replace(trace.header, meta=meta | named)
    team, _ = recorded_team(None, structs.replace(trace, header=header, calls=(first, other)))
    entries = msgspec.json.decode(trace.text(first.prompt_ref) or "", type=list[Entry])
    assert team.engines["worker"].encode(entries, None) == Ints([1, 2])
    assert team.engines["orchestrator"].encode(entries, None) == first.prompt_ids
