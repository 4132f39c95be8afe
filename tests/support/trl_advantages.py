"""Trains TRL's trainers for one step on rewards that were given, and prints the advantages they worked out.

python trl_advantages.py '[0.0, 1.0, 1.0, 0.25]' FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any


def trained(kind: str, rewards: list[float], folder: str, **settings: Any) -> list[float]:
    import torch
    import trl
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    torch.set_num_threads(1)
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "a": 2, "b": 3}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    config = Qwen2Config(
        vocab_size=4, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, max_position_embeddings=64, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    make_settings: Callable[..., Any] = getattr(trl, f"{kind}Config")
    make_trainer: Callable[..., Any] = getattr(trl, f"{kind}Trainer")
    trainer = make_trainer(
        model=Qwen2ForCausalLM(config),
        reward_funcs=lambda completions, **_: rewards[: len(completions)],
        args=make_settings(
            output_dir=folder, per_device_train_batch_size=len(rewards), num_generations=len(rewards),
            max_completion_length=2, max_steps=1, beta=0.0, report_to=[], logging_strategy="no", save_strategy="no",
            use_cpu=True, bf16=False, disable_tqdm=True, gradient_checkpointing=False, **settings,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["a b"]}),
        processing_class=PreTrainedTokenizerFast(
            tokenizer_object=words, pad_token="<pad>", eos_token="<eos>"
        ),
    )  # fmt: skip
    trainer.train()
    return list(trainer._logs["advantages"])


if __name__ == "__main__":
    given, place = json.loads(sys.argv[1]), sys.argv[2]
    found = {
        "group": trained("GRPO", given, place),
        "mean": trained("GRPO", given, place, scale_rewards="none"),
        "leave-one-out": trained("RLOO", given, place),
    }
    print(json.dumps(found))
