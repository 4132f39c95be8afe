"""From a team that ran on a local model to the gradients of that model."""

from __future__ import annotations

import asyncio

import pytest
import torch
from tiny_model import tiny_model, tiny_tokenizer

from baton.credit.project import project
from baton.engine.torch import TorchEngine
from baton.forest.layout import once
from baton.forest.rows import rows_of
from baton.learn.loss import Loss
from baton.learn.update import Gradients
from baton.tasks.shard_sum import ShardSum
from baton.team.forks import fork
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.records import Credit
from baton.trace.trace import Trace

TASK = ShardSum()


def credited(trace: Trace, value: float) -> dict[str, object]:
    credit = Credit(unit="team", target=trace.trace_id, value=value, estimator="mean")
    return project(trace, [credit])  # type: ignore[return-value]


@pytest.fixture(scope="module")
def setting() -> tuple[object, Team, Assignment]:
    model = tiny_model()
    model.config.max_position_embeddings = 8192
    assignment = TASK.assignment(TASK.instance(0))
    shape = make_topology("debate", tools=("read_shard",), max_tokens=12)
    team = Team.of(shape, TorchEngine(model, tiny_tokenizer(), name="tiny"), tools=assignment.tools, seed=0)
    return model, team, assignment


def test_what_the_sampler_saw_is_what_the_forest_computes(setting: tuple[object, Team, Assignment]) -> None:
    """Fresh rows have a ratio of 1: the ids, positions, prompts and temperature are those of sampling."""
    model, team, assignment = setting
    trace = asyncio.run(run(team, assignment))
    rows = rows_of(trace, credited(trace, 1.0))  # type: ignore[arg-type]
    assert {row.policy for row in rows} == {"tiny"}
    assert len(rows) > 2
    report = Gradients(model, Loss(kind="ppo")).backward(rows, version=rows[0].version)
    assert report.means["log_ratio"] < 1e-4
    assert report.means["clipped"] == 0
    assert report.loss == pytest.approx(-1.0, abs=1e-4)
    assert report.num_computed < report.num_row_tokens
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())  # type: ignore[attr-defined]


def test_a_fork_that_changes_nothing_trains_nothing_twice(setting: tuple[object, Team, Assignment]) -> None:
    _, team, assignment = setting
    trace = asyncio.run(run(team, assignment))
    copy = asyncio.run(fork(trace, team, assignment, [])).trace
    rows = rows_of(trace, credited(trace, 1.0))  # type: ignore[arg-type]
    both = once(rows + rows_of(copy, credited(copy, 3.0)))  # type: ignore[arg-type]
    assert sum(len(row.places) for row in both) == sum(len(row.places) for row in rows)
    assert {value for row in both for value in row.advantages.tolist()} == {2.0}
