"""`baton game`: exact games. List them, solve them, play them, and see where a policy loses."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from baton import registry
from baton.cli import add_repeated, add_trust
from baton.cli.printing import aligned, print_json, say
from baton.compose.game_runs import ledgers_of_traces, play_on_team
from baton.compose.stores import store_to_write
from baton.errors import UsageError
from baton.games.game import CHOICES, Game
from baton.games.game_trace import Played
from baton.games.ledger import GameRegret, SampledLedger, expected_regret, sampled_regret
from baton.games.library import GAMES, make_game
from baton.games.play import PolicyTable
from baton.games.reference import REFERENCE, reference
from baton.games.solve import solve
from baton.registry import TRUST
from baton.settings import read_change
from baton.view.terminal.live import live_line
from baton.view.terminal.run_lines import watching
from baton.view.terminal.screen import emit, room
from baton.view.text import count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
    listing = parts.add_parser("list", help="the games, what they are about, and their parameters")
    listing.add_argument("--json", action="store_true", help="as JSON")
    solving = parts.add_parser("solve", help="the exact optimum and the closed-form figures")
    playing = parts.add_parser("play", help="play with a reference policy, alone or on a team")
    regret = parts.add_parser("regret", help="V* - V of a policy, split over the five decisions")
    for part in (solving, playing, regret):
        also = ", or traces of one that a team played" if part is regret else ""
        part.add_argument("name", metavar="NAME", help=f"a game, from `baton game list`{also}")
        add_repeated(part, "--set", "K=V", "a parameter")
        part.add_argument("--json", action="store_true", help="as JSON")
    for part in (playing, regret):
        part.add_argument(
            "--policy",
            metavar="P",
            default="all" if part is regret else "optimal",
            help=_policies(part is regret),
        )
        part.add_argument("--seed", type=int, default=0, metavar="N", help="of the play (default 0)")
    playing.add_argument(
        "--episodes", type=int, default=1, metavar="N", help="how many; one is shown step by step"
    )
    playing.add_argument("--team", action="store_true", help="on the team runtime; any policy of `baton run`")
    playing.add_argument("--out", metavar="DIR", help="keep the traces there (implies --team)")
    regret.add_argument(
        "--episodes", type=int, metavar="N", help="sample N episodes instead of exact expectation"
    )
    add_trust(regret)


def _policies(everyone: bool) -> str:
    return f"one of {', '.join(REFERENCE)}" + (
        " (fixed-3 for k = 3), or all of them (default)" if everyone else ""
    )


def run(args: argparse.Namespace) -> int:
    if args.part == "list":
        return _list(args.json)
    if args.part == "regret" and args.name not in GAMES and Path(args.name).exists():
        return _regret_of_traces(args)
    game = make_game(args.name, dict(map(read_change, args.set)))
    return {"solve": _solve, "play": _play, "regret": _regret}[args.part](game, args)


def _list(as_json: bool) -> int:
    games: list[dict[str, Any]] = [
        {
            "name": name,
            "decisions": list(dict.fromkeys(kind.decisions)),
            "about": (sys.modules[kind.__module__].__doc__ or "").split("\n", 1)[0],
            "parameters": structs.asdict(kind()),
        }
        for name, kind in registry.every("game").items()
    ]
    if as_json:
        return print_json(games)
    for game in games:
        usual = (f"{key}={msgspec.json.encode(value).decode()}" for key, value in game["parameters"].items())
        say(f"{game['name']}  [{' '.join(game['decisions'])}]\n  {game['about']}\n  {'  '.join(usual)}")
    return 0


def _solve(game: Game, args: argparse.Namespace) -> int:
    solution = solve(game)
    first = game.start()[0].state
    out = {
        "name": game.name,
        "value": solution.value,
        "states": len(solution.values),
        "facts": game.facts(),
        "first_state": {"text": game.text(first), "q": solution.q(first)},
    }
    if args.json:
        return print_json(out)
    say(f"{game.name}: V* = {solution.value:.6g}, exact over {len(solution.values):,} states")
    for name, value in game.facts().items():
        say(f"  {name} = {value:.6g}")
    say("first state:")
    say("\n".join(f"  | {line}" for line in game.text(first).splitlines()))
    for option, q in solution.q(first).items():
        mark = "*" if option == solution.best(first) else " "
        say(f"  {mark} {option:<32} {q:.6g}")
    return 0


def _play(game: Game, args: argparse.Namespace) -> int:
    if args.episodes < 1:
        raise UsageError(f"--episodes {args.episodes}: play at least 1.")
    on_team = args.team or args.out
    plays = _play_on_team(args) if on_team else _play_alone(game, args)
    if args.json:
        return print_json(
            [
                {
                    "value": play.value,
                    "steps": [
                        {
                            "text": game.text(state),
                            "decision": game.decision(state),
                            "option": option,
                            "reward": reward,
                        }
                        for state, option, reward in play.steps
                    ],
                }
                for play in plays
            ]
        )
    if len(plays) > 1:
        mean = sum(play.value for play in plays) / len(plays)
        say(f"{game.name}, {args.policy}: mean return {mean:.6g} over {len(plays):,} episodes")
        return 0
    for state, option, reward in plays[0].steps:
        say("\n".join(f"| {line}" for line in game.text(state).splitlines()))
        say(f"> {option}" + (f"    {reward:+g}" if reward else ""))
    cut_off = f", cut off at a quit worth {plays[0].quit_value:g}" if plays[0].cut_off else ""
    say(f"return {plays[0].value:g}{cut_off}")
    return 0


def _play_on_team(args: argparse.Namespace) -> list[Played]:
    out = None if args.out is None else store_to_write(args.out)
    seeds = range(args.seed, args.seed + args.episodes)
    plays, traces = play_on_team(
        args.name, args.policy, dict(map(read_change, args.set)), seeds, out, watching
    )
    if out is not None and not args.json:
        several = f"traces   {len(plays):,} in {out}"
        say(f"trace    {traces[-1].trace_id} in {out}" if len(plays) == 1 else several)
    return plays


def _play_alone(game: Game, args: argparse.Namespace) -> list[Played]:
    table = PolicyTable(game, reference(args.policy, game))
    episodes = (table.play(args.seed, index) for index in range(args.episodes))
    return [
        Played(game=game, steps=list(zip(e.states, e.options, e.rewards, strict=True)), end=e.end)
        for e in episodes
    ]


def _regret(game: Game, args: argparse.Namespace) -> int:
    if args.trust:
        raise UsageError(f"{TRUST} is for traces, which may name a game of their own. Leave it out.")
    names = REFERENCE if args.policy == "all" else (args.policy,)
    out: dict[str, GameRegret | SampledLedger] = {}
    with _telling(f"solving {game.name}"):
        solution = solve(game)
    for name in names:
        so_far = _Count()
        with _telling(f"{game.name}, {name}", so_far, "episode"):
            policy = reference(name, game, solution)
            if args.episodes is None:
                out[name] = expected_regret(solution, policy)
            else:
                out[name] = sampled_regret(solution, policy, args.episodes, args.seed, so_far.set)
    if args.json:
        return print_json({"name": game.name, "optimum": solution.value, "policies": out})
    return _show(f"{game.name}: V* = {solution.value:.6g}", out, chance=args.episodes is not None)


def _regret_of_traces(args: argparse.Namespace) -> int:
    if args.set or args.episodes is not None or args.policy != "all":
        raise UsageError(
            "traces say what was played, and by whom: --set, --policy and --episodes do not apply."
        )
    so_far = _Count()
    with _telling(f"reading {args.name}", so_far, "trace"):
        found = ledgers_of_traces(Path(args.name), trust=args.trust, read=so_far.set)
    if args.json:
        return print_json(found)
    for game, out in found.items():
        _show(f"{game}: V* = {next(iter(out.values())).optimum:.6g}", out, chance=True)
    return 0


class _Count:
    """How far a long piece of work is."""

    def __init__(self) -> None:
        self.done = 0

    def set(self, done: int) -> None:
        self.done = done


def _telling(what: str, so_far: _Count | None = None, noun: str = "") -> AbstractContextManager[None]:
    def tell(seconds: float) -> str:
        done = f", {count(so_far.done, noun)}" if so_far is not None and so_far.done else ""
        return f"{what}{done}, {seconds:.0f} s"

    return live_line(tell, logged=False)


def _show(head: str, out: Mapping[str, GameRegret | SampledLedger], *, chance: bool) -> int:
    """A row for every policy. What was played hangs on `chance`, which stands apart; in expectation there is none."""
    say(head)
    names = ["policy", "value", "regret", *CHOICES, "invalid", *(["luck"] if chance else [])]
    rows = [names, *([name, *map(_figure, _numbers(each, chance))] for name, each in out.items())]
    if room() is None:  # columns of one width, whatever is in them
        rows = [[f"{row[0]:<12}", *(f"{cell:>15}" for cell in row[1:])] for row in rows]
    emit(aligned(rows, "", right=range(1, len(names))))
    if chance:
        charged = any(_mean(each.invalid) for each in out.values())
        also = " + what invalid answers are charged, which no return shows" if charged else ""
        say(f"value = V* - regret + luck{also}", "dim")
    return 0


def _mean(figure: float | tuple[float, float]) -> float:
    return figure[0] if isinstance(figure, tuple) else figure


def _numbers(ledger: GameRegret | SampledLedger, chance: bool) -> list[float | tuple[float, float]]:
    parts = [ledger.parts[choice] for choice in CHOICES]
    return [ledger.value, ledger.regret, *parts, ledger.invalid, *([ledger.luck] if chance else [])]


def _figure(number: float | tuple[float, float]) -> str:
    if isinstance(number, tuple):
        return f"{round(number[0], 4) + 0.0:.4f} ±{number[1]:.4f}"
    return f"{number if abs(number) > 5e-7 else 0.0:.6f}"
