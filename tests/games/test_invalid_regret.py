"""Answers that cannot be carried out are charged in regret: no policy asks again for free."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from math import fsum
from pathlib import Path

import pytest

from baton.cli import main
from baton.engine.scripted import ScriptedEngine
from baton.games.game import CHOICES, Game, State
from baton.games.game_trace import regret_of_trace
from baton.games.ledger import GameRegret, expected_regret, summarise
from baton.games.library import GAMES, make_game
from baton.games.reference import reference
from baton.games.solve import solve
from baton.learn.run.evaluate import regrets
from baton.tasks.game_task import GameTask
from baton.team.budget import Limits
from baton.team.protocol import Answer, Request
from baton.team.running import run
from baton.team.team import Team
from baton.trace.formats import write
from baton.trace.trace import Trace

WORDS = ("", "hm", "stop it now!", "spawn", "I would rather not.\nLet me think", "{", "delegate nobody: x")


def mumbling(script: Callable[[Request], Answer], times: int) -> Callable[[Request], Answer]:
    """The same play, but that the first `times` answers of an episode name no option."""
    said: Counter[str] = Counter()

    def answer(request: Request) -> Answer:
        seed = (request.sampling.key or "").partition("/")[0]
        said[seed] += 1
        if said[seed] <= times:
            return Answer(text=WORDS[(said[seed] + int(seed)) % len(WORDS)] or "?", policy="mumbling")
        return script(request)

    return answer


def play(name: str, policy: str, times: int, num: int = 6, **team: object) -> list[Trace]:
    task = GameTask(make_game(name, {}))
    engine = ScriptedEngine("x", mumbling(task.script(policy), times))
    return [
        asyncio.run(
            run(Team.of(task.topology(), engine, seed=k, **team), task.assignment(task.instance(k)))  # type: ignore[arg-type]
        )
        for k in range(num)
    ]


def price_by_hand(game: Game) -> float:
    """What a choice of random play costs on average, by plain recursion forward and back."""
    best: dict[State, float] = {}

    def value(state: State) -> float:
        if state not in best:
            found = [sum(p * (r + value(s)) for p, s, r in game.step(state, o)) for o in game.options(state)]
            best[state] = max(found, default=0.0)
        return best[state]

    def spent(state: State) -> tuple[float, float]:
        """Value of random play from here on, and how many choices it makes."""
        if state not in known:
            total, choices = 0.0, 0.0
            options = game.options(state)
            for option in options:
                for p, after, r in game.step(state, option):
                    worth, more = spent(after)
                    total += p * (r + worth) / len(options)
                    choices += p * (1 + more) / len(options)
            known[state] = total, choices
        return known[state]

    known: dict[State, tuple[float, float]] = {}
    lost = sum(p * (value(s) - spent(s)[0]) for p, s, _ in game.start())
    return lost / sum(p * spent(s)[1] for p, s, _ in game.start())


@pytest.mark.parametrize("name", ["parallel-pandora", "spawn-bandit", "silo", "voters", "dec-tiger"])
def test_four_invalid_answers_an_episode_cost_more_than_none(name: str) -> None:
    """As often as the team allows without ending play: returns are the same, and regret is not."""
    solution = solve(make_game(name, {}))
    price = price_by_hand(solution.game)
    assert solution.answer_price == pytest.approx(price, abs=1e-12)
    assert price > 0
    sets = {
        times: [regret_of_trace(t, lambda _: solution) for t in play(name, "optimal", times)]
        for times in (0, 3)
    }
    assert [each.regret for each in sets[0]] == pytest.approx([0.0] * 6, abs=1e-9)
    for clean, charged in zip(sets[0], sets[3], strict=True):
        assert charged.value == clean.value
        assert charged.num_invalid >= 3
        assert charged.invalid == pytest.approx(charged.num_invalid * price, abs=1e-12)
        assert charged.regret == pytest.approx(fsum((*charged.parts.values(), charged.invalid)), abs=1e-15)
        assert charged.regret > clean.regret + 2.99 * price
        assert charged.residual == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", GAMES)
def test_ending_by_invalid_answers_is_charged_to_them_and_never_free(name: str) -> None:
    """The fourth in a row ends play: a quit that nobody chose. What it lost is theirs, and so is their price."""
    solution = solve(make_game(name, {}))
    for trace in play(name, "optimal", 4, num=1):
        ledger = regret_of_trace(trace, lambda _: solution)
        assert sum(ledger.parts.values()) == pytest.approx(0, abs=1e-12)
        assert sum(ledger.visits.values()) == 0
        quit_loss = solution.value + ledger.luck - ledger.value
        assert ledger.invalid == pytest.approx(
            ledger.num_invalid * solution.answer_price + quit_loss, abs=1e-9
        )
        assert ledger.regret >= 4 * solution.answer_price - 1e-12
        assert ledger.residual == pytest.approx(0, abs=1e-9)


def test_what_a_budget_refused_stays_with_its_decision() -> None:
    (trace, *_) = play("best-of-n", "optimal", 0, num=1, limits=Limits(agents=3))
    ledger = regret_of_trace(trace)
    assert ledger.invalid == 0.0
    assert ledger.parts["spawn"] > 0


def test_the_columns_add_up_wherever_they_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = play("parallel-pandora", "random", 2)
    game = make_game("parallel-pandora", {})
    found = regrets(game, traces)
    assert found is not None
    assert set(found) == {"total", *CHOICES, "invalid"}
    assert found["total"] == pytest.approx(fsum(v for k, v in found.items() if k != "total"), abs=1e-12)
    solution = solve(game)
    ledgers = [regret_of_trace(trace, lambda _: solution) for trace in traces]
    assert found["invalid"] == pytest.approx(fsum(each.invalid for each in ledgers) / 6)
    assert summarise(ledgers).regret[0] == pytest.approx(found["total"])
    path = tmp_path / "played.jsonl"
    write(traces, path)
    assert main(["game", "regret", str(path), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["parallel-pandora"].values()
    assert told["invalid"][0] == pytest.approx(found["invalid"])
    assert main(["game", "regret", str(path)]) == 0
    out = capsys.readouterr().out.splitlines()
    head = next(line.split() for line in out if line.startswith("policy"))
    row = [
        word
        for word in out[out.index(next(line for line in out if line.startswith("policy"))) + 1].split()
        if "±" not in word
    ]
    assert float(row[head.index("invalid")]) == pytest.approx(found["invalid"], abs=1e-4)


def test_policies_on_states_give_no_invalid_answers() -> None:
    solution = solve(make_game("silo", {}))
    ledger = expected_regret(solution, reference("random", solution.game, solution))
    assert isinstance(ledger, GameRegret)
    assert ledger.invalid == 0.0
