"""Baton in twenty minutes: the page and the notebook run as printed, and use the public API alone."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from inspect import CO_COROUTINE
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGE = re.findall(
    r"^```python\n(.*?)^```", (DOCS / "twenty_minutes.md").read_text(), re.DOTALL | re.MULTILINE
)
NOTEBOOK = [
    "".join(cell["source"])
    for cell in json.loads((DOCS / "twenty_minutes.ipynb").read_text())["cells"]
    if cell["cell_type"] == "code"
]


def test_the_page_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {}
    for block in PAGE:
        exec(compile(block, "twenty_minutes.md", "exec"), known)
    assert known["run"].after["return"]["mean"] > 0
    assert known["what_if"].usage.calls_reused == 3


def test_the_notebook_runs_in_a_loop_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {}

    async def cells() -> None:
        for cell in NOTEBOOK:
            code = compile(cell, "twenty_minutes.ipynb", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            given = eval(code, known)
            if code.co_flags & CO_COROUTINE:
                await given

    asyncio.run(cells())
    assert known["run"].before["return"]


@pytest.mark.parametrize("source", ["\n".join(PAGE), "\n".join(NOTEBOOK)], ids=["page", "notebook"])
def test_only_the_public_api_is_used(source: str) -> None:
    tree = compile(source, "source", "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    imported = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    } | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name.split(".")[0] == "baton"} == {"baton"}
