"""Shells complete what is typed: driven in bash itself, by its own completion."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baton.cli import COMMANDS, main
from baton.credit import ESTIMATORS
from baton.registry import names

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script as a person makes it, in a process that must not load torch."""
    code = (
        "import sys; from baton.cli import main; code = main(['completion', 'bash']);"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules; sys.exit(code)"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    place = tmp_path_factory.mktemp("completion") / "baton.bash"
    place.write_text(made.stdout)
    return place


def completed(script: Path, line: str, cwd: Path) -> list[str]:
    """What bash offers after a line: words, or the files it would fall back to."""
    asked = (
        f"source {shlex.quote(str(script))}; COMP_LINE=$1 COMP_POINT=${{#1}}; COMPREPLY=(); _baton;"
        'if [ ${#COMPREPLY[@]} = 0 ]; then compgen -f -- "${1##* }"; else printf "%s\\n" "${COMPREPLY[@]}"; fi'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", asked, "bash", line], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_options_names_and_paths(script: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "rough.jsonl").touch()

    def offered(line: str) -> list[str]:
        return completed(script, line, tmp_path)

    assert offered("baton ") == list(COMMANDS)
    assert offered("baton re") == ["resume", "replay", "receive", "reward", "recipes"]
    assert offered("baton game ") == ["list", "solve", "play", "regret"]
    assert {"--topology", "--policy", "--rollouts", "--out"} <= set(offered("baton run --"))
    assert offered("baton run --to") == ["--topology", "--tool"]
    assert offered("baton run --topology hier") == ["hierarchical"]
    assert offered("baton run --topology=sw") == ["swarm"]
    assert offered("baton run shard") == ["shard-sum"]
    assert offered("baton run game:spawn-b") == ["spawn-bandit"]  # bash breaks words at colons
    assert offered("baton run --seed 3 --topology debate shard") == ["shard-sum"]
    assert set(offered("baton credit --estimator ")) == {*ESTIMATORS}
    # Other tests may have registered some of their own.
    assert {"tokens"} < set(offered("baton measure --metric ")) <= {*names("metric")}
    assert set(offered("baton train ")) == {*names("recipe")}
    assert offered("baton recipes --decision st") == ["stop"]
    assert "parl" in offered("baton reward runs --recipe ")
    assert offered("baton validate --level ") == ["shape", "structure", "meaning"]
    assert offered("baton completion ") == ["bash", "zsh", "fish"]
    assert sorted(offered("baton show r")) == ["rough.jsonl", "runs"]
    assert offered("baton show --trace x rou") == ["rough.jsonl"]
    assert offered("baton stats rough.jsonl ru") == ["runs"]
    assert offered("baton run shard-sum --out ru") == ["runs"]
    assert offered("baton nothing-such --w") == []


def test_every_command_is_in_it(script: Path, tmp_path: Path) -> None:
    text = script.read_text()
    for name in COMMANDS:
        assert f"'baton {name}:')" in text
    assert "--trust-policies" not in text  # what is not in the help is not offered


def test_a_tab_in_bash_itself(script: Path, tmp_path: Path) -> None:
    child, screen = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execvpe(
            "bash", ["bash", "--norc", "--noprofile", "-i"], os.environ | {"PS1": "> ", "TERM": "dumb"}
        )
    os.write(screen, f'baton() {{ echo got: "$@"; }}; source {shlex.quote(str(script))}\n'.encode())
    os.write(screen, b"baton cred\t--estim\tgroup-\x08 \n")
    seen, until = b"", time.monotonic() + 20
    while b"got: credit" not in seen and time.monotonic() < until:
        if select.select([screen], [], [], 0.2)[0]:
            seen += os.read(screen, 65536)
    os.write(screen, b"exit\n")
    os.close(screen)
    os.waitpid(child, 0)
    assert re.search(rb"got: credit --estimator group", seen), seen


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_script(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert {"shard-sum", "hierarchical", "regret"} <= set(re.findall(r"[\w-]+", text))
    if shell == "fish":
        assert "complete -c baton -f -n '__baton_ends 1' -a 'run' -d 'let a team work" in text
        assert all(line.startswith("complete -c baton") for line in text.splitlines()[10:])
    if (found := shutil.which(shell)) is not None:
        place = tmp_path / f"baton.{shell}"
        place.write_text(text)
        subprocess.run([found, "-n", str(place)], check=True)


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
def test_what_fish_offers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A folder that is called like a command is none."""
    assert main(["completion", "fish"]) == 0
    (tmp_path / "baton.fish").write_text(capsys.readouterr().out)
    (tmp_path / "run").mkdir()

    def offered(line: str) -> set[str]:
        asked = f"source baton.fish; complete -C {shlex.quote(line)}"
        done = subprocess.run(
            ["fish", "--no-config", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return {each.partition("\t")[0] for each in done.stdout.splitlines()}

    assert set(COMMANDS) == offered("baton ")
    assert offered("baton run shard-sum --topology=sw") == {"--topology=swarm"}
    assert offered("baton game ") == {"list", "solve", "play", "regret"}
    assert "parallel-pandora" in offered("baton game regret par")
    assert "--topology" not in offered("baton show run --")
    assert "--prompts" in offered("baton show run --")
