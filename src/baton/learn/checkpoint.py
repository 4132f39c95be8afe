"""Checkpoints: everything a run goes on from, so that going on gives the numbers it would have given.

One folder per step: weights (safetensors), optimisers, and what else the run remembers (critic, moving averages,
reward weights) as plain values. A folder is made under another name and renamed when whole; `latest` is replaced
after that, so a run that is killed at any moment has a good checkpoint or the one before.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from baton.errors import CorruptError, UsageError
from baton.learn.policies.policy import Policy

__all__ = ["latest", "load_weights", "restore", "save"]

KEEP = 2
"""Checkpoints kept besides the first and the last."""


def save(folder: Path, step: int, policies: Mapping[str, Policy], remembered: Mapping[str, Any]) -> Path:
    """The state after `step` steps."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"step-{step:05d}"
    made = folder / f".step-{step:05d}.{os.getpid()}"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    for name, policy in policies.items():
        if policy.learns and policy.optimizer is not None:
            save_file(policy.state(), made / f"{name}.safetensors")
            torch.save(policy.optimizer.state_dict(), made / f"{name}.optimizer.pt")
    versions = {name: policy.version for name, policy in policies.items()}
    told = {"step": step, "versions": versions, **remembered}
    (made / "state.json").write_text(json.dumps(told), "utf-8")
    shutil.rmtree(place, ignore_errors=True)
    made.rename(place)
    pointer = folder / ".latest"
    pointer.write_text(place.name, "utf-8")
    pointer.replace(folder / "latest")
    _thin(folder)
    return place


def latest(folder: Path) -> Path:
    """The newest good checkpoint."""
    try:
        name = (folder / "latest").read_text("utf-8").strip()
    except OSError:
        raise UsageError(f"{folder} has no checkpoint to go on from. Start the run anew.") from None
    if not (folder / name / "state.json").is_file():
        raise CorruptError(f"{folder / name} is named as the latest checkpoint and is not whole.")
    return folder / name


def restore(place: Path, policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Weights and optimisers back into the policies; returns what else was remembered."""
    told = load_weights(place, policies)
    for name, policy in policies.items():
        if policy.learns and policy.optimizer is not None:
            policy.optimizer.load_state_dict(torch.load(place / f"{name}.optimizer.pt", weights_only=True))
    return told


def load_weights(place: Path, policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Weights alone; returns what else was remembered."""
    told: dict[str, Any] = json.loads((place / "state.json").read_text("utf-8"))
    for name, policy in policies.items():
        if not policy.learns or policy.optimizer is None:
            continue
        weights = place / f"{name}.safetensors"
        if not weights.is_file():
            raise UsageError(f"{place} has no weights for policy {name!r}; the recipe has changed since.")
        policy.load(load_file(weights), told["versions"][name])
    return told


def _thin(folder: Path) -> None:
    """Old ones go; the first stays, to compare with."""
    found = sorted(path for path in folder.glob("step-*") if path.is_dir())
    for path in found[1 : -KEEP - 1]:
        shutil.rmtree(path, ignore_errors=True)
