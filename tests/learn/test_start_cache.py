"""The weights a run starts from are kept under all that they depend on, a person's own task among it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from small_run import small

pytest.importorskip("torch")

from baton.learn.models.start import _name
from baton.tasks.catalog import make_task

OWN = "from baton.tasks.shard_sum import ShardSum\nclass Mine(ShardSum):\n    name = 'mine'\n"


def test_a_task_that_was_changed_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small()
    part = recipe.policies["main"]
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_cached_task.py").write_text(OWN)
    task = make_task("own_cached_task:Mine")
    first = _name(recipe, part, ("a",), task)
    assert _name(recipe, part, ("a",), task) == first
    (tmp_path / "own_cached_task.py").write_text(OWN + "    # changed\n")
    assert _name(recipe, part, ("a",), task) != first
    assert "own_cached_task" in sys.modules
    shipped = {_name(recipe, part, ("a",), make_task(name)) for name in ("shard-sum", "voters")}
    assert len(shipped) == 1  # the recipe names them, and Baton's version their code
