"""Models that are made to score a document for a query, and the layers that make the score of a pooled state.

A cross-encoder has a classifier with one label (transformers' ``…ForSequenceClassification``; Nogueira and Cho 2019,
arXiv 1901.04085). A causal one as Qwen3-Reranker (Zhang et al. 2025, arXiv 2506.05176) says "yes" or "no" next: the
share of "yes" in the two is the sigmoid of the difference of their logits, so that one row is its classifier. In GGUF
both are ``cls`` tensors, as llama.cpp's converter writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.models.projection import Projection
from engine.compute.models.registry import CLASSIFIERS
from engine.config.model import ModelConfig
from engine.formats.quantised.repacked import StoredTensor
from engine.formats.safetensors import AGAIN
from engine.formats.source import HEAD
from engine.formats.unused import TABLE
from engine.text.tokenizer import Tokenizer

NAME = "qwen3-reranker"
"""Part of the names of causal models that are made for it: nothing in their files says so."""
CUT = (
    "{name} was converted without the layer in front of its classifier, so that its scores are not the model's own. "
    "Choose the model in safetensors."
)
_MODULES = (
    ("pooler.dense", "classifier"),  # BERT
    ("classifier.dense", "classifier.out_proj"),  # RoBERTa
    ("score",),  # decoders
    ("cls", "cls.output"),  # GGUF's
    ("cls.output",),
)
"""Modules of a classifier; all but the last are followed by tanh."""


def folder_ranks(folder: Path, architecture: str, config: ModelConfig, entries: Mapping[str, StoredTensor]) -> bool:
    """True if a folder's model, of the ``architecture`` that its config.json names, is made to rank.

    Raises :class:`CheckpointError` for a classifier of another kind.
    """
    if architecture in CLASSIFIERS:
        if not ranks(entries, 1, folder.name):
            raise CheckpointError(f"The weights of {folder.name} lack its classifier. {AGAIN}")
        return True
    # A copy in Hugging Face's cache is called models--Qwen--Qwen3-Reranker-0.6B/snapshots/<hash>.
    named = any(NAME in part.lower() for part in folder.parts[-3:])
    whole = config.tie_word_embeddings or f"{HEAD}.weight" in entries
    return architecture == "Qwen3ForCausalLM" and named and whole


def ranks(entries: Mapping[str, StoredTensor], most: int, name: str) -> bool:
    """True if the tensors of the model ``name`` have a classifier. Raises :class:`CheckpointError` for one with more
    than ``most`` labels."""
    if not (modules := classifier_modules(entries)):
        return False
    shape = entries[f"{modules[-1]}.weight"].shape
    if len(shape) > 1 and (labels := shape[0]) > most:
        raise CheckpointError(
            f"{name} sorts texts into {labels:,} classes, and of classifiers Kvasir has those with one, which rank "
            "documents. Choose a reranker."
        )
    return True


def read_classifier(
    entries: Mapping[str, StoredTensor], read: Callable[[str], Tensor], device: torch.device
) -> list[Projection]:
    """The classifier's layers on ``device``, read by tensors' names; none where there is no classifier."""
    modules, found = classifier_modules(entries), []
    for module in modules:
        weight = read(f"{module}.weight").to(device, torch.float32, copy=True)
        bias = read(name).to(device, torch.float32, copy=True) if (name := f"{module}.bias") in entries else None
        found.append(Projection(weight if weight.ndim > 1 else weight[None], bias, module is not modules[-1]))
    if found and len(weight := found[-1].weight) == 2:  # "yes" and "no"
        found[-1] = Projection(weight[:1] - weight[1:])
    return found


def read_answers(
    entries: Mapping[str, StoredTensor], read: Callable[[str], Tensor], tokenizer: Tokenizer, device: torch.device
) -> Projection:
    """The row of the output head that is the difference of "yes" and "no". Raises :class:`CheckpointError`."""
    yes, no = (tokenizer.token_id(word) for word in ("yes", "no"))
    if yes is None or no is None:
        raise CheckpointError(f'The tokenizer lacks "yes" or "no", which a reranker says. {AGAIN}')
    head = read(name if (name := f"{HEAD}.weight") in entries else TABLE)
    return Projection((head[yes].float() - head[no].float())[None].to(device))


def classifier_modules(entries: Mapping[str, StoredTensor]) -> tuple[str, ...]:
    """The modules of a classifier, in their order; none where there is no classifier."""
    return next((each for each in _MODULES if all(f"{module}.weight" in entries for module in each)), ())
