"""The examples as a stranger's package: built, installed, and used through every door there is.

Each test is one process or two that see the installed package and nothing of the repository but Baton. What was made by
one process is run again by another, so that names alone have to be enough.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import baton

pytest.importorskip("hatchling", reason="builds the package")
ROOT = Path(__file__).parents[2]
DOORS = Path(__file__).with_name("extension_doors.py")
REGISTERING = """
from baton.registry import register
from my_topology import relay

register("topology", "registered")(relay)
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the examples as pip installs them, without network."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT / "examples", folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *offline,
        "--target",
        folder / "site",
        folder / "source",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "site" / "registering.py").write_text(REGISTERING)
    return folder / "site"


def ran(site: Path, work: Path, *words: str) -> str:
    """What a step of the doors says, in a process of its own."""
    paths = (site, Path(baton.__file__).parents[1])
    settings = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "XDG_CACHE_HOME": str(site.parent / "cache")}
    done = subprocess.run(
        [sys.executable, "-W", "error", DOORS, *words],
        cwd=work,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    assert done.stdout.endswith("DONE\n")
    return done.stdout


@pytest.mark.parametrize("names", ["entry", "module"])
def test_runs_and_what_is_recorded_of_them(names: str, site: Path, tmp_path: Path) -> None:
    said = ran(site, tmp_path, "runs", names)
    assert "messages per agent" in said
    assert "coin: V* =" in said
    assert 'about = "When to stop' in said
    if names == "entry":  # what has a name is listed
        assert all(f"\n{name} " in said for name in ("when-to-stop", "median", "coin"))
    assert ran(site, tmp_path, "again", names).count("identical") == 5


def test_training_with_every_part_plugged_in(site: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ran(site, tmp_path, "trained", "entry")
    ran(site, tmp_path, "trained_again", "entry")


def test_training_from_python_by_module_and_by_what_a_recipe_imports(site: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ran(site, tmp_path, "trained_in_python", "module")
