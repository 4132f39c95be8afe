"""A reward of your own: a frozen struct of settings with `score`. Here, being brief about what was found.

The records land on named units of the trace, and each says which rule with which settings made it, so that
the same trace gives the same numbers again. What a trace cannot say is an error, never a zero.

Type: python examples/my_reward.py
"""

from typing import ClassVar

from baton.errors import TraceError
from baton.reward import Gold, Rule, with_rewards
from baton.testing import check_reward
from baton.testing.sample_rollouts import sample_group
from baton.trace import Reward, Trace
from baton.trace.vocabulary import RewardFamily


class Brief(Rule, tag="brief", frozen=True, kw_only=True):
    """r = max(0, 1 - words / limit) for everything an agent returned.

    Source: ours [I].
    """

    family: ClassVar[RewardFamily] = "process"
    name: str = "brief"
    limit: int = 10

    def __post_init__(self) -> None:
        self.require(self.limit > 0, "limit", "it is a number of words above 0")

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:  # noqa: ARG002  # it needs none
        found = []
        for event in sorted(trace.events, key=lambda event: event.seq):
            if event.type == "return":
                text = trace.text(event.content_ref)
                if text is None:
                    raise TraceError(f"{self.name} counts words and the text of {event.id} was not recorded.")
                found.append(self.reward("message", event.id, max(0.0, 1 - len(text.split()) / self.limit)))
        return found


if __name__ == "__main__":
    rule = Brief(limit=4)
    check_reward(rule)
    trace = next(trace for trace in sample_group() if rule.score(trace))
    scored = with_rewards(trace, rule.score(trace))
    for reward in scored.rewards:
        if reward.name == "brief":
            print(f"{reward.unit} {reward.target}: {reward.value:.2f}, by {reward.by}")
