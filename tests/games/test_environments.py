"""Games as other libraries' environments, held to those libraries' own checks."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test, parallel_seed_test

from baton.errors import UsageError
from baton.games.envs import OrchestratorEnv, TeamEnv, flat
from baton.games.library import GAMES, make_game
from baton.games.library.dec_tiger import TigerModel
from baton.games.library.scouts import ScoutsModel
from baton.installed import install_hint

MODELS = [TigerModel(horizon=5), ScoutsModel()]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_parallel_api(model: TigerModel | ScoutsModel, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        # The test expects every possible agent to have lived; scouts are spawned only if wanted.
        warnings.filterwarnings("ignore", "No agents present but not all possible_agents")
        parallel_api_test(TeamEnv(model), num_cycles=200)
    assert "Passed Parallel API test" in capsys.readouterr().out


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_parallel_seed(model: TigerModel | ScoutsModel) -> None:
    parallel_seed_test(lambda: TeamEnv(model), num_cycles=100)


def test_agents_come_and_go() -> None:
    env = TeamEnv(ScoutsModel(num_scouts=2))
    act = {agent: env.model.role_actions(env.model.role(agent)) for agent in env.possible_agents}
    env.reset(seed=0)
    assert env.agents == ["orchestrator"]
    observed, rewards, *_ = env.step({"orchestrator": act["orchestrator"].index("spawn scout: listen")})
    assert env.agents == ["orchestrator", "scout-1"]
    assert rewards == {"orchestrator": -0.015, "scout-1": 0.0}
    assert observed["scout-1"]["action_mask"].tolist() == [1, 0, 0]  # it may only listen yet
    wait = act["orchestrator"].index("wait")
    observed, *_ = env.step({"orchestrator": wait, "scout-1": 0})
    assert observed["scout-1"]["action_mask"].tolist() == [0, 1, 1]  # now it may only return
    *_, terminated, _, _ = env.step({"orchestrator": wait, "scout-1": 1})
    assert terminated == {"orchestrator": False, "scout-1": True}
    assert env.agents == ["orchestrator"]
    _, rewards, terminated, _, infos = env.step({"orchestrator": 0})
    assert terminated == {"orchestrator": True}
    assert rewards["orchestrator"] in (0.0, 1.0)
    assert not env.agents
    assert not infos["orchestrator"]


def test_illegal_actions_are_said_to_be() -> None:
    env = TeamEnv(ScoutsModel())
    env.reset(seed=0)
    cancel = env.model.role_actions("orchestrator").index("cancel scout-1")
    assert env.step({"orchestrator": cancel})[-1]["orchestrator"] == {"illegal": True}


@pytest.mark.parametrize("name", GAMES)
def test_gymnasium(name: str) -> None:
    check_env(OrchestratorEnv(make_game(name)), skip_render_check=True)


def test_orchestrator_plays() -> None:
    env = OrchestratorEnv(make_game("parallel-pandora"), render_mode="ansi")
    observed, info = env.reset(seed=1)
    rewards = []
    for _ in range(100):
        assert env.render() == info["text"]
        assert observed["action_mask"].sum() == len(info["options"])
        observed, reward, over, _, info = env.step(np.int64(0))
        rewards.append(reward)
        if over:
            break
    assert over
    assert "illegal" not in info
    env.reset(seed=1)
    assert env.step(np.int64(len(env.game.options(env._state))))[-1]["illegal"]


def test_states_stay_apart_as_numbers() -> None:
    assert flat((1, (2, 3))) != flat((1, (2,), 3))
    game = make_game("scouts")
    states = [b.state for b in game.start()]
    for state in states:
        states += [b.state for option in game.options(state) for b in game.step(state, option)]
    assert len({tuple(flat(state)) for state in set(states)}) == len(set(states))


def test_games_too_large_to_walk_need_sizes() -> None:
    game = make_game("parallel-pandora", {"num_boxes": 50, "num_rounds": 20})
    with pytest.raises(UsageError, match="num_actions="):
        OrchestratorEnv(game)
    env = OrchestratorEnv(game, num_actions=120, width=80)
    assert env.reset(seed=0)[0] in env.observation_space


@pytest.mark.parametrize("absent", ["pettingzoo", "gymnasium"])
def test_missing_extra(absent: str) -> None:
    code = (
        f"import sys; sys.modules[{absent!r}] = None\n"
        "from baton.errors import MissingExtraError\n"
        "try:\n    import baton.games.envs\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert install_hint("games") in done.stdout


def test_games_load_no_environment_library() -> None:
    code = (
        "import sys, baton.games.library; assert not {'pettingzoo', 'gymnasium', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
