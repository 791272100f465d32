"""Encoders in GGUF, written with the gguf package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import torch
from transformers import PreTrainedModel

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "key",
    "##s",
    "hold",
    "##ing",
    "value",
    ",",
    "grosse",
    "好",
]


def write_bert(file: Path, model: PreTrainedModel, others: Mapping[str, torch.Tensor] = {}) -> None:
    """As llama.cpp's converter writes a BERT, with ``others`` by their names in the file."""
    config = model.config
    writer = gguf.GGUFWriter(str(file), "bert")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.CLS)
    writer.add_token_type_count(2)
    writer.add_tokenizer_model("bert")
    writer.add_token_list([word if word[0] == "[" else word[2:] if word[:2] == "##" else f"▁{word}" for word in WORDS])
    writer.add_token_types([3] * 5 + [1] * (len(WORDS) - 5))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if not name.startswith("pooler."):
            writer.add_tensor(names.get_name(name, (".weight", ".bias")), tensor.numpy())
    for name, tensor in others.items():
        writer.add_tensor(name, tensor.numpy())
    write_out(writer)


def write_out(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
