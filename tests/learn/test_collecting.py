"""The collector during a step: seldom, and the program's own setting is back whatever happens."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from baton.learn.stage import collecting_seldom


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("mine", [(700, 10, 10), (41, 3, 7)])
def test_seldom_inside_and_as_it_was_outside(mine: tuple[int, int, int]) -> None:
    gc.set_threshold(*mine)
    seen: list[tuple[int, int, int]] = []

    @collecting_seldom()
    def broken() -> None:
        seen.append(gc.get_threshold())
        raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert seen[0][0] >= 100_000
    assert seen[0][1:] == mine[1:]
    assert gc.get_threshold() == mine


@pytest.mark.parametrize("mine", [(0, 10, 10), (2_000_000, 5, 5)])
def test_who_collects_less_is_left_alone(mine: tuple[int, int, int]) -> None:
    gc.set_threshold(*mine)
    with collecting_seldom():
        assert gc.get_threshold() == mine
    assert gc.get_threshold() == mine


def test_two_runs_at_once_leave_it_as_it_was() -> None:
    gc.set_threshold(700, 10, 10)
    begun, go = threading.Event(), threading.Event()

    @collecting_seldom()
    def other() -> None:
        begun.set()
        go.wait(10)

    thread = threading.Thread(target=other)
    with collecting_seldom():
        thread.start()
        begun.wait(10)
    assert gc.get_threshold()[0] >= 100_000  # the other one is not done
    go.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 10)
