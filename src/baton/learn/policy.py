"""A policy: weights, who answers with them, and how they are trained.

`full` trains every weight, `lora` an adapter of its own over a base that policies share in memory, `frozen`
nothing; a frozen policy may be any engine, remote ones too. The sampler and the trainer use one model by turns, unless
a vLLM server answers with the weights that are trained here (`engine`, see `baton.learn.scale.served`).
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from msgspec import structs

from baton.engine import is_engine, make_engine
from baton.engine.torch import TorchEngine
from baton.engine.torch.engine import turn
from baton.errors import UsageError, nearest
from baton.learn import lora
from baton.learn.loss import Loss
from baton.learn.optimiser import MasterAdamW, make_optimiser
from baton.learn.recipe import PolicyPart, Recipe
from baton.learn.update import Learner, Packed
from baton.team.protocol import Engine, EngineError

if TYPE_CHECKING:
    from baton.learn.scale.served import Servers

Load = Callable[[PolicyPart], tuple[Any, Any]]
"""Model and tokenizer a policy starts with."""
MakeLearner = Callable[[Loss, Packed, Any], Learner]
"""Who moves a policy's weights by a loss; the last is what KL is taken to, or None."""
Adapt = Callable[[str, PolicyPart, Sequence[str], Any, Any], dict[str, Any] | None]
"""Gives a new adapter its first weights, and says how it came by them."""


class Pinned(NamedTuple):
    """Weights of a policy as they were at a version."""

    version: str
    weights: Mapping[str, torch.Tensor]
    expected: Any = None
    """Of a policy that a server answers for: what it has to give the probe once it has these."""


class Shards(Protocol):
    """Who holds a policy's weights and optimiser, where that is not this process alone (`baton.learn.scale`)."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What was trained, whole, on the CPU."""
        ...

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Weights as `state_dict` gave them."""
        ...

    def reference(self, *, base: bool) -> Any:
        """The weights of now, to compare with; `base`: of an adapter, its base."""
        ...

    def save(self, folder: Path) -> list[str]:
        """Write weights and optimiser to a folder of their own; the names of its files."""
        ...

    def restore_optimiser(self, folder: Path) -> None:
        """The optimiser's state of such a folder."""
        ...

    def load_optimiser(self, state: Mapping[str, Any]) -> None:
        """The optimiser's state as one process keeps it."""
        ...

    def whole(self) -> Any:
        """A model with the weights of now, to compute with in this process."""
        ...


class Policy:
    """One entry of the policies map."""

    def __init__(
        self,
        name: str,
        part: PolicyPart,
        roles: Sequence[str],
        engine: Engine,
        *,
        model: Any = None,
        tokenizer: Any = None,
        learning_rate: float | None = None,
        apart: bool = False,
    ) -> None:
        """`learning_rate`: of who trains it; None: it is only played with here."""
        self.name = name
        self.part = part
        self.roles = tuple(roles)
        self.engine = engine
        self.model = model
        self.tokenizer = tokenizer
        self.apart = apart
        """The sampler has a copy of its own, so both may compute at once."""
        self.version = 0
        self.warm: dict[str, Any] | None = None
        """What the adapter's supervised start was and took; None: there was none."""
        self.chances: Callable[[], Any] | None = None
        """Who knows the chances of options under the weights that answer, where what answers is elsewhere."""
        self.learning: MakeLearner | None = None
        """Makes who moves the weights, where that is not this process alone."""
        self.shards: Shards | None = None
        """Who holds them then; None: this process does."""
        self.optimizer = (
            make_optimiser(name, self.parameters(), learning_rate, masters=part.masters)
            if self.learns and model is not None and learning_rate is not None
            else None
        )
        """None: nothing learns, or who moves the weights elsewhere keeps one."""

    @property
    def learns(self) -> bool:
        return self.part.train != "frozen"

    def parameters(self) -> list[torch.nn.Parameter]:
        if self.part.train == "lora":
            return lora.parameters_of(self.model, self.name)
        return list(self.model.parameters())

    @contextmanager
    def training(self) -> Iterator[None]:
        """The body changes the weights; afterwards they are the next version, and answer under it unless the sampler
        has a copy of its own (see `publish`)."""
        with self.computing(self.version + 1):
            yield
        self.version += 1

    @contextmanager
    def computing(self, version: int | None = None) -> Iterator[None]:
        """The body goes forward and backward through the weights; they answer under `version` afterwards."""
        after = self.version if version is None else version
        if self.apart:
            hold = turn(self.model.device)
        else:
            assert isinstance(self.engine, TorchEngine)
            hold = self.engine.updating(str(after))
        with hold, lora.use(self.model, self.name) if self.part.train == "lora" else nullcontext():
            yield

    @property
    def sampler(self) -> Any:
        """The model that answers, with its adapter where there is one, or who knows its chances of options; None where
        it is elsewhere and nobody does."""
        if isinstance(self.engine, TorchEngine):
            return self.engine.model
        return None if self.chances is None else self.chances()

    @property
    def current(self) -> Any:
        """The model with the weights as they are now, which a sampler with a copy of its own may not have."""
        if not self.apart:
            return self.sampler
        if self.shards is not None:
            return self.shards.whole()
        return lora.Adapted(self.model, self.name) if self.part.train == "lora" else self.model

    def publish(self, pinned: Pinned | None = None) -> None:
        """A sampler with a copy of its own gets the weights as they are, or as they were when they were `pinned`. Waits
        for calls in flight."""
        engine: Any = self.engine
        version = str(self.version) if pinned is None else pinned.version
        if not self.apart or engine.version == version:
            return
        if not isinstance(engine, TorchEngine):
            engine.publish(*(pinned or self.pinned()))
            return
        copied = self.part.train == "lora" or self.shards is not None
        now = pinned is None and (self.state_dict() if copied else self.model.state_dict())
        engine.publish(version, now or (pinned and pinned.weights))

    @property
    def push_gap(self) -> float | None:
        """How far a server's log-probabilities were from these weights' when they were last pushed; None: to nobody."""
        pushes = getattr(self.engine, "pushes", None)
        return pushes[-1].gap.mean if pushes else None

    def pinned(self) -> Pinned:
        """The weights of now under their version, which further training leaves alone."""
        if isinstance(self.engine, TorchEngine):
            return Pinned(str(self.version), self.state_dict())
        from baton.learn.scale.served import pushed_weights

        engine: Any = self.engine
        if self.shards is not None:
            self.shards.whole()  # what a push is compared with
        return Pinned(str(self.version), pushed_weights(self.model, self.state_dict()), engine.expect())

    def close(self) -> None:
        """Let go of what the policy holds past this process."""
        if self.apart and not isinstance(self.engine, TorchEngine):
            self.engine.close()  # type: ignore[attr-defined]  # an engine of ours on a server

    def set_rate(self, rate: float) -> None:
        """Learn at this rate from now on: an optimiser that was restored has the one of before."""
        for group in self.optimizer.param_groups if self.optimizer is not None else ():
            group["lr"] = rate

    def forget(self) -> None:
        """What was computed of prompts is not used any more: that it was changes the last digits of what follows."""
        if isinstance(self.engine, TorchEngine):
            self.engine.forget()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What was trained, as a copy on the CPU: tied weights share no memory in it."""
        if self.shards is not None:
            return self.shards.state_dict()
        if self.part.train == "lora":
            return lora.adapter_state_dict(self.model, self.name)
        return {
            key: value.detach().to("cpu", copy=True).contiguous()
            for key, value in self.model.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, torch.Tensor], version: int) -> None:
        """Weights as `state_dict` gave them, at this version."""
        engine: Any = self.engine
        here = isinstance(engine, TorchEngine)
        with engine.updating(str(version)) if here else nullcontext():
            if self.shards is not None:
                self.shards.load_state_dict(state)
            elif self.part.train == "lora":
                lora.load_adapter_state_dict(self.model, self.name, state)
            else:
                self.model.load_state_dict(dict(state))
            if self.apart and here:
                engine.model.load_state_dict(dict(state))
        if not here:
            engine.outdated()  # pushed when it is next published
        if isinstance(self.optimizer, MasterAdamW) and self.shards is None:
            self.optimizer.refresh()
        self.version = version


def samplers(policies: Mapping[str, Policy], *, now: bool = False) -> dict[str, tuple[Any, Any]]:
    """The models that answer here and their tokenizers, by the name that is on their calls.

    `now`: with the weights as they are, also where what answers has older ones yet.
    """
    return {
        policy.engine.name: (policy.current if now else policy.sampler, policy.tokenizer)
        for policy in policies.values()
        if policy.sampler is not None
    }


def roles_of(recipe: Recipe, roles: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Policy -> the roles it answers for. Every role has exactly one."""
    taken: dict[str, str] = {}
    for name, part in recipe.policies.items():
        for role in part.roles:
            if role not in roles:
                raise UsageError(f"[policies.{name}]: the team has no role {role!r}. {nearest(role, roles)}")
            if role in taken:
                raise UsageError(f"role {role!r} is given to both policies {taken[role]!r} and {name!r}.")
            taken[role] = name
    rest = [role for role in roles if role not in taken]
    open_ = [name for name, part in recipe.policies.items() if not part.roles]
    if len(open_) > 1 or (rest and not open_):
        raise UsageError(
            f"roles {', '.join(rest) or 'all taken'} are left for policies {', '.join(open_) or 'none'}: "
            "exactly one policy may leave `roles` out, and it takes the rest."
        )
    for role in rest:
        taken[role] = open_[0]
    return {name: tuple(role for role in roles if taken[role] == name) for name in recipe.policies}


def make_policies(
    recipe: Recipe, roles: Sequence[str], load: Load, adapt: Adapt | None = None, *, plays: bool = False
) -> dict[str, Policy]:
    """All policies of a recipe. Those with LoRA of one rank over the same model share its base.

    `plays`: they are not trained here, so they have no optimisers.
    """
    mapped = roles_of(recipe, roles)
    if not any(part.train != "frozen" for part in recipe.policies.values()):
        raise UsageError(
            'every policy is frozen, so nothing can learn. Set train = "full" or "lora" for one.'
        )
    elsewhere = {name: _elsewhere(name, part) for name, part in recipe.policies.items() if _is_spec(part)}
    servers = None if plays else _servers(recipe)
    bases: dict[PolicyPart, _Base] = {}
    at_service = [name for name, part in recipe.policies.items() if (part.engine or "").startswith("tinker:")]
    alike = {
        name: base_of(part)
        for name, part in recipe.policies.items()
        if part.train == "lora" and name not in at_service and not (plays and part.engine)
    }
    for part in dict.fromkeys(alike.values()):
        names = [name for name, base in alike.items() if base == part]
        model, tokenizer = load(part)
        # A copy with adapters of its own over the same weights: those never change.
        copies = [model]
        if part.engine is not None and servers is not None:
            servers.prepare(part, part, names, model, tokenizer)
        elif _plays_ahead(recipe):
            copies.append(copy.deepcopy(model, {id(each): each for each in model.parameters()}))
        for each in copies:
            lora.attach(each, names, part.rank, 2 * part.rank, seed=recipe.train.seed)
        bases[part] = _Base(model, tokenizer, copies[-1])
    made: dict[str, Policy] = {}
    for name, part in recipe.policies.items():
        if name in at_service:
            from baton.learn.scale.tinker_policy import open_policy  # a plain step does not pass it

            made[name] = open_policy(recipe, name, mapped[name])
        elif name in elsewhere:
            made[name] = Policy(name, part, mapped[name], elsewhere[name])
        elif part.engine is not None and plays:
            from baton.learn.scale.workers_served import asking_policy  # of rollout workers alone

            made[name] = asking_policy(name, part, mapped[name], load)
        elif part.engine is not None and servers is not None:
            made[name] = servers.policy(name, part, mapped[name], load, bases.get(base_of(part)))
        else:
            made[name] = _make(recipe, name, part, mapped[name], load, bases, plays=plays)
    for name, policy in made.items():
        if policy.part.train == "lora" and policy.model is not None and adapt is not None:
            policy.warm = adapt(name, policy.part, policy.roles, policy.model, policy.tokenizer)
            if policy.apart:
                policy.load_state_dict(policy.state_dict(), policy.version)
            else:
                policy.forget()  # on a GPU an engine has taken up the adapter's weights as they were
    _check_names(made)
    return made


class _Base(NamedTuple):
    """A model with adapters, and the one that answers: itself, or a copy of its own."""

    model: Any
    tokenizer: Any
    sampler: Any


def base_of(part: PolicyPart) -> PolicyPart:
    """What policies must have in common to share a base."""
    return structs.replace(part, roles=(), learning_rate=None)


def _check_names(policies: Mapping[str, Policy]) -> None:
    """Calls say which policy answered, and tokens are trained by that name."""
    for name, policy in policies.items():
        other = policies.get(policy.engine.name)
        if policy.model is None and other is not None and other.model is not None:
            raise UsageError(
                f"[policies.{name}]: {policy.part.model} answers under the name {policy.engine.name!r}, which is "
                f"another policy's. Rename [policies.{policy.engine.name}]."
            )


def _is_spec(part: PolicyPart) -> bool:
    """Whether an engine is named, as on the command line, and no local model to train."""
    return is_engine(part.model)


def _elsewhere(name: str, part: PolicyPart) -> Engine:
    """An engine that is not trained from here; refused where it says that it cannot be reached."""
    if part.train != "frozen":
        raise UsageError(
            f"[policies.{name}]: {part.model} is not trained from here; its weights are elsewhere. "
            'Write train = "frozen", or name a local model.'
        )
    engine = make_engine(part.model)
    if (reach := getattr(engine, "reach", None)) is not None:
        try:
            asyncio.run(reach())
        except EngineError as error:
            raise UsageError(
                f"[policies.{name}]: {part.model} cannot be reached: {error}. Start the server, or name another: "
                f"--set policies.{name}.model=openai:MODEL@URL"
            ) from error
    return engine


def _servers(recipe: Recipe) -> Servers | None:
    """The vLLM servers that answer for policies, where there are such."""
    if not any((part.engine or "").startswith("vllm:") for part in recipe.policies.values()):
        return None
    from baton.learn.scale.served import Servers

    return Servers(recipe)


def _plays_ahead(recipe: Recipe) -> bool:
    """Whether this process plays with other weights than it trains at the time."""
    return bool(recipe.lag) and not recipe.scale.rollout_workers


def _make(
    recipe: Recipe,
    name: str,
    part: PolicyPart,
    roles: Sequence[str],
    load: Load,
    bases: Mapping[PolicyPart, _Base],
    *,
    plays: bool = False,
) -> Policy:
    overlap = _plays_ahead(recipe) and part.train != "frozen"
    if part.train == "lora":
        model, tokenizer, sampler = bases[base_of(part)]
        engine = TorchEngine(lora.Adapted(sampler, name), tokenizer, name=name)
    else:
        model, tokenizer = load(part)
        if plays and recipe.lag and part.train != "frozen":
            # As the sampler of a process that plays ahead itself: weights elsewhere in memory are rounded otherwise.
            model = copy.deepcopy(model)
        engine = TorchEngine(copy.deepcopy(model) if overlap else model, tokenizer, name=name)
        if not overlap:
            model = engine.model
    rate = recipe.train.learning_rate if part.learning_rate is None else part.learning_rate
    return Policy(
        name,
        part,
        roles,
        engine,
        model=model,
        tokenizer=tokenizer,
        learning_rate=None if plays else rate,
        apart=overlap,
    )
