"""Shards on disk: torch.distributed.checkpoint folders inside of a run's checkpoint.

Every process writes its shares into one folder, and any number of processes reads them again, one too. What is in
there are tensors alone: `weights/NAME`, `optimizer/NUMBER/NAME` in the order of a policy's parameters, and
`masters/NUMBER`.

The list of contents is a pickle in torch's format. A run's folder may come from somebody else, so it is read by names
that such a list needs, and nothing else is looked up.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as read_shards
from torch.distributed.checkpoint.state_dict_saver import save as write_shards

from baton.errors import CorruptError

_LIST = ".metadata"
_MODULES = {
    "torch.distributed.checkpoint.metadata",
    "torch.distributed.checkpoint.filesystem",
    "torch.serialization",
}
_NAMES = {
    ("torch", "Size"),
    ("torch", "device"),
    ("torch._utils", "_get_restore_location"),
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),
}


class _Reader(pickle.Unpickler):
    """Knows what a list of contents is made of."""

    def find_class(self, module: str, name: str) -> Any:
        kind = getattr(torch, name, None) if module == "torch" else None
        plain = module in _MODULES and name[:1] in "_ABCDEFGHIJKLMNOPQRSTUVWXYZ" and "." not in name
        if plain or (module, name) in _NAMES or isinstance(kind, torch.dtype | torch.layout):
            return super().find_class(module, name)
        raise CorruptError(f"a list of shards names {module}.{name}, which is no part of one.")


class ShardReader(FileSystemReader):
    """Reads tensors, and runs nothing that a folder names."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        found = contents_of(Path(self.path))
        found.storage_meta = found.storage_meta or StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


def contents_of(folder: Path) -> Metadata:
    """The list of what is in a folder of shards."""
    try:
        found = _Reader(io.BytesIO((folder / _LIST).read_bytes())).load()
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, TypeError) as error:
        raise CorruptError(f"{folder} cannot be read as shards: {error}.") from error
    if not isinstance(found, Metadata) or not all(
        isinstance(each, TensorStorageMetadata) for each in found.state_dict_metadata.values()
    ):
        raise CorruptError(f"{folder} holds more than tensors.")
    return found


def save(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write the shares of all processes. Every process takes part."""
    with _quiet():
        write_shards(dict(tensors), storage_writer=FileSystemWriter(folder, sync_files=True))


def load(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Read into these tensors, in place, whoever wrote what. Every process takes part, or there is one alone."""
    with _quiet():
        read_shards(dict(tensors), storage_reader=ShardReader(folder), no_dist=not dist.is_initialized())


def read_whole(folder: Path, *prefixes: str) -> dict[str, Tensor]:
    """Whole tensors whose names begin so, by one process alone; without the beginning where there is one of them."""
    listed = contents_of(folder).state_dict_metadata
    found = {
        name: torch.empty(each.size, dtype=each.properties.dtype)
        for name, each in listed.items()
        if isinstance(each, TensorStorageMetadata) and name.startswith(prefixes)
    }
    with _quiet():
        read_shards(dict(found), storage_reader=ShardReader(folder), no_dist=True)
    cut = prefixes[0] if len(prefixes) == 1 else ""
    return {name.removeprefix(cut): tensor for name, tensor in found.items()}


def written(folder: Path) -> list[str]:
    """The files of a folder, all of which its list needs; refused where this machine does not see one."""
    listed = contents_of(folder).storage_data or {}
    needed = {str(each.relative_path) for each in listed.values()} | {_LIST}
    if missing := sorted(name for name in needed if not (folder / name).is_file()):
        raise OSError(
            f"{missing[0]} was written by another process and is not here: all machines need the same folder"
        )
    return sorted(needed)


def named_tensors(kept: Mapping[str, Any]) -> dict[str, Tensor]:
    """An optimiser's state dict as tensors by name."""
    found = {
        f"optimizer/{number}/{name}": tensor
        for number, each in kept["state"].items()
        for name, tensor in each.items()
    }
    return found | {f"masters/{number}": each for number, each in enumerate(kept.get("masters", ()))}


def set_optimiser(optimizer: Any, tensors: Mapping[str, Tensor]) -> None:
    """What `named_tensors` gave, back; rates and how steps are computed stay the optimiser's own."""
    state: dict[int, dict[str, Tensor]] = {}
    masters: dict[int, Tensor] = {}
    for path, tensor in tensors.items():
        kind, _, rest = path.partition("/")
        number, _, name = rest.partition("/")
        if kind == "optimizer":
            state.setdefault(int(number), {})[name] = tensor
        elif kind == "masters":
            masters[int(number)] = tensor
    whole = {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    if masters:
        whole["masters"] = [masters[number] for number in range(len(masters))]
    optimizer.load_state_dict(whole)


def empty_optimiser(optimizer: Any, folder: Path) -> dict[str, Tensor]:
    """Tensors for what a folder has of an optimiser, sharded as its parameters are here."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    found: dict[str, Tensor] = {}
    for path, each in contents_of(folder).state_dict_metadata.items():
        kind, _, rest = path.partition("/")
        if kind not in ("optimizer", "masters") or not isinstance(each, TensorStorageMetadata):
            continue
        like = parameters[int(rest.partition("/")[0])].detach()
        if not each.size:  # how many steps were done
            found[path] = torch.zeros((), dtype=each.properties.dtype)
        else:
            found[path] = torch.zeros_like(like, dtype=each.properties.dtype)
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own ways through itself
        yield
