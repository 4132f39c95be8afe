"""`tiny`: a language model made here, small enough to learn a game in minutes on two CPU cores.

A Llama of a few hundred thousand weights with a byte-level BPE tokenizer trained on what the team says and reads,
so any text can be written and the words of a task are one token each. Untrained it says nothing sensible: a
supervised warm start on scripted play teaches it the grammar (`baton.learn.models.start`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

END, PAD = "<end>", "<pad>"
CHAT_TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role == 'assistant' %}>{{ m.content }}<end>"
    "{% elif m.content %}{{ m.content }}\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}>{% endif %}"
)


class Tiny(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large the model is."""

    width: int = 96
    layers: int = 2
    heads: int = 4
    vocabulary: int = 512
    """At most; the 256 bytes are always there."""
    context: int = 1024


def make_tiny(texts: Iterable[str], size: Tiny, *, seed: int) -> tuple[Any, Any]:
    """An untrained model and its tokenizer. The same texts, size and seed give the same weights."""
    import torch
    from transformers import LlamaForCausalLM

    tokenizer = _tokenizer(texts, size.vocabulary)
    config = _config(
        len(tokenizer),
        size,
        size.context,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    return model.eval(), tokenizer


def decoder_of(vocabulary: int, size: Tiny, *, context: int) -> Any:
    """The layers alone, untrained, for a critic; weights come from torch's generator as it is."""
    from transformers import LlamaModel

    return LlamaModel(_config(vocabulary, size, context))


def _config(vocabulary: int, size: Tiny, context: int, **more: Any) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=size.width,
        intermediate_size=8 * size.width // 3 // 8 * 8,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=context,
        bos_token_id=None,
        **more,
    )


def _tokenizer(texts: Iterable[str], vocabulary: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END, pad_token=PAD)  # type: ignore[no-untyped-call]
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
