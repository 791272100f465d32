"""The drafters of a model: draft models and heads are found, sized up, read, and made into proposers.

N-grams, early exit and layer skipping need nothing but the model. A draft model, Medusa heads, Gemma 4's assistant, and
an EAGLE head or the multi-token layers of the checkpoint itself are read where they are found and fit; if not, a notice
gives the reason.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.cache.stores.store import KVStore
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.compute.models.heads.assistant import Assistant
from engine.compute.models.heads.base import FeatureHead
from engine.compute.models.heads.medusa import MedusaHeads
from engine.compute.models.heads.mtp import Layout, MultiToken, layout_of
from engine.compute.runner.graphs import Graphs
from engine.compute.runner.runner import RunnableModel, Runner
from engine.decoding.speculation.base import Proposer
from engine.decoding.speculation.proposers.assistant import AssistantProposer
from engine.decoding.speculation.proposers.draft_model import DraftModelProposer
from engine.decoding.speculation.proposers.eagle import FeatureProposer
from engine.decoding.speculation.proposers.layer_choice import LayerChoice, read_choice
from engine.decoding.speculation.proposers.medusa import MedusaProposer
from engine.decoding.speculation.proposers.ngram import NgramProposer
from engine.decoding.speculation.proposers.self_drafting import EarlyExitProposer, LayerSkipProposer
from engine.formats.heads.files import KINDS, HeadFiles, HeadKind, find_heads, kind_of, open_heads
from engine.formats.heads.read import read_assistant, read_eagle, read_medusa_heads
from engine.formats.load import Checkpoint
from engine.formats.source import Packing
from engine.library import paths as config
from engine.loading.memory import estimate
from engine.loading.model import LoadModel
from engine.loading.parts import ModelFiles, fingerprint_of, new_runner, open_draft

_FIRST = SequenceRows([0], 0, [1], want_logits=1)
"""One row on page 1, which no sequence holds yet."""
_NAMES: dict[HeadKind, str] = {"medusa": "The heads", "eagle": "The heads", "assistant": "The assistant"}
LEAST_LAYERS = 4
"""Models with fewer layers get no early exit and no layer skipping."""


class Companions(NamedTuple):
    """The drafters found for a model, opened but not read. ``refused``: why the one that was asked for is not used."""

    draft: ModelFiles | None
    heads: Mapping[HeadKind, HeadFiles]
    layers: LayerChoice
    refused: str = ""
    notices: tuple[str, ...] = ()


class Drafters(NamedTuple):
    """The draft model and heads that were read."""

    draft: CausalLM | None = None
    medusa: MedusaHeads | None = None
    feature: FeatureHead | None = None
    assistant: Assistant | None = None
    notices: tuple[str, ...] = ()

    @property
    def heads(self) -> list[str]:
        """The kinds of the heads, named as sources of draft tokens."""
        names = ["medusa"] if self.medusa is not None else []
        return names + [each.name for each in (self.feature, self.assistant) if each is not None]

    def storage_size(self) -> int:
        parts = self.draft, self.medusa, self.feature, self.assistant
        return sum(each.storage_size() for each in parts if each is not None)


def find_companions(command: LoadModel, target: ModelFiles) -> Companions:
    """Find the draft model and heads for the model of a load. ``command.draft`` is the path of either."""
    path = target.checkpoint.path
    given = Path(command.draft) if command.draft else None
    copies = config.copies_folder()
    are_heads = given is not None and kind_of(given, copies) is not None
    draft, refused = (None, "") if are_heads else open_draft(command.draft, target.tokenizer, command.options.context)
    name = fingerprint_of(target.checkpoint)
    kept = config.heads_folder() / name if name else None
    heads: dict[HeadKind, HeadFiles] = {}
    notices: list[str] = []
    for kind in KINDS:
        place = find_heads(kind, path, given if are_heads else None, kept, copies)
        if place is None:
            continue
        try:
            heads[kind] = open_heads(place, target.checkpoint.config, copies, kind)
            notices += heads[kind].notices
        except CheckpointError as error:
            if place == given:
                refused = f"{_NAMES[kind]} cannot be used. {error}"
            else:
                notices.append(f"{_NAMES[kind]} of this model cannot be used. {error}")
    own = (path if path.is_dir() else path.parent) / "heads"
    layers = read_choice([own, *([kept] if kept is not None else [])], target.checkpoint.config.num_layers)
    if layers.refused:
        notices.append(layers.notice)
    return Companions(draft, heads, layers, refused, tuple(notices))


def sizes(
    companions: Companions,
    target: ModelFiles,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    packing: Packing,
    draft_packing: Packing,
    device: torch.device,
) -> tuple[int, float]:
    """Bytes of weights, and of keys and values for each token, that the drafters in ``companions`` take on ``device``.

    The dtypes are the target's.
    """
    weights, kv = 0, 0.0
    if companions.draft is not None:
        weights += companions.draft.checkpoint.resident_bytes(dtype, draft_packing, device)
        kv += companions.draft.kv_bytes(kv_dtype)
    if "medusa" in companions.heads:
        weights += companions.heads["medusa"].resident_bytes(dtype)
    if not _has_feature(companions, target) and "assistant" not in companions.heads:
        return weights, kv
    model = target.checkpoint.planned(dtype, packing, device)
    model.kv_dtype = kv_dtype
    with contextlib.suppress(CheckpointError):  # read_heads reports the reason
        feature = feature_head(companions.heads.get("eagle"), target.checkpoint, model, packing, device)
        if feature is not None:
            weights, kv = weights + feature.storage_size(), kv + feature.kv_bytes_per_token()
    with contextlib.suppress(CheckpointError):
        if "assistant" in companions.heads:
            weights += read_assistant(companions.heads["assistant"], model).storage_size()
    return weights, kv


def read_heads(companions: Companions, target: ModelFiles, model: CausalLM, packing: Packing) -> Drafters:
    """Read the heads; what cannot be used is left out with a notice."""
    medusa: MedusaHeads | None = None
    feature: FeatureHead | None = None
    assistant: Assistant | None = None
    notices: list[str] = []
    try:
        medusa = read_medusa_heads(companions.heads["medusa"], model) if "medusa" in companions.heads else None
    except CheckpointError as error:
        notices.append(f"The Medusa heads cannot be used. {error}")
    try:
        feature = feature_head(companions.heads.get("eagle"), target.checkpoint, model, packing, model.device)
    except CheckpointError as error:
        what = "EAGLE head" if "eagle" in companions.heads else "checkpoint's multi-token layer"
        notices.append(f"The {what} cannot be used. {error}")
    try:
        assistant = read_assistant(companions.heads["assistant"], model) if "assistant" in companions.heads else None
    except CheckpointError as error:
        notices.append(f"The assistant cannot be used. {error}")
    for files in (target.checkpoint.files, *(each.files for each in companions.heads.values())):
        files.close()
    return Drafters(None, medusa, feature, assistant, tuple(notices))


def feature_head(
    eagle: HeadFiles | None, checkpoint: Checkpoint, model: CausalLM, packing: Packing, device: torch.device
) -> FeatureHead | None:
    """The EAGLE head or else multi-token layers, for a ``model`` of ``checkpoint`` on ``device`` or planned for it.

    Raises CheckpointError.
    """
    if eagle is not None:
        return read_eagle(eagle.files, eagle.config, model)
    layout = multi_token_layout(checkpoint)
    if layout is None:
        return None
    source = checkpoint.source(model.device, model.dtype, packing, Numerics(), computing=device)
    return MultiToken(model, source, layout, checkpoint.has_tensor(layout.table))


def _has_feature(companions: Companions, target: ModelFiles) -> bool:
    checkpoint = target.checkpoint
    return "eagle" in companions.heads or multi_token_layout(checkpoint) is not None


def multi_token_layout(checkpoint: Checkpoint) -> Layout | None:
    """Layout of the multi-token layer, if there is one that Kvasir has.

    Nemotron's is two layers of one block each, attention and experts. (In GGUF they are one, which is left out.)
    """
    if checkpoint.config.feed_forward and not checkpoint.has_tensor("mtp.layers.0.mlp.gate.weight"):
        return None
    return layout_of(checkpoint.has_tensor, checkpoint.config.num_layers)


class ProposerInputs(NamedTuple):
    """Inputs of a proposer that needs nothing but the model."""

    model: CausalLM
    runner: Runner
    eos_ids: list[int]
    layers: LayerChoice
    kv_bytes_per_token: float


def _early_exit(target: ProposerInputs) -> Proposer | None:
    model, runner, eos_ids, layers, kept = target
    if not drafts_alone(model):
        return None
    return EarlyExitProposer(runner, model, eos_ids, kept, layers.exit_layer)


def _layer_skip(target: ProposerInputs) -> Proposer | None:
    model, runner, eos_ids, layers, kept = target
    # What a layer writes that others read is never left out.
    skip = layers.skip - set(model.config.lenders)
    return LayerSkipProposer(runner, model, eos_ids, kept, skip) if drafts_alone(model) else None


def drafts_alone(model: CausalLM) -> bool:
    """Return True if some of the model's layers draft: there are enough, and none carries a state that drafts would
    move on."""
    return model.num_layers >= LEAST_LAYERS and model.config.recurrent is None


ALONE: list[Callable[[ProposerInputs], Proposer | None]] = [lambda target: NgramProposer(), _early_exit, _layer_skip]
"""Makers of proposers that need nothing but the model, None where it has none; a new one is added here."""


class Assembled(NamedTuple):
    """All proposers of a loaded model; their arenas, which use the target's page numbers; what captures their steps;
    the draft model's runner."""

    proposers: list[Proposer]
    stores: list[KVStore]
    graphs: list[Graphs]
    draft: Runner | None = None


def assemble(
    drafters: Drafters,
    layers: LayerChoice,
    runner: Runner,
    model: CausalLM,
    eos_ids: list[int],
    pages: int,
    context: int = 0,
) -> Assembled:
    """``runner`` is the target's; ``pages`` counts page 0; ``context`` is the longest sequence, in tokens.

    Draft model and heads run one warm-up pass, because the controller measures costs and the first draft should cost as
    much as the later ones.
    """
    target = ProposerInputs(model, runner, eos_ids, layers, estimate.kv_bytes_per_token(model.config, model.kv_dtype))
    proposers = [made for make in ALONE if (made := make(target)) is not None]
    stores: list[KVStore] = []
    graphs = [runner.graphs] if runner.graphs is not None else []
    draft, small = drafters.draft, None
    if draft is not None:
        small = new_runner(draft, pages, model.device, context=context, switches=model.numerics)
        small.forward([_FIRST])
        if small.graphs is not None:
            graphs.append(small.graphs)
        stores.append(small.kv)
        read, kept = draft.bytes_read_per_step(), estimate.kv_bytes_per_token(draft.config, draft.kv_dtype)
        words, known = model.config.vocab_size, draft.config.vocab_size
        proposers.append(DraftModelProposer(small, words, eos_ids, read, kept, own_vocabulary=known))
    if drafters.medusa is not None:
        heads = drafters.medusa
        heads.forward(_nothing(model))
        proposers.append(MedusaProposer(heads, model.num_layers, heads.accuracies, eos_ids))
    if drafters.feature is not None:
        head, arena = drafters.feature, drafters.feature.new_store(pages)
        stores.append(arena)
        own = Runner(cast(RunnableModel, head), arena, AttentionDispatcher(head.numerics), model.device)
        own.forward([_FIRST], hidden_in=_nothing(model))
        proposers.append(FeatureProposer(head, own, eos_ids))
    if drafters.assistant is not None:
        reader = drafters.assistant
        own = Runner(cast(RunnableModel, reader), runner.kv, AttentionDispatcher(reader.numerics), model.device)
        first = _FIRST._replace(more_pages=[[1]] * (runner.kv.num_groups - 1))
        own.forward([first], hidden_in=_nothing(model))
        proposers.append(AssistantProposer(reader, own, eos_ids))
    return Assembled(proposers, stores, graphs, small)


def described(companions: Companions, drafters: Drafters, model: CausalLM) -> tuple[tuple[str, str], ...]:
    """The drafters of a loaded model and a description of each, for display."""
    found = [("n-gram", "what followed the last few tokens before")]
    if drafters.draft is not None and companions.draft is not None:
        found.append(("draft model", companions.draft.checkpoint.path.name))
    if drafts_alone(model):
        layers, count = companions.layers, model.num_layers
        how = " (by default: no search was made)" if layers.notice else ""
        skipped = ", ".join(str(layer + 1) for layer in sorted(layers.skip)) or "none"
        found.append(("early exit", f"after {layers.exit_layer} of {count} layers{how}"))
        found.append(("layer skipping", f"without layers {skipped} of {count}{how}"))
    if drafters.medusa is not None:
        found.append(("Medusa", f"{drafters.medusa.num_heads} heads, {companions.heads['medusa'].path}"))
    if drafters.feature is not None:
        files = companions.heads.get("eagle")
        found.append((drafters.feature.title, "the checkpoint's own" if files is None else str(files.path)))
    if drafters.assistant is not None:
        found.append(("assistant", str(companions.heads["assistant"].path)))
    return tuple(found)


def _nothing(model: CausalLM) -> Tensor:
    """A hidden state ``[1, hidden_size]`` of zeros."""
    return torch.zeros(1, model.config.hidden_size, dtype=model.dtype, device=model.device)
