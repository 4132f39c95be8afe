from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from baton.errors import TraceError
from baton.forest.layout import once
from baton.forest.rows import rows_of
from baton.trace.records import Call, Floats, Ints, Sampling
from baton.trace.trace import Header, Trace


def call(name: str, prompt: list[int], said: list[int], **more: object) -> Call:
    settings: dict[str, object] = {
        "agent": "a", "policy": "p", "policy_version": "1", "prompt_ids": Ints(prompt), "completion_ids": Ints(said),
        "logprobs": Floats([-0.5] * len(said)), "sampling": Sampling(key=f"seed/{name}"),
    }  # fmt: skip
    return Call(id=name, **settings | more)  # type: ignore[arg-type]


def trace(*calls: Call, name: str = "t") -> Trace:
    return Trace(header=Header(trace_id=name, task_id="task"), calls=calls)


FIRST = call("c1", [1, 2, 3], [4, 5])
SECOND = call("c2", [6], [7], parent="c1", keep=5)


def test_a_call_that_grew_is_one_row_with_its_whole_prompt() -> None:
    rows = rows_of(trace(FIRST, SECOND), {"c1": Floats([1.0, 2.0]), "c2": Floats([3.0])})
    assert [row.ids.tolist() for row in rows] == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6, 7]]
    assert [row.places.tolist() for row in rows] == [[3, 4], [6]]
    assert [row.advantages.tolist() for row in rows] == [[1, 2], [3]]
    assert rows[0].group == "task"


def test_only_calls_with_advantages_and_tokens_with_weight() -> None:
    [row] = rows_of(trace(FIRST, SECOND), {"c1": Floats([1.0, 2.0])}, weights={"c1": Floats([0.0, 0.5])})
    assert row.places.tolist() == [4]
    assert row.weights.tolist() == [0.5]


def test_a_replayed_call_is_the_same_draw_and_another_seed_is_not() -> None:
    fork = trace(FIRST, call("c2", [9], [7], parent="c1", keep=5), name="fork")
    rows = rows_of(trace(FIRST), {"c1": Floats([1.0, 1.0])}) + rows_of(fork, {"c1": Floats([3.0, 5.0])})
    [kept] = once(rows)
    assert kept.advantages.tolist() == [2, 3]
    other = structs.replace(FIRST, sampling=Sampling(key="other/c1"))
    rows = rows[:1] + rows_of(trace(other, name="u"), {"c1": Floats([3.0, 5.0])})
    assert len(once(rows)) == 2


def test_policies_do_not_share() -> None:
    rows = rows_of(
        trace(FIRST, call("c3", [1, 2, 3], [4], policy="q")), {"c1": Floats([1, 1]), "c3": Floats([1])}
    )
    assert [row.policy for row in rows] == ["p", "q"]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (structs.replace(FIRST, prompt_ids=None), "token ids were not recorded"),
        (structs.replace(FIRST, sampling=Sampling(temperature=0.0)), "greedily"),
        (structs.replace(FIRST, sampling=Sampling(top_p=0.9)), "top_p=1"),
        (structs.replace(FIRST, logprobs=Floats([-1.0])), "1 log-probabilities for 2"),
        (structs.replace(FIRST, prompt_ids=Ints()), "nothing predicts it"),
    ],
)
def test_what_cannot_be_trained_says_so(made: Call, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        rows_of(trace(made), {"c1": Floats([1.0, 1.0])})


def test_log_probs_that_were_not_recorded_are_nan() -> None:
    [row] = rows_of(trace(structs.replace(FIRST, logprobs=None)), {"c1": Floats([1.0, 1.0])})
    assert np.isnan(row.sampler).all()
