"""Feature heads out of files in their authors' layouts, against the papers' definitions in plain torch, float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.base.files import read_json
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.models.heads.base import OUTPUT, FeatureHead
from engine.compute.models.heads.mtp import MIMO, MultiToken, layout_of
from engine.compute.runner.runner import Runner
from engine.config.raw import RawConfig
from engine.decoding.speculation.eagle.files import read_eagle
from engine.formats.open import open_checkpoint
from engine.formats.safetensors import TensorFiles
from tests.conformance.engine_support import Ours, relative
from tests.conformance.head_files import (
    HIDDEN,
    LAYERS,
    SAID,
    VOCABULARY,
    Reference,
    eagle3_tensors,
    eagle_tensors,
    write_head,
    write_mimo,
    write_target,
)

TOLERANCE = 1e-4
PAGES = [[3, 1, 4], [5, 9, 2]]
CPU = torch.device("cpu")


class Both(NamedTuple):
    """A target in memory, a head on it, and the same head by the papers' formulas."""

    target: Ours
    head: FeatureHead
    reference: Reference


def opened(folder: Path, target: Any) -> FeatureHead:
    files = TensorFiles.open(folder)
    return read_eagle(files, RawConfig(read_json(folder / "config.json") or {}, folder / "config.json"), target)


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Both]]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    base, mimo = tmp_path_factory.mktemp("target"), tmp_path_factory.mktemp("mimo")
    models = {base: write_target(base), mimo: None}
    models[mimo], layer = write_mimo(mimo)
    targets = {folder: Ours(folder) for folder in models}

    def made(kind: str) -> Both:
        folder = mimo if kind == "mtp" else base
        model, target = models[folder], targets[folder]
        weights = model.model.embed_tokens.weight.data, model.model.norm.weight.data, model.lm_head.weight.data
        if kind == "mtp":
            source = open_checkpoint(folder, need_tokenizer=False).source(CPU, torch.float32, "4bit", Numerics())
            return Both(target, MultiToken(target.model, source, MIMO), Reference("mtp", layer, *weights))
        tensors = {
            "eagle": lambda: eagle_tensors(),
            "eagle without bias and table": lambda: eagle_tensors(bias=False, table=False),
            "eagle3": lambda: eagle3_tensors(),
            "eagle3 with a table": lambda: eagle3_tensors(table=True),
        }[kind]()
        head = opened(write_head(tmp_path_factory.mktemp("head"), tensors), target.model)
        return Both(target, head, Reference(kind.split()[0], tensors, *weights))

    yield made
    torch.set_num_threads(before)


KINDS = ["eagle", "eagle without bias and table", "eagle3", "eagle3 with a table", "mtp"]


def text(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(100 + seed)
    return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()


def states(target: Ours, tokens: Sequence[int]) -> dict[int, Tensor]:
    """What enters each layer of the target, and its final norm."""
    rows = [SequenceRows(tokens, 0, target.pages(0))]
    return target.runner.forward(rows, want_hidden=frozenset(range(LAYERS + 1))).hidden


def runner(head: FeatureHead) -> Runner:
    return Runner(head, head.new_store(10), AttentionDispatcher())


def run(runner: Runner, rows: list[SequenceRows], hidden: Tensor) -> Tensor:
    return runner.forward(rows, hidden_in=hidden, want_hidden=frozenset({OUTPUT})).hidden[OUTPUT]


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_in_chunks_is_the_whole_text_at_once(kind: str, make: Callable[[str], Both]) -> None:
    target, head, reference = make(kind)
    tokens = text(41)
    hidden = states(target, tokens)
    expected = reference.outputs(reference.features(hidden), [*tokens[1:], 7])
    features = head.features({layer: hidden[layer] for layer in head.reads})
    for chunk in (1, 7, 41):
        engine, found = runner(head), []
        for start in range(0, 41, chunk):
            rows = SequenceRows([*tokens[1:], 7][start : start + chunk], start, PAGES[0])
            found.append(run(engine, [rows], features[start : start + chunk]))
        assert relative(torch.cat(found), expected) <= TOLERANCE
    with torch.inference_mode():
        logits, wanted = head.logits(expected), reference.logits(expected)
    said = wanted.isfinite()
    assert torch.equal(logits.isfinite(), said)
    assert said.sum() == 41 * (SAID if kind.startswith("eagle3") else VOCABULARY)
    assert relative(logits[said], wanted[said]) <= TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_every_path_of_a_tree_is_a_text_of_its_own(kind: str, make: Callable[[str], Both]) -> None:
    """Two texts of different lengths with different trees in one batch; each node goes on from its parent's output."""
    target, head, reference = make(kind)
    texts = [text(19, 1), text(6, 2)]
    trees = [[(-1, 11), (-1, 12), (0, 13), (0, 14), (2, 15), (1, 16)], [(-1, 21), (0, 22), (0, 23)]]
    engine = runner(head)
    all_hidden = [states(target, tokens) for tokens in texts]
    rows, features = [], []
    for tokens, hidden, pages in zip(texts, all_hidden, PAGES, strict=True):
        rows.append(SequenceRows(tokens[1:], 0, pages))
        features.append(head.features({layer: hidden[layer] for layer in head.reads})[:-1])
    outputs = run(engine, rows, torch.cat(features)).split([len(tokens) - 1 for tokens in texts])
    found: list[dict[int, Tensor]] = [{-1: each[-1]} for each in outputs]
    for _ in range(3):
        # Nodes whose parent was read are read with all that came before them, as deeper ones become possible.
        rows, features, read = [], [], []
        for tokens, tree, known, pages in zip(texts, trees, found, PAGES, strict=True):
            nodes = [node for node, (parent, _) in enumerate(tree) if parent in known]
            parents = [nodes.index(tree[node][0]) if tree[node][0] >= 0 else -1 for node in nodes]
            rows.append(SequenceRows([tree[node][1] for node in nodes], len(tokens) - 1, pages, parents=parents))
            features += [known[tree[node][0]] for node in nodes]
            read.append(nodes)
        parts = run(engine, rows, torch.stack(features)).split([len(nodes) for nodes in read])
        for known, nodes, part in zip(found, read, parts, strict=True):
            known.update(zip(nodes, part, strict=True))
    for tokens, hidden, tree, known in zip(texts, all_hidden, trees, found, strict=True):
        assert len(known) == len(tree) + 1
        for node in range(len(tree)):
            path, at = [], node
            while at >= 0:
                path.insert(0, tree[at][1])
                at = tree[at][0]
            state = reference.features(hidden)[:-1]
            following = tokens[1:]
            for token in path:
                state = torch.cat((state, reference.outputs(state, following)[-1:]))
                following = [*following, token]
            assert relative(known[node], reference.outputs(state, following)[-1]) <= TOLERANCE


def test_offsets_lead_to_the_tokens_of_the_target(make: Callable[[str], Both]) -> None:
    _, head, _ = make("eagle3")
    with torch.inference_mode():
        logits = head.logits(torch.randn(2, HIDDEN))
    said = [*range(0, 4 * (SAID - 1), 4), VOCABULARY - 1]
    assert logits[0].isfinite().nonzero().flatten().tolist() == said


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_a_plan_knows_the_size(kind: str, make: Callable[[str], Both], tmp_path: Path) -> None:
    target, head, _ = make(kind)
    tensors = (
        eagle3_tensors("table" in kind) if kind.startswith("eagle3") else eagle_tensors(*["table" not in kind] * 2)
    )
    folder, base = write_head(tmp_path / "head", tensors), tmp_path / "target"
    write_target(base)
    planned = opened(folder, open_checkpoint(base, need_tokenizer=False).planned(torch.float32))
    assert planned.device.type == "meta"
    assert planned.storage_size() == head.storage_size() > 0
    assert planned.bytes_read_per_step() == head.bytes_read_per_step()
    assert head.borrows_head == (not kind.startswith("eagle3"))
    assert target.model.head.storage_size() < head.bytes_read_per_step() or not head.borrows_head


def without(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in tensors.items() if key != name}


REFUSED: dict[str, tuple[Callable[[], dict[str, Tensor]], dict[str, Any], str]] = {
    "a missing tensor": (lambda: without(eagle_tensors(), "layers.0.mlp.up_proj.weight"), {}, "the tensor layers.0"),
    "a missing norm": (lambda: without(eagle3_tensors(), "midlayer.hidden_norm.weight"), {}, "the tensor midlayer"),
    "no fc": (lambda: without(eagle_tensors(), "fc.weight"), {}, "lack the tensor fc.weight"),
    "another shape": (lambda: eagle_tensors() | {"fc.weight": torch.zeros(HIDDEN, HIDDEN)}, {}, "has the shape"),
    "another vocabulary": (eagle_tensors, {"vocab_size": 161}, "a vocabulary of 161 tokens, and this model's has 160"),
    "another width": (eagle_tensors, {"hidden_size": 64}, "states of 64 numbers, and this one's have 48"),
    "two layers": (eagle_tensors, {"num_hidden_layers": 2}, "2 decoder layers"),
    "two layers in the file": (lambda: eagle_tensors() | {"layers.1.fc.weight": torch.zeros(1)}, {}, "several decoder"),
    "no d2t": (lambda: without(eagle3_tensors(), "d2t"), {"draft_vocab_size": SAID}, r"says 40 of 160 tokens"),
    "a short d2t": (lambda: eagle3_tensors() | {"d2t": torch.zeros(SAID - 1, dtype=torch.int64)}, {}, "no list"),
    "d2t beyond": (lambda: eagle3_tensors() | {"d2t": torch.full((SAID,), 130)}, {}, "is damaged"),
    "d2t twice": (lambda: eagle3_tensors() | {"d2t": -torch.arange(SAID)}, {}, "is damaged"),
    "t2d of others": (lambda: eagle3_tensors() | {"t2d": eagle3_tensors()["t2d"].roll(1)}, {}, "is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_a_sentence(case: str, make: Callable[[str], Both], tmp_path: Path) -> None:
    tensors, values, said = REFUSED[case]
    with pytest.raises(CheckpointError, match=said):
        opened(write_head(tmp_path, tensors(), **values), make("eagle").target.model)


def test_mimo_answers_as_its_decoder_does(tmp_path: Path) -> None:
    model, layer = write_mimo(tmp_path)
    ours = Ours(tmp_path)
    for length in (1, 17, 40):
        tokens = text(length)
        with torch.inference_mode():
            expected = model(torch.tensor([tokens])).logits[0]
        assert relative(ours.logits([tokens])[0], expected) <= TOLERANCE
    files = open_checkpoint(tmp_path, need_tokenizer=False).files
    assert layout_of(files.entries.__contains__, 2) is MIMO
    assert set(layer) < set(files.entries)
    others = [name for name in files.entries if not name.endswith("input_proj.weight")]
    assert layout_of(others.__contains__, 2) is None
