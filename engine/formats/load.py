"""A checkpoint that was opened, and how a model is made of it."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, cast

import torch

from engine.base.devices import make_current
from engine.base.errors import CheckpointError, LoadCancelled
from engine.base.files import read_json, regular_size
from engine.base.host_memory import trim_heap
from engine.compute.layers.interface import WeightSource
from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.compute.models.projection import Projection
from engine.compute.models.registry import CLASSIFIERS, family, names_of, with_head
from engine.config.model import ModelConfig
from engine.config.pooling import Pooling
from engine.config.raw import RawConfig
from engine.formats.generation import GenerationConfig, read_generation_config
from engine.formats.pooling import folder_pooling, pooling_of, read_projections
from engine.formats.quantised.fp8 import NOTICE, USUAL, Fp8Files
from engine.formats.quantised.nested import text_config, text_entries
from engine.formats.quantised.quantisation import read_quantisation
from engine.formats.quantised.quantise import PACKERS, Fetch, Method, Quantiser
from engine.formats.quantised.repacked import Kept, content_key
from engine.formats.ranking import classifier_modules, folder_ranks, read_answers, read_classifier
from engine.formats.safetensors import TensorFiles
from engine.formats.source import CPU, CheckpointSource, LoadSettings, Packing, Source, count_parameters
from engine.formats.tensors import MISMATCH
from engine.formats.times import LoadTimes
from engine.formats.unused import OWN_HEAD, told, unused, with_own_head
from engine.formats.vision import VisionPart, find_vision
from engine.text.ends import end_ids
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer

_log = logging.getLogger(__name__)
LAYER = re.compile(r"^model\.(?:decoder\.)?layers\.(\d+)\.")
KEPT_INDEX = 4096
TRIM_S = 0.05
"""Between two looks for freed memory, each of which takes 20 us in a new process and milliseconds in one long used."""
"""Bytes that a layer takes at most where it is kept besides its weights: its modules in the index, and padding."""
TEXT_ONLY = "{name} also understands pictures; Kvasir serves its text part, because {reason}."
LONGER = (
    "{name} rotates texts of more than {original:,} tokens by other factors, which now hold for all texts. "
    "Shorter ones may get better answers with a context of {original:,}."
)
_TITLES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model that was opened and checked. ``weight_bytes`` is the tensors' size on disk.

    This class is a folder of safetensors; engine/formats/gguf/checkpoint.py has the one of GGUF.
    """

    path: Path
    config: ModelConfig
    generation_config: GenerationConfig
    files: TensorFiles
    parameters: int
    weight_bytes: int
    notices: tuple[str, ...] = ()
    """Notices for people about how the model is served."""
    quantise: Method | None = None
    """Method that packs linear layers while they are loaded; see :meth:`quantised`."""
    int8_head: bool = False
    """The output head is quantised to 8 bits while it is loaded; see :meth:`with_int8_head`."""
    tables_in_file: bool = False
    """On a processor, token tables stay in the file where nothing reads them whole."""
    vision: VisionPart | None = None
    """The vision tower, which :func:`engine.formats.vision.load_tower` reads."""
    pooling: Pooling | None = None
    """Pooling of a model that is made for embeddings or for ranking; None: it is made for something else."""
    ranks: bool = False
    """It is made to score documents for a query (engine/formats/ranking.py)."""
    text_only: str = ""
    """Reason that there is none although the model has one, as a sentence; it is among the notices."""
    _sizes: dict[tuple[torch.dtype, Packing, torch.device], int] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """:meth:`resident_bytes` that are known."""

    @classmethod
    def of_folder(cls, folder: Path, need_tokenizer: bool) -> Checkpoint:
        """Open the model of a folder in Hugging Face's format; see :func:`engine.formats.open.open_checkpoint`."""
        values = read_json(folder / "config.json")
        if values is None:
            raise CheckpointError(f"{folder} has no config.json. Choose a model's folder, or download the whole model.")
        whole = RawConfig(values, folder / "config.json")
        raw = text_config(whole)
        stated_architecture = raw.architecture
        if (named := with_head(raw.architecture)) != raw.architecture:
            whole = raw = RawConfig(values | {"architectures": [named]}, whole.file)
        config = family(raw.architecture).read_config(raw)
        quantisation = read_quantisation(raw, folder)
        files = TensorFiles.open(folder)
        notices: tuple[str, ...] = ()
        if quantisation is not None and quantisation.fp8:
            files = Fp8Files(files, quantisation.block or USUAL)
            notices = (*notices, NOTICE.format(name=folder.name)) if quantisation.method == "fp8" else notices
        # What is in FP8 alone is no packed model: it is read as 16-bit weights.
        packed = quantisation is not None and quantisation.method != "fp8"
        config = replace(config, quantisation=quantisation if packed else None)
        vision, reason = (None, "") if raw is whole else find_vision(whole, folder, files, config)
        text_only = TEXT_ONLY.format(name=folder.name, reason=reason.rstrip(".")) if reason else ""
        notices = (text_only, *notices) if reason else notices
        stated = files.entries
        files.entries = text_entries(stated, raw is not whole, names_of(raw.architecture))
        if not (raw.values.get("dtype") or raw.values.get("torch_dtype")):
            # gpt-oss' config.json, for one, is silent.
            stored = (entry.dtype for entry in files.entries.values() if entry.dtype in _TITLES)
            config = replace(config, dtype=next(stored, config.dtype))
        bare = "embed_tokens.weight" in stated
        if (raw is not whole or bare or stated_architecture in CLASSIFIERS) and not any(
            name.startswith("lm_head.") for name in files.entries
        ):
            # Which of the two configurations says so differs between versions of transformers.
            config = replace(config, tie_word_embeddings=True)
        ranks = folder_ranks(folder, stated_architecture, config, files.entries)
        tied, config = config.tie_word_embeddings, with_own_head(files, config)
        if tied != config.tie_word_embeddings:
            notices = (*notices, OWN_HEAD.format(name=folder.name))
        _check_layers(files, config)
        if need_tokenizer:
            _check_tokenizer(folder)
        generation = read_generation_config(folder, raw.values)
        opened = cls(
            path=folder,
            config=config,
            generation_config=generation,
            files=files,
            parameters=count_parameters(files, config.quantisation),
            weight_bytes=sum(entry.size for entry in files.entries.values()),
            notices=(*notices, *generation.notices),
            vision=vision,
            pooling=pooling_of(config, ranks, folder_pooling(folder)),
            ranks=ranks,
            text_only=text_only,
        )
        return opened.checked()

    def for_context(self, context: int | None) -> Checkpoint:
        """This model for texts of up to ``context`` tokens; see :meth:`PositionConfig.for_context`."""
        positions = self.config.positions.for_context(context)
        if positions is self.config.positions:
            return self
        notice = LONGER.format(name=self.path.name, original=self.config.positions.max_position)
        return replace(self, config=replace(self.config, positions=positions), notices=(*self.notices, notice))

    @property
    def quantisation_title(self) -> str:
        """Name of the quantisation for people: "GPTQ 4-bit, groups of 64", or the dtype of the file."""
        packed = self.config.quantisation
        return packed.title() if packed is not None else self._quantised_title(_TITLES[self.config.dtype])

    @property
    def packed(self) -> bool:
        """True if linear layers are quantised, in the file or while it is loaded."""
        return self.config.quantisation is not None or self.quantise is not None

    def quantised(self, method: Method) -> Self:
        """The same model, its linear layers to be packed while they are loaded; for one that is not :attr:`packed`."""
        return replace(self, quantise=method)

    @property
    def dense_head(self) -> bool:
        """True if the file's output head, or the token table that serves as one, has 16 or 32 bits a weight."""
        return replace(self, int8_head=False).planned(torch.float32).head.kind == "dense"

    def with_int8_head(self) -> Self:
        """The same model, its output head to be quantised to 8 bits while it is loaded, where :attr:`dense_head`."""
        return replace(self, int8_head=self.dense_head)

    def _quantised_title(self, stored: str) -> str:
        method = self.quantise
        return stored if method is None else f"{PACKERS[method].title}, quantised from {stored} while loading"

    def has_tensor(self, name: str) -> bool:
        """Return True if the checkpoint has the tensor that the family's safetensors files call ``name``."""
        return name in self.files.entries

    def projections(self, device: torch.device) -> list[Projection]:
        """Dense layers after the pooling of a model for embeddings or ranks. Raises :class:`CheckpointError`."""
        if self.ranks:
            entries, read = self.files.entries, self.files.view
            return read_classifier(entries, read, device) or [read_answers(entries, read, self.tokenizer(), device)]
        return [] if self.pooling is None else read_projections(self.path, device)

    def tokenizer(self) -> Tokenizer:
        """Raises :class:`CheckpointError`."""
        return Tokenizer.open(self.path, self.config.vocab_size)

    def chat_template(self) -> ChatTemplate:
        """The model's own, or a plain one with a notice."""
        return ChatTemplate.open(self.path)

    def end_ids(self, tokenizer: Tokenizer) -> list[int]:
        """The tokens that end an answer, by all of the model's files; ``tokenizer`` is its own."""
        declared = (*self.generation_config.eos_ids, *tokenizer.end_ids)
        return end_ids(declared, tokenizer.special, tokenizer.token)

    def source(
        self,
        device: torch.device,
        dtype: torch.dtype,
        weights: Packing,
        numerics: Numerics,
        on_module: Callable[[int], None] = lambda size: None,
        fetch: Fetch = lambda module, shapes, make: make(),
        computing: torch.device = CPU,
    ) -> WeightSource:
        """Make the source of a family's weights; the arguments are in :class:`engine.formats.source.LoadSettings`."""

        def tick() -> None:
            on_module(0)

        quantiser = Quantiser(self.quantise, device, tick, fetch) if self.quantise is not None else None
        head = Quantiser("int8", device, tick, stay=()) if self.int8_head else None
        settings = LoadSettings(device, dtype, weights, numerics, on_module, quantiser, computing, head)
        return self._source(settings._replace(tables_in_file=self.tables_in_file))

    def _source(self, settings: LoadSettings) -> WeightSource:
        return CheckpointSource(self.files, self.config.quantisation, settings)

    def kept(self, folder: Path, device: torch.device) -> Kept:
        """Store in ``folder`` of the tensors that this checkpoint's modules are quantised to, for later loads."""
        assert self.quantise is not None
        key = content_key(self.files.entries.values(), self.quantise, device.type)
        planned = replace(self, int8_head=False).planned(torch.bfloat16)
        packed = [layer for _, layer in planned.linears() if layer.kind != "dense"]
        title = f"{self.path.name}, {PACKERS[self.quantise].title}"
        return Kept(folder, key, sum(layer.storage_size() + KEPT_INDEX for layer in packed), title)

    def planned(self, dtype: torch.dtype, weights: Packing = "4bit", device: torch.device = CPU) -> CausalLM:
        """The model built of tensors without storage, as it would be on ``device``.

        Checks every tensor's name, shape and dtype.
        """
        return self._built(self.source(torch.device("meta"), dtype, weights, Numerics(), computing=device))

    def checked(self) -> Self:
        """The same, once every tensor that the model asks for was checked; a notice counts the others.

        Raises :class:`CheckpointError`.
        """
        source = self._source(LoadSettings(torch.device("meta"), torch.float32, "4bit", Numerics()))
        self._built(source)
        asked = cast(Source, source).asked | set(classifier_modules(self.files.entries) if self.ranks else ())
        notice = told(unused(self.files.entries, asked, self.config), self.path.name)
        return replace(self, notices=(*self.notices, notice)) if notice else self

    def _built(self, source: WeightSource) -> CausalLM:
        model: CausalLM = family(self.config.architecture).Model(self.config, source)
        return model

    def resident_bytes(self, dtype: torch.dtype, weights: Packing = "4bit", device: torch.device = CPU) -> int:
        """Bytes that the model will hold on ``device``."""
        key = dtype, weights, device
        if key not in self._sizes:
            self._sizes[key] = self.planned(*key).storage_size()
        return self._sizes[key]


def load_model(
    checkpoint: Checkpoint,
    device: torch.device,
    dtype: torch.dtype,
    weights: Packing = "4bit",
    progress: Callable[[str, float], None] = lambda stage, fraction: None,
    cancelled: Callable[[], bool] = lambda: False,
    numerics: Numerics | None = None,
    kept: Kept | None = None,
    times: LoadTimes | None = None,
) -> CausalLM:
    """Read the weights, module by module, into a model on ``device``.

    ``progress(stage, fraction)`` is called after each module; ``cancelled()`` is asked as often, within modules that
    are being quantised too, and when true :class:`LoadCancelled` is raised. Raises :class:`CheckpointError` for damaged
    tensors. Besides the result, memory of the process's own is needed for a small part of one module at a time, or for
    one layer as it is packed.

    ``kept`` gives and takes what modules are quantised to. ``times`` is told what the load's seconds went into. The
    device becomes this thread's current one, on which its kernels run.
    """
    make_current(device)
    done, trimmed = 0, time.monotonic()

    def on_module(size: int) -> None:
        nonlocal done, trimmed
        if cancelled():
            raise LoadCancelled("The load was cancelled.")
        if time.monotonic() - trimmed > TRIM_S:
            trim_heap()
            trimmed = time.monotonic()
        if not size:
            return
        done += size
        quantises = checkpoint.quantise is not None and not (kept is not None and kept.read)
        share = min(1.0, done / max(1, checkpoint.weight_bytes))
        progress("quantising weights" if quantises else "reading weights", share)

    times = times or LoadTimes()
    with times.of("copying"), contextlib.closing(checkpoint.files), kept or contextlib.nullcontext():
        fetch = times.fetching(kept)
        source = checkpoint.source(device, dtype, weights, numerics or Numerics(), on_module, fetch)
        try:
            with torch.inference_mode():
                model: CausalLM = family(checkpoint.config.architecture).Model(checkpoint.config, times.timed(source))
                model.projections = checkpoint.projections(device)
        finally:
            trim_heap()
    _log.info("loaded %s: %.1f MB resident, %s", checkpoint.path.name, model.storage_size() / 1e6, times)
    return model


def _check_tokenizer(folder: Path) -> None:
    try:
        regular_size(folder / "tokenizer.json")
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder} has no tokenizer.json, so its text cannot be read. Download the whole model."
        ) from None


def _check_layers(files: TensorFiles, config: ModelConfig) -> None:
    found = {int(match[1]) for name in files.entries if (match := LAYER.match(name))}
    # DeepSeek-V3 and its kin number layers of multi-token prediction with the others.
    found -= {layer for layer in found if f"model.layers.{layer}.eh_proj.weight" in files.entries}
    if found and max(found) >= config.num_layers:
        raise CheckpointError(
            f"The weights have {max(found) + 1} layers where config.json says {config.num_layers}. {MISMATCH}"
        )
