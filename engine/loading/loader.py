"""Loads models into memory: checks the files, plans the memory, reads the weights, allocates the arenas."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import torch

from engine.base import devices
from engine.base.devices import traits
from engine.base.errors import CheckpointError
from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.kinds import KVKind
from engine.compute.batch import SequenceRows
from engine.compute.layers.numerics import LEAST_BITS, Numerics
from engine.compute.models.arenas import SIXTEEN_BITS, refuses, sparse_reads, window_of
from engine.compute.models.base import CausalLM
from engine.compute.native.library import find as find_native
from engine.compute.runner.ahead import capture_ahead, compile_ahead
from engine.compute.runner.runner import Runner
from engine.compute.sampling import device as sampling
from engine.compute.sampling.sampler import by_torch
from engine.compute.vision.embeddings import PictureEmbeddings
from engine.compute.vision.processor import ImageProcessor
from engine.config.states import state_bytes
from engine.decoding.options import READING_ROWS, EngineOptions
from engine.decoding.scheduling.scheduler import MAX_DRAFT_TOKENS
from engine.formats.load import Checkpoint, load_model
from engine.formats.quantised.repacked import Kept
from engine.formats.source import Packing
from engine.formats.times import LoadTimes
from engine.library import paths as config
from engine.loading.activations import ActivationCost, measured
from engine.loading.drafters import (
    Assembled,
    Companions,
    Drafters,
    assemble,
    described,
    find_companions,
    read_heads,
    sizes,
)
from engine.loading.memory import estimate
from engine.loading.memory.probe import (
    NoSuchDevice,
    choose_device,
    choose_dtype,
    choose_kv_dtype,
    free_bytes,
    limit_threads,
)
from engine.loading.model import LoadedModel, LoadFailed, LoadModel, Progress
from engine.loading.parts import ModelFiles, fallbacks, fingerprint_of, new_runner, prove, readers_of
from engine.loading.vision import NO_ROOM, VisionTower, most_tokens
from engine.protocol import DeviceName, Fit, LoadOptions, ModelCard
from engine.text.thinking import thinking_modes

_log = logging.getLogger(__name__)
_ROWS = READING_ROWS
"""Rows of a step that memory is reserved for; a larger step may run out of memory, which ends requests, not the engine.
"""
_LOGIT_ROWS = 64 + MAX_DRAFT_TOKENS
"""Rows of a step whose logits memory is reserved for: those of answers, and of draft tokens."""

Weights = tuple[CausalLM, Drafters]


class CheckpointLoader:
    """Loads models from folders and GGUF files. ``device`` is what "auto" in a load means."""

    def __init__(self, device: DeviceName = "auto") -> None:
        """Raises `engine.compute.native.instructions.NoSuchInstructions`."""
        limit_threads()
        find_native()  # raises before anything is loaded if the CPU lacks what KVASIR_NATIVE asks for
        self._device = device

    def open(self, command: LoadModel, options: EngineOptions, resident: LoadedModel | None) -> OpenedCheckpoint:
        """Implements :meth:`Loader.open`."""
        with _as_load_failed():
            opened = self.unplanned(command, options, resident)
            opened.size_up()
            return opened

    def unplanned(self, command: LoadModel, options: EngineOptions, resident: LoadedModel | None) -> OpenedCheckpoint:
        """Same as :meth:`open`, but without planning memory, so that the model need not fit."""
        with _as_load_failed():
            asked = command.options
            _check(asked)
            device = choose_device(asked.device if asked.device != "auto" else self._device)
            dtype, notice = choose_dtype(device, asked.dtype)
            target = ModelFiles.open(command.path, asked.context)
            companions = find_companions(command, target)
            target, ignored = target.quantised(asked.quantise)
            if options.int8_head:
                target = target._replace(checkpoint=target.checkpoint.with_int8_head())
            if companions.draft is not None:
                draft, draft_ignored = companions.draft.quantised(asked.quantise)
                companions, ignored = companions._replace(draft=draft), ignored or draft_ignored
            # 16 bits, and the reason, where the model cannot have the kind of KV cache that was asked for.
            refused = refuses(target.checkpoint.config, options.kv_kind)
            return OpenedCheckpoint(
                command=command,
                device=device,
                dtype=dtype,
                kv_dtype=choose_kv_dtype(dtype, asked.dtype),
                packing=cast(Packing, options.packing),
                target=target,
                companions=companions,
                computing=notice,
                notices=[text for text in (ignored, *companions.notices) if text],
                kind=SIXTEEN_BITS if refused else options.kv_kind,
                kind_refused=refused,
                credit=_held(resident, device),
                options=options,
                sight=VisionTower.of(target),
            )


@dataclass
class OpenedCheckpoint:
    """Implements :class:`OpenedModel`. A draft or heads that cannot serve or do not fit are left out, with the
    reason."""

    command: LoadModel
    device: torch.device
    dtype: torch.dtype
    kv_dtype: torch.dtype
    packing: Packing
    target: ModelFiles
    companions: Companions
    computing: str
    notices: list[str]
    kind: KVKind
    kind_refused: str
    credit: int
    options: EngineOptions
    sight: VisionTower
    more_weights: int = 0
    """Bytes of weights besides those that the headers state: of a variant whose own were not read."""
    times: LoadTimes = field(default_factory=LoadTimes)
    activation_cost: ActivationCost | None = None
    """Cost of 8-bit activations for the model that was read; None where none are quantised."""
    _plan: estimate.MemoryPlan | None = None

    @property
    def draft_packing(self) -> Packing:
        return "4bit_torch" if self.packing == "4bit_torch" else "4bit"

    @property
    def limit(self) -> int:
        """The longest sequence, in tokens."""
        return min(self.target.checkpoint.config.max_position, self.command.options.context or 1 << 62)

    @property
    def fit(self) -> Fit:
        assert self._plan is not None, "size_up comes first"
        return self._plan.fit

    @property
    def kv_growth(self) -> float:
        """Bytes of keys and values that each further token of a text takes, beyond the windows of layers with one."""
        assert self._plan is not None, "size_up comes first"
        return self.target.kv_bytes(self.kv_dtype, self.kind, False if self._plan.window_pages else None)

    def size_up(self) -> None:
        """Plan the memory; drafts that do not fit are given up rather than the model; then its tower."""
        try:
            self._plan = self._planned(free_bytes(self.device))
        except estimate.OutOfMemory:
            draft = self.companions.draft
            if draft is not None or self.companions.heads:
                name = draft.checkpoint.path.name if draft is not None else "What drafts for the model"
                reason = f"{name} does not fit into memory together with the model."
                self.companions = self.companions._replace(draft=None, heads={}, refused=reason)
            elif self.sight.part is not None:
                self.sight = VisionTower(None, reason=NO_ROOM.format(name=self.target.checkpoint.path.name))
            else:
                raise
            self.size_up()

    def fits_alongside(self) -> bool:
        """Implements :meth:`OpenedModel.fits_alongside`."""
        return self.fit.weights + self.fit.draft_weights + self.fit.activations < 0.9 * free_bytes(self.device)

    def read(self, progress: Progress, cancelled: Callable[[], bool]) -> Weights:
        """Implements :meth:`OpenedModel.read`."""
        parts = [part.checkpoint.weight_bytes for part in (self.target, self.companions.draft) if part is not None]
        share = parts[0] / max(1, sum(parts)) * 0.97
        with _as_load_failed():
            model = self._load(self.target, self.packing, lambda stage, done: progress(stage, share * done), cancelled)
            prove(new_runner(model, 2, self.device), self.target.checkpoint)
            self._judge_activations(model, lambda: progress("measuring 8-bit activations", share), cancelled)
            self.sight = self.sight.read(self.target, self.device, self.dtype, self.packing, cancelled)
            drafters = read_heads(self.companions, self.target, model, self.packing)
            self.notices += drafters.notices
            if self.companions.draft is None:
                return model, drafters

            def show(stage: str, done: float) -> None:
                progress(f"{stage} of the draft model", share + (0.97 - share) * done)

            draft = self._read_draft(self.companions.draft, show, cancelled)
            return model, drafters._replace(draft=draft)

    def assemble(self, weights: Weights, progress: Progress) -> LoadedModel:
        """Implements :meth:`OpenedModel.assemble`."""
        model, drafters = weights
        devices.make_current(self.device)
        self.options.apply_to(model.numerics)  # what is compiled and captured goes by the user's switches
        progress("making room for keys and values", 0.97)
        with _as_load_failed():
            # The weights are in memory by now, so that free memory no longer includes theirs.
            self.credit = model.storage_size() + drafters.storage_size() + self.sight.storage_size()
            self._plan = self._planned(free_bytes(self.device))
            context = self._plan.context
            plan = self._plan
            runner = new_runner(
                model,
                plan.pages,
                self.device,
                self.kind,
                plan.recent_pages,
                context,
                state_slots=plan.state_slots,
                window_pages=plan.window_pages,
            )
            layers, eos_ids = self.companions.layers, self.target.eos_ids
            made = assemble(drafters, layers, runner, model, eos_ids, self._plan.pages, context)
            if traits(self.device).kernels:
                self._compile(model, runner, context, progress)
                if drafters.draft is not None and made.draft is not None:
                    self._compile(drafters.draft, made.draft, context, progress)
            progress("first pass", 0.99)
            runner.forward([SequenceRows([0], 0, [1], want_logits=1, more_pages=[[1]] * (runner.kv.num_groups - 1))])
        return self._loaded(model, drafters, runner, made)

    def _judge_activations(self, model: CausalLM, begun: Callable[[], None], cancelled: Callable[[], bool]) -> None:
        """Find the bits that activations have unless the user chose some."""
        with self.times.of("measuring activations"):
            self.activation_cost = measured(model, self.target, self.device, self.packing, begun, cancelled)
        if self.activation_cost is not None:
            model.numerics.automatic = self.activation_cost.bits

    def _compile(self, model: CausalLM, runner: Runner, context: int, progress: Progress) -> None:
        """Compile what answers would otherwise wait for; what cannot be is met, with its reason, when it is used."""

        def show(done: int, of: int) -> None:
            progress(f"compiling kernels ({done} of {of})", 0.97 + 0.02 * done / of)

        with self.times.of("compiling kernels"):
            try:
                logits = model.dtype, model.config.vocab_size, self.device
                draws = sampling.declines(*logits, by_torch) is None
                compile_ahead(runner, context, show, partial(sampling.rehearse, *logits) if draws else None)
                capture_ahead(runner, context)
            except Exception as error:
                devices.release_cached()
                text = f"Kernels could not be compiled ahead ({error}): the first answers wait for them."
                self.notices.append(text)
                _log.warning("kernels could not be compiled ahead", exc_info=error)

    def _load(self, part: ModelFiles, packing: Packing, progress: Progress, cancelled: Callable[[], bool]) -> CausalLM:
        kept = self._kept(part.checkpoint)
        checkpoint, device, dtype = part.checkpoint, self.device, self.dtype
        numerics = Numerics(quantises=self.command.options.dtype != "float32")
        model = load_model(checkpoint, device, dtype, packing, progress, cancelled, numerics, kept, self.times)
        model.kv_dtype = self.kv_dtype
        if kept is not None and kept.notice and kept.notice not in self.notices:
            self.notices.append(kept.notice)
        return model

    def _kept(self, checkpoint: Checkpoint) -> Kept | None:
        """The store of quantised weights that an earlier load may have kept; None if there is nothing to quantise or
        keeping them is switched off."""
        if checkpoint.quantise is None or not config.keeps_quantised():
            return None
        with self.times.of("looking for kept weights"):
            return checkpoint.kept(config.quantised_folder(), self.device)

    def _read_draft(self, draft: ModelFiles, progress: Progress, cancelled: Callable[[], bool]) -> CausalLM | None:
        try:
            model = self._load(draft, self.draft_packing, progress, cancelled)
            prove(new_runner(model, 2, self.device), draft.checkpoint)
        except CheckpointError as error:
            self.companions = self.companions._replace(draft=None, refused=f"The draft model cannot be used. {error}")
            return None
        return model

    def _loaded(self, model: CausalLM, drafters: Drafters, runner: Runner, made: Assembled) -> LoadedModel:
        def with_kind(kind: KVKind) -> LoadedModel:
            again = replace(self, kind=kind, kind_refused="")
            return again.assemble((model, drafters), lambda stage, fraction: None)

        assert self._plan is not None
        checkpoint = self.target.checkpoint
        template, channels = self.target.template, self.target.channels
        declined = list(fallbacks(model, checkpoint.path.name))
        notices = [*self.notices, *self.target.notices, *declined]
        notices += [text for text in (template.notice, self.kind_refused, self.sight.reason) if text]
        cost = self.activation_cost
        if cost is not None and cost.bits != LEAST_BITS and self.options.automatic_activations:
            notices.append(cost.notice(checkpoint.path.name))
        tower, marker = self.sight.tower, self.sight.marker
        card = ModelCard(
            name=checkpoint.path.name,
            path=str(checkpoint.path),
            architecture=checkpoint.config.architecture,
            parameters=checkpoint.parameters,
            quantisation=checkpoint.quantisation_title,
            context=self._plan.context,
            vocabulary=checkpoint.config.vocab_size,
            eos_ids=self.target.eos_ids,
            has_chat_template=template.own,
            sampling=checkpoint.generation_config.sampling,
            draft=self.companions.draft.checkpoint.path.name if self.companions.draft is not None else "",
            draft_refused=self.companions.refused,
            heads=drafters.heads,
            notices=notices,
            fallbacks=declined,
            computing=self.computing,
            load_seconds=self.times.seconds,
            thinking=thinking_modes(template, channels),
            pictures=tower is not None,
        )
        return LoadedModel(
            card=card,
            fit=self._plan.fit,
            runner=runner,
            device=self.device,
            pages=self._plan.pages,
            limit=self.limit,
            weight_bytes=model.bytes_read_per_step(),
            kv_bytes_per_token=estimate.kv_bytes_per_token(model.config, self.kv_dtype, self.kind),
            stores=(runner.kv, *made.stores),
            proposers=tuple(made.proposers),
            graphs=tuple(made.graphs),
            drafting=described(self.companions, drafters, model),
            sampling=checkpoint.generation_config.sampling,
            checkpoint=checkpoint,
            model=model,
            draft_model=drafters.draft,
            tokenizer=self.target.tokenizer,
            chat_template=template,
            channels=channels,
            numerics=(model.numerics,),
            packed=checkpoint.packed,
            path=self.command.path,
            draft_path=self.command.draft,
            options=self.command.options,
            readers=readers_of(model, self.device, self.kind),
            fingerprint=fingerprint_of(checkpoint, self.device.type, str(self.dtype), self.packing),
            kind=self.kind,
            sparse=sparse_reads(model.config),
            recent_pages=self._plan.recent_pages,
            window_pages=self._plan.window_pages,
            with_kind=with_kind,
            album=None
            if tower is None
            else ImageProcessor(tower, marker, most_tokens(self.device, self._plan.context)),
            pictures=None if tower is None else PictureEmbeddings(tower),
            text_only=checkpoint.text_only or self.sight.reason,
            found={} if cost is None else cost.found,
        )

    def _planned(self, free: int) -> estimate.MemoryPlan:
        draft_weights, draft_kv = sizes(
            self.companions,
            self.target,
            self.dtype,
            self.kv_dtype,
            self.packing,
            self.draft_packing,
            self.device,
        )
        shape = self.target.checkpoint.config
        gpu = estimate.gpu_bytes(shape, self.dtype, self.limit) if traits(self.device).kernels else 0
        window = window_of(shape, self.kind)
        # A window that no text outgrows spares nothing.
        window = window if window < self.limit else 0
        return estimate.plan(
            weights=self.target.checkpoint.resident_bytes(self.dtype, self.packing, self.device)
            + self.sight.resident_bytes(self.dtype, self.packing, self.device)
            + self.more_weights,
            draft_weights=draft_weights,
            kv_bytes=self.target.kv_bytes(self.kv_dtype, self.kind, False if window else None) + draft_kv,
            activations=estimate.activation_bytes(shape, self.dtype, min(_ROWS, self.limit), _LOGIT_ROWS)
            + gpu
            + self.sight.working_bytes(self.dtype, self.device, self.limit),
            context=self.limit,
            free=free,
            memory=self.command.options.memory,
            credit=self.credit,
            residual=self.kind.residual,
            recent_bytes=self.target.kv_bytes(self.kv_dtype),
            rows=_ROWS,
            state_bytes=0 if shape.recurrent is None else state_bytes(shape.recurrent, self.dtype),
            window=window,
            window_bytes=self.target.kv_bytes(self.kv_dtype, self.kind, True) if window else 0.0,
            at_once=self.sight.most_whole(self.device, self.limit),
        )


def _check(options: LoadOptions) -> None:
    """Refuse options that no model could be loaded with. Raises LoadFailed."""
    if options.memory is not None and not math.isfinite(options.memory):
        raise LoadFailed(
            "bad_options", f"A memory budget of {options.memory} makes no sense. Give a share up to 1, or bytes."
        )
    if options.context is not None and options.context < PAGE_SIZE:
        text = f"A context of {options.context} tokens is too short. Give {PAGE_SIZE} or more, or the model's own."
        raise LoadFailed("bad_options", text)


def _held(resident: LoadedModel | None, device: torch.device) -> int:
    """Bytes that become free when the present model is dropped; a CPU's arenas are not counted, because only pages that
    were written take memory there."""
    if resident is None or resident.device != device:
        return 0
    fit = resident.fit
    return fit.weights + fit.draft_weights + (fit.kv + fit.states if devices.traits(device).gpu else 0)


@contextmanager
def _as_load_failed() -> Iterator[None]:
    """Turn expected errors into LoadFailed with their code."""
    try:
        yield
    except NoSuchDevice as error:
        raise LoadFailed("no_device", str(error)) from error
    except CheckpointError as error:
        raise LoadFailed("bad_model", str(error)) from error
    except estimate.OutOfMemory as error:
        raise LoadFailed("out_of_memory", str(error)) from error
