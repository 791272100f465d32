"""A model in GGUF, opened: one file (or several parts of one) that holds configuration, weights and tokenizer."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.layers.interface import WeightSource
from engine.compute.layers.linear.ggml_blocks import BLOCKS, dequantise
from engine.compute.models.projection import Projection
from engine.formats.gguf import config
from engine.formats.gguf.container import GGUFFile
from engine.formats.gguf.names import NO_PARAMETERS, Names
from engine.formats.gguf.projector import find_projector
from engine.formats.gguf.source import GGUFSource
from engine.formats.gguf.tokenizer import FileText
from engine.formats.gguf.types import FLOATING, TYPES
from engine.formats.gguf.vocabulary import TOKENS
from engine.formats.load import TEXT_ONLY, Checkpoint
from engine.formats.pooling import DENSE, gguf_pooling, pooling_of
from engine.formats.ranking import CUT, ranks, read_classifier
from engine.formats.source import LoadSettings
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class GGUFCheckpoint(Checkpoint):
    """``path`` is what was asked for: the file, or the folder that it is the only model of."""

    files: GGUFFile  # type: ignore[assignment]  # only the methods below look into it
    text: FileText | None = None

    @property
    def quantisation_title(self) -> str:
        """Name of the quantisation for people: "GGUF Q4_K with Q6_K"."""
        return self._quantised_title(config.title(self.files))

    @property
    def packed(self) -> bool:
        return self.quantise is not None or any(TYPES[entry.type].weights > 1 for entry in self.files.entries.values())

    def projections(self, device: torch.device) -> list[Projection]:
        """Those that the converter took along, of embeddings in 16 or 32 bits. Raises :class:`CheckpointError` for
        others."""
        if self.ranks:
            return read_classifier(self.files.entries, self._dense, device)
        entries = [self.files.entries[name] for name in DENSE if name in self.files.entries]
        if any(entry.type not in FLOATING for entry in entries):
            raise CheckpointError(
                f"{self.files.path.name} has packed dense layers after the pooling, which Kvasir does not read. Choose "
                "another file of the model."
            )
        return [Projection(self.files.floating(entry.name).to(device, torch.float32, copy=True)) for entry in entries]

    def _dense(self, name: str) -> Tensor:
        """A tensor of any type in 16 or 32 bits."""
        kind = self.files.entries[name].type
        return self.files.floating(name) if kind in FLOATING else dequantise(kind, self.files.packed(name))

    def tokenizer(self) -> Tokenizer:
        return self._text().tokenizer()

    def chat_template(self) -> ChatTemplate:
        return self._text().chat_template()

    def retyped(self, label: str) -> GGUFCheckpoint:
        """The same model as another file of it has it, as far as its ``label`` tells ("Q4_K_M"): all matrices that are
        packed here are of that type there, but the head is no smaller. Itself where the label names no type."""
        names = {kind.name: number for number, kind in TYPES.items() if number in (*BLOCKS, *FLOATING)}
        label = label.upper().removeprefix("UD-")
        while label and label not in names:
            label = label.rpartition("_")[0]
        if not label:
            return self
        number, kind = names[label], TYPES[names[label]]
        head = "output.weight" if "output.weight" in self.files.entries else "token_embd.weight"
        entries = dict(self.files.entries)
        for name, entry in entries.items():
            size = entry.numel // kind.weights * kind.bytes
            fits = TYPES[entry.type].weights > 1 and entry.shape[-1] % kind.weights == 0
            if fits and (name != head or size > entry.size):
                entries[name] = entry._replace(type=number, size=size)
        held = sum(entry.size for entry in entries.values())
        files = GGUFFile(self.files.path, self.files.metadata, entries)
        return replace(self, files=files, weight_bytes=held)

    def has_tensor(self, name: str) -> bool:
        """Return True if the file has the tensor ``name`` (the family's name in safetensors), by GGUF's name for it."""
        names = Names(config.architecture(self.files).names, self.config.num_layers)
        with contextlib.suppress(KeyError):
            return bool(name) and names.tensor(name) in self.files.entries
        return False

    def _text(self) -> FileText:
        if self.text is None:
            raise CheckpointError(
                f"{self.files.path.name} has no tokenizer, so its text cannot be read. Choose another file."
            )
        return self.text

    def _source(self, settings: LoadSettings) -> WeightSource:
        return GGUFSource(self.files, self.config, config.architecture(self.files), settings)


def open_gguf(path: Path, file: Path, need_tokenizer: bool) -> GGUFCheckpoint:
    """Opens and checks ``file``. Raises :class:`CheckpointError`."""
    files = GGUFFile.open(file)
    read = config.read_config(files)
    text = FileText(files.metadata) if TOKENS in files.metadata else None
    vision, reason = find_projector(file, files, read)
    text_only = TEXT_ONLY.format(name=path.name, reason=reason.rstrip(".")) if reason else ""
    # The lists are large, and whoever still needs one has them by now.
    files.metadata = {key: value for key, value in files.metadata.items() if not isinstance(value, list)}
    qwen3 = read.architecture == "Qwen3ForCausalLM"  # whose converter takes "yes" and "no"
    is_ranker = ranks(files.entries, 2 if qwen3 else 1, path.name)
    cut = CUT.format(name=path.name) if is_ranker and not qwen3 and "cls.weight" not in files.entries else ""
    named = None if is_ranker else gguf_pooling(files.metadata, str(files.metadata["general.architecture"]))
    generation = config.read_generation(files, text.special if text is not None else None)
    opened = GGUFCheckpoint(
        path=path,
        config=read,
        generation_config=generation,
        files=files,
        parameters=sum(entry.numel for name, entry in files.entries.items() if name not in NO_PARAMETERS),
        weight_bytes=sum(entry.size for entry in files.entries.values()),
        notices=(*([text_only] if reason else []), *([cut] if cut else []), *generation.notices),
        vision=vision,
        pooling=pooling_of(read, is_ranker, named),
        ranks=is_ranker,
        text_only=text_only,
        text=text,
    )
    if need_tokenizer:
        opened._text()
    config.check_layers(files, read.num_layers + config.next_layers(files))
    return opened.checked()
