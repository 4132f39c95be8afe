"""A local Hugging Face causal LM: continuous batching, a forest of computed prefixes, keyed sampling."""

from __future__ import annotations

from baton.errors import MissingExtraError

try:
    import torch
    import transformers
except ImportError as error:
    raise MissingExtraError("the torch engine", "torch") from error

from baton.engine.template import PlainTemplate
from baton.engine.torch.engine import TorchEngine

__all__ = ["PlainTemplate", "TorchEngine"]

del torch, transformers
