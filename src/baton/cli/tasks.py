"""`baton tasks`: what a team can work on here; one of them, with an example."""

from __future__ import annotations

import argparse
import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence

import msgspec

from baton.cli.printing import print_json
from baton.compose.task_cards import ExampleInstance, TaskCard, card_of, example_of, task_cards
from baton.errors import BatonError, UsageError
from baton.view.terminal.corpus_tables import named
from baton.view.terminal.fitting import Line
from baton.view.terminal.screen import emit
from baton.view.text import count, printable, shortened

_COLUMNS = 80
_MOST_LINES = 12
_GOLD = {
    "answer": "a right answer is known",
    "optimum": "its optimum is known exactly",
    "verifier": "answers are verified; none is known beforehand",
    "score": "the task scores a whole run itself",
    None: "nothing: a reward has to come from rules",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="one task, with an example of it")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which instance is shown (0)")
    parser.add_argument("--split", choices=["train", "test"], default="train", help="of which split (train)")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.epilog = (
        "Tasks and games of installed packages are among them; one of your own is module:attr.\n\n"
        "examples:\n  baton tasks\n  baton tasks shard-sum --seed 3\n  baton tasks game:pandora --json"
    )


def run(args: argparse.Namespace) -> int:
    if args.name is None:
        cards = task_cards()
        if args.json:
            return print_json(cards)
        emit(_table(cards))
        return 0
    if not 0 <= args.seed < 2**63:
        raise UsageError(f"--seed {args.seed}: expected a whole number from 0 to 2^63 - 1.")
    card = card_of(args.name)
    if card.unavailable is not None:
        raise UsageError(f"task {args.name!r} cannot be made here: {card.unavailable}")
    example = example_of(args.name, args.seed, args.split)
    if args.json:
        return print_json({**msgspec.to_builtins(card), "example": example, "command": _command(card)})
    emit(_page(card, example))
    return 0


def _table(cards: Sequence[TaskCard]) -> Iterator[Line]:
    """Two lines for each task, and its settings where they are not those of the one before."""
    width = max(len(card.name) for card in cards)
    yield [(f"{'task':<{width}}  team          gold", "dim")]
    before: dict[str, object] = {}
    for card in cards:
        team = "not here" if card.unavailable is not None else "its own" if card.own_team else "any topology"
        yield [
            (f"{printable(card.name):<{width}}  ", "bold"),
            (f"{team:<12}  {card.gold or '-'}", "yellow" if card.unavailable is not None else ""),
        ]
        yield from _wrapped(card.about, "")
        yield from _wrapped(card.unavailable or "", "yellow")
        if card.settings != before:
            yield from _wrapped(_settings(card), "dim")
        before = card.settings
    yield [(count(len(cards), "task"), "bold")]
    yield []
    yield [("gold: what is known to compare with. Settings: --set task.NAME=VALUE.", "dim")]
    yield [("Type: baton tasks NAME", "")]


def _wrapped(text: str, style: str) -> Iterator[Line]:
    yield from ([(f"  {line}", style)] for line in textwrap.wrap(printable(text), _COLUMNS - 2))


def _page(card: TaskCard, example: ExampleInstance) -> Iterator[Line]:
    yield [(printable(card.name), "bold"), (f"  {printable(card.about)}", "")]
    yield []
    package = "" if card.package == "baton" else f", of the package {printable(card.package)}"
    yield from named("kind", ("a game" if card.game else "a task") + package)
    team = f"its own, which is {card.own_team}" if card.own_team else f"any: {', '.join(card.topologies)}"
    yield from named("team", team)
    yield from named("gold", _GOLD[card.gold])
    for name, default in card.settings.items():
        yield from named("setting", f"task.{name} = {_value(default)}")
    yield []
    yield [(f"instance {example.seed} of {example.split}", "bold")]
    lines = example.prompt.splitlines()
    yield from ([(f"  | {shortened(line, _COLUMNS - 4)}", "")] for line in lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        yield [(f"  | and {count(len(lines) - _MOST_LINES, 'line')} more", "dim")]
    if example.answer is not None:
        yield from named("answer", shortened(example.answer, _COLUMNS - 18))
    for name, about in example.tools.items():
        yield from named("tool", printable(f"{name}: {about}"))
    for title, found in (("milestones", example.milestones), ("parts", example.parts)):
        if found:
            yield from named(title, printable("; ".join(found)))
    yield []
    yield [(f"Type: {_command(card)}", "green")]


def _command(card: TaskCard) -> str:
    """What runs the task as it stands."""
    folder = re.sub(r"[^\w.-]+", "-", card.name).strip("-")
    policy = "reference" if card.scripted else "openai:MODEL@URL"
    return shlex.join(["baton", "run", card.name, "--policy", policy, "--out", f"runs/{folder}"])


def _settings(card: TaskCard) -> str:
    return "  ".join(f"{name}={_value(default)}" for name, default in card.settings.items())


def _value(default: object) -> str:
    try:
        return shortened(msgspec.json.encode(default).decode(), 48)
    except (TypeError, BatonError):
        return printable(str(default))
