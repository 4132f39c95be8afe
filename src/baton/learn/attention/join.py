"""Merging two parts of attention, and the places of several stretches."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from baton.learn.rows import Ids

__all__ = ["Places", "join", "places"]

Places = Tensor | slice


def join(out: Tensor, lse: Tensor, where: Places, more: Tensor, more_lse: Tensor) -> None:
    """Add a part at `where`, in the precision of `out` (the engine's own join lowers float64)."""
    before, before_lse = out[where], lse[where]
    share = torch.sigmoid(more_lse - before_lse).unsqueeze(-1).to(out.dtype)
    if isinstance(where, slice):  # both are views
        before.lerp_(more.to(out.dtype), share)
        torch.logaddexp(before_lse, more_lse, out=before_lse)
        return
    out[where] = torch.lerp(before, more.to(out.dtype), share)
    lse[where] = torch.logaddexp(before_lse, more_lse)


def places(start: Ids, stop: Ids, device: torch.device) -> Places:
    """The tokens of several stretches: a slice where they are one, which costs no copy."""
    if len(start) == 1 or (start[1:] == stop[:-1]).all():
        return slice(int(start[0]), int(stop[-1]))
    every = [np.arange(a, b) for a, b in zip(start, stop, strict=True)]
    return torch.from_numpy(np.concatenate(every)).to(device)
