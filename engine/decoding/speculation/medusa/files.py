"""Checks of files with Medusa heads: names, shapes, and what config.json says about them.

The hub's layout (FasterDecoding's and text-generation-inference's repositories): head i's residual block j is
``i.j.linear.weight`` with ``i.j.linear.bias``, and its output layer, if it has its own, comes after its last block:
``i.{blocks}.weight``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from engine.base.errors import CheckpointError
from engine.compute.models.base import CausalLM
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig, is_number
from engine.decoding.speculation.heads.kind import (
    OTHER_HEADS,
    AttachedHead,
    HeadFiles,
    HeadKind,
    HeadTarget,
    check_vocabulary,
    check_width,
)
from engine.decoding.speculation.medusa.heads import MedusaHeads, MedusaLayout
from engine.decoding.speculation.medusa.proposer import MedusaProposer
from engine.formats.safetensors import TensorFiles, TensorInfo

NAME = re.compile(r"(\d{1,3})\.(\d{1,3})\.(?:linear\.(?:weight|bias)|weight)")


class MedusaFiles(HeadKind):
    """All heads side by side in one file."""

    name, title, short, stem = "medusa", "Medusa heads", "Medusa heads", "medusa_lm_head"

    def in_config(self, config: RawConfig) -> bool:
        return "medusa_num_heads" in config.values

    def in_names(self, names: Collection[str]) -> bool:
        return bool(names) and all(NAME.fullmatch(name) for name in names)

    def layout(
        self, files: TensorFiles, config: RawConfig, target: ModelConfig, where: str
    ) -> tuple[MedusaLayout, tuple[str, ...]]:
        layout = read_medusa(files.entries, config, target, where)
        return layout, layout.notices

    def read(self, files: HeadFiles, target: CausalLM) -> MedusaHeads:
        return MedusaHeads(files.layout, files.files.view, target)

    def sizes(self, files: HeadFiles, planned: Callable[[], CausalLM]) -> tuple[int, float]:
        return files.resident_bytes(planned().dtype), 0.0

    def cost(self, files: HeadFiles, target: CausalLM) -> int:
        each = files.resident_bytes(target.dtype) // files.layout.heads
        return each + (target.head.storage_size() if files.layout.shares_head else 0)

    def attach(self, head: MedusaHeads, target: HeadTarget) -> AttachedHead:
        head.forward(target.no_state())
        return AttachedHead(MedusaProposer(head, target.model.num_layers, head.accuracies, target.eos_ids))

    def described(self, head: MedusaHeads, files: HeadFiles) -> tuple[str, str]:
        return "Medusa", f"{head.num_heads} heads, {files.path}"


HEADS = MedusaFiles()


def read_medusa(entries: Mapping[str, TensorInfo], config: RawConfig, target: ModelConfig, where: str) -> MedusaLayout:
    """The heads in these tensors, checked against each other, config.json and the ``target``.

    ``where`` names the files for people. Raises :class:`CheckpointError`.
    """
    heads, blocks, own = _count(entries, where)
    said = config.integer("medusa_num_heads", heads, most=1000)
    if said > heads:
        raise CheckpointError(f"{where} holds {heads} Medusa heads and its config.json promises {said}. {_AGAIN}")
    if config.integer("medusa_num_layers", blocks, least=0, most=1000) != blocks:
        raise CheckpointError(
            f"The Medusa heads of {where} have {blocks} residual blocks each, which is not what its config.json says. "
            f"{_AGAIN}"
        )
    if config.flag("shares_head", not own) == own:
        raise CheckpointError(
            f"config.json and the tensors of {where} disagree on whether heads have output layers of their own. "
            f"{_AGAIN}"
        )
    _check_sizes(entries, config, target, where, own, blocks)
    # FasterDecoding's first repositories say 2 where there are 5.
    notices = (f"{where} holds {heads} heads where its config.json says {said}; all are used.",) if said < heads else ()
    return MedusaLayout(heads, blocks, not own, _accuracies(config, heads), notices)


_AGAIN = "Download the heads again."


def _count(entries: Mapping[str, TensorInfo], where: str) -> tuple[int, int, bool]:
    """Heads, residual blocks of each, and whether they have their own output layers."""
    strange = next((name for name in entries if not NAME.fullmatch(name)), None)
    if strange is not None or not entries:
        what = f"a tensor {strange[:60]!r}" if strange is not None else "no tensors"
        raise CheckpointError(f"{where} is said to hold Medusa heads and has {what}. {OTHER_HEADS}")
    places = {(int(match[1]), int(match[2])) for name in entries for match in (NAME.fullmatch(name),) if match}
    heads = 1 + max(head for head, _ in places)
    blocks = sum(1 for name in entries if name.startswith("0.") and name.endswith(".linear.weight"))
    expected = {f"{i}.{j}.linear.{part}" for i in range(heads) for j in range(blocks) for part in ("weight", "bias")}
    outputs = {f"{i}.{blocks}.weight" for i in range(heads)}
    own = not outputs.isdisjoint(entries)
    expected |= outputs if own else set()
    missing, surplus = sorted(expected - entries.keys()), sorted(entries.keys() - expected)
    if missing or surplus:
        what = f"lacks {missing[0]}" if missing else f"has {surplus[0]}, which belongs to none of its heads"
        raise CheckpointError(f"{where} {what}. {_AGAIN}")
    return heads, blocks, own


def _check_sizes(
    entries: Mapping[str, TensorInfo], config: RawConfig, target: ModelConfig, where: str, own: bool, blocks: int
) -> None:
    hidden, vocabulary = target.hidden_size, target.vocab_size
    any_weight = entries["0.0.linear.weight" if blocks else "0.0.weight"]
    width = config.integer("hidden_size", any_weight.shape[-1] if any_weight.shape else None)
    check_width(where, width, target)
    rows = entries[f"0.{blocks}.weight"].shape[:1] if own else ()
    check_vocabulary(where, config.integer("vocab_size", rows[0] if rows else vocabulary), target)
    for name, entry in entries.items():
        shape: tuple[int, ...] = (hidden, hidden)
        if name.endswith("bias"):
            shape = (hidden,)
        elif ".linear." not in name:
            shape = (vocabulary, hidden)
        if entry.shape != shape or not entry.dtype.is_floating_point:
            raise CheckpointError(
                f"{where} stores {name} as {entry.dtype} {list(entry.shape)}, where numbers with a fraction of shape "
                f"{list(shape)} are needed. {OTHER_HEADS}"
            )


def _accuracies(config: RawConfig, heads: int) -> tuple[tuple[float, ...], ...] | None:
    rows = config.values.get("accuracies")
    if rows is None:
        return None
    sound = isinstance(rows, list) and len(rows) == heads and all(isinstance(row, list) and row for row in rows)
    if not sound or not all(is_number(share) and 0 <= share <= 1 for row in rows for share in row):
        raise config.wrong(f'"accuracies" is not a list of shares from 0 to 1 for each of the {heads} heads')
    return tuple(tuple(float(share) for share in row) for row in rows)
