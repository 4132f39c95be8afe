"""Conformance of games, tasks and dynamic Dec-POMDPs: each check raises AssertionError with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from random import Random

from baton.games.decpomdp import DecPOMDP, History, JointOutcome
from baton.games.game import CHOICES, Branch, Game, State
from baton.tasks.task import Instance, Split, Task
from baton.team.action import VERBS
from baton.team.budget import Limits
from baton.team.running import run
from baton.team.surface.lines import Lines
from baton.team.surface.parsing import ParseError
from baton.team.team import Team
from baton.team.topology import make_topology
from baton.testing.chaos import chaos_engine
from baton.trace.validation import validate


def check_game(game: Game, max_states: int = 3000) -> int:
    """Walk a game and hold every state to the contract; returns how many were seen."""
    _is_lottery(game.start(), "start")
    assert all(b.reward == 0 for b in game.start()), "start pays no reward"
    todo = [b.state for b in game.start()]
    seen = set(todo)
    kinds = set()
    for state in islice(iter(lambda: todo.pop() if todo else None, None), max_states):
        _is_state(state)
        options = game.options(state)
        if not options:
            continue
        assert len(set(options)) == len(options), f"options repeat at {state}: {options}"
        assert game.text(state).strip(), f"no text at {state}"
        assert game.quit(state) in options, f"quit is no option at {state}: {game.quit(state)!r}"
        assert game.decision(state) in game.decisions, (
            f"{game.decision(state)} is not among the game's decisions"
        )
        kinds.add(game.decision(state))
        for option in options:
            said = Lines().parse(option, frozenset(VERBS))
            assert len(said) == 1, f"{option!r} is no single command"
            assert not isinstance(said[0], ParseError), (
                f"{option!r} is no command of the lines surface: {said[0]}"
            )
            branches = game.step(state, option)
            _is_lottery(branches, f"{option!r} at {state}")
            for b in branches:
                if b.state not in seen:
                    seen.add(b.state)
                    todo.append(b.state)
    assert kinds <= set(CHOICES), f"{kinds} are not all of O1..O5"
    return len(seen)


def check_task(task: Task, seeds: int = 5) -> None:
    """Instances are reproducible and splits apart; the solver, if any, is right; nonsense scores zero."""
    splits: tuple[Split, ...] = ("train", "test")
    drawn = {}
    for split in splits:
        for seed in range(seeds):
            instance = task.instance(seed, split)
            assert instance == task.instance(seed, split), f"{instance.id} differs when drawn again"
            assert instance.prompt.strip(), f"{instance.id} has no prompt"
            drawn[instance.id] = (instance.prompt, repr(instance.gold), repr(instance.data))
            for nonsense in ("", "\x00", "I do not know", "9" * 400):
                score = _score(task, instance, nonsense)
                assert score == 0, f"{instance.id}: {nonsense[:20]!r} scores {score}, not 0"
            answer = task.solve(instance)
            if answer is not None:
                assert _score(task, instance, answer) == 1, f"{instance.id}: the solver's answer is not right"
            names = task.milestones(instance)
            assert len(set(names)) == len(names), f"{instance.id}: milestones repeat"
        _runs(task, task.instance(0, split))
    assert len(drawn) == 2 * seeds, "instance ids repeat"
    assert len(set(drawn.values())) > seeds, "train and test draw the same instances"


def _score(task: Task, instance: Instance, answer: str) -> float:
    try:
        return task.verify(instance, answer)
    except Exception as error:
        raise AssertionError(
            f"{instance.id}: verify raised {type(error).__name__} for {answer[:20]!r}; any text is allowed: {error}"
        ) from error


def _runs(task: Task, instance: Instance) -> None:
    """A team without sense gets through it."""
    assignment = task.assignment(instance)
    shape = task.topology() or make_topology("centralized", tools=tuple(assignment.tools))
    team = Team.of(
        shape, chaos_engine(shape.roles), tools=assignment.tools, limits=Limits(agents=8, tokens=60_000)
    )
    trace = asyncio.run(run(team, assignment))
    problems = validate(trace)
    assert trace.finished, f"{instance.id}: a run of it did not finish"
    assert not problems, f"{instance.id}: a run of it is not valid: {problems[:3]}"


def check_decpomdp(model: DecPOMDP, episodes: int = 50, seed: int = 0) -> None:
    """Random play keeps the contract: who observes, who may act, nobody comes back."""
    random = Random(seed)

    def draw(outcomes: list[JointOutcome]) -> JointOutcome:
        assert abs(sum(o.probability for o in outcomes) - 1) < 1e-9, "outcomes do not sum to one"
        return random.choices(outcomes, [o.probability for o in outcomes])[0]

    for _ in range(episodes):
        outcome = draw(list(model.start()))
        histories: dict[str, History] = {}
        gone: set[str] = set()
        joint: dict[str, str] = {}
        for _ in range(model.horizon):
            alive = model.alive(outcome.state)
            assert set(outcome.observations) == set(alive), "observations go to exactly those alive"
            assert set(alive) <= set(model.everyone()), "an agent appeared that is not in everyone()"
            assert not gone & set(alive), f"{gone & set(alive)} came back"
            gone |= set(histories) - set(alive)
            if not alive:
                break
            assert model.orchestrator in alive, "the orchestrator is there until the end"
            for agent, observed in outcome.observations.items():
                assert 0 <= observed < model.num_observations(model.role(agent)), (
                    f"{agent} observes {observed}"
                )
                histories[agent] = (*histories.get(agent, ()), (joint.get(agent, ""), observed))
            for agent in alive:
                legal = model.actions(agent, histories[agent])
                assert legal, f"{agent} may do nothing"
                assert set(legal) <= set(model.role_actions(model.role(agent))), f"{agent}: {legal}"
                joint[agent] = random.choice(legal)
            outcome = draw(list(model.step(outcome.state, {agent: joint[agent] for agent in alive})))


def _is_lottery(branches: Sequence[Branch], where: str) -> None:
    chances = [b.probability for b in branches]
    assert chances, f"nothing follows {where}"
    assert all(p > 0 for p in chances), f"a branch of {where} has no chance"
    assert abs(sum(chances) - 1) < 1e-9, f"branches of {where} sum to {sum(chances)}"


def _is_state(state: State) -> None:
    for part in state:
        if isinstance(part, tuple):
            _is_state(part)
        else:
            assert isinstance(part, int), f"a state holds {part!r}; states are nested tuples of ints"
