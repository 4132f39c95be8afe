"""LangGraph: the runs that callbacks tell of become a team.

A run whose tag is `graph:step:N` is a node, and its parent is a graph. What `create_agent` (or the older prebuilt
agent) made is one agent, and its nodes are its own steps. Any other graph is an orchestrator and its nodes are agents
below it, each one life through all steps of the graph; what `Send` starts is a life of its own. A node that only ran
tools which another agent had asked for is nobody. `Command(goto=...)` passes control to a sibling; a graph run inside
a tool or a node's function is a spawn.

What a node reads after several ran side by side is not recorded: there the aggregate is inferred.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from baton.connect.live.langgraph_messages import entry_of, final_text, gotos, said_by, sends, usage_of
from baton.connect.live.prompts import spoken
from baton.connect.live.recording import LiveRecorder, framework_module, guarded
from baton.connect.live.telling import Telling, as_text, now

JOINED = "it ran in the step after several came back; which of them it read is not recorded"
_BUBBLES = ("ParentCommand", "GraphBubbleUp", "GraphInterrupt")


class _Run:
    """What is kept of a run while it is open."""

    def __init__(
        self, run_id: str, name: str, kind: str, above: _Run | None, metadata: dict[str, Any]
    ) -> None:
        self.id = run_id
        self.name = name
        self.kind = kind
        self.above = above
        self.metadata = metadata
        self.opened = now()
        self.root: _Run = self if above is None else above.root
        self.agent: str | None = None
        self.inputs: Any = None
        # Of a graph.
        self.single = False  # one agent, whose nodes are its steps
        self.returned: dict[int, list[str]] = {}  # step -> what came back in it
        self.sent: list[str] = []  # which nodes chose the next pushes, in their order
        self.controlled: set[str] = set()  # nodes that were handed control and have not run yet
        # Of a node.
        self.step = int(metadata.get("langgraph_step") or 0)
        self.others = 0  # tools run here for another agent
        self.handed = False
        self.fuses: list[str] = []
        # Of a tool.
        self.call_id: str | None = None
        self.child: str | None = None  # whom it spawned

    def nearest(self, *kinds: str) -> _Run | None:
        run: _Run | None = self
        while run is not None and run.kind not in kinds:
            run = run.above
        return run


class LangGraphRecorder(LiveRecorder):
    """A callback handler; `record.langgraph` makes it."""

    framework = "langgraph"
    run_inline = True  # in asyncio, hooks come in the order of what they tell

    def prepare(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._said: dict[
            tuple[str, str], tuple[str, str]
        ] = {}  # (session, tool-call id) -> who asked, in which call
        self._threads: dict[
            str, tuple[str, str]
        ] = {}  # a thread that was interrupted -> its session and root

    # Chains: graphs, nodes, and what is neither.

    @guarded
    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, tags: Any = None,
        metadata: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        name = kwargs.get("name") or (serialized or {}).get("name") or "chain"
        above = self._runs.get(str(parent_run_id))
        is_node = any(str(tag).startswith("graph:step:") for tag in tags or ())
        run = _Run(str(run_id), name, "node" if is_node else "chain", above, dict(metadata or {}))
        run.inputs = inputs
        self._runs[run.id] = run
        if is_node and above is not None:
            self._node_begins(run, above)
        elif above is None:
            self._session_begins(run)
        elif (
            name == "call_model"
            and above.kind == "node"
            and above.name == "agent"
            and above.above is not None
        ):
            above.above.single = True  # the older prebuilt agent
        if (
            any(str(tag).startswith("seq:step:") for tag in tags or ())
            and above is not None
            and above.kind == "node"
        ):
            run.metadata["is_node_itself"] = True

    @guarded
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(str(run_id), None)
        if run is None:
            return
        if run.kind == "node":
            self._node_ends(run, outputs)
        elif run.kind == "graph":
            self._graph_ends(run, outputs, None)
        elif run.above is not None and run.above.kind == "node":
            self._node_sends(
                run.above, sends(outputs)
            )  # a conditional edge runs below the node that it leaves
        if run.above is None:
            self._session_ends(run)

    @guarded
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(str(run_id), None)
        if run is None:
            return
        bubble = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _BUBBLES), None)
        if run.kind == "node":
            self._node_fails(run, error, bubble)
        elif run.kind == "graph" and bubble is None:
            self._graph_ends(run, f"{type(error).__name__}: {error}", _status(error))
        elif run.kind == "graph" and run.above is not None:
            self._left(run)
        if run.above is None:
            self._session_ends(run)

    def _session_begins(self, run: _Run) -> None:
        thread = run.metadata.get("thread_id")
        resumed = self._threads.pop(str(thread), None) if _resumes(run.inputs) else None
        if resumed is not None:  # the interrupted run goes on
            run.metadata["session"], run.metadata["root"] = resumed
        telling, new = self.telling(self._session(run))
        if resumed is not None:
            answer = getattr(run.inputs, "resume", None)
            telling.event("human_intervention", f"{run.id}/human", resumed[1], content=answer)
        if new:
            telling.begin(thread_id=thread, name=run.name)
            telling.asked(final_text(run.inputs, speaker="human") or as_text(run.inputs)[0])

    def _session(self, run: _Run) -> str:
        return str(run.root.metadata.get("session") or run.root.id)

    def _telling(self, run: _Run) -> Telling:
        return self.telling(self._session(run))[0]

    # Who acts.

    def _graph_agent(self, graph: _Run) -> str:
        """The agent that a graph is: the node that it stands for, or one of its own."""
        if graph.agent is not None:
            return graph.agent
        telling = self._telling(graph)
        above = graph.above
        if above is None:
            key = str(graph.metadata.get("root") or graph.id)
            graph.agent = telling.agent(key, graph.name, role=None if graph.single else "orchestrator")
            return graph.agent
        if above.kind == "node" and graph.metadata.get("is_node_itself") and above.above is not None:
            graph.agent = self._node_agent(above)
            return graph.agent
        place, parent = above.nearest("tool", "node", "graph"), self._actor(above)
        tool = place if place is not None and place.kind == "tool" else None
        graph.agent = telling.agent(
            graph.id, graph.name, role=None if graph.single else "orchestrator", parent=parent
        )
        key, asked = graph.id, telling.last_call(parent)
        if tool is not None and tool.child is None:
            tool.child, key = graph.agent, tool.id  # the call of the tool was this spawn
            asked = self._said.get((telling.session, tool.call_id or ""), (parent, asked))[1]
        telling.spawn(
            key, parent, graph.agent, final_text(graph.inputs, speaker="human") or graph.inputs, call=asked,
            opened=graph.opened, tool=None if tool is None else tool.name,
            extra={"tool_call_id": None if tool is None else tool.call_id},
        )  # fmt: skip
        return graph.agent

    def _node_agent(self, node: _Run) -> str:
        """The agent that a node is, which is there from its first act."""
        graph = node.above
        assert graph is not None
        if node.agent is not None:
            return node.agent
        if graph.single:
            node.agent = self._graph_agent(graph)
            return node.agent
        telling, lead = self._telling(node), self._graph_agent(graph)
        pushed = "__pregel_push" in node.metadata.get("langgraph_path", ())
        key = node.id if pushed else _key(graph, node.name)
        again = key in telling.known
        if node.name in graph.controlled:
            graph.controlled.discard(node.name)
        elif again:
            telling.hand_over(f"{node.id}/begin", lead, key, opened=node.opened)
        else:
            telling.agent(key, node.name, parent=lead)
            sent = {"sent_by": node.metadata.get("chooser")}
            task = node.inputs if pushed else None
            telling.spawn(f"{node.id}/begin", lead, key, task, opened=node.opened, extra=sent)
        node.agent = key
        return key

    def _actor(self, run: _Run) -> str:
        """Who acts in a run."""
        place = run.nearest("node", "graph", "tool")
        if place is None:
            root = run.root
            root.agent = root.agent or self._telling(run).agent(
                str(root.metadata.get("root") or root.id), root.name
            )
            return root.agent
        if place.kind == "node":
            return self._node_agent(place)
        if place.kind == "graph":
            return self._graph_agent(place)
        return place.agent or self._actor(place.above or place.root)

    # Nodes and graphs.

    def _node_begins(self, node: _Run, graph: _Run) -> None:
        if graph.kind != "graph":
            graph.kind = "graph"
            graph.single = graph.single or node.metadata.get("ls_integration") == "langchain_create_agent"
            self._graph_agent(graph)
        if graph.single:
            return
        path = node.metadata.get("langgraph_path", ())
        if "__pregel_push" in path and graph.sent:
            node.metadata["chooser"] = graph.sent.pop(0)
        before = graph.returned.get(node.step - 1, [])
        node.fuses = before if len(before) > 1 else []

    def _node_sends(self, node: _Run, targets: list[Any]) -> None:
        graph = node.above
        if targets and graph is not None and not graph.single:
            self._node_agent(node)
            graph.sent += [node.name] * len(targets)

    def _node_ends(self, node: _Run, outputs: Any) -> None:
        graph = node.above
        if graph is None or graph.single:
            return
        if node.agent is None and node.others:
            return  # it ran tools for somebody else, and nothing more
        agent, telling = self._node_agent(node), self._telling(node)
        self._node_sends(node, sends(outputs))
        self._fuse(node, telling.last_call(agent), None)
        targets = gotos(outputs)
        for target in targets:
            self._hand(telling, node, graph, target, f"{node.id}/to/{target}", final_text(outputs))
        if targets or node.handed:
            return
        key = f"{node.id}/end"
        result = final_text(outputs, speaker="ai")
        telling.returns(
            key, agent, self._graph_agent(graph), outputs if result is None else result,
            call=telling.last_call(agent),
        )  # fmt: skip
        graph.returned.setdefault(node.step, []).append(key)

    def _node_fails(self, node: _Run, error: BaseException, bubble: str | None) -> None:
        graph = node.above
        if graph is None or graph.single or (node.agent is None and node.others) or bubble == "ParentCommand":
            return
        agent, telling = self._node_agent(node), self._telling(node)
        if bubble is not None:  # a person is asked
            telling.decide(f"{node.id}/wait", agent, "wait", str(error))
            self._left(node)
            return
        telling.returns(
            f"{node.id}/end", agent, self._graph_agent(graph), f"{type(error).__name__}: {error}",
            status=_status(error), call=telling.last_call(agent),
        )  # fmt: skip

    def _left(self, run: _Run) -> None:
        """An interrupted run: if its thread is resumed, its session goes on."""
        root = run.root
        thread = root.metadata.get("thread_id")
        if thread is not None:
            self._threads[str(thread)] = (self._session(root), root.agent or root.id)

    def _hand(self, telling: Telling, node: _Run, graph: _Run, target: str, key: str, text: Any) -> None:
        agent = self._node_agent(node)
        to = telling.agent(_key(graph, target), target)
        telling.hand_over(key, agent, to, text, call=telling.last_call(agent))
        graph.controlled.add(target)

    def _graph_ends(self, graph: _Run, outputs: Any, status: Any) -> None:
        telling, agent = self._telling(graph), self._graph_agent(graph)
        text = outputs if isinstance(outputs, str) else final_text(outputs)
        result = outputs if text is None else text
        call = telling.last_call(agent) if graph.single else None
        if graph.above is None:
            if str(graph.metadata.get("thread_id")) not in self._threads:
                telling.stop(f"{graph.id}/stop", agent, result, status, call=call)
            return
        if graph.metadata.get("is_node_itself"):
            return  # its node returns
        place = graph.above.nearest("tool", "node", "graph")
        if place is not None and place.child == agent:
            return  # its tool returns, with what it made of the answer
        telling.returns(f"{graph.id}/end", agent, self._actor(graph.above), result, status=status, call=call)

    def _fuse(self, node: _Run | None, call: str | None, text: Any) -> None:
        if node is not None and node.fuses:
            telling, agent = self._telling(node), self._node_agent(node)
            telling.event(
                "aggregate", f"{node.id}/fused", agent, content=text, call=call, why=JOINED,
                after=[(key, "aggregate") for key in node.fuses],
            )  # fmt: skip
            node.fuses = []

    def _session_ends(self, root: _Run) -> None:
        telling = self._telling(root)
        if root.kind == "chain":
            agent = self._actor(root)
            telling.stop(f"{root.id}/stop", agent, None, call=telling.last_call(agent))
        if telling.session in {session for session, _ in self._threads.values()}:
            return
        telling.finish()
        self.forget(telling.session)
        self._said = {key: value for key, value in self._said.items() if key[0] != telling.session}

    # Tools.

    @guarded
    def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: UUID, parent_run_id: UUID | None = None, inputs: Any = None,
        metadata: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        above = self._runs.get(str(parent_run_id))
        name = (serialized or {}).get("name") or kwargs.get("name") or "tool"
        run = self._runs[str(run_id)] = _Run(str(run_id), name, "tool", above, dict(metadata or {}))
        if above is None:
            self._session_begins(run)
        telling = self._telling(run)
        run.call_id = kwargs.get("tool_call_id")
        asked = self._said.get((telling.session, run.call_id or ""))
        node = None if above is None else above.nearest("node")
        if asked is not None and node is not None and node.agent != asked[0]:
            node.others += 1
        run.agent = asked[0] if asked is not None else self._actor(above or run.root)
        telling.tool_call(
            run.id, run.agent, name, input_str if inputs is None else inputs,
            call=asked[1] if asked is not None else telling.last_call(run.agent), extra={"tool_call_id": run.call_id},
        )  # fmt: skip

    @guarded
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(str(run_id), None)
        if run is not None:
            targets = gotos(output)
            for number, target in enumerate(targets):
                self._tool_hands(run, target, number)
            failed = getattr(output, "status", None) == "error"
            if not targets:
                self._tool_ends(run, getattr(output, "content", output), "failed" if failed else None)

    @guarded
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(str(run_id), None)
        if run is not None:
            self._tool_ends(run, f"{type(error).__name__}: {error}", _status(error))

    def _tool_ends(self, run: _Run, result: Any, status: Any) -> None:
        if run.agent is None:
            return
        telling = self._telling(run)
        if run.child is not None:
            call = telling.last_call(run.child)
            telling.returns(f"{run.id}/result", run.child, run.agent, result, status=status, call=call)
        else:
            telling.tool_result(run.id, run.agent, run.name, result, status=status)

    def _tool_hands(self, run: _Run, target: str, number: int) -> None:
        """A tool that answers with `Command(goto=..., graph=PARENT)`: its agent hands over in the graph above.

        The call of the tool was this very act, so it is told under the call's key.
        """
        node = run.nearest("node")
        graph = None if node is None else node.above
        while graph is not None and graph.single:
            node = None if graph.above is None else graph.above.nearest("node")
            graph = None if node is None else node.above
        if node is not None and graph is not None:
            node.handed = True
            key = run.id if number == 0 else f"{run.id}/to/{target}"
            self._hand(self._telling(run), node, graph, target, key, None)

    # Models.

    @guarded
    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: UUID, parent_run_id: UUID | None = None, metadata: Any = None,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        self._asks(
            serialized,
            [entry_of(message) for message in messages[0]],
            run_id,
            parent_run_id,
            metadata,
            kwargs,
        )

    @guarded
    def on_llm_start(
        self, serialized: Any, prompts: list[str], *, run_id: UUID, parent_run_id: UUID | None = None,
        metadata: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        self._asks(
            serialized, [("user", prompt) for prompt in prompts], run_id, parent_run_id, metadata, kwargs
        )

    def _asks(
        self, serialized: Any, entries: list[tuple[str, str]], run_id: UUID, parent_run_id: Any, metadata: Any,
        kwargs: dict[str, Any],
    ) -> None:  # fmt: skip
        above = self._runs.get(str(parent_run_id))
        name = kwargs.get("name") or (serialized or {}).get("name") or "model"
        run = self._runs[str(run_id)] = _Run(str(run_id), name, "model", above, dict(metadata or {}))
        if above is None:
            self._session_begins(run)
        telling = self._telling(run)
        telling.asked(next((text for speaker, text in entries if speaker == "user"), None))
        run.agent = self._actor(run)
        parent, new = telling.growth.grow(run.agent, run.id, entries)
        telling.call(
            run.id, run.agent, opened=run.opened, parent=parent, prompt=new, policy=run.metadata.get("ls_model_name"),
            temperature=run.metadata.get("ls_temperature"),
        )  # fmt: skip

    @guarded
    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(str(run_id), None)
        if run is None or run.agent is None:
            return
        telling, first = self._telling(run), response.generations[0][0]
        message = getattr(first, "message", None)
        text, calls = said_by(message) if message is not None else (first.text, [])
        words = spoken(text, [(name, arguments) for name, arguments, _ in calls])
        telling.growth.answered(run.id, words)
        for _, _, call_id in calls:
            if call_id:
                self._said[telling.session, call_id] = (run.agent, run.id)
        telling.call(
            run.id, run.agent, completion=words, duration_s=now() - run.opened, **usage_of(message, response)
        )
        self._fuse(run.nearest("node"), run.id, words)
        if run.above is None:
            telling.stop(f"{run.id}/stop", run.agent, words, call=run.id)
            telling.finish()
            self.forget(telling.session)

    @guarded
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(str(run_id), None)
        if run is not None and run.agent is not None:
            self._telling(run).call(
                run.id, run.agent, duration_s=now() - run.opened, status=_status(error), finish_reason="error",
                extra={"error": f"{type(error).__name__}: {error}"},
            )  # fmt: skip


def make(*args: Any, **kwargs: Any) -> Any:
    """The recorder as a callback handler of LangChain."""
    base = framework_module("langchain_core.callbacks", "langgraph").BaseCallbackHandler
    return type("Recorder", (LangGraphRecorder, base), {})(*args, **kwargs)


def _key(graph: _Run, node: str) -> str:
    return f"{graph.agent}/{node}"


def _resumes(inputs: Any) -> bool:
    return inputs is None or getattr(inputs, "resume", None) is not None


def _status(error: BaseException) -> str:
    return "cancelled" if type(error).__name__ == "CancelledError" else "failed"
