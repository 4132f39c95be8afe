"""Hints about installing name what works from where Baton was installed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from baton import installed
from baton.errors import MissingExtraError


@pytest.mark.parametrize(
    ("origin", "add", "newer"),
    [
        ({}, "pip install 'baton-rl[view]'", "pip install --upgrade baton-rl"),
        (
            {"url": "file:///a%20b/baton", "dir_info": {"editable": True}},
            "pip install -e '/a b/baton[view]'",
            "git -C '/a b/baton' pull",
        ),
        (
            {"url": "file:///src/baton", "dir_info": {}},
            "pip install '/src/baton[view]'",
            "git -C /src/baton pull && pip install /src/baton",
        ),
        (
            {
                "url": "https://example.org/baton.git",
                "vcs_info": {"vcs": "git", "requested_revision": "main"},
            },
            "pip install 'baton-rl[view] @ git+https://example.org/baton.git@main'",
            "pip install --upgrade --force-reinstall 'baton-rl @ git+https://example.org/baton.git@main'",
        ),
        (
            {"url": "file:///tmp/baton_rl-0.2.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'baton-rl[view] @ file:///tmp/baton_rl-0.2.0-py3-none-any.whl'",
            "pip install --upgrade --force-reinstall 'baton-rl @ file:///tmp/baton_rl-0.2.0-py3-none-any.whl'",
        ),
    ],
)
def test_what_to_type(monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any], add: str, newer: str) -> None:
    monkeypatch.setattr(installed, "_origin", lambda: origin)
    assert installed.install_hint("view") == add
    assert installed.upgrade_hint() == newer
    assert str(MissingExtraError("the viewer", "view")).endswith(f"Type: {add}")


def test_the_hint_of_this_installation_names_a_project() -> None:
    *_, what = shlex.split(installed.install_hint("view"))
    if not what.startswith(installed.NAME):
        assert (Path(what.removesuffix("[view]")) / "pyproject.toml").exists()
