"""A small trainer of TRL that takes rows as Baton exports them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def batch_of(rows: list[dict[str, Any]], pad: int = 0) -> dict[str, Any]:
    """Rows as one batch: prompts filled up on the left, answers on the right."""
    import torch

    def filled(name: str, value: float, *, left: bool = False) -> Any:
        width = max(len(row[name]) for row in rows)
        gaps = [[value] * (width - len(row[name])) for row in rows]
        pairs = list(zip(gaps, rows, strict=True))
        return torch.tensor([gap + row[name] if left else row[name] + gap for gap, row in pairs])

    def there(name: str, *, left: bool = False) -> Any:
        return filled(f"{name}_there", 0, left=left)

    rows = [
        {**row, **{f"{name}_there": [1] * len(row[name]) for name in ("prompt_ids", "completion_ids")}}
        for row in rows
    ]
    batch = {
        "prompt_ids": filled("prompt_ids", pad, left=True),
        "prompt_mask": there("prompt_ids", left=True),
        "completion_ids": filled("completion_ids", pad),
        "completion_mask": there("completion_ids"),
        "tool_mask": filled("tool_mask", 0),
        "advantages": filled("advantages", 0.0),
    }
    if all(row["old_per_token_logps"] is not None for row in rows):
        batch["old_per_token_logps"] = filled("old_per_token_logps", 0.0)
    return batch


def small_trainer(trl: Any, folder: Path) -> Any:
    """A GRPO trainer with a model of a few thousand weights, whose batches are given and not sampled."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {f"w{n}": n for n in range(97)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")), pad_token="w0", eos_token="w1"
    )
    model = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=97
        )
    )

    class FromRows(trl.GRPOTrainer):  # type: ignore[misc, name-defined]  # TRL has no types
        def _prepare_inputs(self, given: Any) -> Any:
            return given

    settings = trl.GRPOConfig(
        output_dir=str(folder), use_cpu=True, bf16=False, report_to=[], loss_type="grpo", beta=0.0,
        per_device_train_batch_size=4, num_generations=2, gradient_checkpointing=False,
    )  # fmt: skip
    made = FromRows(
        model=model, reward_funcs=lambda **_: [0.0], args=settings, processing_class=tokenizer,
        train_dataset=Dataset.from_list([{"prompt": "w2"}] * 4),
    )  # fmt: skip
    made.current_gradient_accumulation_steps = 1  # what its loop would have set
    return made
