"""`baton doctor`: every line is of something that was tried, what is missing says what to type, the exit code counts
only what was asked for."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from mock_servers import MockVllm, mock_server
from tiny_model import tiny_tokenizer

from baton.cli import doctor as command
from baton.cli import main
from baton.compose.doctor import asked, machine, packages
from baton.compose.doctor.diagnosis import Diagnosis, can_run
from baton.learn.recipe import load

ROOT = Path(__file__).parents[2]
TRAINS = [
    Diagnosis(part="torch", state="ok", said="9.9"),
    Diagnosis(part="GPUs", state="missing", said="none"),
    Diagnosis(part="gloo", state="ok", said="tried"),
]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch is not loaded: `test_two_real_processes` does."""
    monkeypatch.setattr(command, "torch", lambda: TRAINS)


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    "changes",
    [
        ["scale.stragglers=carry", "scale.rollout_workers=2"],
        ["policies.main.engine=vlm:http://127.0.0.1:9"],
        ["scale.restarts=7"],
    ],
)
@pytest.mark.usefixtures("quick")
def test_what_training_refuses_is_in_the_way(changes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The words of the refusal itself: nobody learns of it only when the run is started."""
    typed = [word for change in changes for word in ("--set", change)]
    assert main(["doctor", "grpo", *typed, "--json"]) == 1
    bad = [each for each in told(capsys)["recipe"] if each["state"] == "bad"]
    assert [each["part"] for each in bad] == ["recipe"]
    assert changes[0].partition("=")[0] in bad[0]["said"]


@pytest.mark.usefixtures("quick")
def test_every_line_is_of_this_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["doctor", "--json", "--out", str(tmp_path / "not" / "there")]) == 0
    found = told(capsys)
    assert found["can_run"] is True
    lines = {each["part"]: each for each in found["machine"] + found["packages"]}
    assert lines["cores"]["said"].startswith(str(machine.num_cores()))
    assert 1 <= machine.num_cores() <= (os.cpu_count() or 1)
    assert str(tmp_path) in lines["disk"]["said"]
    free = shutil.disk_usage(tmp_path).free
    assert abs(float(lines["disk"]["said"].split()[0].replace(",", "")) - free / 1e9) < 0.1 * free / 1e9
    import importlib.metadata

    assert importlib.metadata.version("transformers") in lines["transformers"]["said"]
    missing = [each for each in found["packages"] if each["state"] == "missing"]
    assert all(each["type"] for each in missing)


@pytest.mark.usefixtures("quick")
def test_what_is_optional_counts_for_nothing_and_what_was_asked_for_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "has", lambda name: False)
    assert main(["doctor", "grpo"]) == 0
    assert "nothing is in the way of grpo" in capsys.readouterr().out
    assert main(["doctor", "grpo", "--set", "scale.rollout_workers=3", "--set", "scale.workers=ray"]) == 1
    said = capsys.readouterr().out
    assert "ray is not installed" in said
    assert "[ray]" in said
    assert said.rstrip().endswith("in the way: scale.workers")


def test_shards_need_gloo_or_as_many_gpus() -> None:
    recipe = load("grpo", ["scale.trainer_processes=3"])
    broken = [*TRAINS[:2], Diagnosis(part="gloo", state="missing", said="nobody answered", type="do it")]
    assert can_run(asked.fits(recipe, TRAINS))
    found = [each for each in asked.fits(recipe, broken) if each.state == "bad"]
    assert [(each.part, each.type) for each in found] == [("scale.trainer_processes", "do it")]
    assert "nobody answered" in found[0].said
    on_gpu = load("grpo", ["scale.trainer_processes=3", "policies.main.device=cuda"])
    two = [TRAINS[0], Diagnosis(part="GPUs", state="ok", said="2: A, B"), TRAINS[2]]
    assert not can_run(asked.fits(on_gpu, TRAINS))
    assert not can_run(asked.fits(on_gpu, two))
    assert can_run(asked.fits(load("grpo", ["scale.trainer_processes=2", "policies.main.device=cuda"]), two))


def test_memory_is_added_up_over_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"x" * 1000)
    (tmp_path / "b.safetensors").write_bytes(b"x" * 500)
    recipe = load(
        "grpo", ["scale.rollout_workers=5", "scale.trainer_processes=2", f"policies.main.model={tmp_path}"]
    )
    # Five workers, two trainers and who leads them; weights in every worker, and four times over the trainers.
    assert asked.memory_needed(recipe) == 8 * asked.BARE_PROCESS + 5 * 1500 + 4 * 1500
    monkeypatch.setattr(asked, "memory_bytes", lambda: (10**12, 10**9))
    assert "memory of it all" in [each.part for each in asked.fits(recipe, TRAINS) if each.state == "bad"]
    elsewhere = load("grpo", ["scale.rollout_workers=1", f"policies.main.model={tmp_path / 'none'}"])
    assert asked.memory_needed(elsewhere) is None  # not measured, and not zero


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["vllm:nowhere"], "has no address. Type: baton doctor vllm:http"),
        (["grqo"], "Did you mean 'grpo'?"),
        (["--set", "scale.lag=1"], "--set changes a recipe"),
        (["--python", "/not/there/python"], "there is no /not/there/python"),
        (["--python", "/etc/passwd"], "did not say what is installed"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_another_environment_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--python", sys.executable, "--json"]) == 0
    found = {each["part"]: each for each in told(capsys)["environment"]}
    assert found["torch"]["state"] == "ok"
    here = {each.part: each.state for each in packages.packages()}
    assert {name: found[name]["state"] for name in ("ray", "vllm")}.items() <= here.items()


class FakeVllm(BaseHTTPRequestHandler):
    """Says what a vLLM server says of itself; answers nothing."""

    paths: tuple[str, ...] = ()

    def do_GET(self) -> None:
        told = {
            "/version": {"version": "0.99.1"},
            "/v1/models": {"data": [{"id": "base"}, {"id": "odd name/ü"}]},
            "/openapi.json": {"paths": {path: {} for path in self.paths}},
        }
        body = json.dumps(told.get(self.path, {})).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: tests are quiet."""


@pytest.fixture
def server() -> Iterator[str]:
    served = HTTPServer(("127.0.0.1", 0), FakeVllm)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()
    served.server_close()


def test_a_server_says_what_it_lacks(
    server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeVllm, "paths", ("/pause", "/v1/load_lora_adapter"))
    assert main(["doctor", f"vllm:{server}/v1"]) == 1
    said = capsys.readouterr().out
    assert "vLLM 0.99.1, with base, odd name/ü" in said
    assert "--enable-scale-out" in said
    assert "VLLM_SERVER_DEV_MODE" not in said
    monkeypatch.setattr(FakeVllm, "paths", tuple(asked._PATHS))
    assert main(["doctor", f"vllm:{server}"]) == 0


def test_no_server_and_another_one(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert main(["doctor", f"vllm:http://127.0.0.1:{port}"]) == 1
    assert "no vLLM server answers there" in capsys.readouterr().out


def test_a_torch_that_cannot_be_loaded_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.sys, "executable", shutil.which("false"))
    found = machine.torch(5.0)
    assert [(each.part, each.state) for each in found] == [("torch", "bad")]
    assert found[0].type


def test_an_old_python_and_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert machine.python((3, 9)).state == "bad"
    assert machine.python((3, 12)).state == "ok"
    whole = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: whole._replace(free=3_000_000))
    found = next(machine.disk(tmp_path))
    assert (found.state, found.said.startswith("3 MB free")) == ("bad", True)
    assert found.type


def test_a_containers_limits_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in {
        "cpu.max": "150000 100000",
        "memory.max": "400000000",
        "memory.current": "300000000",
    }.items():
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    assert machine.num_cores() == 1
    assert machine.memory_bytes() == (400_000_000, 100_000_000)
    assert machine.memory().state == "missing"


def test_every_extra_that_is_named_is_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for each in packages.PACKAGES:
        assert each.extra in extras, each.name
        inner = [name for name in extras if f"baton-rl[{name}]" in extras[each.extra]]
        every = [line for name in (each.extra, *inner) for line in extras[name]]
        assert any(line.lower().startswith(each.name.lower()) for line in every), each.name


def test_two_real_processes() -> None:
    found = {each.part: each for each in machine.torch()}
    import torch

    assert torch.__version__ in found["torch"].said
    assert found["gloo"].state == "ok", found["gloo"].said


@pytest.mark.parametrize(
    ("mock", "state", "said"),
    [
        ({}, "ok", "reads and writes as"),
        ({"processed": False}, "bad", "not of what was drawn from"),
        ({"vllm": "0.10.2"}, "bad", "expected 0.11 or newer"),
    ],
)
def test_a_server_of_another_kind_or_with_other_numbers(
    mock: dict[str, Any], state: str, said: str, tmp_path: Path
) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    with mock_server(MockVllm(tokenizer, "ok<|im_end|>", **mock)) as server:
        found = asked._right_one(server.url, "base", tmp_path)
    assert (found.state, said in found.said) == (state, True), found
