"""A cache of first weights, shared by the tests that train."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def weights_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def first_weights(weights_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs start from is made once for all tests that ask for this, and not left in the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(weights_folder))
