from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from baton.cli import COMMANDS, main
from baton.cli import corpus as command
from baton.corpus import load

KEYS = [paper.key for paper in load().papers]


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["corpus", *args]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    try:
        code = main(["corpus", *args])
    except SystemExit as stop:  # from argparse
        code = stop.code
    assert code == 2
    return capsys.readouterr().err


def test_stats(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "stats")
    assert out.startswith("84 retained, 32 excluded\n")
    assert "abstract 16  full_text 9  artifact 6  duplicate 1" in out
    assert "reward x credit" in out
    found = json.loads(printed(capsys, "stats", "--json"))
    assert found["counts"]["credit"]["agent"] == 23
    assert found["form_by_credit"]["centralized"]["agent"] == 14
    ours = json.loads(printed(capsys, "stats", "--ours", "--json"))
    assert ours["counts"]["rl"]["partial"] == found["counts"]["rl"]["partial"] + 1


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "list").splitlines()
    assert [line.split()[0] for line in out[:-1]] == KEYS
    assert out[-1] == "84 records"
    assert all(len(line) <= 110 for line in out)
    found = json.loads(
        printed(capsys, "list", "--credit", "message", "--credit", "turn", "--year", "2026", "--json")
    )
    assert [row["key"] for row in found] == ["c3", "debate-as-reward", "marshal2026"]
    assert "1 record" in printed(capsys, "list", "--excluded", "--stage", "duplicate")
    assert printed(capsys, "list", "--beyond").startswith("at-grpo")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("list", "--reward", "hybird"), "there is no reward 'hybird'. Did you mean 'hybrid'?"),
        (("list", "--rewrad", "hybrid"), "Did you mean '--reward'?"),
        (("list", "--stage", "abstract"), "--stage is a field of excluded records. Type: --excluded"),
        (("list", "--excluded", "--rl", "yes"), "--rl is a field of retained records. Leave out --excluded."),
        (("show", "dr-mass"), "Did you mean 'dr-mas'?"),
        (("claims", "stopp"), "there is no claim 'stopp'. Did you mean 'stop'?"),
        (("cards", "gaia"), "gaia2023 has no card"),
        (("cards", "E003"), "'E003' was left out of the pool"),
        (("bib", "dr-mass"), "Did you mean 'dr-mas'?"),
    ],
)  # fmt: skip
def test_mistakes_say_what_to_type(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str
) -> None:
    assert said in refused(capsys, *args)


def test_from_a_papers_name_to_its_recipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "installed_recipes", lambda: frozenset({"dr-mas", "parl"}))
    for args in (
        ("dr-mas",),
        ("Dr.", "MAS"),
        ("2602.08847",),
        ("Stable Reinforcement Learning for Multi-Agent",),
    ):
        assert printed(capsys, "show", *args).splitlines()[-1] == "  run it        baton train dr-mas"
    assert printed(capsys, "show", "Kimi K2.5").splitlines()[-1].endswith("baton train parl")


def test_a_recipe_that_is_not_here_is_said_not_to_be(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "installed_recipes", lambda: frozenset({"magrpo", "mine"}))
    assert "recipe dr-mas is not installed here" in printed(capsys, "show", "dr-mas")
    out = printed(capsys, "coverage")
    assert out.startswith("recipe: 1 method, runs here\n  magrpo ")
    assert "recipe not installed: 39 methods" in out
    assert "no formula published: 16 methods" in out
    assert "Baton's own mine" in " ".join(out.split())
    found = json.loads(printed(capsys, "coverage", "--json"))
    assert found["recipes_without_a_paper"] == ["mine"]
    assert {row["status"] for row in found["methods"]} == {
        "recipe", "recipe not installed", "no formula published", "no recipe",
    }  # fmt: skip


def test_show_says_where_baton_reads_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "show", "malt")
    assert "survey says   rl: yes" in out
    assert "Baton says    partial." in out
    assert "no formula published" in printed(capsys, "show", "paramanager")
    assert "not in the survey's pool" in printed(capsys, "show", "ccpo")
    assert "left out" in printed(capsys, "show", "MetaGPT")
    assert json.loads(printed(capsys, "show", "malt", "--json"))["key"] == "malt"


@pytest.mark.parametrize("key", [*KEYS, "at-grpo", "ccpo", "dr-grpo", "E001"])
def test_every_record_can_be_shown(capsys: pytest.CaptureFixture[str], key: str) -> None:
    assert printed(capsys, "show", key).startswith(f"{key}  ")


def test_claims(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "claims")
    assert "HOLDS  message-credit" in out
    assert "DOES NOT HOLD  stop" in out
    assert "NOT IN THE DATA  hybrid-weights" in out
    assert "  row           c3  Contextual" in out
    found = json.loads(printed(capsys, "claims", "stop", "--json"))
    assert list(found) == ["stop"]
    assert found["stop"]["rows"] == ["puppeteer"]


def test_cards_are_uniform(capsys: pytest.CaptureFixture[str]) -> None:
    cards = printed(capsys, "cards").split("\n\n")
    assert len(cards) == 13
    assert cards[0].startswith("puppeteer  ")
    for card in cards:
        names = [line[2:16].strip() for line in card.splitlines()[1:] if line[2:16].strip()]
        assert names[:7] == ["who, when", "claim", "reward", "credit", "form", "result", "limitation"]
        assert {"learns", "reward rule", "credit rule", "group", "loss", "evidence"} <= set(names)
    assert printed(capsys, "cards", "parl").startswith("kimi-k2-5  ")
    assert len(json.loads(printed(capsys, "cards", "--all", "--json"))) > 30


def test_tables_of_the_survey(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "m-grpo" in printed(capsys, "list", "--decisions", "aggregate")
    assert "category x verified" in printed(capsys, "stats")
    assert "The survey maps 39 records; 45" in printed(capsys, "map")
    assert "2025 undated" in printed(capsys, "timeline")
    assert "anthropic-trustworthy" in printed(capsys, "evidence", "docs")
    assert printed(capsys, "ledger").count("read in") == 6
    assert printed(capsys, "borderline").count("\n  because") == 11
    assert "(broad)" in printed(capsys, "claims", "message-credit")
    assert "Did you mean 'docs'?" in refused(capsys, "evidence", "doc")
    for part in ("map", "timeline", "evidence", "ledger", "borderline", "envelopes", "cards"):
        assert json.loads(printed(capsys, part, "--json"))


def test_where_a_trace_stands_among_the_envelopes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = str(tmp_path / "sum")
    assert main(["run", "shard-sum", "--set", "task.num_shards=17", "--out", out]) == 0
    capsys.readouterr()
    said = printed(capsys, "envelopes", out)
    assert "  sub-agents    17: fits kimi-k2.5" in said
    assert "  steps         53: fits academic" in said  # 17 spawns, reads and returns; a wait and a stop
    found = json.loads(printed(capsys, "envelopes", out, "--json"))["traces"][0]["place"]
    assert (found["sub_agents"], found["by_team"]) == (17, "kimi-k2.5")
    for seed in range(1, 6):
        main(["run", "shard-sum", "--seed", str(seed), "--out", out])
    capsys.readouterr()
    said = printed(capsys, "envelopes", out)
    assert "6 traces" in said
    assert "the largest team, shard-sum-centralized-0" in said


def test_a_training_runs_folder_stands_for_its_traces(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["run", "shard-sum", "--out", str(tmp_path / "traces")]) == 0
    (tmp_path / "run.json").write_text("{}")
    capsys.readouterr()
    assert "sub-agents    4: fits c-compiler" in printed(capsys, "envelopes", str(tmp_path))


def test_bib(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert printed(capsys, "bib").count("\n@") == 83
    assert printed(capsys, "bib", "dr-mas", "2603.21563").count("archiveprefix") == 2
    out = tmp_path / "papers.bib"
    assert printed(capsys, "bib", "--out", str(out)) == f"84 entries in {out}\n"
    assert out.read_text().startswith("@misc{magrpo,")
    assert "is there already" in refused(capsys, "bib", "--out", str(out))


def test_it_is_a_command_that_loads_nothing_heavy() -> None:
    assert {"corpus", "advise"} <= set(COMMANDS)
    code = (
        "import sys\nfrom baton.cli import main\nassert main(['corpus', 'show', 'dr-mas']) == 0\n"
        "assert not {'torch', 'pyarrow', 'duckdb'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
