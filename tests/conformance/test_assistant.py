"""Gemma 4's assistant over our caches, against transformers' modules in float32; and who is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.base.errors import CheckpointError
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.models.base import CausalLM
from engine.compute.models.heads.assistant import Assistant
from engine.compute.models.heads.base import OUTPUT
from engine.compute.runner.runner import Runner
from engine.decoding.speculation.assistant.files import read_assistant
from engine.decoding.speculation.assistant.proposer import AssistantProposer
from engine.decoding.speculation.heads.files import find_heads, kind_of, open_heads
from engine.formats.open import open_checkpoint
from engine.formats.unused import OWN_HEAD
from tests.conformance.assistant_models import (
    DENSE,
    HIDDEN,
    SMALL_E,
    WINDOW,
    drafts,
    new_assistant,
    write_pair,
    write_target,
)
from tests.conformance.engine_support import Ours, relative
from tests.contracts.proposer import Make, ProposerContract
from tests.engine.decoding.speculation.decoding import Decoding

VOCABULARY, CLUSTERS, TOLERANCE = 160, 16, 1e-4
SHAPES = {"small": SMALL_E, "dense": DENSE}


class Pair(NamedTuple):
    """transformers' target, and ours."""

    folder: Path
    theirs: Any
    ours: Ours


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory, whole_transformers: None) -> dict[str, Pair]:
    torch.set_num_threads(1)
    found = {}
    for name, shape in SHAPES.items():
        folder = tmp_path_factory.mktemp("models") / name
        found[name] = Pair(folder, write_target(folder, shape, VOCABULARY), Ours(folder))
    return found


@pytest.fixture
def write(tmp_path: Path, whole_transformers: None) -> Callable[..., tuple[Path, Any]]:
    def written(kind: str, clusters: int = 0, **values: Any) -> tuple[Path, Any]:
        model = new_assistant(SHAPES[kind], VOCABULARY, clusters, **values)
        model.save_pretrained(tmp_path / "assistant")
        return tmp_path / "assistant", model

    return written


def opened(folder: Path, target: Pair) -> Assistant:
    return read_assistant(open_heads(folder, target.ours.config, folder), target.ours.model)


def text(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, whole_transformers: None) -> tuple[CausalLM, Assistant]:
    folder = tmp_path_factory.mktemp("pair")
    write_pair(folder, SMALL_E, VOCABULARY)
    ours = Ours(folder, invariant=True)
    heads = open_heads(folder / "heads" / "assistant", ours.config, folder)
    return ours.model, read_assistant(heads, ours.model)


class TestAssistant(ProposerContract):
    """Its target's next token depends mostly on the last one, and is partly foreseen."""

    eos = VOCABULARY - 1

    @pytest.fixture
    def make(self, pair: tuple[CausalLM, Assistant]) -> Make:
        model, head = pair

        def drafter(host: Decoding) -> AssistantProposer:
            runner = Runner(head, host.stores[0], AttentionDispatcher())
            return AssistantProposer(head, host.recorded(runner), {self.eos})

        return lambda: Decoding(model, drafter)


@pytest.mark.parametrize("clusters", [0, CLUSTERS])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", list(SHAPES))
def test_logits_and_states(
    kind: str, tied: bool, clusters: int, targets: dict[str, Pair], write: Callable[..., tuple[Path, Any]]
) -> None:
    """Texts of lengths around the window's in one batch, each on its own pages, with rejected rows after them."""
    target = targets[kind]
    folder, theirs = write(kind, clusters, tie_word_embeddings=tied)
    head = opened(folder, target)
    runner = Runner(head, target.ours.runner.kv, AttentionDispatcher())
    texts = [text(length, length) for length in (2, 7, WINDOW, WINDOW + 1, WINDOW + 2, 61)]
    hidden = []
    for place, tokens in enumerate(texts):
        # The last known token and two others were computed once, and rejected.
        rows = target.ours.row([*tokens, 5, 6], 0, place, 0)
        layers = target.ours.config.num_layers
        stream = target.ours.runner.forward([rows], want_hidden=frozenset({layers})).hidden[layers]
        hidden.append(head.features(stream[len(tokens) - 2 : len(tokens) - 1]))
    expected = [drafts(target.theirs, theirs, tokens, 4) for tokens in texts]
    assert relative(torch.cat(hidden), torch.cat([each[0].state for each in expected])) <= TOLERANCE
    for depth in range(4):
        wanted = [each[depth] for each in expected]
        rows = [SequenceRows([each.token], len(tokens) - 2, target.ours.pages(place), 1)
                for place, (tokens, each) in enumerate(zip(texts, wanted, strict=True))]  # fmt: skip
        states = torch.cat([each.state for each in wanted])
        out = runner.forward(rows, hidden_in=states, want_hidden=frozenset({OUTPUT}))
        assert relative(out.hidden[OUTPUT], torch.cat([each.output for each in wanted])) <= TOLERANCE
        logits = torch.stack([each.logits for each in wanted])
        assert torch.equal(out.logits.argmax(-1), logits.argmax(-1))
        said = out.logits.isfinite()
        assert relative(out.logits[said], logits[said]) <= TOLERANCE
        assert set(said.sum(-1).tolist()) == {VOCABULARY // 4 if clusters else VOCABULARY}
        # What is left out has one score in transformers, below all others.
        assert not clusters or all(len(set(row[~mine].tolist())) == 1 for row, mine in zip(logits, said, strict=True))


def test_a_head_of_its_own_that_is_called_tied(
    targets: dict[str, Pair], write: Callable[..., tuple[Path, Any]]
) -> None:
    target, (folder, theirs) = targets["small"], write("small", tie_word_embeddings=False)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    files = open_heads(folder, target.ours.config, folder)
    assert files.notices == (OWN_HEAD.format(name="assistant"),)
    head = read_assistant(files, target.ours.model).head
    assert torch.allclose(head.forward(torch.eye(48)).T, theirs.lm_head.weight)


def test_nothing_is_written(targets: dict[str, Pair], write: Callable[..., tuple[Path, Any]]) -> None:
    target = targets["small"]
    kv = target.ours.runner.kv
    before = [(kv.view(layer).k.clone(), kv.view(layer).v.clone()) for layer in range(kv.layers)]
    head = opened(write("small")[0], target)
    rows = SequenceRows([4], 40, target.ours.pages(0), 1)
    Runner(head, kv, AttentionDispatcher()).forward([rows], hidden_in=torch.zeros(1, HIDDEN))
    for layer, (k, v) in enumerate(before):
        assert torch.equal(kv.view(layer).k, k)
        assert torch.equal(kv.view(layer).v, v)


@pytest.mark.parametrize("clusters", [0, CLUSTERS])
def test_its_size_is_known_before_it_is_read(
    clusters: int, targets: dict[str, Pair], write: Callable[..., tuple[Path, Any]]
) -> None:
    target, (folder, model) = targets["small"], write("small", clusters)
    planned = open_checkpoint(target.folder, need_tokenizer=False).planned(torch.float32)
    head = read_assistant(open_heads(folder, target.ours.config, folder), planned)
    assert head.storage_size() == opened(folder, target).storage_size()
    weights = sum(parameter.nbytes for parameter in model.parameters())
    tables = sum(rotary.storage_size() for rotary in head.rotaries)
    scalars = 4 * len(head.layers) + (8 * VOCABULARY if clusters else 0)
    expanded = sum(layer.attention.norm.weight.nbytes for layer in head.layers) * 3 // 4  # one for each head
    assert head.storage_size() == weights + tables + scalars + expanded
    read = head.storage_size() - tables - head.bytes_read_per_step()
    assert read == (3 * (4 * 48 + 8) * VOCABULARY // 4 if clusters else 0)


# --- which models it is for --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "field", "found", "needed"),
    [
        ({"backbone_hidden_size": 80}, "backbone_hidden_size", "80", "64"),
        ({"vocab_size": 170}, "vocab_size", "170", "160"),
        ({"head_dim": 16}, "head_dim", "16", "32"),
        ({"global_head_dim": 32}, "global_head_dim", "32", "64"),
        ({"num_key_value_heads": 4}, "num_key_value_heads", "4", "2"),
        ({"sliding_window": 40}, "sliding_window", "40", "20"),
        ({"num_kv_shared_layers": 2}, "num_kv_shared_layers", "2", "3"),
        ({"backbone_hidden_size": None}, "backbone_hidden_size", "1,536", "64"),  # transformers' own default
    ],
)
def test_one_for_another_model_is_refused(
    change: dict[str, Any], field: str, found: str, needed: str, targets: dict[str, Pair],
    write: Callable[..., tuple[Path, Any]],
) -> None:  # fmt: skip
    folder, _ = write("small")
    config = json.loads((folder / "config.json").read_text())
    config["text_config"].pop("per_layer_config", None)  # transformers' list of what differs from the local layers
    config["text_config"] |= {"global_head_dim": 64}
    where = config if "backbone_hidden_size" in change else config["text_config"]
    where |= change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError) as caught:
        opened(folder, targets["small"])
    assert f"has {field} {found} where this model needs {needed}." in str(caught.value)


def test_one_for_a_dense_model_is_refused_by_a_small_one(
    targets: dict[str, Pair], write: Callable[..., tuple[Path, Any]]
) -> None:
    with pytest.raises(CheckpointError, match="num_global_key_value_heads 1 where this model needs 2"):
        opened(write("dense")[0], targets["small"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"text_config": None}, '"text_config" is not a JSON object'),
        ({"num_centroids": 7}, '"num_centroids" is 7, which does not divide the 160 tokens'),
        ({"centroid_intermediate_top_k": 17}, '"centroid_intermediate_top_k" is 17'),
    ],
)
def test_a_damaged_configuration_is_refused(
    change: dict[str, Any], sentence: str, targets: dict[str, Pair], write: Callable[..., tuple[Path, Any]]
) -> None:
    folder, _ = write("small", CLUSTERS)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(CheckpointError, match=sentence):
        opened(folder, targets["small"])


def test_damaged_tensors_are_refused(targets: dict[str, Pair], write: Callable[..., tuple[Path, Any]]) -> None:
    folder, _ = write("small", CLUSTERS)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    ordering = "masked_embedding.token_ordering"
    for name, changed in (
        (ordering, torch.zeros(VOCABULARY, dtype=torch.int64)),
        (ordering, tensors[ordering][:-1].clone()),
        ("pre_projection.weight", tensors["pre_projection.weight"][:, :-1].clone()),
        ("model.layers.1.self_attn.q_proj.weight", torch.zeros(64, 48)),
    ):
        save_file(tensors | {name: changed}, file)
        with pytest.raises(CheckpointError, match=name):
            opened(folder, targets["small"])


def test_it_is_no_model(write: Callable[..., tuple[Path, Any]]) -> None:
    with pytest.raises(CheckpointError, match="an assistant, which drafts for a Gemma 4 and writes no text by itself"):
        open_checkpoint(write("small")[0], need_tokenizer=False)


def test_it_is_found(targets: dict[str, Pair], write: Callable[..., tuple[Path, Any]], tmp_path: Path) -> None:
    folder, _ = write("small")
    assert kind_of(folder, tmp_path) == "assistant"
    assert kind_of(targets["small"].folder, tmp_path) is None
    model = tmp_path / "models" / "gemma"
    (model / "heads").mkdir(parents=True)
    assert find_heads("assistant", model, None, None, tmp_path) is None
    beside = model.with_name("gemma-assistant")
    folder.rename(beside)
    assert find_heads("assistant", model, None, None, tmp_path) == beside
    assert find_heads("eagle", model, None, None, tmp_path) is None
    own = model / "heads" / "assistant"
    beside.rename(own)
    assert find_heads("assistant", model, None, None, tmp_path) == own
    assert find_heads("assistant", model, own, None, tmp_path) == own
