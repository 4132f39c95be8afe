"""Checkpoints: everything a run goes on from, so that going on gives the numbers it would have given.

One folder per step: weights (safetensors), optimisers (of runs in several processes, both in shards), rollouts that are
still to be trained on (JSON Lines), and what else the run remembers (critic, moving averages, reward weights) as plain
values, their tensors beside them. A folder is made under another name and renamed when whole, with a digest of every
file in it; `latest` is replaced after that. So a run that is killed at any moment, or whose disk is full, has a good
checkpoint or the one before, and one that was damaged later is known as such and passed over.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor

from baton.errors import CorruptError, UsageError
from baton.learn.policy import Policy
from baton.learn.rollouts import RolloutGroup
from baton.trace.formats.durable import sync_directory
from baton.trace.formats.jsonl import encode_trace, read_jsonl

KEEP = 2
"""Checkpoints kept besides the first and the last."""
_TENSOR = "$tensor"


class Saved(Struct, frozen=True, kw_only=True):
    """What a checkpoint holds besides weights."""

    remembered: dict[str, Any]
    groups: list[RolloutGroup]


def save(
    folder: Path,
    step: int,
    policies: Mapping[str, Policy],
    remembered: Mapping[str, Any],
    groups: Sequence[RolloutGroup] = (),
) -> Path:
    """The state after `step` steps. `remembered` may hold tensors anywhere."""
    place = folder / f"step-{step:05d}"
    made = folder / f".step-{step:05d}.{os.getpid()}"
    try:
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        _write(made, step, policies, remembered, groups)
        shutil.rmtree(place, ignore_errors=True)
        made.rename(place)
        _point(place)
    except OSError as error:
        good = _named(folder)
        raise UsageError(
            f"the checkpoint of step {step} cannot be written to {folder}: {error.strerror or error}. "
            + (f"The last good one is {good}. " if good else "")
            + f"Make room there, then type: baton train --resume --out {shlex.quote(str(folder.parent))}"
        ) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    _thin(folder)
    return place


def drop(place: Path) -> Path | None:
    """Without this checkpoint; returns the one before it, or None, and then it stays."""
    before = sorted(path for path in place.parent.glob("step-*") if path.name < place.name)
    if not before:
        return None
    _point(before[-1])
    shutil.rmtree(place)
    return before[-1]


def finite(remembered: Mapping[str, Any]) -> bool:
    """Whether all tensors in it are of numbers."""
    tensors: dict[str, Tensor] = {}
    _without_tensors(dict(remembered), "", tensors)
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())


def latest(folder: Path, progress: Callable[[str], None] | None = None) -> Path:
    """The newest good checkpoint. Damaged ones are named and passed over."""
    name = _named(folder)
    if name is None:
        raise UsageError(f"{folder} has no checkpoint to go on from. Start the run anew.")
    found = sorted((path for path in folder.glob("step-*") if path.name <= name), reverse=True)
    damage: list[str] = []
    for place in found:
        if (wrong := _damage(place)) is None:
            return place
        damage.append(f"checkpoint {place.name} is damaged ({wrong})")
        if progress is not None:
            progress(f"{damage[-1]}; looking for the one before")
    raise CorruptError(
        f"{folder}: {'; '.join(damage) or f'{name} is missing'}, and there is no other. Start the run anew."
    )


def check_whole(place: Path) -> None:
    """Refuse a checkpoint that is not as it was written."""
    if (wrong := _damage(place)) is not None:
        raise CorruptError(f"checkpoint {place.name} is damaged ({wrong}). Name another.")


def restore(place: Path, policies: Mapping[str, Policy]) -> Saved:
    """Weights and optimisers back into the policies; returns what else there is."""
    told = load_weights(place, policies)
    for name, policy in policies.items():
        if policy.learns and policy.optimizer is not None:
            # From any device: a run of a GPU goes on without one, and the other way round.
            if (shards := _shards(place, name)).is_dir():
                _restore_shards(policy, shards)
                continue
            kept = torch.load(place / f"{name}.optimizer.pt", map_location="cpu", weights_only=True)
            if policy.shards is not None:
                policy.shards.load_optimiser(kept)
            else:
                policy.optimizer.load_state_dict(kept)
    tensors = load_file(place / "remembered.safetensors")
    traces = iter(read_jsonl(place / "groups.jsonl") if told["groups"] else ())
    groups = [
        RolloutGroup(
            step=step,
            version=version,
            traces=tuple(next(traces) for _ in range(size)),
            weight=weight[0] if weight else 1.0,
        )
        for step, version, size, *weight in told["groups"]  # those of 0.2 have no weight
    ]
    return Saved(remembered=_with_tensors(told, tensors), groups=groups)


def load_weights(place: Path, policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Weights alone; returns what the checkpoint says of itself."""
    told: dict[str, Any] = json.loads((place / "state.json").read_text("utf-8"))
    for name, policy in policies.items():
        if not policy.learns:
            continue
        policy.load_state_dict(weights_of(place, name), told["versions"][name])
    return told


def weights_of(place: Path, name: str) -> dict[str, Tensor]:
    """What a checkpoint has of a policy's weights, whoever wrote them."""
    if (shards := _shards(place, name)).is_dir():
        from baton.learn.scale.sharded_checkpoint import read_whole  # of runs in several processes

        return read_whole(shards, "weights/")
    weights = place / f"{name}.safetensors"
    if not weights.is_file():
        raise UsageError(f"{place} has no weights for policy {name!r}; the recipe has changed since.")
    return load_file(weights)


def _shards(place: Path, name: str) -> Path:
    """The folder of a policy whose weights several processes hold."""
    return place / f"{name}.shards"


def _restore_shards(policy: Policy, folder: Path) -> None:
    """An optimiser's state that several processes wrote, in as many processes as there are now."""
    if policy.shards is not None:
        policy.shards.restore_optimiser(folder)
        return
    from baton.learn.scale.sharded_checkpoint import read_whole, set_optimiser

    set_optimiser(policy.optimizer, read_whole(folder, "optimizer/", "masters/"))


def _write(
    made: Path,
    step: int,
    policies: Mapping[str, Policy],
    remembered: Mapping[str, Any],
    groups: Sequence[RolloutGroup],
) -> None:
    digests: dict[str, str] = {}

    def put(name: str, content: bytes) -> None:
        digests[name] = _digest(content)
        _put(made / name, content)

    for name, policy in policies.items():
        if policy.shards is not None:
            folder = _shards(made, name)
            for file in policy.shards.save(folder):
                digests[f"{folder.name}/{file}"] = _digest((folder / file).read_bytes())
            sync_directory(folder)
            continue
        if policy.learns:
            put(f"{name}.safetensors", to_bytes(policy.state_dict()))
        if policy.optimizer is not None:
            kept = io.BytesIO()
            torch.save(policy.optimizer.state_dict(), kept)
            put(f"{name}.optimizer.pt", kept.getvalue())
    tensors: dict[str, Tensor] = {}
    plain = _without_tensors(dict(remembered), "", tensors)
    put("remembered.safetensors", to_bytes(tensors))
    if groups:
        put("groups.jsonl", b"".join(line for g in groups for t in g.traces for line in encode_trace(t)))
    told = {
        **plain,
        "step": step,
        "versions": {name: policy.version for name, policy in policies.items()},
        "groups": [[group.step, group.version, len(group.traces), group.weight] for group in groups],
        "files": digests,
    }
    content = json.dumps(told).encode()
    _put(made / "state.json", content)
    _put(made / "state.digest", _digest(content).encode())
    sync_directory(made)


def _put(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _point(place: Path) -> None:
    """This is the latest now."""
    pointer = place.parent / ".latest"
    _put(pointer, place.name.encode())
    pointer.replace(place.parent / "latest")
    sync_directory(place.parent)


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _damage(place: Path) -> str | None:
    """What is wrong with a checkpoint; None where all of it is as it was written."""
    try:
        state = (place / "state.json").read_bytes()
        if _digest(state) != (place / "state.digest").read_text("ascii"):
            return "state.json has changed"
        for name, digest in json.loads(state)["files"].items():
            if _digest((place / name).read_bytes()) != digest:
                return f"{name} has changed"
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _named(folder: Path) -> str | None:
    try:
        return (folder / "latest").read_text("utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _without_tensors(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[path] = value.detach().to("cpu", copy=True).contiguous()
        return {_TENSOR: path}
    if isinstance(value, Mapping):
        return {key: _without_tensors(each, f"{path}/{key}", tensors) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_tensors(each, f"{path}/{n}", tensors) for n, each in enumerate(value)]
    return value


def _with_tensors(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        return {key: _with_tensors(each, tensors) for key, each in value.items()}
    return [_with_tensors(each, tensors) for each in value] if isinstance(value, list) else value


def _thin(folder: Path) -> None:
    """Old ones go, and what a kill left half made; the first stays, to compare with."""
    for left in folder.glob(".step-*"):
        shutil.rmtree(left, ignore_errors=True)
    found = sorted(path for path in folder.glob("step-*") if path.is_dir())
    for path in found[1 : -KEEP - 1]:
        shutil.rmtree(path, ignore_errors=True)
