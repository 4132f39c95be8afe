"""Inside `baton.team` imports point one way, those for type checkers included."""

from __future__ import annotations

import ast
from pathlib import Path

import baton.team

ROOT = Path(baton.team.__file__).parent


def _imports() -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports."""
    found: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(("baton.team", *(part for part in parts if part != "__init__")))
        found[name] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                found[name] |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name: {other for other in others if other in found} - {name} for name, others in found.items()}


def test_modules_can_be_ordered() -> None:
    left = _imports()
    left = {name: {o for o in others if not name.startswith(f"{o}.")} for name, others in left.items()}
    while left:
        ready = {name for name, others in left.items() if not others & left.keys()}
        # A package's own __init__ imports its modules, never the other way round.
        assert ready, f"a cycle among {sorted(left)}"
        for name in ready:
            del left[name]
