"""What answers a call, token in and token out: scripted, table, torch, vLLM, OpenAI-compatible."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any
from urllib.parse import parse_qsl

from baton import registry
from baton.engine.model_places import check_device_name, check_dtype_name, check_folder
from baton.errors import UsageError, nearest
from baton.team.protocol import Engine

__all__ = ["ENGINES", "FORMS", "is_engine", "make_engine", "read_options"]


def _scripted(rest: str) -> Engine:
    from baton.engine.scripted import ScriptedEngine, find_script

    return ScriptedEngine(rest or "echo", find_script(rest or "echo"))


def _table(rest: str) -> Engine:
    from baton.engine.table import TableEngine

    return TableEngine.load(rest) if rest else TableEngine()


def _torch(rest: str) -> Engine:
    folder, options = read_options(rest, ("device", "dtype", "template"))
    if not folder:
        raise UsageError("torch needs the folder of a model. Type: torch:DIR")
    plain = options.get("template")
    if plain not in (None, "plain"):
        raise UsageError(f"template {plain!r} is not known. Expected plain, or nothing for the model's own.")
    check_device_name(options.get("device"))
    check_dtype_name(options.get("dtype"))
    check_folder(folder)
    from baton.engine.torch import PlainTemplate, TorchEngine

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


def _vllm(rest: str) -> Engine:
    from baton.engine.vllm.spec import OPTIONS, engine_of

    return engine_of(*read_options(rest, OPTIONS))


ENGINES: dict[str, Callable[[str], Engine]] = {
    "scripted": _scripted,
    "table": _table,
    "torch": _torch,
    "openai": _openai,
    "vllm": _vllm,
}
"""Kind -> how to make an engine of what stands after the colon."""

FORMS: dict[str, str] = {
    "scripted": "scripted:NAME or scripted:module:function",
    "table": "table or table:FILE.json",
    "torch": "torch:DIR[?device=cuda&dtype=bfloat16&template=plain]",
    "openai": "openai:MODEL@URL",
    "vllm": "vllm:MODEL@URL[?tokenizer=DIR] or vllm:local?model=DIR[&python=PATH]",
}
"""Kind -> how its specification is written."""


def make_engine(spec: str) -> Engine:
    """An engine from its specification: `torch:DIR`, `openai:MODEL@URL`, or `module:factory[:REST]` of one's own.

    A factory is called with what stands after it, which may be nothing.
    """
    kind, _, rest = spec.partition(":")
    if registry.knows("engine", kind):
        return _made(registry.resolve("engine", kind), rest)
    attribute, _, after = rest.partition(":")
    if registry.is_reference(f"{kind}:{attribute}") and find_spec(kind.partition(".")[0]) is not None:
        return _made(registry.resolve("engine", f"{kind}:{attribute}"), after)
    known = registry.names("engine")
    forms = "; ".join((*FORMS.values(), "module:factory"))
    raise UsageError(f"there is no engine {kind!r}. {nearest(kind, known)} Forms: {forms}.")


def is_engine(spec: str) -> bool:
    """Whether a specification names an engine: a kind that is known, or a factory by module:attr."""
    kind, _, rest = spec.partition(":")
    return registry.knows("engine", kind) or registry.is_reference(f"{kind}:{rest.partition(':')[0]}")


def _made(found: Any, rest: str) -> Engine:
    """A factory is asked for an engine; an engine that is there already is taken as it is."""
    made = found if hasattr(found, "answer") and not isinstance(found, type) else found(rest)
    if not hasattr(made, "answer") or not hasattr(made, "encode"):
        raise UsageError(f"{found!r} gives no engine: expected something with `answer` and `encode`.")
    engine: Engine = made
    return engine


def read_options(rest: str, known: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """`NAME?option=value&...` as the name and the options, which have to be known ones."""
    head, _, query = rest.partition("?")
    options = dict(parse_qsl(query))
    for name in options:
        if name not in known:
            raise UsageError(f"there is no option {name!r}. {nearest(name, known)}")
    return head, options
