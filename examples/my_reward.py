"""A reward of your own: a frozen struct of settings with `score`. Here, being brief about what was found.

The records land on named units of the trace, and each says which rule with which settings made it, so that the same
trace gives the same numbers again. What a trace cannot say is an error, never a zero. In a recipe of `baton reward`,
or under [reward] in one of `baton train`:

    [[rules]]
    rule = "my_reward:Brief"
    limit = 4
"""

from typing import ClassVar

import baton
from baton.errors import TraceError
from baton.reward import Gold, Rule
from baton.testing import check_reward
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
    check_reward(Brief(limit=4))
    scored = baton.score(baton.run("shard-sum"), Brief(limit=4))
    for reward in scored.rewards:
        if reward.name == "brief":
            print(f"{reward.unit} {reward.target}: {reward.value:.2f}, by {reward.by}")
