"""How often intervals hold the truth, for estimators that run traces again: small teams whose values are arithmetic.

- Options: a root picks one of three; one asks a worker, whose word is one of two and whose text varies.
- Relay: a worker says a number in one of so many texts, and a second draws one about what it was told; half of its
  luck is the same whatever that was.
- Calls: an agent asks a tool at a level that it draws, or guesses; what it then says has luck of its own, half of it
  the same whatever the level was.
- Bit: the same with a bit, of which few draws tell only one of a handful of shares.
- Sum: two workers return numbers, and half of what they are worth together is each one's.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

from msgspec import Struct

from baton.credit import ESTIMATORS
from baton.engine.scripted import ScriptedEngine
from baton.team.agent import Role
from baton.team.clock import uniform
from baton.team.forks import Forks
from baton.team.protocol import Answer, Request
from baton.team.running import run
from baton.team.team import Assignment, Team, Topology
from baton.team.tools.tool import tool
from baton.team.topology import make_topology
from baton.trace.acts import results_of
from baton.trace.records import Credit
from baton.trace.trace import Trace
from credit_bench.coverage import CASES, Coverage, Held, covered, matched
from credit_bench.stopping_teams import stop_groups
from credit_bench.two_choices import Case

__all__ = ["WORLDS", "World", "alone", "bits", "held", "team_coverage"]

OPTIONS = {"spawn worker: dig": 0.4, "stop A": 0.3, "stop B": 0.3}
_WORTH = {"A": 0.6, "B": 0.3, "yes": 0.8, "no": 0.4}
_COINS = {"A": 1.0, "B": 0.0, "yes": 1.0, "no": 0.0}
_FIRST, _SECOND = 0.6, {"1": 0.8, "0": 0.3}
_LEVEL = 0.5
"""What the first worker of a relay says on average."""
_MEANS = (0.5, 0.3)
_ASKS, _GUESS = 0.75, 0.3
"""How often a tool is asked, and what is said without."""
Drawn = tuple[list[Trace], Forks, list[Mapping[str, float]]]
"""A group, what runs it again, and its truth."""


class World(Struct, frozen=True, kw_only=True):
    """A team and what its credit is to hold."""

    estimator: str
    holds: str
    group: Callable[[Case, int], Awaitable[Drawn]]
    settings: dict[str, Any] = {}
    dear: int = 1
    """How many times fewer groups it is asked for."""
    title: str = ""


def _normal(key: str) -> float:
    return NormalDist().inv_cdf(min(max(uniform(key), 1e-9), 1 - 1e-9))


def _turn(request: Request) -> int:
    return sum(entry.speaker == "assistant" for entry in request.entries)


def _text(case: Case, key: str) -> str:
    """One of so many ways to say it."""
    return f"way{int(uniform(f'text/{key}') * case.num_texts)}"


@tool(pure=True)
def ask(level: float, way: str) -> str:
    """A number for a number; the way it is asked changes the text alone."""
    return f"{level:.6f}"


ASKER = Topology(
    name="asker", root="root", roles=(Role(name="root", verbs=("call", "stop"), tools=("ask",)),)
)


async def _ran(
    script: Callable[[Request], str | Answer],
    assign: Callable[[str], Assignment],
    case: Case,
    number: int,
    topology: Topology | None = None,
) -> tuple[list[Trace], Forks]:
    topology, engine = topology or make_topology("centralized"), ScriptedEngine("bench", script)
    tools = [ask] if topology is ASKER else []
    traces = []
    for place in range(case.group_size):
        name = f"g{number}-{place:02}"
        seed = number * 1000 + place
        team = Team.of(topology, engine, tools=tools, seed=seed)
        traces.append(await run(team, assign(name), trace_id=name))
    return traces, Forks(
        Team.of(topology, engine, tools=tools), lambda trace: assign(trace.trace_id.partition("~")[0])
    )


async def _options(case: Case, number: int) -> Drawn:
    """A choice of three, with luck of the verifier's that no replicate draws anew."""
    return await _choices(case, number, verified=True)


async def _spawns(case: Case, number: int) -> Drawn:
    """The same without that luck: all there is, policies draw. A group in which somebody spawned."""
    while True:
        drawn = await _choices(case, number, verified=False)
        if any(event.type == "spawn" for trace in drawn[0] for event in trace.events):
            return drawn
        number += 5_000


async def _choices(case: Case, number: int, *, verified: bool) -> Drawn:
    names, chances = tuple(OPTIONS), tuple(OPTIONS.values())
    each = _COINS if case.coin and not verified else _WORTH

    def script(request: Request) -> str | Answer:
        key = request.sampling.key or ""
        if request.role == "worker":
            return f"return {'yes' if uniform(key) < 0.5 else 'no'} {_text(case, key)}"
        if _turn(request):
            return (
                "wait all" if _turn(request) == 1 else f"stop {request.entries[-1].text.rpartition(': ')[2]}"
            )
        point = uniform(key)
        choice = 0 if point < chances[0] else 1 if point < chances[0] + chances[1] else 2
        return Answer(text=names[choice], policy="bench", choice=choice, option_propensities=chances)

    def assign(name: str) -> Assignment:
        def verify(answer: str) -> float:
            kind = answer.split()[0]
            if not verified:
                return each[kind]
            if case.coin:
                return float(uniform(f"luck/{name}") < _WORTH[kind])
            return _WORTH[kind] + 0.3 * _normal(f"luck/{name}") + 0.3 * _normal(f"luck/{name}/{kind}")

        return Assignment(
            task_id="options",
            prompt="p",
            verify=verify,
            options=lambda me: names if me.role.name == "orchestrator" and me.turns == 1 else None,
        )

    traces, forks = await _ran(script, assign, case, number)
    worth = {
        "spawn worker: dig": (each["yes"] + each["no"]) / 2,
        "stop A": each["A"],
        "stop B": each["B"],
    }
    mean = sum(p * worth[option] for option, p in OPTIONS.items())
    truths = []
    for trace in traces:
        event = next(event for event in trace.events if event.options is not None)
        truths.append({event.id: worth[names[event.choice or 0]] - mean})
    return traces, forks, list(truths)


async def _relay(case: Case, number: int) -> Drawn:
    """The first says a level; the second's number is that and its own luck, or a coin with that chance."""

    def second(level: float, key: str, told: str) -> float:
        if case.coin:
            return float(uniform(key if uniform(f"whose/{key}") < 0.5 else f"{key}/{told}") < level)
        return level + 0.2 * _normal(key) + 0.2 * _normal(f"{key}/{told}")

    def script(request: Request) -> str | Answer:
        key = request.sampling.key or ""
        if request.role == "worker":
            told = request.entries[-1].text.split()[-1]
            if told == "?":
                return f"return {_text(case, key)} {_level(case, uniform(key)):.6f}"
            return f"return {second(float(told), key, told):.6f}"
        last = request.entries[-1].text.split()[-1]
        return ("spawn worker: ?\nwait all", f"spawn worker: {last}\nwait all", f"stop {last}")[
            _turn(request)
        ]

    return await _relayed(case, number, script, lambda said: float(said), _LEVEL)


async def _calls(case: Case, number: int) -> Drawn:
    """An agent that asks a tool, or guesses. A group in which somebody asked."""

    def script(request: Request) -> str | Answer:
        key = request.sampling.key or ""
        if _turn(request):
            told = request.entries[-1].text.split()[-1]
            whose = key if uniform(f"whose/{key}") < 0.5 else f"{key}/{told}"
            if case.coin:
                return f"stop {float(uniform(whose) < float(told))}"
            return f"stop {float(told) + 0.2 * _normal(key) + 0.2 * _normal(f'{key}/{told}'):.6f}"
        if uniform(f"whether/{key}") > _ASKS:
            return f"stop {_GUESS}"
        level = _level(case, uniform(key))
        return f'call ask {{"level": {level:.6f}, "way": "{_text(case, key)}"}}'

    traces, forks = await _ran(
        script, lambda name: Assignment(task_id="calls", prompt="p", verify=float), case, number, ASKER
    )
    mean = _ASKS * _LEVEL + (1 - _ASKS) * _GUESS
    truths = []
    for trace in traces:
        results = results_of(trace)
        asked = [event for event in trace.events if event.type == "tool_call"]
        truths.append({e.id: float(trace.text(results[e.id].content_ref) or 0) - mean for e in asked})
    return (traces, forks, list(truths)) if any(truths) else await _calls(case, number + 5_000)


def _level(case: Case, point: float) -> float:
    """Normal about its mean; evenly from 0 to 1 where it is to be a chance."""
    return point if case.coin else _LEVEL + 0.3 * NormalDist().inv_cdf(min(max(point, 1e-9), 1 - 1e-9))


async def bits(case: Case, number: int) -> Drawn:
    """A relay whose first worker says a bit."""

    def script(request: Request) -> str | Answer:
        key = request.sampling.key or ""
        if request.role == "worker":
            task = request.entries[-1].text.split()[-1]
            if task == "?":
                return f"return {_text(case, key)} {int(uniform(key) < _FIRST)}"
            if case.coin:
                return f"return {int(uniform(key) < _SECOND[task])}"
            return f"return {_SECOND[task] + 0.3 * _normal(key):.6f}"
        last = request.entries[-1].text.split()[-1]
        return ("spawn worker: ?\nwait all", f"spawn worker: {last}\nwait all", f"stop {last}")[
            _turn(request)
        ]

    mean = _FIRST * _SECOND["1"] + (1 - _FIRST) * _SECOND["0"]
    return await _relayed(case, number, script, lambda said: _SECOND[said], mean)


async def _relayed(
    case: Case,
    number: int,
    script: Callable[[Request], str | Answer],
    worth: Callable[[str], float],
    mean: float,
) -> Drawn:
    """Rollouts of a relay: what the first said is worth what the second says on average."""
    traces, forks = await _ran(
        script, lambda name: Assignment(task_id="relay", prompt="p", verify=float), case, number
    )
    truths = []
    for trace in traces:
        first = worth((trace.text(trace.event("worker1#1").content_ref) or "").split()[-1])
        said = float(trace.text(trace.event("worker2#1").content_ref) or 0)
        truths.append({"worker1#1": first - mean, "worker2#1": said - first})
    return traces, forks, list(truths)


async def alone(case: Case, number: int) -> Drawn:
    """One rollout whose luck is all in what workers say, so that replicates draw it anew: spawn one of two, or stop."""
    names, chances = ("spawn worker: dig", "spawn worker: ask", "stop 0.3"), (0.4, 0.3, 0.3)
    worth = dict(zip(names, (0.6, 0.5, 0.3), strict=True))

    def script(request: Request) -> str | Answer:
        key = request.sampling.key or ""
        if request.role == "worker":
            level = worth[f"spawn worker: {request.entries[-1].text.split()[-1]}"]
            drawn = float(uniform(key) < level) if case.coin else level + 0.3 * _normal(key)
            return f"return {drawn:.6f}"
        if _turn(request):
            last = request.entries[-1].text.rpartition(": ")[2]
            return "wait all" if _turn(request) == 1 else f"stop {last}"
        point = uniform(key)
        choice = 0 if point < chances[0] else 1 if point < chances[0] + chances[1] else 2
        return Answer(text=names[choice], policy="bench", choice=choice, option_propensities=chances)

    def assign(_: str) -> Assignment:
        return Assignment(
            task_id="alone",
            prompt="p",
            verify=float,
            options=lambda me: names if me.role.name == "orchestrator" and me.turns == 1 else None,
        )

    traces, forks = await _ran(script, assign, case, number)
    mean = math.fsum(p * worth[name] for name, p in zip(names, chances, strict=True))
    chosen = [next(event for event in trace.events if event.options is not None) for trace in traces]
    return traces, forks, [{event.id: worth[names[event.choice or 0]] - mean} for event in chosen]


async def _sum(case: Case, number: int) -> Drawn:
    def script(request: Request) -> str | Answer:
        key = request.sampling.key or ""
        if request.role == "worker":
            mean = _MEANS[int(request.agent[-1]) - 1]
            drawn = float(uniform(key) < mean) if case.coin else mean + 0.3 * _normal(key)
            return f"return {_text(case, key)} {drawn:.6f}"
        if not _turn(request):
            return "spawn worker: a\nspawn worker: b\nwait all"
        said = [float(entry.text.split()[-1]) for entry in request.entries if "returned:" in entry.text]
        return f"stop {sum(said) + (said[0] * said[1] if len(said) == 2 else 0.0):.6f}"

    traces, forks = await _ran(
        script, lambda name: Assignment(task_id="sum", prompt="p", verify=float), case, number
    )
    both = _MEANS[0] * _MEANS[1] / 2
    return traces, forks, [{"worker1": _MEANS[0] + both, "worker2": _MEANS[1] + both} for _ in traces]


WORLDS = (
    World(estimator="spawn-fork", holds="Q - V, three options (one draw)", group=_options),
    World(
        estimator="spawn-fork",
        title="spawn-fork, 4 replicates",
        holds="Q - V, three options",
        group=_options,
        settings={"num_replicates": 4},
    ),
    World(estimator="spawn-combined", holds="Q - V, three options", group=_options),
    World(
        estimator="message-replay",
        holds="total effect, 4 x 4",
        group=_relay,
        settings={"num_alternatives": 4, "num_continuations": 4},
        dear=2,
    ),
    World(
        estimator="spawn-replay",
        holds="Q - V of a spawn, 4 x 4",
        group=_spawns,
        settings={"num_alternatives": 4, "num_continuations": 4},
        dear=2,
    ),
    World(
        estimator="tool-replay",
        holds="Q - V of a call, 4 x 4",
        group=_calls,
        settings={"num_alternatives": 4, "num_continuations": 4},
        dear=2,
    ),
    World(estimator="shapley", holds="E phi of the agent (one draw)", group=_sum),
)


def team_coverage(num_groups: int, worlds: Sequence[World] = WORLDS) -> list[Coverage]:
    """Every world over every case, and stop credit on the stopping chain."""
    found = [
        Coverage(
            estimator=world.title or world.estimator,
            listed=world.estimator,
            holds=world.holds,
            cases=tuple(
                asyncio.run(held(world, case, max(1, num_groups * 8 // case.group_size // world.dear), place))
                for place, case in enumerate(CASES)
            ),
        )
        for world in worlds
    ]
    groups = stop_groups(max(2, num_groups // 8), 32)
    stop = covered([matched(credits, truths) for credits, truths, _ in groups])
    cases = tuple(stop if case == Case(num_texts=64, group_size=32) else None for case in CASES)
    holds = "-(1-p) D or p D, D = C - S"
    return [*found, Coverage(estimator="stop-value", listed="stop-value", holds=holds, cases=cases)]


async def held(world: World, case: Case, num_groups: int, place: int = 0) -> Held:
    """How often the credits of some groups of a world hold what they are to."""
    pairs: list[list[tuple[Credit, float]]] = []
    for number in range(num_groups):
        traces, forks, truths = await world.group(case, place * 10_000 + number)
        credits = await ESTIMATORS[world.estimator].function(traces, runner=forks, **world.settings)
        pairs.append(matched(credits, truths))
    return covered(pairs)
