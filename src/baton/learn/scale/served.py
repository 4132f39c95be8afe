"""Policies that are trained here and answered by vLLM servers: `engine = "vllm:local"` or `"vllm:URL"`.

The model is loaded here to be trained, and served there; `baton.engine.vllm.trained` pushes and verifies. Adapters over
one base share a server. A server of our own (`vllm:local`) is started on a folder with the weights of the beginning,
and started again where it dies.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import torch
from numpy.typing import NDArray

from baton.engine.posting import NoAnswer
from baton.engine.torch.engine import turn
from baton.engine.vllm.client import VllmClient
from baton.engine.vllm.engine import VllmEngine
from baton.engine.vllm.local import LocalOptions, LocalServer
from baton.engine.vllm.plugin_folder import SERVER_ARGUMENTS, SERVER_ENVIRONMENT, write_plugin
from baton.engine.vllm.trained import AdapterEngine, FullEngine, Host, TrainedEngine, Updates
from baton.engine.vllm.weights import WAYS, Transfer, Way, write_tensors
from baton.engine.vllm.weights_probe import Probe, Score
from baton.errors import UsageError, nearest
from baton.learn import lora
from baton.learn.options import Asked
from baton.learn.policy import Load, Policy, base_of
from baton.learn.recipe import PolicyPart, Recipe
from baton.learn.scale.workers_scratch import make_scratch
from baton.team.protocol import EngineError

_LOCAL = "local"
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that a server can be started for."""
_HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
_PREFIX = "baton-vllm-"
_PUSHED_SECONDS = 60.0
"""After a server was started again, until it has what was pushed before."""
_OPTIONS = {
    _LOCAL: ("python", "transfer", "args", "seconds", "log"),
    "URL": ("model", "transfer", "shared", "address", "dtype"),
}


class EngineSpec(NamedTuple):
    """`vllm:local?python=…` or `vllm:URL?shared=…`, read."""

    url: str | None
    """None: a server of our own."""
    options: dict[str, str]

    @property
    def way(self) -> Way:
        return cast(Way, self.options.get("transfer", "file"))


def read_spec(policy: str, spec: str) -> EngineSpec:
    """The settings in a policy's `engine`; one line where they cannot be."""
    form = 'vllm:local or vllm:URL, such as engine = "vllm:http://127.0.0.1:8000"'
    where, _, query = spec.removeprefix("vllm:").partition("?")
    options = dict(parse_qsl(query))
    if where != _LOCAL and urlsplit(where).scheme not in ("http", "https"):
        raise UsageError(f"[policies.{policy}]: engine is {spec!r}; expected {form}.")
    known = _OPTIONS[_LOCAL if where == _LOCAL else "URL"]
    for name in options:
        if name not in known:
            raise UsageError(f"[policies.{policy}]: engine has no option {name!r}. {nearest(name, known)}")
    if (way := options.get("transfer", "file")) not in WAYS:
        raise UsageError(f"[policies.{policy}]: weights do not go by {way!r}. {nearest(way, WAYS)}")
    url = None if where == _LOCAL else where
    if url is not None and not _is_here(url) and "shared" not in options:
        raise UsageError(
            f"[policies.{policy}]: {url} is on another machine, which reads weights from a folder that both see. "
            f"Name it: "
            f'engine = "{spec}{"&" if query else "?"}shared=DIR"'
        )
    return EngineSpec(url, options)


def check_served(recipe: Recipe, *, options: bool, asks_options: Sequence[str] = ()) -> None:
    """Refuse what a served policy cannot be. `options`: the task names the answers that there are; `asks_options`:
    estimators that ask for their chances."""
    served = {name: part for name, part in recipe.policies.items() if _is_served(part)}
    full: dict[str, str] = {}
    for name, part in served.items():
        spec = read_spec(name, part.engine or "")
        if part.train == "frozen":
            raise UsageError(
                f"[policies.{name}] is frozen, and engine is of policies that are trained. Leave engine out, or ask "
                f"the "
                f'server as it is: model = "vllm:MODEL@URL".'
            )
        if spec.url is not None and (part.train == "full" or spec.url in full):
            other = full.get(spec.url) or next(
                (each for each, p in served.items() if each != name and _url(each, p) == spec.url), None
            )
            if other is not None:
                raise UsageError(
                    f"[policies.{name}] and [policies.{other}] push to one server, {spec.url}, and all weights of it "
                    f"are "
                    'one policy\'s. Give each a server of its own, or write train = "lora" for both.'
                )
            full[spec.url] = name
    if recipe.scale.updates == "in-flight":
        _check_in_flight(recipe, served, asks_options)
    if served and recipe.scale.rollout_workers:
        _check_workers(recipe, served)
    asks_server = recipe.lag or recipe.scale.rollout_workers
    if served and options and asks_server and recipe.team.temperature != 1.0:
        raise UsageError(
            f"team.temperature is {recipe.team.temperature:g}, and with a lag or rollout workers the chances of "
            "options are asked of the vLLM server, which tells them at temperature 1 alone. Set temperature to 1, or "
            "scale.lag and scale.rollout_workers to 0."
        )


def _check_workers(recipe: Recipe, served: Mapping[str, PolicyPart]) -> None:
    """What rollout workers, which play several steps at once, cannot ask of a server."""
    for name, part in served.items():
        if recipe.lag and part.train == "full":
            raise UsageError(
                f"[policies.{name}]: a server has one version of full weights at a time, and rollout workers play the "
                f'steps of scale.lag = {recipe.lag} by several. Write train = "lora", whose versions are apart there; '
                "or leave lag or rollout_workers out."
            )
        elsewhere = recipe.scale.workers == "ray" and recipe.scale.address is not None
        if elsewhere and read_spec(name, part.engine or "").url is None:
            raise UsageError(
                f"[policies.{name}]: a server that Baton starts listens to this machine alone, and the workers of "
                f"{recipe.scale.address} may be on others. Start one that all of them reach: "
                'engine = "vllm:http://HOST:8000?shared=DIR"'
            )


def _check_in_flight(recipe: Recipe, served: Mapping[str, PolicyPart], asking: Sequence[str]) -> None:
    if not any(part.train == "full" for part in served.values()):
        raise UsageError(
            'scale.updates = "in-flight" is of full weights that are pushed to a vLLM server while it answers; '
            "versions of "
            'adapters are apart there. Leave it out, or write train = "full" and engine = "vllm:local".'
        )
    if not recipe.lag:
        raise UsageError(
            'scale.updates = "in-flight" pushes weights while rollouts are played, and scale.lag is 0, so that none '
            "are. "
            "Set scale.lag to 1 or more, or leave updates out."
        )
    if asking or recipe.train.options == "all":
        who = f"estimator {asking[0]}" if asking else 'train.options = "all"'
        raise UsageError(
            f'{who} asks for the chances of options by the weights that drew, and with scale.updates = "in-flight" '
            f"those are "
            'gone by then. Leave updates out, or take credit on turns or agents, such as estimator = "group".'
        )


class Servers:
    """The servers of a run, by who shares them."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._hosts: dict[Any, tuple[Host, str, Path]] = {}
        self._names = _names_at(recipe)

    def prepare(self, key: Any, part: PolicyPart, names: Sequence[str], model: Any, tokenizer: Any) -> None:
        """A server for these policies, before adapters are put into the model."""
        spec = read_spec(names[0], part.engine or "")
        shared, held = spec.options.get("shared"), None
        folder = Path(shared or tempfile.gettempdir())
        try:
            if shared is None:  # who is killed leaves a copy of the model, which the next run takes away
                folder, held = make_scratch(_PREFIX)
            else:
                folder.mkdir(parents=True, exist_ok=True)
                folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        except OSError as error:
            raise UsageError(
                f"[policies.{names[0]}]: {folder} cannot be written: {error.strerror or error}. Name another: "
                f"shared=DIR"
            ) from None
        keep = self.keep * len(names)
        try:
            if spec.url is None:
                self._hosts[key] = _local(part, spec, folder, model, tokenizer, num_adapters=keep)
            else:
                client = VllmClient(spec.url)
                served = spec.options.get("model") or self._names[spec.url]
                self._hosts[key] = (Host(client, folder), served, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            if held is not None:
                held.close()
            raise
        # Not at `close`, after which a run may still be looked at: with the last who holds the server.
        weakref.finalize(self._hosts[key][0], shutil.rmtree, folder, ignore_errors=True)
        if held is not None:
            weakref.finalize(self._hosts[key][0], held.close)

    @property
    def keep(self) -> int:
        """Versions of an adapter that plays may need: those within the lag, that of now, and one that is being
        pushed."""
        return self._recipe.lag + 2

    def policy(
        self, name: str, part: PolicyPart, roles: Sequence[str], load: Load, base: tuple[Any, Any, Any] | None
    ) -> Policy:
        """A policy that is trained here; `base` is the model with its adapter, where it has one."""
        recipe = self._recipe
        key: Any = base_of(part) if part.train == "lora" else name
        if base is None:
            model, tokenizer = load(part)
            self.prepare(key, part, [name], model, tokenizer)
        else:
            model, tokenizer, _ = base
        rate = recipe.train.learning_rate if part.learning_rate is None else part.learning_rate
        engine = self.engine(key, name, part, model, tokenizer)
        made = Policy(
            name, part, roles, engine, model=model, tokenizer=tokenizer, learning_rate=rate, apart=True
        )
        if recipe.scale.updates != "in-flight":  # there nobody knows the weights of before any more
            # Strictly on-policy the weights here are those that answered; with a lag they are further on.
            made.chances = (lambda: ServedOptions(engine)) if recipe.lag else (lambda: made.current)
        return made

    def engine(self, key: Any, name: str, part: PolicyPart, model: Any, tokenizer: Any) -> TrainedEngine:
        """Who answers for one policy, with its model as it is trained here."""
        host, served, folder = self._hosts[key]
        spec = read_spec(name, part.engine or "")
        config = folder / "model" if spec.url is None else None
        asks = VllmEngine(host.client, served, tokenizer, name=name, version="(not pushed)", folder=config)
        adapted = lora.Adapted(model, name) if part.train == "lora" else model
        probe = Probe(
            _score(adapted),
            vocabulary=min(len(tokenizer), model.config.vocab_size),
            context=int(getattr(model.config, "max_position_embeddings", 0) or 64),
            dtype=spec.options.get("dtype") or str(model.dtype).removeprefix("torch."),
        )
        if part.train == "lora":
            return AdapterEngine(host, asks, probe, alpha=2 * part.rank, keep=self.keep)
        transfer = Transfer(host.client, spec.way, folder, address=spec.options.get("address", "127.0.0.1"))
        updates: Updates = self._recipe.scale.updates
        return FullEngine(host, asks, probe, transfer, updates=updates)


def pushed_weights(model: Any, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What of a model's weights is sent: a weight that two layers share goes once, as it is in a checkpoint."""
    once = {name for name, _ in model.named_parameters()}
    twice = {name for name, _ in model.named_parameters(remove_duplicate=False)} - once
    return {name: tensor for name, tensor in state.items() if name not in twice}


class Scores(Protocol):
    """Who asks a server for log-probabilities."""

    def score_all(self, texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
        """The log-probability of each completion after its prompt, at temperature 1."""
        ...


class ServedOptions:
    """Chances of options, asked of the server that answered: in the place of a model (`baton.learn.options`)."""

    def __init__(self, engine: Scores) -> None:
        self._engine = engine

    def option_chances(self, tokenizer: Any, asked: Sequence[Asked]) -> dict[Asked, tuple[float, ...]]:
        """As `options.option_chances` computes them: of whole answers, given that one of them is said."""
        texts: list[tuple[list[int], list[int]]] = []
        for _, prompt, options, temperature in asked:
            if temperature != 1.0:
                raise UsageError(
                    f"the vLLM server tells the chances of options at temperature 1, and {temperature:g} was drawn "
                    f"at. Set "
                    "team.temperature to 1, or scale.lag to 0."
                )
            ids = np.frombuffer(prompt, np.int32).tolist()
            for option in options:
                said = [*tokenizer.encode(option, add_special_tokens=False), tokenizer.eos_token_id]
                texts.append((ids, said))
        sums = iter(self._engine.score_all(texts))
        found: dict[Asked, tuple[float, ...]] = {}
        for each in asked:
            logs = np.array([next(sums) for _ in each.options])
            weights = np.exp(logs - logs.max())
            found[each] = tuple((weights / weights.sum()).tolist())
        return found


def _is_served(part: PolicyPart) -> bool:
    return part.engine is not None and part.engine.startswith("vllm:")


def _url(name: str, part: PolicyPart) -> str | None:
    return read_spec(name, part.engine or "").url


def _is_here(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def _score(model: Any) -> Score:
    """The trainer's own log-probabilities, by the model's plain forward."""

    @torch.no_grad()
    def score(ids: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        given = torch.tensor([list(ids)], device=model.device)
        with turn(model.device):
            rows = torch.log_softmax(model(input_ids=given, use_cache=False).logits[0].double(), -1).cpu()
        return rows[torch.arange(len(ids) - 1), given[0, 1:].cpu()].numpy(), rows[-1].numpy()

    return score


def _names_at(recipe: Recipe) -> dict[str, str]:
    """What servers that are there call their models. Asked before the first weights are made, which may take long."""
    found: dict[str, str] = {}
    for name, part in recipe.policies.items():
        if _is_served(part) and (url := _url(name, part)) is not None and url not in found:
            found[url] = _served_name(name, VllmClient(url))
    return found


def _served_name(policy: str, client: VllmClient) -> str:
    """What a server calls its model."""

    async def ask() -> list[str]:
        try:
            return [each.id for each in await client.models() if each.parent is None]
        finally:
            await client.close()

    try:
        names = asyncio.run(ask())
    except EngineError as error:
        strange = isinstance(error, NoAnswer) and error.status not in (401, 403, 502, 503, 504)
        who = "what answers" if strange else "no vLLM server answers"
        why = "is no vLLM server: it has no /v1/models." if strange else f"{str(error).rstrip('.?')}."
        raise UsageError(
            f"[policies.{policy}]: {who} at {client.url}{' ' if strange else ': '}{why} Start one (python -m "
            'baton.engine.vllm.plugin_folder DIR says how), or let Baton: engine = "vllm:local".'
        ) from None
    if not names:
        raise UsageError(f"[policies.{policy}]: the server at {client.url} has no model.")
    return names[0]


def _local(
    part: PolicyPart, spec: EngineSpec, folder: Path, model: Any, tokenizer: Any, *, num_adapters: int
) -> tuple[Host, str, Path]:
    """A server of our own on these weights; it is started when they are first pushed."""
    check_heads(model)
    place = folder / "model"
    write_tensors(place / "model.safetensors", pushed_weights(model, model.state_dict()))
    model.config.save_pretrained(place)
    tokenizer.save_pretrained(place)
    if (generation := getattr(model, "generation_config", None)) is not None:
        generation.save_pretrained(place)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    args = ["--dtype", str(model.dtype).removeprefix("torch."), *SERVER_ARGUMENTS]
    if part.train == "lora":
        rank = next((each for each in _RANKS if each >= part.rank), _RANKS[-1])
        args += ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", str(num_adapters)]
    if model.device.type == "cuda":  # the trainer needs its part of the card
        args += ["--gpu-memory-utilization", "0.4"]
    server = LocalServer(
        place,
        LocalOptions(
            python=spec.options.get("python") or sys.executable,
            port=port,
            seconds=float(spec.options.get("seconds") or 300),
            args=(*args, *(spec.options.get("args") or "").split()),
            env={**SERVER_ENVIRONMENT, "PYTHONPATH": str(write_plugin(folder / "plugin"))},
            log=Path(spec.options["log"]) if "log" in spec.options else folder / "server.log",
        ),
    )
    host = Host(
        VllmClient(f"http://127.0.0.1:{port}"),
        folder,
        start_again=_starting(server),
        close=server.close,
        seconds=server.options.seconds + _PUSHED_SECONDS,
    )
    return host, server.model, folder


def check_heads(model: Any) -> None:
    """vLLM's CPU build attends with heads of some sizes only, and ends at the first call where it has none of that."""
    config = model.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if model.device.type == "cpu" and size not in _HEADS:
        raise UsageError(
            f"the model has heads of {size}, and vLLM's CPU build attends with {', '.join(map(str, _HEADS))}. Take "
            f"another "
            "model; of tiny, set policies.NAME.tiny.width to 32 times policies.NAME.tiny.heads (96 and 3, for one)."
        )


def _starting(server: LocalServer) -> Callable[[], bool]:
    def start_again() -> bool:
        if server.alive():
            return False
        server.close()
        server.start()
        return True

    return start_again
