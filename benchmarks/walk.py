"""The walk of a training step: which files it passes, in order, and what each is for. Drawn from a profile.

python benchmarks/walk.py             print it
python benchmarks/walk.py --write     put it into design/architecture.md, between its two markers

The second step of the flagship recipe is taken at small sizes (the same code, fewer rollouts; the first also sets up
what all steps share). A file is on the walk when a function of it is called during the step; it stands under the part
of the step that called it first.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import baton

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "design" / "architecture.md"
PARTS = {
    "step": "step",
    "take": "play",
    "_credited": "score and credit",
    "_as_now": "update",
    "_update": "update",
}
"""What `Trainer.step` calls -> which part of the step that is; whatever else it calls watches."""
BEGIN, END = "<!-- walk -->", "<!-- /walk -->"
PACKAGE = Path(baton.__file__).parent
SIZES = (
    "train.steps=2", "warm.episodes=100", "warm.steps=60", "rollout.groups=8", "rollout.group_size=4",
)  # fmt: skip


def walk(recipe: str = "flagship") -> dict[str, list[str]]:
    """Part of the step -> the files first called from it, in order."""
    step = _step(recipe)
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    looking = False  # threads must start under the profiler, so it is on before it counts

    def called(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if not looking or event != "call" or name in seen or not name.startswith(f"{PACKAGE}{os.sep}"):
            return
        seen.add(name)
        found.setdefault(_part(frame), []).append(Path(name).relative_to(PACKAGE).as_posix())

    threading.setprofile(called)
    sys.setprofile(called)
    try:
        step()
        looking = True
        step()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # None is how it is taken off
    return found


def _step(recipe: str) -> Any:
    from baton.compose.training import make_trainer
    from baton.learn.recipe import load

    return make_trainer(load(recipe, SIZES)).step


def _part(frame: FrameType) -> str:
    """The method that `Trainer.step` is in just now; what a thread calls belongs to playing."""
    below: FrameType | None = frame
    inner = "step"
    while below is not None:
        code = below.f_code
        if code.co_filename.endswith("trainer.py") and code.co_name == "step":
            return PARTS.get(inner, "watch")
        inner = code.co_name
        below = below.f_back
    return "play"


def drawn(found: dict[str, list[str]]) -> str:
    """The walk as Markdown: a table per part of the step would be long, so one list with a line per file."""
    count = sum(map(len, found.values()))
    lines = [f"One step of `flagship` passes {count} files (`python benchmarks/walk.py`):", "", "```"]
    width = max(len(name) for names in found.values() for name in names)
    for part, names in found.items():
        lines.append(f"{part}")
        lines += [f"  {name:<{width}}  {_about(name)}" for name in names]
    return "\n".join([*lines, "```"])


def _about(name: str) -> str:
    """The first sentence of a file's docstring, cut to fit a line."""
    text = ast.get_docstring(ast.parse((PACKAGE / name).read_text("utf-8"))) or ""
    sentence = text.partition("\n")[0]
    return sentence if len(sentence) <= 78 else sentence[:77].rstrip() + "…"


def main() -> None:
    """Print the walk, or write it into the architecture page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"put it into {PAGE.relative_to(ROOT)}")
    text = drawn(walk())
    if not parser.parse_args().write:
        print(text)
        return
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
