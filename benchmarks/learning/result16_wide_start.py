"""Result 16: result 14 again, from a start that can read, with test seeds of its own.

python benchmarks/learning/result16_wide_start.py [--quick] [--seeds 5] [--kept] [--draw FILE.svg]

Written before any of its test seeds was run; docs/learning/wide.md is its page. In result 14 nobody did better than a
guess: its start spoke the language of all arms and could not read. Task, arms, budget, learning rate, metrics and bar
are those of result 14, and so is the code. What differs:

start         width 64 (48 there); a supervised start on 360 scripted episodes, 64 calls a step, learning rate 0.004,
              800 steps of pages of one fact, then 600 of pages of three. Chosen by hand, no records kept: it says of a
              page what scripted play says in 0.83 of 390 calls that it had not seen, on training facts. Result 14's
              start three times as long was tried too, and was no better than a guess. No arm was trained for this
test          seeds 5 to 9 in this order, all arms of a seed before the next
"""

from __future__ import annotations

from typing import Any

from result14_wide import START, main
from result14_wide import jobs as as_there
from runs import RESULTS, Job

KEPT = RESULTS / "result16_wide_start.json"
FIRST = 5
"""The first test seed."""
WARM: dict[str, Any] = {
    "episodes": 360,
    "stages": [[1, 800], [3, 600]],
    "rows": 64,
    "learning_rate": 4e-3,
    "changes": ["policies.main.tiny.width=64"],
}


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """As there, from this start; to see that it runs, from one of a few steps."""
    start = WARM | {"episodes": 24, "stages": [[1, 30], [3, 30]]} if quick else WARM
    return [
        each | {"seed": each["seed"] + (0 if each["seed"] > START else FIRST), "start": start}
        for each in as_there(num_seeds, quick)
    ]


if __name__ == "__main__":
    main(__doc__, KEPT, jobs)
