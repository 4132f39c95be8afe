"""Claude Code and Codex as installed from npm, led through a script without a network.

`BATON_CODERS` names the folder with their commands (`node_modules/.bin`); `make test-coders` installs both there.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from scripted_coders import ScriptedModel

BIN = os.environ.get("BATON_CODERS")
_CONFIG = """model = "gpt-5.2-codex"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
[features]
{features}
"""


def claude(model: ScriptedModel, home: Path, *runs: list[str]) -> Path:
    """Each run is what stands after `claude -p`. Gives the folder with the sessions."""
    assert BIN is not None
    (home / "work").mkdir(parents=True)
    quiet = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
    }  # fmt: skip
    env = {
        **os.environ, **quiet, "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none",
    }  # fmt: skip
    tools = "Bash,Read,Agent,SendMessage,ToolSearch"
    for run in runs:
        _run([f"{BIN}/claude", "--allowedTools", tools, "-p", *run], env, home / "work")
    return home / "claude" / "projects"


def codex(model: ScriptedModel, home: Path, features: str, *runs: list[str]) -> Path:
    """Each run is what stands after `codex exec`. Gives the folder with `sessions` and `bundles`."""
    assert BIN is not None
    (home / "work").mkdir(parents=True)
    (home / "codex").mkdir()
    (home / "codex" / "config.toml").write_text(_CONFIG.format(url=model.url, features=features))
    env = {
        **os.environ, "HOME": str(home), "CODEX_HOME": str(home / "codex"), "SCRIPTED_KEY": "none",
        "CODEX_ROLLOUT_TRACE_ROOT": str(home / "codex" / "bundles"),
    }  # fmt: skip
    for run in runs:
        _run([f"{BIN}/codex", "exec", "--skip-git-repo-check", *run], env, home / "work")
    return home / "codex"


def _run(command: list[str], env: dict[str, str], folder: Path) -> None:
    done = subprocess.run(
        command, env=env, cwd=folder, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL
    )  # fmt: skip
    assert done.returncode == 0, f"{command[0]} failed: {done.stdout[-800:]} {done.stderr[-800:]}"
