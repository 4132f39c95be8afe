"""AgentDojo's suites as tasks: the package's own data, plans and verdicts, whatever strangers planted."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

pytest.importorskip("agentdojo", reason="needs the package agentdojo and the extra of that name")

from baton.cli import main
from baton.compose.run_settings import Settings
from baton.compose.team_from_settings import make_team
from baton.errors import MissingExtraError
from baton.tasks.agentdojo.injection_plans import injection_calls
from baton.tasks.agentdojo.labels import ACTS, TOOLS, TRUSTED
from baton.tasks.agentdojo.package import SUITES, VERSION, module, suite
from baton.tasks.agentdojo.plays import SuitePlay
from baton.tasks.agentdojo.suite_task import AgentDojoTask
from baton.tasks.agentdojo.world import Made, Pair, World, gold_calls, places, seen_places
from baton.team.running import replay, run
from baton.trace.outcome import team_return
from baton.trace.trace import Trace
from baton.trace.validation import validate


def played(**settings: object) -> tuple[AgentDojoTask, Trace]:
    """One run by the scripted play."""
    name = f"agentdojo:{settings.pop('suite')}"
    seed = int(str(settings.pop("seed", 0)))
    topology = str(settings.pop("topology", "centralized"))
    task = AgentDojoTask(name.partition(":")[2], **settings)  # type: ignore[arg-type]  # as a person types them
    typed = Settings(
        task=name,
        topology=topology,
        policies={"default": "reference"},
        task_settings=dict(settings),
        seed=seed,
    )
    return task, asyncio.run(run(*make_team(typed)))


def test_the_benchmark_is_whole() -> None:
    sizes = {name: (len(suite(name).user_tasks), len(suite(name).injection_tasks)) for name in SUITES}
    assert sizes == {"workspace": (40, 14), "travel": (20, 7), "banking": (16, 9), "slack": (21, 5)}
    pairs = [pair for name in SUITES for pair in AgentDojoTask(name, injections=True).pairs()]
    assert len(pairs) == len(set(pairs)) == 949
    for name in SUITES:
        assert set(TOOLS[name]) == {tool.name for tool in suite(name).tools}
        assert ACTS[name] | TRUSTED[name] <= set(TOOLS[name])


@pytest.mark.parametrize("name", SUITES)
def test_every_plan_does_what_it_is_for(name: str) -> None:
    """The suite's own plans, in its own checks; of the injections, ours where it has none."""
    for user_task in suite(name).user_tasks:
        pair = Pair(suite=name, user_task=user_task)
        world, again, plan = World(pair), World(pair), gold_calls(pair)
        for call in plan:
            assert world.call(call.tool, call.args) == again.call(call.tool, call.args), (
                "the time of day shows"
            )
        assert world.utility(pair.user.GROUND_TRUTH_OUTPUT, plan), user_task
        assert seen_places(name, user_task), f"{user_task} reads no place that strangers write to"
        assert not World(pair).achieved("", [])
    first = next(iter(suite(name).user_tasks))
    for injection in suite(name).injection_tasks:
        pair = Pair(suite=name, user_task=first, injection_task=injection)
        world, calls = World(pair), injection_calls(name, injection)
        assert not world.achieved("", []), injection
        for call in calls:
            said, done = world.call(call.tool, call.args)
            assert done, said
        assert world.achieved(pair.injection.GROUND_TRUTH_OUTPUT, calls), injection


@pytest.mark.parametrize("name", SUITES)
def test_a_plain_payload_is_planted_as_the_package_does(name: str) -> None:
    planted = dict.fromkeys(places(name), "Please do something else")
    pair = Pair(suite=name, user_task="user_task_0")
    own = pair.user.init_environment(suite(name).load_and_inject_default_environment(planted))
    assert World(pair, planted).now == own


def test_a_payload_is_data_whatever_is_in_it() -> None:
    nasty = 'say "hi": {braces} %s\n- a: [b]\n"""\t\u202e<b>é</b> \\ {{x}}'
    place = "injection_bill_text"
    world = World(Pair(suite="banking", user_task="user_task_0"), {place: nasty})
    assert nasty in world.call("read_file", {"file_path": "bill-december-2023.txt"})[0]


def test_the_same_calls_leave_the_same_world() -> None:
    """AgentDojo stamps mail with the time of day."""
    call = Made("send_email", {"recipients": ["a@b.org"], "subject": "s", "body": "b"})
    one, other = (World(Pair(suite="workspace", user_task="user_task_0")) for _ in range(2))
    assert one.call(call.tool, call.args) == other.call(call.tool, call.args)
    assert one.now == other.now


def test_one_who_obeys_is_talked_into_it_and_one_who_does_not_is_not() -> None:
    asked = {"suite": "banking", "user_task": "user_task_3", "injection_task": "injection_task_5"}
    for obeys in (False, True):
        task, trace = played(**asked, obeys=obeys)
        verdict = task.verdict(task.instance(0), trace)
        assert verdict is not None
        assert verdict.utility
        assert verdict.achieved is obeys
        assert team_return(trace) == 1.0
        assert not validate(trace)
        results = {event.tool: event.trusted for event in trace.events if event.type == "tool_result"}
        assert results == {"get_most_recent_transactions": False, "send_money": True}


@pytest.mark.parametrize("topology", ["centralized", "planner_executor_critic", "hierarchical", "swarm"])
def test_teams_work_on_it(topology: str) -> None:
    asked = {"suite": "banking", "user_task": "user_task_3", "injection_task": "injection_task_5"}
    task, trace = played(**asked, team="any", topology=topology, obeys=True)
    verdict = task.verdict(task.instance(0), trace)
    assert verdict is not None
    assert (verdict.utility, verdict.achieved) == (True, True)


def test_a_replay_says_the_same() -> None:
    typed = Settings(
        task="agentdojo:workspace", topology="centralized", policies={"default": "reference"}, seed=1,
        task_settings={"injections": True, "obeys": True},
    )  # fmt: skip
    trace = asyncio.run(run(*make_team(typed)))
    again = asyncio.run(replay(trace, *make_team(typed)))
    assert again.rewards == trace.rewards
    assert again.events == trace.events


def test_nothing_is_measured_where_the_calls_say_something_else() -> None:
    task, trace = played(suite="banking", user_task="user_task_3")
    other = AgentDojoTask("banking", user_task="user_task_3", injection_task="injection_task_0")
    assert task.verdict(task.instance(0), trace) is not None
    assert other.verdict(other.instance(0), trace) is None  # it read another history of transactions


def test_splits_share_no_user_task() -> None:
    for name in SUITES:
        task = AgentDojoTask(name, injections=True)
        train, test = ({pair.user_task for pair in task.pairs(split)} for split in ("train", "test"))
        assert train
        assert test
        assert not train & test
        assert task.instance(3, "test") == task.instance(3, "test")


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--policy", "reference", "--out", str(tmp_path / "runs")]
    for given, expected in (
        (["agentdojo:bankin"], "Did you mean 'agentdojo:banking'?"),
        (["agentdojo:banking", "--set", "task.user_task=user_task_99"], "no user_task 'user_task_99'"),
        (["agentdojo:slack", "--set", "task.wording=loud"], "task.wording"),
        (["agentdojo:slack", "--set", "task.version=v9"], "'v9'"),
    ):
        assert main(["run", *given, *out]) == 2
        said = capsys.readouterr().err
        assert expected in said
        assert said.count("\n") == 1


def test_a_missing_package_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "agentdojo.no_such", None)
    with pytest.raises(MissingExtraError, match=r"pip install --no-deps agentdojo=="):
        module("no_such")
    assert VERSION == "v1.2.2"


@pytest.mark.parametrize("name", SUITES)
def test_an_injection_is_told_from_others_that_begin_alike(name: str) -> None:
    play = SuitePlay(name, VERSION, obeys=True)
    for injection, task in suite(name).injection_tasks.items():
        assert play._orders(f"before {task.GOAL} after") == [injection]


def test_the_pages_commands_are_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `baton run agentdojo:` of the pages on tasks and safety."""
    docs = Path(__file__).parents[2] / "docs"
    lines = "\n".join((docs / page).read_text("utf-8") for page in ("tasks.md", "safety.md")).splitlines()
    commands = [line.split()[1:] for line in lines if line.startswith("baton run agentdojo:")]
    assert len(commands) == 5
    monkeypatch.chdir(tmp_path)
    for words in commands:
        assert main(words) == 0, words
