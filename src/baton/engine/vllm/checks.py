"""What a vLLM server is asked before it is believed: is it there, is it the model, and are its numbers the right ones.

Each finding is a `UsageError` of one line that ends with what to type.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from baton.engine.posting import NoAnswer
from baton.engine.vllm.bodies import ServedModel
from baton.engine.vllm.client import VllmClient
from baton.errors import UsageError, nearest
from baton.trace.records import Sampling

OLDEST = (0, 11)
FLAGS = "--enable-scale-out --logprobs-mode processed_logprobs"
_ROUNDING = 1e-6
_PROBE = "The quick 漢字, 42.5%\n\n  naïve 🙂 def f(x): return x; AA in the thin inn of their king"
_SPREAD = 256


class ServerFacts(Struct, frozen=True, kw_only=True):
    """What a server said of itself, and what it was found to do."""

    vllm: str
    """Its version."""
    model: ServedModel
    processed: bool
    """Whether its log-probabilities are of the distribution that was drawn from, after temperature and truncation."""


async def check_server(client: VllmClient, model: str, tokenizer: Any, *, source: str) -> ServerFacts:
    """Ask a server all of it. `source`: where the tokenizer came from, for the message."""
    served = await check_there(client)
    version = await _version(client)
    found = next((each for each in served if each.id == model), None)
    if found is None:
        raise unknown_model(client, model, served)
    await _check_vocabulary(client, model, tokenizer, source)
    await _check_tokenizer(client, model, tokenizer, source)
    return ServerFacts(vllm=version, model=found, processed=await _is_processed(client, model, tokenizer))


def unknown_model(client: VllmClient, model: str, served: Sequence[ServedModel]) -> UsageError:
    """That a server answers as others, and not as this one."""
    names = [each.id for each in served]
    return UsageError(
        f"the vLLM server at {client.url} has no model {model!r}. {nearest(model, names)} "
        f"Type: vllm:{names[0] if names else 'MODEL'}@{client.url}"
    )


async def check_there(client: VllmClient) -> tuple[ServedModel, ...]:
    """The models of a server that answers at all."""
    try:
        return await client.models()
    except NoAnswer as error:
        if error.status == 401:
            raise UsageError(
                f"the vLLM server at {client.url} wants a key. Type: export {client.key}=KEY"
            ) from None
        if error.status in (404, 405):
            raise UsageError(
                f"what answers at {client.url} is no vLLM server: {error}. Check the address and the port"
            ) from None
        raise UsageError(
            f"no vLLM server answers at {client.url}: {error} Type: vllm serve DIR {FLAGS}, or "
            "let Baton start one: vllm:local?model=DIR"
        ) from None


async def _version(client: VllmClient) -> str:
    try:
        told = await client.version()
    except NoAnswer as error:
        raise UsageError(f"what answers at {client.url} is no vLLM server: {error}") from None
    numbers = re.match(r"(\d+)\.(\d+)", told)
    if (
        numbers
        and (int(numbers[1]), int(numbers[2])) < OLDEST
        and (int(numbers[1]), int(numbers[2])) != (0, 0)
    ):
        raise UsageError(
            f"the server at {client.url} is vLLM {told}, which gives no token ids; expected "
            f"{'.'.join(map(str, OLDEST))} or newer. Type: pip install -U vllm"
        )
    return told


async def _check_vocabulary(client: VllmClient, model: str, tokenizer: Any, source: str) -> None:
    """The highest id of the tokenizer has to be one that the model reads."""
    highest = len(tokenizer) - 1
    try:
        await client.generate([highest], model=model, sampling=Sampling(max_tokens=1), seed=0)
    except NoAnswer as error:
        if error.status != 400 or "vocabulary" not in str(error):
            raise
        raise UsageError(
            f"the tokenizer in {source} has {len(tokenizer):,} ids, and {model} at {client.url} reads fewer: it is of "
            "another vocabulary. Give the served model's own: ?tokenizer=DIR"
        ) from None


async def _check_tokenizer(client: VllmClient, model: str, tokenizer: Any, source: str) -> None:
    """The same text has to be the same ids on both sides, marks of turns included, and ids from all over the vocabulary
    the same text; a server without a tokenizer cannot be asked."""
    text = _PROBE + "".join(map(str, tokenizer.all_special_tokens))
    some = list(range(0, len(tokenizer), -(-len(tokenizer) // _SPREAD)))
    try:
        theirs = await client.tokenize(text, model=model)
        said = await client.detokenize(some, model=model)
    except NoAnswer as error:
        if error.status in (400, 404, 405, 501):
            return
        raise
    ours = [int(each) for each in tokenizer.encode(text, add_special_tokens=False)]
    if said != tokenizer.decode(some):
        raise UsageError(
            f"the tokenizer in {source} is not the one of {model} at {client.url}: the same ids are another text there."
            " Give the served model's own: ?tokenizer=DIR"
        )
    if ours != theirs:
        at = next(
            (k for k, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
            min(len(ours), len(theirs)),
        )
        raise UsageError(
            f"the tokenizer in {source} is not the one of {model} at {client.url}: a text is {len(ours)} ids here and "
            f"{len(theirs)} there, and id {at} is another. Give the served model's own: ?tokenizer=DIR"
        )


async def _is_processed(client: VllmClient, model: str, tokenizer: Any) -> bool:
    """Where all but the likeliest token are cut off, that one is certain; before truncation it has the model's chance.

    After a few odd beginnings, as no model is certain of what follows all of them.
    """
    ids = tokenizer.encode(_PROBE, add_special_tokens=False)
    for prompt in (ids, ids[::-1], ids[: len(ids) // 2]):
        sampling = Sampling(top_k=1, max_tokens=1)
        told = await client.generate(prompt, model=model, sampling=sampling, seed=0)
        if not told.logprobs or told.logprobs[0] < -_ROUNDING:
            return False
    return True


def end_ids_of(tokenizer: Any, folder: Path | None) -> frozenset[int]:
    """Tokens that end a turn: the tokenizer's own, and those of the model's files beside it."""
    found = {tokenizer.eos_token_id} if isinstance(tokenizer.eos_token_id, int) else set()
    for name in ("generation_config.json", "config.json"):
        try:
            told = msgspec.json.decode(((folder or Path("/nowhere")) / name).read_bytes())
        except (OSError, msgspec.MsgspecError):
            continue
        given = told.get("eos_token_id") if isinstance(told, dict) else None
        found |= (
            {given} if isinstance(given, int) else {each for each in given or () if isinstance(each, int)}
        )
    return frozenset(found)
