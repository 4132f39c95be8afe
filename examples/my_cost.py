"""A cost of your own: what a team should not do and no reward can buy. Here, messages beyond a few.

A frozen struct of settings with `count`, which gives a charge for each thing that costs; a plain function from a trace
to its charges will do where there is nothing to set. A charge is beside the reward and in none; what the trace does not
say is a TraceError, never zero. In a recipe:

    [[constraints]]
    cost = "my_cost:Chatter"
    limit = 1.0
    settings = { free = 2 }

Type: python examples/my_cost.py, or: baton train RECIPE --set 'constraints=[{cost="my_cost:Chatter",limit=1.0}]'
"""

from baton.learn.constraint.costs import CostChannel
from baton.testing import check_cost
from baton.testing.sample_rollouts import sample_group
from baton.trace import Trace
from baton.trace.records import Charge


class Chatter(CostChannel, frozen=True, kw_only=True):
    """1 for every message or return after the first `free`, on the event."""

    free: int = 0

    def count(self, trace: Trace) -> list[Charge]:
        events = sorted(trace.events, key=lambda event: event.seq)
        said = [event.id for event in events if event.type in ("message", "return")]
        return [
            Charge(
                channel="chatter",
                unit="message",
                target=event,
                value=1.0,
                by=f"my_cost chatter after {self.free}",
            )
            for event in said[self.free :]
        ]


if __name__ == "__main__":
    check_cost(Chatter())
    for trace in sample_group(3):
        print(trace.trace_id, f"{sum(charge.value for charge in Chatter().count(trace)):g} said")
