"""A loss, a critic and monitors of somebody else's package: named in a recipe, trained with, and gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_run import GROUP, small

from baton import registry
from baton.compose.training import begin, go_on, make_trainer
from baton.errors import UsageError
from baton.learn.loss import Loss
from baton.learn.run.folder import read_lines
from baton.learn.watch import Watch

pytestmark = pytest.mark.usefixtures("first_weights")
EXAMPLES = Path(__file__).parents[2] / "examples"
OWN: dict[str, Any] = {
    "loss__kind": "bold",
    "critic__kind": "by-length",
    "train__monitors": ["too-long"],
}
GAE = '[[credit]]\nestimator = "gae"\n'


@pytest.fixture(autouse=True)
def _own_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package, found by module:attr, and its names, as a plug-in of this process."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for kind, name, where in (
        ("loss", "bold", "my_loss:BOLD"),
        ("critic", "by-length", "my_critic:ByLength"),
        ("monitor", "too-long", "my_monitor:TooLong"),
    ):
        if not registry.knows(kind, name):
            registry.register(kind, name)(registry.resolve(kind, where))


def test_a_run_with_parts_of_ones_own_goes_on_as_if_it_had_not_been_cut_off(tmp_path: Path) -> None:
    recipe = small(GAE, train__steps=3, train__checkpoint_every=1, **OWN)
    session = begin(recipe, "small", tmp_path / "run")
    steps = session.steps()
    next(steps)
    session.trainer.close()
    seen = session.trainer.critic.state_dict()
    session.close()
    again = go_on(tmp_path / "run")
    assert again.trainer.critic.state_dict() == seen
    assert len(list(again.steps())) == 2
    again.close()
    assert [line["step"] for line in read_lines(tmp_path / "run" / "metrics.jsonl")] == [1, 2, 3]


def test_a_monitor_of_ones_own_is_heard_and_remembers() -> None:
    watch = Watch(small(train__monitors=["my_monitor:TooLong"]))
    trainer = make_trainer(small(GROUP))
    traces = trainer.step().traces
    watch.observe({"return": {"mean": 0.0}}, traces)
    state = watch.state_dict()
    assert state["own"] == {"my_monitor:TooLong": {"first": sum(len(t.events) for t in traces) / len(traces)}}
    again = Watch(small(train__monitors=["my_monitor:TooLong"]))
    again.load_state_dict(state)
    assert again.state_dict() == state
    del state["own"]
    again.load_state_dict(state)  # as version 0.1 wrote it


def test_what_is_no_loss_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="is a type; expected a baton"):
        Loss(kind="my_monitor:TooLong")
    with pytest.raises(UsageError, match="cannot be loaded"):
        Loss(kind="my_loss:GONE")
