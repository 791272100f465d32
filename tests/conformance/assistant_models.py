"""Tiny Gemma 4 targets and assistants by transformers' own classes, and how transformers drafts with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor

LOCAL, GLOBAL = "sliding_attention", "full_attention"
WINDOW, HIDDEN = 20, 64
BOTH: dict[str, Any] = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "global_head_dim": 64,
    "sliding_window": WINDOW,
    "max_position_embeddings": 1024,
    "bos_token_id": None,
    "hidden_size_per_layer_input": 0,
}
SMALL_E = BOTH | {
    "hidden_size": HIDDEN,
    "hidden_size_per_layer_input": 16,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "layer_types": [LOCAL, LOCAL, LOCAL, GLOBAL, LOCAL, GLOBAL, LOCAL, GLOBAL],
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
    "final_logit_softcapping": 20.0,
}
"""As the E models are: a vector of each token for each layer, and the last layers share."""
DENSE = BOTH | {
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "layer_types": [LOCAL, LOCAL, GLOBAL, LOCAL, LOCAL, GLOBAL],
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
    "final_logit_softcapping": 20.0,
}
"""As the large ones are: wide layers with fewer heads, whose values are their keys."""


def sharing_modes(config: transformers.Gemma4TextConfig) -> list[str | None]:
    """What ``Gemma4TextConfig.kv_sharing_modes`` is to give: transformers 5.23 raises where all layers share, as in its
    own assistant, and lets no layer store where none shares, as in its own dense targets."""
    own = config.num_hidden_layers - config.num_kv_shared_layers
    last = {kind: layer for layer, kind in enumerate(config.layer_types[:own])}
    return [
        "reuse" if layer >= own else "store" if layer in last.values() else None
        for layer in range(config.num_hidden_layers)
    ]


def _at_random(model: transformers.PreTrainedModel, seed: int) -> None:
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = "norm" in name.rsplit(".", 2)[-2]
            parameter.uniform_(0.7, 1.3) if norm else parameter.normal_(0, 0.12)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.uniform_(0.6, 1.2)


def write_target(folder: Path, shape: dict[str, Any], vocabulary: int, **values: Any) -> transformers.PreTrainedModel:
    """A random target."""
    words = {"vocab_size": vocabulary, "vocab_size_per_layer_input": vocabulary, "eos_token_id": vocabulary - 1}
    model = transformers.Gemma4ForCausalLM(transformers.Gemma4TextConfig(**shape, **words, **values))
    _at_random(model, 3)
    model.save_pretrained(folder)
    return model.eval()


def new_assistant(shape: dict[str, Any], vocabulary: int, clusters: int = 0, **values: Any) -> Any:
    """A random assistant for a target of that ``shape``, which scores a quarter of its ``clusters``, if it has any."""
    own = {key: shape[key] for key in (*BOTH, "attention_k_eq_v", "num_global_key_value_heads") if key in shape}
    own |= {"hidden_size": 48, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
            "intermediate_size": 80, "num_hidden_layers": 3, "layer_types": [LOCAL, LOCAL, GLOBAL],
            "vocab_size": vocabulary, "eos_token_id": vocabulary - 1}  # fmt: skip
    text = transformers.Gemma4TextConfig(**own | {key: values.pop(key) for key in list(values) if key in own})
    head = {"use_ordered_embeddings": True, "num_centroids": clusters, "centroid_intermediate_top_k": clusters // 4}
    config = transformers.Gemma4AssistantConfig(
        text_config=text, backbone_hidden_size=HIDDEN, **(head if clusters else {}), **values
    )
    model = transformers.Gemma4AssistantForCausalLM(config)
    _at_random(model, 4)
    if clusters:
        model.masked_embedding.token_ordering.copy_(torch.randperm(vocabulary))
    return model.eval()


class Drafted(NamedTuple):
    """A draft token by transformers: the state and token it was drawn with, its logits, the next state."""

    state: Tensor
    token: int
    logits: Tensor
    output: Tensor


@torch.no_grad()
def drafts(target: Any, assistant: Any, tokens: Sequence[int], count: int) -> list[Drafted]:
    """What transformers drafts greedily after ``tokens``, of which the target has read all but the last.

    As its ``SinglePositionMultiTokenCandidateGenerator``, given all keys of layers that see all, and those of the
    others that are in the window of the last token.
    """
    read = torch.tensor([tokens[:-1]])
    out = target(read, output_hidden_states=True, return_shared_kv_states=True, use_cache=False)
    window = target.config.sliding_window - 1
    shared = {kind: pair if kind == GLOBAL else tuple(each[:, :, -window:] for each in pair)
              for kind, pair in out.shared_kv_states.items()}  # fmt: skip
    state, token, found = out.hidden_states[-1][:, -1:], tokens[-1], []
    for _ in range(count):
        embedded = target.get_input_embeddings()(torch.tensor([[token]]))
        drawn = assistant(
            inputs_embeds=torch.cat((embedded, state), -1),
            position_ids=torch.tensor([[len(tokens) - 1]]),
            shared_kv_states=shared,
        )
        found.append(Drafted(state[0], token, drawn.logits[0, 0], drawn.last_hidden_state[0]))
        state, token = drawn.last_hidden_state, int(drawn.logits[0, 0].argmax())
    return found


def write_pair(folder: Path, shape: dict[str, Any], vocabulary: int, damp: float = 0.06) -> tuple[Any, Any]:
    """A target whose next token depends mostly on the last one, and in ``heads/assistant`` one that foresees a part.

    What layers add is multiplied by ``damp``; the assistant passes the token's embedding on to the target's own output
    layer, through layers at random.
    """
    target = write_target(folder, shape, vocabulary, tie_word_embeddings=False)
    assistant = new_assistant(shape, vocabulary, hidden_size=HIDDEN, tie_word_embeddings=False)
    added = ("post_attention_layernorm", "post_feedforward_layernorm", "post_per_layer_input_norm")
    with torch.no_grad():
        for name, parameter in (*target.named_parameters(), *assistant.named_parameters()):
            if name.rsplit(".", 2)[-2] in added:
                parameter.mul_(damp)
        for name, buffer in (*target.named_buffers(), *assistant.named_buffers()):
            if name.endswith("layer_scalar"):
                buffer.fill_(1.0)
        assistant.pre_projection.weight.copy_(torch.cat((torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)), 1))
        assistant.model.norm.weight.copy_(target.model.norm.weight)
        assistant.lm_head.weight.copy_(target.lm_head.weight)
    target.save_pretrained(folder)
    assistant.save_pretrained(folder / "heads" / "assistant")
    return target, assistant
