"""The critic that reads: what it may see, that it learns exact values, and that policies improve by it."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Literal

import numpy as np
import pytest
from msgspec import structs
from small_run import small

from baton.compose.stage_from_recipe import make_stage
from baton.compose.training import make_trainer
from baton.credit.core.acts import turn_rewards, turns
from baton.credit.estimator import CreditError, Prefix
from baton.credit.estimators.gae import gae, token_gae
from baton.errors import UsageError
from baton.games.on_team import read_state, steps_of
from baton.games.reference import reference
from baton.games.solve import evaluate
from baton.learn.critics.network import NetworkCritic, _lessons, returns_to_go
from baton.learn.critics.pages import Places, Spot, TraceReader
from baton.learn.stage import Episode, Stage
from baton.learn.trainer import Trainer
from baton.trace.outcome import team_return
from baton.trace.records import Reward
from baton.trace.trace import Trace

pytestmark = pytest.mark.usefixtures("first_weights")


def critic(
    estimator: str = "gae", view: str = "central", settings: str = "gamma = 1.0", steps: int = 20
) -> str:
    return (
        f'[[credit]]\nestimator = "{estimator}"\nnormalise = true\nsettings = {{{settings}}}\n'
        f'[critic]\nkind = "network"\nview = "{view}"\nsteps = {steps}\nlearning_rate = 0.003\n'
    )


def scripted(stage: Stage, count: int, first: int = 0, play: str = "random") -> list[Trace]:
    episodes = [Episode(name=f"e{n}", instance=n, seed=n) for n in range(first, first + count)]
    return asyncio.run(stage.play(dict.fromkeys(stage.roles, stage.script(play)), episodes))


def network(trainer: Trainer) -> NetworkCritic:
    assert isinstance(trainer.critic, NetworkCritic)
    return trainer.critic


# -- what it reads ---------------------------------------------------------------------------------


@pytest.mark.parametrize("latest", [40, 100, 1000])
@pytest.mark.parametrize("view", ["central", "local"])
def test_a_spot_sees_what_came_before_it_and_the_latest_of_that(
    view: Literal["central", "local"], latest: int
) -> None:
    trainer = make_trainer(small())
    reader = TraceReader(trainer.policies["main"].tokenizer, {"main"}, view, latest)
    trace = max(scripted(trainer.stage, 12), key=lambda t: len(t.calls))
    whole = {spot: (page, at) for page in reader.pages(trace) for spot, at in page.spots.items()}
    assert len(trace.calls) >= 3
    for page, _ in whole.values():
        assert len(page.ids) <= latest
    for number, turn in enumerate(turns(trace), 1):
        cut = structs.replace(trace, events=trace.events[: turn.events[-1] + 1])
        seen = {spot: (page, at) for page in reader.pages(cut) for spot, at in page.spots.items()}
        assert len(seen) == 2 * number
        for spot, (page, at) in seen.items():
            longer, place = whole[spot]
            assert place == at
            assert longer.ids[: at + 1].tolist() == page.ids[: at + 1].tolist()
    text = reader.tokenizer.decode(whole[Spot(trace.calls[-1].id, -1)][0].ids.tolist())
    said = trace.text(trace.calls[-2].completion_ref) or ""
    if latest == 1000:
        assert (said in text.rpartition("steps left")[0]) is (view == "central")


def test_where_a_prefix_is_asked() -> None:
    trace = next(t for t in scripted(make_stage(small()), 12) if len(t.calls) > 1)
    first, second = turns(trace)[:2]
    places = Places(trace)
    assert places.spot(0) == Spot(first.call, 0)
    assert places.spot(second.start) == Spot(second.call, 0)
    assert places.spot(len(trace.events)) == Spot(turns(trace)[-1].call, -1)
    assert places.spot(second.start, "orchestrator") == Spot(second.call, 0)
    with pytest.raises(CreditError, match="made no call"):
        places.spot(0, "nobody")


def test_a_rollout_in_which_nobody_spoke_teaches_nothing() -> None:
    trainer = make_trainer(small(critic(steps=1)))
    silent = structs.replace(scripted(trainer.stage, 1)[0], events=(), calls=())
    network(trainer).observe([silent])
    network(trainer).observe([silent, *scripted(trainer.stage, 4)])


@pytest.mark.parametrize("kind", ["central", "local"])
def test_targets_are_what_gae_has_in_mind(kind: Literal["central", "local"]) -> None:
    """With a trace's own returns-to-go for values, no turn has an advantage."""
    trace = max(scripted(make_stage(small()), 12), key=lambda t: len(t.calls))
    step = Reward(family="process", unit="turn", target=trace.calls[1].id, value=0.3)
    trace = structs.replace(trace, rewards=(*trace.rewards, step))
    known = returns_to_go(trace, team_return, gamma=0.9, by_agent=kind == "local")
    places = Places(trace)
    credits = gae(
        [trace],
        value=lambda prefix: known[places.spot(prefix.num_events, prefix.agent).call][0],
        critic=kind,
        gamma=0.9,
        lambda_=0.7,
    )[0]
    assert [credit.value for credit in credits] == pytest.approx([0.0] * len(trace.calls), abs=1e-12)
    assert known[trace.calls[-1].id][0] == pytest.approx(team_return(trace))
    assert known[trace.calls[0].id][1] == known[trace.calls[1].id][0]


def with_turn_rewards(trace: Trace) -> Trace:
    own = [
        Reward(family="process", unit="turn", target=call.id, value=value)
        for call, value in zip(trace.calls, (0.3, -0.7), strict=False)
    ]
    return structs.replace(trace, rewards=(*trace.rewards, *own))


def taught(learner: NetworkCritic, trace: Trace) -> dict[Spot, float]:
    """What the critic is told at each spot."""
    read = learner._page(trace)
    lessons = _lessons([read], learner)
    return {
        spot: target
        for page, (_, targets) in zip(read.pages, lessons, strict=True)
        for spot, target in zip(page.spots, targets.tolist(), strict=True)
    }


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_targets_of_tokens_are_what_token_gae_has_in_mind(gamma: float) -> None:
    """The discounted sum of what came at later tokens: a turn's rewards at its last, the return at the last of all."""
    trainer = make_trainer(small(critic("token-gae", "local", f"gamma = {gamma}")))
    trace = with_turn_rewards(
        max((t for group in trainer.rollouts.take(1) for t in group.traces), key=lambda t: len(t.calls))
    )
    own, total = turn_rewards(trace), team_return(trace)
    sizes = [(call.id, len(call.completion_ids or ())) for call in trace.calls]
    assert len(sizes) > 1
    assert sorted(own.values()) == [-0.7, 0.3]
    earned = [own.get(call, 0.0) * (n == size - 1) for call, size in sizes for n in range(size)]
    earned[-1] += total
    exact = [
        math.fsum(gamma ** (later - place) * earned[later] for later in range(place, len(earned)))
        for place in range(len(earned))
    ]
    found = taught(network(trainer), trace)
    before = [found[Spot(call, n)] for call, size in sizes for n in range(size)]
    assert before == pytest.approx(exact, abs=1e-12)
    ends = np.cumsum([size for _, size in sizes])[:-1].tolist()
    after = [found[Spot(call, -1)] for call, _ in sizes]
    assert after == pytest.approx([*(exact[end] for end in ends), total], abs=1e-12)
    credits = token_gae(
        [trace],
        value=lambda _, call: [found[Spot(call.id, n)] for n in range(len(call.completion_ids or ()))],
        gamma=gamma,
        lambda_=0.7,
    )[0]
    assert [credit.value for credit in credits] == pytest.approx([0.0] * len(exact), abs=1e-12)
    if gamma == 1.0:  # as by turns
        known = returns_to_go(trace, team_return, by_agent=True)
        assert [known[call][1] for call, _ in sizes] == pytest.approx(after, abs=1e-12)
        for call, size in sizes:
            assert [found[Spot(call, n)] for n in range(size)] == pytest.approx(
                [known[call][0]] * size, abs=1e-12
            )


def test_a_call_without_ids_is_no_step_of_token_gae() -> None:
    learner = network(make_trainer(small(critic("token-gae", "local", "gamma = 0.9"))))
    trace = with_turn_rewards(max(scripted(make_stage(small()), 12), key=lambda t: len(t.calls)))
    first, second, third, *_ = trace.calls
    calls = [structs.replace(call, completion_ids=None) if call is second else call for call in trace.calls]
    found = taught(learner, structs.replace(trace, calls=tuple(calls)))
    ahead = found[Spot(third.id, 0)]
    assert {found[spot] for spot in found if spot.call == second.id} == {ahead}
    size = len(first.completion_ids or ())
    assert found[Spot(first.id, 0)] == pytest.approx(0.9 ** (size - 1) * (0.3 + 0.9 * ahead), abs=1e-12)


# -- what it learns --------------------------------------------------------------------------------


def errors(critic: NetworkCritic, traces: list[Trace], exact: dict[Any, float]) -> tuple[float, float]:
    """Root mean square of value minus exact value, and the spread of the exact ones."""
    off, known = [], []
    for trace in traces:
        earned = 0.0
        for turn, step in zip(turns(trace), steps_of(trace.events), strict=True):
            known.append(earned + exact[step.state])
            off.append(critic.value(Prefix(trace, turn.start)) - known[-1])
            earned += step.reward
    return float(np.sqrt(np.mean(np.square(off)))), float(np.std(known))


def test_it_learns_exact_values_and_which_option_is_better() -> None:
    trainer = make_trainer(small(critic("coma", settings="")))
    learner, game = network(trainer), trainer.stage.game
    assert game is not None
    exact = evaluate(game, reference("random", game)).values
    for number in range(10):
        learner.observe(scripted(trainer.stage, 48, 48 * number))
    fresh = scripted(trainer.stage, 60, 10_000)
    error, spread = errors(learner, fresh, exact)
    assert error < 0.4 * spread
    right = []
    for trace in fresh:
        for turn in turns(trace):
            event, before = trace.events[turn.start], Prefix(trace, turn.start)
            assert event.options is not None
            assert event.choice is not None
            said = learner.q(before, event.options[event.choice])
            assert said == pytest.approx(learner._of(trace).values[Spot(turn.call, -1)], abs=1e-5)
            state = read_state(event.extra["step"]["state"])
            truth = [
                sum(
                    branch.probability * (branch.reward + exact[branch.state])
                    for branch in game.step(state, option)
                )
                for option in event.options
            ]
            if len(truth) == 2 and abs(truth[0] - truth[1]) > 0.1:
                mine = [learner.q(before, option) for option in event.options]
                right.append((mine[0] > mine[1]) is (truth[0] > truth[1]))
    assert len(right) > 20
    assert np.mean(right) > 0.8


def test_a_central_critic_refuses_to_speak_as_a_local_one() -> None:
    with pytest.raises(UsageError, match='Set view = "local"'):
        make_trainer(small(critic(settings='critic = "local"')))


def test_it_goes_on_as_if_nothing_had_happened() -> None:
    trainer = make_trainer(small(critic(steps=3)))
    learner = network(trainer)
    learner.observe(scripted(trainer.stage, 12))
    again = network(make_trainer(small(critic(steps=3))))
    again.load_state_dict(learner.state_dict())
    fresh = scripted(trainer.stage, 12, 100)
    for each in (learner, again):
        each.observe(fresh)
        each.observe(fresh)
    prefix = Prefix(fresh[0], 0)
    assert learner.value(prefix) == again.value(prefix)


def test_traces_are_judged_before_they_are_learned_from() -> None:
    learner = network(make_trainer(small(critic())))
    traces = scripted(make_stage(small()), 30)
    learner.observe(traces)
    values = {learner.value(Prefix(trace, turn.start)) for trace in traces for turn in turns(trace)}
    assert len({round(value, 6) for value in values}) == 1, "nothing is known yet but the mean"
    assert values.pop() == pytest.approx(np.mean([team_return(t) for t in traces for _ in t.calls]), abs=1e-5)


def test_so_are_they_where_all_options_are_trained() -> None:
    """The update has them with their credits, and chances that were asked again."""
    learner = network(make_trainer(small(critic("coma", settings=""))))
    traces = scripted(make_stage(small()), 12)
    learner.observe(traces)
    for trace in traces:
        place = turns(trace)[0].start
        option = (trace.events[place].options or ())[0]
        told = structs.replace(trace, events=tuple(trace.events), credits=())
        assert learner.q(Prefix(told, place), option) == learner.q(Prefix(trace, place), option)


@pytest.mark.parametrize(
    ("estimator", "view", "settings"),
    [
        ("gae", "central", "gamma = 1.0"),
        ("gae", "local", 'gamma = 1.0, critic = "local"'),
        ("coma", "central", ""),
        ("token-gae", "local", ""),
    ],
    ids=["mappo", "ippo", "coma", "marft by tokens"],
)
def test_every_kind_takes_two_steps(estimator: str, view: str, settings: str) -> None:
    trainer = make_trainer(small(critic(estimator, view, settings, steps=2)))
    norms: list[float] = []
    while len(norms) < 2 and trainer.step_number < 8:  # a step whose rollouts are alike teaches nothing
        norm = trainer.step().metrics["grad_norm"]
        norms += [norm] if norm else []
    assert len(norms) == 2
    assert trainer.policies["main"].version == 2


def test_mappo_improves_a_policy() -> None:
    trainer = make_trainer(small(critic(steps=5), rollout__groups=8, train__steps=16))
    returns = [trainer.step().metrics["return"]["mean"] for _ in range(16)]
    assert np.mean(returns[-8:]) > np.mean(returns[:3]) + 0.06


def test_targets_that_are_all_alike_have_no_scale_of_their_own() -> None:
    """Divided by the rounding of their mean, the first other target would be 1e16 off."""
    net = network(make_trainer(small(critic(steps=1)))).net
    net.fit_scale(np.full(6, 0.7))
    assert (float(net.shift), float(net.scale)) == (pytest.approx(0.7), 1.0)
    net.fit_scale(np.array([0.0, 2.0]))
    assert (float(net.shift), float(net.scale)) == (1.0, 1.0)
    net.fit_scale(np.array([0.0, 1.0]))
    assert (float(net.shift), float(net.scale)) == (0.5, 0.5)
