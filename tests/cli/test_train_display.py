"""What a person sees while a team is trained, on a terminal and off it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from baton.view.report.run_figures import TrainingRun
from baton.view.terminal.training_progress import Display


def run(steps: int) -> TrainingRun:
    told = {"recipe": "mine", "task": "game:pandora", "steps": steps}
    evals = [{"step": 0, "who": "optimum", "return": {"mean": 0.77, "half": 0.0}}]
    return TrainingRun(path=Path(), told=told, steps=[], evals=evals, num_unreadable=0)


def line(step: int, **more: Any) -> dict[str, Any]:
    return {
        "step": step, "return": {"mean": 0.5, "half": 0.02}, "rewards": {"shared": 0.5, "format": -0.1},
        "regret": {"total": 0.3, "spawn": 0.1, "delegate": 0.05, "communicate": 0.05, "aggregate": 0.05, "stop": 0.05},
        "tokens_per_second": 1234.5, "total_tokens": 1000 * step,
        "sizes": {"agents": 2.5, "messages": 3.0, "invalid": 0.25}, "warnings": [], **more,
    }  # fmt: skip


def shown(display: Display, steps: int, *lines: dict[str, Any]) -> str:
    with display:
        display.begin(run(steps))
        for each in lines:
            display.step(each)
        if display._live is not None:
            display._live.refresh()
    file = display._console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def plain() -> Display:
    return Display(Console(file=io.StringIO(), width=80, force_terminal=False))


def on_a_terminal() -> Display:
    return Display(Console(file=io.StringIO(), width=110, height=40, force_terminal=True, _environ={}))


def test_off_a_terminal_a_step_is_a_line_of_any_length() -> None:
    said = shown(plain(), 2, line(1), line(2))
    assert "\x1b" not in said
    first, second = said.splitlines()
    assert first.startswith("step 1/2  return 0.500 ±0.020  regret 0.300 (spawn 0.100 ")
    assert "1,234 tokens/s" in first
    assert second.endswith("0.00s left")


def test_a_long_run_does_not_print_every_step() -> None:
    said = shown(plain(), 400, *(line(n) for n in range(1, 401)))
    assert 40 <= len(said.splitlines()) <= 42
    assert said.splitlines()[-1].startswith("step 400/400")


def test_regret_that_is_not_measured_is_not_zero() -> None:
    assert "regret" not in shown(plain(), 1, line(1, regret=None))
    said = shown(on_a_terminal(), 2, line(1, regret=None))
    assert "not measured" in said


def test_notes_that_count_are_not_a_line_each() -> None:
    display = plain()
    with display:
        for n in range(200):
            display.note(f"warm start {n}/200, loss 1.0")
        display.note("measuring the untrained team")
    file = display._console.file
    assert isinstance(file, io.StringIO)
    assert file.getvalue().splitlines() == ["warm start 0/200, loss 1.0", "measuring the untrained team"]


def test_the_picture_has_the_return_its_parts_and_each_decision() -> None:
    said = shown(on_a_terminal(), 3, line(1), line(2))
    for word in (
        "mine on game:pandora",
        "2/3",
        "optimum 0.770",
        "format",
        "communicate",
        "tokens/s",
        "0.25 invalid",
    ):
        assert word in said


def test_a_warning_is_said_once_and_cannot_act_on_the_terminal() -> None:
    warning = [{"monitor": "serial-collapse", "message": "nobody [red]spawns\x1b[2J"}]
    said = shown(plain(), 3, line(1, warnings=warning), line(2, warnings=warning))
    assert said.count("warning") == 1
    assert "[red]spawns\\e[2J" in said
    assert "\x1b" not in said
