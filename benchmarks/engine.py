"""The torch engine against transformers' own `generate` and continuous batching, on a team's calls.

Two loads: workers that share a prompt (one system prompt, each its own task), and a growing conversation
(every turn's prompt extends the turn before). All sample at temperature 1 with log-probs, except plain
`generate`, which is not asked for them. Weights are random unless --model names a folder: speed does not
depend on them. Times are the best of --repeats runs, taken in turns in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)
from transformers import __version__ as transformers_version

from baton.engine.torch import PlainTemplate, TorchEngine
from baton.engine.torch.batch import EngineLimits
from baton.team.protocol import Answer, Request
from baton.trace.records import Sampling
from table import machine, print_table, row

SIZES = {
    "tiny": (192, 512, 4, 6, 2, 1000),
    "135m": (576, 1536, 30, 9, 3, 49152),
    "1.7b": (2048, 8192, 24, 32, 32, 49152),
}
Prompts = list[list[int]]
Ask = Callable[[Prompts, int], Prompts]
Load = Callable[[argparse.Namespace, int], Callable[[Ask], int]]


def make_model(args: argparse.Namespace) -> Any:
    dtype = getattr(torch, args.dtype)
    if args.model:
        model = AutoModelForCausalLM.from_pretrained(args.model, local_files_only=True, dtype=dtype)
    else:
        hidden, inner, layers, heads, kv_heads, vocab = SIZES[args.size]
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
            num_key_value_heads=kv_heads, vocab_size=vocab, max_position_embeddings=16384, bos_token_id=None,
            pad_token_id=0, dtype=args.dtype,
        )  # fmt: skip
        model = LlamaForCausalLM(config).to(dtype)
    # Every call runs to its length, so that all do the same work.
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    return model.to(args.device).eval()


def byte_tokenizer() -> Any:
    raw = Tokenizer(
        models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    raw.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=raw)


class Ours:
    name = "Baton torch engine"

    def __init__(self, model: Any) -> None:
        limits = EngineLimits(max_rows=512)
        self.engine = TorchEngine(model, byte_tokenizer(), template=PlainTemplate(), limits=limits)
        self.runs = 0

    def start(self) -> None:
        self.runs += 1
        self.engine.publish(str(self.runs))

    def ask(self, prompts: Prompts, new: int) -> Prompts:
        async def one(number: int, prompt: list[int]) -> list[int]:
            request = Request(
                call=str(number), agent="a", role="r", entries=(), prompt_ids=prompt,
                sampling=Sampling(max_tokens=new, key=f"{self.runs}/{number}/{len(prompt)}"),
            )  # fmt: skip
            [answer] = await self.engine.answer([request])
            assert isinstance(answer, Answer), answer
            assert answer.completion_ids is not None
            return answer.completion_ids.tolist()

        async def all_of_them() -> Prompts:
            return list(await asyncio.gather(*(one(i, p) for i, p in enumerate(prompts))))

        return asyncio.run(all_of_them())


class Generate:
    name = "generate, one padded batch"

    def __init__(self, model: Any) -> None:
        self.model = model

    def start(self) -> None:
        pass

    def ask(self, prompts: Prompts, new: int) -> Prompts:
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts], device=self.model.device)
        mask = torch.tensor(
            [[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=self.model.device
        )
        settings = GenerationConfig(max_new_tokens=new, do_sample=True, top_k=0, pad_token_id=0)
        out = self.model.generate(ids, attention_mask=mask, generation_config=settings)
        return out[:, longest:].tolist()  # type: ignore[no-any-return]


class Continuous:
    name = "transformers continuous batching"

    def __init__(self, model: Any, tokens: int) -> None:
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        settings: dict[str, Any] = {"return_logprobs": True, "max_memory_percent": 0.5}
        # Small pages, so that prefixes are shared to within 32 tokens; the field's name has changed.
        names = {field.name for field in dataclasses.fields(ContinuousBatchingConfig)}
        settings["page_size" if "page_size" in names else "block_size"] = 32
        if model.device.type != "cuda":
            settings |= {"num_blocks": 2 * tokens // 32, "max_batch_tokens": 4096}
        sampling = GenerationConfig(
            do_sample=True, top_k=0, pad_token_id=0, eos_token_id=-1, max_new_tokens=32
        )
        self.serving = model.init_continuous_batching(
            generation_config=sampling, continuous_batching_config=ContinuousBatchingConfig(**settings)
        )
        self.serving.start()

    def start(self) -> None:
        pass

    def ask(self, prompts: Prompts, new: int) -> Prompts:
        names = [self.serving.add_request(p, max_new_tokens=new) for p in prompts]
        got: dict[str, list[int]] = {}
        deadline = time.monotonic() + 120
        while len(got) < len(names):
            result = self.serving.get_result(timeout=1)
            if time.monotonic() > deadline or not self.serving.is_running():
                raise RuntimeError("no answers")
            if result is not None and result.is_finished():
                if result.error:
                    raise RuntimeError(result.error)
                got[result.request_id] = list(result.generated_tokens)
        return [got[name] for name in names]

    def close(self) -> None:
        self.serving.stop(block=True)
        self.serving.destroy()


def workers(args: argparse.Namespace, run: int) -> Callable[[Ask], int]:
    def play(ask: Ask) -> int:
        rng = np.random.default_rng(run)  # fresh prompts for each run, so nothing is known from the last
        shared = rng.integers(1, 256, args.shared).tolist()
        prompts = [shared + rng.integers(1, 256, args.own).tolist() for _ in range(args.workers)]
        return sum(map(len, ask(prompts, args.new)))

    return play


def conversation(args: argparse.Namespace, run: int) -> Callable[[Ask], int]:
    def play(ask: Ask) -> int:
        rng = np.random.default_rng(1000 + run)
        shared = rng.integers(1, 256, args.shared).tolist()
        contexts = [shared + rng.integers(1, 256, args.own).tolist() for _ in range(args.agents)]
        made = 0
        for _ in range(args.turns):
            for context, answer in zip(contexts, ask(contexts, args.new), strict=True):
                made += len(answer)
                context += answer
                context += rng.integers(1, 256, args.own).tolist()
        return made

    return play


def measure(
    engines: list[Any], loads: dict[str, Load], args: argparse.Namespace
) -> dict[tuple[str, str], float]:
    """Tokens per second, best of the repeats; the engines take turns, so a busy machine is busy for all."""
    best: dict[tuple[str, str], float] = {}
    for engine in engines:
        engine.ask([[1] * 40] * 4, 8)  # warm up
    for words, load in loads.items():
        for run in range(args.repeats):
            for engine in engines:
                engine.start()
                begun = time.perf_counter()
                made = load(args, run)(engine.ask)
                speed = made / (time.perf_counter() - begun)
                best[engine.name, words] = max(best.get((engine.name, words), 0.0), speed)
    return best


def chip() -> tuple[float, float]:
    """Bytes and operations a second that this GPU reaches: a large copy, a large product of random numbers."""
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    big = torch.empty(1 << 30, device="cuda", dtype=torch.bfloat16)

    def seconds(work: Callable[[], Any]) -> float:
        work()
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        for _ in range(10):
            work()
        ended.record()
        torch.cuda.synchronize()
        return begun.elapsed_time(ended) / 1e4

    half = len(big) // 2
    moved = 2 * half * big.element_size() / seconds(lambda: big[:half].copy_(big[half:]))
    return moved, 2 * 8192**3 / seconds(lambda: x @ x)


def least_seconds(model: Any, args: argparse.Namespace, limits: tuple[float, float]) -> list[float]:
    """What each load must take: every step reads the weights and all contexts once, prompts are multiplied once."""
    config, size = model.config, model.dtype.itemsize
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    token = config.num_hidden_layers * 2 * config.num_key_value_heads * head * size
    outside = config.vocab_size * config.hidden_size
    weights = sum(each.numel() for each in model.parameters()) - (
        0 if config.tie_word_embeddings else outside
    )

    def asked(rows: int, own: int) -> float:
        """One answer of every row, whose context is `own` tokens past what all share."""
        held = args.shared + rows * (own + args.new / 2)
        return args.new * (weights * size + held * token) / limits[0]

    products = 2 * (weights - outside) / limits[1]
    alone = asked(args.workers, args.own) + products * (args.shared + args.workers * args.own)
    turns = [asked(args.agents, args.own + turn * (args.own + args.new)) for turn in range(args.turns)]
    prompts = args.shared + args.agents * args.own * args.turns
    return [alone, sum(turns) + products * prompts]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--model", help="a Hugging Face folder; otherwise random weights of --size")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--shared", type=int, default=256)
    parser.add_argument("--own", type=int, default=32)
    parser.add_argument("--new", type=int, default=32)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.disable(logging.WARNING)
    model = make_model(args)
    loads: dict[str, Load] = {
        f"{args.workers} workers, {args.shared} shared + {args.own} own, {args.new} new": workers,
        f"{args.agents} agents, {args.turns} turns, {args.shared} + {args.own} + {args.new}": conversation,
    }
    tokens = (args.shared + (args.own + args.new) * (args.turns + 1)) * max(args.workers, args.agents)
    speeds = measure([Ours(model), Generate(model)], loads, args)
    made = args.workers * args.new, args.agents * args.turns * args.new
    least = least_seconds(model, args, chip()) if args.device == "cuda" else []
    try:
        # Last, because it changes its model's attention and keeps a thread of its own.
        last = Continuous(model, tokens)
        speeds |= measure([last], loads, args)
        last.close()
    except (RuntimeError, ValueError, ImportError, AttributeError, TypeError) as error:
        print(f"{Continuous.name}: {type(error).__name__}: {str(error)[:300]}")
    where = machine(f"torch {torch.__version__} {args.threads} threads, transformers {transformers_version}")
    if args.device == "cuda":
        where = (
            f"{torch.cuda.get_device_name()}, {args.dtype}, torch {torch.__version__}, {transformers_version}"
        )
    rows = []
    for words in loads:
        ours = speeds[Ours.name, words]
        for name in (Generate.name, Continuous.name):
            theirs = speeds.get((name, words))
            shown = "not measured" if theirs is None else f"{theirs:,.0f} tok/s"
            ratio = None if theirs is None else ours / theirs
            what = f"{Ours.name}: {args.model or args.size}, {words}"
            rows.append(row(what, f"{ours:,.0f} tok/s", name, shown, ratio, where))
    for words, tokens, seconds in zip(loads, made, least, strict=False):
        ours = speeds[Ours.name, words]
        what = f"{Ours.name}: {args.model or args.size}, {words}"
        shown = f"{tokens / seconds:,.0f} tok/s"
        rows.append(
            row(what, f"{ours:,.0f} tok/s", "the chip's limit", shown, ours * seconds / tokens, where)
        )
    print_table(rows)


if __name__ == "__main__":
    main()
