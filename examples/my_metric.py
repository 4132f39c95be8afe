"""A metric of your own: one number of one trace. Here, how many messages an agent sends on average.

The function takes a `MeasuredTrace` (the trace, its lineage, graph, stages, answer, each worked out once) and raises
`TraceError` with the reason where a trace cannot say. A plain function is a metric already; `metric` adds a unit,
bounds and a source.

Type: python examples/my_metric.py, or: baton measure runs/sum --metric my_metric:messages_per_agent
"""

from baton.errors import TraceError
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import metric
from baton.testing import check_metric
from baton.testing.sample_rollouts import sample_group


@metric("messages_per_agent", "own", unit="messages", bounds=(0.0, float("inf")))
def messages_per_agent(measured: MeasuredTrace) -> float:
    """Messages and results sent, over the agents there were."""
    if not len(measured.lineage):
        raise TraceError("the trace has no agents")
    return sum(event.type in ("message", "return") for event in measured.events) / len(measured.lineage)


if __name__ == "__main__":
    check_metric(messages_per_agent)
    for trace in sample_group(3):
        print(trace.trace_id, f"{messages_per_agent(MeasuredTrace(trace)).value:.2f} messages per agent")
