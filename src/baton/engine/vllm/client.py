"""A vLLM server's protocol: token ids in, token ids out, and the handles for adapters and weights.

Completions come from `/inference/v1/generate` (a server started with `--enable-scale-out`), which says which weights
drew which tokens; a server without that path is asked at `/v1/completions`. The same request with the same seed is
the same draw, so what passes by itself is tried again. Pausing, weights and `/collective_rpc` are vLLM's development
mode (`VLLM_SERVER_DEV_MODE=1`): nothing guards those paths, so such a server stays on its own machine.

Every failure is a `NoAnswer` in one sentence. The key is read from an environment variable for each request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct

from baton.engine.openai import ServerLimits
from baton.engine.posting import NoAnswer, Poster, Secret, check_address, read_json, secret_in
from baton.engine.vllm.bodies import (
    Generated,
    ServedModel,
    read_completion,
    read_models,
    read_scores,
    read_tokens,
)
from baton.trace.records import Floats, Ints, Sampling

T = TypeVar("T")
KEY = "VLLM_API_KEY"
FORM = "vllm:MODEL@URL"
MOST_ALTERNATIVES = 20
"""What vLLM's `--max-logprobs` is unless somebody says otherwise."""
_TOKENS = "/inference/v1/generate"
_TEXT = "/v1/completions"


class TaggedJson(Struct, frozen=True, kw_only=True):
    """JSON of a schema between two texts."""

    begin: str
    json_schema: Mapping[str, Any]
    end: str


class Constraint(Struct, frozen=True, kw_only=True):
    """What a completion has to be; the server masks every token that would not fit while it draws."""

    json_schema: Mapping[str, Any] | None = None
    json: bool = False
    """Any JSON object."""
    regex: str | None = None
    one_of: tuple[TaggedJson, ...] = ()
    """JSON of one of these schemas, with fixed text around it."""


class VllmClient:
    """One server. Any number of requests at once, on any number of event loops."""

    def __init__(
        self,
        url: str,
        *,
        key: str = KEY,
        secret: Callable[[], Secret | None] | None = None,
        limits: ServerLimits | None = None,
    ) -> None:
        """`url` is the server's, with or without `/v1`; `key` an environment variable; `secret` finds the key of one
        request elsewhere."""
        self.url = check_address(url, FORM).removesuffix("/v1")
        self.key = key
        self._secret = secret or (lambda: secret_in(key))
        self._poster = Poster(limits or ServerLimits(timeout_seconds=600.0, retries=2, max_concurrent=256))
        self._knows_tokens = True

    async def generate(
        self,
        token_ids: Sequence[int],
        *,
        model: str,
        sampling: Sampling,
        seed: int,
        ends: Sequence[int] = (),
        alternatives: int = 0,
        constraint: Constraint | None = None,
    ) -> Generated:
        """One completion of `token_ids` by a model or adapter of this name.

        `ends`: tokens that end it beside the one that the server knows; the one that did is the completion's last.
        """
        params = _params(sampling, seed, alternatives) | ({"stop_token_ids": list(ends)} if ends else {})
        if self._knows_tokens and alternatives < MOST_ALTERNATIVES:
            body: dict[str, Any] = {"token_ids": _listed(token_ids), "model": model}
            # Of as many as are asked for, this path tells the drawn one first and leaves another out.
            more = {"logprobs": alternatives + 1} if alternatives else {}
            body["sampling_params"] = params | _structured(constraint) | more
            try:
                return await self._draw(
                    _TOKENS, body, lambda told: read_tokens(told, alternatives=alternatives)
                )
            except NoAnswer as error:
                if not _is_unknown_path(error):
                    raise
            self._knows_tokens = False
        body = {"prompt": _listed(token_ids), "model": model, "return_token_ids": True, **params}
        body |= {"return_tokens_as_token_ids": True} | _structured(constraint)
        return await self._draw(_TEXT, body, lambda told: read_completion(told, alternatives=alternatives))

    async def score(self, token_ids: Sequence[int], *, model: str) -> Floats:
        """The model's own log-probability (temperature 1, nothing cut off) of each token but the first."""
        listed = _listed(token_ids)
        params = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
        if self._knows_tokens:
            body: dict[str, Any] = {"token_ids": listed, "model": model, "sampling_params": params}
            try:
                return await self._draw(_TOKENS, body, lambda told: read_scores(told, listed))
            except NoAnswer as error:
                if not _is_unknown_path(error):
                    raise
            self._knows_tokens = False
        body = {"prompt": listed, "model": model, "return_token_ids": True, **params}
        return await self._draw(_TEXT, body, lambda told: read_scores(told, listed))

    async def models(self) -> tuple[ServedModel, ...]:
        """What the server answers with: its model and the adapters that are loaded."""
        return read_models(await self.get("/v1/models"))

    async def version(self) -> str:
        """Which vLLM it is."""
        return str((await self.get("/version")).get("version"))

    async def tokenize(self, text: str, *, model: str) -> list[int]:
        """The ids that the server's tokenizer makes of a text, without marks around it."""
        body = {"model": model, "prompt": text, "add_special_tokens": False}
        told = await self._draw("/tokenize", body, dict)
        return [int(each) for each in told.get("tokens") or ()]

    async def detokenize(self, token_ids: Sequence[int], *, model: str) -> str:
        """What the server's tokenizer makes of ids, marks included."""
        told = await self._draw("/detokenize", {"model": model, "tokens": _listed(token_ids)}, dict)
        return str(told.get("prompt"))

    # Adapters. A name is for good: one that is loaded again from the same path would serve what it computed before.

    async def load_adapter(self, name: str, path: str) -> None:
        """Load the adapter of a folder on the server's machine."""
        await self._change("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})

    async def unload_adapter(self, name: str) -> None:
        """Let go of an adapter; calls that are being answered with it end well."""
        await self._change("/v1/unload_lora_adapter", {"lora_name": name})

    # Weights in place: vLLM's development mode.

    async def pause(self, mode: Literal["keep", "wait", "abort"] = "keep") -> None:
        """Stop drawing tokens: hold what is being answered, wait for it, or break it off."""
        await self.post(f"/pause?mode={mode}", {})

    async def resume(self) -> None:
        await self.post("/resume", {})

    async def paused(self) -> bool:
        return bool((await self.get("/is_paused")).get("is_paused"))

    async def weight_version(self) -> str:
        """What the server calls its weights; `default` until somebody names them."""
        return str((await self.get("/weight_info")).get("weight_version"))

    async def name_weights(self, version: str) -> None:
        """Call the weights as they are `version` from here on."""
        await self.post("/update_weight_version", {"new_version": version})

    async def checksums(self) -> dict[str, str]:
        """A checksum of each of the server's tensors, as far as vLLM has them under a name."""
        told = await self.post("/weight_checker", {"action": "checksum"})
        return dict(told.get("checksums") or {})

    async def forget_prefixes(self) -> None:
        """Drop every computed prefix."""
        await self._change("/reset_prefix_cache", {})

    async def call_workers(self, method: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """Call a method of the server's workers, and give what each returned."""
        body = {"method": method, "args": list(args), "timeout": timeout}
        return list((await self.post("/collective_rpc", body)).get("results") or ())

    # Any other path, for what is built on this.

    async def get(self, path: str) -> Any:
        """The JSON object at a path."""
        return await self._poster.get(f"{self.url}{path}", secret=self._secret())

    async def post(self, path: str, body: Mapping[str, Any], *, seconds: float | None = None) -> Any:
        """The JSON object that a path answers. Asked once: what changes a server must not happen twice."""
        return await self._poster.post(
            f"{self.url}{path}",
            body,
            secret=self._secret(),
            read=read_json,
            retries=0,
            seconds=seconds,
        )

    async def close(self) -> None:
        """Close this event loop's connections."""
        await self._poster.close()

    async def _draw(self, path: str, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        """What `read` makes of the answer's JSON. Asked again where that may help: the seed makes it the same draw."""
        return await self._poster.post(
            f"{self.url}{path}",
            body,
            secret=self._secret(),
            read=lambda raw, kind: read(read_json(raw, kind)),
        )

    async def _change(self, path: str, body: Mapping[str, Any]) -> None:
        """Ask once for something whose answer is no JSON."""
        await self._poster.post(
            f"{self.url}{path}", body, secret=self._secret(), read=lambda *_: None, retries=0
        )


def _params(sampling: Sampling, seed: int, alternatives: int) -> dict[str, Any]:
    params: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": seed,
        "logprobs": alternatives,
    }
    if sampling.top_k is not None:
        params["top_k"] = sampling.top_k
    if sampling.max_tokens is not None:
        params["max_tokens"] = sampling.max_tokens
    if sampling.stop:
        params["stop"] = list(sampling.stop)
    return params


def _structured(constraint: Constraint | None) -> dict[str, Any]:
    if constraint is None:
        return {}
    if constraint.json_schema is not None:
        return {"structured_outputs": {"json": constraint.json_schema}}
    if constraint.regex is not None:
        return {"structured_outputs": {"regex": constraint.regex}}
    if constraint.one_of:
        return {"structured_outputs": {"structural_tag": json.dumps(_tags(constraint.one_of))}}
    return {"structured_outputs": {"json_object": True}} if constraint.json else {}


def _tags(one_of: Sequence[TaggedJson]) -> dict[str, Any]:
    """In XGrammar's words, which vLLM passes on."""
    elements = [
        {
            "type": "tag",
            "begin": each.begin,
            "content": {"type": "json_schema", "json_schema": each.json_schema},
            "end": each.end,
        }
        for each in one_of
    ]
    return {"type": "structural_tag", "format": {"type": "or", "elements": elements}}


def _is_unknown_path(error: NoAnswer) -> bool:
    """A path that the server does not have; one that it has says which model it lacks."""
    return error.status == 405 or (error.status == 404 and "Not Found" in str(error))


def _listed(token_ids: Sequence[int]) -> list[int]:
    return token_ids.numpy().tolist() if isinstance(token_ids, Ints) else list(token_ids)
