"""Models by name or folder, and what is said when there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny_model import tiny_model, tiny_tokenizer

from baton.errors import UsageError
from baton.learn.models import load_model, local


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "model"
    tiny_model().save_pretrained(place)
    tiny_tokenizer().save_pretrained(place)
    return place


def test_a_folder(folder: Path) -> None:
    model, tokenizer = load_model(str(folder), device="cpu", dtype="bfloat16")
    assert model.dtype == torch.bfloat16
    ids = torch.tensor([tokenizer("hello")["input_ids"]])
    assert torch.isfinite(model(ids).logits).all()


def test_tiny() -> None:
    model, tokenizer = load_model("tiny", device="cpu")
    assert sum(p.numel() for p in model.parameters()) < 1_000_000
    assert tokenizer.decode(tokenizer("stop 25")["input_ids"]) == "stop 25"


def test_names_and_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no model 'smolm2'\. Did you mean 'smollm2'"):
        load_model("smolm2")
    with pytest.raises(UsageError, match="no folder"):
        load_model(str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match=r"no config\.json"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(
        UsageError, match=r"cannot be opened as a causal LM: .* Give a folder written by save_pretrained"
    ):
        load_model(str(tmp_path))


def test_no_chat_template(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    tiny_tokenizer(chat=False).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"no chat template.*chat_template\.jinja"):
        load_model(str(tmp_path), device="cpu")


def test_no_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"torch sees no GPU\. Leave it out or give cpu"):
        load_model(str(folder), device="cuda")
    assert load_model(str(folder))[0].device.type == "cpu"
    with pytest.raises(UsageError, match="device 'gpu' is not known"):
        load_model(str(folder), device="gpu")


def test_too_little_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = (folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(local, "free_bytes", lambda device: int(0.7 * weights))
    with pytest.raises(UsageError, match="dtype bfloat16 for half of that"):
        load_model(str(folder), device="cpu")
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    assert load_model(str(folder), device="cpu", dtype="bfloat16")
    monkeypatch.setattr(local, "free_bytes", lambda device: None)
    assert load_model(str(folder), device="cpu")


def test_free_memory_is_known_here() -> None:
    free = local.free_bytes("cpu")
    assert free is None or free > 0
