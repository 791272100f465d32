"""Models into memory: checked, sized up, read, given their arenas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, cast

import torch

from engine import config
from engine.attention.registry import Attention
from engine.cache.pool import PAGE_SIZE
from engine.checkpoints.errors import CheckpointError
from engine.checkpoints.load import Checkpoint, load_model
from engine.checkpoints.repacked import Kept
from engine.checkpoints.source import Packing
from engine.checkpoints.times import LoadTimes
from engine.core.commands import LoadModel
from engine.core.loaded import LoadedModel
from engine.core.loading import LoadFailed, Progress, load_name
from engine.core.options import EngineOptions
from engine.core.runner import RunnableModel, Runner, SequenceRows
from engine.layers.numerics import Numerics
from engine.memory import estimate
from engine.memory.probe import NoSuchDevice, choose_device, choose_dtype, free_bytes
from engine.models.arenas import new_store
from engine.models.base import CausalLM
from engine.protocol import Fit, LoadOptions, ModelCard, Quantise
from engine.speculation.base import Proposer
from engine.speculation.draft_model import DraftModelProposer
from engine.speculation.ngram import NgramProposer
from engine.text.channels import ChannelStyle, channel_style
from engine.text.template import ChatTemplate
from engine.text.thinking import thinking_modes
from engine.text.tokenizer import Tokenizer

_ROWS = 2048
"""Rows of a step that room is kept for; a step of more may run out of memory, which ends requests, not the engine."""
_LOGIT_ROWS = 64


class CheckpointLoader:
    """Loads models from folders and GGUF files. ``device`` is what "auto" in a load means: "auto", "cpu" or "cuda"."""

    def __init__(self, device: str = "auto") -> None:
        self._device = cast(Literal["auto", "cpu", "cuda"], device)

    def open(self, command: LoadModel, options: EngineOptions, resident: LoadedModel | None) -> OpenedCheckpoint:
        """See :meth:`Loader.open`."""
        with _as_load_failed():
            asked = command.options
            _check(asked)
            device = choose_device(asked.device if asked.device != "auto" else self._device)
            dtype, notice = choose_dtype(device, asked.dtype)
            target = _Part.open(command.path, asked.context)
            draft, refused = _open_draft(command.draft, target.tokenizer, asked.context)
            target, ignored = target.quantised(asked.quantise)
            draft = draft.quantised(asked.quantise)[0] if draft is not None else None
            opened = OpenedCheckpoint(command, device, dtype, cast(Packing, options.packing), target, draft, refused)
            opened.notices += [text for text in (notice, ignored) if text]
            opened.credit = _held(resident, device)
            opened.size_up()
            return opened


class _Part(NamedTuple):
    """The target or the draft, opened."""

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    template: ChatTemplate
    channels: ChannelStyle | None

    @classmethod
    def open(cls, path: str, context: int | None) -> _Part:
        checkpoint = Checkpoint.open(path).for_context(context)
        tokenizer, template = checkpoint.tokenizer(), checkpoint.chat_template()
        return cls(checkpoint, tokenizer, template, channel_style(tokenizer, template.source))

    @property
    def eos_ids(self) -> list[int]:
        named = self.checkpoint.generation_config.eos_ids
        return self.channels.eos(named) if self.channels is not None else named

    def quantised(self, method: Quantise) -> tuple[_Part, str]:
        """The part with its linear layers to be packed while they are loaded; a sentence where it is packed already."""
        checkpoint = self.checkpoint
        if method == "none":
            return self, ""
        if checkpoint.packed:
            text = (
                f"{checkpoint.path.name} is packed in its file ({checkpoint.quantisation_title}) and stays so: "
                "only models of 16 or 32 bits are quantised while they are loaded."
            )
            return self, text
        return self._replace(checkpoint=checkpoint.quantised(method)), ""

    def kv_bytes(self, dtype: torch.dtype) -> int:
        return estimate.kv_bytes_per_token(self.checkpoint.config, dtype)


class OpenedCheckpoint:
    """See :class:`OpenedModel`. A draft that cannot serve or does not fit is left out, with its reason."""

    def __init__(
        self,
        command: LoadModel,
        device: torch.device,
        dtype: torch.dtype,
        packing: Packing,
        target: _Part,
        draft: _Part | None,
        draft_refused: str,
    ) -> None:
        self.command, self.device, self.dtype = command, device, dtype
        self.packing = packing
        self.draft_packing: Packing = "4bit_torch" if self.packing == "4bit_torch" else "4bit"
        self.target, self.draft, self.draft_refused = target, draft, draft_refused
        self.notices: list[str] = []
        self.times = LoadTimes()
        self.credit = 0
        self.limit = min(target.checkpoint.config.max_position, command.options.context or 1 << 62)
        self._plan: estimate.Plan | None = None

    @property
    def fit(self) -> Fit:
        assert self._plan is not None, "size_up comes first"
        return self._plan.fit

    def size_up(self) -> None:
        """Plan the memory; a draft model that does not fit is given up rather than the model."""
        try:
            self._plan = self._planned(free_bytes(self.device))
        except estimate.OutOfMemory:
            if self.draft is None:
                raise
            name = self.draft.checkpoint.path.name
            self.draft, self.draft_refused = None, f"{name} does not fit into memory beside the model."
            self._plan = self._planned(free_bytes(self.device))

    def fits_beside(self) -> bool:
        """See :meth:`OpenedModel.fits_beside`."""
        return self.fit.weights + self.fit.draft_weights + self.fit.activations < 0.9 * free_bytes(self.device)

    def read(self, progress: Progress, cancelled: Callable[[], bool]) -> tuple[CausalLM, CausalLM | None]:
        """See :meth:`OpenedModel.read`."""
        share = self.target.checkpoint.weight_bytes / max(1, self._bytes_on_disk()) * 0.97
        with _as_load_failed():
            model = load_model(
                self.target.checkpoint,
                self.device,
                self.dtype,
                self.packing,
                lambda stage, fraction: progress(stage, share * fraction),
                cancelled,
                Numerics(),
                kept := self._kept(self.target.checkpoint),
                self.times,
            )
            self.notices += [kept.notice] if kept is not None and kept.notice else []
            _prove(self._runner(model, pages=2), self.target.checkpoint)
            if self.draft is None:
                return model, None
            draft = load_model(
                self.draft.checkpoint,
                self.device,
                self.dtype,
                self.draft_packing,
                lambda stage, fraction: progress(f"{stage} of the draft model", share + (0.97 - share) * fraction),
                cancelled,
                Numerics(),
                self._kept(self.draft.checkpoint),
            )
            return model, draft if self._draft_computes(draft) else None

    def assemble(self, weights: tuple[CausalLM, CausalLM | None], progress: Progress) -> LoadedModel:
        """See :meth:`OpenedModel.assemble`."""
        model, draft = weights
        progress("making room for keys and values", 0.97)
        with _as_load_failed():
            # The weights are in memory by now: what is free is what is left beside them.
            self.credit = model.storage_size() + (draft.storage_size() if draft is not None else 0)
            self._plan = self._planned(free_bytes(self.device))
            runner = self._runner(model, self._plan.pages)
            proposers: list[Proposer] = [NgramProposer()]
            if draft is not None:
                proposers.append(
                    DraftModelProposer(
                        self._runner(draft, self._plan.pages),
                        model.config.vocab_size,
                        self.target.eos_ids,
                        draft.bytes_read_per_step(),
                        estimate.kv_bytes_per_token(draft.config, draft.dtype),
                    )
                )
            progress("first pass", 0.99)
            runner.forward([SequenceRows([0], 0, [1], want_logits=1)])
        return self._loaded(model, draft, runner, tuple(proposers))

    def _kept(self, checkpoint: Checkpoint) -> Kept | None:
        """What an earlier load may have kept; None where nothing is quantised or nothing is to be kept."""
        if checkpoint.quantise is None or not config.keeps_quantised():
            return None
        return checkpoint.kept(config.quantised_folder(), self.device)

    def _draft_computes(self, draft: CausalLM) -> bool:
        assert self.draft is not None
        try:
            _prove(self._runner(draft, pages=2), self.draft.checkpoint)
        except CheckpointError as error:
            self.draft, self.draft_refused = None, f"The draft model cannot be used. {error}"
            return False
        return True

    def _runner(self, model: CausalLM, pages: int) -> Runner:
        store = new_store(model.config, pages, model.dtype, self.device)
        return Runner(cast(RunnableModel, model), store, Attention(model.numerics), self.device)

    def _loaded(
        self, model: CausalLM, draft: CausalLM | None, runner: Runner, proposers: tuple[Proposer, ...]
    ) -> LoadedModel:
        assert self._plan is not None
        checkpoint = self.target.checkpoint
        template, channels = self.target.template, self.target.channels
        notices = [*self.notices, *checkpoint.notices, *_fallbacks(model, checkpoint.path.name)]
        notices += [template.notice] if template.notice else []
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
            draft=self.draft.checkpoint.path.name if self.draft is not None else "",
            draft_refused=self.draft_refused,
            notices=notices,
            load_seconds=self.times.seconds,
            thinking=thinking_modes(template, channels),
        )
        return LoadedModel(
            card=card,
            fit=self._plan.fit,
            runner=runner,
            device=self.device,
            pages=self._plan.pages,
            limit=self.limit,
            weight_bytes=model.bytes_read_per_step(),
            kv_bytes_per_token=estimate.kv_bytes_per_token(model.config, model.dtype),
            proposers=proposers,
            sampling=checkpoint.generation_config.sampling,
            checkpoint=checkpoint,
            model=model,
            draft_model=draft,
            tokenizer=self.target.tokenizer,
            chat_template=template,
            channels=channels,
            numerics=(model.numerics,),
            packed=checkpoint.packed,
            path=self.command.path,
            draft_path=self.command.draft,
            options=self.command.options,
        )

    def _planned(self, free: int) -> estimate.Plan:
        draft = self.draft
        shape = self.target.checkpoint.config
        return estimate.plan(
            weights=self.target.checkpoint.resident_bytes(self.dtype, self.packing),
            draft_weights=draft.checkpoint.resident_bytes(self.dtype, self.draft_packing) if draft is not None else 0,
            kv_bytes=self.target.kv_bytes(self.dtype) + (draft.kv_bytes(self.dtype) if draft is not None else 0),
            activations=estimate.activation_bytes(shape, self.dtype, min(_ROWS, self.limit), _LOGIT_ROWS),
            context=self.limit,
            free=free,
            memory=self.command.options.memory,
            credit=self.credit,
        )

    def _bytes_on_disk(self) -> int:
        draft = self.draft.checkpoint.weight_bytes if self.draft is not None else 0
        return self.target.checkpoint.weight_bytes + draft


def _open_draft(path: str, tokenizer: Tokenizer, context: int | None) -> tuple[_Part | None, str]:
    """The draft, or why it is not used: guesses are tokens, so both models must mean the same by each of them."""
    if not path:
        return None, ""
    try:
        draft = _Part.open(path, context)
    except CheckpointError as error:
        return None, f"The draft model cannot be used. {error}"
    difference = tokenizer.difference(draft.tokenizer)
    if difference:
        return None, f"{load_name(path)} cannot guess for this model: {difference}. Choose a draft of the same family."
    return draft, ""


def _prove(runner: Runner, checkpoint: Checkpoint) -> None:
    """Compute one token while a failure still costs nothing: no header tells whether the weights are sound."""
    logits = runner.forward([SequenceRows([0], 0, [1], want_logits=1)]).logits
    if not bool(torch.isfinite(logits).all()):
        raise CheckpointError(
            f"{checkpoint.path.name} computes values that are no numbers: its weights are damaged, or too large for "
            "the dtype. Download the model again, or choose float32."
        )


def _check(options: LoadOptions) -> None:
    """Refuse what no model could be loaded with."""
    if options.memory is not None and not math.isfinite(options.memory):
        raise LoadFailed(
            "bad_options", f"A memory budget of {options.memory} makes no sense. Give a share up to 1, or bytes."
        )
    if options.context is not None and options.context < PAGE_SIZE:
        text = f"A context of {options.context} tokens is too short. Give {PAGE_SIZE} or more, or the model's own."
        raise LoadFailed("bad_options", text)


def _held(resident: LoadedModel | None, device: torch.device) -> int:
    """Bytes that come free when the present model goes: a CPU's arenas only count what was ever written to them."""
    if resident is None or resident.device.type != device.type:
        return 0
    fit = resident.fit
    return fit.weights + fit.draft_weights + (fit.kv if device.type == "cuda" else 0)


def _fallbacks(model: CausalLM, name: str) -> Iterator[str]:
    """A sentence for each fast path that declined, with how many layers it would have served."""
    counts: dict[tuple[str, str, str], int] = {}
    for _, linear in model.linears():
        for declined in linear.declined:
            key = (declined.path, declined.reason, linear.path)
            counts[key] = counts.get(key, 0) + 1
    for (path, reason, used), count in counts.items():
        yield f"{count} layers of {name} use {used}: {path} declined ({reason})."


@contextmanager
def _as_load_failed() -> Iterator[None]:
    """Give expected failures their code."""
    try:
        yield
    except NoSuchDevice as error:
        raise LoadFailed("no_device", str(error)) from error
    except CheckpointError as error:
        raise LoadFailed("bad_model", str(error)) from error
    except estimate.OutOfMemory as error:
        raise LoadFailed("out_of_memory", str(error)) from error
