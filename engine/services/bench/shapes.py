"""The shapes that are measured: decoders of the Llama kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Shape:
    """A Llama decoder's dimensions. ``group`` is the GPTQ group, in input features.

    ``tied``: the token table is the output head too.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int = 4096
    group: int = 32
    tied: bool = False

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def kv_bytes(self) -> int:
        """Bytes of a token's keys and values in 16 bits."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim

    def linears(self) -> Iterator[tuple[str, int, int]]:
        """(name in Hugging Face layout, K, N) of every quantised matrix."""
        kv = self.kv_heads * self.head_dim
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}."
            yield prefix + "self_attn.q_proj", self.hidden, self.hidden
            yield prefix + "self_attn.k_proj", self.hidden, kv
            yield prefix + "self_attn.v_proj", self.hidden, kv
            yield prefix + "self_attn.o_proj", self.hidden, self.hidden
            yield prefix + "mlp.gate_proj", self.hidden, self.ffn
            yield prefix + "mlp.up_proj", self.hidden, self.ffn
            yield prefix + "mlp.down_proj", self.ffn, self.hidden
        if not self.tied:
            yield "lm_head", self.hidden, self.vocabulary

    def norms(self) -> Iterator[str]:
        for layer in range(self.layers):
            yield f"model.layers.{layer}.input_layernorm"
            yield f"model.layers.{layer}.post_attention_layernorm"
        yield "model.norm"

    def prompt(self, tokens: int, first: int = 0) -> list[int]:
        """A made-up prompt of that many tokens; another one for another ``first``."""
        return [5 + (first + index * 7919) % (self.vocabulary - 5) for index in range(tokens)]

    def config(self) -> dict[str, object]:
        """config.json without its quantisation."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": self.tied,
            "torch_dtype": "bfloat16",
            "eos_token_id": 1,
            "bos_token_id": 0,
        }


ONE_B = Shape("llama-1b", layers=16, hidden=2048, ffn=8192, heads=32, kv_heads=8, vocabulary=128256)
EIGHT_B = Shape(
    "llama-8b", layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, vocabulary=128256, context=8192, group=128
)
SHAPES = {"1b": ONE_B, "8b": EIGHT_B}
"""What ``kvasir bench --shapes`` knows."""
PEER_SHAPES = {
    "1b": replace(ONE_B, name="llama-3.2-1b", tied=True),
    "3b": Shape("llama-3.2-3b", layers=28, hidden=3072, ffn=8192, heads=24, kv_heads=8, vocabulary=128256, tied=True),
}
"""What it knows with ``--peers``: the models that people run on processors, whose token tables are tied."""
