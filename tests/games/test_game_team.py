"""Every game on the team runtime: the same game as on the table, and its ledger out of the trace alone."""

from __future__ import annotations

import asyncio
import math
from bisect import bisect, bisect_right
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from baton.engine.scripted import ScriptedEngine
from baton.engine.table import TableEngine
from baton.errors import TraceError
from baton.games.game import CHOICES, State
from baton.games.game_trace import played, regret_of_trace
from baton.games.ledger import trace_regret
from baton.games.library import GAMES, make_game
from baton.games.on_team import read_state, state_key
from baton.games.reference import reference
from baton.games.solve import Solution, solve
from baton.tasks.game_task import GameTask
from baton.team.action import VERBS, Send, Stop
from baton.team.budget import Limits
from baton.team.clock import uniform
from baton.team.forks import fork
from baton.team.intervene import BarAgent, Drop, Force
from baton.team.protocol import Engine, Request
from baton.team.running import replay, run
from baton.team.surface import Lines, Parsed
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.testing.chaos import chaos_engine
from baton.testing.check_tasks import check_task
from baton.trace.formats import read_all, write
from baton.trace.trace import Trace
from baton.trace.validation import validate


@cache
def task_of(name: str) -> GameTask:
    return GameTask(make_game(name))


@cache
def solved(name: str) -> Solution:
    return solve(task_of(name).game)


@cache
def engine_of(name: str, policy: str) -> Engine:
    return ScriptedEngine(policy, task_of(name).script(policy))


def team_of(task: GameTask, engine: Engine, seed: int = 0, **settings: Any) -> tuple[Team, Assignment]:
    team = Team.of(task.topology(), engine, seed=seed, **settings)
    return team, task.assignment(task.instance(seed))


def play(task: GameTask, engine: Engine, seed: int = 0, **settings: Any) -> Trace:
    return asyncio.run(run(*team_of(task, engine, seed, **settings)))


def unnamed(trace: Trace) -> Trace:
    header = structs.replace(trace.header, trace_id="", meta={})
    rewards = tuple(structs.replace(reward, target="") for reward in trace.rewards)
    return structs.replace(trace, header=header, rewards=rewards)


def on_the_table(task: GameTask, policy: str, seed: int) -> list[tuple[State, str, float]]:
    """The same play without a team, by the same draws."""
    game, stream = task.game, task.instance(seed).data
    choose = reference(policy, game, solved(game.name))

    def follow(branches: Any, key: str) -> Any:
        return branches[bisect(list(accumulate(b.probability for b in branches))[:-1], uniform(key))]

    state, steps, draws = follow(game.start(), f"{stream}/0").state, [], 0
    while options := game.options(state):
        chances = choose(state)
        bounds = list(accumulate(chances.get(option, 0.0) for option in options))
        key = f"{seed}/orchestrator:{len(steps) + 1}"
        option = options[bisect_right(bounds, uniform(key) * bounds[-1])]
        branches = game.step(state, option)
        draws += len(branches) > 1
        branch = follow(branches, f"{stream}/{draws}")
        steps.append((state, option, branch.reward))
        state = branch.state
    return steps


@pytest.mark.parametrize("name", GAMES)
def test_commands_are_commands_and_name_known_roles(name: str) -> None:
    game = make_game(name)
    for state in solved(name).values:
        for option in game.options(state):
            (parsed,) = Lines().parse(option, frozenset(VERBS))
            assert isinstance(parsed, Parsed)
            role = getattr(parsed.action, "role", None)
            assert role is None or role in game.roles
            assert not hasattr(parsed.action, "agent") or game.roles
        assert read_state(state_key(state)) == state


@pytest.mark.parametrize("name", GAMES)
def test_optimal_play_has_no_regret(name: str) -> None:
    for seed in range(10):
        trace = play(task_of(name), engine_of(name, "optimal"), seed)
        ledger = regret_of_trace(trace, lambda _: solved(name))
        assert abs(ledger.regret) <= 1e-9
        (reward,) = trace.rewards
        assert (reward.family, reward.unit, reward.target) == ("shared", "team", trace.trace_id)
        assert reward.value == pytest.approx(ledger.value, abs=1e-12)


@pytest.mark.parametrize("policy", ["random", "always-spawn"])
@pytest.mark.parametrize("name", GAMES)
def test_the_trace_is_the_play(name: str, policy: str, tmp_path: Path) -> None:
    """Valid, replayed exactly, forked to the same; its steps, read from a file, are those of the table."""
    task, engine = task_of(name), engine_of(name, policy)
    for seed in range(3):
        team, assignment = team_of(task, engine, seed)
        trace = asyncio.run(run(team, assignment))
        assert validate(trace) == []
        assert asyncio.run(replay(trace, team, assignment)) == trace
        again = asyncio.run(fork(trace, team, assignment, []))
        assert unnamed(again.trace) == unnamed(trace)
        assert again.usage.calls_run == 0
        path = tmp_path / f"{seed}.jsonl"
        write(trace, path)
        (saved,) = read_all(path)
        steps = on_the_table(task, policy, seed)
        assert played(saved).steps == steps
        assert regret_of_trace(saved, lambda _: solved(name)) == trace_regret(solved(name), steps)
        check_choices(task, trace)


def check_choices(task: GameTask, trace: Trace) -> None:
    """Each choice is one event: which decision, among what, what, how likely; every other event is none."""
    chosen = [event for event in trace.events if event.call is not None]
    assert len(chosen) == len(trace.calls) == len(played(trace, task.game).steps)
    for event, (state, option, _) in zip(chosen, played(trace, task.game).steps, strict=True):
        assert event.status == "ok"
        assert event.agent == "orchestrator"
        assert event.decision == task.game.decision(state)
        assert event.options == task.game.options(state)
        assert event.options[event.choice or 0] == option
        assert event.option_propensities is not None
        assert event.propensity == event.option_propensities[event.choice or 0]
    assert {event.decision for event in chosen} <= set(CHOICES)


@pytest.mark.parametrize(
    "name", ["best-of-n", "voters", "spawn-bandit", "one-shot-message", "sequential-test"]
)
def test_the_mean_return_is_the_value(name: str) -> None:
    values = [play(task_of(name), engine_of(name, "optimal"), seed).rewards[0].value for seed in range(400)]
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    assert abs(mean - solved(name).value) < 4 * spread / math.sqrt(len(values))


def test_agents_are_real() -> None:
    """The flagship: inspectors are spawned, told, report, and what they report is fused."""
    task = task_of("parallel-pandora")

    def both_at_the_first_box(request: Request) -> int:
        options = request.options or ()
        wanted = ("spawn", "delegate junior: box 1", "aggregate", "send", "stop none")
        return next(i for want in wanted for i, option in enumerate(options) if option.startswith(want))

    trace = play(task, ScriptedEngine("pair", both_at_the_first_box))
    assert validate(trace) == []
    fused = next(event for event in trace.events if event.type == "aggregate")
    assert fused.extra["sources"] == ["inspector1", "inspector2"]
    reports = {edge.src for edge in trace.edges if edge.dst == fused.id and edge.type == "aggregate"}
    assert reports == {"inspector1#1", "inspector2#1"}
    told = [(e.to, trace.text(e.content_ref)) for e in trace.events if e.type == "message"]
    assert told[:4] == [
        ("inspector1", "box 1"),
        ("inspector1", "brief"),
        ("inspector2", "box 1"),
        ("inspector2", "brief"),
    ]
    assert all(event.status == "ok" for event in trace.events)


def test_voters_vote() -> None:
    task = task_of("voters")
    trace = play(task, engine_of("voters", "optimal"), 3)
    (state, _, _) = played(trace).steps[0]
    votes = [trace.text(event.content_ref) for event in trace.events if event.type == "return"]
    assert votes == [str(vote + 1) for vote in state]


def test_to_go_on_is_a_stop_decision_that_ends_nobody() -> None:
    trace = play(task_of("stopping-chain"), engine_of("stopping-chain", "optimal"), 1)
    chosen = [event for event in trace.events if event.call is not None]
    assert len(chosen) > 1
    assert {event.decision for event in chosen} == {"stop"}
    assert [bool(event.extra.get("went_on")) for event in chosen] == [True] * (len(chosen) - 1) + [False]
    told = {"options": None, "choice": None, "propensity": None, "option_propensities": None}
    silent = [  # without all that says it went on, it seems to act after it stopped
        structs.replace(e, extra={k: v for k, v in e.extra.items() if k != "went_on"}, **told)
        for e in trace.events
    ]
    problems = validate(structs.replace(trace, events=tuple(silent)))
    assert {problem.code for problem in problems} == {"meaning/acts-after-stop"}


def test_forced_options_share_their_luck() -> None:
    """A fork at a choice is what the table gives for it, by the same draws; so is the ledger."""
    task, engine = task_of("sequential-test"), engine_of("sequential-test", "optimal")
    team, assignment = team_of(task, engine, 3)
    trace = asyncio.run(run(team, assignment))
    second = [event for event in trace.events if event.call is not None][1]
    forked = asyncio.run(fork(trace, team, assignment, [Force(second.id, Stop("no"))])).trace
    assert validate(forked) == []
    assert asyncio.run(replay(forked, team, assignment)) == forked
    before, after = played(trace), played(forked)
    assert after.steps[0] == before.steps[0]
    assert after.steps[1][:2] == (before.steps[1][0], "stop no")
    assert len(after.steps) == 2
    assert not after.cut_off
    ledger = regret_of_trace(forked, lambda _: solved("sequential-test"))
    assert ledger.regret == ledger.parts["stop"] > 0
    assert ledger.residual == pytest.approx(0, abs=1e-12)


def test_replicates_have_other_luck_from_the_change_on() -> None:
    task = task_of("length-ladder")
    team, assignment = team_of(task, engine_of("length-ladder", "optimal"), 0)
    trace = asyncio.run(run(team, assignment))
    fifth = [event for event in trace.events if event.call is not None][4]
    other = Send("worker", "left" if "right" in (trace.text(fifth.content_ref) or "") else "right")
    same, *others = (
        asyncio.run(fork(trace, team, assignment, [Force(fifth.id, other)], replicate=k)).trace
        for k in range(4)
    )
    steps = played(trace).steps
    assert [s for s, _, _ in played(same).steps][5:] == [(t, sign, 0) for (t, sign, _), _, _ in steps][5:]
    rest = set()
    for forked in others:
        assert played(forked).steps[:4] == steps[:4]
        assert asyncio.run(replay(forked, team, assignment)) == forked
        rest.add(tuple(played(forked).steps[4:]))
        last = [event for event in forked.events if event.call is not None][-1]
        again = asyncio.run(fork(forked, team, assignment, [Force(last.id, other)])).trace
        assert played(again).steps[:-1] == played(forked).steps[:-1]  # what is not touched keeps its luck
        assert asyncio.run(replay(again, team, assignment)) == again
        third = asyncio.run(fork(again, team, assignment, [])).trace  # in a fork of a fork as well
        assert played(third) == played(again)
    assert len(rest | {tuple(played(same).steps[4:])}) == 4


def test_what_is_no_option_cannot_be_forced() -> None:
    task = task_of("voters")
    team, assignment = team_of(task, engine_of("voters", "optimal"))
    trace = asyncio.run(run(team, assignment))
    chosen = next(event for event in trace.events if event.call is not None)
    forked = asyncio.run(fork(trace, team, assignment, [Force(chosen.id, Send("voter-1", "hello"))])).trace
    assert validate(forked) == []
    assert forked.event(chosen.id).status == "invalid"
    assert played(forked).steps == played(trace).steps  # asked again, it chose as before


def test_dropped_choices_are_made_again() -> None:
    task = task_of("pandora")
    team, assignment = team_of(task, engine_of("pandora", "optimal"))
    trace = asyncio.run(run(team, assignment))
    forked = asyncio.run(fork(trace, team, assignment, [Drop("orchestrator#1")])).trace
    assert validate(forked) == []
    assert forked.event("orchestrator#1").status == "cancelled"
    assert played(forked).steps == played(trace).steps


def test_refused_spawns_end_in_a_forced_stop() -> None:
    """A budget, or a bar, that the policy will not see: cut off, which counts as quitting there."""
    task, engine = task_of("best-of-n"), engine_of("best-of-n", "optimal")
    trace = play(task, engine, limits=Limits(agents=3))
    assert validate(trace) == []
    assert played(trace).cut_off
    ledger = regret_of_trace(trace, lambda _: solved("best-of-n"))
    assert ledger.residual == pytest.approx(0, abs=1e-12)
    assert ledger.parts["spawn"] > 0
    assert ledger.value == trace.rewards[0].value
    assert any(e.status == "forced" and "refused" in e.extra["why"] for e in trace.events)
    team, assignment = team_of(task, engine)
    whole = asyncio.run(run(team, assignment))
    barred = asyncio.run(fork(whole, team, assignment, [BarAgent("worker2")])).trace
    assert validate(barred) == []
    assert not played(barred).cut_off
    assert played(barred).steps == played(whole).steps  # by worker3 instead


@pytest.mark.parametrize("name", GAMES)
def test_tables_play_and_their_propensities_are_on_the_events(name: str) -> None:
    engine = TableEngine(epsilon=0.2)
    for seed in range(2):
        trace = play(task_of(name), engine, seed)
        assert validate(trace) == []
        check_choices(task_of(name), trace)
        for event in trace.events:
            if event.call is not None:
                state = event.extra["step"]["state"]
                exact = engine.probabilities("orchestrator", state, event.options or ())
                assert event.option_propensities == tuple(exact)


def test_a_table_learns_its_game() -> None:
    """Log-probability ascent on what the trace alone says."""
    task, engine = task_of("spawn-bandit"), TableEngine()
    for seed in range(200):
        trace = play(task, engine, seed)
        (event,) = [event for event in trace.events if event.call is not None]
        options, state = event.options or (), event.extra["step"]["state"]
        grad = engine.grad_log_prob("orchestrator", state, options, options[event.choice or 0])
        advantage = trace.rewards[0].value - 0.6
        rows = {option: advantage * float(g) for option, g in zip(options, grad, strict=True)}
        engine.update({("orchestrator", state): rows}, lr=0.5)
    for state in solved("spawn-bandit").values:
        if options := task.game.options(state):
            best = options.index(solved("spawn-bandit").best(state))
            assert engine.probabilities("orchestrator", state_key(state), options)[best] > 0.6


@pytest.mark.parametrize("name", GAMES)
def test_nonsense_is_invalid_and_never_a_crash(name: str) -> None:
    task = task_of(name)
    roles = [structs.replace(role, aggregators=("majority",)) for role in task.topology().roles]
    for seed in range(4):
        team, assignment = team_of(task, chaos_engine(roles, nonsense=0.3), seed)
        trace = asyncio.run(run(team, assignment))
        assert trace.finished
        assert validate(trace) == []
        assert asyncio.run(replay(trace, team, assignment)) == trace
        ledger = regret_of_trace(trace, lambda _: solved(name))
        assert ledger.residual == pytest.approx(0, abs=1e-9)
        assert all(part >= -1e-9 for part in ledger.parts.values())
        assert ledger.value == pytest.approx(trace.rewards[0].value, abs=1e-12)


def test_never_an_option() -> None:
    trace = play(task_of("pandora"), ScriptedEngine("prose", lambda _: "stop everything"))
    assert [event.status for event in trace.events] == ["invalid"] * 4 + ["forced"]
    assert trace.rewards[0].value == 0.0
    assert played(trace).steps == []
    ledger, solution = regret_of_trace(trace), solved("pandora")
    assert not any(ledger.parts.values())  # nothing was decided
    assert ledger.invalid == pytest.approx(solution.value + 4 * solution.answer_price)


def test_words_around_the_command() -> None:
    """A language model says more than the command; what it weighed first and may not do is invalid."""
    said = "Let me think.\nspawn nobody: x\nstop best"
    trace = play(task_of("pandora"), ScriptedEngine("talker", lambda _: said))
    first, second = trace.events
    assert (first.status, first.choice) == ("invalid", None)
    assert (second.status, second.decision, second.propensity) == ("ok", "stop", 1.0)
    assert second.options is not None
    assert second.options[second.choice or 0] == "stop best"


@pytest.mark.parametrize("name", ["parallel-pandora", "dec-tiger", "scouts", "stopping-chain"])
def test_tool_calls_play_the_same_game(name: str) -> None:
    lines = play(task_of(name), engine_of(name, "optimal"), 2)
    tools = play(task_of(name), engine_of(name, "optimal"), 2, surface="tools")
    assert validate(tools) == []
    assert played(tools).steps == played(lines).steps
    chosen = next(event for event in tools.events if event.call is not None)
    assert (chosen.options or ("",))[0].startswith("<tool_call>")


def test_past_exact_solution_it_is_still_played() -> None:
    settings = {"num_boxes": 40, "num_rounds": 20, "num_slots": 4, "prior": -3}
    task = GameTask(make_game("parallel-pandora", settings))
    trace = play(task, ScriptedEngine("always-spawn", task.script("always-spawn")))
    assert validate(trace) == []
    assert len(played(trace).steps) > 150


def test_the_task_contract() -> None:
    check_task(task_of("parallel-pandora"))
    task = task_of("voters")
    assert task.instance(3) == GameTask(make_game("voters")).instance(3)
    assert task.instance(3).data != task.instance(3, "test").data


def test_another_team_is_told() -> None:
    task = task_of("pandora")
    team = Team.of(make_topology("centralized"), engine_of("pandora", "optimal"))
    trace = asyncio.run(run(team, task.assignment(task.instance(0))))
    assert "played by its own team" in trace.events[-1].extra["why"]


def test_other_traces_have_no_ledger() -> None:
    trace = play(task_of("enough"), engine_of("enough", "optimal"))
    with pytest.raises(TraceError, match="not finished"):
        regret_of_trace(structs.replace(trace, finished=False))
    header = structs.replace(trace.header, meta={}, task_id="shard-sum/train/0")
    with pytest.raises(TraceError, match="is no game"):
        regret_of_trace(structs.replace(trace, header=header))
