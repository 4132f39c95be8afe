"""Who answers what programs ask: a script, a local model, a server, an API, or any engine of Baton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from baton import registry
from baton.engine import FORMS, make_engine
from baton.errors import UsageError, closest, nearest
from baton.serve.backend import Backend

__all__ = ["BACKENDS", "BACKEND_FORMS", "make_backend"]


def _scripted(rest: str) -> Backend:
    from baton.serve.backends.scripted import scripted_backend

    return scripted_backend(rest)


def _torch(rest: str) -> Backend:
    from baton.serve.backends.torch import torch_backend

    return torch_backend(rest)


def _vllm(rest: str) -> Backend:
    from baton.serve.backends.vllm import vllm_backend

    return vllm_backend(rest)


def _upstream(rest: str) -> Backend:
    from baton.serve.backends.upstream import upstream_backend

    return upstream_backend(rest)


def _engine(rest: str) -> Backend:
    from baton.serve.backends.engine import EngineBackend

    if not rest:
        raise UsageError(
            f"engine needs one of Baton's engines. Type: engine:SPEC ({'; '.join(FORMS.values())})"
        )
    return EngineBackend(make_engine(rest))


BACKENDS: dict[str, Callable[[str], Backend]] = {
    "scripted": _scripted,
    "torch": _torch,
    "vllm": _vllm,
    "upstream": _upstream,
    "engine": _engine,
}
"""Kind -> how to make a backend of what stands after the colon."""

BACKEND_FORMS: dict[str, str] = {
    "scripted": "scripted:echo, scripted:FILE.jsonl or scripted:module:function",
    "torch": "torch:DIR[?tools=hermes&thinking=keep]",
    "vllm": "vllm:MODEL@URL[?tokenizer=DIR]",
    "upstream": "upstream:URL[?dialect=chat&key=VARIABLE]",
    "engine": "engine:SPEC for any of Baton's engines",
}
"""Kind -> how its specification is written."""


def make_backend(spec: str) -> Backend:
    """A backend from its specification: one of `BACKEND_FORMS`, any engine's, or `module:factory[:REST]`.

    A factory is called with what stands after it; what it gives is a backend or an engine.
    """
    kind, _, rest = spec.partition(":")
    if kind in BACKENDS:
        return BACKENDS[kind](rest)
    if registry.knows("engine", kind):
        return _engine(spec)
    attribute, _, after = rest.partition(":")
    known = {*BACKENDS, *registry.names("engine")}
    if registry.is_reference(f"{kind}:{attribute}") and closest(kind, known) is None:
        return _made(registry.imported("backend", f"{kind}:{attribute}"), after)
    forms = "; ".join((*BACKEND_FORMS.values(), "module:factory"))
    raise UsageError(f"there is no backend {kind!r}. {nearest(kind, known)} Forms: {forms}.")


def _made(found: Any, rest: str) -> Backend:
    from baton.serve.backends.engine import EngineBackend

    ready = not isinstance(found, type) and (hasattr(found, "reply") or hasattr(found, "answer"))
    made = found if ready else found(rest)
    if hasattr(made, "reply"):
        backend: Backend = made
        return backend
    if hasattr(made, "answer") and hasattr(made, "encode"):
        return EngineBackend(made)
    raise UsageError(f"{found!r} gives no backend: expected something with `reply`, or an engine.")
