"""Credit and regret on games against plain dynamic programming, written apart from both (see test_independent.py)."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from math import fsum
from pathlib import Path
from statistics import fmean
from typing import ClassVar

import pytest

from baton.cli import main
from baton.credit import ESTIMATORS
from baton.credit.estimator import Credits
from baton.engine.scripted import ScriptedEngine
from baton.games.game import OVER, Branch, Choice, Game, Policy, State
from baton.games.game_trace import played, regret_of_trace
from baton.games.library import make_game
from baton.games.on_team import read_state
from baton.games.solve import solve
from baton.tasks.game_task import GameTask
from baton.team.clock import uniform
from baton.team.forks import Forks
from baton.team.protocol import Answer, Request
from baton.team.running import run
from baton.team.team import Team
from baton.trace import Trace, read_all
from baton.trace.formats import write


class Ripening(Game, frozen=True, kw_only=True):
    """A fruit is green or ripe; waiting costs, and one that is ripe may rot to green."""

    name: ClassVar[str] = "ripening"
    decisions: ClassVar[tuple[Choice, ...]] = ("stop",)

    def start(self) -> Sequence[Branch]:
        return (Branch(0.7, (0, 0)), Branch(0.3, (0, 1)))

    def options(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        return ("wait any", "stop eat") if state[0] < 3 else ("stop eat",)

    def step(self, state: State, option: str) -> Sequence[Branch]:
        day, ripe = state
        if option == "stop eat":
            return (Branch(1.0, OVER, 1.0 if ripe else 0.15),)
        stays = 0.6 if ripe else 0.45
        return (Branch(stays, (day + 1, 1), -0.04), Branch(1 - stays, (day + 1, 0), -0.04))

    def text(self, state: State) -> str:
        return f"day {state[0]}, ripe {state[1]}" if state else "over"

    def quit(self, state: State) -> str:  # always open
        return "stop eat"


def hasty(state: State) -> dict[str, float]:
    """Stops the more, the greener."""
    if state[0] == 3:
        return {"stop eat": 1.0}
    return {"stop eat": 0.3, "wait any": 0.7} if state[1] else {"stop eat": 0.6, "wait any": 0.4}


def on_team(game: Game, policy: Policy, num: int) -> tuple[list[Trace], Forks]:
    task = GameTask(game)
    engine = ScriptedEngine("hand", task.script_of(policy, "hand"))
    given = {f"k{k}": task.assignment(task.instance(k, "train")) for k in range(num)}
    traces = [
        asyncio.run(run(Team.of(task.topology(), engine, seed=k), given[f"k{k}"], trace_id=f"k{k}"))
        for k in range(num)
    ]
    return traces, Forks(Team.of(task.topology(), engine), lambda trace: given[trace.trace_id.split("~")[0]])


@cache
def ripened(num: int) -> tuple[list[Trace], Forks]:
    return on_team(Ripening(), hasty, num)


def going_on(continuation: str) -> dict[State, float]:
    """C - S of every state, by backward induction over three days."""
    game, worth, found = Ripening(), {(3, 0): 0.15, (3, 1): 1.0}, {}
    for day in (2, 1, 0):
        for ripe in (0, 1):
            on = fsum(p * (r + worth[s]) for p, s, r in game.step((day, ripe), "wait any"))
            now, chance = (1.0 if ripe else 0.15), hasty((day, ripe))["stop eat"]
            found[day, ripe] = on - now
            worth[day, ripe] = max(now, on) if continuation == "optimal" else chance * now + (1 - chance) * on
    return found


@pytest.mark.parametrize("continuation", ["optimal", "policy"])
def test_stop_value_is_what_dynamic_programming_gives(continuation: str) -> None:
    group, forks = ripened(160)
    asked = {} if continuation == "optimal" else {"continuation": continuation}
    credits: Credits = asyncio.run(ESTIMATORS["stop-value"].function(group, runner=forks, **asked))
    exact, seen = going_on(continuation), defaultdict(list)
    for trace, found in zip(group, credits, strict=True):
        for credit in found:
            event = trace.event(credit.target)
            state = read_state(event.extra["step"]["state"])
            if state[0] == 3:
                assert credit.value == pytest.approx(0.0)  # nothing else was open
                continue
            chance = hasty(state)["stop eat"]
            weight = chance - 1 if event.extra["step"]["option"].startswith("stop") else chance
            assert credit.stderr is not None
            assert abs(credit.value - weight * exact[state]) < 4 * credit.stderr
            seen[state].append(credit.value / weight)
    assert set(seen) == set(exact)
    for state, told in seen.items():
        assert fmean(told) == pytest.approx(exact[state], abs=0.12), state
    assert (
        abs(going_on("optimal")[0, 0] - going_on("policy")[0, 0]) > 0.3
    )  # so that the two can be told apart


def solved(game: Game) -> tuple[dict[State, float], float]:
    """V* of every state, and the price of an answer: (V* - V of random play) / choices of random play."""
    best: dict[State, float] = {}
    evenly: dict[State, tuple[float, float]] = {}

    def visit(state: State) -> None:
        if state in best:
            return
        worths, random_worths, lengths = [], [], []
        for option in game.options(state):
            branches = game.step(state, option)
            for branch in branches:
                visit(branch.state)
            worths.append(fsum(p * (r + best[s]) for p, s, r in branches))
            random_worths.append(fsum(p * (r + evenly[s][0]) for p, s, r in branches))
            lengths.append(1 + fsum(p * evenly[s][1] for p, s, _ in branches))
        best[state] = max(worths, default=0.0)
        evenly[state] = (fmean(random_worths), fmean(lengths)) if worths else (0.0, 0.0)

    for branch in game.start():
        visit(branch.state)
    start = fsum(p * best[s] for p, s, _ in game.start())
    drawn = fsum(p * evenly[s][0] for p, s, _ in game.start())
    return best, (start - drawn) / fsum(p * evenly[s][1] for p, s, _ in game.start())


def stammering(game: Game, chance: float, num: int) -> list[Trace]:
    """Random play that says nonsense with this chance whenever it is asked."""
    task = GameTask(game)
    clear = task.script("random")

    def script(request: Request) -> Answer:
        if uniform(f"stammer/{request.sampling.key}") < chance:
            return Answer(text="erm... ¿stop?", policy="stammer")
        return clear(request)

    engine = ScriptedEngine("stammer", script)
    return [
        asyncio.run(
            run(Team.of(task.topology(), engine, seed=k), task.assignment(task.instance(k)), trace_id=f"i{k}")
        )
        for k in range(num)
    ]


@pytest.mark.parametrize("name", ["stopping-chain", "parallel-pandora", "best-of-n"])
def test_the_ledger_of_invalid_answers_adds_up(name: str) -> None:
    game = make_game(name, {})
    best, price = solved(game)
    solution = solve(game)
    start = fsum(p * best[s] for p, s, _ in game.start())
    charged = []
    for chance in (0.0, 0.3, 0.75):
        ledgers = []
        for trace in stammering(game, chance, 25):
            ledger = regret_of_trace(trace, lambda _: solution)
            nonsense = sum(event.status == "invalid" for event in trace.events)
            assert ledger.num_invalid == nonsense
            assert ledger.charge == pytest.approx(price * nonsense)
            assert ledger.optimum == pytest.approx(start)
            parts = fsum(ledger.parts.values())
            assert ledger.regret == pytest.approx(parts + ledger.invalid)
            (reward,) = (reward for reward in trace.rewards if reward.unit == "team")
            assert ledger.value == pytest.approx(reward.value)
            assert reward.value == pytest.approx(start - (ledger.regret - ledger.charge) + ledger.luck)
            lost = missed(game, best, trace)
            quits = ledger.invalid - ledger.charge
            end = played(trace).end
            assert quits == pytest.approx(best[end] - given_up(game, end) if game.options(end) else 0.0)
            assert parts == pytest.approx(lost)  # what was chosen; a quit for nonsense is not in it
            ledgers.append(ledger)
        charged.append(fmean(ledger.invalid for ledger in ledgers))
    assert charged[0] == 0 < charged[1] < charged[2]


def given_up(game: Game, state: State) -> float:
    """What quitting is worth from a state on."""
    if not game.options(state):
        return 0.0
    return fsum(p * (r + given_up(game, s)) for p, s, r in game.step(state, game.quit(state)))


def test_the_printed_ledger_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for number, chance in enumerate((0.2, 0.6)):
        traces = stammering(make_game("stopping-chain", {"num_workers": 3}), chance, 12)
        write(traces, tmp_path / f"{number}.jsonl")
        capsys.readouterr()
        assert main(["game", "regret", str(tmp_path / f"{number}.jsonl"), "--json"]) == 0
        ((_, rows),) = json.loads(capsys.readouterr().out).items()
        (row,) = rows.values()
        parts = fsum(mean for mean, _ in row["parts"].values())
        assert row["regret"][0] == pytest.approx(parts + row["invalid"][0])
        told.append(row["invalid"][0])
    assert 0 < told[0] < told[1]


def missed(game: Game, best: Mapping[State, float], trace: Trace) -> float:
    """V* - Q* summed over the choices that a trace holds."""
    lost = []
    for event in trace.events:
        step = event.extra.get("step")
        if isinstance(step, dict):
            state = read_state(step["state"])
            branches = game.step(state, step["option"])
            lost.append(best[state] - fsum(p * (r + best[s]) for p, s, r in branches))
    return fsum(lost)


LAYERS = (
    ("--value", "optimum"),
    ("--group-by", "task", "--layer", "telescope/orchestrator", "--layer", "mean"),
    ("--group-by", "task", "--layer", "telescope/message", "--layer", "role-ema", "--layer", "leave-one-out"),
)


@pytest.mark.parametrize("name", ["parallel-pandora", "stopping-chain", "one-shot-message"])
def test_layers_and_luck_add_up(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = str(tmp_path / "run")
    main(["game", "play", name, "--policy", "random", "--team", "--episodes", "6", "--out", where])
    game = make_game(name, {})
    best, _ = solved(game)
    traces = {trace.trace_id: trace for trace in read_all(where)}
    for settings in LAYERS:
        capsys.readouterr()
        assert main(["credit", where, "--partition", *settings, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert len(told) == len(traces) == 6
        for row in told:
            credits = fsum(credit["value"] for credit in row["credits"])
            luck = fsum(row["luck"].values())
            (reward,) = (r.value for r in traces[row["trace_id"]].rewards if r.unit == "team")
            assert row["return"] == pytest.approx(reward)
            assert credits + luck == pytest.approx(reward - row["baseline"], abs=1e-9)
            assert fsum(row["channels"].values()) == pytest.approx(reward - row["baseline"], abs=1e-9)
            assert row["channels"]["luck"] == pytest.approx(luck, abs=1e-9)
            targets = [(credit["unit"], credit["target"]) for credit in row["credits"]]
            assert len(set(targets)) == len(targets)
            if "optimum" in settings:
                assert credits == pytest.approx(-missed(game, best, traces[row["trace_id"]]), abs=1e-9)
