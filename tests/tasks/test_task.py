"""The task contract, on its example."""

from __future__ import annotations

import pytest

from baton.errors import UsageError
from baton.tasks.shard_sum import ShardSum
from baton.tasks.task import Task
from baton.tasks.voters import VotersTask
from baton.team.tools.tool import invoke_now
from baton.testing.check_tasks import check_task
from baton.trace.records import Event, Payload
from baton.trace.trace import Header, Trace


@pytest.mark.parametrize(
    "task",
    [
        ShardSum(),
        ShardSum(num_shards=1, per_shard=1),
        VotersTask(),
        VotersTask(skills=(0.7, 0.4), num_classes=5),
    ],
)
def test_contract(task: Task) -> None:
    check_task(task)


def test_shards_hold_what_is_asked_for() -> None:
    task = ShardSum(num_shards=3)
    instance = task.instance(5, "test")
    assert instance.id == "shard-sum/test/5"
    (read,) = task.tools(instance)
    said = [invoke_now(read, {"shard": i}).text for i in (1, 2, 3)]
    total = sum(int(number) for text in said for number in text.split())
    assert task.verify(instance, f" {total}\n") == 1
    assert task.verify(instance, str(total + 1)) == 0
    outcome = invoke_now(read, {"shard": 4})
    assert not outcome.ok
    assert "numbered 1 to 3" in outcome.text


def test_milestones_are_read_off_the_trace() -> None:
    task = ShardSum(num_shards=2)
    instance = task.instance(0)
    calls = [Payload.of('{"shard": 2}'), Payload.of('{"shard": 9}')]
    events = [
        Event(id=f"e{i}", t=0.0, type="tool_call", agent="a", seq=i, tool="read_shard", content_ref=call.ref)
        for i, call in enumerate(calls)
    ]
    trace = Trace(
        header=Header(trace_id="t", task_id=instance.id),
        events=tuple(events),
        payloads={call.ref: call for call in calls},
    )
    assert task.reached(instance, trace) == {"shard 2 read"}
    assert task.milestones(instance) == ("shard 1 read", "shard 2 read")


def test_assignment() -> None:
    task = ShardSum()
    instance = task.instance(1)
    assignment = task.assignment(instance)
    assert assignment.task_id == instance.id
    assert list(assignment.tools) == ["read_shard"]
    assert assignment.verify(task.solve(instance)) == 1


def test_bad_sizes() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        ShardSum(num_shards=0)
