"""What a file may make happen: nothing outside Baton, unless the person says so in this call.

A trace or a recipe is a file, perhaps a stranger's, and it names who plays: some of these names are code to import,
some an address to which the API key would go. `--trust` lets them. What is typed on the command line or passed in
Python needs no leave, nor does what is installed as an entry point.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl

from baton import registry
from baton.compose.run_settings import Settings
from baton.errors import UsageError
from baton.learn.recipe import Recipe, in_phase
from baton.learn.run.folder import read_recipe
from baton.learn.run.loggers import asks_network
from baton.registry import TRUST
from baton.tasks.catalog import check_task_trusted
from baton.team.guard.policy import check_guard_trusted

_WITHIN = ("table", "torch")
"""Kinds of engines that read files of this machine and do no more."""


def needs_trust(spec: str) -> bool:
    """Whether a policy is code to import or an address to reach."""
    kind, _, rest = spec.partition(":")
    if kind == "scripted":
        return ":" in rest
    if kind in registry.shipped("engine"):
        return kind not in _WITHIN
    return not registry.knows("engine", kind) and registry.is_reference(f"{kind}:{rest.partition(':')[0]}")


def check_policies(policies: Mapping[str, str], whose: str) -> None:
    """Refuse policies that a file names and nobody vouched for. `whose` is the file, in words."""
    for name, spec in policies.items():
        if needs_trust(spec):
            raise UsageError(
                f"{whose} names {spec!r} as policy {name!r}: {_outcome(spec)}. If you trust it, type: {TRUST}"
            )


def check_named(named: Iterable[tuple[str, str]], whose: str) -> None:
    """Refuse code that a file names: (kind of extension, name)."""
    for kind, name in named:
        if kind == "task":
            check_task_trusted(name, whose)
        else:
            registry.check_trusted(kind, [name], whose)


def check_settings(settings: Settings, whose: str, typed: Iterable[str] = ()) -> None:
    """Refuse what a trace's settings name, but for the policies that were `typed` in their place."""
    check_policies({name: spec for name, spec in settings.policies.items() if name not in set(typed)}, whose)
    check_named(settings.named(), whose)
    check_guard_trusted(settings.guard, whose)


def check_recipe(recipe: Recipe, whose: str, typed: Sequence[str] = ()) -> None:
    """Refuse code and servers that a recipe names. Loading it without trust has refused code already.

    `typed` are changes to it, `KEY=VALUE`, that the person made in this call: what they name needs no leave.
    """
    own = [change.partition("=")[2] for change in typed]

    def is_typed(name: str) -> bool:
        return any(name in value for value in own)

    for part in (recipe, *(in_phase(recipe, phase) for phase in recipe.phases)):
        models = {name: policy.model for name, policy in part.policies.items()} | dict(part.reward.judges)
        check_policies({name: model for name, model in models.items() if not is_typed(model)}, whose)
        for name, policy in part.policies.items():
            _check_engine(name, policy.engine, whose, typed=policy.engine is None or is_typed(policy.engine))
    if recipe.program is not None and not any(change.startswith("program.command=") for change in typed):
        raise UsageError(
            f"{whose} names a program: that would run {shlex.join(recipe.program.command)}. If you trust it, type: "
            f"{TRUST}"
        )
    check_guard_trusted(recipe.guard, whose, own)
    for setting in asks_network(recipe):
        if not any(change.startswith(f"{setting}=") for change in typed):
            raise UsageError(
                f"{whose} sets {setting}: that would send the run's figures over the network, with your key. If you "
                f"trust it, type: {TRUST}"
            )


def _check_engine(name: str, engine: str | None, whose: str, *, typed: bool) -> None:
    """Refuse a server that would get a policy's weights. One that vLLM of this Python starts here needs no leave."""
    if engine is not None and not typed and engine != "vllm:local":
        raise UsageError(
            f"{whose} names {engine!r} as engine of policy {name!r}: {_outcome(engine)}. If you trust it, type: {TRUST}"
        )


def recipe_in(run: Path, changes: Sequence[str] = (), *, trust: bool) -> Recipe:
    """The recipe of a training run's folder, which may be a stranger's as well."""
    recipe = read_recipe(run, changes, trust=trust)
    if not trust:
        check_recipe(recipe, f"the recipe in {run}", changes)
    return recipe


def resume_needs_trust(settings: Settings) -> bool:
    """Whether going on from the trace alone would take `--trust`."""
    try:
        check_settings(settings, "")
    except UsageError:
        return True
    return False


def _outcome(spec: str) -> str:
    kind, _, rest = spec.partition(":")
    if kind == "openai":
        return f"that would send the key in OPENAI_API_KEY and what the team reads to {rest.rpartition('@')[2]!r}"
    if kind == "vllm" and rest.partition("?")[0] == "local":
        given = dict(parse_qsl(rest.partition("?")[2]))
        return f"that would run {given.get('python', 'vLLM')!r} on this machine, with what it names"
    if kind == "vllm":
        place = rest.partition("?")[0].rpartition("@")[2]
        return f"that would send the key in VLLM_API_KEY and what the team reads to {place!r}"
    if kind == "tinker":
        return f"that would send the key in TINKER_API_KEY, and what is trained on, to {rest!r}"
    module = rest.partition(":")[0] if kind == "scripted" else kind
    return f"that would import the Python module {module!r} and call it"
