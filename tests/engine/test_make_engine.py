"""Engines from their specifications on the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from baton.engine import make_engine
from baton.engine.openai import OpenAIEngine
from baton.engine.scripted import ScriptedEngine
from baton.engine.table import TableEngine
from baton.errors import BatonError, UsageError


def test_every_kind(tmp_path: Path) -> None:
    TableEngine("mine").save(tmp_path / "t.json")
    made = [
        make_engine("scripted:echo"),
        make_engine("scripted:baton.engine.scripted:first"),
        make_engine("table"),
        make_engine(f"table:{tmp_path / 't.json'}"),
        make_engine("openai:org/model@http://127.0.0.1:1/v1"),
    ]
    assert [type(engine) for engine in made] == [ScriptedEngine] * 2 + [TableEngine] * 2 + [OpenAIEngine]
    assert [engine.name for engine in made][2:] == ["table", "mine", "org/model"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("scriptd:echo", "'scripted'"),
        ("scripted:eco", "'echo'"),
        ("scripted:no.such.module:f", "PYTHONPATH"),
        ("scripted:baton.engine.scripted:frist", "'first'"),
        ("table:nowhere.json", "no table"),
        ("torch:", "torch:DIR"),
        ("torch:nowhere", "no folder"),
        ("torch:nowhere?devise=cpu", "'device'"),
        ("torch:nowhere?template=chat", "plain"),
        ("openai:model", "openai:MODEL@URL"),
        ("openai:m@nowhere", "address"),
        ("", "Expected one of"),
    ],
)
def test_mistakes_say_what_to_type(spec: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_engine(spec)
    assert words in str(caught.value)


def test_the_registry_is_light_and_missing_packages_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    code = (
        "import sys\n"
        "from baton.engine import make_engine\n"
        "make_engine('scripted:echo'); make_engine('table')\n"
        "assert not {'torch', 'httpx', 'transformers'} & set(sys.modules)\n"
        "sys.modules['torch'] = sys.modules['httpx'] = None\n"
        "for spec in ('torch:.', 'openai:m@http://h/v1'):\n"
        "    try: make_engine(spec)\n"
        "    except Exception as error: print(type(error).__name__, error.extra)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["MissingExtraError", "torch", "MissingExtraError", "http"]
    assert issubclass(UsageError, BatonError)
