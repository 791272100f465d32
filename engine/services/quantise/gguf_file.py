"""A checkpoint in 16 or 32 bits written as one GGUF file, its matrices in blocks of one of ggml's older types.

The codes and the head of the file are the ``gguf`` package's; names, rows of q and k, and norms are as this program
reads them (engine/formats/gguf), which is as llama.cpp's converter writes them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch
from torch import Tensor

from engine.config.model import ModelConfig
from engine.formats.gguf.architectures import ARCHITECTURES, Architecture
from engine.formats.gguf.names import ROPE_FACTORS, Names
from engine.formats.gguf.source import neighbours
from engine.formats.load import Checkpoint
from engine.formats.quantised.quantise import CHUNK, check_finite
from engine.formats.source import HEAD
from engine.services.quantise import gguf_keys, gguf_text
from engine.services.quantise.pieces import FilePiece, as_bytes, cannot_write, write_file
from engine.services.training.errors import RecipeError

KINDS = {f"gguf-{name.lower()}": gguf.GGMLQuantizationType[name] for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")}
"""What the matrices become."""
_HEAD_KIND = gguf.GGMLQuantizationType.Q8_0
"""Of the output head, or the token table that serves as one: all logits suffer from its errors."""
_IGNORED = re.compile(r".*\.rotary_emb\.inv_freq")
"""What some files hold besides, which the configuration says already."""


class _FileTensor(NamedTuple):
    """A tensor of the file: ``read`` gives the source's, as a view, ``finish`` changes some of its rows in float32."""

    name: str
    shape: tuple[int, ...]
    kind: Any
    read: Callable[[], Tensor]
    finish: Callable[[Tensor], Tensor] = lambda rows: rows

    @property
    def size(self) -> int:
        weights, size = gguf.GGML_QUANT_SIZES[self.kind]
        return math.prod(self.shape) // weights * size

    def parts(self) -> Iterator[np.ndarray]:
        data = self.read()
        for rows in data.split(max(1, CHUNK // math.prod(self.shape[1:]))):
            rows = self.finish(rows.float())
            check_finite(self.name, rows, self.kind.name)
            yield as_bytes(torch.from_numpy(gguf.quants.quantize(rows.numpy(), self.kind)))
        yield np.zeros(-self.size % gguf.GGUF_DEFAULT_ALIGNMENT, np.uint8)

    def piece(self) -> FilePiece:
        return FilePiece(self.size + -self.size % gguf.GGUF_DEFAULT_ALIGNMENT, self.parts)


def write_gguf(
    checkpoint: Checkpoint, to: str, out: Path, report: Callable[[int, int, str], None], stopped: Callable[[], bool]
) -> None:
    """``out / NAME-TYPE.gguf``; ``to`` is one of :data:`KINDS`. Raises :class:`RecipeError` before anything is written
    for a model that GGUF has no words for."""
    kind = KINDS[to]
    config = checkpoint.config
    architecture = gguf_keys.architecture_of(config)
    file = out / f"{checkpoint.path.name}-{kind.name}.gguf"
    tensors = _tensors(checkpoint, ARCHITECTURES[architecture], kind)
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    keys: dict[str, Any] = {"general.architecture": architecture, "general.name": checkpoint.path.name}
    keys |= gguf_keys.metadata(config, architecture)
    tokenizer = checkpoint.tokenizer()
    ends = checkpoint.end_ids(tokenizer)
    keys |= gguf_text.metadata(
        tokenizer, checkpoint.chat_template(), checkpoint.generation_config, ends, config.vocab_size
    )
    gguf_keys.check(config, keys, shapes, file)
    factors = gguf_keys.rope_factors(config)
    if factors is not None:
        stored = factors
        tensors.append(_FileTensor(ROPE_FACTORS, tuple(factors.shape), gguf.GGMLQuantizationType.F32, lambda: stored))
    file_type = gguf.LlamaFileType[f"MOSTLY_{kind.name}"]
    keys |= {"general.file_type": int(file_type), "general.quantization_version": gguf.GGML_QUANT_VERSION}
    head = _head(file, architecture, keys, tensors)
    matrices = [len(tensor.shape) > 1 for tensor in tensors]

    def wrote(index: int) -> None:
        if matrices[index]:
            report(sum(matrices[: index + 1]), sum(matrices), tensors[index].name)

    try:
        write_file(file, head, [tensor.piece() for tensor in tensors], wrote, stopped)
    finally:
        checkpoint.files.close()


def _tensors(checkpoint: Checkpoint, architecture: Architecture, kind: Any) -> list[_FileTensor]:
    """All tensors of the file, in the order of the source's."""
    config, files = checkpoint.config, checkpoint.files
    names = Names(architecture.names, config.num_layers)
    found = []
    for name, entry in sorted(files.entries.items(), key=lambda item: (item[1].file.name, item[1].start)):
        if _IGNORED.fullmatch(name) or (config.tie_word_embeddings and name == f"{HEAD}.weight"):
            continue
        try:
            own = names.tensor(name)
        except KeyError:
            raise RecipeError(
                f"GGUF has no name for this model's tensor {name}. Choose another format, such as nf4."
            ) from None
        read, finish = _read(checkpoint, name, architecture, config)
        if own.endswith("norm.weight") and architecture.norm_offset:
            finish = _raised(architecture.norm_offset)
        found.append(_FileTensor(own, entry.shape, _kind(own, entry.shape, config, kind), read, finish))
    return found


def _kind(name: str, shape: tuple[int, ...], config: ModelConfig, kind: Any) -> Any:
    if len(shape) == 1 or shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
        return gguf.GGMLQuantizationType.F32
    head = "token_embd.weight" if config.tie_word_embeddings else "output.weight"
    return _HEAD_KIND if name == head else kind


def _read(
    checkpoint: Checkpoint, name: str, architecture: Architecture, config: ModelConfig
) -> tuple[Callable[[], Tensor], Callable[[Tensor], Tensor]]:
    heads = {"q_proj": config.attention.num_heads, "k_proj": config.attention.num_kv_heads}.get(name.split(".")[-2], 0)
    heads = heads if architecture.interleaved else 0
    return lambda: neighbours(checkpoint.files.view(name), heads), lambda rows: rows


def _raised(offset: float) -> Callable[[Tensor], Tensor]:
    return lambda rows: rows + offset


def _head(file: Path, architecture: str, keys: dict[str, Any], tensors: list[_FileTensor]) -> bytes:
    """Metadata and the list of tensors, up to where the first one begins."""
    written = file.with_name(file.name + ".head")
    try:
        writer = gguf.GGUFWriter(written, architecture)
        for key, value in keys.items():
            if key != "general.architecture":
                _add(writer, key, value)
        for tensor in tensors:
            writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.size, tensor.kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        raw = written.read_bytes()
    except OSError as error:
        raise cannot_write(file, error) from error
    finally:
        written.unlink(missing_ok=True)
    return raw + bytes(-len(raw) % gguf.GGUF_DEFAULT_ALIGNMENT)


def _add(writer: Any, key: str, value: Any) -> None:
    adders = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32, bool: writer.add_bool}
    (writer.add_array if isinstance(value, list) else adders[type(value)])(key, value)
