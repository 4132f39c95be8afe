"""A run measured on test instances: the model as it comes, after the supervised start, and after RL.

    base, warm, trained     one try per instance
    best-of-n               of n tries the best by the verifier: what an oracle would pick
    majority-of-n           of n tries the answer given most often: what can be had without one
    rounds-k                the trained team, cut off after its leader's k-th turn: fixed rounds

Everything goes into measured.jsonl in the run's folder, so that runs are compared without a model.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from msgspec import structs

from baton.learn.checkpoint import load_weights
from baton.learn.stage import Episode, Stage
from baton.measure.figure import Figure, mean, proportion
from baton.team.policy import Engine
from baton.trace.formats.jsonl import write_jsonl
from baton.trace.trace import Trace
from real_tasks.measure import measured

__all__ = ["answer_of", "measure_run", "picked"]

_SEEDS = 3_000_017
ROUNDS = (1, 2, 3)
EXAMPLES = 2


def measure_run(
    session: Any, instances: int, tries: int, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """All of the above, on the same instances and draws for everyone."""
    trainer, stage, folder = session.trainer, session.trainer.stage, session.folder.path
    first = sorted(session.folder.checkpoints.glob("step-*"))[0]
    engines = {role: policy.engine for policy in trainer.policies.values() for role in policy.roles}
    lines: list[dict[str, Any]] = []

    def add(found: Iterator[dict[str, Any]]) -> None:
        lines.extend(found)
        (folder / "measured.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")

    for who, state in (("base", _untouched), ("warm", _of(first)), ("trained", None)):
        with _weights(trainer.policies, state):
            many = 1 if who == "base" else tries
            traces = _played(stage, engines, who, instances, many)
            add(_lines(who, traces, many, trainer.step_number))
            _keep(folder / "examples", who, traces[:: max(1, many)])
        tell(f"{who}: success {next(line for line in lines if line['who'] == who)['success']['value']:.3f}")
    if len(stage.roles) > 1:
        for rounds in ROUNDS:
            traces = _played(_capped(stage, rounds), engines, f"rounds-{rounds}", instances, 1)
            add(_lines(f"rounds-{rounds}", traces, 1, trainer.step_number))
    return lines


def _played(stage: Stage, engines: Mapping[str, Engine], who: str, instances: int, tries: int) -> list[Trace]:
    """Tries of one instance stand together."""
    seed = stage.recipe.train.seed
    episodes = [
        Episode(
            name=f"{who}-{n:04d}-{k}",
            instance=seed * _SEEDS + n,
            seed=(n * 1009 + k) * 7 + seed,
            split="test",
        )
        for n in range(instances)
        for k in range(tries)
    ]
    return asyncio.run(stage.play(engines, episodes))


def _lines(who: str, traces: Sequence[Trace], tries: int, step: int) -> Iterator[dict[str, Any]]:
    found = measured(traces)
    count = len(traces) // tries
    turns = [_turns_of_leader(trace) for trace in traces]
    yield {
        "who": who, "step": step, "episodes": len(traces), "success": _one_try(traces, tries),
        "parsed": _plain(found.parsed), "tokens": _plain(found.tokens), "said": _plain(found.said),
        "spawned": _plain(found.spawned), "turns": dict(sorted(Counter(map(str, turns)).items())),
    }  # fmt: skip
    n = 2
    while n <= tries:
        groups = [traces[at * tries : at * tries + n] for at in range(count)]
        for how in ("best", "majority"):
            scores = [picked(group, how) for group in groups]
            tokens = mean(float(sum(t.costs.get("tokens", 0) for t in group)) for group in groups)
            yield {
                "who": f"{who}, {how}-of-{n}", "step": step, "episodes": count,
                "success": _plain(proportion(sum(scores), count)), "tokens": _plain(tokens),
            }  # fmt: skip
        n *= 2


def picked(group: Sequence[Trace], how: str) -> float:
    """Score of what is picked from several tries: the best, or the first of those that most agree on."""
    scores = [next(r.value for r in trace.rewards if r.by == "verifier") for trace in group]
    if how == "best":
        return max(scores)
    answers = [answer_of(trace) for trace in group]
    given = Counter(answer for answer in answers if answer is not None)
    return scores[answers.index(given.most_common(1)[0][0])] if given else 0.0


def answer_of(trace: Trace) -> str | None:
    """What the team stopped with; None: it gave no answer."""
    said = [
        e for e in trace.events if e.decision == "stop" and e.status == "ok" and e.content_ref is not None
    ]
    return (trace.text(said[-1].content_ref) or "").strip() if said else None


def _one_try(traces: Sequence[Trace], tries: int) -> dict[str, Any]:
    """Several tries of one instance are not independent: the interval is over instances."""
    scores = [next(r.value for r in trace.rewards if r.by == "verifier") for trace in traces]
    if tries == 1:
        return _plain(proportion(sum(scores), len(scores)))
    return _plain(
        mean((sum(scores[at : at + tries]) / tries for at in range(0, len(scores), tries)), (0.0, 1.0))
    )


def _turns_of_leader(trace: Trace) -> int:
    return sum(call.agent == trace.calls[0].agent for call in trace.calls)


def _capped(stage: Stage, rounds: int) -> Stage:
    """The same team, whose leader has so many turns and no more."""
    capped = copy.copy(stage)
    root = stage.topology.root
    roles = tuple(
        structs.replace(role, max_turns=rounds) if role.name == root else role
        for role in stage.topology.roles
    )
    capped.topology = structs.replace(stage.topology, roles=roles)
    return capped


@contextmanager
def _weights(
    policies: Mapping[str, Any], change: Callable[[Mapping[str, Any]], None] | None
) -> Iterator[None]:
    """Other weights meanwhile."""
    mine = {name: (policy.state(), policy.version) for name, policy in policies.items() if policy.learns}
    if change is not None:
        change(policies)
    try:
        yield
    finally:
        for name, (state, version) in mine.items():
            policies[name].load(state, version)


def _untouched(policies: Mapping[str, Any]) -> None:
    """Adapters that change nothing: the model as it comes."""
    for policy in policies.values():
        if policy.learns and policy.part.train == "lora":
            policy.load({key: torch.zeros_like(value) for key, value in policy.state().items()}, 0)


def _of(checkpoint: Path) -> Callable[[Mapping[str, Any]], None]:
    def load(policies: Mapping[str, Any]) -> None:
        load_weights(checkpoint, policies)

    return load


def _keep(folder: Path, who: str, traces: Sequence[Trace]) -> None:
    """The first examples, as people read them."""
    folder.mkdir(exist_ok=True)
    for number, trace in enumerate(traces[:EXAMPLES], 1):
        write_jsonl(trace, folder / f"{who}-{number}.jsonl")


def _plain(figure: Figure) -> dict[str, Any]:
    return {"value": figure.value, "low": figure.low, "high": figure.high}
