"""A model's folder out of the tensors of its layers and of what stays as the source has it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from engine.base.files import UnreadableFileError, decode_file, read_json
from engine.formats.load import LAYER, Checkpoint
from engine.formats.safetensors import TensorFiles, read_header
from engine.library import paths
from engine.protocol.making import LayerError
from engine.services.quantise.calibrated import MadeLayer
from engine.services.quantise.plain import copy_beside
from engine.services.quantise.plan import WHOLE_ROW, MakePlan, UnfinishedWork, write_whole
from engine.services.training.errors import RecipeError
from engine.services.training.training import write_tensors

_SHARD = 1 << 30
"""Bytes of a file of tensors that belong to no layer, unless one of them is larger."""


class Assembly:
    """Writes the layers of one model that is being made, and its folder out of them."""

    def __init__(self, plan: MakePlan, checkpoint: Checkpoint, work: UnfinishedWork, group: int) -> None:
        self.plan, self.source, self.work, self.group = plan, checkpoint.path, work, group
        self.total = checkpoint.config.num_layers
        self._files = TensorFiles.open(checkpoint.path)  # by the names in the files, the vision tower's among them
        self._named = {entry.name: name for name, entry in checkpoint.files.entries.items()}
        self._entries = checkpoint.files.entries

    def write_layer(self, index: int, made: MadeLayer) -> None:
        """The shard of a layer. Raises :class:`RecipeError` where the disk is full."""
        tensors = {self._in_file(name): tensor for name, tensor in made.tensors.items()}
        skipped = {self._in_file(f"{module}.weight") for module in made.packed} | tensors.keys()
        for name in self._files.entries:
            if self._layer_of(name) == index and name not in skipped:
                tensors[name] = self._files.view(name)
        write_whole(self.work.errors(index), msgspec.json.encode(made.errors))
        write_tensors(self.work.shard(index), tensors)
        self._files.close()

    def _errors(self, index: int) -> list[LayerError]:
        file = self.work.errors(index)
        try:
            held, reason = decode_file(file, list[LayerError]), f"{file} is not there."
        except UnreadableFileError as error:
            held, reason = None, error.reason
        if held is None:
            raise RecipeError(f"{reason} Delete {self.work.folder} and start again: its layers cannot be trusted.")
        return held

    def assemble(self) -> list[LayerError]:
        """Make the folder; returns the errors of all layers."""
        files = [self.work.shard(index) for index in range(self.total)]
        errors = [error for index in range(self.total) for error in self._errors(index)]
        for names in self._of_no_layer():
            files.append(self.work.folder / f"rest-{len(files):05}.safetensors")
            write_tensors(files[-1], {name: self._files.view(name) for name in names})
        self._files.close()
        table, size = dict[str, str](), 0
        for number, file in enumerate(files, 1):
            name = f"model-{number:05}-of-{len(files):05}.safetensors"
            _link(file, self.work.made / name)
            for entry in read_header(file):
                table[entry.name] = name
                size += entry.size
        index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(table.items()))}
        _write_json(self.work.made / "model.safetensors.index.json", index)
        copy_beside(self.source, self.work.made)
        values = read_json(self.source / "config.json") or {}
        packing = self._quantization_config({error.name for error in errors})
        _write_json(self.work.made / "config.json", values | {"quantization_config": packing})
        return errors

    def _in_file(self, name: str) -> str:
        """A tensor's name as the source's files have it or, of a module that is packed now, would have it."""
        module, _, part = name.rpartition(".")
        if name in self._entries:
            return self._entries[name].name
        return self._entries[f"{module}.weight"].name.removesuffix("weight") + part

    def _layer_of(self, name: str) -> int | None:
        match = LAYER.match(self._named.get(name, ""))
        return int(match[1]) if match else None

    def _of_no_layer(self) -> Iterator[list[str]]:
        """Names of the tensors that are in no layer's shard, file by file."""
        names, size = list[str](), 0
        for name, entry in self._files.entries.items():
            if self._layer_of(name) in range(self.total):
                continue
            if names and size + entry.size > _SHARD:
                yield names
                names, size = [], 0
            names.append(name)
            size += entry.size
        if names:
            yield names

    def _quantization_config(self, packed: set[str]) -> dict[str, Any]:
        plan = self.plan
        left = sorted(
            entry.name.removesuffix(".weight")
            for name, entry in self._entries.items()
            if LAYER.match(name) and name.endswith(".weight") and len(entry.shape) == 2
            and name.removesuffix(".weight") not in packed
        )  # fmt: skip
        meta = {"quantizer": [f"kvasir:{paths.version()}"]}
        if plan.to == "awq":
            return {
                "quant_method": "awq", "bits": plan.bits, "group_size": self.group, "zero_point": True,
                "version": "gemm", "modules_to_not_convert": left or None, "meta": meta,
            }  # fmt: skip
        config: dict[str, Any] = {
            "quant_method": "gptq", "bits": plan.bits, "group_size": self.group, "sym": plan.symmetric,
            "desc_act": plan.act_order and not plan.static_groups and self.group != WHOLE_ROW,
            "static_groups": plan.static_groups, "checkpoint_format": "gptq" if plan.symmetric else "gptq_v2",
            "pack_dtype": "int32", "lm_head": False, "true_sequential": True, "damp_percent": 0.01, "meta": meta,
        }  # fmt: skip
        if left:  # GPTQModel's way to say that a module is not packed
            config["dynamic"] = {"-:^" + name.replace(".", r"\.") + "$": {} for name in left}
        return config


def _link(file: Path, to: Path) -> None:
    """Another name for a file, or a copy where the disk knows no such thing: a run that is killed needs the first."""
    try:
        os.link(file, to)
    except OSError:
        shutil.copyfile(file, to)


def _write_json(file: Path, value: Any) -> None:
    write_whole(file, (json.dumps(value, indent=2) + "\n").encode())
