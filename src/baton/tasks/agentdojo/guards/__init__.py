"""A guard for each suite, as TOML beside this file: `--guard baton.tasks.agentdojo.guards:banking`."""

from __future__ import annotations

import tomllib
from importlib.resources import files

from msgspec import structs

from baton.tasks.agentdojo.handled import LONGEST, READER
from baton.team.guard.handles import HandleRule
from baton.team.guard.policy import Guard, guard_of


def guard_for(suite: str) -> Guard:
    """The guard that ships for a suite."""
    return guard_of(tomllib.loads(files(__name__).joinpath(f"{suite}.toml").read_text("utf-8")))


def handled(suite: str) -> Guard:
    """The same, with strangers' words kept under names: for `task.handles`."""
    return structs.replace(guard_for(suite), handles=HandleRule(readers=(READER,), longest=LONGEST))


def workspace() -> Guard:
    """Mail, calendar and files."""
    return guard_for("workspace")


def travel() -> Guard:
    """Bookings, calendar and mail."""
    return guard_for("travel")


def banking() -> Guard:
    """Payments and the account."""
    return guard_for("banking")


def slack() -> Guard:
    """Messages, channels and web pages."""
    return guard_for("slack")


def handled_workspace() -> Guard:
    """Mail, calendar and files, with handles."""
    return handled("workspace")


def handled_travel() -> Guard:
    """Bookings, calendar and mail, with handles."""
    return handled("travel")


def handled_banking() -> Guard:
    """Payments and the account, with handles."""
    return handled("banking")


def handled_slack() -> Guard:
    """Messages, channels and web pages, with handles."""
    return handled("slack")
