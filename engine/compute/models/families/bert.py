"""BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019): encoders, which embed or rank and write no text."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from engine.cache.stores.states import StateRuns, StateStore
from engine.compute.batch import Batch
from engine.compute.layers.attention import Attention
from engine.compute.layers.embedding import token_table
from engine.compute.layers.interface import Step, WeightSource
from engine.compute.layers.layer_norm import read_layer_norm
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.plain_mlp import PlainMLP
from engine.compute.layers.residual import ResidualStream
from engine.compute.models.base import CausalLM
from engine.config.attention import AttentionConfig
from engine.config.feed_forward import MLPConfig
from engine.config.model import ModelConfig
from engine.config.positions import PositionConfig, RopeConfig
from engine.config.raw import RawConfig

NAMES = (
    ("roberta.", ""),  # before the names of those with a classifier
    ("bert.", ""),
    ("embeddings.word_embeddings.", "model.embed_tokens."),
    ("encoder.layer.", "model.layers."),
    ("attention.self.query.", "self_attn.q_proj."),
    ("attention.self.key.", "self_attn.k_proj."),
    ("attention.self.value.", "self_attn.v_proj."),
    ("attention.output.dense.", "self_attn.o_proj."),
    ("attention.output.LayerNorm.", "attention_norm."),
    ("intermediate.dense.", "mlp.up_proj."),
    ("output.dense.", "mlp.down_proj."),
    ("output.LayerNorm.", "mlp_norm."),
    ("embeddings.LayerNorm.", "model.embed_norm."),
    ("embeddings.position_embeddings.", "model.embed_positions."),
    ("embeddings.token_type_embeddings.", "model.embed_types."),
)
"""Words of its checkpoints, and those that all families share."""


BERT = "BertModel"
ROBERTA_OFFSET = 2
"""The row of RoBERTa's position table that belongs to position 0."""


def read_config(raw: RawConfig) -> ModelConfig:
    """Raises :class:`CheckpointError` for a decoder, and for positions or types of tokens that the family has not."""
    hidden, heads = raw.integer("hidden_size"), raw.integer("num_attention_heads")
    layers = raw.integer("num_hidden_layers", most=10_000)
    raw.per_layer(layers)
    if hidden % heads:
        raise raw.wrong(f"a hidden size of {hidden} does not divide into {heads} heads")
    if raw.flag("is_decoder", False) or raw.values.get("position_embedding_type") not in (None, "absolute"):
        raise raw.wrong("it is a decoder or has relative positions, and Kvasir has encoders with a table of positions")
    offset, types = _rows(raw.architecture)
    pads = not offset or raw.integer("pad_token_id", 1, least=0) + 1 == offset
    if raw.integer("type_vocab_size", types) != types or not pads:
        raise raw.wrong("its tables of positions or of types of tokens begin in another way than this family's")
    return ModelConfig(
        architecture=raw.architecture,
        vocab_size=raw.integer("vocab_size"),
        hidden_size=hidden,
        num_layers=layers,
        attention=AttentionConfig(
            heads, heads, hidden // heads, (None,) * layers, qkv_bias=True, output_bias=True, bidirectional=True
        ),
        positions=PositionConfig(
            RopeConfig(10000.0),
            raw.integer("max_position_embeddings", 512, least=1 + offset) - offset,
            (False,) * layers,
            learned=True,
        ),
        mlp=MLPConfig(
            raw.integer("intermediate_size"),
            bias=True,
            activation=raw.activation("hidden_act", ("gelu", "gelu_tanh", "relu", "silu")),
        ),
        rms_norm_eps=raw.positive("layer_norm_eps", 1e-12),
        tie_word_embeddings=True,
        dtype=raw.dtype(),
    )


def _rows(architecture: str) -> tuple[int, int]:
    """Rows of the position table before position 0, and rows of the table of types of tokens."""
    return (0, 2) if architecture == BERT else (ROBERTA_OFFSET, 1)


class BertLayer:
    """Attention, norm, MLP, norm. The norm after a layer's MLP is read as the first of the next layer, and the last
    one as the model's, so that states enter it as they do in other families."""

    waits = plans = False

    def __init__(self, config: ModelConfig, index: int, source: WeightSource) -> None:
        prefix = f"model.layers.{index}."
        before = f"model.layers.{index - 1}.mlp_norm" if index else "model.embed_norm"
        self.input_norm = read_layer_norm(config, source, before)
        self.attention = Attention(config, index, source, f"{prefix}self_attn.")
        self.attention_norm = read_layer_norm(config, source, f"{prefix}attention_norm")
        self.mlp = PlainMLP(config, source, f"{prefix}mlp.")

    def forward(self, stream: ResidualStream, step: Step) -> None:
        """Replace the stream by its norm, and add what a block makes of that, twice."""
        stream.add(self.attention.forward(stream.renewed(self.input_norm), step))
        stream.add(self.mlp.forward(stream.renewed(self.attention_norm)))

    def replay(self, states: StateStore, rows: Tensor, runs: StateRuns) -> None:
        """Implements :meth:`DecoderLayer.replay`: it has no states."""

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield from self.attention.linears()
        yield from self.mlp.linears()

    def storage_size(self) -> int:
        return sum(part.storage_size() for part in (self.input_norm, self.attention, self.attention_norm, self.mlp))


class Model(CausalLM):
    """Its head, the token table, is that of masked words, and of no use for embeddings."""

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        super().__init__(config, source)
        table = source.embedding("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        self.embedding = token_table(table)
        self.places, self.second = self._places(config, source)
        self.layers = [BertLayer(config, index, source) for index in range(config.num_layers)]
        self.norm = read_layer_norm(config, source, f"model.layers.{config.num_layers - 1}.mlp_norm")
        self.head = source.head(table, config.vocab_size, config.hidden_size)
        self.rotaries = ()

    def _places(self, config: ModelConfig, source: WeightSource) -> tuple[Tensor, Tensor | None]:
        """Vector of each position ``[max_position, hidden_size]``, with that of the first type of tokens; and what
        tokens of the second type, those of the second of two texts, have more ``[hidden_size]``, where there is one."""
        hidden, (offset, kinds) = config.hidden_size, _rows(config.architecture)
        positions = source.array("model.embed_positions.weight", (config.positions.max_position + offset, hidden))
        types = source.array("model.embed_types.weight", (kinds, hidden))
        second = (types[1] - types[0]).to(self.dtype) if kinds > 1 else None
        return (positions[offset:] + types[0]).to(self.dtype), second

    def embed(self, batch: Batch) -> Tensor:
        """The rows of the tokens plus those of their positions and types ``[T, hidden_size]``."""
        at = batch.positions.clamp(max=self.places.shape[0] - 1)
        found = super().embed(batch).add_(self.places.index_select(0, at))
        return found if batch.types is None or self.second is None else found.add_(batch.types[:, None] * self.second)

    def storage_size(self) -> int:
        """Bytes of weights held, the position table's included."""
        return super().storage_size() + self.places.nbytes
