"""A feature head in the engine: text as without it, whatever happens to the pages whose numbers its arena shares."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.base.files import read_json
from engine.cache.types import TREE
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.runner.runner import Runner
from engine.config.raw import RawConfig
from engine.decoding.speculation.eagle.files import read_eagle
from engine.decoding.speculation.proposers.features import FeatureProposer
from engine.formats.safetensors import TensorFiles
from tests.conformance.texts import PROMPTS, SAMPLINGS, VARIANTS, cases
from tests.kit.checkpoints import EOS, quiet, write_llama
from tests.kit.hosts import Host

WIDTH, LAYERS = 128, 2


def write_head(folder: Path, target: Path) -> None:
    """EAGLE-1: it passes on the next token's embedding, to which its layer adds a little."""
    torch.manual_seed(2)
    layer = "layers.0."
    save_file(
        {
            "fc.weight": torch.cat((torch.eye(WIDTH), 0.05 * torch.randn(WIDTH, WIDTH)), 1),
            f"{layer}self_attn.q_proj.weight": 0.2 * torch.randn(WIDTH, WIDTH),
            f"{layer}self_attn.k_proj.weight": 0.2 * torch.randn(WIDTH // 2, WIDTH),
            f"{layer}self_attn.v_proj.weight": 0.2 * torch.randn(WIDTH // 2, WIDTH),
            f"{layer}self_attn.o_proj.weight": 0.02 * torch.randn(WIDTH, WIDTH),
            f"{layer}mlp.gate_proj.weight": 0.1 * torch.randn(96, WIDTH),
            f"{layer}mlp.up_proj.weight": 0.1 * torch.randn(96, WIDTH),
            f"{layer}mlp.down_proj.weight": 0.1 * torch.randn(WIDTH, 96),
            f"{layer}post_attention_layernorm.weight": torch.ones(WIDTH),
        },
        folder / "model.safetensors",
    )
    config = json.loads((target / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    base, head = tmp_path_factory.mktemp("models") / "target", tmp_path_factory.mktemp("head")
    write_llama(base, num_hidden_layers=LAYERS, hidden_size=WIDTH)
    quiet(base)
    write_head(head, base)
    return base, head


@pytest.fixture(scope="module")
def host(folders: tuple[Path, Path]) -> Iterator[Host]:
    with Host(folders[0]) as host:
        yield host


def with_head(host: Host, folder: Path) -> FeatureProposer:
    """Serve the model as a load that found a head would."""
    loaded = host.stepper.model
    assert loaded.model is not None
    config = RawConfig(read_json(folder / "config.json") or {}, folder / "config.json")
    head = read_eagle(TensorFiles.open(folder), config, loaded.model)
    store = head.new_store(loaded.pages)
    proposer = FeatureProposer(head, Runner(head, store, AttentionDispatcher()), {EOS}, breadth=3, depth=4)
    drafting = loaded.drafting._replace(proposers=(*loaded.drafting.proposers, proposer))
    host.engine.install(replace(loaded, stores=(*loaded.stores, store), drafting=drafting))
    host.engine._options.capabilities |= {"eagle head"}
    return proposer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "sampling"), cases("16bit-seeded", "quest-seeded", "window-greedy", by=tuple(SAMPLINGS))
)
def test_text_is_as_without_drafts(host: Host, folders: tuple[Path, Path], variant: str, sampling: str) -> None:
    """With an empty cache, then with prefixes in it that the head has read, then with some that it has not."""
    host.fresh(VARIANTS[variant].switches)
    expected = host.plain(PROMPTS, SAMPLINGS[sampling])
    proposer = with_head(host, folders[1])
    for budget, length in ((512, 4), (90, 2), (120, 4)):
        if budget == 120:
            host.stepper.cache.tree.evict(1 << 30)
            host.ask(PROMPTS, SAMPLINGS[sampling])
            host.run()
        ids = host.ask(PROMPTS, SAMPLINGS[sampling], speculation="eagle", draft_length=length, ngram_first=False)
        host.run(budget)
        assert host.of(ids) == expected
        # Rows that choose pages are chains, of which fewer hold; of a greedy text an untrained head may hit nothing.
        wanted = {"corrected"} if variant == "quest" or sampling == "greedy" else {"corrected", "eagle"}
        assert wanted <= set(host.sources(ids))
    assert not proposer._texts


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_preemption_and_several_answers(host: Host, folders: tuple[Path, Path], mode: str) -> None:
    host.fresh(VARIANTS["16bit"].switches)
    expected = host.plain(PROMPTS, SAMPLINGS["seeded"], 3)
    proposer = with_head(host, folders[1])
    host.set(preemption=mode, host_cache=1.0)
    ids = host.ask(PROMPTS, SAMPLINGS["seeded"], 3, speculation="eagle", draft_length=4)
    assert host.run(160, random.Random(len(mode))) > 2
    assert host.of(ids, 3) == expected
    assert "eagle" in host.sources(ids)
    assert not proposer._texts
    assert host.stepper.cache.pool.owners() in ([], [TREE])
