"""Numbers by key in blocks are those of the key's generator."""

from __future__ import annotations

import threading

import pytest

from baton.team.clock import UNIFORMS, generator, uniforms


@pytest.mark.parametrize("key", ["", "a", "run/3/worker:7", "ü\u2603" * 40])
def test_blocks_are_the_generators(key: str) -> None:
    expected = generator(key).random(5 * UNIFORMS).tolist()
    for block in (3, 0, 4, 1, 2):
        assert uniforms(key, block) == expected[block * UNIFORMS : (block + 1) * UNIFORMS]


def test_threads_do_not_disturb_each_other() -> None:
    wanted = {f"k{n}": generator(f"k{n}").random(UNIFORMS).tolist() for n in range(4)}
    wrong: list[str] = []

    def draw(key: str) -> None:
        wrong.extend(key for _ in range(200) if uniforms(key) != wanted[key])

    threads = [threading.Thread(target=draw, args=(key,)) for key in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
