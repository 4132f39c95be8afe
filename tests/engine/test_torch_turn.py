"""Engines on one GPU take turns; on a CPU nobody waits."""

from __future__ import annotations

import threading

import torch

from baton.engine.torch.engine import turn


def test_one_turn_for_each_gpu() -> None:
    first, second = torch.device("cuda", 0), torch.device("cuda", 1)
    assert turn(first) is turn(torch.device("cuda:0"))
    entered = []

    def enter(device: torch.device) -> None:
        with turn(device):
            entered.append(device)

    with turn(first), turn(first):  # the same thread may enter again
        others = [threading.Thread(target=enter, args=(each,)) for each in (first, second)]
        for thread in others:
            thread.start()
        others[1].join()
        others[0].join(0.05)
        assert entered == [second]
    others[0].join()
    assert entered == [second, first]


def test_no_turns_on_a_cpu() -> None:
    with turn(torch.device("cpu")):
        done = threading.Thread(target=lambda: turn(torch.device("cpu")).__enter__())
        done.start()
        done.join(5)
        assert not done.is_alive()
