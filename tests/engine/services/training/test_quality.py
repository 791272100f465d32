"""What a smaller model lost, beside transformers' own logits of both."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from engine.library.paths import bundled_folder
from engine.loading.model import LoadedModel
from engine.protocol import DeviceName, LoadOptions
from engine.services.quantise import quality
from engine.services.quantise.plain import convert
from engine.services.quantise.quality import Quality, compare
from engine.services.training.errors import RecipeError, RecipeStopped

TEXT = ("The quick brown fox jumps over the lazy dog. " * 40, "Pages are sixteen tokens long; so it is. " * 30)
LENGTH = 64


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float32 wherever it runs, and short pieces."""
    monkeypatch.setattr(quality, "LoadOptions", functools.partial(LoadOptions, dtype="float32", device="cpu"))
    monkeypatch.setattr(quality, "LENGTH", LENGTH)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights under the bundled model's tokenizer."""
    folder = tmp_path_factory.mktemp("source")
    config = transformers.LlamaConfig(
        vocab_size=4096, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, eos_token_id=2, bos_token_id=0, initializer_range=0.15,
    )  # fmt: skip
    torch.manual_seed(3)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bundled_folder() / "kvasir-guide" / name, folder)
    return folder


@pytest.fixture(scope="module")
def damaged(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged") / "model"
    shutil.copytree(source, folder)
    tensors = load_file(folder / "model.safetensors")
    weight = tensors["model.layers.1.mlp.down_proj.weight"]
    weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def compared(source: Path, made: Path, text: Sequence[str] | None = TEXT) -> Quality:
    return compare(source, made, text, lambda done, total: None, lambda: False)


def test_the_same_model_loses_nothing(source: Path) -> None:
    told: list[tuple[int, int]] = []
    found = compare(source, source, TEXT, lambda *counts: told.append(counts), lambda: False)
    assert (found.kl, found.same_top) == (0.0, 1.0)
    assert found.before.perplexity == found.after.perplexity
    assert found.before.bytes == found.after.bytes
    assert min(found.before.tokens_per_second, found.after.tokens_per_second) > 0
    assert told == [(number, len(told)) for number in range(1, len(told) + 1)]
    assert len(told) % 2 == 0


@torch.inference_mode()
def test_the_figures_are_those_of_transformers(source: Path, damaged: Path) -> None:
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(source / "tokenizer.json"))
    models = [transformers.LlamaForCausalLM.from_pretrained(path).eval() for path in (source, damaged)]
    nll, kl, same, count = [0.0, 0.0], 0.0, 0, 0
    for text in TEXT:
        ids = tokenizer(text)["input_ids"]
        for piece in (ids[at : at + LENGTH] for at in range(0, len(ids), LENGTH)):
            if len(piece) < 8:
                continue
            p, q = (model(torch.tensor([piece])).logits[0, :-1].double().log_softmax(-1) for model in models)
            for place, logs in enumerate((p, q)):
                nll[place] -= float(logs.gather(1, torch.tensor(piece[1:])[:, None]).sum())
            kl += float((p.exp() * (p - q)).sum())
            same += int((p.argmax(-1) == q.argmax(-1)).sum())
            count += len(piece) - 1
    found = compared(source, damaged)
    assert found.tokens == count
    perplexities = found.before.perplexity, found.after.perplexity
    assert perplexities == pytest.approx([float(torch.tensor(each / count).exp()) for each in nll], rel=1e-4)
    assert found.kl == pytest.approx(kl / count, rel=1e-3)
    assert found.kl > 0.01
    assert found.same_top == pytest.approx(same / count, abs=2 / count)
    assert found.same_top < 0.9


@pytest.mark.slow
def test_formats_by_what_they_lose(source: Path, tmp_path: Path) -> None:
    found = {}
    for to in ("int8", "gguf-q8_0", "gguf-q5_1", "nf4"):
        out = tmp_path / to
        out.mkdir()
        convert(source, to, out, lambda *_: None, lambda: False)
        found[to] = compared(source, next(out.glob("*.gguf"), out))
        assert found[to].after.bytes < found[to].before.bytes
    assert 0 < max(found["int8"].kl, found["gguf-q8_0"].kl) < found["gguf-q5_1"].kl < found["nf4"].kl
    assert not [file for folder in tmp_path.iterdir() for file in folder.iterdir() if file.name.startswith("tmp")]


@pytest.mark.slow
def test_a_long_text_is_sampled_all_over(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compared(source, source).tokens
    monkeypatch.setattr(quality, "MOST_TOKENS", 4 * LENGTH)
    assert compared(source, source).tokens == 4 * (LENGTH - 1) < whole
    monkeypatch.setattr(quality, "MOST_BYTES", 4 * 4096 * 2 * LENGTH)
    assert compared(source, source).tokens == 2 * (LENGTH - 1)


def test_without_a_text_it_takes_the_programs_own(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "MOST_TOKENS", 2 * LENGTH)
    assert compared(source, source, None).tokens == 2 * (LENGTH - 1)


@pytest.mark.slow
def test_stopped_and_refused(source: Path, tmp_path: Path) -> None:
    for number in (0, 30, 60):
        asked = iter(range(number))
        with pytest.raises(RecipeStopped):
            compare(source, source, TEXT, lambda *_: None, lambda asked=asked: next(asked, None) is None)
    with pytest.raises(RecipeError, match="text to measure on is too short"):
        compared(source, source, ["Hi."])
    with pytest.raises(RecipeError, match="made of another model"):
        compared(bundled_folder() / "kvasir-seeing", source)
    with pytest.raises(RecipeError, match="has no config"):
        compared(source, tmp_path)
    assert not list(tmp_path.iterdir())


def test_models_without_room_on_a_gpu_are_compared_on_the_processor(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tried = quality._load, []

    def load(path: Path, stopped: Callable[[], bool], device: DeviceName) -> LoadedModel:
        tried.append(device)
        if device != "cpu":
            raise quality._RoomError("It does not fit.")
        return real(path, stopped, device)

    monkeypatch.setattr(quality, "_load", load)
    monkeypatch.setattr(quality, "choose_device", lambda name: torch.device("meta"))
    assert compared(source, source).kl == 0.0
    assert tried == ["auto", "cpu", "cpu"]
    monkeypatch.setattr(quality, "choose_device", lambda name: torch.device("cpu"))
    with pytest.raises(RecipeError, match="does not fit"):
        compared(source, source)
