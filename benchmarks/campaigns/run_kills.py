"""Runs that are killed with SIGKILL and resumed, in every topology and on both clocks, against a server that counts.

What is resumed comes to the numbers of a run that nobody killed, to the digit (on a real clock, times and the order of
things that go on at once are the world's). An answer that the server had sent a while before the kill is paid for, and
is not asked for again. Nor does a limit on calls begin anew: over all lives of a run the server is asked no more often.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

from baton.cli import main
from baton.trace.formats import read_all
from baton.trace.trace import Trace
from baton.trace.validation import validate
from campaigns.campaign import Row, Tally, is_traceback, run_child, warm
from campaigns.misbehaviours import KEY
from campaigns.server import read_log, serving

TOPOLOGIES = ("centralized", "planner_executor_critic", "debate", "swarm", "hierarchical", "harness")
_GRACE_SECONDS = 1.0
"""From the server's last byte to the journal: a busy machine takes its time to read and to write."""
_DEATHS_OF_A_RUN = 6


def run_kills(count: int, seed: int, folder: Path) -> Row:
    tally = Tally("run killed and resumed")
    warm("httpx", "baton.cli.run", "baton.cli.resume", "baton.tasks.shard_sum")
    draw = random.Random(seed)
    os.environ["OPENAI_API_KEY"] = KEY
    log = folder / "log"
    with serving(log) as url:
        number = 0
        while tally.tries < count:
            topology = TOPOLOGIES[number % len(TOPOLOGIES)]
            clock = ("virtual", "real")[number // len(TOPOLOGIES) % 2]
            limit = (None, 5)[number % 4 // 2]
            _one(tally, folder, log, url, number, topology, clock, limit, draw, count - tally.tries)
            number += 1
    return tally.row()


def _one(
    tally: Tally,
    folder: Path,
    log: Path,
    url: str,
    number: int,
    topology: str,
    clock: str,
    limit: int | None,
    draw: random.Random,
    left: int,
) -> None:
    where = f"run {number} ({topology}, {clock} clock{f', at most {limit} calls' if limit else ''})"
    command = ["run", "shard-sum", "--topology", topology, "--clock", clock, "--seed", str(number)]
    command += ["--set", f"limits.calls={limit}"] if limit else []

    def typed(name: str) -> list[str]:
        return [*command, "--policy", f"openai:m@{url}/{name}/v1", "--out", str(folder / name)]

    whole_name, name = f"whole{number}", f"killed{number}"
    began = time.monotonic()
    died = run_child(lambda _: main(typed(whole_name)), folder / f"{whole_name}.said")
    takes = time.monotonic() - began
    if died.code:
        tally.wrong(f"{where}: it fails without being killed: {died.said.strip()[-300:]}")
        return
    kills: list[float] = []
    while True:
        going = (folder / name / "run.db").exists() and bool(_read(tally, where, folder / name))
        again = ["resume", str(folder / name), "--trust"] if going else typed(name)
        spare = len(kills) >= min(_DEATHS_OF_A_RUN, left)
        after = None if spare else draw.uniform(0.05, max(0.3, takes * 0.7))
        died = run_child(lambda _, again=again: main(again), folder / f"{name}.said", kill_after=after)
        if is_traceback(died.said):
            tally.wrong(f"{where}: {again[0]} printed a traceback: {died.said.strip().splitlines()[-1]}")
            return
        if not died.killed:
            if died.code:
                tally.wrong(f"{where}: {again[0]} after {len(kills)} kills: {died.said.strip()[-300:]}")
            break
        kills.append(time.monotonic())
    tally.tries += len(kills)
    tally.faults += len(kills)
    logged = read_log(log)
    if limit is None:
        _compare(tally, where, folder, whole_name, name, clock)
    elif (asked := sum(line["name"] == name and line["what"] == "asked" for line in logged)) > limit:
        # A call that was lost on its way is paid for: the run may end sooner than one that nobody killed, never later.
        tally.wrong(f"{where}: the server was asked {asked} times")
    _count(tally, where, logged, name, kills)


def _read(tally: Tally, where: str, place: Path) -> list[Trace]:
    try:
        return list(read_all(place))
    except Exception as error:
        tally.wrong(f"{where}: what a kill left cannot be read: {error!r}")
        return []


def _compare(tally: Tally, where: str, folder: Path, whole_name: str, name: str, clock: str) -> None:
    (whole,), found = read_all(folder / whole_name), _read(tally, where, folder / name)
    if len(found) != 1 or not found[0].finished:
        tally.lost(f"{where}: {len(found)} traces, or one without an end")
        return
    if problems := validate(found[0]):
        tally.wrong(f"{where}: {problems[0]}")
    if (wanted := _numbers(whole, clock)) != (got := _numbers(found[0], clock)):
        differ = {key: (wanted[key], got[key]) for key in wanted if wanted[key] != got[key]}
        tally.wrong(f"{where}: uninterrupted and resumed differ: {str(differ)[:400]}")


def _numbers(trace: Trace, clock: str) -> dict[str, Any]:
    said = [(e.id, e.t, e.type, e.agent, e.status, e.tokens, trace.text(e.content_ref)) for e in trace.events]
    costs = dict(trace.costs)
    if clock == "real":
        costs.pop("wall_clock_s", None)
        said = []
    rewards = [(reward.channel, reward.value) for reward in trace.rewards]
    return {
        "costs": costs,
        "events": len(trace.events),
        "calls": len(trace.calls),
        "rewards": rewards,
        "said": said,
    }


def _count(tally: Tally, where: str, log: list[dict[str, Any]], name: str, kills: list[float]) -> None:
    """Calls that the server had answered well before a kill, and was asked again after it."""
    mine = [line for line in log if line["name"] == name]
    asked: dict[str, float] = {}
    answered: dict[str, float] = {}
    repeated: dict[str, float] = {}
    for line in mine:
        key, t = line["key"], line["t"]
        if line["what"] == "answered":
            if not any(asked[key] < kill < t for kill in kills):  # otherwise nobody was there to hear it
                answered.setdefault(key, t)
            continue
        asked[key] = t
        if key in answered and (between := [kill for kill in kills if answered[key] < kill < t]):
            waited = between[0] - answered[key]
            if waited > _GRACE_SECONDS:
                repeated[key] = waited
    if repeated:
        paid = len({line["key"] for line in mine})
        oldest = max(repeated.values())
        tally.lost(
            f"{where}: {len(repeated)} of {paid} answers were paid for again after {len(kills)} kills; one was sent "
            f"{oldest:.2f} s before the kill"
        )
