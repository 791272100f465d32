"""Medusa heads read from files in the hub's layout give what the paper's definition gives, in plain torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import GraniteConfig, GraniteForCausalLM, LlamaConfig, LlamaForCausalLM

from engine.compute.batch import SequenceRows
from engine.decoding.speculation.heads.files import open_heads
from tests.conformance.engine_support import Ours, relative

HIDDEN, VOCABULARY, LAYERS = 48, 70, 3
PROMPTS = [[3, 14, 15, 9, 26, 5, 35], [8, 9], [7, 9, 32, 38, 46, 26, 43, 38, 32, 7, 9, 50]]


class Residual(nn.Module):
    """h + SiLU(W h + b)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, h: Tensor) -> Tensor:
        return h + nn.functional.silu(self.linear(h))


def medusa(heads: int, blocks: int, own: bool) -> nn.ModuleList:
    """The module whose state the hub's files hold."""
    torch.manual_seed(4)
    made = nn.ModuleList()
    for _ in range(heads):
        output = [nn.Linear(HIDDEN, VOCABULARY, bias=False)] if own else []
        made.append(nn.Sequential(*[Residual() for _ in range(blocks)], *output))
    return made


def write(folder: Path, module: nn.ModuleList, form: str, **config: object) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"medusa_num_heads": len(module)} | config))
    if form == "pt":
        torch.save(module.state_dict(), folder / "medusa_lm_head.pt")
    else:
        save_file(module.state_dict(), folder / "medusa_lm_head.safetensors")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.model.norm.weight.data.uniform_(0.5, 2.0)  # or a norm forgotten or applied twice would hardly show
    folder = tmp_path_factory.mktemp("medusa") / "target"
    model.save_pretrained(folder)
    return folder, model


def states(ours: Ours) -> Tensor:
    """What the final norm reads in the last row of each prompt [S, hidden], from one ragged batch."""
    rows = [SequenceRows(prompt, 0, ours.pages(s), 1) for s, prompt in enumerate(PROMPTS)]
    stream = ours.runner.forward(rows, want_hidden=frozenset({LAYERS})).hidden[LAYERS]
    lasts = torch.tensor([len(prompt) for prompt in PROMPTS]).cumsum(0) - 1
    return stream[lasts]


@torch.no_grad()
def by_definition(model: LlamaForCausalLM, module: nn.ModuleList) -> Tensor:
    """[heads, S, V]: each prompt alone, each head alone."""
    found = []
    for head in module:
        rows = []
        for prompt in PROMPTS:
            h = model.model(torch.tensor([prompt])).last_hidden_state[0, -1]
            out = head(h)
            rows.append(out if out.shape[-1] == VOCABULARY else model.lm_head(out))
        found.append(torch.stack(rows))
    return torch.stack(found)


@pytest.mark.parametrize("form", ["pt", "safetensors"])
@pytest.mark.parametrize(("heads", "blocks", "own"), [(5, 1, True), (3, 2, True), (4, 1, False), (2, 3, False)])
def test_heads_by_their_definition(
    reference: tuple[Path, LlamaForCausalLM], tmp_path: Path, form: str, heads: int, blocks: int, own: bool
) -> None:
    folder, model = reference
    module = medusa(heads, blocks, own)
    write(tmp_path / "heads", module, form, medusa_num_layers=blocks)
    ours = Ours(folder)
    files = open_heads(tmp_path / "heads", ours.config, tmp_path / "copies")
    made = files.read(ours.model)
    expected = by_definition(model, module)
    normed = made.normed(states(ours))
    found = made.forward(normed)
    assert found.shape == expected.shape == (heads, len(PROMPTS), VOCABULARY)
    assert relative(found, expected) < 1e-5
    # The same for some of the heads, and for one request alone.
    assert relative(made.forward(normed, 1), expected[:1]) < 1e-5
    assert relative(made.forward(normed[1:2]), expected[:, 1:2]) < 1e-5
    numbers = heads * (blocks * (HIDDEN * HIDDEN + HIDDEN) + own * VOCABULARY * HIDDEN)
    assert made.storage_size() == files.resident_bytes(torch.float32) == 4 * numbers
    shared = 0 if own else 4 * VOCABULARY * HIDDEN
    assert made.bytes_read() == 4 * numbers + shared
    assert made.bytes_read(1) == 4 * numbers // heads + shared


def test_states_that_were_not_normed_would_be_noticed(reference: tuple[Path, LlamaForCausalLM], tmp_path: Path) -> None:
    folder, model = reference
    module = medusa(2, 1, False)
    write(tmp_path / "heads", module, "safetensors")
    ours = Ours(folder)
    made = open_heads(tmp_path / "heads", ours.config, tmp_path).read(ours.model)
    assert relative(made.forward(states(ours)), by_definition(model, module)) > 0.05


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_heads_run_in_the_dtype_of_their_model(
    reference: tuple[Path, LlamaForCausalLM], tmp_path: Path, dtype: torch.dtype, own: bool
) -> None:
    folder, model = reference
    module = medusa(3, 1, own)
    write(tmp_path / "heads", module, "pt")
    ours = Ours(folder, dtype)
    files = open_heads(tmp_path / "heads", ours.config, tmp_path)
    made = files.read(ours.model)
    found = made.forward(made.normed(states(ours)))
    assert found.dtype == dtype
    assert relative(found, by_definition(model, module)) < (0.06 if dtype == torch.bfloat16 else 0.01)
    assert made.storage_size() == files.resident_bytes(dtype)


@pytest.mark.parametrize("invariant", [False, True])
def test_a_shared_output_layer_scales_as_the_target_does(tmp_path: Path, invariant: bool) -> None:
    """Granite divides its logits, and a head without an output layer of its own speaks through Granite's."""
    torch.manual_seed(0)
    config = GraniteConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3,
        logits_scaling=4.0,
    )  # fmt: skip
    model = GraniteForCausalLM(config).eval()
    model.save_pretrained(tmp_path / "target")
    module = medusa(2, 1, False)
    write(tmp_path / "heads", module, "safetensors", shares_head=True)
    ours = Ours(tmp_path / "target", invariant=invariant)
    made = open_heads(tmp_path / "heads", ours.config, tmp_path).read(ours.model)
    found = made.forward(made.normed(states(ours)))
    assert relative(found, by_definition(model, module) / 4.0) < 1e-4
