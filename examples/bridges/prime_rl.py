"""A team that Baton plays and credits, as the files that prime-rl 0.8's trainer reads.

    python examples/bridges/prime_rl.py OUT

writes OUT/rollouts/step_0/rank_0.bin and so on, which prime-rl waits for with a file system transport. Its trainer
needs Python 3.12 and a GPU, so that only the files are tested here. Weights that it writes are a Hugging Face folder:
give it to the next steps as the policy's model.
"""

from __future__ import annotations

import sys
from pathlib import Path

from baton.compose.bridge_prime import write_prime_step
from baton.compose.step_rows import StepRows
from baton.learn.recipe import parse

RECIPE = """
about = "the stopping chain, for prime-rl"
[task]
name = "game:stopping-chain"
settings = {num_workers = 3, num_steps = 4}
[team]
template = ""
memory = "latest"
max_tokens = 12
[policies.main]
model = "tiny"
tiny = {width = 32, layers = 1, heads = 2, vocabulary = 300}
[warm]
play = "random"
episodes = 200
steps = 80
learning_rate = 0.01
[[credit]]
estimator = "group"
group_by = "task"
[rollout]
groups = 2
group_size = 3
"""


def main(out: Path, *, steps: int = 2, ranks: int = 2) -> list[Path]:
    rows = StepRows(parse(RECIPE))
    written = []
    for step in range(steps):
        found = rows.rows(step + 1)
        written += write_prime_step(found, out, step=step, ranks=ranks)
        print(f"wrote    {written[-1].parent}: {len(found)} rows for {ranks} ranks")
    rows.close()
    return written


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/prime"))
