"""What a live recorder costs: one sighting in the journal, and a LangGraph run with and without the recorder.

    python benchmarks/recording.py            # the second row needs langgraph, as in .venv-connect/langgraph

Processor time of the process, so that what the recorder's own thread assembles beside the program is counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from baton.connect import record
from baton.connect.live.recording import LiveRecorder
from table import machine, print_table, row

REPEATS = 5


class Sightings(LiveRecorder):
    """A framework that does nothing but tell."""

    framework = "nothing"


def tell(folder: Path, num_turns: int) -> int:
    """So many turns of a call, a tool and its result; returns how many sightings that made."""
    with Sightings(folder) as recorder:
        telling, _ = recorder.telling("run")
        telling.begin(task="t")
        agent = telling.agent("a", "a")
        for turn in range(num_turns):
            call = telling.call(
                f"c{turn}", agent, prompt=(("user", "x" * 200),), prompt_tokens=100, completion_tokens=9
            )
            telling.tool_call(f"t{turn}", agent, "look", {"q": turn}, call=call)
            telling.tool_result(f"t{turn}", agent, "look", "y" * 200)
        telling.stop("s", agent, "done")
        telling.finish()
        return recorder.journal.lines


def graph_of(num_steps: int) -> Any:
    """A chain of nodes that each ask a model that answers at once."""
    from langchain_core.language_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langgraph.graph import START, MessagesState, StateGraph

    def node(state: Any) -> Any:
        model = GenericFakeChatModel(messages=iter([AIMessage("words " * 20)]))
        return {"messages": [model.invoke(state["messages"][-1:])]}

    graph = StateGraph(MessagesState)
    before = START
    for step in range(num_steps):
        graph.add_node(f"n{step}", node)
        graph.add_edge(before, f"n{step}")
        before = f"n{step}"
    return graph.compile(name="chain")


def cpu_seconds(run: Callable[[], Any]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def rows(num_turns: int, num_steps: int, folder: Path) -> Iterator[tuple[str, ...]]:
    """One at a time, as they are measured."""
    count, times = 0, []
    for number in range(REPEATS):
        began = time.process_time()
        count = tell(folder / str(number), num_turns)
        times.append(time.process_time() - began)
    each = f"{median(times) / count * 1e6:.0f} µs"
    yield row(f"a sighting, journal and trace ({count:,} in one run)", each, "–", "–", None, machine())
    if find_spec("langgraph") is None:
        print("langgraph is not here. Type: .venv-connect/langgraph/bin/python benchmarks/recording.py")
        return
    graph, asked, limit = graph_of(num_steps), {"messages": [("user", "go")]}, {"recursion_limit": 1_000}

    def heard(number: int) -> None:
        with record.langgraph(folder / f"graph{number}") as recorder:
            graph.invoke(asked, {"callbacks": [recorder], **limit})

    graph.invoke(asked, limit)
    plain = median(cpu_seconds(lambda: graph.invoke(asked, limit)) for _ in range(REPEATS)) / num_steps
    with_us = median(cpu_seconds(partial(heard, number)) for number in range(REPEATS)) / num_steps
    what = f"a LangGraph node that asks a model which answers at once (chain of {num_steps}), recorded"
    yield row(
        what, f"{with_us * 1e3:.2f} ms", "not recorded", f"{plain * 1e3:.2f} ms", plain / with_us, machine()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=3_000)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        print_table(rows(args.turns, args.steps, Path(folder)))


if __name__ == "__main__":
    main()
