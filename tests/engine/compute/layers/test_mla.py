"""Both forms of latent attention against its definition, whatever the step is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.cache.stores.store import LatentKVStore
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.layers import latent_forms
from engine.compute.layers.interface import Step
from engine.compute.layers.latent_forms import expanding_pays
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.mla import LatentAttention
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.rotary import RotaryEmbedding
from engine.compute.models.registry import family
from engine.compute.runner.buffers import powers_of_two
from engine.compute.runner.runner import Runner
from engine.config.attention import LatentShape
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig

torch.set_num_threads(1)
HIDDEN, HEADS, PAGES = 32, 4, 60
SHAPE = LatentShape(rank=24, nope=16, rope=8, value=12, q_rank=20)
TREE = (-1, 0, 0, 1, 1, -1, 5, 2)


def config(shape: LatentShape = SHAPE) -> ModelConfig:
    values: dict[str, Any] = {
        "architectures": ["DeepseekV2ForCausalLM"], "hidden_size": HIDDEN, "num_attention_heads": HEADS,
        "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 50, "n_routed_experts": None,
        "kv_lora_rank": shape.rank, "qk_nope_head_dim": shape.nope, "qk_rope_head_dim": shape.rope,
        "v_head_dim": shape.value, "q_lora_rank": shape.q_rank,
    }  # fmt: skip
    return family("DeepseekV2ForCausalLM").read_config(RawConfig(values, Path("config.json")))


class Weights:
    """Random weights, the same for the same name."""

    device = torch.device("cpu")

    def __init__(self, dtype: torch.dtype = torch.float32, invariant: bool = False) -> None:
        self.dtype, self.numerics = dtype, Numerics(invariant)

    def _random(self, name: str, *shape: int) -> Tensor:
        generator = torch.Generator().manual_seed(sum(name.encode()))
        return (torch.randn(shape, generator=generator) * 0.2).to(self.dtype)

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        parts = [self._random(name, size, in_features) for name, size in zip(names, sizes, strict=True)]
        return Dense(torch.cat(parts), None, self.numerics)

    def matrix(self, prefix: str, rows: int, columns: int) -> Tensor:
        return self._random(prefix, rows, columns)

    def vector(self, name: str, size: int) -> Tensor:
        return self._random(name, size) + 1


class Block:
    """One attention block with its cache. ``forms`` forces "absorbed" or "expanded"; None leaves it the choice."""

    def __init__(self, forms: str | None, shape: LatentShape = SHAPE, dtype: torch.dtype = torch.float32,
                 invariant: bool = False, kept: torch.dtype | None = None) -> None:  # fmt: skip
        self.config, source = config(shape), Weights(dtype, invariant)
        self.attention = LatentAttention(self.config, 0, source, "")  # type: ignore[arg-type]
        if forms is not None:
            planned = latent_forms.Forms(None, None)
            every = lambda batch: planned if forms == "absorbed" else latent_forms.Forms(  # noqa: E731
                None, latent_forms.expansion(batch, range(batch.host.S)))  # fmt: skip
            self.attention.forms.plan = every  # type: ignore[method-assign]
        self.kv = LatentKVStore(1, PAGES, shape.rank, shape.rope, kept or dtype)
        self.backend = AttentionDispatcher(source.numerics)
        self.rotary = RotaryEmbedding(self.config.positions.rope, shape.rope, 512, dtype, torch.device("cpu"))

    def forward(self, rows: Sequence[SequenceRows], x: Tensor, padded: bool = False) -> Tensor:
        """``x [T, hidden]`` -> what the block adds for its T rows; padding rows, if any, add nothing."""
        runner = Runner(SimpleNamespace(num_groups=1), self.kv, None, policy=powers_of_two if padded else None)  # type: ignore[arg-type]
        batch = runner.batch(rows)
        given = torch.zeros(batch.tokens.shape[0], HIDDEN, dtype=x.dtype)
        given[: x.shape[0]] = x
        step = Step(batch, self.kv, self.backend, (self.rotary.step(batch),))
        out = self.attention.forward(given, step)
        assert not out[x.shape[0] :].any()
        return out[: x.shape[0]]


def definition(shape: LatentShape, x: Tensor, parents: Sequence[int]) -> Tensor:
    """The block over one whole sequence in float64; row i sees itself and the chain of its parents."""
    weights, eps = Weights(), 1e-6

    def weight(name: str, rows: int, columns: int) -> Tensor:
        return weights._random(name, rows, columns).double()

    def norm(y: Tensor, name: str) -> Tensor:
        return y / (y.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weights.vector(name, y.shape[-1]).double()

    def depth(row: int) -> int:
        return 0 if row < 0 else 1 + depth(parents[row])

    def turn(y: Tensor) -> Tensor:
        """Pairs of neighbours as complex numbers, which is how the paper's release has it. ``y [T, heads, rope]``"""
        place = torch.tensor([depth(row) - 1 for row in range(len(parents))], dtype=torch.float64)
        speed = 10000.0 ** (-torch.arange(0, shape.rope, 2, dtype=torch.float64) / shape.rope)
        angle = place[:, None] * speed
        pairs = torch.view_as_complex(y.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)[:, None]).flatten(-2)

    x, count, width = x.double(), x.shape[0], shape.nope + shape.rope
    q_rank = shape.q_rank
    if q_rank is None:
        q = x @ weight("q_proj", HEADS * width, HIDDEN).T
    else:
        q = norm(x @ weight("q_a_proj", q_rank, HIDDEN).T, "q_a_layernorm.weight")
        q = q @ weight("q_b_proj", HEADS * width, q_rank).T
    q = q.view(count, HEADS, width)
    latent = x @ weight("kv_a_proj_with_mqa", shape.rank + shape.rope, HIDDEN).T
    c = norm(latent[:, : shape.rank], "kv_a_layernorm.weight")
    kv = (c @ weight("kv_b_proj", HEADS * (shape.nope + shape.value), shape.rank).T).view(count, HEADS, -1)
    k_rope = turn(latent[:, None, shape.rank :]).expand(-1, HEADS, -1)
    k, v = torch.cat((kv[..., : shape.nope], k_rope), -1), kv[..., shape.nope :]
    q = torch.cat((q[..., : shape.nope], turn(q[..., shape.nope :])), -1)
    hidden = torch.ones(count, count, dtype=torch.bool)
    for row in range(count):
        at = row
        while at >= 0:
            hidden[row, at] = False
            at = parents[at]
    scores = torch.einsum("qhd,khd->hqk", q, k) * width**-0.5
    o = torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)
    return o.reshape(count, -1) @ weight("o_proj", HIDDEN, HEADS * shape.value).T


class Text:
    """A sequence whose first ``start`` tokens are in the cache when the ``rows`` others come, as a tree if asked."""

    def __init__(self, start: int, rows: int, pages: Sequence[int], tree: Sequence[int] | None = None) -> None:
        self.start, self.rows, self.pages, self.tree = start, rows, list(pages), tree
        self.x = torch.randn(start + rows, HIDDEN, generator=torch.Generator().manual_seed(start * 1000 + rows))

    def cached(self) -> SequenceRows:
        return SequenceRows([0] * self.start, 0, self.pages)

    def new(self) -> SequenceRows:
        return SequenceRows([0] * self.rows, self.start, self.pages, 0, self.tree)

    def expected(self, shape: LatentShape) -> Tensor:
        parents = list(range(-1, self.start + self.rows - 1))
        if self.tree is not None:
            parents[self.start :] = [self.start + p if p >= 0 else self.start - 1 for p in self.tree]
        return definition(shape, self.x, parents)[self.start :]


TEXTS = {
    "first token": [Text(0, 1, [1])],
    "prompt": [Text(0, 70, range(1, 6))],
    "chunk after a cached prefix": [Text(33, 40, [9, 3, 4, 30, 2])],
    "decoding": [Text(50, 1, [4, 3, 2, 1])],
    "tree": [Text(20, 8, [2, 1], TREE)],
    "tree at the start": [Text(0, 8, [2], TREE)],
    "decoding, prompt, chain, chunk, tree": [Text(40, 1, [1, 2, 3]), Text(0, 37, [20, 22, 21]), Text(30, 4, [5, 4, 6]),
        Text(16, 60, range(40, 46)), Text(20, 8, [9, 8], TREE), Text(3, 1, [50])],
}  # fmt: skip
SHAPES = {
    "low queries": SHAPE,
    "straight queries": replace(SHAPE, q_rank=None),
    "wide values": replace(SHAPE, value=24),
}


def run(block: Block, texts: Sequence[Text], padded: bool = False) -> list[Tensor]:
    cached = [text for text in texts if text.start]
    if cached:
        block.forward([text.cached() for text in cached], torch.cat([text.x[: text.start] for text in cached]))
    out = block.forward([text.new() for text in texts], torch.cat([text.x[text.start :] for text in texts]), padded)
    return list(out.split([text.rows for text in texts]))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("name", list(TEXTS))
@pytest.mark.parametrize("forms", ["absorbed", "expanded", None])
def test_both_forms_are_the_definition(forms: str | None, name: str, shape: str, padded: bool) -> None:
    texts = TEXTS[name]
    for found, text in zip(run(Block(forms, SHAPES[shape]), texts, padded), texts, strict=True):
        assert (found - text.expected(SHAPES[shape])).abs().max() < 1e-5


def test_batch_invariant_rows_have_the_bits_of_any_batch() -> None:
    texts = TEXTS["decoding, prompt, chain, chunk, tree"]
    together = run(Block(None, invariant=True), texts)
    for text, found in zip(texts, together, strict=True):
        assert torch.equal(run(Block(None, invariant=True), [text], padded=True)[0], found)
        assert (found - text.expected(SHAPE)).abs().max() < 1e-5


def test_a_step_is_split_by_what_each_sequence_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    block = Block(None)
    made = []
    planned = block.attention.forms._planned
    monkeypatch.setattr(block.attention.forms, "_planned", lambda batch: made.append(planned(batch)) or made[-1])
    run(block, TEXTS["decoding, prompt, chain, chunk, tree"])
    forms = made[-1]
    assert forms.absorbed is not None
    assert forms.expanded is not None
    assert forms.absorbed.batch.host.kv_len == [41, 34, 28, 4]
    assert forms.expanded.batch.host.kv_len == [37, 76]
    assert forms.expanded.rows.tolist() == [*range(1, 38), *range(42, 102)]


def test_what_would_not_fit_is_absorbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for 80 tokens: the chunk's 76 keys no longer fit beside the prompt's 37."""
    monkeypatch.setattr(latent_forms, "EXPANDED_BYTES", 80 * 4 * (24 + 16 + 2 * 8 + 12))
    block = Block(None)
    texts = TEXTS["decoding, prompt, chain, chunk, tree"]
    for found, text in zip(run(block, texts), texts, strict=True):
        assert (found - text.expected(SHAPE)).abs().max() < 1e-5
    forms = block.attention.forms._forms
    assert forms.expanded is not None
    assert forms.expanded.batch.host.kv_len == [37]


def test_few_heads_at_a_time_are_all_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = TEXTS["decoding, prompt, chain, chunk, tree"]
    whole = run(Block("expanded"), texts)
    for size in (1, 3 * 160 * 36 * 4):
        monkeypatch.setattr(latent_forms, "EXPANDED_BYTES", size)
        for found, want in zip(run(Block("expanded"), texts), whole, strict=True):
            assert (found - want).abs().max() < 1e-5


def test_the_cheaper_form() -> None:
    """The widths of DeepSeek-V2: prompts are expanded, few rows after a long text are not."""
    v2 = LatentShape(rank=512, nope=128, rope=64, value=128)
    for rows, keys, pays in ((1, 1, False), (1, 5000, False), (8, 5000, False), (150, 5000, False),
                             (200, 5000, True), (512, 30000, True), (512, 512, True), (2, 2, True)):  # fmt: skip
        assert expanding_pays(v2, rows, keys) == pays, (rows, keys)


def test_the_16_bit_forms_round_alike() -> None:
    texts = TEXTS["chunk after a cached prefix"]
    for forms in ("absorbed", "expanded"):
        block = Block(forms, dtype=torch.bfloat16)
        for text in texts:
            text_out = run(block, [_rounded(text)])[0]
            assert (text_out.double() - text.expected(SHAPE)).abs().max() < 0.05


@pytest.mark.parametrize("forms", ["absorbed", "expanded", None])
@pytest.mark.parametrize("shape", [SHAPE, LatentShape(rank=64, nope=32, rope=32, value=32)], ids=["narrow", "32s"])
def test_latents_in_16_bits_serve_a_float32_model(forms: str | None, shape: LatentShape) -> None:
    """Both forms read the same rounded latents, so that they agree far more closely than either with the definition."""
    texts = TEXTS["decoding, prompt, chain, chunk, tree"]
    found = run(Block(forms, shape, kept=torch.bfloat16), texts)
    right = run(Block("expanded", shape, kept=torch.bfloat16), texts)
    for one, other, text in zip(found, right, texts, strict=True):
        assert (one - other).abs().max() < 1e-5
        assert 1e-5 < (one - text.expected(shape)).abs().max() < 0.02


def _rounded(text: Text) -> Text:
    made = Text(text.start, text.rows, text.pages, text.tree)
    made.x = text.x.bfloat16()
    return made
