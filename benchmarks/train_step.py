"""A whole GRPO step against TRL's GRPOTrainer: the same model, prompts, group size, lengths, loss and optimiser.

    python benchmarks/train_step.py                     # a tiny model on the CPU
    python benchmarks/train_step.py --device cuda --model smollm2

Two comparisons in one run, steps of both by turns so that a busy machine slows both alike:
  step      each samples with its own engine, scores, takes group advantages and steps AdamW. Baton's step goes
            through the team runtime and leaves complete traces; TRL's is one prompt, one completion.
  update    the same completions for both: TRL is handed those that Baton sampled (`rollout_func`).
Completions have a fixed length: Baton's model has no token that ends a turn, TRL's must not choose it. So both compute
the same number of tokens. On a CPU times are the processor's, which other programs that run do not add to.

TRL in an environment of its own, without the rest of what benchmarks need (`benchmarks/README.md` has it as commands):
pip install -r benchmarks/train_step.txt, and PYTHONPATH=src.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from baton.credit import find
from baton.credit.project import project
from baton.engine.torch import TorchEngine
from baton.forest.rows import Row, rows_of
from baton.learn.loss import Loss
from baton.learn.models.tiny import Tiny, make_tiny
from baton.learn.optimiser import make_optimiser
from baton.learn.rollouts import Lockstep
from baton.learn.update import Gradients, Packed
from baton.tasks.task import Instance, Task
from baton.team.agent import Role
from baton.team.running import run
from baton.team.team import Assignment, Team, Topology
from baton.trace.records import Reward, Sampling
from baton.trace.trace import Trace
from table import machine, print_table, row

WORDS = [
    "red",
    "blue",
    "green",
    "small",
    "large",
    "round",
    "box",
    "circle",
    "line",
    "north",
    "south",
    "east",
    "west",
]


class Copying(Task):
    """Say something; every word of the prompt in the answer counts. A reward that both sides can compute."""

    name = "copying"

    def __init__(self, num_words: int) -> None:
        self.num_words = num_words

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        words = random.choice(WORDS, self.num_words).tolist()
        return "Repeat every word of this list, in order: " + " ".join(words), words, None

    def verify(self, instance: Instance, answer: str) -> float:
        return score(instance.gold, answer)


def score(words: list[str], answer: str) -> float:
    return sum(word in answer for word in words) / len(words)


class Baton:
    """One policy, one call per episode, on the team runtime."""

    def __init__(self, model: Any, tokenizer: Any, args: argparse.Namespace) -> None:
        self.args = args
        self.model = model
        self.task = Copying(args.words)
        model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token = None
        self.engine = TorchEngine(model, tokenizer)
        role = Role(
            name="writer",
            verbs=("stop",),
            max_invalid=0,
            sampling=Sampling(max_tokens=args.new_tokens, temperature=1.0),
        )
        self.topology = Topology(name="centralized", root="writer", roles=(role,))
        # "parts" is what "auto" takes on a CPU; on a GPU it needs no compiling.
        self.gradients = Gradients(model, Loss(kind="ppo"), Packed(check=False, attention="parts"))
        self.optimizer = make_optimiser("writer", model.parameters(), 1e-6, masters=False)
        self.version = 0

    def rollouts(self, step: int) -> list[list[Trace]]:
        async def one(given: Instance, number: int, member: int, engine: Lockstep) -> Trace:
            assignment = Assignment(
                task_id=given.id, prompt=given.prompt, score=lambda t: [_reward(t, given.gold)]
            )
            team = Team.of(self.topology, engine, template="{instructions}", seed=number * 1000 + member)
            return await run(team, assignment, trace_id=f"{step}/{number}/{member}")

        async def every() -> list[Trace]:
            engine = Lockstep(self.engine)
            first = step * self.args.prompts
            numbers = range(first, first + self.args.prompts)
            given = {number: self.task.instance(number) for number in numbers}
            return await asyncio.gather(
                *(one(given[n], n, k, engine) for n in numbers for k in range(self.args.group))
            )

        traces = asyncio.run(every())
        size = self.args.group
        return [traces[at : at + size] for at in range(0, len(traces), size)]

    def update(self, groups: list[list[Trace]]) -> None:
        assert all(
            len(trace.calls[0].completion_ids or ()) == self.args.new_tokens for g in groups for trace in g
        )
        rows: list[Row] = []
        for group in groups:
            for trace, credits in zip(group, find("group").function(group), strict=True):
                rows += rows_of(trace, project(trace, credits))
        with self.engine.updating(str(self.version + 1)):
            self.optimizer.zero_grad()
            self.gradients.backward(rows, version=str(self.version))
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        self.version += 1


def _reward(trace: Trace, words: list[str]) -> Reward:
    said = trace.text(trace.calls[0].completion_ref) or ""
    return Reward(family="shared", unit="team", target=trace.trace_id, value=score(words, said))


def text_of(tokenizer: Any, instance: Instance) -> str:
    """What Baton's writer reads: an empty system entry and the prompt."""
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": instance.prompt}]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


class Trl:
    """TRL's trainer, run one step at a time through a generator of its own training loop."""

    def __init__(self, model: Any, tokenizer: Any, args: argparse.Namespace, place: str) -> None:
        try:
            from datasets import Dataset
            from trl import GRPOConfig, GRPOTrainer
        except ImportError as error:
            sys.exit(f"train_step: {error.name} is not installed. Type: pip install -e '.[bench]'")

        self.args = args
        self.given: list[list[Trace]] | None = None
        task = Copying(args.words)
        instances = [
            task.instance(n) for n in range(args.prompts * (args.steps + args.warm) * 2 + args.prompts)
        ]
        data = Dataset.from_list([{"prompt": text_of(tokenizer, i), "words": i.gold} for i in instances])
        batch = args.prompts * args.group
        config = GRPOConfig(
            output_dir=place,
            per_device_train_batch_size=batch,
            num_generations=args.group,
            max_completion_length=args.new_tokens,
            generation_kwargs={"min_new_tokens": args.new_tokens},
            temperature=1.0,
            beta=0.0,
            learning_rate=1e-6,
            lr_scheduler_type="constant",
            max_steps=2 * (args.steps + args.warm),
            use_cpu=args.device == "cpu",
            bf16=False,
            fp16=False,
            gradient_checkpointing=False,
            report_to=[],
            logging_steps=10_000,
            save_strategy="no",
            disable_tqdm=True,
            shuffle_dataset=False,
            dataloader_num_workers=0,
        )

        def reward(completions: list[str], words: list[list[str]], **_: Any) -> list[float]:
            return [score(w, c) for c, w in zip(completions, words, strict=True)]

        self.trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=config,
            train_dataset=data,
            processing_class=tokenizer,
            rollout_func=self._handed if args.mode == "update" else None,
        )

    def _handed(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """What Baton sampled, as it stands."""
        assert self.given is not None
        calls = [(trace, trace.calls[0]) for group in self.given for trace in group]
        assert len(calls) == len(prompts)
        return {
            "prompt_ids": [list(trace.prompt_ids(call) or ()) for trace, call in calls],
            "completion_ids": [list(call.completion_ids or ()) for _, call in calls],
            "logprobs": [list(call.logprobs or ()) for _, call in calls],
        }


def by_turns(args: argparse.Namespace, make: Callable[[], tuple[Any, Any]]) -> dict[str, list[float]]:
    """Seconds of Baton's and TRL's steps, one after the other."""
    from transformers import PrinterCallback, TrainerCallback

    now = time.process_time if args.device == "cpu" else time.perf_counter
    model, tokenizer = make()
    other, other_tokenizer = make()
    baton = Baton(model, tokenizer, args)
    seconds: dict[str, list[float]] = {"baton": [], "baton rollout": [], "baton update": [], "trl": []}

    class ByTurns(TrainerCallback):  # type: ignore[misc]  # untyped
        """Before each of TRL's steps, one of Baton's."""

        def __init__(self) -> None:
            self.step = 0
            self.began = 0.0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            began = now()
            groups = baton.rollouts(self.step)
            middle = now()
            baton.update(groups)
            _finished(args.device)
            ended = now()
            trl.given = groups
            if self.step == 0:
                self._check_prompts(groups)
            if self.step >= args.warm:
                seconds["baton"].append(ended - began)
                seconds["baton rollout"].append(middle - began)
                seconds["baton update"].append(ended - middle)
            self.began = now()

        def on_step_end(self, _args: Any, state: Any, control: Any, **__: Any) -> None:
            _finished(args.device)
            if self.step >= args.warm:
                seconds["trl"].append(now() - self.began)
            self.step += 1
            control.should_training_stop = self.step >= args.steps + args.warm

        def _check_prompts(self, groups: list[list[Trace]]) -> None:
            for number, (trace, *_) in enumerate(groups):
                text = text_of(other_tokenizer, baton.task.instance(number))
                assert list(trace.prompt_ids(trace.calls[0]) or ()) == other_tokenizer.encode(text)

    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trl = Trl(other, other_tokenizer, args, place)
        trl.trainer.add_callback(ByTurns())
        trl.trainer.remove_callback(PrinterCallback)
        trl.trainer.train()
    return seconds


def _finished(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _dtype(args: argparse.Namespace) -> str:
    """On a GPU half precision, which training there is done in."""
    return "float32" if args.device == "cpu" else "bfloat16"


def random_model(args: argparse.Namespace) -> tuple[Any, Any]:
    """A folder's configuration and tokenizer, and weights that are about as sure of a token as a trained model's."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    with torch.device(args.device):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.random))
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(4)  # an entropy of three nats or so
    return model.to(getattr(torch, _dtype(args))), AutoTokenizer.from_pretrained(args.random)


def models(args: argparse.Namespace) -> Iterator[tuple[str, Callable[[], tuple[Any, Any]]]]:
    texts = ["Repeat every word of this list, in order: " + " ".join(WORDS)]
    if args.random:
        yield f"SmolLM2-135M's shape, random weights, {_dtype(args)}", lambda: random_model(args)
        return
    if args.model == "smollm2":
        from baton.learn.models import load_model

        dtype = _dtype(args)
        yield f"SmolLM2-135M, {dtype}", lambda: load_model("smollm2", device=args.device, dtype=dtype)
        return
    for size in (Tiny(), Tiny(width=128, layers=4)):

        def make(size: Tiny = size) -> tuple[Any, Any]:
            model, tokenizer = make_tiny(texts, size, seed=0)
            return model.to(args.device), tokenizer

        count = sum(p.numel() for p in make()[0].parameters())
        yield f"tiny, {count / 1e6:.2f}M", make


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="tiny", choices=("tiny", "smollm2"))
    parser.add_argument(
        "--random", metavar="FOLDER", help="random weights for a folder's config and tokenizer"
    )
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--smoke", action="store_true", help="a few short steps, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        args.prompts, args.group, args.new_tokens, args.steps, args.warm = 2, 2, 8, 1, 1
    torch.set_num_threads(1)
    where = machine(torch.cuda.get_device_name() if args.device == "cuda" else "cpu, one thread")
    rows = []
    for name, make in models(args):
        for mode in ("step", "update"):
            args.mode = mode
            seconds = by_turns(args, make)
            ours = seconds["baton"] if mode == "step" else seconds["baton update"]
            ratios = [trl / baton for trl, baton in zip(seconds["trl"], ours, strict=True)]
            medians = {part: round(1e3 * statistics.median(each)) for part, each in seconds.items()}
            print(f"{name}, {mode}: milliseconds {medians}", file=sys.stderr, flush=True)
            shape = f"{args.prompts} x {args.group} completions of {args.new_tokens}, prompts of {args.words} words"
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}x"
            rows.append(
                row(
                    f"GRPO {mode}, {name}, {shape}; {spread}",
                    f"{1e3 * statistics.median(ours):.0f} ms",
                    f"TRL {version('trl')}",
                    f"{1e3 * statistics.median(seconds['trl']):.0f} ms",
                    statistics.median(ratios),
                    where,
                )
            )
    print_table(rows)


if __name__ == "__main__":
    main()
