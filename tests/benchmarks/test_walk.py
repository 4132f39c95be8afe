"""A step's walk is short, and the architecture page draws it."""

from __future__ import annotations

import re

from walk import BEGIN, END, PACKAGE, PAGE, walk


def test_a_training_step_passes_at_most_fifty_files() -> None:
    files = [name for names in walk().values() for name in names]
    assert "learn/trainer.py" in files
    assert "engine/torch/forward.py" in files
    assert len(files) <= 50, files


def test_the_page_draws_files_that_are_there() -> None:
    drawn = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    files = re.findall(r"^  (\S+\.py)", drawn, re.MULTILINE)
    assert 30 < len(files) <= 50
    assert f"passes {len(files)} files" in drawn
    assert [name for name in files if not (PACKAGE / name).is_file()] == []
