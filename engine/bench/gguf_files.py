"""GGUF files of true shape with random codes, one for each block type."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.bench.shapes import Shape


class _Scales(NamedTuple):
    """Where the floating numbers of a block lie (byte offsets), and how much the codes spread before them."""

    halves: tuple[int, ...]
    spread: float


_SCALES = {
    "Q4_0": _Scales((0,), 4.6),
    "Q4_1": _Scales((0, 2), 8.0),
    "Q5_0": _Scales((0,), 9.2),
    "Q5_1": _Scales((0, 2), 16.0),
    "Q8_0": _Scales((0,), 74.0),
    "Q2_K": _Scales((80, 82), 14.0),
    "Q3_K": _Scales((108,), 43.0),
    "Q4_K": _Scales((0, 2), 300.0),
    "Q5_K": _Scales((0, 2), 600.0),
    "Q6_K": _Scales((208,), 1366.0),
    "IQ4_NL": _Scales((0,), 74.0),
    "IQ4_XS": _Scales((0,), 1366.0),
}
TYPES = tuple(_SCALES)
_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.norm": "output_norm",
    "lm_head": "output",
    "token_embd": "token_embd",
}


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
    for name, k, n in (("token_embd", shape.hidden, shape.vocabulary), *shape.linears()):
        writer.add_tensor(_name(name), _rows(kind, k, n, rng), raw_dtype=gguf.GGMLQuantizationType[kind])
    for name in shape.norms():
        writer.add_tensor(_name(name), np.ones(shape.hidden, np.float32))
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
    scales = _SCALES[kind]
    blocks = rng.integers(0, 256, (n, k // weights, size), dtype=np.uint8)
    value = np.array([k**-0.5 / scales.spread], dtype="<f2").view(np.uint8)
    for offset in scales.halves:
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


def _name(name: str) -> str:
    """The GGUF name of a Hugging Face tensor name (both without ``.weight``)."""
    if name.startswith("model.layers."):
        _, _, layer, rest = name.split(".", 3)
        return f"blk.{layer}.{_NAMES[rest]}.weight"
    return f"{_NAMES[name]}.weight"
