"""A real language model on real tasks: reasoning-gym's problems, on instances of the test split.

    python benchmarks/real_task.py --measure untrained

`untrained` asks the model as it comes: it reads the commands in its system prompt and the problem, and knows
nothing else. Parse rate is over answers, success and tokens over episodes; intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import argparse

from baton.tasks.reasoning import FAMILIES
from real_tasks.untrained import HEAD, untrained
from table import machine


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", choices=["untrained"], required=True)
    parser.add_argument(
        "--model", default="smollm2", help="as in --policy, such as smollm2?device=cuda&dtype=bfloat16"
    )
    parser.add_argument("--families", nargs="+", choices=[*FAMILIES], default=[*FAMILIES], metavar="FAMILY")
    parser.add_argument("--instances", type=int, default=32)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--max-tokens", type=int, default=96)
    args = parser.parse_args()
    rows = untrained(args)
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * len(HEAD))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(f"\n{args.model}, temperature {args.temperature:g}; {machine()}")


if __name__ == "__main__":
    main()
