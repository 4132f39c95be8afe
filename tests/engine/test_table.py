"""The tabular policy: exact probabilities, gradients and draws."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.engine.table import TableEngine
from baton.errors import FormatError, UsageError
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.trace.records import Sampling

OPTIONS = ("a", "b", "c")


def filled(epsilon: float = 0.0) -> TableEngine:
    engine = TableEngine(epsilon=epsilon)
    engine.update({("boss", "s"): {"a": 1.0, "b": -0.5, "z": 3.0}}, lr=1.0)
    return engine


def request(key: str | None, options: tuple[str, ...] = OPTIONS, temperature: float = 1.0) -> Request:
    return Request(
        call="c",
        agent="x",
        role="boss",
        entries=[Entry("user", "s")],
        prompt_ids=None,
        sampling=Sampling(key=key, temperature=temperature),
        options=options,
        state=None,
    )


def test_is_an_engine() -> None:
    assert isinstance(TableEngine(), Engine)


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_draws_follow_the_probabilities_it_reports(epsilon: float) -> None:
    engine = filled(epsilon)
    scores = np.array([1.0, -0.5, 0.0]) / 0.8
    soft = np.exp(scores) / np.exp(scores).sum()
    expected = (1 - epsilon) * soft + epsilon / 3
    counts = np.zeros(3)
    for i in range(4000):
        answer = engine.answer_now(request(f"k{i}", temperature=0.8))
        assert isinstance(answer, Answer)
        assert answer.choice is not None
        assert answer.option_propensities is not None
        assert answer.logprobs is not None
        assert answer.text == OPTIONS[answer.choice]
        np.testing.assert_allclose(answer.option_propensities, expected, atol=1e-12)
        assert answer.logprobs.tolist() == [math.log(answer.option_propensities[answer.choice])]
        counts[answer.choice] += 1
    assert (((counts - 4000 * expected) ** 2) / (4000 * expected)).sum() < 20


def test_same_key_same_choice_and_unknown_states_are_uniform() -> None:
    engine = TableEngine()
    first, again = (engine.answer_now(request("k")) for _ in range(2))
    assert first == again
    np.testing.assert_allclose(engine.probabilities("boss", "new", OPTIONS), [1 / 3] * 3)


def test_options_not_given_are_masked() -> None:
    engine = filled()
    drawn = {engine.answer_now(request(f"k{i}", ("b", "c"))).text for i in range(50)}  # type: ignore[union-attr]
    assert drawn == {"b", "c"}


def test_greedy() -> None:
    answer = filled().answer_now(request(None, temperature=0.0))
    assert isinstance(answer, Answer)
    assert (answer.text, answer.option_propensities) == ("a", (1.0, 0.0, 0.0))


def test_one_choice_is_one_token_with_the_same_id_everywhere() -> None:
    one, other = TableEngine("one").answer_now(request("k")), filled().answer_now(request("k", ("c",)))
    assert isinstance(one, Answer)
    assert isinstance(other, Answer)
    assert other.completion_ids is not None
    assert other.completion_ids.tolist() == [845120809]
    assert one.token_ends is not None
    assert one.token_ends.tolist() == [1]


@given(
    st.lists(st.floats(-3, 3), min_size=2, max_size=5),
    st.floats(0.3, 3),
    st.sampled_from([0.0, 0.2]),
    st.data(),
)
def test_gradient_is_the_derivative(
    logits: list[float], temperature: float, epsilon: float, data: st.DataObject
) -> None:
    options = [f"o{i}" for i in range(len(logits))]
    taken = data.draw(st.sampled_from(options))

    def log_prob(at: list[float]) -> float:
        engine = TableEngine(epsilon=epsilon)
        engine.update({("r", "s"): dict(zip(options, at, strict=True))}, lr=1.0)
        return engine.log_prob("r", "s", options, taken, temperature=temperature)

    engine = TableEngine(epsilon=epsilon)
    engine.update({("r", "s"): dict(zip(options, logits, strict=True))}, lr=1.0)
    gradient = engine.grad_log_prob("r", "s", options, taken, temperature=temperature)
    for i in range(len(options)):
        up, down = list(logits), list(logits)
        up[i] += 1e-5
        down[i] -= 1e-5
        assert gradient[i] == pytest.approx((log_prob(up) - log_prob(down)) / 2e-5, abs=1e-5)


def test_updates_make_versions_and_raise_what_they_should() -> None:
    engine = TableEngine()
    before = engine.log_prob("boss", "s", OPTIONS, "b")
    gradient = engine.grad_log_prob("boss", "s", OPTIONS, "b")
    engine.update({("boss", "s"): dict(zip(OPTIONS, gradient, strict=True))}, lr=0.5)
    assert engine.log_prob("boss", "s", OPTIONS, "b") > before
    answer = engine.answer_now(request("k"))
    assert isinstance(answer, Answer)
    assert (engine.version, answer.policy_version) == (1, "1")
    with pytest.raises(UsageError, match="learning rate"):
        engine.update({("boss", "s"): {"a": math.inf}}, lr=1.0)


def test_save_and_load(tmp_path: Path) -> None:
    engine = filled(0.1)
    engine.save(tmp_path / "t.json")
    engine.save(tmp_path / "t.json")
    again = TableEngine.load(tmp_path / "t.json")
    assert again.logits("boss", "s") == engine.logits("boss", "s") == {"a": 1.0, "b": -0.5, "z": 3.0}
    assert (again.version, again.epsilon) == (1, 0.1)
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = filled()
    engine.save(tmp_path / "t.json")
    engine.update({("boss", "s"): {"a": 1.0}}, lr=1.0)

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        engine.save(tmp_path / "t.json")
    assert TableEngine.load(tmp_path / "t.json").version == 1
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_bad_files_and_requests(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no table"):
        TableEngine.load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text('{"name": "x"}')
    with pytest.raises(FormatError, match="not a table"):
        TableEngine.load(tmp_path / "bad.json")
    with pytest.raises(UsageError, match="epsilon"):
        TableEngine(epsilon=2)
    with pytest.raises(UsageError, match="'b'"):
        TableEngine().log_prob("r", "s", ["b"], "bb")
    for bad in (request("k", ()), request(None)):
        assert isinstance(TableEngine().answer_now(bad), EngineError)
