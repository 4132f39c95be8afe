from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from vllm_server import make_model, make_server, only_with_vllm

from baton.engine.vllm.local import LocalServer


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The model as transformers has it, and its folder."""
    folder = tmp_path_factory.mktemp("vllm") / "odd-llama"
    return make_model(folder), folder


@pytest.fixture(scope="session")
def server(model: tuple[Any, Any]) -> Iterator[LocalServer]:
    """One server for all tests: it takes most of a minute to start."""
    made = make_server(model[1], only_with_vllm())
    made.start()
    yield made
    made.close()
