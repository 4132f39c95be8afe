"""An aggregator of your own: one result of what several agents said. Here, the median of numbers.

It fuses, or raises AggregateError with a reason the agent can act on; nothing else. The weights say how much each
claim counted, and go into the trace. A model may aggregate by what its team was given, and by nothing else.

    baton run shard-sum --topology swarm --set method=median --aggregator my_aggregator:Median --out runs/median
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import baton
from baton.team.aggregate import AggregateError, Claim, Fused
from baton.testing import check_aggregator


class Median:
    """The number in the middle."""

    name = "median"
    pure = True

    def fuse(self, claims: Sequence[Claim], params: Mapping[str, Any] = {}) -> Fused:
        if params:
            raise AggregateError(f"median has no parameters; given: {', '.join(map(str, params))}.")
        if not claims:
            raise AggregateError("median: there are no claims to fuse. Wait until an agent has returned.")
        try:
            numbers = [float(claim.text) for claim in claims]
        except ValueError as error:
            raise AggregateError(f"median: expected a number from each agent; {error}.") from None
        middle = median(numbers)
        # Those nearest to the middle made it; the others only held it in place.
        near = [abs(number - middle) for number in numbers]
        counted = [float(distance == min(near)) for distance in near]
        weights = tuple(share / sum(counted) for share in counted)
        return Fused(f"{middle:g}", weights, {"numbers": numbers})


if __name__ == "__main__":
    check_aggregator(Median())
    task = baton.Task.of("How many legs has a spider?", verify="8")
    guesses = {"peer1": "6", "peer2": "8", "peer3": "1000"}
    trace = baton.run(
        task,
        topology="swarm",
        aggregators=[Median()],
        policy=lambda request: f"return {guesses[request.agent]}",
        settings={"peers": 3, "method": "median"},
    )
    (fused,) = [event for event in trace.events if event.type == "aggregate"]
    print(f"{list(guesses.values())} -> {trace.text(fused.content_ref)}, reward {trace.rewards[0].value:g}")
