"""GGUF files of true shape with random codes, one for each block type and one for the mixture Q4_K_M."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from engine.services.experiments.workloads.shapes import Shape

_SCALES: dict[str, tuple[tuple[int, ...], float]] = {
    "Q2_K": ((80, 82), 13.0),
    "Q4_0": ((0,), 4.6),
    "Q4_K": ((0, 2), 300.0),
    "Q5_K": ((0, 2), 600.0),
    "Q6_K": ((208,), 1366.0),
    "Q8_0": ((0,), 74.0),
    "IQ4_XS": ((0,), 1366.0),
    "IQ3_S": ((0,), 141.0),
    "IQ2_XXS": ((0,), 53.3),
    "TQ2_0": ((64,), 1.12),
}
"""Where the floating numbers of a block lie (byte offsets), and how much the codes spread before them."""
MIXTURE = "Q4_K_M"
TYPES = (*_SCALES, MIXTURE)


def gguf_file(shape: Shape, root: Path, kind: str = "Q4_0") -> Path:
    """``shape`` with its matrices in blocks of ``kind``, made once under ``root``. Raises ImportError without ``gguf``.

    The token table is packed too, as it is in the files that people have; :func:`_block_type` says what differs.
    """
    import gguf

    path = root / f"{shape.name}-{kind.lower()}.gguf"
    if path.exists():
        return path
    root.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    writer = gguf.GGUFWriter(unfinished, "llama")
    _write_metadata(writer, shape)
    rng = np.random.default_rng(0)
    own_name = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, shape.layers).get_name
    for name, k, n in (_table(shape), *shape.linears()):
        blocks = _block_type(name, kind, shape)
        packed = gguf.GGMLQuantizationType[blocks]
        writer.add_tensor(f"{own_name(name)}.weight", _rows(blocks, k, n, rng), raw_dtype=packed)
    for name in shape.norms():
        writer.add_tensor(f"{own_name(name)}.weight", np.ones(shape.hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.rename(path)
    return path


def gguf_header(shape: Shape, path: Path, kind: str) -> int:
    """Write what such a file begins with, up to its weights. Returns the bytes of the whole file."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    _write_metadata(writer, shape)
    own_name = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, shape.layers).get_name
    for name, k, n in (_table(shape), *shape.linears()):
        packed = gguf.GGMLQuantizationType[_block_type(name, kind, shape)]
        size = n * _row_bytes(packed.name, k)
        writer.add_tensor_info(f"{own_name(name)}.weight", (n, k), np.dtype(np.float32), size, packed)
    for name in shape.norms():
        writer.add_tensor_info(f"{own_name(name)}.weight", (shape.hidden,), np.dtype(np.float32), 4 * shape.hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    parts = path.stat().st_size, *(each.nbytes for each in writer.tensors[0].values())
    return sum(writer.ggml_pad(part, writer.data_alignment) for part in parts)


def step_bytes(shape: Shape, kind: str) -> int:
    """Bytes of the matrices that a step reads whole, in the file of that kind: all but a token table that is not tied.

    Raises ImportError without ``gguf``.
    """
    matrices = (*((_table(shape),) if shape.tied else ()), *shape.linears())
    return sum(n * _row_bytes(_block_type(name, kind, shape), k) for name, k, n in matrices)


def _table(shape: Shape) -> tuple[str, int, int]:
    return "model.embed_tokens", shape.hidden, shape.vocabulary


def _row_bytes(kind: str, k: int) -> int:
    import gguf

    weights, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    return k // weights * size


def _block_type(name: str, kind: str, shape: Shape) -> str:
    """The blocks of a matrix, as llama.cpp's quantisation chooses them.

    A tied token table, being the output head, has 6 bits at least. Q4_K_M is Q4_K with Q6_K for the head and, in the
    first and the last eighth of the layers and every third one between them, for the values and the down projection.
    """
    head = name == ("model.embed_tokens" if shape.tied else "lm_head")
    if head and (shape.tied or kind == MIXTURE):
        return kind if kind == "Q8_0" else "Q6_K"
    if kind != MIXTURE:
        return kind
    layer, eighth = int(name.split(".")[2]) if ".layers." in name else -1, shape.layers // 8
    finer = layer < eighth or layer >= 7 * shape.layers // 8 or (layer - eighth) % 3 == 2
    return "Q6_K" if finer and name.endswith(("v_proj", "down_proj")) else "Q4_K"


def _rows(kind: str, k: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Random blocks ``[n, bytes of a row]``: random codes and inner scales, all outer scales the same."""
    import gguf

    weights, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    halves, spread = _SCALES[kind]
    blocks = rng.integers(0, 256, (n, k // weights, size), dtype=np.uint8)
    value = np.array([k**-0.5 / spread], dtype="<f2").view(np.uint8)
    for offset in halves:
        blocks[:, :, offset : offset + 2] = value
    return blocks.reshape(n, -1)


def _write_metadata(writer: Any, shape: Shape) -> None:
    import gguf

    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"w{index}" for index in range(shape.vocabulary)])
    writer.add_token_scores([0.0] * shape.vocabulary)
    writer.add_token_types([gguf.TokenType.NORMAL] * shape.vocabulary)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
