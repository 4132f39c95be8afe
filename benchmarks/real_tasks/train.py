"""Training in slices: as many steps as fit into some minutes, then a checkpoint to go on from, here or elsewhere.

A run's folder holds all that the next slice needs; `checkpoints/` alone is enough to carry, with recipe.toml,
run.json and the two .jsonl files. When the last step is done, the run is measured (`trained`).
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any

from baton.compose.training import begin, go_on
from baton.errors import UsageError
from baton.learn.recipe import load
from real_tasks.trained import measure_run

__all__ = ["begin_or_go_on", "train"]


def train(args: argparse.Namespace) -> int:
    """One slice; the last one, and every one with --finish, ends with the measurements."""
    out = Path(args.out)
    began = time.monotonic()
    session = begin_or_go_on(args.train, out, args.changes)
    try:
        for line in session.steps():
            _tell(_words(line))
            if time.monotonic() - began > 60 * args.minutes and line["step"] < session.recipe.train.steps:
                session.checkpoint()
                if args.finish:
                    break
                session.folder.tell(
                    {"status": "stopped", "why": f"a slice of {args.minutes:g} minutes is over"}
                )
                print(
                    f"{line['step']} of {session.recipe.train.steps} steps. To go on, type: "
                    f"python benchmarks/real_task.py --train {args.train} --out {out} --minutes {args.minutes:g}"
                )
                return 0
        _tell("measuring")
        session.evaluate()
        measure_run(session, args.instances, args.tries, _tell)
        done, steps = session.trainer.step_number, session.recipe.train.steps
        over = done >= steps
        why = "" if over else f"measured after {done} of {steps} steps, as --finish asks"
        session.folder.tell({"status": "finished" if over else "stopped", "why": why})
    finally:
        session.close()
    print(f"{'finished' if over else why}. Type: python benchmarks/real_task.py --compare {out}")
    return 0


def begin_or_go_on(name: str, out: Path, changes: list[str]) -> Any:
    """The run in the folder, or a new one where there is none."""
    if (out / "run.json").exists():
        if changes:
            raise UsageError(
                f"{out} holds a run, and a run goes on as it began: leave --set out, or give another --out."
            )
        return go_on(out, _sparsely)
    recipe = load(name, changes)
    session = begin(recipe, Path(name).stem, out, _sparsely)
    session.folder.tell({"warm": {name: policy.warm for name, policy in session.trainer.policies.items()}})
    return session


def _words(line: dict[str, Any]) -> str:
    reward, half = line["return"]["mean"], line["return"]["half"]
    known = "" if half is None else f" ±{half:.3f}"
    return (
        f"step {line['step']}  return {reward:.3f}{known}  agents {line['sizes']['agents']:.2f}  "
        f"invalid {line['sizes']['invalid']:.2f}  tokens {line['total_tokens']:,}  "
        f"rollout {line['rollout_seconds']:.1f} s  update {line['update_seconds']:.1f} s"
    )


def _sparsely(words: str) -> None:
    """One of twenty steps of a supervised start, and everything else."""
    found = re.search(r"(\d+)/\d+, loss", words)
    if found is None or int(found[1]) % 20 == 0:
        _tell(words)


def _tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
