"""Rollout workers as actors of a Ray cluster: two raylets on this machine. `make test-ray` runs these."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import GROUP, small

from baton.compose.training import make_trainer
from baton.errors import BatonError
from baton.learn.trainer import Trainer
from baton.trace.formats.jsonl import encode_trace, read_bytes

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("first_weights")]
ray: Any = pytest.importorskip("ray", reason="Ray has an environment of its own: make test-ray")


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.nodes_added = [made.add_node(num_cpus=1)]
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def recipe(cluster: Any, **scale: Any) -> Any:
    changes = {f"scale__{name}": value for name, value in scale.items()}
    return small(
        GROUP,
        scale__batch=1,
        scale__rollout_workers=2,
        scale__workers="ray",
        scale__address=cluster.address,
        **changes,
    )


def steps(
    trainer: Trainer, before: Callable[[int, Any], None] = lambda *_: None
) -> tuple[list[list[bytes]], dict[str, torch.Tensor], list[Any]]:
    """Traces of two steps, the weights after them, and metrics; `before` each step something may happen."""
    try:
        found = []
        for number in (1, 2):
            before(number, trainer.rollouts._elsewhere)
            found.append(trainer.step())
        written = [[b"".join(encode_trace(trace)) for trace in each.traces] for each in found]
        return written, trainer.policies["main"].state_dict(), [each.metrics for each in found]
    finally:
        trainer.close()


def check_same(found: Any, expected: Any) -> None:
    assert found[0] == expected[0]
    assert all(torch.equal(found[1][key], expected[1][key]) for key in expected[1])


def test_a_killed_actor_and_a_machine_that_goes_change_no_digit(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from baton.learn.scale import ray_workers

    monkeypatch.setattr(ray_workers, "_REACH_SECONDS", 5.0)
    expected = steps(make_trainer(small(GROUP, scale__batch=1)))
    notes: list[str] = []

    def harm(number: int, players: Any) -> None:
        if number == 1:
            return
        seat = players._places[0].seat
        os.kill(seat.pid, signal.SIGKILL)
        threading.Timer(0.5, lambda: cluster.remove_node(cluster.nodes_added[0])).start()
        threading.Timer(1.0, lambda: cluster.add_node(num_cpus=1)).start()

    found = steps(make_trainer(recipe(cluster), progress=notes.append), harm)
    check_same(found, expected)
    assert found[2][0]["num_workers"] == 2
    assert found[2][1]["worker_deaths"] >= 1, (notes, found[2])


def test_actors_ask_a_server_and_a_killed_one_changes_no_draw(cluster: Any) -> None:
    """The server is a mock; what an adapter answers there hangs on its name and the seed alone."""
    from mock_vllm_weights import mock_vllm

    plain = make_trainer(small())
    model = plain.policies["main"].model
    plain.close()

    def played(harm: Callable[[int, Any], None], **scale: Any) -> Any:
        with mock_vllm(model) as (_, url):
            changes = {f"scale__{name}": value for name, value in scale.items()}
            trained = {"policies__main__train": "lora", "policies__main__engine": f"vllm:{url}"}
            return steps(make_trainer(small(GROUP, **trained, **changes)), harm)

    def kill(number: int, players: Any) -> None:
        if number == 2:
            os.kill(players._places[0].seat.pid, signal.SIGKILL)

    expected = played(lambda *_: None)
    found = played(kill, rollout_workers=2, workers="ray", address=cluster.address, lag=0)
    for mine, theirs in zip(found[0], expected[0], strict=True):
        assert [drawn(each) for each in mine] == [drawn(each) for each in theirs]
    assert sum(each["worker_deaths"] for each in found[2]) >= 1
    assert found[2][1]["push_gap"]["main"] < 1e-4


def drawn(content: bytes) -> Any:
    (trace,) = read_bytes(content)
    return [(call.policy_version, list(call.completion_ids or ())) for call in trace.calls]


def test_a_cluster_without_room_is_one_line(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from baton.learn.scale import ray_workers

    monkeypatch.setattr(ray_workers, "_PLACED_SECONDS", 2.0)
    trainer = make_trainer(recipe(cluster, worker_gpus=1))
    with pytest.raises(
        BatonError, match=r"no room for 2 workers of 1 CPU and 1 GPU .*2 CPUs and 0 GPUs on 2 machines"
    ) as said:
        trainer.step()
    trainer.close()
    assert "\n" not in str(said.value)


def test_no_cluster_is_one_line() -> None:
    trainer = make_trainer(
        small(scale__rollout_workers=1, scale__workers="ray", scale__address="127.0.0.1:1")
    )
    with pytest.raises(BatonError, match=r"no Ray cluster can be reached at 127\.0\.0\.1:1") as said:
        trainer.step()
    trainer.close()
    assert "\n" not in str(said.value)


def test_a_driver_that_is_killed_leaves_no_actor(cluster: Any, tmp_path: Path) -> None:
    import subprocess
    import sys

    from child_process import with_support

    told = tmp_path / "pids"
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom small_run import GROUP, small\n"
        "from baton.compose.training import make_trainer\n"
        f"t = make_trainer(small(GROUP, scale__rollout_workers=2, scale__workers='ray', "
        f"scale__address={cluster.address!r}))\nt.step()\n"
        "pids = [str(p.seat.pid) for p in t.rollouts._elsewhere._places]\n"
        f"Path({str(told)!r}).write_text(' '.join(pids))\ntime.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env=with_support())
    until = time.monotonic() + 120
    while not (told.exists() and told.read_text()) and time.monotonic() < until and process.poll() is None:
        time.sleep(0.1)
    pids = [int(each) for each in told.read_text().split()]
    process.kill()
    process.wait()
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
