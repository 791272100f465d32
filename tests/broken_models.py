"""The bundled model, broken in every way that a download, a disk or a person can break it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ASSETS = Path(__file__).resolve().parent.parent / "assets" / "demo"
SOUND = ASSETS / "kvasir-guide"
DRAFT = ASSETS / "kvasir-guide-draft"
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")

Break = Callable[[Path], None]


class Breakage(NamedTuple):
    """``says``: words that the sentence must have, so that a person knows which thing is meant."""

    name: str
    apply: Break
    says: tuple[str, ...]


def copy_model(to: Path, source: Path = SOUND) -> Path:
    """A copy that may be broken."""
    to.mkdir(parents=True)
    for name in FILES:
        shutil.copyfile(source / name, to / name)
    return to


def make(folder: Path, breakage: Breakage) -> Path:
    """``folder``/NAME, a broken copy of the bundled model."""
    broken = copy_model(folder / breakage.name)
    breakage.apply(broken)
    return broken


def config(**values: Any) -> Break:
    """Change values of config.json; None takes one away."""

    def apply(folder: Path) -> None:
        file = folder / "config.json"
        known = json.loads(file.read_text()) | values
        file.write_text(json.dumps({key: value for key, value in known.items() if value is not None}))

    return apply


def packing(**values: Any) -> Break:
    """Change values of config.json's quantization_config."""

    def apply(folder: Path) -> None:
        known = json.loads((folder / "config.json").read_text())["quantization_config"]
        config(quantization_config=known | values)(folder)

    return apply


def remove(name: str) -> Break:
    return lambda folder: (folder / name).unlink()


def write(name: str, data: bytes) -> Break:
    def apply(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return apply


def cut(name: str, share: float) -> Break:
    """Keep the first part of a file, as an interrupted download leaves it."""

    def apply(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: min(len(data) - 1, int(len(data) * share))])

    return apply


def overwrite(name: str, start: int, data: bytes) -> Break:
    """Bytes of the file from ``start`` (from its end when negative) replaced, its length kept."""

    def apply(folder: Path) -> None:
        with (folder / name).open("r+b") as stream:
            stream.seek(start, 0 if start >= 0 else 2)
            stream.write(data)

    return apply


def folder_instead(name: str) -> Break:
    def apply(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return apply


def no_numbers(folder: Path) -> None:
    """Every floating point tensor becomes NaN: a sound header, and a body as a failing disk returns it."""
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    length = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__" and entry["dtype"] in ("F16", "BF16", "F32"):
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            data[begin:end] = b"\xff" * (end - begin)
    file.write_bytes(data)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def index(names: dict[str, str]) -> Break:
    def apply(folder: Path) -> None:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))

    return apply


WEIGHTS = "model.safetensors"
BREAKAGES = (
    Breakage("no-config", remove("config.json"), ("config.json",)),
    Breakage("empty-config", write("config.json", b""), ("config.json",)),
    Breakage("cut-config", cut("config.json", 0.5), ("config.json",)),
    Breakage("binary-config", write("config.json", bytes(range(256))), ("config.json",)),
    Breakage("list-config", write("config.json", b"[1]"), ("config.json",)),
    Breakage("folder-config", folder_instead("config.json"), ("config.json",)),
    Breakage("unknown-architecture", config(architectures=["MambaForCausalLM"]), ("MambaForCausalLM", "Llama")),
    Breakage("no-architecture", config(architectures=None), ("config.json", "architecture")),
    Breakage("odd-architecture", config(architectures=7), ("config.json", "architecture")),
    Breakage("another-architecture", config(architectures=["Qwen3ForCausalLM"]), ("q_norm",)),
    Breakage("more-layers", config(num_hidden_layers=9), ("layers.8",)),
    Breakage("fewer-layers", config(num_hidden_layers=7), ("8 layers", "7")),
    Breakage("absurdly-many-layers", config(num_hidden_layers=2_000_000_000), ("layers",)),
    Breakage("wider", config(hidden_size=512), ("shape",)),
    Breakage("larger-vocabulary", config(vocab_size=5000), ("embed_tokens", "5000")),
    Breakage("other-heads", config(num_key_value_heads=4), ("k_proj",)),
    Breakage("uneven-heads", config(num_key_value_heads=3), ("3",)),
    Breakage("other-head-size", config(head_dim=32), ("_proj",)),
    Breakage("text-for-a-number", config(hidden_size="256"), ("hidden_size",)),
    Breakage("no-context", config(max_position_embeddings=0), ("max_position_embeddings",)),
    Breakage("untied", config(tie_word_embeddings=False), ("lm_head",)),
    Breakage("other-groups", packing(group_size=32), ("qzeros",)),
    Breakage("eight-bits", packing(bits=8), ("8", "4")),
    Breakage("unknown-packing", packing(quant_method="hqq"), ("hqq", "AWQ")),
    Breakage("another-packing", packing(quant_method="awq"), ("awq",)),
    Breakage("another-layout", packing(quant_method="awq", version="gemv"), ("AWQ", "gemv")),
    Breakage("bitsandbytes-packing", packing(quant_method="bitsandbytes", load_in_4bit=True), ("q_proj.weight",)),
    Breakage("compressed-packing", packing(quant_method="compressed-tensors"), ("config_groups",)),
    Breakage("unsaid-packing", config(quantization_config=None), ("quantization_config",)),
    Breakage("unknown-rope", config(rope_scaling={"rope_type": "longrope", "factor": 2.0}), ("longrope",)),
    Breakage("no-weights", remove(WEIGHTS), ("no weights",)),
    Breakage("pickled-weights", pickled, ("pickled",)),
    Breakage("empty-weights", write(WEIGHTS, b""), (WEIGHTS,)),
    Breakage("cut-weights", cut(WEIGHTS, 0.6), (WEIGHTS, "truncated")),
    Breakage("one-byte-short", cut(WEIGHTS, 1.0), (WEIGHTS, "truncated")),
    Breakage("cut-header", cut(WEIGHTS, 0.001), (WEIGHTS, "truncated")),
    Breakage("absurd-header", overwrite(WEIGHTS, 0, b"\xff" * 8), (WEIGHTS, "safetensors")),
    Breakage("garbled-header", overwrite(WEIGHTS, 40, b"\x00garbage\x00"), (WEIGHTS, "corrupt")),
    Breakage("pointer", write(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), ("git lfs",)),
    Breakage("no-numbers", no_numbers, ("no-numbers",)),
    Breakage("lost-shard", index({"lm_head.weight": "model-00001-of-00002.safetensors"}), ("model-00001",)),
    Breakage("climbing-shard", index({"lm_head.weight": "../kvasir-guide/model.safetensors"}), ("../kvasir-guide",)),
    Breakage("no-tokenizer", remove("tokenizer.json"), ("tokenizer.json",)),
    Breakage("cut-tokenizer", cut("tokenizer.json", 0.5), ("tokenizer.json",)),
    Breakage("empty-tokenizer", write("tokenizer.json", b""), ("tokenizer.json",)),
    Breakage("odd-tokenizer", write("tokenizer.json", b'{"model": 1}'), ("tokenizer.json",)),
    Breakage("folder-tokenizer", folder_instead("tokenizer.json"), ("tokenizer.json",)),
)


STILL_THERE = " kvasir-guide is still loaded."


def check_sentence(text: str, *says: str) -> None:
    """Loosely: it names the thing, ends with a full stop, is at most two sentences and shows no inside of Kvasir."""
    assert text.endswith((".", "?")), text
    assert len(re.findall(r"[.!?](?=\s+[A-Z]|$)", text)) <= 2, text
    for word in says:
        assert word in text, text
    for inside in ("Traceback", "Error:", "object at 0x", "None", "NoneType", "\n"):
        assert inside not in text, text
