"""From traces and advice to a training recipe in TOML: every choice stands beside what in the traces led to it.

What a trace of `baton run` says of its task, team, limits and rules is taken over; how credit is given comes from the
recipe that was advised, or from the next one that the traces' structure supports. Invariant: what the traces cannot
tell is listed as missing and written as a comment, never guessed.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import MsgspecError, Struct, json

from baton import registry
from baton.compose.again import own_settings
from baton.compose.known import task_behind
from baton.compose.recipe_text import changed, comment, one_line, pairs, toml_value
from baton.compose.run_settings import Settings, is_given
from baton.corpus.advice import Advice
from baton.credit import find
from baton.engine import ENGINES
from baton.games.game import CHOICES
from baton.learn.models import MODELS
from baton.learn.recipe import CreditPart, CriticPart, LossPart, Recipe, RolloutPart, load
from baton.learn.stage import failures
from baton.tasks.game_task import GameTask
from baton.tasks.task import Task
from baton.team.protocol import Entry
from baton.trace.graph.lineage import who_acts
from baton.trace.notes import CHANNEL
from baton.trace.outcome import cut_off, rule_settings
from baton.trace.trace import Trace, is_fork

_LONGEST = 32_768
"""Tokens of the longest context that a tiny model is made for."""
_LAST = "team-advantage"
"""What every team can be trained by: one advantage for all."""


class DraftedRecipe(Struct, frozen=True, kw_only=True):
    """A recipe, and what it still lacks."""

    toml: str
    missing: tuple[str, ...]
    """What a person has to give before it can be trained by; empty: nothing."""
    trust: bool
    """Whether it names code of another package, so that training asks for leave."""


class SeenTeam(Struct, frozen=True, kw_only=True):
    """What the traces have in common, counted."""

    traces: Sequence[Trace]
    settings: Settings | None
    task: Task | None
    decisions: tuple[str, ...]
    roles: tuple[str, ...]
    """Those that a policy answered for, the one that leads first."""
    longest: int
    """Characters, or tokens where they were counted, of the longest answer."""
    counted: bool
    num_answering: int
    """Agents of one trace for whom a policy answered, at most."""
    room: int
    """Bytes of all that an agent read and said at the most, instructions apart; of tokens there are no more."""


def draft_recipe(traces: Sequence[Trace], advice: Advice, name: str, *, trust: bool = False) -> DraftedRecipe:
    """The recipe for more of such runs. `name` is where the traces are, for the first line."""
    whole = [trace for trace in traces if not is_fork(trace)] or list(traces)
    seen = seen_in(whole, trust)
    missing: list[str] = []
    method, refused = method_for(advice, seen)
    parts = [
        _head(seen, name, len(traces) - len(whole), method, refused),
        _task(seen, missing),
        _team(seen, missing),
        _policies(seen, missing),
        _reward(seen, missing),
        credit_lines(method, seen),
        _rollout(seen, method),
        _train(seen),
    ]
    lines = [line for part in parts for line in (*part, "")]
    if missing:
        said = [line for each in missing for line in comment(f"MISSING: {each}")]
        lines = [*lines[: len(parts[0])], *said, "", *lines[len(parts[0]) + 1 :]]
    named = [] if seen.settings is None else [each for _, each in seen.settings.named()]
    code = any(registry.is_reference(each) and not _is_known(each) for each in named)
    return DraftedRecipe(toml="\n".join(lines).rstrip() + "\n", missing=tuple(missing), trust=code)


def _is_known(name: str) -> bool:
    return any(registry.knows(kind, name) for kind in ("task", "topology", "surface", "tool", "aggregator"))


def seen_in(traces: Sequence[Trace], trust: bool, task: Task | None = None) -> SeenTeam:
    """What traces have in common; their task is the one given, or that which their runs name."""
    kept = [found for trace in traces if (found := own_settings(trace)) is not None]
    key = Counter((each.task, each.topology) for each in kept).most_common(1)
    settings = next((each for each in kept if key and (each.task, each.topology) == key[0][0]), None)
    alike = [trace for trace in traces if settings is not None and own_settings(trace) == settings]
    behind = task_behind(alike[0], trust=trust) if alike else None
    chosen = Counter(
        event.decision
        for trace in traces
        for event in trace.events
        if event.decision and (event.call is not None or not trace.calls)
    )
    roles = Counter(call.role for trace in traces for call in trace.calls if call.role)
    leads = {trace.calls[0].role for trace in traces if trace.calls}
    counted = any(call.completion_ids is not None for trace in traces for call in trace.calls)
    return SeenTeam(
        traces=traces,
        settings=settings,
        task=task if behind is None else behind[0],
        decisions=tuple(each for each in CHOICES if chosen[each]),
        roles=tuple(sorted(roles, key=lambda role: (role not in leads, role))),
        longest=max((_length(t, c, counted) for t in traces for c in t.calls), default=0),
        counted=counted,
        num_answering=max((len({call.agent for call in trace.calls}) for trace in traces), default=0),
        room=max(map(_room, traces), default=0),
    )


def _room(trace: Trace) -> int:
    """Bytes of the longest context of a trace: what an agent read beside its instructions, and what it said."""
    size: dict[str, int] = {}
    for call in trace.calls:
        entries = _entries(trace.text(call.prompt_ref))
        new = sum(
            len(each.text.encode("utf-8", "surrogatepass")) for each in entries if each.speaker != "system"
        )
        said = len((trace.text(call.completion_ref) or "").encode("utf-8", "surrogatepass"))
        size[call.id] = size.get(call.parent or "", 0) + new + said
    return max(size.values(), default=0)


def _entries(text: str | None) -> list[Entry]:
    """What a call adds to a context. Another system's prompt is one entry."""
    try:
        return json.decode(text or "[]", type=list[Entry])
    except MsgspecError:
        return [Entry("user", text or "")]


def _length(trace: Trace, call: Any, counted: bool) -> int:
    if counted:
        return len(call.completion_ids or ())
    return len(trace.text(call.completion_ref) or "")


def _head(seen: SeenTeam, name: str, forks: int, method: str, refused: Sequence[str]) -> list[str]:
    count = len(seen.traces)
    beside = f" ({forks} forks beside them do not count)" if forks else ""
    first = f"From {count} trace{'' if count == 1 else 's'} in {name}{beside}. What each choice rests on is above it."
    about = f"{method}, for teams like those in {name}"
    return [
        *comment(first),
        *(line for why in refused for line in comment(why)),
        f"about = {toml_value(one_line(about))}",
    ]


def _task(seen: SeenTeam, missing: list[str]) -> list[str]:
    ids = {trace.header.task_id for trace in seen.traces}
    if _served(seen):
        missing.append(
            "the instances: one JSON object a line with question and answer, in questions.jsonl, or another task."
        )
        return ["[task]", 'name = "jsonl"', 'settings = {file = "questions.jsonl"}  # yours']
    if seen.settings is None:
        missing.append(
            f"a task. The traces ({', '.join(sorted(ids)[:3])}{', ...' if len(ids) > 3 else ''}) were not made by "
            "`baton run`, so they do not say how to draw their instances and who is right. `baton init` writes one to "
            "change; name it below."
        )
        return ["[task]", 'name = "my_task:MyTask"  # yours']
    settings = seen.settings
    same = sum(own_settings(trace) is not None for trace in seen.traces)
    told = f"{same} of {len(seen.traces)} traces say how they were run; their task, most often, is this."
    lines = [*comment(told), "[task]", f"name = {toml_value(settings.task)}"]
    if is_given(settings.task):
        missing.append(
            f"the task {settings.task}, which a Python program gave as an object: name it as module:attr."
        )
    elif seen.task is None:
        missing.append(
            f"leave to import the task {settings.task}, or the task itself: it could not be made here."
        )
    if settings.task_settings:
        lines += [*comment("As those runs set it."), "[task.settings]", *pairs(settings.task_settings)]
    return lines


def _served(seen: SeenTeam) -> bool:
    """Whether an outside program made them, which is then trained as it is."""
    return all(trace.header.system == "baton serve" for trace in seen.traces)


def _program(seen: SeenTeam, missing: list[str]) -> list[str]:
    missing.append(
        "the program that `baton serve` recorded: its command, with {question} where an instance's goes. "
        "Pages: docs/serve/training.md"
    )
    return [
        *comment("The program is trained as it is; roles are told apart by their system prompts."),
        "[program]",
        'command = ["python", "my_agent.py", "{question}"]  # yours',
        f"max_tokens = {_answer_tokens(seen)}",
    ]


def _team(seen: SeenTeam, missing: list[str]) -> list[str]:
    if _served(seen):
        return _program(seen, missing)
    topologies = Counter(trace.header.topology for trace in seen.traces)
    most, times = topologies.most_common(1)[0]
    lines = comment(f"The topology of {times} of {len(seen.traces)} traces.")
    named = seen.settings.topology if seen.settings is not None else most
    lines += ["[team]"]
    if registry.knows("topology", named) or (seen.settings is not None and not is_given(named)):
        lines.append(f"topology = {toml_value(named)}")
    else:
        missing.append(
            f"a topology: {named!r} is none that Baton knows ({', '.join(registry.names('topology'))})."
        )
        lines.append('topology = "centralized"')
    if seen.settings is not None:
        for key, value in (("surface", seen.settings.surface), ("tools", seen.settings.tools)):
            if value not in ("lines", ()):
                lines.append(f"{key} = {toml_value(value)}")
    unit = "tokens" if seen.counted else "characters, which are at most so many tokens"
    needed = _answer_tokens(seen)
    lines += [*comment(f"The longest answer has {seen.longest:,} {unit}."), f"max_tokens = {needed}"]
    if isinstance(seen.task, GameTask):
        lines += [*comment("A game's notes say all: no instructions, and only the latest."), 'template = ""']
        lines.append('memory = "latest"')
    else:
        lines += [
            *comment("A tiny model reads no instructions; leave it out for one that does."),
            'template = "{role}"',
        ]
    if seen.settings is not None and seen.settings.topology_settings:
        own = {k: v for k, v in seen.settings.topology_settings.items() if k != "max_tokens"}
        lines += ["[team.settings]", *pairs(own)] if own else []
    return [*lines, *_limits(seen)]


def _answer_tokens(seen: SeenTeam) -> int:
    """Room for an answer as long as the longest."""
    return max(16, 1 << (seen.longest // (1 if seen.counted else 2)).bit_length()) if seen.longest else 64


def _limits(seen: SeenTeam) -> list[str]:
    given = seen.settings.limits if seen.settings is not None else {}
    cut = sum(map(cut_off, seen.traces))
    failed = sum(any(True for _ in failures(trace)) for trace in seen.traces)
    said = []
    if cut:
        said.append(
            f"A budget ended {cut} of {len(seen.traces)} runs: give more, or train the team to need less."
        )
    if failed:
        said.append(
            f"In {failed} of {len(seen.traces)} runs calls were not answered; they earn what they earn."
        )
    if not given:
        return [line for each in said for line in comment(each)]
    return [
        *(line for each in [*said, "Limits as those runs had them."] for line in comment(each)),
        "[team.limits]",
        *pairs(given),
    ]


def _policies(seen: SeenTeam, missing: list[str]) -> list[str]:
    played = sorted(set(seen.settings.policies.values())) if seen.settings is not None else []
    if _served(seen):
        played = sorted({str(trace.header.meta.get("engine", "")) for trace in seen.traces} - {""})
    model, why = _model(played)
    if _served(seen) and model == "tiny":
        model, why = "smollm2", "A model that reads what a program asks; name a folder of your own."
    roles = (
        f"Roles that were answered for: {', '.join(seen.roles)}. "
        if seen.roles
        else "No calls are on record. "
    )
    if not seen.roles and seen.settings is None:
        missing.append("who learns: the traces record no calls, so no role is known to be a model's.")
    lines = [*comment(f"{roles}{why}"), "[policies.main]", f"model = {toml_value(model)}"]
    if model != "tiny":
        return [*lines, 'train = "lora"']
    needed = seen.room + _answer_tokens(seen)
    context = 2048  # a model made here says more that leads nowhere than traces show
    while context < min(needed, _LONGEST):
        context *= 2
    if needed > _LONGEST:
        lines[:0] = comment(
            f"The longest context takes up to {needed:,} tokens, more than the {_LONGEST:,} below: an agent that reads "
            "more is not answered. Make the task smaller."
        )
    play = "eager" if isinstance(seen.task, GameTask) else "reference"
    return [
        *lines,
        f"tiny = {{width = 64, layers = 2, vocabulary = 384, context = {context}}}",
        "",
        *comment("The grammar first, from scripted play."),
        "[warm]",
        f"play = {toml_value(play)}",
        "episodes = 200",
        "steps = 200",
        "rows = 32",
        "learning_rate = 0.005",
    ]


def _model(played: Sequence[str]) -> tuple[str, str]:
    """What learns in the place of those who played, and why."""
    for spec in played:
        kind, _, rest = spec.partition(":")
        if kind == "torch" and rest:
            return rest.partition("?")[0], f"{spec} played, and goes on from there."
        if spec.partition("?")[0] in MODELS:
            return spec.partition("?")[0], f"{spec} played, and goes on from there."
    if any(spec.partition(":")[0] == "openai" for spec in played):
        return (
            "tiny",
            "A server's model played, which cannot be trained from here: name a Hugging Face folder instead.",
        )
    who = ", ".join(played) if played else "another system"
    known = all(
        spec.partition(":")[0] in (*ENGINES, "reference", "random", "optimal", "greedy") for spec in played
    )
    return (
        "tiny",
        f"{who if known else 'A script'} played; a tiny model is made in its place, to see that it runs.",
    )


def _reward(seen: SeenTeam, missing: list[str]) -> list[str]:
    rules: dict[str, dict[str, Any]] = {}
    families: Counter[str] = Counter(reward.family for trace in seen.traces for reward in trace.rewards)
    for trace in seen.traces:
        for reward in trace.rewards:
            if (found := rule_settings(reward.by)) is not None and found["rule"] != CHANNEL:
                rules[json.encode(found, order="deterministic").decode()] = found
    if rules:
        lines = comment(f"Rules that wrote rewards on the traces ({counts_said(families)}).")
        for rule in rules.values():
            lines += ["[[reward.rules]]", *pairs({k: v for k, v in rule.items() if v is not None})]
        return lines
    if families:
        said = f"Rewards on the traces: {counts_said(families)}."
        if seen.task is not None:
            return comment(
                f"{said} The task itself scores them; rules would be [[reward.rules]] (baton reward --list)."
            )
        missing.append(
            f"who scores: {said} Nobody else's score is known to Baton; verify() of your task gives it."
        )
        return comment(said)
    if seen.task is None:
        missing.append("a reward: no trace has one. verify() of your task gives it, or [[reward.rules]].")
        return comment("No reward is on the traces.")
    return comment("No reward is on the traces; the task scores what is played from now on.")


def counts_said(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(found.items()))


def look_at(traces: Sequence[Trace], advice: Advice, paths: Sequence[str], *, trust: bool = False) -> str:
    """What shows the advised credit on these traces; where they cannot be run again, the nearest that can be had."""
    seen = seen_in(traces, trust)
    command = ["baton", "credit", *paths]
    if seen.settings is not None or not {"runtime", "counterfactuals"} & set(find(advice.estimator).needs):
        return shlex.join([*command, "--unit", advice.unit, "--estimator", advice.estimator])
    if _served(seen):
        twin = "message-replay" if advice.unit == "message" else "spawn-replay"
        return f"{shlex.join([*command, '--estimator', twin])} -- COMMAND"
    method, _ = method_for(advice, seen)
    return shlex.join([*command, "--estimator", load(method).credit[0].estimator])


def method_for(advice: Advice, seen: SeenTeam) -> tuple[str, list[str]]:
    """The first recipe whose credit the team can be given, and why others before it cannot."""
    refused: list[str] = []
    for name in dict.fromkeys((advice.recipe, *advice.instead, _LAST)):
        why = _obstacle(load(name), seen)
        if why is None or name == _LAST:
            return name, refused
        refused.append(f"Not {name}: {why}.")
    return _LAST, refused


def _obstacle(recipe: Recipe, seen: SeenTeam) -> str | None:
    """What in the team stands against a recipe's credit; None: nothing."""
    for part in recipe.credit:
        estimator = find(part.estimator)
        needs = estimator.needs
        if "options" in needs and not isinstance(seen.task, GameTask):
            return f"{estimator.name} asks for the chance of every option, and here an answer may be any text"
        if "turn_rewards" in needs:
            return f"{estimator.name} needs a reward on every turn"
        if part.settings.get("share") == 0:
            return f"{estimator.name} pays each turn by rewards of its own, which are not on the traces"
        if "shared_prefixes" in needs and seen.num_answering < 2:
            return f"{estimator.name} compares what several agents say from one prefix, and one agent answers"
        if ("runtime" in needs or "counterfactuals" in needs) and seen.task is None:
            return f"{estimator.name} runs traces again, and these cannot be"
        if absent := [each for each in (*estimator.decisions, *part.decisions) if each not in seen.decisions]:
            return f"{estimator.name} credits the decision to {absent[0]}, which no policy made in the traces"
        if absent := [role for role in part.roles if role not in seen.roles]:
            return f"it credits {absent[0]}, and no such role answered"
        if isinstance(seen.task, GameTask) and recipe.rollout.fan_out:
            return "rollouts of a game share their luck, and are not branched"
    return None


def credit_lines(method: str, seen: SeenTeam) -> list[str]:
    recipe = load(method)
    what = ", ".join(dict.fromkeys(part.estimator for part in recipe.credit))
    agents = Counter(len(who_acts(trace)) for trace in seen.traces)
    sizes = f"{min(agents)}" if len(agents) == 1 else f"{min(agents)} to {max(agents)}"
    lines = comment(f"Credit of the recipe {method} ({what}); teams here had {sizes} agents.")
    for part in recipe.credit:
        lines += ["[[credit]]", *pairs(changed(part, CreditPart(estimator="")))]
    if recipe.critic is not None:
        kind = recipe.critic.kind
        if kind == "table" and not isinstance(seen.task, GameTask):
            kind = "network"
        critic = {"kind": kind} if kind != recipe.critic.kind else changed(recipe.critic, CriticPart())
        lines += ["[critic]", *pairs({"kind": kind} | critic)]
    loss = changed(recipe.loss, LossPart())
    return [*lines, *(["[loss]", *pairs(loss)] if loss else [])]


def _rollout(seen: SeenTeam, method: str) -> list[str]:
    recipe = load(method)
    groups = Counter(trace.header.task_id for trace in seen.traces)
    most = max(groups.values())
    need = max(
        (find(part.estimator).at_least for part in recipe.credit if "group" in find(part.estimator).needs),
        default=1,
    )
    size = max(need, min(most, 16)) if most > 1 else max(need, recipe.rollout.group_size)
    told = (
        f"{len(groups)} instances with up to {most} rollouts each."
        if most > 1
        else "One rollout of each instance: nothing to compare with, so training plays its own groups."
    )
    rest = {
        k: v for k, v in changed(recipe.rollout, RolloutPart()).items() if k not in ("groups", "group_size")
    }
    return [
        *comment(told),
        "[rollout]",
        f"groups = {max(4, 32 // size)}",
        f"group_size = {size}",
        *pairs(rest),
    ]


def _train(seen: SeenTeam) -> list[str]:
    chosen: Iterable[str] = seen.decisions
    times: Counter[str] = Counter(e.decision for trace in seen.traces for e in trace.events if e.decision)
    said = (
        f"Decisions that policies made: {counts_said({name: times[name] for name in chosen})}."
        if seen.decisions
        else ""
    )
    lines = comment(said or "No decision is on record: all five are learned where they come up.")
    lines += ["[train]", "steps = 20", "learning_rate = 5e-4"]
    if seen.decisions and seen.task is not None:
        lines.append(f"decisions = {toml_value(list(chosen))}")
    return [*lines, "", "[eval]", "episodes = 64", "best_of = 2"]
