"""Several LoRA adapters over one base model in memory, one of them active at a time (arXiv 2106.09685).

Adapters are peft's layers, put into the model in place: the model stays what it was, and the sampler and the
trainer run it as before. Which adapter is active is a property of the model, so whoever computes holds the
model's lock meanwhile: the trainer through `use`, forward and backward; a sampler through `Adapted`, one pass
at a time. An engine keeps computed prefixes, which belong to one adapter: give each adapter its own engine
over its own `Adapted`, and change its weights inside that engine's `updating`.

Invariants: the base model never learns; an adapter that is not active gets no gradient; a new adapter changes
nothing until it is trained. Never enter an engine's `updating` inside `use`: each would wait for the other.
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import Linear, LoraLayer
from torch import Tensor, nn
from torch.nn.functional import linear

from baton.engine.torch.engine import turn
from baton.errors import UsageError, nearest


class LoraLinear(Linear):
    """peft's linear layer with one active adapter or none, without dropout; nothing is merged.

    It takes as few operations as there are: on a GPU each costs its launch. peft's own forward scales and adds in steps
    of their own, and over half precision casts its input up and its result down, in each of a layer's seven
    projections. Weights, names and files are peft's.
    """

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

    def factors(self) -> tuple[Tensor, Tensor, float] | None:
        """What the active adapter adds: the small product's weights, the large one's, and by how much."""
        if self._disable_adapters:
            return None
        (name,) = self.active_adapters
        down: Any = self.lora_A[name].weight
        up: Any = self.lora_B[name].weight
        return down, up, self.scaling[name]


TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Every projection of a Llama-like layer."""


class _Adapters:
    """What there is to know of a model with adapters."""

    def __init__(self, layers: dict[str, Any], names: tuple[str, ...]) -> None:
        self.layers = layers
        self.names = names
        self.active: str | None = None
        self.lock = threading.RLock()

    def switch(self, name: str | None) -> None:
        if name == self.active:
            return
        for layer in self.layers.values():
            # peft's own setters also turn gradients on and off, which optimisers and other threads would see.
            layer._disable_adapters = name is None
            layer._active_adapter = [name or self.names[0]]
        self.active = name


_known: WeakKeyDictionary[nn.Module, _Adapters] = WeakKeyDictionary()


def attach(
    model: Any,
    names: Sequence[str],
    rank: int = 16,
    alpha: int = 32,
    targets: Sequence[str] = TARGETS,
    *,
    seed: int = 0,
) -> Any:
    """Freeze the model and add an adapter for each name; no adapter is active afterwards.

    An adapter adds alpha / rank * B A to each linear layer whose name ends in one of `targets`; B begins as
    zero. Over a base in half precision adapters are float32, because small steps vanish in fewer bits.
    """
    if model in _known:
        raise UsageError(
            f"the model has adapters already: {', '.join(names_of(model))}. Attach all of them at once."
        )
    if not names or len(set(names)) != len(names) or any(not name or "." in name for name in names):
        raise UsageError(f"adapters need different names without dots; given: {', '.join(names) or 'none'}.")
    if rank < 1:
        raise UsageError(f"rank is {rank}; expected at least 1.")
    linear = {
        name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, nn.Linear)
    }
    for target in targets:
        if target not in linear:
            raise UsageError(f"the model has no linear layer {target!r}. {nearest(target, linear)}")
    layers = _inject(model, names, rank, alpha, targets, seed)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".lora_A." in name or ".lora_B." in name)
    known = _known[model] = _Adapters(layers, tuple(names))
    known.active = names[0]
    known.switch(None)
    return model


def _inject(
    model: Any, names: Sequence[str], rank: int, alpha: int, targets: Sequence[str], seed: int
) -> dict[str, Any]:
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(targets), lora_dropout=0.0, bias="none")
    config._register_custom_module({nn.Linear: LoraLinear})
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Already found a `peft_config`")  # several are what is wanted
        torch.manual_seed(seed)
        for name in names:
            inject_adapter_in_model(config, model, adapter_name=name)
    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    for layer in layers.values():
        for part in (layer.lora_A, layer.lora_B):
            if layer.get_base_layer().weight.dtype in (torch.bfloat16, torch.float16):
                part.float()
    return layers


def copied(model: Any) -> Any:
    """A copy that has the adapters as they are now, over the same base in memory."""
    source = _find(model, None)
    shared = {id(each): each for each in model.parameters() if not each.requires_grad}
    made = copy.deepcopy(model, shared)
    return known_again(made, source.names)


def known_again(model: Any, names: Sequence[str]) -> Any:
    """A model that was copied or sent with these adapters; none is active afterwards."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    known = _known[model] = _Adapters(layers, tuple(names))
    known.active = names[0]
    known.switch(None)
    return model


def names_of(model: Any) -> tuple[str, ...]:
    """The adapters of a model; none where nothing was attached."""
    known = _known.get(model)
    return known.names if known else ()


@contextmanager
def use(model: Any, name: str | None) -> Iterator[None]:
    """The body computes with this adapter (None: the base alone), and no other thread computes meanwhile."""
    known = _find(model, name)
    with turn(model.device), known.lock:
        before = known.active
        known.switch(name)
        try:
            yield
        finally:
            known.switch(before)


def parameters_of(model: Any, name: str) -> list[nn.Parameter]:
    """What an optimiser of this adapter steps."""
    return list(named_parameters_of(model, name).values())


def adapter_state_dict(model: Any, name: str) -> dict[str, Tensor]:
    """The adapter's weights, copied to the CPU, under names that do not depend on its own."""
    parts = named_parameters_of(model, name)
    return {key: part.detach().to("cpu", copy=True).contiguous() for key, part in parts.items()}


def load_adapter_state_dict(model: Any, name: str, state: Mapping[str, Tensor]) -> None:
    """Set the adapter's weights, in place, so that optimisers and recorded graphs keep theirs."""
    parts = named_parameters_of(model, name)
    wrong = sorted(parts.keys() ^ state.keys())
    if wrong:
        raise UsageError(
            f"these weights are of another adapter: {len(state)} tensors where {name!r} has {len(parts)}; "
            f"{wrong[0]} is in one of them only. Attach with the rank and targets it was trained with."
        )
    for key, part in parts.items():
        if state[key].shape != part.shape:
            raise UsageError(
                f"{key} is {tuple(state[key].shape)}; adapter {name!r} has {tuple(part.shape)}. "
                "Attach with the rank it was trained with."
            )
    with torch.no_grad():
        for key, part in parts.items():
            part.copy_(state[key])


class Adapted:
    """A model as one of its adapters makes it (None: the base alone), for an engine or as a reference.

    Looks like the model. The configuration is its own, so that what one engine sets there for a pass does
    not reach another's.
    """

    def __init__(self, model: Any, name: str | None) -> None:
        _find(model, name)
        self.base = model
        self.adapter = name
        self.config = copy.copy(model.config)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with use(self.base, self.adapter):
            shared = self.base.config
            before = shared._attn_implementation
            shared._attn_implementation = self.config._attn_implementation
            try:
                return self.base(*args, **kwargs)
            finally:
                shared._attn_implementation = before

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def computing(self) -> AbstractContextManager[None]:
        """The body computes with the base's layers, as this adapter makes them."""
        return use(self.base, self.adapter)

    def eval(self) -> Self:
        self.base.eval()
        return self

    def get_decoder(self) -> _Decoder:
        return _Decoder(self.base, self.adapter)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Set the adapter's weights, which is what an engine's `publish` is given."""
        if self.adapter is None:
            raise UsageError("the base of adapters is frozen; its weights cannot be published.")
        load_adapter_state_dict(self.base, self.adapter, state)


class _Decoder:
    """The layers of an adapted model, without its vocabulary projection."""

    def __init__(self, model: Any, name: str | None) -> None:
        self._model = model
        self._name = name
        self.config = model.get_decoder().config

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with use(self._model, self._name):
            return self._model.get_decoder()(*args, **kwargs)


def _find(model: Any, name: str | None) -> _Adapters:
    known = _known.get(model)
    if known is None:
        raise UsageError("the model has no adapters. Call attach(model, names) first.")
    if name is not None and name not in known.names:
        raise UsageError(f"there is no adapter {name!r}. {nearest(name, known.names)}")
    return known


def named_parameters_of(model: Any, name: str) -> dict[str, nn.Parameter]:
    """An adapter's weights, under names that do not depend on its own."""
    layers = _find(model, name).layers
    return {
        f"{path}.{part}": getattr(layer, part)[name].weight
        for path, layer in layers.items()
        for part in ("lora_A", "lora_B")
    }
