"""AdamW as policies are stepped by it: by one kernel, and in float32 where weights are in half precision.

A step of a small learning rate is less than half the distance between two numbers of bfloat16, so it rounds to nothing.
Where a recipe asks for it (`policies.NAME.masters`), such weights are stepped in float32 copies, whose nearest numbers
they are. The model's parameters stay where they are in memory, so whoever samples with them sees each step. Copies are
kept with the optimiser's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from baton.errors import UsageError

HALF = (torch.bfloat16, torch.float16)


def _here(tensors: Iterable[Tensor]) -> list[Tensor]:
    """What this process holds of each: all of it, or its share."""
    return [each.to_local() if hasattr(each, "to_local") else each for each in tensors]


class AdamW(torch.optim.AdamW):
    """torch's, by one kernel; takes up states of either kind, from any device."""

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        given = list(parameters)
        # A quarter of the plain one's time on a CPU too.
        fused = True if {each.device.type for each in given} in ({"cuda"}, {"cpu"}) else None
        super().__init__(given, lr=lr, weight_decay=0.0, betas=(0.9, 0.95), fused=fused)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """A state as `state_dict` gave it. How steps are computed is this optimiser's own affair."""
        own = [group.get("fused") for group in self.param_groups]
        groups = [
            {**group, "fused": fused} for group, fused in zip(state_dict["param_groups"], own, strict=True)
        ]
        super().load_state_dict({**state_dict, "param_groups": groups})


class MasterAdamW(AdamW):
    """Steps float32 copies of weights in half precision, and gives the weights the nearest numbers."""

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        self._own = list(parameters)
        self._masters = [
            each.detach().float().clone() if each.dtype in HALF else each.detach() for each in self._own
        ]
        super().__init__(self._masters, lr)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Of the model's own weights: that is where gradients arrive."""
        for each in (*self._own, *self._masters):
            if set_to_none or each.grad is None:
                each.grad = None
            else:
                each.grad.zero_()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """One step, by the gradients of the model's own weights."""
        for own, master in zip(self._own, self._masters, strict=True):
            master.grad = None if own.grad is None else own.grad.to(master.dtype)
        found = super().step(closure)
        for master in self._masters:
            master.grad = None
        torch._foreach_copy_(_here(self._own), _here(self._masters))
        return found

    @torch.no_grad()
    def refresh(self) -> None:
        """The weights were set from elsewhere: copies begin from them again."""
        torch._foreach_copy_(_here(self._masters), _here(self._own))

    def state_dict(self) -> dict[str, Any]:
        """The optimiser's state, and the copies."""
        return {**super().state_dict(), "masters": [each.detach().clone() for each in self._masters]}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of a run without copies they begin from the weights."""
        rest = {key: value for key, value in state_dict.items() if key != "masters"}
        super().load_state_dict(rest)
        if "masters" not in state_dict:
            self.refresh()
            return
        for master, kept in zip(self._masters, state_dict["masters"], strict=True):
            master.copy_(kept)


def make_optimiser(policy: str, parameters: Iterable[Tensor], lr: float, *, masters: bool) -> AdamW:
    """The optimiser of a policy's weights; refuses copies where there is nothing to copy."""
    given = list(parameters)
    if not masters:
        return AdamW(given, lr)
    if not any(each.dtype in HALF for each in given):
        kinds = ", ".join(sorted({str(each.dtype).removeprefix("torch.") for each in given}))
        raise UsageError(
            f"policies.{policy}.masters keeps float32 copies of weights in half precision, and these are {kinds}. "
            f"Leave it out, or load the model in half precision: --set policies.{policy}.dtype=bfloat16"
        )
    return MasterAdamW(given, lr)
