"""A real language model on real tasks: reasoning-gym's problems, on instances of the test split.

    python benchmarks/real_task.py --reproduce runs/real --processes 3     # again, until it is finished
    python benchmarks/real_task.py --measure untrained
    python benchmarks/real_task.py --train reasoning --out runs/sums --minutes 9     # again, until it is finished
    python benchmarks/real_task.py --compare runs/sums runs/sums-uniform runs/sums-single
    python benchmarks/real_task.py --measure seen
    python benchmarks/real_task.py --measure speed

`--reproduce` makes every run with three seeds, several at a time on one GPU, and compares them. `untrained` asks
the model as it comes: it reads the commands in its system prompt and the problem, and knows nothing else. Parse
rate is over answers, success and tokens over episodes; intervals are 95 %, Wilson's for shares. `--train` takes the
recipes reasoning, reasoning-uniform, -single, -worked, -tools, -spawn, -stop and -stop-uniform, or a file; one slice
per call, which goes on where the last one stopped. `--compare` needs no model, and `seen`, what of the test questions
came up in training and what an episode costs by three counts, none either. `speed` is the torch engine against
transformers, and the update as a forest against rows, on the model and on rollouts of the recipe `reasoning`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from baton.errors import BatonError
from baton.tasks.reasoning import FAMILIES


def main() -> None:
    args = _arguments()
    try:
        sys.exit(_run(args))
    except BatonError as error:
        print(f"real_task: {error}", file=sys.stderr)
    except ImportError as error:
        print(
            f"real_task: {error.name} is not installed. Type: pip install -e '.[train,reasoning]'",
            file=sys.stderr,
        )
    sys.exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--measure", choices=["untrained", "seen", "speed"])
    what.add_argument("--train", metavar="RECIPE", help="a recipe's name, or a TOML file")
    what.add_argument("--compare", metavar="DIR", nargs="+", help="folders of finished or begun runs")
    what.add_argument("--reproduce", metavar="DIR", help="all runs, all seeds, compared and drawn")
    parser.add_argument("--only", metavar="RUN", nargs="+", default=[], help="with --reproduce: these runs")
    parser.add_argument("--seeds", type=int, default=3, help="with --reproduce (3)")
    parser.add_argument(
        "--processes", type=int, default=3, help="with --reproduce: runs at a time on the GPU (3)"
    )
    parser.add_argument(
        "--model", default="smollm2", help="or a folder, such as smollm2?device=cuda&dtype=bfloat16"
    )
    parser.add_argument("--families", nargs="+", choices=[*FAMILIES], default=[*FAMILIES], metavar="FAMILY")
    parser.add_argument(
        "--instances",
        type=int,
        default=None,
        help="of the test split (32; of a run 128); for speed, agents (256)",
    )
    parser.add_argument("--tries", type=int, default=4, help="of each instance, for best-of-n (4)")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--out", metavar="DIR", help="where a run is, or goes")
    parser.add_argument("--minutes", type=float, default=9.0, help="of one slice")
    parser.add_argument("--plot", metavar="FILE.svg", help="with --compare: draw the learning curves")
    parser.add_argument("--finish", action="store_true", help="measure after this slice, whatever is left")
    parser.add_argument("--set", metavar="K=V", dest="changes", action="append", default=[])
    args = parser.parse_args()
    if args.train and not args.out:
        parser.error("--train needs --out DIR, the run's folder")
    for name in ("tries", "processes", "seeds", "instances"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name} is {getattr(args, name)}; expected at least 1")
    if args.instances is None:
        known = {"speed": 256, "untrained": 32}
        args.instances = known.get(args.measure, 128)
    return args


def _run(args: argparse.Namespace) -> int:
    if args.reproduce:
        from real_tasks.reproduce import reproduce

        return reproduce(args)
    if args.train:
        from real_tasks.train import train

        return train(args)
    if args.compare:
        from real_tasks.compare import compare

        return compare(args.compare, args.plot)
    if args.measure == "speed":
        from real_tasks.speed import speed

        return speed(args)
    if args.measure == "seen":
        from real_tasks.seen import COST_HEAD, SEEN_HEAD, costs, seen

        _print(SEEN_HEAD, seen(args.instances, args.seeds))
        print()
        _print(COST_HEAD, costs(64))
        return 0
    from real_tasks.untrained import HEAD, untrained
    from table import machine

    _print(HEAD, untrained(args))
    print(f"\n{args.model}, temperature {args.temperature:g}; {machine()}")
    return 0


def _print(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
