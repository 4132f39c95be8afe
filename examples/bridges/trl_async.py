"""A team that Baton plays and credits, trained by TRL's AsyncGRPOTrainer (TRL 1.16).

    python examples/bridges/trl_async.py OUT

The team is the small model of the stopping chain, so that this runs on two CPU cores in a minute; with another recipe
and the folder of another model the lines are the same. TRL's attention is a kernel for GPUs: `on_a_cpu` puts the plain
formula in its place, and is not needed where there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from baton.compose.bridge_trl import EngineWeights, TeamRollouts
from baton.compose.step_rows import StepRows
from baton.learn.recipe import parse

RECIPE = """
about = "the stopping chain, trained by TRL"
[task]
name = "game:stopping-chain"
settings = {num_workers = 3, num_steps = 4}
[team]
template = ""
memory = "latest"
max_tokens = 12
[policies.main]
model = "tiny"
tiny = {width = 32, layers = 1, heads = 2, vocabulary = 300}
[warm]
play = "random"
episodes = 200
steps = 80
learning_rate = 0.01
[[credit]]
estimator = "group"
group_by = "task"
[rollout]
groups = 4
group_size = 4
"""


def on_a_cpu() -> None:
    """TRL's attention over a prefix tree as the formula says it, and no question about the GPU."""
    from trl.experimental.async_grpo import async_grpo_trainer, packing

    def plain(
        q: Any, k: Any, v: Any, ends_q: Any, ends_k: Any, *_: Any, softmax_scale: float, **__: Any
    ) -> Any:
        found = []
        for at in range(len(ends_q) - 1):
            mine = q[ends_q[at] : ends_q[at + 1]].transpose(0, 1)
            keys, values = (each[ends_k[at] : ends_k[at + 1]].transpose(0, 1) for each in (k, v))
            scores = mine @ keys.transpose(1, 2) * softmax_scale
            later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(scores.shape[2] - scores.shape[1] + 1)
            found.append(scores.masked_fill(later, -torch.inf).softmax(-1) @ values)
        return torch.cat(found, 1).transpose(0, 1)

    packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=plain)
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None  # it asks CUDA for the card's name


def main(out: Path, *, steps: int = 3) -> TeamRollouts:
    from transformers import AutoTokenizer
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

    if not torch.cuda.is_available():
        on_a_cpu()
    rows = StepRows(parse(RECIPE))
    model = out / "model"
    rows.engine.model.save_pretrained(model)
    rows.engine.tokenizer.save_pretrained(model)
    worker = TeamRollouts(rows)
    trainer = AsyncGRPOTrainer(
        model=str(model),
        args=AsyncGRPOConfig(
            output_dir=str(out), max_steps=steps, per_device_train_batch_size=32, gradient_accumulation_steps=1,
            learning_rate=1e-3, token_budget=0, temperature=1.0, report_to=[], save_strategy="no",
            use_cpu=not torch.cuda.is_available(), bf16=torch.cuda.is_available(), logging_steps=1,
            gradient_checkpointing=False,
        ),
        train_dataset=_prompts(),
        processing_class=AutoTokenizer.from_pretrained(model),
        rollout_worker=worker,
        weight_transfer=EngineWeights(rows.engine),
    )  # fmt: skip
    trainer.train()
    worker.stop()
    print(
        f"trained  {steps} steps; Baton played {len(worker.num_samples)}; engine's weights {rows.engine.version}"
    )
    rows.close()
    return worker


def _prompts() -> Any:
    """TRL wants a dataset, and asks it for nothing where rollouts come from elsewhere."""
    from datasets import Dataset

    return Dataset.from_dict({"prompt": [[{"role": "user", "content": "?"}]] * 8})


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/trl"))
