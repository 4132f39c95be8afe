"""What a person sees while a team is trained: a picture that is redrawn, or plain lines where nobody watches.

All of it goes to stderr, so that what a run comes to, on stdout, can be kept by itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from baton.compose.waking import Unread, silence
from baton.view.report.run_figures import REGRETS, TrainingRun, figure, limits, standing
from baton.view.terminal.live import hush
from baton.view.terminal.plain_characters import plain, takes_only_ascii
from baton.view.terminal.training_result import course, told_limits, worth
from baton.view.text import duration, number, printable

_NOTE_SECONDS = 5.0
_PLAIN_LINES = 40
"""About as many as a quick run may print where stderr is no terminal."""
_SILENT_SECONDS = 30.0
"""A slow one says something at least this often."""
_PACE_STEPS = 10
"""What is left is judged by the last steps: the first are slower, or faster."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the process here, and run.json would say for ever that the run is going on."""
        self.quiet = True
        silence(sys.stderr)
        raise Unread


class Display:
    """Use as a context manager: `note` at any time; `begin`, then `step` for each line of metrics."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._ascii = takes_only_ascii(self._console.file)
        self._turning = Spinner("line" if self._ascii else "dots")
        self._note = "starting: loading torch"
        self._noted: tuple[str, float] = ("", 0.0)
        self._run: TrainingRun | None = None
        self._total = 0
        self._times: list[float] = []
        self._printed = 0.0
        self._warnings: dict[str, str] = {}

    def __enter__(self) -> Self:
        hush(for_good=True)  # this picture says more
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(
                get_renderable=self._picture, console=self._console, transient=True, refresh_per_second=5
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, text: str) -> None:
        """What is being done now. A count that goes up is not a line each time."""
        self._note = printable(text)
        if self._live is None:
            kind, when = text.split("/")[0].rstrip("0123456789"), time.monotonic()
            if kind != self._noted[0] or when - self._noted[1] >= _NOTE_SECONDS:
                self._say(Text(self._note))
                self._noted = (kind, when)

    def begin(self, run: TrainingRun) -> None:
        """Steps follow; those of `run` are done already."""
        self._run = run
        self._total = run.num_steps or len(run.steps)
        self._times = [time.monotonic()]
        self._note = f"step {len(run.steps) + 1}"

    def step(self, line: Mapping[str, Any]) -> None:
        """Show that one step is done, with its line of metrics."""
        assert self._run is not None
        self._run.steps.append(dict(line))
        self._times = [*self._times[-_PACE_STEPS:], time.monotonic()]
        done = int(figure(line, "step") or 0)
        self._note = f"step {min(done + 1, self._total)}"
        every = -(-self._total // _PLAIN_LINES)
        due = self._times[-1] - self._printed >= _SILENT_SECONDS
        if self._live is None and (due or done % every == 0 or done in (1, self._total)):
            self._say(Text(self._plain(line, done)))
            self._printed = self._times[-1]
        for each in line.get("warnings") or ():
            if each["monitor"] not in self._warnings:
                self._say(Text(f"warning, step {done}: {printable(each['message'])}", style="yellow"))
            self._warnings[each["monitor"]] = f"step {done}: {printable(each['message'])}"

    def _say(self, text: Text) -> None:
        """A line that stays; never broken where nobody watches."""
        self._console.print(text, soft_wrap=True)

    def _plain(self, line: Mapping[str, Any], done: int) -> str:
        parts = [f"step {done:>{len(str(self._total))}}/{self._total}", f"return {_return(line)}"]
        if isinstance(phase := line.get("phase"), str):
            parts.insert(1, f"phase {printable(phase)}")
        if figure(line, "regret", "total") is not None:
            split = " ".join(f"{name} {worth(figure(line, 'regret', name))}" for name in REGRETS)
            parts.append(f"regret {worth(figure(line, 'regret', 'total'))} ({split})")
        parts += told_limits(line)
        parts.append(f"{number(round(figure(line, 'tokens_per_second') or 0.0))} tokens/s")
        if told := _window(line):
            parts.append(told)
        return "  ".join([*parts, self._left(done)])

    def _left(self, done: int) -> str:
        if len(self._times) < 2:
            return ""
        pace = (self._times[-1] - self._times[0]) / (len(self._times) - 1)
        return f"{duration(pace * (self._total - done))} left"

    def _text(self, text: str, style: str = "") -> Text:
        """A sign that becomes two on the way to the screen would break the picture, so it becomes two here."""
        return Text(plain(text) if self._ascii else text, style=style)

    def _picture(self) -> Group:
        run = self._run
        self._turning.update(text=self._text(self._note))
        if run is None:
            return Group(self._turning)
        done = len(run.steps)
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(f"{run.said('recipe')} on {run.said('task')}", style="bold"),
            Text(f"{done}/{self._total}"),
            ProgressBar(total=max(1, self._total), completed=done, width=30),
            Text(self._left(done), style="dim"),
        )
        body = Table.grid(padding=(0, 2))
        if run.steps:
            self._figures(body, run)
        warned = [self._text(f"warning, {said}", "yellow") for said in self._warnings.values()]
        return Group(head, body, *warned, self._turning)

    def _figures(self, body: Table, run: TrainingRun) -> None:
        line = run.steps[-1]
        known = [(name, standing(run, name)) for name in ("untrained", "single agent", "optimum")]
        beside = ", ".join(f"{name} {worth(each.mean)}" for name, each in known if each is not None)
        if isinstance(phase := line.get("phase"), str):
            body.add_row("phase", Text(printable(phase)))
        body.add_row(
            "return", self._text(_return(line)), _drawn(run, "return", "mean"), Text(beside, style="dim")
        )
        rewards = [(name, figure(line, "rewards", name)) for name in run.names("rewards")]
        if len(rewards) > 1:
            for name, value in rewards:
                body.add_row(Text(f"  {printable(name)[:24]}"), worth(value), _drawn(run, "rewards", name))
        if figure(line, "regret", "total") is None:
            body.add_row("regret", Text("not measured", style="dim"))
        else:
            body.add_row("regret", worth(figure(line, "regret", "total")), _drawn(run, "regret", "total"))
            for name in REGRETS:
                body.add_row(f"  {name}", worth(figure(line, "regret", name)), _drawn(run, "regret", name))
        for name, mean, limit, price in limits(line):
            drawn = _drawn(run, "constraints", name, "mean")
            body.add_row(f"cost {name}", worth(mean), drawn, f"limit {worth(limit)}, price {worth(price)}")
        sizes = [(name, figure(line, "sizes", name)) for name in ("agents", "messages", "invalid")]
        team = ", ".join(f"{value:.2f} {name}" for name, value in sizes if value is not None)
        rate = number(round(figure(line, "tokens_per_second") or 0.0))
        body.add_row("tokens/s", rate, _drawn(run, "tokens_per_second"), Text(team, style="dim"))
        body.add_row("tokens", number(figure(line, "total_tokens") or 0.0))
        if told := _window(line):
            body.add_row("window", Text(told))


def _window(line: Mapping[str, Any]) -> str:
    """How old what is trained was and who waited, where a step trains on more than its own rollouts."""
    age, most = figure(line, "staleness", "mean"), figure(line, "staleness", "max")
    parts = []
    if age is not None and most:
        parts.append(f"{age:.1f} steps old (at most {most:.0f})")
    idle = [(who, figure(line, "idle", who)) for who in ("trainer", "players")]
    parts += [f"{who} {share:.0%} idle" for who, share in idle if share is not None]
    if left := figure(line, "stragglers", "left"):
        parts.append(f"{left:.0f} groups unfinished")
    if gone := figure(line, "discarded_tokens"):
        parts.append(f"{number(gone)} tokens discarded")
    return ", ".join(parts)


def _return(line: Mapping[str, Any]) -> str:
    half = figure(line, "return", "half")
    return worth(figure(line, "return", "mean")) + ("" if half is None else f" ±{worth(half)}")


def _drawn(run: TrainingRun, *keys: str) -> Text:
    return Text(course(run.series(*keys)), style="cyan")
