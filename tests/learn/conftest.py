"""The tiny model's folder on the path, and a cache of first weights."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))  # from tiny_model import ...
sys.path.insert(0, str(Path(__file__).parent))  # from small_run import ...


@pytest.fixture(scope="session")
def weights_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def first_weights(weights_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs start from is made once for all tests that ask for this, and not left in the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(weights_folder))
