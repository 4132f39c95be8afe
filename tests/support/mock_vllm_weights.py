"""A MOCK of a vLLM server that is given weights: HTTP at the outermost edge, a small torch model behind it.

It answers the paths that `VllmClient` asks, draws token by token and says which weights drew which, loads adapters from
their folders, and takes whole models through Baton's own plug-in, which runs here over stand-ins for the few classes of
vLLM's that it needs (`plugin_over_stand_ins`). What vLLM itself does is not shown by it: `make test-vllm` is for that.
"""

from __future__ import annotations

import copy
import json
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors.torch import load_file


def plugin_over_stand_ins() -> Any:
    """The plug-in's module, with stand-ins where it imports vLLM."""
    from baton.engine.vllm import weights_group

    class Engine:
        def __init__(self, model: Any) -> None:
            self.model = model
            self.model_config = None
            self.parallel_config = types.SimpleNamespace(data_parallel_index=0, world_size=1, rank=0)

        def __class_getitem__(cls, _: Any) -> Any:
            return cls

    @dataclass
    class Info:
        pass

    class Factory:
        _registry: ClassVar[dict[str, Any]] = {}

        @classmethod
        def register_engine(cls, name: str, module: str, kind: str) -> None:
            cls._registry[name] = (module, kind)

    def nothing(*_: Any) -> None:
        """Reloads layer by layer are vLLM's; a torch model loads as it is."""

    names: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.distributed": {},
        "vllm.distributed.weight_transfer": {},
        "vllm.distributed.weight_transfer.base": {
            "WeightTransferEngine": Engine, "WeightTransferInitInfo": Info, "WeightTransferUpdateInfo": Info,
        },
        "vllm.distributed.weight_transfer.factory": {"WeightTransferEngineFactory": Factory},
        "vllm.model_executor": {},
        "vllm.model_executor.model_loader": {},
        "vllm.model_executor.model_loader.reload": {
            "initialize_layerwise_reload": nothing, "finalize_layerwise_reload": nothing,
        },
    }  # fmt: skip
    for name, parts in names.items():
        made = types.ModuleType(name)
        made.__dict__.update(parts)
        sys.modules[name] = made
    sys.modules["baton_vllm_group"] = weights_group
    try:
        from baton.engine.vllm import weights_plugin
    finally:
        for name in [*(each for each in names if not each.endswith("reload")), "baton_vllm_group"]:
            sys.modules.pop(name, None)
    return weights_plugin


class Loadable:
    """A torch model that loads weights as vLLM's do: from pairs, returning the names it took."""

    def __init__(self, model: Any) -> None:
        self.inner = model

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        yield from self.inner.named_parameters()

    def modules(self) -> Iterator[Any]:
        yield from self.inner.modules()

    def load_weights(self, pairs: Any) -> set[str]:
        state = dict(pairs)
        self.inner.load_state_dict(state, strict=False)
        return set(state)


class MockVllm:
    """The server's state, and what is to go wrong in it."""

    def __init__(self, model: Any, *, rank: int = 16) -> None:
        self.model = copy.deepcopy(model).eval()
        self.rank = rank
        self.plugin = plugin_over_stand_ins()
        self.engine = self.plugin.BatonWeights(Loadable(self.model))
        self.label = "default"
        self.adapters: dict[str, dict[str, torch.Tensor]] = {}
        self.scales: dict[str, float] = {}
        self.running = threading.Event()
        self.running.set()
        self.lock = threading.RLock()
        self.asked: list[str] = []
        """Paths, in order."""
        self.token_seconds = 0.0
        self.holds_at = 0
        """So many tokens into an answer its next one waits for other weights; 0: none waits."""
        self.held = threading.Event()
        """Set when an answer waits so."""
        self.faults: dict[str, int] = {}
        """What is to go wrong -> how often yet: "drop /update_weights" hangs up, "keep head", "keep old", "flip
        bit"."""
        self.frozen_head: torch.Tensor | None = None
        self.closed = False
        self.deaths = 0

    def die(self) -> None:
        """As by kill -9: nobody is answered, and nothing that was pushed is kept."""
        self.closed = True
        self.deaths += 1
        self.adapters.clear()
        self.label = "default"

    def fault(self, name: str) -> bool:
        """Whether this is to go wrong now."""
        left = self.faults.get(name, 0)
        self.faults[name] = max(0, left - 1)
        return left > 0

    # -- the model ------------------------------------------------------------------------------

    def logits(self, ids: list[int], name: str) -> torch.Tensor:
        """Logits after each token, with an adapter or without."""
        with self.lock, torch.no_grad(), self._adapted(name):
            hidden = self.model.model(torch.tensor([ids])).last_hidden_state[0]
            head = self.model.lm_head.weight if self.frozen_head is None else self.frozen_head
            return hidden @ head.T

    @contextmanager
    def _adapted(self, name: str) -> Iterator[None]:
        parts = self.adapters.get(name, {})
        layers = dict(self.model.named_modules())
        added: list[tuple[Any, torch.Tensor]] = []
        for key, down in parts.items():
            if ".lora_A." in key:
                up = parts[key.replace(".lora_A.", ".lora_B.")]
                layer = layers[key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")]
                added.append((layer.weight, self.scales[name] * up @ down))
        before = [weight.data for weight, _ in added]
        for weight, more in added:
            weight.data = weight.data + more
        try:
            yield
        finally:
            for (weight, _), plain in zip(added, before, strict=True):
                weight.data = plain  # taken away again it would be rounded, call by call

    def generate(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = body["model"]
        if name != "base" and name not in self.adapters:
            return 404, {"error": {"message": f"The model `{name}` does not exist."}}
        ids, params = list(body["token_ids"]), body["sampling_params"]
        told: list[dict[str, Any] | None] | None = None
        if params.get("prompt_logprobs") is not None:
            rows = torch.log_softmax(self.logits(ids, name).double(), -1)
            told = [None, *({str(t): {"logprob": float(rows[n, t])}} for n, t in enumerate(ids[1:]))]
        drawn, logprobs, spans = self._draw(ids, name, params)
        done = bool(drawn) and drawn[-1] == self.model.config.eos_token_id
        choice = {
            "index": 0,
            "token_ids": drawn,
            "finish_reason": "stop" if done else "length",
            "weight_versions": spans,
            "logprobs": {
                "content": [{"token_id": t, "logprob": v} for t, v in zip(drawn, logprobs, strict=True)]
            },
        }
        usage = {
            "prompt_tokens": len(ids),
            "completion_tokens": len(drawn),
            "total_tokens": len(ids) + len(drawn),
        }
        return 200, {"choices": [choice], "usage": usage, "prompt_logprobs": told}

    def _draw(
        self, ids: list[int], name: str, params: dict[str, Any]
    ) -> tuple[list[int], list[float], list[Any]]:
        draw = np.random.default_rng(params.get("seed") or 0)
        drawn: list[int] = []
        logprobs: list[float] = []
        spans: list[dict[str, Any]] = []
        heat = params.get("temperature", 1.0)
        while len(drawn) < params.get("max_tokens", 16):
            self.running.wait()
            time.sleep(self.token_seconds)
            with self.lock:
                if not self.running.is_set():  # paused while it slept: nothing is drawn until /resume
                    continue
                if self.holds_at and len(drawn) == self.holds_at and spans[-1]["version"] == self.label:
                    self.held.set()
                    continue
                label, last = self.label, self.logits(ids + drawn, name)[-1].double()
            if params.get("top_k", 0) > 0:
                last = torch.where(last >= last.topk(params["top_k"]).values[-1], last, -torch.inf)
            chances = torch.log_softmax(last / (heat or 1.0), -1)
            noise = torch.from_numpy(draw.gumbel(size=len(chances)))
            token = int((chances + (noise if heat else 0)).argmax())
            drawn.append(token)
            logprobs.append(float(chances[token]))
            if not spans or spans[-1]["version"] != label:
                spans.append({"version": label, "start": len(drawn) - 1, "end": len(drawn)})
            spans[-1]["end"] = len(drawn)
            if token == self.model.config.eos_token_id:
                break
        return drawn, logprobs, spans

    # -- weights --------------------------------------------------------------------------------

    def load_adapter(self, body: dict[str, Any]) -> tuple[int, Any]:
        folder = Path(body["lora_path"])
        if body["lora_name"] in self.adapters:
            return 400, {
                "error": {"message": f"The lora adapter '{body['lora_name']}' has already been loaded."}
            }
        config = json.loads((folder / "adapter_config.json").read_text())
        parts = load_file(folder / "adapter_model.safetensors")
        if self.fault("keep old"):
            parts = {key: torch.zeros_like(each) for key, each in parts.items()}
        self.adapters[body["lora_name"]] = parts
        self.scales[body["lora_name"]] = config["lora_alpha"] / config["r"]
        return 200, "Success"

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        engine, plugin = self.engine, self.plugin
        if path == "/pause":
            with self.lock:  # no token is under way when it answers, as with the real server
                self.running.clear()
        elif path == "/resume":
            self.running.set()
        elif path == "/init_weight_transfer_engine":
            engine.init_transfer_engine(plugin.Meeting(**body["init_info"]))
        elif path == "/start_weight_update":
            engine.start_weight_update()
        elif path == "/update_weights":
            info = body["update_info"]
            if self.fault("flip bit"):
                info["digests"] = ["0" * 32, *info["digests"][1:]]
            if self.fault("lose one"):
                info = {**info, **{key: info[key][1:] for key in ("names", "dtypes", "shapes", "digests")}}
            engine.receive_weights(plugin.Parcel(**info))
        elif path == "/finish_weight_update":
            self._finish()
        elif path == "/update_weight_version":
            self.label = body["new_version"]
        elif path == "/collective_rpc":
            worker = types.SimpleNamespace(weight_transfer_engine=engine)
            return 200, {"results": [getattr(plugin.Receipts, body["method"])(worker, *body.get("args", []))]}
        elif path == "/v1/load_lora_adapter":
            return self.load_adapter(body)
        elif path == "/v1/unload_lora_adapter":
            return (
                (200, "Success")
                if self.adapters.pop(body["lora_name"], None)
                else (404, {"error": {"message": "no"}})
            )
        elif path == "/inference/v1/generate":
            return self.generate(body)
        else:
            return 404, {"detail": "Not Found"}
        return 200, {}

    def _finish(self) -> None:
        with self.lock:
            before = copy.deepcopy(self.model.state_dict())
            head = (
                self.model.lm_head.weight.detach().clone() if self.frozen_head is None else self.frozen_head
            )
            self.engine.finish_weight_update()
            if self.fault("keep old"):
                self.model.load_state_dict(before)
            self.frozen_head = head if self.fault("keep head") else None

    def get(self, path: str) -> Any:
        entries: list[dict[str, Any]] = [
            {"id": "base", "max_model_len": self.model.config.max_position_embeddings}
        ]
        entries += [{"id": name, "parent": "base"} for name in self.adapters]
        return {
            "/v1/models": {"data": entries},
            "/version": {"version": "0.32.0"},
            "/get_world_size": {"world_size": 1},
            "/weight_info": {"weight_version": self.label},
            "/is_paused": {"is_paused": not self.running.is_set()},
            "/health": {},
        }.get(path)


@contextmanager
def mock_vllm(model: Any, port: int = 0) -> Iterator[tuple[MockVllm, str]]:
    """A mock server with a copy of this model, and its address."""
    state = MockVllm(model)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size) or b"{}")
            path = self.path.partition("?")[0]
            state.asked.append(path)
            if state.closed or state.fault(f"drop {path}"):
                self._hang_up()
                return
            deaths = state.deaths
            try:
                status, told = state.post(path, body)
            except Exception as error:
                status, told = 500, {"error": {"message": f"{type(error).__name__}: {error}"}}
            if state.deaths != deaths:
                self._hang_up()
                return
            self._say(status, told)

        def do_GET(self) -> None:
            if state.closed:
                self._hang_up()
                return
            told = state.get(self.path.partition("?")[0])
            self._say(404 if told is None else 200, {"detail": "Not Found"} if told is None else told)

        def _hang_up(self) -> None:
            self.close_connection = True
            self.connection.close()

        def _say(self, status: int, told: Any) -> None:
            raw = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield state, f"http://127.0.0.1:{server.server_port}"
    finally:
        state.closed = True
        state.running.set()
        server.shutdown()
        server.server_close()
