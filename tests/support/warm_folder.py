"""A model that already speaks a small game's grammar, as a folder: what a service has for its base model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from small_run import small

from baton.compose.stage_from_recipe import make_stage
from baton.learn.models.start import starting_models


def warm_folder(folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer, which the folder holds afterwards."""
    recipe = small()
    model, tokenizer = starting_models(recipe, make_stage(recipe), None)(recipe.policies["main"])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer
