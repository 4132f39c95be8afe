"""The Tinker protocol over HTTP: create a model, sample, forward_backward, optim_step, save, load.

A service that speaks it keeps base model, adapter and optimiser; the laptop keeps traces, credit and the loop. Spoken
is the protocol's JSON form, which Thinking Machines' SDK up to 0.24 and SkyRL's open server have in common; no SDK is
needed. Every request is answered by a promise, which is asked for until it is kept.

Invariant: what changes the model is never sent twice unless it is certain that it did not arrive, since gradients add
up; what only reads is tried again. The key is read from the environment, and is never written or logged.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from baton import __version__
from baton.engine.throttle import backoff_seconds, retry_after_seconds
from baton.errors import MissingExtraError, UsageError
from baton.team.protocol import EngineError

KEY: Final = "TINKER_API_KEY"
"""The environment variable that holds the key."""
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_EXCERPT = 300
_LOCAL = ("localhost", "127.0.0.1", "::1")


class ServicePatience(Struct, frozen=True, kw_only=True):
    """How long a service is waited for."""

    request_seconds: float = 60.0
    """For one exchange; promises are asked for longer."""
    promise_seconds: float = 3600.0
    """For what was promised: a large model may be loaded first."""
    retries: int = 5
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 20.0
    heartbeat_seconds: float = 10.0
    """A session that is not heard of for minutes is cleaned up by the service."""


class Offers(Struct, frozen=True, kw_only=True):
    """What a service says it has; None: it does not say."""

    models: tuple[str, ...] = ()
    losses: tuple[str, ...] | None = None
    clips: bool | None = None
    """Whether its optimiser scales gradients to a norm."""


class TinkerClient:
    """A session with a service. Threads may share it."""

    def __init__(self, url: str, patience: ServicePatience | None = None) -> None:
        try:
            import httpx
        except ImportError:
            raise MissingExtraError("the Tinker protocol", "http") from None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url!r} is not a service's address. Write tinker:http://HOST:8000, for one.")
        if parts.username or parts.password:
            raise UsageError(f"put the key in the environment variable {KEY}, not in the address.")
        key = os.environ.get(KEY)
        if key is None and parts.scheme == "https" and parts.hostname not in _LOCAL:
            raise UsageError(f"{url} wants a key, and the environment has none. Type: export {KEY}=...")
        self.url = url.rstrip("/")
        self.patience = patience or ServicePatience()
        self._http = httpx.Client(
            timeout=httpx.Timeout(self.patience.request_seconds, read=None),
            limits=httpx.Limits(max_connections=None),
            headers={"X-API-Key": key} if key else {},
        )
        self._session: str | None = None
        self._num_models = 0
        self._closed = threading.Event()

    # -- what there is --------------------------------------------------------------------------

    def offers(self) -> Offers:
        """What the service says of itself. Raises a UsageError where nobody answers, or refuses the key."""
        try:
            told = self._send("GET", "get_server_capabilities", None, again=True)
        except EngineError as error:
            raise UsageError(
                f"no service that speaks the Tinker protocol answers at {self.url}: {error}. Start it, or give another "
                'address: engine = "tinker:URL".'
            ) from None
        models = tuple(
            each.get("model_name") or ""
            for each in told.get("supported_models", ())
            if isinstance(each, dict)
        )
        schemas = self._schemas()
        if schemas is None:
            return Offers(models=models)
        losses = _at(schemas, "ForwardBackwardInput", "properties", "loss_fn", "enum")
        adam = _at(schemas, "AdamParams", "properties")
        return Offers(
            models=models,
            losses=tuple(losses) if isinstance(losses, list) else None,
            clips="grad_clip_norm" in adam if isinstance(adam, dict) else None,
        )

    def _schemas(self) -> Any:
        """The shapes of requests, where the service publishes them (servers made with FastAPI do)."""
        try:
            reply = self._http.get(f"{self.url}/openapi.json")
            return reply.json()["components"]["schemas"] if reply.status_code == 200 else None
        except Exception:  # it is no part of the protocol
            return None

    def session(self) -> str:
        """The session's name; begun by the first who asks, and kept alive from then on."""
        if self._session is None:
            body = {"tags": ["baton"], "user_metadata": None, "sdk_version": f"baton-{__version__}"}
            self._session = str(self._send("POST", "create_session", body, again=True)["session_id"])
            threading.Thread(target=self._beat, name="baton-tinker-heartbeat", daemon=True).start()
        return self._session

    def _beat(self) -> None:
        while not self._closed.wait(self.patience.heartbeat_seconds):
            try:
                self._http.post(
                    f"{self.url}/api/v1/session_heartbeat",
                    json={"session_id": self._session, "type": "session_heartbeat"},
                )
            except Exception:  # the next request says what is wrong
                continue

    def create_model(self, base: str, rank: int, seed: int) -> TinkerModel:
        """A new adapter of the base model, with an optimiser."""
        body = {
            "session_id": self.session(),
            "model_seq_id": self._num_models,
            "base_model": base,
            "lora_config": {"rank": rank, "seed": seed, "train_unembed": False, "train_mlp": True, "train_attn": True},
            "type": "create_model",
        }  # fmt: skip
        self._num_models += 1
        made = self._send("POST", "create_model", body, again=False)
        told = self.kept(made, f"a model over {base}")
        return TinkerModel(self, str(made.get("model_id") or told["model_id"]))

    def sample(self, path: str, prompt: Sequence[int], params: Mapping[str, Any], *, prompt_logprobs: bool = False) -> dict[str, Any]:  # fmt: skip  # noqa: E501
        """What the weights at this path say after a prompt."""
        body = {
            "model_path": path,
            "num_samples": 1,
            "prompt": _input(prompt),
            "sampling_params": dict(params),
            "prompt_logprobs": prompt_logprobs,
            "type": "sample",
        }
        return self.kept(self._send("POST", "asample", body, again=True), "an answer")

    # -- requests ---------------------------------------------------------------------------------

    def kept(self, promise: Mapping[str, Any], what: str) -> dict[str, Any]:
        """What was promised, waited for; a dropped connection is no loss, since a promise can be asked for again."""
        name = promise.get("request_id")
        if name is None:
            return dict(promise)
        until = time.monotonic() + self.patience.promise_seconds
        while time.monotonic() < until:
            told = self._send("POST", "retrieve_future", {"request_id": str(name)}, again=True, what=what)
            if told.get("type") != "try_again" and told.get("status") != "pending":
                if told.get("error"):
                    raise EngineError(f"the service failed at {what}: {_short(told['error'])}")
                return told
            time.sleep(0.05)
        raise EngineError(f"{what} was not ready within {self.patience.promise_seconds:g} s at {self.url}")

    def post(self, path: str, body: Mapping[str, Any], *, again: bool) -> dict[str, Any]:
        """One request. `again`: it may be sent a second time, since it changes nothing."""
        return self._send("POST", path, body, again=again)

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, *, again: bool, what: str | None = None
    ) -> dict[str, Any]:
        import httpx

        patience, said = self.patience, ""
        for attempt in range(patience.retries + 1):
            if attempt:
                time.sleep(
                    backoff_seconds(attempt - 1, patience.first_wait_seconds, patience.longest_wait_seconds)
                )
            try:
                reply = self._http.request(method, f"{self.url}/api/v1/{path}", json=body)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                said = f"cannot connect: {error}"  # nothing arrived, so it may be sent again
                continue
            except httpx.HTTPError as error:
                said = f"the connection was dropped: {error or type(error).__name__}"
                if again:
                    continue
                raise EngineError(
                    f"{path} at {self.url}: {said}. Whether it was carried out is not known, and twice would be wrong; "
                    "the last checkpoint is whole: go on from it with baton train --resume."
                ) from None
            if reply.status_code in (401, 403):
                raise UsageError(
                    f"{self.url} refuses the key ({reply.status_code}). Put the right one into the environment: "
                    f"export {KEY}=..."
                )
            if reply.status_code in _PASSING and (again or reply.status_code in (425, 429, 503)):
                said = f"{reply.status_code}: {_short(reply.text)}"
                if (wait := retry_after_seconds(reply.headers.get("retry-after"))) is not None:
                    time.sleep(min(wait, patience.longest_wait_seconds))
                continue
            return _read(reply, what or path)
        raise EngineError(f"{what or path}: {said}")

    def close(self) -> None:
        """End the session; what was saved stays at the service."""
        self._closed.set()
        self._http.close()


class TinkerModel:
    """One adapter at a service, and its optimiser."""

    def __init__(self, client: TinkerClient, model_id: str) -> None:
        self.client = client
        self.id = model_id
        self._seq = 0

    def forward(self, data: Sequence[Mapping[str, Any]]) -> list[list[float]]:
        """The log-probability of every target, of every datum."""
        return self._pass("forward", "forward_input", data, "cross_entropy", None)

    def forward_backward(
        self, data: Sequence[Mapping[str, Any]], loss: str, config: Mapping[str, float] | None = None
    ) -> list[list[float]]:
        """The same, and gradients are added to those that are there."""
        return self._pass("forward_backward", "forward_backward_input", data, loss, config)

    def _pass(
        self, path: str, name: str, data: Sequence[Mapping[str, Any]], loss: str, config: Mapping[str, float] | None
    ) -> list[list[float]]:  # fmt: skip
        given: dict[str, Any] = {"data": list(data), "loss_fn": loss}
        if config:
            given["loss_fn_config"] = dict(config)
        told = self._done(path, {name: given}, again=path == "forward")
        outputs = told.get("loss_fn_outputs") or []
        found = [_numbers(each.get("logprobs")) for each in outputs]
        if len(found) != len(data):
            raise EngineError(f"{path}: the service told of {len(found)} rows, and {len(data)} were sent.")
        return found

    def optim_step(self, adam: Mapping[str, float]) -> dict[str, float]:
        """Move the weights by the gradients, which are gone then. Returns what the service measured."""
        told = self._done("optim_step", {"adam_params": dict(adam), "type": "optim_step"}, again=False)
        return dict(told.get("metrics") or {})

    def save_state(self, name: str) -> str:
        """Keep weights and optimiser under a name; returns where they are."""
        body = {"path": name, "type": "save_weights"}
        return str(self._done("save_weights", body, again=False)["path"])

    def load_state(self, path: str) -> None:
        """Weights and optimiser as they were kept."""
        self._done("load_weights", {"path": path, "optimizer": True, "type": "load_weights"}, again=True)

    def save_sampler(self, name: str) -> str:
        """Weights to sample from, as they are; returns where they are."""
        body = {"path": name, "type": "save_weights_for_sampler"}
        return str(self._done("save_weights_for_sampler", body, again=False)["path"])

    def unload(self) -> None:
        """Let the service forget the model; what was kept stays."""
        self._done("unload_model", {"type": "unload_model"}, again=False)

    def _done(self, path: str, body: Mapping[str, Any], *, again: bool) -> dict[str, Any]:
        self._seq += 1
        sent = {"model_id": self.id, "seq_id": self._seq, **body}
        return self.client.kept(self.client.post(path, sent, again=again), path)


def datum(ids: Sequence[int], **per_token: Sequence[float]) -> dict[str, Any]:
    """A row as the protocol has it: from every id but the last, to the next one, with numbers for each target."""
    targets = list(map(int, ids[1:]))
    tensors = {
        name: {"data": list(map(float, each)), "dtype": "float32", "shape": [len(targets)]}
        for name, each in per_token.items()
    }
    return {
        "model_input": _input(ids[:-1]),
        "loss_fn_inputs": {
            "target_tokens": {"data": targets, "dtype": "int64", "shape": [len(targets)]},
            **tensors,
        },
    }


def _input(ids: Sequence[int]) -> dict[str, Any]:
    return {"chunks": [{"type": "encoded_text", "tokens": list(map(int, ids))}]}


def _numbers(tensor: Any) -> list[float]:
    data = tensor.get("data") if isinstance(tensor, dict) else None
    if not isinstance(data, list):
        raise EngineError("the service tells no log-probabilities of what it trained on.")
    return data


def _read(reply: Any, what: str) -> dict[str, Any]:
    try:
        told = reply.json()
    except ValueError:
        told = None
    if reply.status_code >= 400:
        detail = told.get("detail", told.get("error")) if isinstance(told, dict) else reply.text
        raise EngineError(f"the service refuses {what} ({reply.status_code}): {_short(detail)}")
    if not isinstance(told, dict):
        raise EngineError(f"{what}: the reply is no JSON object but {_short(reply.text)!r}")
    return told


def _short(text: Any) -> str:
    return " ".join(str(text).split())[:_EXCERPT]


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
