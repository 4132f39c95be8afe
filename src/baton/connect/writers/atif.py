"""A trace as ATIF v1.8: the leading agent's trajectory, with one for every other agent embedded in it.

A call is a step of its agent with its token ids, log-probabilities and counts; what it led to are the step's tool
calls, also what ATIF has no word for (a message, a return, an aggregate: named by that word). Results of tools and what
an agent returned are observations of the step that asked. Every step, tool call and result carries under `extra.baton`
what ATIF cannot say, so that `baton import` gives the same spawns, returns, tools, messages, tokens and ids again.

Invariant: what is written passes Harbor's own models: steps are numbered from 1, a result names a tool call of its
step, only an agent's step has metrics, and a step that no model said has `llm_call_count` 0.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from baton.trace.graph.lineage import Lineage, in_seq_order
from baton.trace.records import Call, Edge, Event
from baton.trace.trace import Trace

VERSION: Final = "ATIF-v1.8"
_WORDS: Final = {
    "spawn": "spawn",
    "message": "send_message",
    "return": "return",
    "aggregate": "aggregate",
    "despawn": "despawn",
}
"""What acts are called among tool calls, where the source gave them no name."""
_KEPT = ("decision", "to", "tool", "duration_s", "tokens", "trusted", "why")


def encode_atif(trace: Trace) -> bytes:
    """The document of a trace."""
    return msgspec.json.format(msgspec.json.encode(atif_document(trace)), indent=1) + b"\n"


def atif_document(trace: Trace) -> dict[str, Any]:
    """The same as plain values."""
    lineage = Lineage.of(trace)
    writer = _Writer(trace, lineage)
    names = list(lineage.lives) or [""]
    root = lineage.root if lineage.root in names else names[0]
    document = writer.trajectory(root)
    document["session_id"] = trace.trace_id
    others = [writer.trajectory(name) for name in names if name != root]
    if others:
        document["subagent_trajectories"] = others
    prompt, completion = (
        [count for call in trace.calls if (count := getattr(call, word)) is not None]
        for word in ("prompt_tokens", "completion_tokens")
    )
    totals = {
        "total_prompt_tokens": sum(prompt) if prompt else None,
        "total_completion_tokens": sum(completion) if completion else None,
        "total_steps": len(document["steps"]),
    }
    document["final_metrics"] = {word: total for word, total in totals.items() if total is not None}
    header = trace.header
    document["extra"] = {
        "baton": {
            "trace_id": header.trace_id, "task_id": header.task_id, "system": header.system,
            "topology": header.topology, "finished": trace.finished,
            "rewards": [msgspec.to_builtins(reward) for reward in trace.rewards],
        }
    }  # fmt: skip
    return document


class _Writer:
    """Makes the trajectories of one trace."""

    def __init__(self, trace: Trace, lineage: Lineage) -> None:
        self.trace = trace
        self.lineage = lineage
        self.events: dict[str, list[Event]] = {}
        for event in in_seq_order(trace):
            self.events.setdefault(event.agent, []).append(event)
        self.calls: dict[str, list[Call]] = {}
        for call in trace.calls:
            self.calls.setdefault(call.agent, []).append(call)
        self.into: dict[str, list[Edge]] = {}
        for edge in trace.edges:
            self.into.setdefault(edge.dst, []).append(edge)
        self.answers = self._answers()
        self.returned: dict[str, list[Event]] = {}
        for event in in_seq_order(trace):
            if event.type == "return":
                self.returned.setdefault(event.agent, []).append(event)

    def _answers(self) -> dict[str, list[Event]]:
        """Tool call -> its results."""
        found: dict[str, list[Event]] = {}
        calls = {event.id for event in self.trace.events if event.type == "tool_call"}
        for event in in_seq_order(self.trace):
            if event.type == "tool_result":
                for edge in self.into.get(event.id, ()):
                    if edge.src in calls and edge.type in ("tool_dependency", "return"):
                        found.setdefault(edge.src, []).append(event)
                        break
        return found

    def id_of(self, agent: str) -> str:
        return f"{self.trace.trace_id}/{agent}"

    def trajectory(self, agent: str) -> dict[str, Any]:
        life = self.lineage.lives.get(agent)
        calls = self.calls.get(agent, [])
        about: dict[str, Any] = {"name": agent or "agent", "version": self.trace.header.system or "unknown"}
        models = {call.policy for call in calls}
        if len(models) == 1 and (model := next(iter(models))):
            about["model_name"] = model
        parent = None if life is None else life.parent
        about["extra"] = {"baton": {"role": None if life is None else life.role, "parent": parent}}
        steps = _Steps(self, agent).steps()
        if not steps:  # a trajectory has at least one
            steps = [{"step_id": 1, "source": "system", "message": "did nothing"}]
        return {
            "schema_version": VERSION, "trajectory_id": self.id_of(agent), "agent": about, "steps": steps,
        }  # fmt: skip

    def mark(self, event: Event) -> dict[str, Any]:
        """What ATIF cannot say of an event."""
        kept: dict[str, Any] = {"event": event.id, "type": event.type, "seq": event.seq, "t": event.t}
        for word in _KEPT:
            value = getattr(event, word)
            if value is not None:
                kept[word] = value
        if event.to is not None and event.to in self.lineage.lives:
            kept["to"] = self.id_of(event.to)
        if event.status != "ok":
            kept["status"] = event.status
        if event.inferred:
            kept["why"] = event.why or "inferred"
        if event.extra:
            kept["extra"] = event.extra
        payload = self.trace.payloads.get(event.content_ref or "")
        if payload is None or payload.data is None:
            kept["empty"] = True
        elif payload.media_type != "text/plain":
            kept["media_type"] = payload.media_type
        after = [
            [edge.src, edge.type, (edge.why or "inferred") if edge.inferred else None]
            for edge in self.into.get(event.id, ())
            if edge.type != "temporal"
        ]
        if after:
            kept["after"] = after
        return kept


class _Steps:
    """The steps of one agent."""

    def __init__(self, writer: _Writer, agent: str) -> None:
        self.writer = writer
        self.trace = writer.trace
        self.agent = agent
        self.made: list[dict[str, Any]] = []

    def steps(self) -> list[dict[str, Any]]:
        written: set[str] = set()
        answered = {result.id for results in self.writer.answers.values() for result in results}
        open_step: tuple[str | None, dict[str, Any]] | None = None
        for event in self.writer.events.get(self.agent, []):
            if event.type == "tool_result" and event.id in answered:
                continue
            if event.type in ("human_intervention", "tool_result", "safety_event") and event.call is None:
                source = "user" if event.type == "human_intervention" else "system"
                self._add(source, self.trace.text(event.content_ref) or "", self.writer.mark(event))
                open_step = None
                continue
            call = self.trace.call_by_id.get(event.call or "")
            if call is not None and call.id not in written:
                written.add(call.id)
                self._prompt(call)
                open_step = call.id, self._call_step(call)
            elif open_step is None or open_step[0] != event.call:
                step = self._add("agent", "", None)
                step["llm_call_count"] = 0
                open_step = event.call, step
            self._act(open_step[1], event)
        for call in self.writer.calls.get(self.agent, []):
            if call.id not in written:
                self._prompt(call)
                self._call_step(call)
        return self.made

    def _add(self, source: str, message: str, mark: dict[str, Any] | None) -> dict[str, Any]:
        step: dict[str, Any] = {"step_id": len(self.made) + 1, "source": source, "message": message}
        if mark is not None:
            step["extra"] = {"baton": mark}
        self.made.append(step)
        return step

    def _prompt(self, call: Call) -> None:
        """What was new in a call's prompt."""
        try:
            entries = msgspec.json.decode(self.trace.text(call.prompt_ref) or "[]")
        except msgspec.DecodeError:
            return
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("text"), str):
                speaker = str(entry.get("speaker") or "user")
                source = "system" if speaker == "system" else "user"
                self._add(source, entry["text"], {"prompt": speaker})

    def _call_step(self, call: Call) -> dict[str, Any]:
        step = self._add("agent", self.trace.text(call.completion_ref) or "", {})
        step["llm_call_count"] = 1
        if call.policy:
            step["model_name"] = call.policy
        prompt = self.trace.prompt_ids(call)
        given = {
            "prompt_tokens": call.prompt_tokens,
            "completion_tokens": call.completion_tokens,
            "prompt_token_ids": None if prompt is None else prompt.tolist(),
            "completion_token_ids": None if call.completion_ids is None else call.completion_ids.tolist(),
            "logprobs": None if call.logprobs is None else call.logprobs.tolist(),
        }
        metrics: dict[str, Any] = {word: value for word, value in given.items() if value is not None}
        about = {
            word: value
            for word in ("policy_version", "finish_reason", "t", "duration_s")
            if (value := getattr(call, word)) is not None
        }
        if call.versions is not None:
            about["versions"] = msgspec.to_builtins(call.versions)
        if call.sampling is not None:
            about["temperature"] = call.sampling.temperature
        metrics["extra"] = {"baton": {"call": call.id, **about}}
        step["metrics"] = metrics
        return step

    def _act(self, step: dict[str, Any], event: Event) -> None:
        text = self.trace.text(event.content_ref)
        mark = self.writer.mark(event)
        plain = event.type in ("orchestrator_decision", "safety_event") and event.decision in (
            "continue",
            "none",
        )
        if plain and "type" not in step.setdefault("extra", {}).setdefault("baton", {}):
            # What a model said and nothing came of: the step itself.
            if text is not None:
                mark["content"] = text
            step["extra"]["baton"] = mark
            return
        payload = self.trace.payloads.get(event.content_ref or "")
        arguments: Any = None
        if payload is not None and text is not None and payload.media_type == "application/json":
            try:
                arguments = msgspec.json.decode(text)
            except msgspec.DecodeError:
                arguments = None
        if not isinstance(arguments, dict) or as_json(arguments) != text:
            arguments, mark["text"] = {} if text is None else {"text": text}, True
        name = event.tool or _named(event) or _WORDS.get(event.type) or (
            event.decision if event.decision != "none" else event.type
        )  # fmt: skip
        step.setdefault("tool_calls", []).append(
            {
                "tool_call_id": event.id,
                "function_name": name,
                "arguments": arguments,
                "extra": {"baton": mark},
            }
        )
        for result in self.writer.answers.get(event.id, ()):
            self._observed(step, event.id, self.trace.text(result.content_ref), self.writer.mark(result))
        if event.type == "spawn" and event.to is not None:
            back = self.writer.returned.get(event.to, [])
            reference = {
                "trajectory_id": self.writer.id_of(event.to),
                "extra": {"baton": {"spawn": event.id}},
            }
            text = self.trace.text(back[0].content_ref) if back else None
            self._observed(
                step, event.id, text, None, reference if event.to in self.writer.lineage.lives else None
            )

    def _observed(
        self,
        step: dict[str, Any],
        call: str,
        text: str | None,
        mark: dict[str, Any] | None,
        reference: dict[str, Any] | None = None,
    ) -> None:
        result: dict[str, Any] = {"source_call_id": call}
        if text is not None:
            result["content"] = text
        if reference is not None:
            result["subagent_trajectory_ref"] = [reference]
        if mark is not None:
            result["extra"] = {"baton": mark}
        step.setdefault("observation", {"results": []})["results"].append(result)


def as_json(value: Any) -> str:
    """As readers put JSON into a trace."""
    return msgspec.json.encode(value).decode()


def _named(event: Event) -> str | None:
    """What the source called the tool that an act was carried out by."""
    name = event.extra.get("tool")
    return name if isinstance(name, str) and name else None
