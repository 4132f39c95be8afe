"""What a profile comes to: the parts of each step, and a table of them.

The parts of a step add up to the step: the thread that trains is always in one part, and while it waits (for an engine,
for rollouts that are played beside it) the time belongs to whatever other threads do. What nobody uses is `idle`: the
time of a server's answers, of handing over between threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

FILE = "profile.chrome.json"
"""In the run's folder."""
IDLE = "idle"
BESIDE = "beside"
"""What other threads did while the one that trains was busy itself: not part of the sum."""
WAIT = "wait"
STEP = "step"
REST = "rest"
_ORDER = ("rollout", "credit", "update", "watch", "write", "checkpoint", REST, IDLE)
_OWN = {"rollout": "chances of options", "play": "team", "optimise": "optimiser"}
"""Part -> what the time in none of its own parts is, where that has a name."""
_LEAST = 0.002
"""Of a step: smaller parts have no row of their own."""


class TimedSpan(NamedTuple):
    """One call of a timed method, or one wait."""

    thread: int
    begin: int
    end: int
    name: str


class Segment(NamedTuple):
    """A stretch of a thread's time, with the names of the spans it is in, outermost first."""

    begin: int
    end: int
    path: tuple[str, ...]


def read_events(file: Path) -> list[dict[str, Any]]:
    """The events of a profile that were written whole."""
    found = []
    for line in file.read_bytes().splitlines() if file.exists() else ():
        try:
            event = msgspec.json.decode(line.strip().rstrip(b",]").lstrip(b"["))
        except msgspec.DecodeError:
            continue
        if event:
            found.append(event)
    return found


def parts(spans: Sequence[TimedSpan], whole: TimedSpan) -> dict[str, float]:
    """Seconds of a step by part: paths such as `rollout/play/decode`, which add up to the step, and what was `beside`.

    A path has the time that is in none of its own parts.
    """
    inside = [
        each._replace(begin=max(each.begin, whole.begin), end=min(each.end, whole.end))
        for each in spans
        if each.end > whole.begin and each.begin < whole.end and each is not whole
    ]
    mine = segments([each for each in inside if each.thread == whole.thread], whole.begin, whole.end)
    others = _one_at_a_time(
        segment
        for thread in {each.thread for each in inside} - {whole.thread}
        for segment in segments([each for each in inside if each.thread == thread], whole.begin, whole.end)
        if segment.path and segment.path[-1] != WAIT
    )
    found: dict[str, int] = {}

    def add(path: Sequence[str], duration: int) -> None:
        if duration:
            name = "/".join(path) or "rest"
            found[name] = found.get(name, 0) + duration

    at = 0
    used = 0
    for begin, end, path in mine:
        if not path or path[-1] != WAIT:
            add(path, end - begin)
            continue
        waited = end - begin
        while at < len(others) and others[at].end <= begin:
            at += 1
        look = at
        while look < len(others) and others[look].begin < end:
            shared = min(end, others[look].end) - max(begin, others[look].begin)
            # A thread that plays ahead has the same names: what this one waits for is told once.
            told = [name for name in others[look].path if name not in path]
            add([*path[:-1], *told], shared)
            waited -= shared
            used += shared
            look += 1
        add([IDLE], waited)
    add([BESIDE], sum(each.end - each.begin for each in others) - used)
    return {name: round(duration / 1e9, 6) for name, duration in found.items()}


def segments(spans: Iterable[TimedSpan], begin: int, end: int) -> list[Segment]:
    """One thread's time from `begin` to `end`, cut wherever a span begins or ends; a wait has no parts."""
    found: list[Segment] = []
    stack: list[TimedSpan] = []
    at = begin

    def until(moment: int) -> None:
        nonlocal at
        if moment > at:
            names = [each.name for each in stack]
            path = tuple(dict.fromkeys(names[: names.index(WAIT) + 1] if WAIT in names else names))
            found.append(Segment(at, moment, path))
            at = moment

    for span in sorted(spans, key=lambda each: (each.begin, -each.end)):
        while stack and stack[-1].end <= span.begin:
            until(stack[-1].end)
            stack.pop()
        until(span.begin)
        stack.append(span)
    while stack:
        until(stack[-1].end)
        stack.pop()
    until(end)
    return found


def _one_at_a_time(every: Iterable[Segment]) -> list[Segment]:
    """Segments of several threads in order, without what another one covers already."""
    found: list[Segment] = []
    covered = 0
    for begin, end, path in sorted(every):
        if end > covered:
            found.append(Segment(max(begin, covered), end, path))
            covered = end
    return found


# -- the table --------------------------------------------------------------------------------------


def steps_of(out: Path) -> dict[int, dict[str, float]]:
    """Step -> seconds by part, of the profile in a run's folder."""
    events = read_events(out / FILE)
    return {each["args"]["step"]: each["args"]["parts_s"] for each in events if each["name"] == STEP}


def table(out: Path) -> list[list[str]]:
    """The profiled steps of a run as rows of text: part, seconds a step, share, and the step that took most of it.

    Empty where no step was profiled. Rows further in are parts of the row above them.
    """
    events = read_events(out / FILE)
    steps = {each["args"]["step"]: each for each in events if each["name"] == STEP}
    if not steps:
        return []
    by_step = {number: _inclusive(each["args"]["parts_s"]) for number, each in sorted(steps.items())}
    whole = sum(each["dur"] for each in steps.values()) / 1e6
    paths = {path for told in by_step.values() for path in told}
    rows = [["part of a step", "s/step", "share", "most", "in step"]]

    def add(label: str, figures: Mapping[int, float], depth: int = 1, share: bool = True) -> None:
        total, most = sum(figures.values()), max(figures, key=lambda step: figures[step])
        told = f"{total / whole:.1%}" if share else ""
        rows.append(
            [f"{'  ' * depth}{label}", f"{total / len(steps):.3f}", told, f"{figures[most]:.3f}", str(most)]
        )

    def below(path: str, depth: int) -> None:
        mine = {step: told.get(path, 0.0) for step, told in by_step.items()}
        if sum(mine.values()) < _LEAST * whole:
            return
        name = path.rpartition("/")[2]
        add(name, mine, depth)
        inner = sorted(each for each in paths if each.rpartition("/")[0] == path)
        if inner:
            for each in sorted(
                inner, key=lambda each: -sum(told.get(each, 0.0) for told in by_step.values())
            ):
                below(each, depth + 1)
            own = {
                step: mine[step] - sum(told.get(each, 0.0) for each in inner)
                for step, told in by_step.items()
            }
            if sum(own.values()) >= _LEAST * whole:
                add(_OWN.get(name, REST), own, depth + 1)

    add(f"all ({len(steps)} profiled)", {step: each["dur"] / 1e6 for step, each in steps.items()}, 0)
    tops = [each for each in paths if "/" not in each and each != BESIDE]
    for each in sorted(
        tops, key=lambda each: (_ORDER.index(each) if each in _ORDER else len(_ORDER) - 2.5, each)
    ):
        below(each, 1)
    outside = sum(each["dur"] for each in events if each["name"] == "evaluation") / 1e6
    if outside:
        rows.append(["measuring, between steps (s)", f"{outside:.3f}", "", "", ""])
    add("processor time", {step: each["args"]["processor_s"] or 0.0 for step, each in steps.items()}, 0)
    if BESIDE in paths:
        add("other threads, beside", {step: told.get(BESIDE, 0.0) for step, told in by_step.items()}, 0)
    return rows


def _inclusive(told: Mapping[str, float]) -> dict[str, float]:
    """Part -> its seconds with those of the parts in it."""
    found: dict[str, float] = {}
    for path, seconds in told.items():
        names = path.split("/")
        for depth in range(1, len(names) + 1):
            each = "/".join(names[:depth])
            found[each] = found.get(each, 0.0) + seconds
    return found
