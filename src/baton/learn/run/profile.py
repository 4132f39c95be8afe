"""A profile of a run: where the time of each step went, kept in the run's folder as a Chrome trace.

`baton train --profile` and `baton.train(..., profile=True)` import this; a run that is not profiled does not. The
methods that a step is made of (`_SEAMS`) are timed on the run's own objects as long as the profile is open; each call
becomes a span of its thread. Nothing else is changed, so a run that is profiled gives the same numbers.

The file is Chrome's "JSON Array Format": one event a line, appended after each step. A reader may take it without its
last bracket, so that it opens after a kill as well; a run that goes on with `--profile` goes on in it.
"""

from __future__ import annotations

import inspect
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any

import msgspec

from baton.learn.run.profile_parts import FILE, STEP, WAIT, TimedSpan, parts, read_events

if TYPE_CHECKING:
    from baton.learn.run.session import Session

_SHORTEST_NS = 20_000
"""A shorter wait is not kept: the loop looks up now and then without waiting."""
_END = b",\n"
_PAUSE_US = 1e6
"""Between what was profiled before a run was cut off and what comes after, in the picture."""

_SEAMS: dict[str, tuple[tuple[str, str], ...]] = {
    "session": (("_step", STEP), ("evaluate", "evaluation"), ("_best_of", "evaluation"), ("_alone", "evaluation"),
                ("checkpoint", "checkpoint")),
    "session.folder": (("keep", "write"), ("add", "write")),
    "session._loggers": (("log", "write"),),
    "trainer": (("_credited", "credit"), ("_as_now", "update"), ("_update", "update"), ("_option_rows", "rows"),
                ("_sampled_rows", "rows"), ("_optimise", "optimise")),
    "trainer.rollouts": (("take", "rollout"), ("play", "rollout"), ("_played", "play"), ("ahead", WAIT)),
    "trainer.judging": (("gold", "verify"),),
    "trainer.scoring": (("score", "reward"), ("observe", "watch")),
    "trainer.critic": (("observe", "critic"),),
    "trainer.crediting": (("credit", "estimators"),),
    "trainer.watch": (("observe", "watch"),),
    "gradients": (("backward", "gradients"),),
    "compute": (("prefill", "prefill"), ("step", "decode")),
    "batch": (("step", "engine"),),
}  # fmt: skip
"""Object -> its methods that are timed, and the name of their spans."""


class Profile:
    """Times a session until it is closed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._spans: list[TimedSpan] = []
        self._changed: list[tuple[Any, str]] = []
        self._waiting: Callable[..., Any] | None = None
        self._file = session.folder.path / FILE
        self._zero = time.perf_counter_ns()
        self._offset_us = 0.0
        self._threads: dict[int, int] = {}
        """A thread's own number -> its number in the file."""
        self._begin()
        self._attach()

    # -- timing -----------------------------------------------------------------------------------

    def _attach(self) -> None:
        """Time all there is to time. A phase of a run brings new objects, so this is done before each step."""
        session, trainer = self._session, self._session.trainer
        owners: dict[str, list[Any]] = {
            "session": [session],
            "trainer": [trainer],
            "gradients": list(trainer.gradients.values()),
            "batch": [
                batch for policy in trainer.policies.values() if (batch := _inside(policy.engine, "_batch"))
            ],
        }
        owners["compute"] = [each for batch in owners["batch"] if (each := _inside(batch, "_compute"))]
        for place, methods in _SEAMS.items():
            whole, _, part = place.partition(".")
            for owner in owners[whole]:
                for method, name in methods:
                    self._time(getattr(owner, part) if part else owner, method, name)
        if self._waiting is None:
            self._waiting = selectors.DefaultSelector.select
            _patch(
                selectors.DefaultSelector, "select", self._timed(self._waiting, WAIT, shortest=_SHORTEST_NS)
            )

    def _time(self, owner: Any, method: str, name: str) -> None:
        own = getattr(owner, "__dict__", None)
        # An object of somebody's own may have no such method, or take no new ones.
        if own is None or method in own or not callable(getattr(owner, method, None)):
            return
        found = getattr(owner, method)
        timed = self._stepping(found) if name == STEP else self._timed(found, name)
        setattr(owner, method, timed)
        self._changed.append((owner, method))

    def _timed(self, method: Callable[..., Any], name: str, *, shortest: int = 0) -> Callable[..., Any]:
        spans, now, thread = self._spans, time.perf_counter_ns, threading.get_ident

        if inspect.iscoroutinefunction(method):

            @wraps(method)
            async def later(*given: Any, **named: Any) -> Any:
                begin = now()
                try:
                    return await method(*given, **named)
                finally:
                    spans.append(TimedSpan(thread(), begin, now(), name))

            return later

        @wraps(method)
        def called(*given: Any, **named: Any) -> Any:
            begin = now()
            try:
                return method(*given, **named)
            finally:
                if (end := now()) - begin >= shortest:
                    spans.append(TimedSpan(thread(), begin, end, name))

        return called

    def _stepping(self, method: Callable[..., Any]) -> Callable[..., Any]:
        timed = self._timed(method, STEP)

        def step() -> Any:
            self._attach()
            self._flush()
            used = time.process_time()
            line = timed()
            self._flush(line["step"], time.process_time() - used)
            return line

        return step

    # -- writing ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Go on in the file of a run that goes on: without what is done again."""
        step = self._session.trainer.step_number
        kept = [each for each in read_events(self._file) if each.get("args", {}).get("step", 0) <= step]
        ends = [each["ts"] + each.get("dur", 0.0) for each in kept]
        self._offset_us = max(ends) + _PAUSE_US if ends else 0.0
        with self._session.folder.writing(FILE):
            made = self._file.with_suffix(".new")
            made.write_bytes(b"[\n" + b"".join(map(_line, kept)))
            made.replace(self._file)

    def _flush(self, step: int | None = None, processor_s: float | None = None) -> None:
        """Append the spans so far: those of this step, or of what came before one."""
        count = len(self._spans)
        spans = self._spans[:count]
        del self._spans[:count]  # threads may add some meanwhile
        if not spans:
            return
        me = threading.get_ident()
        args: dict[str, Any] = {"step": self._session.trainer.step_number if step is None else step}
        whole = next((each for each in spans if each.name == STEP and each.thread == me), None)
        lines = [*self._new_threads(spans)]
        for span in spans:
            told = args
            if span is whole:
                told = args | {"parts_s": parts(spans, span), "processor_s": processor_s}
            lines.append(self._event(span, told))
        with self._session.folder.writing(FILE), self._file.open("ab") as file:
            file.write(b"".join(map(_line, lines)))

    def _event(self, span: TimedSpan, args: dict[str, Any]) -> dict[str, Any]:
        begin = (span.begin - self._zero) / 1e3 + self._offset_us
        return {
            "ph": "X", "name": span.name, "ts": round(begin, 3), "dur": round((span.end - span.begin) / 1e3, 3),
            "pid": 1, "tid": self._threads[span.thread], "args": args,
        }  # fmt: skip

    def _new_threads(self, spans: Iterable[TimedSpan]) -> Iterator[dict[str, Any]]:
        named = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident in dict.fromkeys(span.thread for span in spans if span.thread not in self._threads):
            self._threads[ident] = number = len(self._threads) + 1
            name = named.get(ident, f"thread {number}")
            yield {"ph": "M", "name": "thread_name", "ts": 0, "pid": 1, "tid": number, "args": {"name": name}}

    def close(self) -> None:
        """Time nothing any more; the file is whole."""
        for owner, method in self._changed:
            delattr(owner, method)
        self._changed = []
        if self._waiting is not None:
            _patch(selectors.DefaultSelector, "select", self._waiting)
            self._waiting = None
        self._flush()
        with self._session.folder.writing(FILE), self._file.open("rb+") as file:
            file.seek(-2, os.SEEK_END)  # the last comma, or what follows the first bracket
            last = file.read()
            file.seek(-2, os.SEEK_END)
            file.write(b"\n]\n" if last == _END else last + b"]\n")


def _inside(owner: Any, name: str) -> Any:
    """An engine's own parts, where it has them."""
    return getattr(owner, name, None)


def _patch(owner: type, name: str, value: Callable[..., Any]) -> None:
    setattr(owner, name, value)


def _line(event: dict[str, Any]) -> bytes:
    return msgspec.json.encode(event) + _END
