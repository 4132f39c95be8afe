"""A trained policy as a folder that transformers opens: one model.safetensors, its configuration, its tokenizer.

Weights come from a run's checkpoint, whether one process wrote it or several in shards. An adapter is added to its
base, so what comes out is a plain model.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft.tuners.lora import LoraLayer

from baton.compose.training import check_trainable, starts_of
from baton.compose.trust import recipe_in
from baton.errors import UsageError, nearest
from baton.learn import lora
from baton.learn.models.local import quiet
from baton.learn.recipe import Recipe
from baton.learn.run import checkpoint
from baton.learn.run.folder import Folder


def export_model(
    run: Path,
    out: Path,
    *,
    policy: str | None = None,
    step: int | None = None,
    trust: bool = False,
    progress: Callable[[str], None] | None = None,
) -> tuple[str, int, int]:
    """Write a policy's weights of a step (None: the latest) to a new folder; its name, the step, how many weights."""
    folder = Folder(run)
    folder.told()
    recipe = recipe_in(run, trust=trust)
    name = _name(recipe, policy)
    place = _place(folder.checkpoints, step, progress)
    stage, _ = check_trainable(recipe, restored=True)
    load, _ = starts_of(recipe, stage, progress)
    part = recipe.policies[name]
    try:
        model, tokenizer = load(part)
    finally:
        stage.close()
    weights = checkpoint.weights_of(place, name)
    if part.train == "lora":
        lora.attach(model, [name], part.rank, 2 * part.rank)
        lora.load_adapter_state_dict(model, name, weights)
        model = merged(model, name)
    else:
        model.load_state_dict(weights)
    _write(model, tokenizer, out)
    return name, int(place.name.partition("-")[2]), sum(each.numel() for each in model.parameters())


@torch.no_grad()
def merged(model: Any, name: str) -> Any:
    """The model as the adapter makes it, with its own layers and nothing beside them."""
    for path, module in list(model.named_modules()):
        if isinstance(module, LoraLayer):
            base: Any = module.get_base_layer()
            down: Any = module.lora_A[name].weight
            up: Any = module.lora_B[name].weight
            change = module.scaling[name] * (up.float() @ down.float())
            base.weight.copy_(base.weight.float() + change)
            above, _, leaf = path.rpartition(".")
            setattr(model.get_submodule(above), leaf, base)
    return model


def _name(recipe: Recipe, policy: str | None) -> str:
    learning = [name for name, part in recipe.policies.items() if part.train != "frozen"]
    if policy is None and len(learning) == 1:
        return learning[0]
    if policy is None:
        raise UsageError(f"the run trained {', '.join(learning)}. Name one of them: --policy {learning[0]}")
    if policy not in learning:
        raise UsageError(f"--policy {policy}: the run trained no such policy. {nearest(policy, learning)}")
    return policy


def _place(folder: Path, step: int | None, progress: Callable[[str], None] | None) -> Path:
    if step is None:
        return checkpoint.latest(folder, progress)
    place = folder / f"step-{step:05d}"
    if not place.is_dir():
        there = ", ".join(str(int(each.name[5:])) for each in sorted(folder.glob("step-*")))
        raise UsageError(f"--step {step}: there is no checkpoint of it. There are: {there}.")
    checkpoint.check_whole(place)
    return place


def _write(model: Any, tokenizer: Any, out: Path) -> None:
    """The folder is there whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        with quiet():
            model.save_pretrained(made, max_shard_size="100TB")
            tokenizer.save_pretrained(made)
        made.chmod(0o755)
        made.rename(out)
    finally:
        shutil.rmtree(made, ignore_errors=True)
