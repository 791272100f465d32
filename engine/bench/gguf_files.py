"""GGUF files of true shape with random codes, one for each block type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from engine.bench.shapes import Shape

_SCALES: dict[str, tuple[tuple[int, ...], float]] = {
    "Q4_0": ((0,), 4.6),
    "Q4_K": ((0, 2), 300.0),
    "Q5_K": ((0, 2), 600.0),
    "Q6_K": ((208,), 1366.0),
    "Q8_0": ((0,), 74.0),
    "IQ4_XS": ((0,), 1366.0),
}
"""Where the floating numbers of a block lie (byte offsets), and how much the codes spread before them."""
TYPES = tuple(_SCALES)


def gguf_file(shape: Shape, root: Path, kind: str = "Q4_0") -> Path:
    """``shape`` with every matrix in blocks of ``kind``, made once under ``root``. Raises ImportError without ``gguf``.

    The token table is packed too, as it is in the files that people have.
    """
    import gguf  # only the comparison needs it

    path = root / f"{shape.name}-{kind.lower()}.gguf"
    if path.exists():
        return path
    root.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    writer = gguf.GGUFWriter(unfinished, "llama")
    _write_metadata(writer, shape)
    rng = np.random.default_rng(0)
    own_name = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, shape.layers).get_name
    packed = gguf.GGMLQuantizationType[kind]
    for name, k, n in (("model.embed_tokens", shape.hidden, shape.vocabulary), *shape.linears()):
        writer.add_tensor(f"{own_name(name)}.weight", _rows(kind, k, n, rng), raw_dtype=packed)
    for name in shape.norms():
        writer.add_tensor(f"{own_name(name)}.weight", np.ones(shape.hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.rename(path)
    return path


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
