"""Programs of three frameworks, unmodified, each recorded once and replayed twenty times; a plain one beside them.

`make test-replay` makes an environment for each (as `make test-connect` does) and runs this.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from baton.cli import main
from baton.serve.replay.find import find_session
from baton.serve.replay.running import replay_program

HERE = Path(__file__).parent
ENVIRONMENTS = Path(os.environ.get("BATON_FRAMEWORKS", HERE.parents[1] / ".venv-connect"))
REPLAYS = int(os.environ.get("BATON_REPLAYS", "20"))
pytestmark = pytest.mark.slow


def python_of(framework: str) -> str:
    if framework == "plain":
        return sys.executable
    found = ENVIRONMENTS / framework / "bin" / "python"
    if not found.exists():
        pytest.skip(f"{found} is not there; type: make test-replay")
    return str(found)


@pytest.mark.parametrize(
    ("framework", "program", "answers", "least"),
    [
        ("plain", "plain.py", "plain_answers:answer", 5),
        ("openai_agents", "openai_agents_team.py", "team_answers:answer", 7),
        ("langgraph", "langgraph_team.py", "team_answers:answer", 5),
        ("pydantic_ai", "pydantic_ai_team.py", "team_answers:answer", 6),
        ("plain", "threads_votes.py", "vote_answers:answer", 9),
        ("langgraph", "langgraph_votes.py", "vote_answers:answer", 9),
    ],
)
def test_every_replay_is_identical(
    framework: str, program: str, answers: str, least: int, tmp_path: Path
) -> None:
    command = [python_of(framework), str(HERE / "programs" / program), "how many ships?"]
    served = ["serve", "--engine", f"scripted:{answers}", "--out", str(tmp_path), "--session", "main"]
    assert main([*served, "--", *command]) == 0
    _, session = find_session(tmp_path)
    assert len(session.exchanges) >= least
    found = [replay_program(session, command, timeout_s=120) for _ in range(REPLAYS)]
    different = [one.missed or one.output.said for one in found if not one.identical]
    print(f"{framework}: {REPLAYS - len(different)} of {REPLAYS} identical; {found[0].liberties}")
    assert different == []
