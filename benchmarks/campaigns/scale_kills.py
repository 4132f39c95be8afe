"""Training past one process: SIGKILL of the trainer, or of any process that it started, at any moment; then `--resume`.

What is compared with a run that nobody killed is everything that does not hang on the clock: metrics, evaluations and
the bytes of the weights. A process that the trainer started is one that plays or one that computes updates; whichever
it is, the run either goes on by itself or ends with a line that says what to type.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from campaigns.campaign import Row, Tally, is_traceback
from campaigns.train_kills import _first, _numbers, _recipes

_STEPS = 4
_DEATHS_OF_A_RUN = 3
_LONGEST_SECONDS = 300
_BY_CLOCK = ("workers", "busy_seconds", "idle", "worker_deaths", "lots_again")
KINDS: dict[str, tuple[str, ...]] = {
    "two workers": ("scale.rollout_workers=2", "scale.batch=2"),
    "two workers, lag 2": ("scale.rollout_workers=2", "scale.batch=2", "scale.lag=2", "rollout.staleness=2"),
}


def scale_kills(count: int, seed: int, folder: Path) -> Row:
    """Kill so often, the kinds in turn; victims and moments are of the seed."""
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    tally = Tally("training past one process, any process killed")
    draw = random.Random(seed)
    recipe = folder / "recipe.toml"
    recipe.write_text(_recipes()[1])
    wholes: dict[str, tuple[dict[str, Any], float]] = {}
    number = 0
    while tally.tries < count:
        kind = list(KINDS)[number % len(KINDS)]
        if kind not in wholes:
            out, began = folder / f"whole{number}", time.monotonic()
            code, said, _ = _play(_begin(recipe, kind, out), folder / "said", None)
            if code:
                tally.wrong(f"{kind} fails without being killed: {said.strip()[-300:]}")
                return tally.row()
            wholes[kind] = _told(out), time.monotonic() - began
        whole, takes = wholes[kind]
        if not _one(tally, folder / f"killed{number}", recipe, kind, whole, takes, draw):
            # It was over first: the whole run had made what is kept in the cache.
            wholes[kind] = whole, takes / 2
        number += 1
    return tally.row()


def _begin(recipe: Path, kind: str, out: Path) -> list[str]:
    changes = (f"train.steps={_STEPS}", "train.checkpoint_every=1", *KINDS[kind])
    return ["train", str(recipe), *(word for each in changes for word in ("--set", each)), "--out", str(out)]


def _one(
    tally: Tally, out: Path, recipe: Path, kind: str, whole: dict[str, Any], takes: float, draw: random.Random
) -> bool:
    """One run, killed now and then. False: it was over before anybody was killed, which is no try."""
    faults: list[str] = []
    for death in range(_DEATHS_OF_A_RUN + 1):
        going = (out / "run.json").exists()
        command = ["train", "--resume", "--out", str(out)] if going else _begin(recipe, kind, out)
        after = (
            None if death == _DEATHS_OF_A_RUN else (draw.uniform(0.2, max(0.4, takes)), draw.random() < 0.5)
        )
        code, said, victim = _play(command, out.with_suffix(".said"), after)
        if is_traceback(said):
            tally.wrong(f"{kind}, {[*faults, victim]}: {said.strip().splitlines()[-1]}")
            tally.tries += 1
            return True
        if victim is not None:
            faults.append(victim)
        elif code == 0 or f"all {_STEPS} steps are done" in said:
            break
        elif code and victim is None:
            tally.wrong(f"{kind}, after {faults}: {said.strip()[-300:]}")
            tally.tries += 1
            return True
        if code == 0:
            break
    tally.tries += len(faults)
    tally.faults += len(faults)
    found = _told(out)
    for name, wanted in whole.items():
        if found.get(name) != wanted:
            tally.wrong(f"{kind}, {faults}: {name} differs: {_first(wanted, found.get(name))}")
    return bool(faults)


def _play(command: list[str], said: Path, fault: tuple[float, bool] | None) -> tuple[int, str, str | None]:
    """Run it, and after so many seconds kill the trainer or one that it started: (code, what it said, who died)."""
    victim = None
    with said.open("wb") as file:
        run = subprocess.Popen([sys.executable, "-m", "baton", *command], stdout=file, stderr=file)
        if fault is not None:
            after, trainer = fault
            until = time.monotonic() + after
            while run.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
            children = _children(run.pid)
            if run.poll() is None and (trainer or children):
                chosen = run.pid if trainer else sorted(children)[int(after * 1e6) % len(children)]
                victim = f"{'trainer' if trainer else 'one it started'} after {after:.1f} s"
                os.kill(chosen, signal.SIGKILL)
        try:
            code = run.wait(_LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            run.kill()
            code = run.wait()
    return code, said.read_text("utf-8", "replace"), victim


def _children(pid: int) -> list[int]:
    """Processes that a process started and that run Baton."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"baton" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except (OSError, ValueError, IndexError):
            continue
    return found


def _told(out: Path) -> dict[str, Any]:
    found = _numbers(out)
    for name in ("metrics.jsonl", "evals.jsonl"):
        found[name] = [{k: v for k, v in line.items() if k not in _BY_CLOCK} for line in found[name]]
    return found
