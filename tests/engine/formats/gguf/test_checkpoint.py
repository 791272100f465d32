"""Whole models in GGUF with anything changed in their headers: they open, or a sentence says why not."""

from __future__ import annotations

import gc
import random
import re
import struct
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import torch

from engine.base.errors import CheckpointError
from engine.formats.load import load_model
from engine.formats.open import open_checkpoint
from engine.formats.source import Packing
from engine.formats.times import LoadTimes
from tests.conformance.gguf_converter import convert
from tests.conformance.gguf_families import OPTIONS, random_model
from tests.conformance.gguf_models import KIND, Shape, write
from tests.engine.formats.changes import other_bytes
from tests.engine.formats.gguf.gguf_files import write as write_bytes

ROPE = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
BETAS = {"rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0, "rope.scaling.attn_factor": 2.0}
SHAPE = Shape(
    "llama",
    {"": KIND.Q4_0},
    inner=256,
    values={f"llama.{key}": value for key, value in (ROPE | BETAS).items()},
    rope_factors=(2.0,) * 32,
)
NUMBERS = (0, 1, 2, 3, 255, 1 << 16, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
FLOATS = (0.0, -1.0, 1.0, 1.0000001, 1e-38, 1e38, float("nan"), float("inf"))


CONVERTED = ("gemma3", "phi3", "llama", "gpt-oss", "deepseek2")
"""Architectures that have much to say for themselves, experts and latents among it."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("sound") / "model.gguf"
    write(file, SHAPE)
    return file.read_bytes()


@pytest.fixture(scope="module", params=CONVERTED)
def converted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    options = {"num_hidden_layers": 2} | ({"first_k_dense_replace": 1} if request.param == "deepseek2" else {})
    file = tmp_path_factory.mktemp("converted") / "model.gguf"
    convert(random_model(request.param, **(OPTIONS[request.param] | options)), file, lambda name: KIND.Q4_0)
    return file.read_bytes()


@pytest.mark.parametrize(
    ("kind", "packing", "packs"),
    [(KIND.Q8_0, "4bit_torch", False), (KIND.Q4_0, "4bit_torch", True), (KIND.Q4_0, "4bit", True)],
)
def test_blocks_that_stay_as_they_are_are_copied(
    kind: gguf.GGMLQuantizationType, packing: Packing, packs: bool, tmp_path: Path
) -> None:
    """And what gets another layout is told apart."""
    write(tmp_path / "model.gguf", replace(SHAPE, types={"": kind}))
    times = LoadTimes()
    load_model(open_checkpoint(tmp_path / "model.gguf"), torch.device("cpu"), torch.bfloat16, packing, times=times)
    assert set(times.seconds) == ({"copying", "packing"} if packs else {"copying"})


def with_other_values(rng: random.Random, data: bytes) -> bytes:
    """One to three metadata values replaced by others of their size."""
    changed = bytearray(data)
    names = rb"(?:llama|gemma3|phi3|gpt-oss|deepseek2|general|tokenizer)\.[a-z_.]+"
    places = [match.end() for match in re.finditer(names, data)]
    for at in rng.choices(places, k=rng.randint(1, 3)):
        kind = struct.unpack_from("<I", data, at)[0]
        value = struct.pack("<f", rng.choice(FLOATS)) if kind == 6 else struct.pack("<I", rng.choice(NUMBERS))
        changed[at + 4 : at + 8] = value
    return bytes(changed)


def survive(folder: Path, data: bytes) -> bool:
    """Whether the model opens. Nothing but a :class:`CheckpointError` says that it does not."""
    file = write_bytes(folder, data)
    begin = time.process_time()
    said = ""
    try:
        opened = open_checkpoint(file)
        opened.tokenizer()
        opened.chat_template()
    except CheckpointError as error:
        said = str(error)
    assert time.process_time() - begin < 3
    assert "\n" not in said
    assert not said or said.endswith(".")
    return not said


def fuzz(folder: Path, data: bytes, count: int, seed: int) -> None:
    rng = random.Random(seed)
    opened = 0
    for number in range(count):
        opened += survive(folder, other_bytes(rng, data, 6000) if number % 2 else with_other_values(rng, data))
    assert 0 < opened < count


@pytest.mark.slow
def test_a_vocabulary_is_not_kept_beside_the_tokenizer(tmp_path: Path) -> None:
    """Python's objects: tokens, types and scores take some 5 MB here, and the tokenizer's own are not among them."""

    def large(writer: gguf.GGUFWriter) -> None:
        words = [f"▁word{index}" for index in range(40_000)]
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores([-float(index) for index in range(len(tokens))])
        writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * len(words)])

    file = tmp_path / "model.gguf"
    write(file, replace(SHAPE, vocabulary=40_259), large)
    open_checkpoint(file).tokenizer()  # modules that are first imported there would count too
    tracemalloc.start()
    try:
        opened = open_checkpoint(file)
        assert tracemalloc.get_traced_memory()[0] > 3e6
        tokenizer = opened.tokenizer()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1e6
    finally:
        tracemalloc.stop()
    assert opened.tokenizer() is tokenizer
    assert tokenizer.token(259 + 7) == "▁word7"


def test_changed_models(sound: bytes, tmp_path: Path) -> None:
    assert survive(tmp_path, sound)
    fuzz(tmp_path, sound, 200, seed=3)


def test_changed_models_of_other_families(converted: bytes, tmp_path: Path) -> None:
    assert survive(tmp_path, converted)
    fuzz(tmp_path, converted, 100, seed=5)


@pytest.mark.long
def test_many_changed_models_of_other_families(converted: bytes, tmp_path: Path) -> None:
    fuzz(tmp_path, converted, 2_000, seed=6)


@pytest.mark.long
def test_many_changed_models(sound: bytes, tmp_path: Path) -> None:
    fuzz(tmp_path, sound, 5_000, seed=4)
