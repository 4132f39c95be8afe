"""`baton attack TASK`: attack a team, beside the same runs without the attacker's words."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from pathlib import Path

from baton.attack.attack import VECTORS, vector_named
from baton.attack.episode import AttackFigures, Twins
from baton.cli import add_policy, add_repeated
from baton.cli.printing import aligned, print_json
from baton.compose.attacking import OBEY, Attacks, attack_figures_of, play_attacks
from baton.compose.run_settings import Settings, parse_policies, parse_settings
from baton.compose.stores import store_to_write
from baton.compose.team_from_settings import usual_topology
from baton.errors import UsageError
from baton.measure.figure import Figure
from baton.registry import names
from baton.view.terminal.fitting import Line
from baton.view.terminal.live import live_line
from baton.view.terminal.screen import emit
from baton.view.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    vectors = "\n".join(f"  {vector.name}  {vector.about}" for vector in VECTORS.values())
    parser.epilog = (
        f"vectors:\n{vectors}\n\n"
        f"policies: {OBEY} (the task's scripted play, obeying every order it reads), reference (it obeys nobody), and "
        "all that `baton run` knows\n\n"
        "examples:\n"
        "  baton attack shard-sum --vector AV2\n"
        "  baton attack shard-sum --vector AV3 --topology hierarchical --episodes 20 --adaptive\n"
    )
    parser.add_argument("task", metavar="TASK", help="what the team works on")
    add_repeated(parser, "--vector", "AV", "where the attack comes in (all that fit)")
    parser.add_argument("--topology", metavar="T", help=f"who is attacked: {', '.join(names('topology'))}")
    add_policy(parser, f"who answers: P for all, ROLE=P for one ({OBEY})")
    parser.add_argument(
        "--guard", metavar="FILE", help="what the team may do once it has read strangers' words"
    )
    parser.add_argument(
        "--adaptive",
        action="store_true",
        help="an attacker who sees the guard's policy and tries several ways",
    )
    parser.add_argument(
        "--member",
        metavar="AGENT",
        help="who speaks for the attacker (AV3, AV6 to AV8; the first that is sent for)",
    )
    parser.add_argument("--members", type=int, default=1, metavar="N", help="how many do (1)")
    parser.add_argument(
        "--episodes",
        type=int,
        default=10,
        metavar="N",
        help="how many instances, each with a clean twin (10)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first (0)")
    add_repeated(parser, "--set", "K=V", "a setting, as for `baton run`")
    add_repeated(parser, "--tool", "NAME", "one more tool for the team")
    parser.add_argument("--surface", metavar="S", default="lines", help="how actions are written (lines)")
    parser.add_argument("--out", metavar="DIR", help="keep the traces there")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    if args.episodes < 1:
        raise UsageError(f"--episodes {args.episodes}: expected 1 or more.")
    if args.members < 1:
        raise UsageError(f"--members {args.members}: expected 1 or more.")
    if not 0 <= args.seed < 2**62:
        raise UsageError(f"--seed {args.seed}: expected a whole number from 0 to 2^62.")
    written = parse_settings(args.set)
    settings = Settings(
        task=args.task,
        topology=args.topology or usual_topology(args.task, written["task_settings"]),
        policies=parse_policies(args.policy) or {"default": OBEY},
        split="train",
        seed=args.seed,
        instance=None,
        tools=tuple(args.tool),
        aggregators=(),
        clock="virtual",
        surface=args.surface,
        guard=args.guard,
        **written,
    )
    vectors = [vector_named(name) for name in args.vector] or list(VECTORS.values())
    out = None if args.out is None else store_to_write(args.out)
    seeds = range(args.seed, args.seed + args.episodes)
    reports: list[AttackFigures] = []
    left_out: dict[str, str] = {}
    for vector in vectors:
        try:
            attacks = Attacks(
                settings, vector, adaptive=args.adaptive, member=args.member, num_members=args.members
            )
            episodes = _play(attacks, seeds, out)
        except UsageError as error:
            if args.vector:
                raise
            left_out[vector.name] = str(error)
            continue
        reports.append(attack_figures_of(attacks, episodes))
    if not reports:  # most likely a slip in what was typed, which every vector met
        raise UsageError(next(iter(left_out.values())))
    if args.json:
        return print_json({"attacks": reports, "left_out": left_out})
    emit(_table(reports, settings, left_out))
    return 0


def _play(attacks: Attacks, seeds: range, out: Path | None) -> list[list[Twins]]:
    played: list[int] = []
    name = attacks.vector.name
    with live_line(lambda seconds: f"{name}: {len(played)} of {len(seeds)} episodes, {seconds:.0f} s"):
        return asyncio.run(play_attacks(attacks, seeds, out, lambda: played.append(1)))


def _table(reports: list[AttackFigures], settings: Settings, left_out: dict[str, str]) -> Iterator[Line]:
    policies = ", ".join(
        who if role == "default" else f"{role}={who}" for role, who in settings.policies.items()
    )
    guard = "no guard" if settings.guard is None else f"guard {settings.guard}"
    yield [(printable(f"{settings.task}, {settings.topology}, {policies}, {guard}"), "bold")]
    rows = [
        [
            "vector",
            "attack success",
            "utility",
            "under attack",
            "margin",
            "noticed",
            "tainted",
            "changed",
            "unsound",
        ]
    ]
    for one in reports:
        figures = (
            one.attack_success, one.utility, one.utility_under_attack, one.margin, one.detection, one.tainted_agents,
            one.changed_agents,
        )  # fmt: skip
        unsound = "-" if one.unsound.value is None else f"{one.unsound.value:g}"
        rows.append([one.vector, *map(_shown, figures), unsound])
    yield from aligned(rows)
    for one in reports:
        if len(one.ways) > 1:
            told = ", ".join(f"{how} {_shown(figure)}" for how, figure in one.ways.items())
            yield [(f"{one.vector} by the way it was put: {told}", "dim")]
    for name, why in left_out.items():
        yield [(printable(f"{name} left out: {why}"), "dim")]
    yield []
    yield [
        (
            "Shares with 95 % intervals. noticed: of attacks that worked or were refused, those that show.",
            "dim",
        )
    ]
    yield [("unsound: events that the payload changed and that taint did not reach.", "dim")]


def _shown(figure: Figure) -> str:
    if figure.value is None:
        return "-"
    if figure.low is None or figure.high is None:
        return f"{figure.value:.2f}"
    return f"{figure.value:.2f} [{figure.low:.2f}, {figure.high:.2f}]"
