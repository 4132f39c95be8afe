"""What answers a call, token in and token out: scripted, table, torch, OpenAI-compatible."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl

from baton.errors import UsageError, nearest
from baton.team.protocol import Engine

__all__ = ["ENGINES", "make_engine"]


def _scripted(rest: str) -> Engine:
    from baton.engine.scripted import ScriptedEngine, find_script

    return ScriptedEngine(rest or "echo", find_script(rest or "echo"))


def _table(rest: str) -> Engine:
    from baton.engine.table import TableEngine

    return TableEngine.load(rest) if rest else TableEngine()


def _torch(rest: str) -> Engine:
    folder, options = _options(rest, ("device", "dtype", "template"))
    if not folder:
        raise UsageError("torch needs the folder of a model. Type: torch:DIR")
    from baton.engine.torch import PlainTemplate, TorchEngine

    plain = options.get("template", None)
    if plain not in (None, "plain"):
        raise UsageError(f"template {plain!r} is not known. Expected plain, or nothing for the model's own.")
    return TorchEngine.open(
        folder,
        device=options.get("device"),
        dtype=options.get("dtype"),
        template=PlainTemplate() if plain else None,
    )


def _openai(rest: str) -> Engine:
    model, at, url = rest.rpartition("@")
    if not at or not model:
        raise UsageError(
            f"'openai:{rest}' lacks a part. Type: openai:MODEL@URL, for example openai:qwen@http://HOST/v1"
        )
    from baton.engine.openai import OpenAIEngine

    return OpenAIEngine(model, url)


ENGINES: dict[str, tuple[Callable[[str], Engine], str]] = {
    "scripted": (_scripted, "scripted:NAME or scripted:module:function"),
    "table": (_table, "table or table:FILE.json"),
    "torch": (_torch, "torch:DIR[?device=cuda&dtype=bfloat16&template=plain]"),
    "openai": (_openai, "openai:MODEL@URL"),
}
"""Kind -> how to make it, and how its specification is written."""


def make_engine(spec: str) -> Engine:
    """An engine from its specification on the command line, such as `torch:DIR` or `openai:MODEL@URL`."""
    kind, _, rest = spec.partition(":")
    if kind not in ENGINES:
        forms = "; ".join(form for _, form in ENGINES.values())
        raise UsageError(f"there is no engine {kind!r}. {nearest(kind, ENGINES)} Forms: {forms}.")
    return ENGINES[kind][0](rest)


def _options(rest: str, known: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    head, _, query = rest.partition("?")
    options = dict(parse_qsl(query))
    for name in options:
        if name not in known:
            raise UsageError(f"there is no option {name!r}. {nearest(name, known)}")
    return head, options
