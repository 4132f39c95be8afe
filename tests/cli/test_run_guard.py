"""`baton run --guard`, and the page that says what a guard does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from baton.cli import main
from baton.trace.formats import read_all

PAGE = Path(__file__).parents[2] / "docs" / "safety.md"


def test_a_trace_keeps_its_guard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "g.toml"
    policy.write_text('unnamed = "clean"\nclean_verbs = ["cancel"]\n')
    out = str(tmp_path / "out")
    assert main(["run", "shard-sum", "--guard", str(policy), "--tool", "plan", "--out", out]) == 0
    (trace,) = read_all(out)
    told = trace.header.meta["run"]["guard"]
    assert told["policy"] == {"unnamed": "clean", "clean_verbs": ["cancel"]}
    policy.unlink()
    assert main(["replay", out]) == 0
    assert "guard" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tools = 3", "tools"),
        ("[tools.pay]\n", "'pay'"),
        ("[tools.plan]\ndecided = 3", "decided_by"),
        ("[tools", "TOML"),
        ("[tools.plan]\nsanitise = 'os:system'", "--trust"),
        ("\udcff", "TOML"),
    ],
)
def test_a_malformed_guard_is_one_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "g.toml"
    policy.write_bytes(text.encode(errors="surrogateescape"))
    words = ["run", "shard-sum", "--tool", "plan", "--out", str(tmp_path / "out")]
    assert main([*words, "--guard", str(policy)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert main([*words, "--guard", str(tmp_path / "none.toml")]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_the_program_of_the_page_prints_what_it_says() -> None:
    text = PAGE.read_text("utf-8")
    part = text[text.index("## A guard") : text.index("## How labels flow")]
    (program,) = re.findall(r"^```python\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"# {done.stdout.strip()}" in program


def test_the_pages_policy_is_one(tmp_path: Path) -> None:
    from baton.team.guard.policy import guard_of

    (policy,) = re.findall(r"^```toml\n(# mail.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    path = tmp_path / "mail.toml"
    path.write_text(policy)
    assert set(guard_of(path).tools) == {"read_inbox", "send_money", "delete_mail"}


def test_every_link_of_the_page_leads_somewhere() -> None:
    for link in re.findall(r"\]\((?!http)([^)#]+)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / link).exists(), link
