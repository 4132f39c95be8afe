"""A critic for each seat: judged by its own rewards, with counts that fade."""

from __future__ import annotations

import asyncio

import pytest

from baton.compose.training import check_trainable, make_trainer
from baton.credit.estimator import Prefix
from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.learn.critics.seats import SeatsCritic
from baton.learn.critics.table import TableCritic
from baton.learn.recipe import load
from baton.tasks.inspection import Inspection
from baton.team.running import Run, header_of
from baton.team.team import Team
from baton.trace.trace import Trace


class _Policy:
    roles = ("attacker", "defender", "mailbox")
    sampler = None


def played(count: int) -> list[Trace]:
    task = Inspection(messages=1, checks=1)
    found = []
    for seed in range(count):
        assignment = task.assignment(task.instance(seed))
        team = Team.of(task.topology(), ScriptedEngine("any", task.reference_play()), seed=seed)
        found.append(asyncio.run(Run(team, assignment, header_of(team, assignment, f"t{seed}")).go()))
    return found


def test_each_seat_is_judged_by_its_own_rewards() -> None:
    critic = SeatsCritic(load("attack-defend", ["critic.fade=0"]), {"both": _Policy()})  # type: ignore[dict-item]
    traces = played(60)
    critic.observe(traces)
    again = SeatsCritic(load("attack-defend", ["critic.fade=0"]), {"both": _Policy()})  # type: ignore[dict-item]
    again.load_state_dict(critic.state_dict())
    for seat, move in (("attacker", "return plant"), ("defender", "return check")):
        trace = traces[0]
        place = next(n for n, e in enumerate(trace.events) if e.type == "return" and e.agent == f"{seat}1")
        mine = [
            next(r.value for r in t.rewards if r.target == f"{seat}1")
            for t in traces
            if any(e.agent == f"{seat}1" and f"return {t.text(e.content_ref)}" == move for e in t.events)
        ]
        found = critic.q(Prefix(trace, place), move)
        assert found == pytest.approx(sum(mine) / len(mine))
        assert again.q(Prefix(trace, place), move) == found


def test_counts_fade() -> None:
    critic = TableCritic(backup="return", fade=0.5)
    traces = played(4)
    for _ in range(3):
        critic.observe(traces)
    counts = [cell.count for cells in critic._cells.values() for cell in cells]
    assert sum(counts) == pytest.approx(8 * (1 + 0.5 + 0.25))


def test_it_needs_returns_and_no_constraint() -> None:
    with pytest.raises(UsageError, match='Write backup = "return" there'):
        make_trainer(load("attack-defend", ["critic.backup=policy", "warm.episodes=20", "warm.steps=1"]))
    with pytest.raises(UsageError, match="judges each role by its own"):
        check_trainable(load("attack-defend", ['constraints=[{"cost": "game", "limit": 1}]']))
