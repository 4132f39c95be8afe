"""MOCK vLLM servers in the place of those that Baton would start; one that died is started again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mock_vllm_weights import MockVllm, mock_vllm

from baton.engine.vllm.client import VllmClient
from baton.engine.vllm.trained import Host
from baton.learn.scale import served


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[MockVllm]]:
    """In the place of servers of our own, mocks with copies of the policies' models."""
    opened: list[Any] = []
    servers: list[MockVllm] = []

    def local(part: Any, spec: Any, folder: Path, model: Any, tokenizer: Any, **_: Any) -> Any:
        opened.append(mock_vllm(model))
        server, url = opened[-1].__enter__()
        servers.append(server)
        host = Host(VllmClient(url), folder, start_again=_again(server), seconds=20.0)
        return host, "base", folder

    monkeypatch.setattr(served, "_local", local)
    try:
        yield servers
    finally:
        for each in opened:
            each.__exit__(None, None, None)


def _again(server: MockVllm) -> Callable[[], bool]:
    def start_again() -> bool:
        if not server.closed:
            return False
        server.closed = False
        return True

    return start_again
