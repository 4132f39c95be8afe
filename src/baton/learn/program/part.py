"""The `[program]` table of a recipe: an agent program that is trained as it is, in the place of a team of Baton's.

    [program]
    command = ["python", "my_agent.py", "{question}"]

Fields of an instance stand for their values wherever `{name}` is written: in the command, in `env`, in `stdin`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs

from baton.settings import Count, Positive


class ProgramPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which program plays, how it is run, and what it earns."""

    command: tuple[str, ...]
    """What one would type, word by word. A word that is a file's name in `folder` becomes its whole path."""
    alone: tuple[str, ...] = ()
    """The command of a single agent for the same instances, to compare with at equal tokens; empty: none is."""
    folder: str | None = None
    """Where the command's files are; None: the recipe's folder, or where `baton train` is typed."""
    stdin: str | None = None
    """What the program reads from its standard input; None: nothing."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables of its environment, beside those that point it at Baton."""
    pass_env: tuple[str, ...] = ()
    """Variables of yours that it gets too. Without this it gets PATH, HOME, the language and the like: no keys."""
    wrap: tuple[str, ...] = ()
    """A command that runs it elsewhere, before its own: ["docker", "run", "--rm", "--network=host", "{env}", "image"].
    The word "{env}" becomes `--env NAME` for each variable that is set for it."""
    preload: tuple[str, ...] = ()
    """Python modules that are imported once; each run is then a fork of that process. For programs that are
    ["python", "file.py", ...] and whose imports take longer than their work."""
    at_once: Count = 8
    """Runs side by side."""
    timeout_s: Positive = 120.0
    """After so long a run is ended, with all processes of its group."""
    limits: dict[str, Any] = field(default_factory=dict)
    """Of each run's session: tokens, calls, agents, seconds."""
    answer: str = "last"
    """What of its output is the answer: all, last (line), json:FIELD of the last line, or pattern:REGEX."""
    reward: str = "answer"
    """answer: what the task says of it; exit: 1 for exit code 0; post: what was posted to the session; or
    module:function, which is given a `ProgramResult`."""
    role: str = "agent"
    """The role of whoever no pattern of `roles` knows."""
    roles: dict[str, str] = field(default_factory=dict)
    """Role -> a pattern (regular expression) that is found in its system prompt, or `header:NAME=PATTERN`. Policies
    answer for roles."""
    temperature: Positive = 1.0
    """At which all answers are drawn, whatever the program asks for: training needs the whole distribution."""
    max_tokens: Count = 64
    """The most that one answer has, even where the program allows more."""
    tools: str | None = None
    """How the model writes tool calls; None: by its family."""
    script: str | None = None
    """module:function of scripted answers, for `[warm]`."""


def placed(part: ProgramPart, recipe: str) -> ProgramPart:
    """The part with its folder: that of the recipe's file, where it is one, else where we are."""
    if part.folder is not None:
        return part
    folder = Path(recipe).parent if recipe.endswith(".toml") and Path(recipe).is_file() else Path()
    return structs.replace(part, folder=str(folder.resolve()))
