"""What `test_installed_package` runs in processes of their own: every kind, through every door, by some set of names.

`python extension_doors.py STEP NAMES`: NAMES is "entry" for the names that the installed package declares, "module" for
`module:attr`. Nothing here imports the package: whatever is found is found by its name.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import baton
from baton import registry
from baton.cli import main
from baton.learn.recipe import load
from baton.trace.formats import read_all

ENTRY = {
    "topology": "relay",
    "aggregator": "median",
    "surface": "json-lines",
    "tool": "capital",
    "engine": "dice",
    "task": "hotter",
    "game": "coin",
    "reward": "brief",
    "estimator": "median",
    "loss": "bold",
    "critic": "by-length",
    "metric": "messages_per_agent",
    "format": "csv",
    "source": "chat-log",
    "monitor": "too-long",
    "logger": "best",
    "sanitiser": "order-numbers",
    "cost": "chatter",
    "recipe": "when-to-stop",
}
MODULE = {
    "topology": "my_topology:relay",
    "aggregator": "my_aggregator:Median",
    "surface": "my_surface:JsonLines",
    "tool": "my_tool:capital",
    "engine": "my_engine:dice",
    "task": "my_task:Hotter",
    "game": "my_game:Coin",
    "reward": "my_reward:Brief",
    "estimator": "my_estimator:above_median",
    "loss": "my_loss:BOLD",
    "critic": "my_critic:ByLength",
    "metric": "my_metric:messages_per_agent",
    "format": "my_format:CSV",
    "source": "my_source:ChatLog",
    "monitor": "my_monitor:TooLong",
    "logger": "my_logger:Best",
    "sanitiser": "my_sanitiser:order_numbers",
    "cost": "my_cost:Chatter",
    "recipe": "my_recipe:WHEN_TO_STOP",
}
TRAINED = """
about = "Every part that a recipe can name is another package's."
import = [{imported}]
[task]
name = "{task}"
settings = {{highest = 3}}
[team]
topology = "{topology}"
settings = {{runners = 1, method = "median"}}
surface = "{surface}"
aggregators = ["{aggregator}"]
tools = ["{tool}"]
template = ""
max_tokens = 48
[policies.main]
model = "tiny"
tiny = {{width = 32, layers = 1, heads = 2, vocabulary = 280}}
[policies.thrown]
model = '{engine}:{{"verb":"return","text":"1"}}|{{"verb":"return","text":"2"}}'
roles = ["anchor"]
train = "frozen"
[warm]
play = "reference"
episodes = 8
steps = 60
rows = 16
learning_rate = 0.01
[[reward.rules]]
rule = "{reward}"
limit = 5
[[credit]]
estimator = "{estimator}"
roles = ["runner"]
[[credit]]
estimator = "gae"
roles = ["starter"]
[[constraints]]
cost = "{cost}"
limit = 0.5
settings = {{free = 1}}
[guard.tools.capital]
sanitise = "{sanitiser}"
[critic]
kind = "{critic}"
[loss]
kind = "{loss}"
[rollout]
groups = 2
group_size = 2
[train]
steps = 1
checkpoint_every = 1
monitors = ["{monitor}"]
loggers = ["{logger}"]
[eval]
episodes = 2
best_of = 1
metrics = ["{metric}"]
"""
TEAM = ("--set", "runners=1", "--set", "method=median", "--set", "task.highest=8")


def typed(*words: str) -> None:
    """A command that has to work."""
    assert main(list(words)) == 0, words


def runs(name: dict[str, str]) -> None:
    """Everything that needs no training, by the command line and by Python."""
    team = [f"--{kind}={name[kind]}" for kind in ("topology", "surface", "tool", "aggregator")]
    typed("run", name["task"], *team, *TEAM, "--out", "team")
    typed("run", name["task"], *team, *TEAM, "--policy", f"anchor={name['engine']}:return 1", "--policy", "reference",
          "--out", "again")  # fmt: skip
    typed("run", "shard-sum", "--tool", name["tool"], "--policy", "scripted:my_tool:clerk", "--out", "tool")
    Path("guard.toml").write_text(f'[tools.capital]\nsanitise = "{name["sanitiser"]}"\n')
    typed("run", "shard-sum", "--tool", name["tool"], "--policy", "scripted:my_tool:clerk", "--guard", "guard.toml",
          "--trust", "--out", "guarded")  # fmt: skip
    typed("run", "shard-sum", "--topology", "swarm", "--policy", name["engine"], "--out", "engine")
    typed("run", f"game:{name['game']}", "--policy", "optimal", "--out", "game")
    typed("game", "solve", name["game"])
    typed("reward", "team", "--recipe", name["reward"], "--trust")
    typed("credit", "team", "again", "--estimator", name["estimator"])
    typed("measure", "team", "--metric", name["metric"], "--trust")
    typed("convert", "team", "events.txt", "--to", name["format"])
    Path("talk.jsonl").write_text('{"chat": "c", "n": 1, "from": "Ada", "to": "Bo", "text": "hello"}\n')
    typed("import", "talk.jsonl", "--from", name["source"], "--out", "talks")
    typed("recipes", name["recipe"])
    typed("recipes")
    typed("credit", "--list")
    typed("game", "list")
    parts = {
        "loss.kind": name["loss"],
        "critic.kind": name["critic"],
        "train.monitors": f'["{name["monitor"]}"]',
    }
    changes = [f"{key}={value}" for key, value in parts.items()]
    assert load("mappo", changes).critic is not None  # what is typed needs no leave
    (team_trace,) = read_all("team")
    assert {event.tool for event in read_one("tool").events} == {None, "capital"}
    (read,) = [event for event in read_one("guarded").events if event.type == "tool_result"]
    assert "raw_ref" in read.extra  # none of what it said is an order number
    assert [team_trace.text(e.content_ref) for e in team_trace.events if e.type == "aggregate"]
    assert team_trace.rewards[0].value == 1.0

    told: dict[str, Any] = {kind: name[kind] for kind in ("topology", "surface")}
    told |= {"tools": [name["tool"]], "aggregators": [name["aggregator"]]}
    told["settings"] = {"runners": 1, "method": "median", "task.highest": 8}
    trace = baton.run(name["task"], **told)
    assert trace.events == team_trace.events
    thrown = baton.run(name["task"], **told, policy={"anchor": f"{name['engine']}:2", "default": "reference"})
    assert baton.score(trace, name["reward"], trust=True).rewards[-1].name == "brief"
    assert baton.credit([trace, thrown], name["estimator"])[0].credits[0].estimator == "median"
    assert baton.measure(trace, metrics=[name["metric"]], trust=True).own["messages_per_agent"].figure.value
    assert baton.run(f"game:{name['game']}", policy="optimal").rewards
    baton.write(trace, "events.csv", format=name["format"])
    Path("talk.jsonl").write_text('{"chat": "c", "n": 1, "from": "Ada", "to": "Bo", "text": "hello"}\n')
    assert baton.import_traces("talk.jsonl", source=name["source"]).traces
    assert Path("events.csv").read_text().startswith("trace,seq,t,agent")
    Path("cut").mkdir()
    baton.write(trace.prefix(6), "cut/run.db")  # as a run leaves it that is killed


def read_one(place: str) -> baton.Trace:
    return next(iter(read_all(place)))


def again(trust: tuple[str, ...]) -> None:
    """What was recorded is run again by a process that knows only the records."""
    for place in ("team", "tool", "guarded", "engine", "game"):
        typed("replay", place, *trust)
    returned = next(event for event in read_one("team").events if event.type == "return")
    typed("fork", "team", "--at", returned.id, "--replace", "5", "--out", "forked.jsonl", *trust)
    (fused,) = [event for event in read_one("forked.jsonl").events if event.type == "aggregate"]
    assert fused.extra["method"] == "median"
    typed("fork", "engine", "--bar", "peer2", "--out", "without.jsonl", *trust)
    typed("fork", "game", "--at", "orchestrator#1", "--do", "stop heads", "--out", "bet.jsonl", *trust)
    typed("resume", "cut", *trust)
    assert {e.id for e in read_one("cut").events} == {e.id for e in read_one("team").events}
    assert baton.replay("team", trust=bool(trust)).events == read_one("team").events


def trained(name: dict[str, str]) -> None:
    """One training run with everything plugged in, typed."""
    Path("own.toml").write_text(TRAINED.format(**name, imported=""))
    typed("train", "own.toml", "--out", "run")
    assert Path("run/best.json").is_file()


def trained_again() -> None:
    """The run is gone on with, measured and looked into by a process that knows only its folder."""
    typed("train", "--resume", "--out", "run", "--set", "train.steps=2")
    typed("eval", "run", "--json")
    typed("replay", "run", "--trace", "step-0001/00-00")
    typed(
        "fork",
        "run",
        "--trace",
        "step-0001/00-00",
        "--at",
        "starter#1",
        "--replace",
        "2",
        "--out",
        "forked.jsonl",
    )
    run = baton.evaluate("run", episodes=2)
    assert "messages_per_agent" in run["after"]["metrics"]
    found = next(trace for trace in read_all("run/traces/run.db") if trace.trace_id == "step-0002/00-00")
    assert {reward.name for reward in found.rewards} >= {"brief"}
    assert "median" in {credit.estimator for credit in found.credits}
    assert {charge.channel for charge in found.charges} == {"chatter"}
    assert {call.policy for call in found.calls} == {"main", "dice"}


def trained_in_python(name: dict[str, str]) -> None:
    """The same from Python by `module:attr`, with a topology that a module registers as the recipe imports it."""
    Path("own.toml").write_text(TRAINED.format(**name | {"topology": "registered"}, imported='"registering"'))
    loss = registry.resolve("loss", name["loss"])
    run = baton.train("own.toml", out="run", loss=loss, trust=True)
    assert "messages_per_agent" in (run.after or {})["metrics"]
    assert Path("run/best.json").is_file()
    gone_on = baton.resume("run", settings={"train.steps": 2}, trust=True)
    assert len(gone_on.metrics) == 2
    assert "messages_per_agent" in baton.evaluate(gone_on, episodes=2)["after"]["metrics"]
    recipe = baton.train(name["recipe"], steps=1, out="by-name", settings={
        "rollout.groups": 2, "eval.episodes": 2, "warm.steps": 1, "warm.episodes": 4, "eval.best_of": 1,
    })  # fmt: skip
    assert recipe.metrics


if __name__ == "__main__":
    step, which = sys.argv[1:]
    chosen = ENTRY if which == "entry" else MODULE
    if step in ("runs", "trained", "trained_in_python"):
        globals()[step](chosen)
    elif step == "again":
        again(() if which == "entry" else ("--trust",))
    else:
        globals()[step]()
    print("DONE")
