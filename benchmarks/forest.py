"""Update time and peak memory: the prefix forest against merged padding-free rows and one row per call.

All three compute the gradients of the same rows with the same model, loss, vocabulary projection, limit of
tokens per pass and memory (which decides what is kept for backward). Merged rows are what most trainers do at
best: a linear conversation is one row, rows are packed without padding (variable-length flash attention on CUDA, alike
lengths together on the CPU). Building the forest is inside the time. Weights are random: speed does not
depend on them. Times are the best of --repeats runs taken in turns in one process.

S is the ratio of floating-point operations (baton.forest.layout); memory is the peak above weights and gradients. On a
GPU operations per second are also given as a share of what a product of two 8,192 x 8,192 matrices reaches in this run.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import logging
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._dynamo.utils import counters
from transformers import LlamaConfig, LlamaForCausalLM
from transformers import __version__ as transformers_version

from baton.forest.attention.parts import make_pass
from baton.forest.layout import Shape, choose, operations, pack, plant, speed_up
from baton.forest.logprobs import check_forest
from baton.forest.rows import Row
from baton.learn.loss import Loss
from baton.learn.update import Gradients, Packed
from table import machine, print_table, row

SIZES = {
    "tiny": (192, 512, 4, 6, 2, 1000),
    "135m": (576, 1536, 30, 9, 3, 49152),
    "1.7b": (2048, 8192, 24, 32, 32, 49152),
}
LABELS = {"merged": "merged rows", "rows": "one row per call"}
Tokens = list[int]


class Result(NamedTuple):
    seconds: float
    peak_bytes: int


def make_model(size: str, device: str, dtype: str) -> Any:
    hidden, inner, layers, heads, kv_heads, vocab = SIZES[size]
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, vocab_size=vocab, max_position_embeddings=32768, bos_token_id=None,
        eos_token_id=None, pad_token_id=None, tie_word_embeddings=size != "1.7b",
    )  # fmt: skip
    with torch.device(device):
        model = LlamaForCausalLM(config).to(getattr(torch, dtype))
    return model.train()


class Writer:
    """Makes rows of random ids."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.rows: list[Row] = []

    def words(self, count: int) -> Tokens:
        return self.rng.integers(0, 1000, count).tolist()  # type: ignore[no-any-return]

    def call(self, prompt: Tokens, said: Tokens) -> Tokens:
        count = len(said)
        self.rows.append(
            Row(
                ids=np.array(prompt + said, np.int32),
                places=np.arange(len(prompt), len(prompt) + count, dtype=np.int32),
                advantages=self.rng.normal(size=count),
                sampler=np.full(count, -np.log(1000.0)),
                weights=np.ones(count),
                sample=str(len(self.rows)),
            )
        )
        return prompt + said


def sub_agents(agents: int, shared: int, own: int) -> Callable[[Writer], None]:
    def write(to: Writer) -> None:
        system = to.words(shared)
        for _ in range(agents):
            to.call(system + to.words(own // 4), to.words(own - own // 4))

    return write


def groups(tasks: int, rollouts: int, prompt: int, said: int) -> Callable[[Writer], None]:
    def write(to: Writer) -> None:
        for _ in range(tasks):
            task = to.words(prompt)
            for _ in range(rollouts):
                to.call(task, to.words(said))

    return write


def forks(number: int, system: int, turns: int, heard: int, said: int) -> Callable[[Writer], None]:
    """One trace, and copies of it that go on differently after a turn; what was replayed is not trained again."""

    def write(to: Writer) -> None:
        contexts = [to.words(system)]
        for _ in range(turns):
            contexts.append(to.call(contexts[-1] + to.words(heard), to.words(said)))
        for fork in range(number):
            context = contexts[fork % turns]
            for _ in range(turns - fork % turns):
                context = to.call(context + to.words(heard), to.words(said))

    return write


CASES: dict[str, dict[str, Callable[[Writer], None]]] = {
    "smoke": {
        "4 sub-agents, 64 shared + 16 own": sub_agents(4, 64, 16),
        "linear trace, 3 turns": forks(0, 32, 3, 8, 8),
    },
    "cpu": {
        "16 sub-agents, 512 shared + 64 own": sub_agents(16, 512, 64),
        "8 sub-agents, 2,048 shared + 128 own": sub_agents(8, 2048, 128),
        "8 groups of 8, 128 + 64 said": groups(8, 8, 128, 64),
        "16 forks of 4 turns, 256 + 4 x (32 + 32)": forks(16, 256, 4, 32, 32),
        "linear trace, 8 turns, 256 + 8 x (64 + 64)": forks(0, 256, 8, 64, 64),
    },
    "cuda": {
        "64 sub-agents, 2,048 shared + 512 own": sub_agents(64, 2048, 512),
        "64 sub-agents, 8,192 shared + 512 own": sub_agents(64, 8192, 512),
        "16 groups of 16, 512 + 256 said": groups(16, 16, 512, 256),
        "16 forks of 8 turns, 2,048 + 8 x (128 + 256)": forks(16, 2048, 8, 128, 256),
        "linear trace, 16 turns, 2,048 + 16 x (256 + 512)": forks(0, 2048, 16, 256, 512),
    },
}


class Watch:
    """Peak memory of a block, above what was there before it."""

    def __init__(self, device: str) -> None:
        self.cuda = device == "cuda"
        self.peak = 0

    def __enter__(self) -> Watch:
        gc.collect()
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
        else:
            ctypes.CDLL(None).malloc_trim(0)
            self._before = _resident()
            self._done = threading.Event()
            self._thread = threading.Thread(target=self._sample)
            self._thread.start()
        self._begun = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        if self.cuda:
            torch.cuda.synchronize()
        self.seconds = time.perf_counter() - self._begun
        if self.cuda:
            self.peak = torch.cuda.max_memory_allocated() - self._before
        else:
            self._done.set()
            self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(0.002):
            self.peak = max(self.peak, _resident() - self._before)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def update(model: Any, rows: list[Row], args: argparse.Namespace, packing: str, attention: str) -> Result:
    settings = Packed(packing=packing, attention=attention, max_tokens=args.max_tokens, check=False)  # type: ignore[arg-type]
    gradients = Gradients(model, Loss(kind="ppo"), settings)
    model.zero_grad(set_to_none=False)
    with Watch(args.device) as watch:
        gradients.backward(rows)
    return Result(watch.seconds, watch.peak)


def measure(model: Any, rows: list[Row], args: argparse.Namespace) -> dict[str, Result]:
    """Best of the repeats for each way, in turns. Ways that compute the same are measured once."""
    ways = {"forest": ("forest", args.attention)}
    if args.device == "cuda" and args.attention == "auto":
        ways = {"forest": ("forest", "parts"), "forest, flex": ("forest", "flex")}
    ways |= {"merged": ("merged", "auto"), "rows": ("rows", "auto")}
    merged, single = (plant(rows, packing)[0].num_tokens for packing in ("merged", "rows"))
    if merged == single:
        del ways["rows"]
    best: dict[str, Result] = {}
    for name, (packing, attention) in ways.items():
        try:
            first = update(model, rows[:4], args, packing, attention)  # warm-up: compilation
            print(f"  {name}: first {first.seconds:.2f} s", file=sys.stderr)
        except Exception as error:
            print(f"  {name}: {type(error).__name__}: {str(error)[:400]}", file=sys.stderr)
    for _ in range(args.repeats):
        for name in ways:
            try:
                got = update(model, rows, args, *ways[name])
            except Exception as error:
                print(f"  {name}: {type(error).__name__}: {str(error)[:400]}", file=sys.stderr)
                continue
            before = best.get(name, got)
            best[name] = Result(min(got.seconds, before.seconds), max(got.peak_bytes, before.peak_bytes))
    if merged == single and "merged" in best:
        best["rows"] = best["merged"]
    return best


def agreement(model: Any, rows: list[Row], args: argparse.Namespace) -> float:
    """Cosine between the gradients of the forest and of merged rows."""
    found = []
    for packing in ("forest", "merged"):
        update(model, rows, args, packing, args.attention)
        found.append([p.grad.flatten().clone() for p in model.parameters()])

    def dot(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
        # Where they are and one after the other: copied to the CPU, a large model's take longer than the update.
        return sum(float(x.double() @ y.double()) for x, y in zip(a, b, strict=True))

    a, b = found
    return dot(a, b) / (dot(a, a) * dot(b, b)) ** 0.5


def chip_limit() -> float:
    """Operations per second of a large product in bfloat16, best of five."""
    a, b = torch.randn(2, 8192, 8192, device="cuda", dtype=torch.bfloat16)
    seconds = []
    for _ in range(8):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(4):
            a @ b
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - begun) / 4)
    return 2 * 8192**3 / min(seconds[3:])


def built(rows: list[Row], model: Any) -> float:
    """Seconds to build the forest and what its attention needs: the best of three."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        batch = pack(rows)
        make_pass(batch.layout, model.dtype, model.device)
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return min(times)


def show(
    best: dict[str, Result], case: str, rows: list[Row], args: argparse.Namespace, where: str, model: Any
) -> list[Any]:
    shape = Shape.of(model)
    edges = len(pack(rows).edge)
    forest = plant(rows)[0]
    lines = []
    for name in [name for name in best if name.startswith("forest")]:
        for against in ("merged", "rows"):
            if against not in best or (against == "rows" and best["rows"] is best["merged"]):
                continue
            other = plant(rows, against)[0]
            predicted = speed_up(shape, other, forest, edges, edges)
            ratio = best[against].seconds / best[name].seconds
            memory = best[name].peak_bytes / max(1, best[against].peak_bytes)
            share = f"S {predicted:.2f}, {ratio / predicted:.0%} of it; memory {memory:.2f}x"
            if args.limit:
                rate = operations(shape, forest, edges) / best[name].seconds
                share += f"; {rate / 1e12:.0f} TFLOP/s, {rate / args.limit:.0%} of the chip's"
            what = f"{name}: {args.size}, {case}; {share}"
            cells = [
                f"{best[n].seconds:.3f} s, {best[n].peak_bytes / 2**20:,.0f} MiB" for n in (name, against)
            ]
            alike = against == "merged" and best.get("rows") is best["merged"]
            label = "merged rows, one row per call" if alike else LABELS[against]
            lines.append(row(what, cells[0], label, cells[1], ratio, where))
    return lines


def run(case: str, rows: list[Row], model: Any, args: argparse.Namespace, where: str) -> None:
    """Check, measure and print one case."""
    print(f"{case}: gate says {choose(rows, Shape.of(model))}", file=sys.stderr)
    few = rows[:: max(1, len(rows) // 4)][:4]
    both = args.device == "cuda" and args.attention == "auto"
    for attention in ("parts", "flex") if both else (args.attention,):
        try:
            apart = check_forest(model, few, "forest", attention)  # type: ignore[arg-type]
            print(f"  {attention}: differs from the plain forward by {apart:.2e}", file=sys.stderr)
        except Exception as error:
            print(f"  {attention}: {type(error).__name__}: {str(error)[:400]}", file=sys.stderr)
    best = measure(model, rows, args)
    seconds = built(rows, model)
    cosine = agreement(model, rows[:8], args)
    graphs = counters["stats"]["unique_graphs"]
    print(
        f"  gradient cosine {cosine:.6f}; built in {seconds * 1000:.1f} ms; {graphs} graphs compiled so far",
        file=sys.stderr,
    )
    for line in show(best, case, rows, args, where, model):
        print("| " + " | ".join(line) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--size", default="tiny", choices=SIZES)
    parser.add_argument("--dtype", help="float32 on the CPU, bfloat16 on CUDA")
    parser.add_argument("--attention", default="auto", choices=["auto", "parts", "flex"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, help="tokens of one pass; 65,536 on CUDA, 8,192 on the CPU")
    parser.add_argument("--case", help="only cases whose name holds this")
    parser.add_argument("--smoke", action="store_true", help="seconds, to see that it runs")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    cuda = args.device == "cuda"
    args.dtype = args.dtype or ("bfloat16" if cuda else "float32")
    args.max_tokens = args.max_tokens or (65536 if cuda else 8192)
    torch.set_num_threads(args.threads)
    model = make_model(args.size, args.device, args.dtype)
    args.limit = chip_limit() if cuda else None
    where = machine(f"torch {torch.__version__} {args.threads} threads, transformers {transformers_version}")
    if cuda:
        where = (
            f"{torch.cuda.get_device_name()}, {args.dtype}, torch {torch.__version__}, {transformers_version}"
        )
    if cuda:
        print(f"the chip: {args.limit / 1e12:.0f} TFLOP/s", file=sys.stderr)
    print_table([])  # the heading; a case's lines follow as soon as it is measured
    for case, write in CASES["smoke" if args.smoke else args.device].items():
        if args.case is None or args.case in case:
            writer = Writer(0)
            write(writer)
            run(case, writer.rows, model, args, where)
    if not args.smoke and not args.case:
        writer = Writer(1)
        sub_agents(390, 2048, 512)(writer)
        count = sum(len(each.ids) for each in writer.rows)
        print(
            f"forest of {count:,} row tokens built in {built(writer.rows, model) * 1000:.1f} ms",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
