"""The draft model of a load: a smaller one that means the same text by each token id."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from engine.base.errors import CheckpointError
from engine.compute.batch import FIRST_ROW
from engine.compute.models.base import CausalLM
from engine.decoding.speculation.draft_model.proposer import DraftModelProposer
from engine.formats.source import Packing
from engine.loading.files import ModelFiles
from engine.loading.memory import estimate
from engine.loading.model import load_name
from engine.loading.parts.part import ModelAssembly, Need
from engine.loading.placement import DevicePlacement
from engine.loading.reading import WeightReading
from engine.loading.runners import new_runner
from engine.protocol import LoadOptions
from engine.text.tokenizer import Tokenizer

CANNOT = "The draft model cannot be used. {error}"
STATES = (
    "{name} cannot draft: its recurrent layers carry states, which would have to be taken back when a draft is "
    "rejected. Choose a draft without such layers, or the model's own multi-token layer."
)


@dataclass(frozen=True, slots=True)
class DraftPart:
    """``refused``: why the one that was asked for is not used, as a sentence. ``ignored``: that it is not quantised,
    likewise."""

    files: ModelFiles | None = None
    refused: str = ""
    ignored: str = ""
    model: CausalLM | None = None

    @classmethod
    def find(cls, path: str, tokenizer: Tokenizer, asked: LoadOptions, tables_in_file: bool) -> Self:
        """The draft model at ``path``, if that is not "", for a model with this tokenizer."""
        if not path:
            return cls()
        try:
            files = ModelFiles.open(path, asked.context, tables_in_file)
        except CheckpointError as error:
            return cls(refused=CANNOT.format(error=error))
        if files.checkpoint.config.recurrent is not None:
            return cls(refused=STATES.format(name=load_name(path)))
        difference = tokenizer.difference(files.tokenizer)
        if difference:
            text = f"{load_name(path)} cannot draft for this model: {difference}. Choose a draft of the same family."
            return cls(refused=text)
        files, ignored = files.quantised(asked.quantise)
        return cls(files, ignored=ignored)

    @property
    def name(self) -> str:
        return "" if self.files is None else self.files.name

    @property
    def weight_bytes(self) -> int:
        """Bytes of its files."""
        return 0 if self.files is None else self.files.checkpoint.weight_bytes

    def size(self, target: ModelFiles, place: DevicePlacement, limit: int) -> Need:
        if self.files is None:
            return Need()
        checkpoint = self.files.checkpoint
        weights = checkpoint.resident_bytes(place.dtype, _packing(place), place.device)
        return Need(draft_weights=weights, kv=estimate.kv_bytes_per_token(checkpoint.config, place.kv_dtype))

    def read(self, target: ModelFiles, model: CausalLM, reading: WeightReading) -> Self:
        if self.files is None:
            return self
        try:
            return replace(self, model=reading.model(self.files, _packing(reading.place)))
        except CheckpointError as error:
            return self.without(CANNOT.format(error=error))

    def without(self, reason: str) -> Self:
        """No draft model, for this reason."""
        return replace(self, files=None, refused=reason)

    def storage_size(self) -> int:
        return 0 if self.model is None else self.model.storage_size()

    def attach(self, made: ModelAssembly) -> None:
        draft, target = self.model, made.model
        if draft is None:
            return
        context, pages = made.memory.context, made.memory.pages
        runner = new_runner(draft, pages, target.device, context=context, switches=target.numerics)
        runner.forward([FIRST_ROW])
        made.run(draft, runner)
        read, kept = draft.bytes_read_per_step(), estimate.kv_bytes_per_token(draft.config, draft.kv_dtype)
        words, known = target.config.vocab_size, draft.config.vocab_size
        proposer = DraftModelProposer(runner, words, made.files.eos_ids, read, kept, own_vocabulary=known)
        made.proposers.append(proposer)
        made.methods.insert(1, ("draft model", self.name))  # n-grams come first


def _packing(place: DevicePlacement) -> Packing:
    return "4bit_torch" if place.packing == "4bit_torch" else "4bit"
