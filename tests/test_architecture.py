"""The layout is the architecture: imports between packages follow these arrows and no others."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "baton"

# package -> packages it may import. `errors`, `installed`, `registry` and `settings` are open to all.
ARROWS: dict[str, set[str]] = {
    "trace": set(),
    "games": {"trace", "team"},
    "forest": {"trace"},
    "tasks": {"trace", "team", "games"},
    "team": {"trace"},
    "engine": {"trace", "team"},
    "reward": {"trace"},
    "credit": {"trace", "team"},
    "learn": {"trace", "team", "engine", "games", "tasks", "credit", "reward", "measure", "forest", "serve"},
    "measure": {"trace", "team"},
    "attack": {"trace", "team", "measure"},
    "connect": {"trace"},
    "serve": {"trace", "team", "engine", "connect"},
    "compose": {
        "trace", "team", "engine", "games", "tasks", "reward", "credit", "measure", "forest", "serve", "learn",
        "corpus", "attack",
    },
    "view": {"trace", "measure", "corpus", "compose"},
    "corpus": set(),
    "testing": {
        "trace", "team", "engine", "games", "tasks", "reward", "credit", "learn", "measure", "connect", "serve",
        "compose",
    },
    "cli": {
        "trace", "team", "engine", "games", "tasks", "reward", "credit", "learn", "measure", "connect", "serve",
        "view", "corpus", "compose", "attack",
    },
}  # fmt: skip


def imported_packages(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            names = [node.module or ""]
            if node.module == "baton":
                names = [f"baton.{alias.name}" for alias in node.names]
        found |= {parts[1] for name in names if (parts := name.split("."))[0] == "baton" and len(parts) > 1}
    return found - {"errors", "installed", "registry", "settings", "__version__"}


FILES = sorted(path for path in SRC.rglob("*.py") if path.parent != SRC)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_arrows(path: Path) -> None:
    package = path.relative_to(SRC).parts[0]
    assert package in ARROWS, f"{package} is not in the architecture; see design/architecture.md"
    wrong = imported_packages(path) - ARROWS[package] - {package}
    assert not wrong, (
        f"{path.relative_to(SRC)} imports {sorted(wrong)}; {package} may import {sorted(ARROWS[package])}"
    )


def test_no_cycles() -> None:
    """Packages can be ordered so that every arrow points one way."""
    done: set[str] = set()
    while len(done) < len(ARROWS):
        ready = {p for p, needs in ARROWS.items() if p not in done and needs <= done}
        assert ready, f"cycle among {sorted(set(ARROWS) - done)}"
        done |= ready


def test_import_is_light() -> None:
    code = (
        "import sys, baton, baton.trace\n"
        "heavy = {'torch', 'transformers', 'pyarrow', 'duckdb', 'pandas', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_root_exports_are_few_and_real() -> None:
    import baton

    assert len(baton.__all__) <= 25
    for name in baton.__all__:
        assert getattr(baton, name) is not None


@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=lambda p: str(p.relative_to(SRC)))
def test_files_are_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 600, "split it"


def test_public_class_names_are_unique() -> None:
    """A reader who meets a class by name knows which one it is."""
    homes: dict[str, list[str]] = {}
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(SRC)))
    twice = {name: where for name, where in homes.items() if len(where) > 1}
    assert not twice, f"give each its own name: {twice}"


@pytest.mark.parametrize("path", sorted(SRC.rglob("__init__.py")), ids=lambda p: str(p.relative_to(SRC)))
def test_no_package_hides_a_submodule(path: Path) -> None:
    """`from package import name` is either always the submodule or never."""
    package = ".".join(["baton", *path.parent.relative_to(SRC).parts])
    children = {child.stem for child in path.parent.iterdir() if child.suffix == ".py" or child.is_dir()}
    bound: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module != package:
            bound |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Assign):
            bound |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    if package == "baton":
        bound -= {"credit", "measure"}  # these packages are callable, whoever imported what before
    assert not bound & children, f"{package} binds names of its own submodules: {sorted(bound & children)}"


def test_every_root_export_has_a_line_in_the_api_page() -> None:
    import baton

    page = (SRC.parents[1] / "docs" / "api.md").read_text()
    lines = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert lines == set(baton.__all__)


def test_files_of_tests_have_names_of_their_own() -> None:
    """Two of one name cannot be collected together."""
    places = sorted((Path(__file__).parent).rglob("test_*.py"))
    twice = {path.name for path in places if sum(other.name == path.name for other in places) > 1}
    assert not twice
