"""Models that other people's software packed, against what that software makes of them (tests/conformance/fixtures)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from engine.compute.layers.linear.coded import unpack
from engine.formats.open import open_checkpoint
from tests.conformance.engine_support import Ours, relative
from tests.conformance.packed_support import (
    FUSED,
)

pytestmark = pytest.mark.usefixtures("one_thread")
FIXTURES = Path(__file__).parent / "fixtures"
TRAP = "model.layers.0.self_attn.q_proj"
EXACT = 1e-4
TITLES = {
    "autogptq-2bit-asym": "GPTQ 2-bit, groups of 32",
    "autogptq-2bit-sym-biases": "GPTQ 2-bit, groups of 32",
    "autogptq-3bit-act-order": "GPTQ 3-bit, groups of 32, act-order",
    "autogptq-3bit-asym": "GPTQ 3-bit, groups of 32",
    "autogptq-3bit-zero-at-0": "GPTQ 3-bit, groups of 32",
    "autogptq-4bit-asym-act-order": "GPTQ 4-bit, groups of 32, act-order",
    "autogptq-4bit-asym-biases": "GPTQ 4-bit, groups of 64",
    "autogptq-4bit-one-group": "GPTQ 4-bit, one group per column, act-order",
    "autogptq-4bit-sym": "GPTQ 4-bit, groups of 32",
    "autogptq-4bit-zero-at-0": "GPTQ 4-bit, groups of 32",
    "autogptq-4bit-zero-at-0-act-order": "GPTQ 4-bit, groups of 32, act-order",
    "autogptq-8bit-asym-act-order": "GPTQ 8-bit, groups of 32, act-order",
    "autogptq-8bit-sym": "GPTQ 8-bit, groups of 64",
    "bitsandbytes-fp4": "bitsandbytes FP4",
    "bitsandbytes-int8": "LLM.int8",
    "bitsandbytes-nf4": "bitsandbytes NF4",
    "bitsandbytes-nf4-bf16-storage-biases": "bitsandbytes NF4",
    "bitsandbytes-nf4-nested": "bitsandbytes NF4",
    "gptqmodel-awq": "AWQ 4-bit, groups of 32",
    "gptqmodel-awq-biases": "AWQ 4-bit, groups of 64",
    "gptqmodel-v1-8bit": "GPTQ 8-bit, groups of 64",
    "gptqmodel-v1-act-order": "GPTQ 4-bit, groups of 32, act-order",
    "gptqmodel-v1-sym": "GPTQ 4-bit, groups of 32",
    "gptqmodel-v2-3bit-asym-biases": "GPTQ 3-bit, groups of 32",
    "gptqmodel-v2-asym": "GPTQ 4-bit, groups of 32",
    "llamacpp-f16": "GGUF F16",
    "llamacpp-iq4_nl": "GGUF IQ4_NL",
    "llamacpp-iq4_xs": "GGUF IQ4_XS",
    "llamacpp-mxfp4": "GGUF MXFP4",
    "llamacpp-q2_k": "GGUF Q2_K",
    "llamacpp-q3_k_m": "GGUF Q3_K",
    "llamacpp-q4_0": "GGUF Q4_0",
    "llamacpp-q4_1": "GGUF Q4_1",
    "llamacpp-q4_k_m": "GGUF Q4_K",
    "llamacpp-q5_0": "GGUF Q5_0",
    "llamacpp-q5_1": "GGUF Q5_1",
    "llamacpp-q5_k_m": "GGUF Q5_K",
    "llamacpp-q6_k": "GGUF Q6_K",
    "llamacpp-q8_0": "GGUF Q8_0",
}
"""Every fixture, and what the window says of it (of GGUF, how that begins)."""
UNMASKED = ("autogptq-3bit-zero-at-0", "autogptq-4bit-zero-at-0-act-order")
"""Files in which auto-gptq itself takes a stored 2^b - 1 for a zero-point of 2^b; see the test of them."""
ROUNDED = {"gptqmodel-awq": 3e-3, "bitsandbytes-int8": 0.05, "llamacpp-f16": 2e-3, "llamacpp-": 0.06}
"""What logits may differ by, by the start of the name, where the other software rounds activations: GPTQModel's AWQ
and llama.cpp's F16 to float16, LLM.int8 and llama.cpp's quantised products to 8 bits. Kvasir does not."""


def tolerance(name: str) -> float:
    return next((value for start, value in ROUNDED.items() if name.startswith(start)), EXACT)


class Fixture:
    def __init__(self, name: str) -> None:
        folder = FIXTURES / name
        self.reference: dict[str, Any] = json.loads((folder / "reference.json").read_text())
        self.prompts: list[list[int]] = self.reference["prompts"]
        self.continuation: list[int] = self.reference["continuation"]
        every = torch.from_numpy(np.load(folder / "logits.npy"))
        self.logits: list[Tensor] = list(every.split([len(prompt) for prompt in self.prompts]))
        self.ours = Ours(folder)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Our dequantised weights by the names of the file's modules, taken out of the layers that fuse them."""
        for name, linear in self.ours.model.linears():
            if name == "head":
                continue
            layer, _, last = name.rpartition(".")
            block = f"model.{layer}.{'self_attn' if last in ('qkv', 'output') else 'mlp'}"
            names = [f"{block}.{part}" for part in FUSED[last]]
            rows = [self.reference["weights"][each]["shape"][0] for each in names]
            yield from zip(names, linear.dequantised(torch.float32).split(rows), strict=True)


def digest(weight: Tensor, dtype: str) -> str:
    """As fixtures/common.py has it: of float32, row by row, zeros without a sign."""
    plain = (weight.to(getattr(torch, dtype)).float() + 0.0).contiguous().numpy()
    return hashlib.sha256(plain.astype("<f4").tobytes()).hexdigest()


def test_every_fixture_is_tested() -> None:
    assert sorted(TITLES) == sorted(path.name for path in FIXTURES.iterdir() if (path / "reference.json").is_file())
    for folder in FIXTURES.iterdir():
        if folder.is_dir() and folder.name not in ("requirements", "__pycache__"):
            assert folder.name in TITLES
            assert sum(file.stat().st_size for file in folder.iterdir()) < 300_000


@pytest.mark.parametrize("name", TITLES)
def test_weights_are_those_of_the_packer(name: str) -> None:
    """Bit for bit; where the packer's software dequantises in float16, after the same rounding."""
    fixture = Fixture(name)
    wanted = {key: value["sha256"] for key, value in fixture.reference["weights"].items()}
    dtype = fixture.reference["dequantised in"]
    found = {key: digest(weight, dtype) for key, weight in fixture.weights()}
    if name in UNMASKED:
        assert found.pop(TRAP) != wanted.pop(TRAP)
    assert found == wanted


@pytest.mark.parametrize("name", [name for name in TITLES if name not in UNMASKED])
def test_logits_and_text_are_those_of_the_packer(name: str) -> None:
    """Where two tokens are as good as equally likely to the other software, either is the continuation."""
    fixture, allowed = Fixture(name), tolerance(name)
    for found, want in zip(fixture.ours.logits(fixture.prompts), fixture.logits, strict=True):
        assert relative(found, want) <= allowed
    prompt = fixture.prompts[1]
    if allowed == EXACT:
        assert fixture.ours.greedy(prompt, len(fixture.continuation)) == fixture.continuation
    logits = fixture.ours.logits([prompt + fixture.continuation[:-1]])[0][len(prompt) - 1 :]
    chosen = logits.gather(1, torch.tensor(fixture.continuation)[:, None])[:, 0]
    margin = 2 * allowed * float(logits.abs().max())
    assert bool((chosen >= logits.amax(1) - margin).all())


@pytest.mark.parametrize("name", TITLES)
def test_what_is_said_of_it(name: str) -> None:
    found = open_checkpoint(FIXTURES / name, need_tokenizer=False).quantisation_title
    assert found == TITLES[name] or (name.startswith("llamacpp") and found.startswith(TITLES[name] + " with "))


@pytest.mark.parametrize("name", UNMASKED)
def test_a_zero_point_of_0_in_version_1(name: str) -> None:
    """Version 1 stores a zero-point of 0 as 2^b - 1, over whose word the packer writes ones.

    auto-gptq's class for plain groups takes it for 0 in 2, 4 and 8 bits; that for act-order, and both in 3 bits, take
    it for 2^b, so those files do not stand for what was quantised. Kvasir reads 0 everywhere.
    """
    fixture = Fixture(name)
    bits = 3 if "3bit" in name else 4
    tensors = load_file(next((FIXTURES / name).glob("*.safetensors")))
    scales, qzeros, group_of = (tensors[f"{TRAP}.{part}"] for part in ("scales", "qzeros", "g_idx"))
    stored = unpack(qzeros.t().contiguous(), bits, scales.shape[1]).t()
    wrong = (stored == 2**bits - 1)[group_of.long()].t()
    assert 0.01 < wrong.float().mean() < 0.5
    theirs = torch.from_numpy(np.load(FIXTURES / name / f"{TRAP}.npy"))
    ours = dict(fixture.weights())[TRAP]
    assert torch.equal(ours[~wrong], theirs[~wrong])
    low = 2**bits * scales.float()[group_of.long()].t()
    torch.testing.assert_close(ours[wrong], (theirs + low)[wrong], rtol=1e-5, atol=1e-6)


def test_the_packer_damages_the_word_of_a_zero_point_of_0() -> None:
    """Later fields of the word are all ones too; auto-gptq reads them as 0, and so the same weights as Kvasir."""
    tensors = load_file(next((FIXTURES / "autogptq-4bit-zero-at-0").glob("*.safetensors")))
    qzeros = tensors[f"{TRAP}.qzeros"]
    stored = unpack(qzeros.t().contiguous(), 4, qzeros.shape[1] * 8)
    assert bool((stored[5:8] == 15).all())
    assert bool((stored[31] == 15).all())
    assert not bool((stored[8:31] == 15).any())
