"""The steps of one ATIF trajectory as sightings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, structs

from baton.connect.import_report import ImportReport
from baton.connect.readers.atif_marks import (
    EventMark,
    agent_mark,
    call_mark,
    event_mark,
    has_mark,
    prompt_mark,
)
from baton.connect.readers.chat_messages import as_text, count_of, seconds_of, text_of
from baton.connect.seen import Link, Seen, SeenAgent, SeenCall, SeenEvent

EMBEDDED: Final = "its trajectory is embedded in the other's, and no step refers to it"
LAST_STEP: Final = "the last step of the trajectory"
ONE_CALL: Final = "the step made one tool call, and its result names none"
IN_ORDER: Final = "as many results as tool calls, and none names its call"
NO_TOOL: Final = "a result that answers no tool call: it stands in the next prompt"
_MAX_ID = 2**31 - 1
_AFTER_ALL = 1e18  # where an agent's return stands in its life


class AtifTrajectory(Struct, frozen=True, kw_only=True):
    """One agent's document, and where it belongs."""

    document: dict[str, Any]
    path: Path
    at: str
    session: str
    key: str
    """Of the agent."""
    parent: str | None
    segment: int = 0
    """How many documents of this agent came before."""
    why: str | None = None
    """Why its parent is taken for its parent, where nothing says so."""
    inner: dict[str, Any] = {}
    """Trajectories embedded here and above, by id."""

    def again(self, key: str, segment: int) -> AtifTrajectory:
        """The same document as the later part of an agent."""
        return structs.replace(self, key=key, segment=segment)

    def unnamed(self) -> AtifTrajectory:
        """One that nothing refers to."""
        return structs.replace(self, why=EMBEDDED)

    def task(self) -> str | None:
        steps = self.document["steps"]
        said = (step for step in steps if isinstance(step, dict) and step.get("source") == "user")
        return next((text_of(step.get("message")) for step in said), None)


def steps_of(
    trajectory: AtifTrajectory, find: Callable[[dict[str, Any]], str | None], report: ImportReport
) -> Iterator[Seen]:
    """The agent, its calls and its events. `find` gives the key of the agent that a reference names."""
    agent = trajectory.document.get("agent")
    agent = agent if isinstance(agent, dict) else {}
    name = as_text(agent.get("name")) or None
    marked = agent_mark(agent)
    yield SeenAgent(
        session=trajectory.session, key=trajectory.key, name=name, parent=trajectory.parent, at=trajectory.at,
        role=None if marked is None else marked.role, why=trajectory.why,
    )  # fmt: skip
    reader = _Steps(trajectory, agent, find, report)
    steps = trajectory.document["steps"]
    acted = [
        place
        for place, step in enumerate(steps)
        if isinstance(step, dict) and step.get("source") == "agent" and not step.get("is_copied_context")
    ]
    last = acted[-1] if acted and not trajectory.document.get("continued_trajectory_ref") else -1
    for place, step in enumerate(steps):
        report.read()
        if not isinstance(step, dict):
            report.skip("a step that is none", f"{trajectory.at}#{place + 1}")
        elif step.get("is_copied_context"):
            report.join("steps copied for context, which were recorded elsewhere")
            reader.prompt.append((as_text(step.get("source")), text_of(step.get("message"))))
        else:
            reader.step(place, step, place == last)
            yield from reader.seen
            reader.seen.clear()


class _Steps:
    """Reads the steps of one trajectory in their order."""

    def __init__(
        self,
        trajectory: AtifTrajectory,
        agent: dict[str, Any],
        find: Callable[[dict[str, Any]], str | None],
        report: ImportReport,
    ) -> None:
        self.of = trajectory
        self.model = as_text(agent.get("model_name")) or None
        self.find = find
        self.report = report
        self.seen: list[Seen] = []
        self.prompt: list[tuple[str, str]] = []
        self.call: str | None = None
        self.asked = trajectory.segment > 0
        self.sent: dict[str, int] = {}  # agent -> how often it was given work
        self.coming: list[str] = []  # returns of this step, which what is beside them does not wait for
        self.returned: list[str] = []  # returns that the next event waits for

    def step(self, place: int, step: dict[str, Any], last: bool) -> None:
        self._step(place, step, last)
        self.returned += self.coming
        self.coming.clear()

    def _step(self, place: int, step: dict[str, Any], last: bool) -> None:
        number = step.get("step_id")
        number = number if type(number) is int and abs(number) < 1 << 53 else place + 1
        key = f"{self.of.key}:{self.of.segment}:{number}"
        order = (float(self.of.segment), float(number))
        at = f"{self.of.at}#{number}"
        t = seconds_of(step.get("timestamp"))
        text = text_of(step.get("message"))
        source = step.get("source")
        mark = event_mark(step)
        if mark is None and (shown := prompt_mark(step)) is not None:
            self.prompt.append((shown.prompt, text))
            return
        if source == "agent":
            self._agent(key, order, at, t, step, text, last)
            return
        if source not in ("user", "system"):
            self.report.skip("a step whose source is not known", at)
            return
        self.prompt.append((source, text))
        context = step.get("extra")
        context = context.get("context_management") if isinstance(context, dict) else None
        observed = _results(step)
        if mark is not None:
            self.seen.append(self._marked(mark, (*order, 0.0), at, t, content=text))
        elif source == "user" and self.asked:
            self.seen.append(self._event(key, order, at, t, "human_intervention", content=text))
        elif source == "system" and (context is not None or observed):
            extra = {"context_management": context} if context is not None else {}
            if isinstance(context, dict) and context.get("boundary") == "replace":
                self.call = None  # what comes does not grow from what was said before
            self.seen.append(self._event(
                key, order, at, t, "orchestrator_decision", content=text, decision="none", extra=extra,
                after=self._due(),
            ))  # fmt: skip
        self.asked = self.asked or source == "user"
        self._observe(order, at, t, {}, observed, None)

    def _due(self) -> tuple[Link, ...]:
        due = tuple(Link(key, "return") for key in self.returned)
        self.returned.clear()
        return due

    def _event(
        self, key: str, order: tuple[float, ...], at: str, t: float | None, type_: Any, **more: Any
    ) -> SeenEvent:
        return SeenEvent(
            session=self.of.session, key=key, agent=self.of.key, type=type_, order=order, t=t, at=at, **more
        )

    def _marked(
        self, mark: EventMark, order: tuple[float, ...], at: str, t: float | None, **more: Any
    ) -> SeenEvent:
        """An event that Baton wrote, as it was."""
        return SeenEvent(
            session=self.of.session, key=f"event:{mark.event}", agent=self.of.key, type=mark.type,
            order=order if mark.seq is None else (float(mark.seq),), t=mark.t if t is None else t,
            duration_s=mark.duration_s, to=mark.to, tool=mark.tool, decision=mark.decision, status=mark.status,
            tokens=mark.tokens, trusted=mark.trusted, why=mark.why, media_type=mark.media_type, extra=mark.extra,
            after=tuple(Link(f"event:{key}", type_, why) for key, type_, why in mark.after), at=at, **more,
        )  # fmt: skip

    def _agent(
        self, key: str, order: tuple[float, ...], at: str, t: float | None, step: dict[str, Any], text: str,
        last: bool,
    ) -> None:  # fmt: skip
        call = None
        if step.get("llm_call_count") != 0:
            call = key
            self.seen.append(self._call(key, order, at, t, step, text))
        results = _results(step)
        told = step.get("tool_calls")
        uses = [each for each in (told if isinstance(told, list) else ()) if isinstance(each, dict)]
        mark = event_mark(step)
        spawned = {
            as_text(result.get("source_call_id"))
            for result in results
            if result.get("subagent_trajectory_ref") and result.get("source_call_id")
        }
        opened: dict[str, tuple[str, str]] = {}  # tool call id -> event, tool
        for number, use in enumerate(uses):
            id_ = as_text(use.get("tool_call_id"))
            tool = as_text(use.get("function_name")) or "unnamed"
            event = f"{key}/{number}"
            opened[id_] = event, tool
            inner = event_mark(use)
            if inner is not None:
                opened[id_] = f"event:{inner.event}", tool
                content = use.get("arguments")
                if inner.text and isinstance(content, dict):
                    content = content.get("text")
                self.seen.append(self._marked(
                    inner, (*order, 0.0, float(number)), at, t, call=call,
                    content=None if inner.empty else as_text(content),
                ))  # fmt: skip
                continue
            if id_ in spawned:
                continue
            self.seen.append(self._event(
                event, (*order, 0.0, float(number)), at, t, "tool_call", tool=tool, call=call,
                content=as_text(use.get("arguments", {})), media_type="application/json", after=self._due(),
                extra={"tool_call_id": id_, **_extra(use)},
            ))  # fmt: skip
        if mark is not None:
            said = text if mark.content is None else mark.content
            self.seen.append(self._marked(mark, (*order, 0.0), at, t, call=call, content=said))
        elif not uses:
            is_root = self.of.parent is None
            stops = last and is_root
            self.seen.append(self._event(
                f"{key}/said", (*order, 0.0), at, t, "orchestrator_decision", content=text, call=call,
                decision="stop" if stops else "continue", why=LAST_STEP if stops else None, after=self._due(),
                extra=_extra(step),
            ))  # fmt: skip
        self._observe(order, at, t, opened, results, call, uses)

    def _observe(
        self,
        order: tuple[float, ...],
        at: str,
        t: float | None,
        opened: dict[str, tuple[str, str]],
        results: list[dict[str, Any]],
        call: str | None,
        uses: list[dict[str, Any]] | None = None,
    ) -> None:
        answered: set[str] = set()
        nameless = all(result.get("source_call_id") is None for result in results)
        matched = nameless and len(results) == len(opened)
        for number, result in enumerate(results):
            text = text_of(result.get("content"))
            references = _references(result)
            id_ = as_text(result.get("source_call_id"))
            why = None
            if result.get("source_call_id") is None and matched and not references:
                id_, why = list(opened)[number], ONE_CALL if len(opened) == 1 else IN_ORDER
            inner = event_mark(result)
            if inner is not None:
                self.seen.append(
                    self._marked(
                        inner, (*order, 1.0, float(number)), at, t, content=None if inner.empty else text
                    )
                )
                continue
            if references and any(map(has_mark, references)):
                for reference in references:
                    self.find(reference)  # the spawn and the return are told by themselves
                continue
            if references:
                asked = [
                    place for place, use in enumerate(uses or ()) if as_text(use.get("tool_call_id")) == id_
                ]
                task = uses[asked[0]] if asked and uses is not None else None
                self._spawns(
                    order, at, t, asked[0] if asked else number, references, text, task, call, opened.get(id_)
                )
            elif id_ in opened and id_ not in answered:
                answered.add(id_)
                event, tool = opened[id_]
                self.seen.append(self._event(
                    f"{event}/result", (*order, 1.0, float(number)), at, t, "tool_result", tool=tool,
                    content=text, after=(Link(event, "tool_dependency", why),),
                    extra={"tool_call_id": id_, **_extra(result)},
                ))  # fmt: skip
                self.prompt.append(("tool", text))
                continue
            else:
                self.report.join(NO_TOOL)
            if text:
                self.prompt.append(("tool" if opened else "environment", text))

    def _spawns(
        self, order: tuple[float, ...], at: str, t: float | None, number: int,
        references: list[dict[str, Any]], text: str, task: dict[str, Any] | None, call: str | None,
        use: tuple[str, str] | None,
    ) -> None:  # fmt: skip
        for each, reference in enumerate(references):
            child = self.find(reference)
            if child is None:
                continue
            about: dict[str, Any] = {}
            if task is not None and use is not None:
                about = {"tool": use[1], "tool_call_id": as_text(task.get("tool_call_id"))}
            times = self.sent[child] = self.sent.get(child, 0) + 1
            self.seen.append(self._event(
                f"spawn:{child}" if times == 1 else f"again:{child}:{times}",
                (*order, 0.0, float(number), float(each)), at, t, "spawn" if times == 1 else "message",
                to=child, decision=None if times == 1 else "delegate", call=call, after=self._due(),
                content=None if task is None else as_text(task.get("arguments", {})),
                media_type="application/json", extra={**about, **_extra(reference)},
            ))  # fmt: skip
            back = f"return:{child}" if times == 1 else f"return:{child}:{times}"
            self.seen.append(SeenEvent(
                session=self.of.session, key=back, agent=child, to=self.of.key, type="return",
                order=(_AFTER_ALL, float(times)), content=text or None, at=at,
            ))  # fmt: skip
            self.coming.append(back)

    def _call(
        self, key: str, order: tuple[float, ...], at: str, t: float | None, step: dict[str, Any], text: str
    ) -> SeenCall:
        given = step.get("metrics")
        metrics = given if isinstance(given, dict) else {}
        prompt_ids = _ids(metrics.get("prompt_token_ids"))
        completion_ids = _ids(metrics.get("completion_token_ids"))
        logprobs = _reals(metrics.get("logprobs"))
        if logprobs is not None and (completion_ids is None or len(logprobs) != len(completion_ids)):
            self.report.skip("log-probabilities that are not one for each token id", at)
            logprobs = None
        extra = {
            word: metrics[word]
            for word in ("cached_tokens", "cost_usd", "extra")
            if metrics.get(word) is not None
        }
        for word in ("reasoning_content", "reasoning_effort", "llm_call_count"):
            if step.get(word) is not None:
                extra[word] = step[word]
        kept = call_mark(metrics)
        before, self.call = self.call, key
        prompt = tuple(self.prompt)
        self.prompt.clear()
        return SeenCall(
            session=self.of.session, key=key, agent=self.of.key, order=order, t=t, at=at,
            policy=as_text(step.get("model_name")) or self.model, parent=before, prompt=prompt, completion=text,
            prompt_tokens=count_of(metrics.get("prompt_tokens")),
            completion_tokens=count_of(metrics.get("completion_tokens")),
            prompt_ids=prompt_ids, completion_ids=completion_ids, logprobs=logprobs, extra=extra,
            temperature=kept.temperature, finish_reason=kept.finish_reason,
            duration_s=kept.duration_s,
        )  # fmt: skip


def _results(step: dict[str, Any]) -> list[dict[str, Any]]:
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, dict) else None
    return [each for each in results if isinstance(each, dict)] if isinstance(results, list) else []


def _references(result: dict[str, Any]) -> list[dict[str, Any]]:
    """A list since 1.4; one by itself before."""
    given = result.get("subagent_trajectory_ref")
    if isinstance(given, dict):
        return [given]
    return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def _extra(value: dict[str, Any]) -> dict[str, Any]:
    return {"extra": value["extra"]} if value.get("extra") else {}


def _ids(value: Any) -> tuple[int, ...] | None:
    """Token ids, which Baton keeps in 32 bits; None where they are none."""
    if not isinstance(value, list) or not all(type(each) is int and 0 <= each <= _MAX_ID for each in value):
        return None
    return tuple(value)


def _reals(value: Any) -> tuple[float, ...] | None:
    if not isinstance(value, list) or not all(type(each) in (int, float) for each in value):
        return None
    try:
        return tuple(map(float, value))
    except OverflowError:
        return None
