"""peft's linear layer with an adapter, in as few operations as there are: on a GPU each costs its launch.

peft's own forward scales and adds in steps of their own, and over half precision casts its input up and its result
down, in each of a layer's seven projections. Weights, names and files are peft's.
"""

from __future__ import annotations

from typing import Any

from peft.tuners.lora import Linear
from torch import Tensor
from torch.nn.functional import linear

__all__ = ["LoraLinear"]


class LoraLinear(Linear):
    """One active adapter or none, without dropout; nothing is merged."""

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        out: Tensor = self.base_layer(rows)
        if not self._disable_adapters:
            (name,) = self.active_adapters
            down: Any = self.lora_A[name].weight
            up: Any = self.lora_B[name].weight
            # In place: what a product gives is not kept for its gradient.
            out.addmm_(linear(rows, down.to(x.dtype)), up.to(x.dtype).t(), alpha=self.scaling[name])
        return out.view(*x.shape[:-1], out.shape[-1])
