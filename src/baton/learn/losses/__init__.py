"""Losses: one file per kind, and the published ones by name."""

from __future__ import annotations

from baton.learn.losses.contract import Kind, Tokens, tokens_of
from baton.learn.losses.named import LOSSES, named_loss
from baton.learn.losses.total import KINDS, Loss, total

__all__ = ["KINDS", "LOSSES", "Kind", "Loss", "Tokens", "named_loss", "tokens_of", "total"]
