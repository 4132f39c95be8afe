"""A policy whose adapter is at a service that speaks the Tinker protocol: sampled there, trained there, kept there.

    [policies.main]
    model = "models/qwen3-8b"                       # here: tokenizer and configuration are all that is read of it
    train = "lora"
    engine = "tinker:https://HOST?base=Qwen/Qwen3-8B"

A checkpoint of the run holds where the service keeps weights and optimiser; a run that goes on makes a new model there
and gives it that state. Every version that answers is a sampler of its own, under a name that was never used before:
SkyRL's JAX back end loads a sampler into the adapter that is trained, and knows it by its name alone, so whoever asked
an older one would train on from it.

Invariant: after every step the new sampler is asked for log-probabilities of a row of that step, which have to be those
of the trainer and not those of the weights before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch

from baton.engine import read_options
from baton.engine.model_places import check_folder
from baton.errors import UsageError, nearest
from baton.learn.loss import Loss
from baton.learn.models.local import quiet
from baton.learn.phases import spans
from baton.learn.policy import Pinned, Policy
from baton.learn.recipe import PolicyPart, Recipe
from baton.learn.recipe_checks import loss_of
from baton.learn.scale.tinker_client import Offers, TinkerClient
from baton.learn.scale.tinker_engine import TinkerEngine
from baton.learn.scale.tinker_learner import Sums, TinkerLearner, losses_needed, measured_sums
from baton.learn.update import Packed
from baton.team.protocol import EngineError

PREFIX = "tinker:"
_STATE = "tinker_state"
"""What stands in a checkpoint in the place of weights: the state's address, as bytes."""
_SAME = 1e-4
_NOISE = 4.0


def open_policy(recipe: Recipe, name: str, roles: Sequence[str]) -> TinkerPolicy:
    """The policy, with a new adapter at its service. What the service does not offer is refused first."""
    part = recipe.policies[name]
    assert part.engine is not None
    phases = [span.recipe for span in spans(recipe)]
    seed = recipe.train.seed + list(recipe.policies).index(name)
    url, options = read_options(part.engine.removeprefix(PREFIX), ("base",))
    folder = _folder(part.model)
    base = options.get("base", part.model)
    _check_tokenizers(name, folder, base)
    client = TinkerClient(url)
    try:
        offers = client.offers()
        for now in phases:
            check_offers(name, client.url, offers, base, loss_of(now), now.train.clip_norm)
        return TinkerPolicy(name, part, roles, client, base, folder, seed=seed)
    except EngineError as error:
        client.close()
        raise UsageError(f"[policies.{name}]: {url}: {error}.") from error
    except BaseException:
        client.close()
        raise


def check_offers(name: str, url: str, offers: Offers, base: str, loss: Loss, clip_norm: float) -> None:
    """Refuse what a service says it lacks."""
    if offers.models and base not in offers.models:
        raise UsageError(
            f"[policies.{name}]: the service at {url} has no base model {base!r}. {nearest(base, offers.models)} "
            f'Write engine = "tinker:{url}?base=NAME".'
        )
    for needed in losses_needed(loss):
        if offers.losses is not None and needed not in offers.losses:
            raise UsageError(
                f"loss {loss.kind} takes {needed} at the service, and {url} has {', '.join(offers.losses)}. "
                "Take another loss.kind, or another service."
            )
    if offers.clips is False and clip_norm < 1e6:
        raise UsageError(
            f"train.clip_norm is {clip_norm:g}, and the service at {url} does not scale gradients: they would be taken "
            "as they are. Train without, as Adam's steps do not grow with the gradient: --set train.clip_norm=1e9"
        )


def _check_tokenizers(name: str, folder: Path, base: str) -> None:
    """Where the service's base model is a folder of this machine, the two have to have one tokenizer."""
    there = Path(base) / "tokenizer.json"
    here = folder / "tokenizer.json"
    if there.is_file() and here.is_file() and there.read_bytes() != here.read_bytes():
        raise UsageError(
            f"[policies.{name}]: the tokenizer of {folder} is not that of the service's base model {base}: its ids "
            f"would mean other words there. Write model = {str(base)!r}."
        )


def _folder(model: str) -> Path:
    """Where a model's tokenizer and configuration are."""
    if model == "smollm2":
        from baton.learn.models.smollm2 import smollm2_folder

        return Path(smollm2_folder())
    if model == "tiny":
        raise UsageError(
            'model = "tiny" is made here for a run, and a service cannot have it. Name the folder of one that it has.'
        )
    check_folder(model)
    return Path(model)


class TinkerPolicy(Policy):
    """An adapter at a service."""

    def __init__(
        self,
        name: str,
        part: PolicyPart,
        roles: Sequence[str],
        client: TinkerClient,
        base: str,
        folder: Path,
        *,
        seed: int,
    ) -> None:
        from transformers import AutoTokenizer

        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        ends, vocabulary = _configured(folder, tokenizer)
        self.service = TinkerEngine(client, tokenizer, ends, name=name, vocabulary=vocabulary)
        super().__init__(name, part, roles, self.service, tokenizer=tokenizer)
        self._client = client
        self._sums: Sums = measured_sums(client, base, part.rank)
        self._model = client.create_model(base, part.rank, seed)
        self._rate = 0.0
        self._learner: TinkerLearner | None = None
        self._kept: tuple[int, str] | None = None
        """The version whose state the service keeps, and where."""
        self.learning = self._learning

    def _learning(self, loss: Loss, packed: Packed, reference: Any) -> TinkerLearner:  # noqa: ARG002  # it has none
        self._learner = TinkerLearner(self._model, loss, packed, self._sums)
        self._learner.rate = self._rate
        return self._learner

    def set_rate(self, rate: float) -> None:
        self._rate = rate
        if self._learner is not None:
            self._learner.rate = rate

    @contextmanager
    def training(self) -> Iterator[None]:
        yield
        self.version += 1
        self._kept = None

    @contextmanager
    def computing(self, version: int | None = None) -> Iterator[None]:  # noqa: ARG002  # nothing is computed here
        yield

    def publish(self, pinned: Pinned | None = None) -> None:
        """The weights as they are answer from now on, once they were seen to be these."""
        assert pinned is None, "older weights are refused (tinker_checks)"
        if self.service.version == str(self.version):
            return
        path = self._model.save_sampler(f"v{self.version}-{uuid4().hex[:12]}")
        self._verify(path)
        self.service.moved_to(str(self.version), path)

    def _verify(self, path: str) -> None:
        """Whether the sampler at this path has the weights that were trained, by what it thinks of a row."""
        probe, learner = None if self._learner is None else self._learner.probe, self._learner
        if probe is None or learner is None:
            return
        row, trained = probe
        learner.probe = None
        params = {"max_tokens": 1, "seed": 0, "temperature": 1.0, "top_p": 1.0, "top_k": -1}
        told = self._client.sample(path, row.ids.tolist(), params, prompt_logprobs=True).get(
            "prompt_logprobs"
        )
        if not told:  # not every service tells them; the next step's rows are compared in any case
            return
        size = len(row.ids) - 1
        sampled = np.array([np.nan if each is None else each for each in told[-size:]])[row.places - 1]
        now = float(np.abs(sampled - trained).mean())
        before = float(np.abs(sampled - row.sampler).mean())
        if not now <= _SAME + _NOISE * before:
            raise EngineError(
                f"the service's new sampler is {now:.2g} nats from the weights that were trained and {before:.2g} from "
                "those before: it answers with old weights. Go on from the last checkpoint: baton train --resume"
            )

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Where the service keeps weights and optimiser as they are now."""
        if self._kept is None or self._kept[0] != self.version:
            self._kept = self.version, self._model.save_state(f"s{self.version}-{uuid4().hex[:12]}")
        address = self._kept[1].encode()
        return {_STATE: torch.frombuffer(bytearray(address), dtype=torch.uint8).clone()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor], version: int) -> None:
        if _STATE not in state:
            raise UsageError(
                f"the checkpoint has weights of policy {self.name!r} itself, and its engine is a service, which has to "
                "have kept them. Go on with the settings that the run began with."
            )
        path = bytes(state[_STATE].tolist()).decode()
        try:
            self._model.load_state(path)
        except EngineError as error:
            raise UsageError(
                f"the service at {self._client.url} does not give back {path}, where the run's weights were kept: "
                f"{error}. Is it the service that the run began with?"
            ) from error
        self.version = version
        self._kept = version, path
        self.service.version = ""  # the next to play gets a sampler of these, under a new name
        if self._learner is not None:
            self._learner.probe = None

    def close(self) -> None:
        """Let the service forget the adapter in memory; what it kept stays."""
        self.service.close()
        with suppress(EngineError, UsageError):
            self._model.unload()
        self._client.close()


def _configured(folder: Path, tokenizer: Any) -> tuple[list[int], int]:
    """Ids that end an answer, and how many ids there are, by the model's own files."""
    found: set[int] = set()
    told: dict[str, Any] = {}
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file():
            told = json.loads((folder / name).read_text("utf-8"))
            given = told.get("eos_token_id")
            found |= {given} if isinstance(given, int) else set(given or ())
    if tokenizer.eos_token_id is not None:
        found.add(int(tokenizer.eos_token_id))
    if not found:
        raise UsageError(
            f"nothing in {folder} says which token ends an answer. Set eos_token_id in config.json."
        )
    return sorted(found), max(int(told.get("vocab_size") or 0), len(tokenizer))
