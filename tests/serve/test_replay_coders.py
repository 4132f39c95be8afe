"""Claude Code and Codex from npm, recorded once and replayed twenty times: `make test-replay`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from coders import BIN

from baton.cli import main
from baton.serve.replay.find import find_session
from baton.serve.replay.running import replay_program

REPLAYS = int(os.environ.get("BATON_REPLAYS", "20"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BIN is None, reason="BATON_CODERS names no folder; type: make test-replay"),
]
CLAUDE = """mkdir -p "$1/work"; cd "$1/work"
export HOME="$1" CLAUDE_CONFIG_DIR="$1/claude" CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_TELEMETRY=1 \\
  DISABLE_AUTOUPDATER=1
exec "$BATON_CODERS/claude" --allowedTools "Bash,Read,Agent" -p "begin PLAY:main"
"""
CODEX = """mkdir -p "$1/work" "$1/codex"; cd "$1/work"
cat > "$1/codex/config.toml" <<END
model = "gpt-5.2-codex"
model_provider = "served"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.served]
name = "served"
base_url = "$OPENAI_BASE_URL"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
[features]
multi_agent = true
END
export HOME="$1" CODEX_HOME="$1/codex"
exec "$BATON_CODERS/codex" exec --skip-git-repo-check "begin PLAY:main"
"""


@pytest.mark.parametrize(
    ("coder", "script", "least"), [("claude", CLAUDE, 10), ("claude_crowd", CLAUDE, 8), ("codex", CODEX, 8)]
)
def test_every_replay_is_identical(coder: str, script: str, least: int, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(script)
    command = ["sh", str(path), str(tmp_path / "home")]
    served = ["serve", "--engine", f"scripted:coder_answers:{coder}", "--out", str(tmp_path / "out")]
    assert main([*served, "--session", "main", "--", *command]) == 0
    _, session = find_session(tmp_path / "out")
    assert len(session.exchanges) >= least
    found = [replay_program(session, command, timeout_s=120) for _ in range(REPLAYS)]
    different = [one.missed or one.output.said for one in found if not one.identical]
    print(f"{coder}: {REPLAYS - len(different)} of {REPLAYS} identical; {found[0].liberties}")
    assert different == []
