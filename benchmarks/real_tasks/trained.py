"""A run measured on test instances: the model as it comes, after the supervised start, and after RL.

    base, warm, trained     one try per instance
    best-of-n               of n tries the best by the verifier: what an oracle would pick
    majority-of-n           of n tries the answer given most often: what can be had without one
    fixed-k, found          scripted leaders with the trained workers, for a team that searches (`stopping`)

Everything goes into measured.jsonl in the run's folder, so that runs are compared without a model.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from baton.learn.run.checkpoint import load_weights
from baton.learn.stage import Episode
from baton.measure.figure import Figure, mean, proportion
from baton.team.protocol import Engine
from baton.trace.formats.jsonl import write_jsonl
from baton.trace.trace import Trace
from real_tasks.measure import answer_of, distinct_tokens, measured, whole_tokens
from real_tasks.runs import ARMS
from real_tasks.stopping import searches, stopping_rule, with_leader

__all__ = ["TEST_SEEDS", "measure_run", "picked"]

TEST_SEEDS = 3_000_017
EXAMPLES = 2


def measure_run(
    session: Any, instances: int, tries: int, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """All of the above, on the same instances and draws for everyone."""
    trainer, stage, folder = session.trainer, session.trainer.stage, session.folder.path
    first = sorted(session.folder.checkpoints.glob("step-*"))[0]
    engines = {role: policy.engine for policy in trainer.policies.values() for role in policy.roles}
    lines: list[dict[str, Any]] = []

    def add(found: Iterable[dict[str, Any]]) -> None:
        lines.extend(found)
        (folder / "measured.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")

    for who, state in (("base", _untouched), ("warm", _of(first)), ("trained", None)):
        with _weights(trainer.policies, state):
            many = 1 if who == "base" else tries
            traces = _played(trainer, {who: engines}, instances, many)[who]
            add(_lines(trainer, who, traces, many))
            _keep(folder / "examples", who, traces[:: max(1, many)])
        tell(f"{who}: success {next(line for line in lines if line['who'] == who)['success']['value']:.3f}")
    if searches(trainer.recipe):
        arms = {arm: with_leader(stage, engines, arm) for arm in ARMS}
        for arm, traces in _played(trainer, arms, instances, tries).items():
            add([next(_lines(trainer, arm, traces, tries))])
        tell("fixed rounds measured")
    return lines


def _played(
    trainer: Any, arms: Mapping[str, Mapping[str, Engine]], instances: int, tries: int
) -> dict[str, list[Trace]]:
    """What each arm does, all at the same time; tries of one instance stand together."""
    stage, seed = trainer.stage, trainer.recipe.train.seed

    def episodes(arm: str) -> list[Episode]:
        return [
            Episode(
                name=f"{arm}-{n:04d}-{k}",
                instance=seed * TEST_SEEDS + n,
                seed=(n * 1009 + k) * 7 + seed,
                split="test",
            )
            for n in range(instances)
            for k in range(tries)
        ]

    async def every() -> list[list[Trace]]:
        return list(
            await asyncio.gather(*(stage.play(engines, episodes(arm)) for arm, engines in arms.items()))
        )

    return dict(zip(arms, asyncio.run(every()), strict=True))


def _lines(trainer: Any, who: str, traces: Sequence[Trace], tries: int) -> Iterator[dict[str, Any]]:
    step = trainer.step_number
    found = measured(traces)
    count = len(traces) // tries
    turns = [_turns_of_leader(trace) for trace in traces]
    yield {
        "who": who, "step": step, "episodes": len(traces), "success": _one_try(traces, tries),
        "reward": _reward(trainer, traces, tries),
        "parsed": _plain(found.parsed), "tokens": _plain(found.tokens), "said": _plain(found.said),
        "spawned": _plain(found.spawned), "failed": found.failed, **_computed([[trace] for trace in traces]),
        "turns": dict(sorted(Counter(map(str, turns)).items())),
        **({"stopping": _stopping(traces, tries)} if searches(trainer.recipe) else {}),
    }  # fmt: skip
    n = 2
    while n <= tries:
        groups = [traces[at * tries : at * tries + n] for at in range(count)]
        for how in ("best", "majority"):
            scores = [picked(group, how) for group in groups]
            tokens = mean(float(sum(t.costs.get("tokens", 0) for t in group)) for group in groups)
            yield {
                "who": f"{who}, {how}-of-{n}", "step": step, "episodes": count,
                "success": _plain(proportion(sum(scores), count)), "tokens": _plain(tokens), **_computed(groups),
            }  # fmt: skip
        n *= 2


def _computed(groups: Sequence[Sequence[Trace]]) -> dict[str, Any]:
    """Two other ways to count, between which `tokens` lies: a conversation's prefix once, and a try's anew."""
    return {
        "whole": _plain(mean(map(whole_tokens, groups))),
        "distinct": _plain(mean(map(distinct_tokens, groups))),
    }


def picked(group: Sequence[Trace], how: str) -> float:
    """Score of what is picked from several tries: the best, or the first of those that most agree on."""
    scores = [next(r.value for r in trace.rewards if r.by == "verifier") for trace in group]
    if how == "best":
        return max(scores)
    answers = [answer_of(trace) for trace in group]
    given = Counter(answer for answer in answers if answer is not None)
    return scores[answers.index(given.most_common(1)[0][0])] if given else 0.0


def _one_try(traces: Sequence[Trace], tries: int) -> dict[str, Any]:
    """Several tries of one instance are not independent: the interval is over instances."""
    scores = [next(r.value for r in trace.rewards if r.by == "verifier") for trace in traces]
    if tries == 1:
        return _plain(proportion(sum(scores), len(scores)))
    return _plain(mean(_by_instance(scores, tries), (0.0, 1.0)))


def _reward(trainer: Any, traces: Sequence[Trace], tries: int) -> dict[str, Any]:
    """What is trained on: success, less the price of tokens where they have one."""
    gold, _ = asyncio.run(trainer.judging.gold(traces, trainer.rollouts.forks))
    earned = [trainer.scoring.team_return(trace) for trace in trainer.scoring.score(traces, gold)]
    return _plain(mean(_by_instance(earned, tries)))


def _by_instance(values: Sequence[float], tries: int) -> list[float]:
    return [sum(values[at : at + tries]) / tries for at in range(0, len(values), tries)]


def _stopping(traces: Sequence[Trace], tries: int) -> dict[str, Any]:
    return {key: _plain(figure) for key, figure in stopping_rule(traces, tries).items()}


def _turns_of_leader(trace: Trace) -> int:
    return sum(call.agent == trace.calls[0].agent for call in trace.calls)


@contextmanager
def _weights(
    policies: Mapping[str, Any], change: Callable[[Mapping[str, Any]], None] | None
) -> Iterator[None]:
    """Other weights meanwhile."""
    mine = {name: (policy.state_dict(), policy.version) for name, policy in policies.items() if policy.learns}
    if change is not None:
        change(policies)
    try:
        yield
    finally:
        for name, (state, version) in mine.items():
            policies[name].load_state_dict(state, version)


def _untouched(policies: Mapping[str, Any]) -> None:
    """Adapters that change nothing: the model as it comes."""
    for policy in policies.values():
        if policy.learns and policy.part.train == "lora":
            policy.load_state_dict(
                {key: torch.zeros_like(value) for key, value in policy.state_dict().items()}, 0
            )


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
