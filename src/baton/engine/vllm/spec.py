"""From a specification to an engine: `vllm:MODEL@URL` for a server that is there, `vllm:local?model=DIR` for ours."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from baton.engine.model_places import check_dtype_name
from baton.engine.model_places import check_there as check_folder_there
from baton.engine.posting import Secret
from baton.engine.template import PlainTemplate, open_tokenizer
from baton.engine.vllm.checks import check_there, unknown_model
from baton.engine.vllm.client import KEY, VllmClient
from baton.engine.vllm.engine import VllmEngine
from baton.engine.vllm.local import LocalOptions, LocalServer
from baton.errors import UsageError

LOCAL = "local"
FORM = "vllm:MODEL@URL[?tokenizer=DIR&template=plain&key=ENVIRONMENT_VARIABLE] or vllm:local?model=DIR[&python=PATH]"
REMOTE_OPTIONS = ("tokenizer", "template", "key")
LOCAL_OPTIONS = ("model", "template", "python", "port", "seconds", "dtype", "args", "log")
OPTIONS = tuple(dict.fromkeys((*REMOTE_OPTIONS, *LOCAL_OPTIONS)))


def engine_of(
    place: str, given: Mapping[str, str], *, secret: Callable[[], Secret | None] | None = None
) -> VllmEngine:
    """An engine from what stands after `vllm:`, its options read. Other options than these are somebody else's."""
    plain = given.get("template")
    if plain not in (None, "plain"):
        raise UsageError(f"template {plain!r} is not known. Expected plain, or nothing for the model's own.")
    template = PlainTemplate() if plain else None
    if place == LOCAL:
        return _local(given, template)
    model, at, url = place.rpartition("@")
    if not at or not model:
        raise UsageError(f"'vllm:{place}' lacks a part. Type: {FORM}")
    _refuse(given, LOCAL_OPTIONS, REMOTE_OPTIONS, "a server that Baton starts: vllm:local?model=DIR")
    client = VllmClient(url, key=given.get("key", KEY), secret=secret)
    folder = Path(given["tokenizer"]) if "tokenizer" in given else _folder_of(client, model)
    check_folder_there(folder)
    return VllmEngine(
        client, model, open_tokenizer(folder, plain=bool(plain)), template=template, folder=folder
    )


def _local(given: Mapping[str, str], template: PlainTemplate | None) -> VllmEngine:
    _refuse(given, REMOTE_OPTIONS, LOCAL_OPTIONS, "a server that is there already: vllm:MODEL@URL")
    if "model" not in given:
        raise UsageError("vllm:local needs the folder of a model. Type: vllm:local?model=DIR")
    check_dtype_name(given.get("dtype"))
    dtype = ("--dtype", given["dtype"]) if "dtype" in given else ()
    options = LocalOptions(
        python=given.get("python", sys.executable),
        port=_number(given, "port", 65_535),
        seconds=_number(given, "seconds", 86_400) or LocalOptions().seconds,
        args=(*dtype, *shlex.split(given.get("args", ""))),
        log=Path(given["log"]) if "log" in given else None,
    )
    server = LocalServer(given["model"], options)
    tokenizer = open_tokenizer(server.folder, plain=template is not None)
    return VllmEngine(
        # Until it is started it has no port.
        VllmClient("http://127.0.0.1:1"),
        server.model,
        tokenizer,
        template=template,
        folder=server.folder,
        server=server,
    )


def _refuse(given: Mapping[str, str], wrong: tuple[str, ...], right: tuple[str, ...], where: str) -> None:
    for name in given:
        if name in wrong and name not in right:
            raise UsageError(f"{name} is for {where}")


def _number(given: Mapping[str, str], name: str, most: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise UsageError(f"{name} is {text!r}; expected a whole number from 1 to {most}.")
    return int(text)


def _folder_of(client: VllmClient, model: str) -> Path:
    """Where a server on this machine has its model from; asked at once, as contexts are encoded before calls are."""

    async def asked() -> Path | None:
        try:
            served = await check_there(client)
        finally:
            await client.close()
        by_name = {each.id: each for each in served}
        if model not in by_name:
            raise unknown_model(client, model, served)
        found = by_name[model]
        while found.parent is not None and found.parent in by_name:
            found = by_name[found.parent]  # an adapter reads its model's ids
        return Path(found.root) if found.root else None

    with ThreadPoolExecutor(1) as thread:  # whoever makes an engine may be in a loop already
        folder = thread.submit(asyncio.run, asked()).result()
    if folder is None or not folder.is_dir():
        raise UsageError(
            f"the tokenizer of {model!r} at {client.url} is not on this machine. Give its folder: "
            f"vllm:{model}@{client.url}?tokenizer=DIR"
        )
    return folder
