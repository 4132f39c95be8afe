"""`baton completion bash|zsh|fish`: a script by which a shell completes commands, options, names and paths.

All words are in the script, so that completing starts no Python. What is installed later is not in it: make it again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from msgspec import Struct

from baton import registry
from baton.cli import COMMANDS, command_module
from baton.cli.command_parser import CommandParser
from baton.cli.completion_scripts import SHELLS
from baton.view.terminal.screen import take_every_character

Words = Callable[[], Sequence[str]]

_KINDS = ("topology", "surface", "tool", "aggregator", "estimator", "metric")
"""Options that are called like the kind of extension they name."""


class CommandSlot(Struct, frozen=True, kw_only=True):
    """Something that can be typed: an option, or a word in its place."""

    options: tuple[str, ...] = ()
    """How it is called; none of a word in its place."""
    takes_value: bool = True
    words: tuple[str, ...] = ()
    """What the value may be; none: a path, or whatever one likes."""
    repeated: bool = False
    about: str = ""


class CommandPlace(Struct, frozen=True, kw_only=True):
    """A command, or a part of one: `baton game regret`."""

    path: tuple[str, ...]
    about: str
    parts: tuple[str, ...]
    slots: tuple[CommandSlot, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "To have it in every new shell, once (and again after an update, or when you have installed more parts):\n"
        "  baton completion bash > ~/.local/share/bash-completion/completions/baton\n"
        '  baton completion zsh > "${fpath[1]}/_baton"\n'
        "  baton completion fish > ~/.config/fish/completions/baton.fish\n\n"
        'In bash without the package bash-completion, put this into ~/.bashrc:  eval "$(baton completion bash)"'
    )
    parser.add_argument("shell", choices=tuple(SHELLS), help="which shell reads the script")


def run(args: argparse.Namespace) -> int:
    take_every_character()
    sys.stdout.write(SHELLS[args.shell](list(places())))
    return 0


def places() -> Iterator[CommandPlace]:
    """Every command and every part of one, with all that can be typed there."""
    yield CommandPlace(
        path=(),
        about="",
        parts=tuple(COMMANDS),
        slots=(CommandSlot(options=("--help", "--version"), takes_value=False),),
    )
    for name, about in COMMANDS.items():
        parser = CommandParser(prog=f"baton {name}")
        command_module(name).add_arguments(parser)
        yield from _places((name,), about, parser)


def _places(path: tuple[str, ...], about: str, parser: argparse.ArgumentParser) -> Iterator[CommandPlace]:
    parts: dict[str, argparse.ArgumentParser] = {}
    slots: list[CommandSlot] = []
    told: dict[str, str] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parts |= action.choices
            told |= {each.dest: each.help or "" for each in action._choices_actions}
        elif action.help != argparse.SUPPRESS:
            slots.append(_slot(path, action))
    yield CommandPlace(path=path, about=about, parts=tuple(parts), slots=tuple(slots))
    for name, part in parts.items():
        yield from _places((*path, name), told.get(name, ""), part)


def _slot(path: tuple[str, ...], action: argparse.Action) -> CommandSlot:
    return CommandSlot(
        options=tuple(action.option_strings),
        takes_value=action.nargs != 0,
        words=tuple(_words(path, action)) if action.nargs != 0 else (),
        repeated=action.nargs in ("+", "*"),
        about=action.help or "",
    )


def _words(path: tuple[str, ...], action: argparse.Action) -> Sequence[str]:
    """What a value may be, where that is a list."""
    if action.choices is not None:
        return list(map(str, action.choices))
    for key in (" ".join((*path, action.dest)), f"{path[0]} {action.dest}", action.dest):
        if key in _lists():
            return list(_lists()[key]())
    return registry.names(action.dest) if action.dest in _KINDS else ()


@cache
def _lists() -> dict[str, Words]:
    """What is named by what: `command dest`, or `dest` in every command."""
    from baton.cli.recipes import _WORDS as recipe_words
    from baton.corpus import CLAIMS, VOCABULARIES, YES_OR_NO, load
    from baton.corpus.advice import QUESTIONS, ROLES
    from baton.games.reference import REFERENCE
    from baton.learn.models import MODELS
    from baton.reward import reward_recipes
    from baton.trace.formats import known_formats
    from baton.trace.vocabulary import CREDIT_UNITS

    def names(kind: str) -> Words:
        return lambda: registry.names(kind)

    def these(words: Sequence[str]) -> Words:
        return lambda: words

    def keys() -> Sequence[str]:
        found = load()
        return [*(paper.key for paper in found.all_papers), *(record.key for record in found.excluded)]

    lists: dict[str, Words] = {
        "run task": names("task"),
        "tasks name": names("task"),
        "init task": names("task"),
        "train recipe": names("recipe"),
        "doctor recipe": names("recipe"),
        "recipes name": names("recipe"),
        "reward recipe": lambda: list(reward_recipes()),
        "game name": names("game"),
        "game policy": these(REFERENCE),
        "policy": these(["reference", *REFERENCE, *MODELS]),
        "unit": these(CREDIT_UNITS),
        "credit layer": names("estimator"),
        "credit value": these(("group", "optimum")),
        "convert to": lambda: list(known_formats()),
        "convert from_": lambda: list(known_formats()),
        "corpus claims names": these([claim.name for claim in CLAIMS]),
        "corpus evidence classes": these(VOCABULARIES["source_class"]),
        **{f"corpus {part}": keys for part in ("show key", "cards keys", "bib keys")},
        **{f"corpus list {field}": these(words) for field, words in VOCABULARIES.items()},
        **{f"corpus list {field}": these(("yes", "no")) for field in YES_OR_NO},
        **{f"recipes {field}": these(words) for field, words in recipe_words.items()},
        **{f"advise {name}": these(ROLES if name == "roles" else ("yes", "no")) for name in QUESTIONS},
    }
    return lists
