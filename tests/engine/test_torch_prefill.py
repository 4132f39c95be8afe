"""Prefill in few calls, as on a GPU, gives what it gives in many; so does putting it into slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from tiny_model import tiny_model
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from baton.engine.torch import flat, load
from baton.engine.torch.cache import Ids, Node, Pool, Pools, PrefixCache, Seat
from baton.engine.torch.flat import FlatPass, prefill_pass
from baton.engine.torch.load import checked_forward, kv_shape
from baton.engine.torch.passes import PrefillPass

MODEL = tiny_model()
SHAPE = kv_shape(MODEL)
FORWARD = checked_forward(MODEL, SHAPE)
Make = Callable[[Iterable[Node]], PrefillPass | FlatPass]


def ids(rng: np.random.Generator, length: int) -> Ids:
    return rng.integers(0, 256, length).astype(np.int32)


def talks(seed: int) -> list[list[Ids]]:
    """Prompts, round by round: a system prompt, questions of several lengths below it, several talks below each."""
    rng = np.random.default_rng(seed)
    system = ids(rng, 20)
    questions = [np.concatenate((system, ids(rng, int(n)))) for n in rng.integers(3, 30, 7)]
    first = [
        np.concatenate((question, ids(rng, int(n))))
        for question in questions
        for n in rng.integers(1, 12, int(rng.integers(1, 5)))
    ]
    second = [np.concatenate((each, ids(rng, int(rng.integers(1, 9))))) for each in first[::2]]
    return [questions, first, [*second, ids(rng, 5)]]


def computed(make: Make, seed: int, node_ids: int) -> list[Tensor]:
    """What is kept of every round, with its logits."""
    forest = PrefixCache(10**6, node_ids)
    found = []
    for prompts in talks(seed):
        cold = {n.number: n for prompt in prompts for n in forest.plant(prompt)[0].chain() if n.kv is None}
        run = make(cold.values())
        with torch.inference_mode():
            found.append(FORWARD(run, *run.inputs()))
        run.keep()
        found.append(run.kv)
    return found


@pytest.mark.parametrize("node_ids", [64, 6])  # long prompts are cut: a node's parents may be in its own pass
@pytest.mark.parametrize("seed", range(3))
def test_few_calls_compute_what_many_do(seed: int, node_ids: int) -> None:
    many = computed(lambda nodes: PrefillPass(nodes, SHAPE), seed, node_ids)
    few = computed(lambda nodes: FlatPass(nodes, SHAPE), seed, node_ids)
    for a, b in zip(many, few, strict=True):
        torch.testing.assert_close(
            a, b, rtol=1e-4, atol=1e-4
        )  # sums in another order, by any processor's kernels


class Counted(TorchDispatchMode):
    """How many operations of torch there were."""

    count = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # torch's
        self.count += 1
        return function(*args, **(kwargs or {}))


def test_copies_take_fewer_operations() -> None:
    counts = []
    for kind in (PrefillPass, FlatPass):
        with Counted() as counted:
            computed(lambda nodes, kind=kind: kind(nodes, SHAPE), 0, 64)
        counts.append(counted.count)
    assert 2 * counts[1] < counts[0]


def test_a_layer_takes_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    attend = flat.attend

    def counted(*given: object) -> tuple[Tensor, Tensor]:
        calls.append(given)
        return attend(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(flat, "attend", counted)
    computed(lambda nodes: FlatPass(nodes, SHAPE), 0, 64)
    assert len(calls) == 3 * SHAPE.layers


def test_what_is_too_much_to_copy_is_read_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    node = PrefixCache(100, 100).plant(ids(np.random.default_rng(0), 40))[0]
    assert isinstance(prefill_pass([node], SHAPE), FlatPass)
    for limit in ("_MOST_CELLS", "_MOST_SCORES"):
        with monkeypatch.context() as patch:
            patch.setattr(flat, limit, 39)
            assert isinstance(prefill_pass([node], SHAPE), PrefillPass)
    prefill_pass([node], SHAPE).keep()
    below = PrefixCache(100, 100)
    below.plant(node.ids)[0].kv = node.kv
    cold = below.plant(np.append(node.ids, node.ids[:3]))[0]
    assert isinstance(prefill_pass([cold], SHAPE), FlatPass)
    monkeypatch.setattr(flat, "_MOST_WARM_BYTES", 39 * SHAPE.token_bytes)
    assert isinstance(prefill_pass([cold], SHAPE), PrefillPass)


@torch.inference_mode()
def test_few_calls_are_taken_only_if_they_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = PrefixCache(0, 5).plant(ids(np.random.default_rng(0), 8))[0].chain()
    assert load._agree(FORWARD, chain, SHAPE)
    assert load.checked_prefill(MODEL, FORWARD, SHAPE) is PrefillPass  # this is no GPU
    right = FlatPass.attend

    def wrong(self: FlatPass, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        return right(self, layer, q, k, v, 2 * scale)

    def refused(*_: object) -> Tensor:
        raise RuntimeError("no kernel")

    for attend in (wrong, refused):
        monkeypatch.setattr(FlatPass, "attend", attend)
        assert not load._agree(FORWARD, chain, SHAPE)


@pytest.mark.parametrize("at_a_time", [1, 30, 10**6])
def test_many_rows_are_put_into_slots_as_one_is(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton.engine.torch.cache._AT_ONCE_BYTES", at_a_time * SHAPE.token_bytes)
    rng = np.random.default_rng(0)
    pools, made = [], []
    for _ in range(2):
        pool = Pool(SHAPE, 32)
        seats = [Seat() for _ in range(9)]
        for seat in seats:
            pool.add(seat)
        pools.append(pool)
        made.append(seats)
    for one, other in zip(*made, strict=True):
        stretches = [
            torch.randn(SHAPE.layers, 2, SHAPE.heads, int(n), SHAPE.size)
            for n in rng.integers(1, 9, int(rng.integers(0, 4)))
        ]
        one.length = other.length = sum(kv.shape[3] for kv in stretches)
        pools[0].fill(one, stretches)
        other.stretches = stretches  # type: ignore[attr-defined]
    pools[1].fill_at_once([(seat, seat.stretches) for seat in made[1]])  # type: ignore[attr-defined]
    assert torch.equal(pools[0].kv, pools[1].kv)
    assert pools[0].kv.any()


def test_a_gpus_slots_are_as_many_as_the_rows_that_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One long row among short ones gets a slot, not one for each of them; all short ones are in one pool."""
    on_gpu = SHAPE._replace(device=torch.device("cuda"))
    monkeypatch.setattr(Pool, "_empty", lambda self, slots: torch.zeros(1, 1, slots, 1, self.capacity, 1))
    monkeypatch.setattr(Pool, "fill_at_once", lambda self, seats: None)
    monkeypatch.setattr(Pool, "_large", lambda self: False)
    lengths = [20, 300, 3000, 700, *([100] * 60)]
    for order in (lengths, lengths[::-1]):
        pools = Pools(on_gpu)
        rows = [Seat() for _ in order]
        stretches = [torch.zeros(1, 2, 1, length, 1) for length in order]
        pools.seat([(row, [kv], 8) for row, kv in zip(rows, stretches, strict=True)])
        assert {kv.shape[4]: kv.shape[2] for kv in pools.slots} == {4096: 1, 1024: 64}
        assert [row.length for row in rows] == order
        assert len({(id(row.pool), row.slot) for row in rows}) == len(rows)
        pools.tidy()
        assert len(pools.slots) == 2


def test_turns_of_a_conversation_become_one_stretch() -> None:
    """Where asked: every id keeps its own numbers, and what others share stays apart."""
    rng = np.random.default_rng(4)
    cache = PrefixCache(10_000, 10_000, joins_turns=True)

    def numbers(ids: Any) -> torch.Tensor:
        """Of each id, numbers that say which it is and where it stands."""
        place = torch.arange(len(ids), dtype=torch.float32) + 1000 * torch.tensor(ids, dtype=torch.float32)
        return place.expand(2, 2, 1, -1)[..., None].clone()

    shared = rng.integers(0, 50, 40).astype(np.int32)
    talks = [np.append(shared, 60 + n).astype(np.int32) for n in range(3)]
    longest = 0
    for turn in range(9):
        for n, talk in enumerate(talks):
            asked = np.concatenate((talk, rng.integers(0, 50, 3 + turn).astype(np.int32)))
            node, _ = cache.plant(asked[:-1])
            for each in node.chain():
                if each.kv is None:
                    whole = numbers(asked[:-1])
                    each.kv = whole[..., each.start : each.start + len(each.ids), :]
            said = np.append(asked, rng.integers(0, 50, 4)).astype(np.int32)
            cache.release(node)
            cache.grow(node, said[len(asked) - 1 :], numbers(said)[..., len(asked) - 1 :, :])
            talks[n] = said
    for talk in talks:
        node, warm = cache.plant(talk)
        assert warm == len(talk)
        chain = node.chain()
        longest = max(longest, len(chain))
        assert [each.start for each in chain] == np.cumsum([0, *(len(e.ids) for e in chain[:-1])]).tolist()
        assert np.concatenate([each.ids for each in chain]).tolist() == talk.tolist()
        kept = torch.cat([each.kv for each in chain if each.kv is not None], 3)
        assert torch.equal(kept, numbers(talk))
        cache.release(node)
    assert longest <= 4
    assert cache.num_tokens == 40 + sum(len(talk) - 40 for talk in talks)
