"""A line about what is going on, for logs."""

from __future__ import annotations

import time

import pytest

from baton.view.terminal import live


def test_a_log_gets_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live, "_LOG_SECONDS", 0.01)
    with live.live_line(lambda _: "at work"):
        time.sleep(0.2)
    said = capsys.readouterr().err.splitlines()
    assert said
    assert set(said) == {"at work"}


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with live.live_line(lambda _: "at work"):
        pass
    assert capsys.readouterr().err == ""
