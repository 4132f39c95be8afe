"""Weights for rollout workers: a file for each version of each policy that learns, written whole, checked when read.

Of a policy with LoRA the file holds the adapter alone. A version is kept as long as a play that was begun names it.

Invariant: a worker plays with the bytes that the trainer wrote, or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from baton.errors import CorruptError, UsageError
from baton.learn.policy import Policy
from baton.learn.scale.workers_lots import PolicyWeights, digest_of


class WeightFiles:
    """The files, on the trainer's side."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[str, int], PolicyWeights] = {}
        self._versions: dict[int, tuple[PolicyWeights, ...]] = {}

    def __contains__(self, version: int) -> bool:
        return version in self._versions

    def of(self, version: int) -> tuple[PolicyWeights, ...]:
        """What plays with the weights after so many steps."""
        return self._versions[version]

    def write(self, version: int, policies: Mapping[str, Policy]) -> None:
        """The policies' weights of this moment are those after `version` steps."""
        if version in self._versions:
            return
        made = [
            self._known.get((name, policy.version)) or self._write(policy)
            for name, policy in policies.items()
            if is_sent(policy)
        ]
        for each in made:
            self._known[each.policy, each.version] = each
        self._versions[version] = tuple(made)

    def _write(self, policy: Policy) -> PolicyWeights:
        content = to_bytes(policy.state_dict())
        place = self._folder / f"{policy.name}-{policy.version:06d}.safetensors"
        half = place.with_suffix(f".{os.getpid()}")
        try:
            half.write_bytes(content)
            half.replace(place)
        except OSError as error:
            half.unlink(missing_ok=True)
            raise UsageError(
                f"the weights for the rollout workers cannot be written to {self._folder}: {error.strerror or error} "
                f"({len(content) / 1e6:,.1f} MB a version). Make room there, or set TMPDIR to a folder that has it; "
                "then type: baton train --resume --out DIR"
            ) from error
        return PolicyWeights(
            policy=policy.name, version=policy.version, digest=digest_of(content), path=str(place)
        )

    def keep(self, versions: Collection[int]) -> None:
        """Drop all but these; the newest stays, because the next play may name it."""
        newest = max(self._versions, default=0)
        for gone in [each for each in self._versions if each not in versions and each != newest]:
            del self._versions[gone]
        needed = {each.path for kept in self._versions.values() for each in kept}
        for key, each in list(self._known.items()):
            if each.path not in needed:
                del self._known[key]
                Path(each.path).unlink(missing_ok=True)


def is_sent(policy: Policy) -> bool:
    """Whether workers get this policy's weights from here: it learns, and they answer with it themselves."""
    return policy.learns and policy.part.engine is None and policy.sampler is not None


def read_weights(told: PolicyWeights, content: bytes | None = None) -> dict[str, torch.Tensor]:
    """The tensors, once their bytes are known to be the trainer's. `content`: where they did not come as the file."""
    if content is None:
        try:
            content = Path(told.path).read_bytes()
        except OSError as error:
            raise CorruptError(
                f"the weights of policy {told.policy!r} at version {told.version} cannot be read from {told.path}: "
                f"{error.strerror or error}."
            ) from error
    if (found := digest_of(content)) != told.digest:
        raise CorruptError(
            f"the weights of policy {told.policy!r} at version {told.version} are not those that the trainer wrote: "
            f"their checksum is {found}, expected {told.digest}."
        )
    return from_bytes(content)


def unchanging(policy: Policy) -> str:
    """A digest of what training does not change of a policy: its tokenizer, and all weights that are not sent."""
    digest = blake2b(digest_size=16)
    tokenizer: Any = policy.tokenizer
    if tokenizer is not None:
        for token, number in sorted(tokenizer.get_vocab().items()):
            digest.update(f"{number} {token}\n".encode(errors="surrogatepass"))
        digest.update(str(getattr(tokenizer, "chat_template", None)).encode())
    # What a server answers for was verified there, and a worker has only its tokenizer.
    if policy.model is not None and policy.part.train != "full" and policy.part.engine is None:
        for name, tensor in sorted(policy.model.state_dict().items()):
            if ".lora_" not in name:
                digest.update(name.encode())
                digest.update(
                    tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                )
    return digest.hexdigest()
