"""SmolLM2-135M in Q4_1: a question, its answer, and the model as transformers reads the file."""

from __future__ import annotations

from pathlib import Path

from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from engine.protocol import ChatMessage

QUESTION = [ChatMessage.of("user", "What is the capital of France?")]
ANSWER = "The capital of France is Paris."


def unpacked(file: Path) -> LlamaForCausalLM:
    """The model of transformers in float32, with the weights that transformers reads out of the file."""
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    stored = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=model)["tensors"]
    missing, unknown = model.load_state_dict(stored, strict=False)
    assert missing == ["lm_head.weight"], "it is the token table"
    assert not unknown
    return model.eval()
