"""Drafts from a checkpoint's own layers: its keys and values, its text, and that trained exits hold."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.compute.batch import SequenceRows
from engine.compute.sampling.params import SamplingParams
from engine.decoding.options import RequestOptions
from engine.decoding.scheduling.plan import Slice
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree
from engine.decoding.speculation.self_drafting.proposers import EarlyExitProposer, LayerSkipProposer
from engine.decoding.speculation.verify.early_exit import forward_step
from engine.formats.open import open_checkpoint
from engine.loop.step import rows_of
from engine.protocol import ChatMessage
from engine.services.training.layer_search import find_layers
from engine.text.prompt import prompt_ids
from tests.broken_models import ASSETS as BUNDLED
from tests.conformance.engine_support import Ours
from tests.conformance.texts import prompts
from tests.engine.decoding.speculation.decoding import ENDLESS, Decoding
from tests.engine.loop.requests_support import new_request
from tests.kit.checkpoints import EOS, write_llama

LAYERS = 6
BUNDLED_MODEL = BUNDLED / "kvasir-guide"
needs_bundled = pytest.mark.skipif(
    not (BUNDLED_MODEL / "model.safetensors").is_file(), reason="the model is not built yet"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models") / "target"
    write_llama(folder, num_hidden_layers=LAYERS)
    return folder


class Text:
    """A request whose prompt is read but for its last token."""

    def __init__(self, ours: Ours, prompt: Sequence[int], sequence: int = 0, exit_layer: int = 0) -> None:
        self.ours = ours
        options = RequestOptions(exit_layer=exit_layer)
        params = SamplingParams(seed=1, temperature=0.0)
        self.request = new_request(str(sequence), prompt, params, options)
        self.request.cache.pages = ours.pages(sequence)
        if len(prompt) > 1:
            ours.runner.forward([rows_of(Slice(self.request, len(prompt) - 1, False), NO_DRAFT)])
        self.request.cache.num_computed = len(prompt) - 1

    def rows(self, tree: DraftTree) -> SequenceRows:
        return rows_of(Slice(self.request, 1, True), tree)


def leaving(ours: Ours, exit_layer: int) -> EarlyExitProposer:
    return EarlyExitProposer(ours.runner, ours.model, {EOS}, 1.0, exit_layer)


def cache(ours: Ours, tokens: int, sequence: int = 0) -> list[Tensor]:
    """Keys and values of each layer, those of the first so many slots of a sequence."""
    first = 16 * ours.pages(sequence)[0]
    views = [ours.runner.kv.view(layer) for layer in range(ours.config.num_layers)]
    return [part[first : first + tokens].clone() for view in views for part in (view.k, view.v)]


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("exit_layer", range(1, LAYERS))
def test_keys_and_values_of_a_split_step_are_those_of_a_full_pass(
    folder: Path, exit_layer: int, invariant: bool
) -> None:
    split, full = Ours(folder, invariant=invariant), Ours(folder, invariant=invariant)
    prompt = prompts(1)[0]
    text = Text(split, prompt)
    (tree,) = leaving(split, exit_layer).propose([DraftRequest(text.request, 6, len(prompt))])
    out = forward_step(split.runner, [text.rows(tree)], [tree], frozenset({LAYERS}))
    whole = [*prompt, *tree.tokens]
    row = SequenceRows(whole, 0, full.pages(0), 7)
    expected = full.runner.forward([row], want_hidden=frozenset({LAYERS}))
    found = [out.logits, out.hidden[LAYERS], *cache(split, len(whole))]
    wanted = [expected.logits, expected.hidden[LAYERS][-7:], *cache(full, len(whole))]
    for ours, theirs in zip(found, wanted, strict=True):
        if invariant:
            assert torch.equal(ours, theirs)
        else:
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_a_step_of_an_exit_a_prompt_and_a_repetition(folder: Path) -> None:
    """One request leaves early, one reads a part of its prompt, one has drafts of somebody else: each gets its own."""
    ours = Ours(folder, invariant=True)
    first, second, third = prompts(3)
    leaves, repeats = Text(ours, first, 0), Text(ours, third, 2)
    (early,) = leaving(ours, 2).propose([DraftRequest(leaves.request, 4, len(first))])
    copied = DraftTree(tuple(third[1:4]), proposer="ngram")
    chunk = SequenceRows(second[:9], 0, ours.pages(1))
    rows = [leaves.rows(early), chunk, repeats.rows(copied)]
    found = forward_step(ours.runner, rows, [early, NO_DRAFT, copied]).logits
    for sequence, (prompt, tree, logits) in enumerate([(first, early, found[:5]), (third, copied, found[5:])]):
        alone = Ours(folder, invariant=True)
        whole = [*prompt, *tree.tokens]
        row = SequenceRows(whole, 0, alone.pages(sequence), 1 + len(tree.tokens))
        assert torch.equal(logits, alone.runner.forward([row]).logits)
    read = Ours(folder, invariant=True)
    read.runner.forward([chunk])
    assert all(torch.equal(a, b) for a, b in zip(cache(ours, 9, 1), cache(read, 9, 1), strict=True))


@pytest.mark.slow
@needs_bundled
def test_the_bundled_models_exits_hold() -> None:
    """It was trained to leave early: after two of its eight layers most drafts hold, and the text stays the same."""
    torch.set_num_threads(1)
    ours = Ours(BUNDLED_MODEL, invariant=True)
    checkpoint = open_checkpoint(BUNDLED_MODEL)
    accepted, proposed = [0, 0], [0, 0]
    drafters = (
        lambda host: EarlyExitProposer(host.target, ours.model, {EOS}, 1.0, 2),
        lambda host: LayerSkipProposer(host.target, ours.model, {EOS}, 1.0, frozenset({4, 5})),
    )
    for question in ("What does the draft model do?", "What is a page?", "What is KIVI?", "How do I load a model?"):
        asked = [ChatMessage.of("user", question)]
        prompt = prompt_ids(checkpoint.tokenizer(), checkpoint.chat_template(), asked)
        texts = []
        for way, budget in ((0, 0), (0, 4), (1, 4)):
            host = Decoding(ours.model, drafters[way])
            request = host.request("a", prompt)
            texts += host.decode([request], 40, lambda _, budget=budget: (budget, ENDLESS))
            for tree, before in zip(host.trees["a"], host.before["a"], strict=True):
                proposed[way] += bool(tree.tokens)
                accepted[way] += tree.tokens[:1] == (request.tokens[len(before)],)
        assert texts[0] == texts[1] == texts[2]
    assert all(held > drafted / 2 for held, drafted in zip(accepted, proposed, strict=True)), (accepted, proposed)


@needs_bundled
def test_a_search_over_the_bundled_model_finds_layers_that_pay() -> None:
    torch.set_num_threads(1)
    stages: list[str] = []
    text = "A page holds the keys and values of sixteen tokens. " * 8
    ids = open_checkpoint(BUNDLED_MODEL).tokenizer().encode(text)
    found = find_layers(Ours(BUNDLED_MODEL).model, [ids, []], lambda stage, done: stages.append(stage))
    assert 1 <= found.choice.exit_layer < 8
    pairs = itertools.pairwise(found.exits)
    assert all(later > earlier - 0.05 for earlier, later in pairs), "a later exit of this model is hardly a worse one"
    assert found.skip_gain >= 1.0
    assert "reading the texts" in stages
    assert "trying which layers can be skipped" in stages
