"""A MOCK of a service that speaks the Tinker protocol, at its outermost edge: HTTP and JSON.

Nothing of Baton's client is in it. What it computes is real: a small causal LM with LoRA adapters, gradients by
autograd over each row by itself, AdamW, sampling from seeds. How rows add up, whether it clips, what it publishes of
itself, and what goes wrong are settings. The protocol's own server, SkyRL's, is run by `make test-tinker`.
"""

from __future__ import annotations

import copy
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from baton.learn import lora

ALPHA = 32


class MockService:
    """The service's state. `at` is its address while it runs."""

    def __init__(
        self,
        model: Any,
        base: str,
        *,
        means: bool = False,
        clips: bool = True,
        publishes: bool = True,
        losses: tuple[str, ...] = ("cross_entropy", "importance_sampling", "ppo", "cispo"),
        key: str | None = None,
        tells_norm: bool = True,
    ) -> None:
        self.base_model, self.base = model, base
        self.means, self.clips, self.publishes, self.losses = means, clips, publishes, losses
        self.key, self.tells_norm = key, tells_norm
        self.models: dict[str, dict[str, Any]] = {}
        self.states: dict[str, Any] = {}
        self.samplers: dict[str, Any] = {}
        self.promises: dict[str, Any] = {}
        self.asked: list[str] = []
        """Every path that was asked for, in order."""
        self.drop: dict[str, int] = {}
        """Path -> how many of the next requests lose their connection before a reply, AFTER being carried out."""
        self.stale_samplers = False
        """Save samplers of the weights before, as a service would whose push failed silently."""
        self.off_by = 0.0
        """Added to every sampled log-probability."""
        self._lock = threading.Lock()
        self._num_models, self._newest = 0, ""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.at = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> MockService:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def weights(self, number: int = -1) -> dict[str, torch.Tensor]:
        """The adapter of the newest model."""
        return lora.adapter_state_dict(list(self.models.values())[number]["model"], "a")

    def handled(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            self.asked.append(path)
            if path == "create_session":
                return 200, {"session_id": "session_1"}
            if path == "session_heartbeat":
                return 200, {"type": "session_heartbeat"}
            if path == "retrieve_future":
                status, told = self.promises[body["request_id"]]
                return status, told
            method = getattr(self, f"_{path}", None)
            if method is None:
                return 404, {"detail": "Not Found"}
            try:
                done = 200, method(body)
            except KeyError as error:
                done = 404, {"detail": f"Checkpoint not found: {error}"}
            except Exception as error:
                done = 400, {"detail": str(error)}
            name = f"{len(self.promises)}"
            self.promises[name] = done
            return 200, {"request_id": name, "model_id": body.get("model_id") or self._newest}

    def _create_model(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["base_model"] != self.base:
            raise ValueError(f"no base model {body['base_model']}")
        config = body["lora_config"]
        model = copy.deepcopy(self.base_model)
        lora.attach(model, ["a"], config["rank"], ALPHA, seed=config["seed"])
        name = self._newest = f"m{self._num_models}"
        self._num_models += 1
        parameters = lora.parameters_of(model, "a")
        optimizer = torch.optim.AdamW(parameters, lr=0.0)
        self.models[name] = {"model": model, "optimizer": optimizer, "rows": 0, "before": None}
        return {"model_id": name}

    def _unload_model(self, body: dict[str, Any]) -> dict[str, Any]:
        del self.models[body["model_id"]]
        return {"type": "unload_model"}

    def _logprobs(self, model: Any, datum: dict[str, Any]) -> torch.Tensor:
        ids = [token for chunk in datum["model_input"]["chunks"] for token in chunk["tokens"]]
        targets = datum["loss_fn_inputs"]["target_tokens"]["data"]
        with lora.use(model, "a"):
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        return logits.float().log_softmax(-1).gather(-1, torch.tensor(targets)[:, None])[:, 0]

    def _forward(self, body: dict[str, Any]) -> dict[str, Any]:
        model = self.models[body["model_id"]]["model"]
        with torch.no_grad():
            found = [self._logprobs(model, each) for each in body["forward_input"]["data"]]
        return _output(found)

    def _forward_backward(self, body: dict[str, Any]) -> dict[str, Any]:
        state, given = self.models[body["model_id"]], body["forward_backward_input"]
        if given["loss_fn"] not in self.losses:
            raise ValueError(f"loss {given['loss_fn']} is not offered")
        found = []
        for each in given["data"]:
            new = self._logprobs(state["model"], each)
            tensors = {name: torch.tensor(t["data"]) for name, t in each["loss_fn_inputs"].items()}
            loss = _loss(given["loss_fn"], new, tensors, given.get("loss_fn_config") or {}).sum()
            with lora.use(state["model"], "a"):
                (loss / len(new) if self.means else loss).backward()
            state["rows"] += 1
            found.append(new.detach())
        return _output(found)

    def _optim_step(self, body: dict[str, Any]) -> dict[str, Any]:
        state, adam = self.models[body["model_id"]], body["adam_params"]
        parameters = lora.parameters_of(state["model"], "a")
        if self.means:
            for each in parameters:
                each.grad = None if each.grad is None else each.grad / state["rows"]
        limit = adam.get("grad_clip_norm", 0.0) if self.clips else 0.0
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, limit or 1e30))
        state["before"] = self.weights()
        (group,) = state["optimizer"].param_groups
        group |= {
            "lr": adam["learning_rate"], "betas": (adam["beta1"], adam["beta2"]), "eps": adam["eps"],
            "weight_decay": adam["weight_decay"],
        }  # fmt: skip
        state["optimizer"].step()
        state["optimizer"].zero_grad()
        state["rows"] = 0
        return {"metrics": {"mock/grad_norm": norm} if self.tells_norm else {}}

    def _save_weights(self, body: dict[str, Any]) -> dict[str, Any]:
        state = self.models[body["model_id"]]
        path = f"tinker://{body['model_id']}/weights/{body['path']}"
        if path in self.states:
            raise ValueError("already exists")
        kept = copy.deepcopy(state["optimizer"].state_dict())
        self.states[path] = (lora.adapter_state_dict(state["model"], "a"), kept)
        return {"path": path, "type": "save_weights"}

    def _load_weights(self, body: dict[str, Any]) -> dict[str, Any]:
        state = self.models[body["model_id"]]
        weights, kept = self.states[body["path"]]
        lora.load_adapter_state_dict(state["model"], "a", weights)
        state["optimizer"].load_state_dict(copy.deepcopy(kept))
        return {"type": "load_weights"}

    def _save_weights_for_sampler(self, body: dict[str, Any]) -> dict[str, Any]:
        state = self.models[body["model_id"]]
        path = f"tinker://{body['model_id']}/sampler_weights/{body['path']}"
        stale = self.stale_samplers and state["before"] is not None
        weights = state["before"] if stale else lora.adapter_state_dict(state["model"], "a")
        model = lora.copied(state["model"])
        lora.load_adapter_state_dict(model, "a", weights)
        self.samplers[path] = model
        return {"path": path, "type": "save_weights_for_sampler"}

    @torch.no_grad()
    def _asample(self, body: dict[str, Any]) -> dict[str, Any]:
        model, params = self.samplers[body["model_path"]], body["sampling_params"]
        ids = [token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"]]
        prompt, said, logprobs = list(ids), [], []
        random = torch.Generator().manual_seed(params["seed"])
        reason = "length"
        with lora.use(model, "a"):
            for _ in range(params["max_tokens"]):
                logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float()
                chances = (logits / params["temperature"]).softmax(-1)
                token = int(torch.multinomial(chances, 1, generator=random))
                logprobs.append(float(logits.log_softmax(-1)[token]) + self.off_by)
                said.append(token)
                ids.append(token)
                if token in params.get("stop", ()):
                    reason = "stop"
                    break
            told: dict[str, Any] = {}
            if body.get("prompt_logprobs"):
                logits = model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, :-1].float()
                each = logits.log_softmax(-1).gather(-1, torch.tensor(prompt[1:])[:, None])[:, 0]
                told["prompt_logprobs"] = [None, *each.tolist()]
        return {"sequences": [{"tokens": said, "logprobs": logprobs, "stop_reason": reason}], **told}


def _loss(
    name: str, new: torch.Tensor, given: dict[str, torch.Tensor], config: dict[str, float]
) -> torch.Tensor:
    """The protocol's losses, as its pages write them."""
    if name == "cross_entropy":
        return -new * given["weights"]
    ratio, advantage = torch.exp(new - given["logprobs"]), given["advantages"]
    low, high = config.get("clip_low_threshold", 0.8), config.get("clip_high_threshold", 1.2)
    if name == "ppo":
        return -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
    if name == "cispo":
        return -ratio.detach().clamp(low, high) * advantage * new
    return -ratio * advantage


def _output(found: list[torch.Tensor]) -> dict[str, Any]:
    rows = [{"logprobs": {"data": each.tolist(), "dtype": "float32", "shape": [len(each)]}} for each in found]
    return {"loss_fn_output_type": "mock", "loss_fn_outputs": rows, "metrics": {}}


def _handler(service: MockService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/openapi.json" and service.publishes:
                adam = {name: {} for name in ["learning_rate"] + ["grad_clip_norm"] * service.clips}
                losses = {"loss_fn": {"enum": list(service.losses)}}
                schemas = {"AdamParams": {"properties": adam}, "ForwardBackwardInput": {"properties": losses}}
                self._reply(200, {"components": {"schemas": schemas}})
            elif self._refused():
                self._reply(401, {"detail": "invalid key"})
            elif self.path.endswith("get_server_capabilities"):
                self._reply(200, {"supported_models": [{"model_name": service.base}]})
            else:
                self._reply(404, {"detail": "Not Found"})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self._refused():
                self._reply(401, {"detail": "invalid key"})
                return
            path = self.path.rpartition("/")[2]
            status, told = service.handled(path, body)
            if service.drop.get(path, 0):
                service.drop[path] -= 1
                self.close_connection = True
                self.connection.close()
                return
            self._reply(status, told)

        def _refused(self) -> bool:
            return service.key is not None and self.headers.get("X-API-Key") != service.key

        def _reply(self, status: int, told: dict[str, Any]) -> None:
            raw = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
