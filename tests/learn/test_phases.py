"""Phases of one run: who learns when, cut off on either side of the border, and what is refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import BASE, GROUP, TINY, small, team
from test_session import numbers, whole
from test_session_killed import begin as start
from test_session_killed import kill_after

from baton.compose.training import begin, check_trainable, go_on, make_trainer
from baton.errors import UsageError
from baton.learn.recipe import PHASE_SETTINGS, Recipe, parse, resolved
from baton.learn.run.folder import read_lines

pytestmark = pytest.mark.usefixtures("first_weights")
TWO = f'[policies.leader]\n{TINY}roles = ["orchestrator"]\n[policies.hands]\n{TINY}learning_rate = 0.001\n'
LEAD_THEN_ALL = (
    GROUP + '[[phases]]\nname = "lead"\nsteps = 2\nlearn = ["leader"]\n'
    '[[phases]]\nname = "joint"\nset = {"train.learning_rate" = 0.0005, "loss.kind" = "reinforce"}\n'
)


def staged(**changes: Any) -> Recipe:
    return team(TWO, LEAD_THEN_ALL, **{"train__steps": 4, **changes})


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {
        name: torch.cat([value.detach().flatten().clone() for value in policy.parameters()])
        for name, policy in trainer.policies.items()
    }


def test_who_learns_when() -> None:
    trainer = make_trainer(staged())
    course = [weights(trainer)]
    names = []
    for _ in range(4):
        names.append(trainer.step().metrics["phase"])
        course.append(weights(trainer))
    assert names == ["lead", "lead", "joint", "joint"]
    moved = [
        {name: not torch.equal(before[name], after[name]) for name in before}
        for before, after in itertools.pairwise(course)
    ]
    assert not any(step["hands"] for step in moved[:2])
    assert any(step["leader"] for step in moved[:2])
    assert any(step["hands"] for step in moved[2:])
    rates = {
        name: policy.optimizer.param_groups[0]["lr"]  # type: ignore[union-attr]  # both learn
        for name, policy in trainer.policies.items()
    }
    assert rates == {"leader": 0.0005, "hands": 0.001}
    assert trainer.recipe.loss.kind == "reinforce"


def test_cut_off_after_every_step_it_gives_the_same_numbers(tmp_path: Path) -> None:
    """In the first phase, at the border, and in the second."""
    recipe = staged(train__checkpoint_every=1)
    expected = whole(tmp_path / "whole", recipe)
    session = begin(recipe, "staged", tmp_path / "cut")
    for done in range(4):
        assert session.trainer.step_number == done
        next(session.steps())
        session.close()
        session = go_on(tmp_path / "cut") if done < 3 else session
    lines = read_lines(tmp_path / "cut" / "metrics.jsonl")
    assert numbers(lines) == expected
    assert [line["phase"] for line in lines] == ["lead", "lead", "joint", "joint"]
    told = json.loads((tmp_path / "cut" / "run.json").read_text())
    assert told["phases"] == [{"name": "lead", "first": 1}, {"name": "joint", "first": 3}]


@pytest.mark.slow
def test_killed_in_both_phases(tmp_path: Path) -> None:
    recipe = staged(train__checkpoint_every=1)
    expected = whole(tmp_path / "whole", recipe)
    out, file = tmp_path / "killed", tmp_path / "staged.toml"
    file.write_text(resolved(recipe))
    process = start(str(file), "--out", str(out))
    for done in (1, 3):  # in the first, then in the second
        kill_after(process, out / "metrics.jsonl", done, 0.05)
        process = start("--resume", "--out", str(out))
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said.decode()
    lines = read_lines(out / "metrics.jsonl")
    assert numbers(lines) == expected
    assert lines[-1]["total_tokens"] == expected[-1]["total_tokens"]


def test_a_reference_is_what_its_phase_began_with(tmp_path: Path) -> None:
    more = GROUP + (
        '[[phases]]\nname = "free"\nsteps = 1\n[[phases]]\nname = "held"\nset = {"loss.kl" = 0.5}\n'
    )
    for train in ("full", "lora"):
        recipe = small(
            more, train__steps=3, train__checkpoint_every=1, policies__main__train=train, warm__steps=2
        )
        session = begin(recipe, "held", tmp_path / train)
        steps = session.steps()
        first = next(steps)
        assert first["kl"] is None
        at_border = session.trainer.policies["main"].state_dict()
        second = next(steps)
        assert second["kl"] == pytest.approx(0.0, abs=1e-6)  # against itself
        kept = session.trainer.remembered()["references"]["main"]
        assert all(torch.equal(kept[key], value) for key, value in at_border.items())
        third = next(steps)
        session.close()
        (tmp_path / train / "checkpoints" / "latest").write_text("step-00002")
        again = go_on(tmp_path / train)
        assert numbers(list(again.steps())) == numbers([third])
        again.close()


def test_a_schedule_goes_on_where_the_reward_stays() -> None:
    more = (
        '[reward]\nrecipe = "parl"\n' + GROUP + '[[phases]]\nname = "one"\nsteps = 1\n'
        '[[phases]]\nname = "two"\nsteps = 1\nset = {"train.epochs" = 2}\n'
        '[[phases]]\nname = "three"\nset = {"reward" = {}}\n'
    )
    one, two, three = check_trainable(team(TWO, more, train__steps=4))[1]
    assert one.scoring is two.scoring
    assert three.scoring.rules == ()
    assert two.span.recipe.train.epochs == 2


def test_a_run_that_ends_before_a_phase_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    session = begin(staged(train__steps=2), "short", tmp_path / "short", said.append)
    session.close()
    assert "phase joint begins with step 3, and the run ends with step 2" in said
    told = json.loads((tmp_path / "short" / "run.json").read_text())
    assert told["phases"] == [{"name": "lead", "first": 1}]


def test_all_of_it_is_in_the_resolved_recipe() -> None:
    recipe = staged()
    assert parse(resolved(recipe)) == recipe


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ('name = "a"\nsteps = 2\n[[phases]]\nname = "a"\n', "a, a. Give each a name"),
        ('name = "a"\n[[phases]]\nname = "b"\n', "'a' has no steps, and others follow it"),
        ('name = "a"\nsteps = 2\n', "'a' has steps, and the last one goes on"),
        ('name = "a"\nlearn = ["leaders"]\n', "no policy 'leaders' to learn. Did you mean 'leader'?"),
        (
            'name = "a"\nset = {"task.name" = "x"}\n',
            "'a' sets 'task.name', and that is the same in the whole run",
        ),
        ('name = "a"\nset = {"train.learning_rte" = 1}\n', "'train.learning_rte', and that is the same"),
        ('name = "a"\nset = {"loss.kind" = "ppoo"}\n', "ppoo"),
        ('name = "a"\nset = {"train.learning_rate" = -1}\n', "train.learning_rate"),
        ('name = "a"\nset = {"credit" = []}\n', "no credit"),
    ],
)
def test_refused_before_anything_is_computed(phases: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        check_trainable(team(TWO, f"{GROUP}[[phases]]\n{phases}"))
    assert message in str(error.value)


def test_a_frozen_policy_cannot_be_named() -> None:
    two = TWO.replace("learning_rate = 0.001\n", 'train = "frozen"\n')
    with pytest.raises(UsageError, match="'hands' is frozen and cannot learn"):
        check_trainable(team(two, f'{GROUP}[[phases]]\nname = "a"\nlearn = ["hands"]\n'))


def test_code_that_a_phase_names_takes_a_persons_leave() -> None:
    text = BASE + GROUP + '[[phases]]\nname = "a"\nset = {"loss.kind" = "my_losses:MINE"}\n'
    with pytest.raises(UsageError, match="my_losses:MINE"):
        parse(text)


def test_what_a_phase_may_set_is_there() -> None:
    recipe = small(GROUP)
    for path in PHASE_SETTINGS:
        found: Any = recipe
        for word in path.split("."):
            found = getattr(found, word)
