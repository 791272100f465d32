"""The plan of a load: its parts, what they take and where they go; it reads and attaches them one after another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from engine.base import devices
from engine.base.errors import CheckpointError
from engine.cache.stores.kinds import KVKind
from engine.compute.batch import FIRST_ROW
from engine.compute.models.arenas import sparse_reads
from engine.compute.models.base import CausalLM
from engine.compute.native import shipped
from engine.compute.runner.ahead import capture_ahead, compile_ahead
from engine.compute.runner.runner import Runner
from engine.compute.sampling import device as sampling
from engine.compute.sampling.sampler import by_torch
from engine.config.states import state_bytes
from engine.decoding.options import EngineOptions
from engine.formats.times import LoadTimes
from engine.loading.files import fingerprint_of
from engine.loading.memory import estimate
from engine.loading.memory.probe import NoSuchDevice, free_bytes
from engine.loading.model import Drafting, LoadedModel, LoadFailed, LoadModel, Progress, Reads
from engine.loading.parts.draft import DraftPart
from engine.loading.parts.heads import HeadsPart
from engine.loading.parts.part import LoadPart, ModelAssembly, Need
from engine.loading.parts.target import ROWS, TargetPart
from engine.loading.parts.tower import NO_ROOM, TowerPart
from engine.loading.placement import DevicePlacement
from engine.loading.reading import WeightReading
from engine.loading.runners import fallbacks, readers_of
from engine.protocol import Fit, ModelCard
from engine.text.thinking import thinking_modes

_log = logging.getLogger(__name__)


@dataclass
class LoadPlan:
    """Implements :class:`OpenedModel`. A draft or heads that cannot serve or do not fit are left out, with the
    reason."""

    command: LoadModel
    options: EngineOptions
    place: DevicePlacement
    target: TargetPart
    tower: TowerPart
    draft: DraftPart
    heads: HeadsPart
    credit: int
    """Bytes that become free before the weights are read."""
    kind_refused: str
    notices: list[str]
    times: LoadTimes = field(default_factory=LoadTimes)
    kernels_before: shipped.Tally = field(default_factory=shipped.tally)
    """Where kernels had come from when this load began."""
    _memory: estimate.MemoryPlan | None = None

    @property
    def limit(self) -> int:
        """The longest sequence, in tokens."""
        return min(self.target.files.checkpoint.config.positions.max_position, self.command.options.context or 1 << 62)

    @property
    def memory(self) -> estimate.MemoryPlan:
        assert self._memory is not None, "size_up comes first"
        return self._memory

    @property
    def fit(self) -> Fit:
        return self.memory.fit

    @property
    def kv_growth(self) -> float:
        """Bytes of keys and values that each further token of a text takes, beyond the windows of layers with one."""
        config = self.target.files.checkpoint.config
        return self.place.kv_bytes(config, False if self.memory.window_pages else None)

    @property
    def draft_refused(self) -> str:
        """Reason the draft model or heads that were asked for are not used, as a sentence."""
        return self.draft.refused or self.heads.refused

    @property
    def _companions(self) -> tuple[LoadPart, LoadPart, LoadPart]:
        return self.draft, self.heads, self.tower

    # --- size ----------------------------------------------------------------------------------------------------

    def size_up(self) -> None:
        """Plan the memory; drafts that do not fit are given up rather than the model; then its tower.

        Raises :class:`engine.loading.memory.estimate.OutOfMemory`.
        """
        try:
            self._memory = self._planned()
        except estimate.OutOfMemory:
            if self.draft.files is not None or self.heads.in_files:
                name = self.draft.name or "What drafts for the model"
                reason = f"{name} does not fit into memory together with the model."
                self.draft, self.heads = self.draft.without(reason), self.heads.without(reason)
            elif self.tower.part is not None:
                self.tower = self.tower.without(NO_ROOM.format(name=self.target.files.name))
            else:
                raise
            self.size_up()

    def _planned(self) -> estimate.MemoryPlan:
        free = free_bytes(self.place.device)
        target, place, limit = self.target, self.place, self.limit
        config, kind = target.files.checkpoint.config, place.kind
        companions = [part.size(target.files, place, limit) for part in self._companions]
        need = Need.total([*companions, target.size(place, limit)])
        window = target.window(place, limit)
        return estimate.plan(
            weights=need.weights,
            draft_weights=need.draft_weights,
            kv_bytes=need.kv,
            activations=need.working,
            context=limit,
            free=free,
            memory=self.command.options.memory,
            credit=self.credit,
            residual=kind.residual,
            recent_bytes=estimate.kv_bytes_per_token(config, place.kv_dtype),
            rows=ROWS,
            state_bytes=0 if config.recurrent is None else state_bytes(config.recurrent, place.dtype),
            window=window,
            window_bytes=place.kv_bytes(config, True) if window else 0.0,
            at_once=need.at_once,
        )

    def fits_alongside(self) -> bool:
        """Implements :meth:`OpenedModel.fits_alongside`."""
        fit = self.fit
        return fit.weights + fit.draft_weights + fit.activations < 0.9 * free_bytes(self.place.device)

    # --- read ----------------------------------------------------------------------------------------------------

    def read(self, progress: Progress, cancelled: Callable[[], bool]) -> None:
        """Implements :meth:`OpenedModel.read`."""
        files, whole = self.target.files, self.target.files.checkpoint.weight_bytes + self.draft.weight_bytes
        share = files.checkpoint.weight_bytes / max(1, whole) * 0.97
        quantises = self.command.options.dtype != "float32"
        reading = WeightReading(self.place, quantises, self.times, progress, cancelled, self.notices)
        with as_load_failed():
            self.target = self.target.read(reading.between(0.0, share))
            assert self.target.model is not None
            self.tower = self.tower.read(files, self.target.model, reading)
            self.heads = self.heads.read(files, self.target.model, reading)
            rest = reading.between(share, 0.97, " of the draft model")
            self.draft = self.draft.read(files, self.target.model, rest)

    # --- attach --------------------------------------------------------------------------------------------------

    def assemble(self, progress: Progress) -> LoadedModel:
        """Implements :meth:`OpenedModel.assemble`."""
        assert self.target.model is not None, "read comes first"
        devices.make_current(self.place.device)
        self.options.apply_to(self.target.model.numerics)  # what is compiled and captured goes by the user's switches
        progress("making room for keys and values", 0.97)
        with as_load_failed():
            # The weights are in memory by now, so that free memory no longer includes theirs.
            self.credit = sum(part.storage_size() for part in (self.target, *self._companions))
            self._memory = self._planned()
            made = self.target.attach(self.place, self._memory)
            for part in self._companions:
                part.attach(made)
            if devices.traits(self.place.device).kernels:
                for model, runner in made.compiled:
                    self._compile(model, runner, progress)
            progress("first pass", 0.99)
            runner = made.runner
            runner.forward([FIRST_ROW._replace(more_pages=[[1]] * (runner.kv.num_groups - 1))])
        return self._loaded(made)

    def rebuilt(self, kind: KVKind) -> LoadedModel:
        """Implements :meth:`OpenedModel.rebuilt`."""
        again = replace(self, place=self.place._replace(kind=kind), kind_refused="", kernels_before=shipped.tally())
        return again.assemble(lambda stage, fraction: None)

    def _compile(self, model: CausalLM, runner: Runner, progress: Progress) -> None:
        """Compile what answers would otherwise wait for; what cannot be is met, with its reason, when it is used."""

        def show(done: int, of: int) -> None:
            progress(f"compiling kernels ({done} of {of})", 0.97 + 0.02 * done / of)

        context = self.memory.context
        with self.times.of("compiling kernels"):
            try:
                logits = model.dtype, model.config.vocab_size, self.place.device
                draws = sampling.declines(*logits, by_torch) is None
                compile_ahead(runner, context, show, partial(sampling.rehearse, *logits) if draws else None)
                capture_ahead(runner, context)
            except Exception as error:
                devices.release_cached()
                text = f"Kernels could not be compiled ahead ({error}): the first answers wait for them."
                self.notices.append(text)
                _log.warning("kernels could not be compiled ahead", exc_info=error)

    def _loaded(self, made: ModelAssembly) -> LoadedModel:
        files, place, model, memory = self.target.files, self.place, made.model, self.memory
        checkpoint, cost = files.checkpoint, self.target.cost
        return LoadedModel(
            card=self._card(made),
            fit=memory.fit,
            runner=made.runner,
            device=place.device,
            pages=memory.pages,
            limit=self.limit,
            reads=Reads(
                weights=model.bytes_read_per_step(),
                packed=checkpoint.packed,
                kv_per_token=place.kv_bytes(model.config),
                sparse=sparse_reads(model.config),
            ),
            command=self.command,
            stores=tuple(made.stores),
            graphs=tuple(made.graphs),
            fingerprint=fingerprint_of(checkpoint, place.device.type, str(place.dtype), place.packing),
            files=files,
            model=model,
            drafting=Drafting(tuple(made.proposers), tuple(made.methods), self.draft.model),
            pictures=made.pictures,
            readers=None if model.config.attention.bidirectional else readers_of(model, place.device, place.kind),
            kind=place.kind,
            recent_pages=memory.recent_pages,
            opened=self,
            found={} if cost is None else cost.found,
        )

    def _card(self, made: ModelAssembly) -> ModelCard:
        files = self.target.files
        checkpoint = files.checkpoint
        declined = list(fallbacks(made.model, files.name))
        notices = [*self.notices, *files.notices, *declined]
        templates = files.template.notice if checkpoint.pooling is None else ""
        compiled = shipped.sentence(self.kernels_before)
        notices += [text for text in (templates, self.kind_refused, self.tower.reason, compiled) if text]
        cost = self.target.cost
        if cost is not None and not cost.bearable and self.options.automatic_activations:
            notices.append(cost.notice(files.name))
        return ModelCard(
            name=files.name,
            path=str(checkpoint.path),
            architecture=checkpoint.config.architecture,
            parameters=checkpoint.parameters,
            quantisation=checkpoint.quantisation_title,
            context=self.memory.context,
            vocabulary=checkpoint.config.vocab_size,
            eos_ids=files.eos_ids,
            has_chat_template=files.template.own,
            sampling=checkpoint.generation_config.sampling,
            draft=self.draft.name,
            draft_refused=self.draft_refused,
            heads=self.heads.names,
            notices=notices,
            fallbacks=declined,
            computing=self.place.computing,
            load_seconds=self.times.seconds,
            thinking=thinking_modes(files.template, files.channels),
            pictures=self.tower.tower is not None,
        )


@contextmanager
def as_load_failed() -> Iterator[None]:
    """Turn expected errors into LoadFailed with their code."""
    try:
        yield
    except NoSuchDevice as error:
        raise LoadFailed("no_device", str(error)) from error
    except CheckpointError as error:
        raise LoadFailed("bad_model", str(error)) from error
    except estimate.OutOfMemory as error:
        raise LoadFailed("out_of_memory", str(error)) from error
