"""Medusa on a real model: heads that learned its texts draft most of them, and never change one."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from engine.decoding.speculation.heads.files import open_heads
from engine.decoding.speculation.medusa.heads import MedusaHeads
from engine.decoding.speculation.medusa.proposer import MedusaProposer
from engine.protocol import Sampling
from tests.conformance.engine_support import Ours
from tests.engine.decoding.speculation.decoding import ENDLESS, Decoding

HIDDEN, VOCABULARY, LAYERS, HEADS = 48, 70, 2, 3
PROMPT, LENGTH, BUDGET = 6, 16, 16


class Trained(NamedTuple):
    ours: Ours
    heads: MedusaHeads
    prompts: list[list[int]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A random model, and heads that were fitted to its greedy texts after some prompts."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.2,
        eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    folder = tmp_path_factory.mktemp("trained")
    model.save_pretrained(folder / "target")
    prompts = torch.randint(VOCABULARY, (3, PROMPT))
    texts = model.generate(prompts, max_new_tokens=LENGTH, do_sample=False, pad_token_id=0)
    (folder / "heads").mkdir()
    (folder / "heads" / "config.json").write_text(json.dumps({"medusa_num_heads": HEADS, "shares_head": True}))
    save_file(fitted(model, texts), folder / "heads" / "medusa_lm_head.safetensors")
    ours = Ours(folder / "target", invariant=True)
    heads = open_heads(folder / "heads", ours.config, folder).read(ours.model)
    return Trained(ours, heads, prompts.tolist())


def fitted(model: LlamaForCausalLM, texts: Tensor) -> dict[str, Tensor]:
    """Blocks by which the state at token t gives token t + 2 + head of these very texts."""
    with torch.no_grad():
        states = model.model(texts).last_hidden_state
    layers = [nn.Linear(HIDDEN, HIDDEN) for _ in range(HEADS)]
    optimiser = torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=0.02)
    output = model.lm_head.weight.detach()
    for _ in range(250):
        loss = torch.zeros(())
        for head, layer in enumerate(layers):
            h = states[:, : -2 - head].flatten(0, 1)
            logits = (h + nn.functional.silu(layer(h))) @ output.t()
            loss = loss + nn.functional.cross_entropy(logits, texts[:, 2 + head :].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {
        f"{head}.0.linear.{name}": tensor.detach().clone()
        for head, layer in enumerate(layers)
        for name, tensor in layer.named_parameters()
    }


def write_texts(trained: Trained, temperature: float, drafts: bool) -> tuple[list[list[int]], int, Decoding]:
    """The texts of all requests at once, and the steps it took."""
    host = Decoding(trained.ours.model, lambda _: MedusaProposer(trained.heads, LAYERS, None, ()))
    sampling = Sampling(seed=3, temperature=temperature, ignore_eos=True)
    batch = [host.request(str(number), prompt, sampling) for number, prompt in enumerate(trained.prompts)]
    steps = 0
    while any(request.generated < LENGTH for request in batch):
        steps += 1
        host.step(batch, lambda _: (BUDGET if drafts else 0, ENDLESS))
    return [request.tokens[: PROMPT + LENGTH] for request in batch], steps, host


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_heads_draft_and_the_text_stays(trained: Trained, temperature: float) -> None:
    plain, steps, _ = write_texts(trained, temperature, False)
    assert steps == LENGTH
    texts, fewer, host = write_texts(trained, temperature, True)
    assert texts == plain
    assert fewer < steps
    if temperature == 0.0:
        # These are the texts that the heads were fitted to: a head that is off by a place would draft few of them.
        assert fewer < LENGTH / 2
    work = host.proposer.take_work()
    assert work.passes == fewer - 1, "one for all requests, and none before there is a state"
    assert 0 < work.bytes_read <= work.passes * trained.heads.bytes_read()


def test_heads_in_another_order_would_be_noticed(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, _, _ = write_texts(trained, 0.0, False)
    rolled = [type(block)(*(tensor.roll(1, 0) for tensor in block)) for block in trained.heads._blocks]
    monkeypatch.setattr(trained.heads, "_blocks", rolled)
    texts, steps, _ = write_texts(trained, 0.0, True)
    assert texts == plain
    assert steps > LENGTH / 2
