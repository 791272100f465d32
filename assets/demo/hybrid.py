"""Train a small hybrid: gated delta nets and gated attention in Qwen3.5's layout, with a multi-token layer (MTP).

It shows what the bundled Llama cannot: states and their snapshots, and drafts by layers of the checkpoint's own. The
text and the tokenizer are those of the bundled models (build_text.py). The multi-token layer learns with the others, to
two tokens ahead: its second step goes on from the output of its first (as it drafts). Written in 16 bits, unpacked.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from model import document_mask, rotate
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from train import SEPARATOR, Batch, Batches, Plan, Progress, apply, learning_rate, optimisers, weighted_loss

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "kvasir-hybrid"
CHUNK = 64
"""Tokens that the delta rule computes at once."""
AHEAD = (0.3, 0.2)
"""What the losses of the multi-token layer's first and second step count."""


@dataclass(frozen=True)
class Shape:
    """Field names as in Hugging Face's Qwen3_5TextConfig."""

    hidden_size: int = 192
    intermediate_size: int = 512
    num_hidden_layers: int = 4
    num_attention_heads: int = 3
    num_key_value_heads: int = 1
    head_dim: int = 64
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 4
    linear_key_head_dim: int = 32
    linear_value_head_dim: int = 32
    linear_conv_kernel_dim: int = 4
    vocab_size: int = 4096
    max_position_embeddings: int = 4096
    rms_norm_eps: float = 1e-6

    @property
    def rotated(self) -> int:
        """Dimensions of a head that rotate."""
        return self.head_dim // 4


class Norm(nn.Module):
    """Multiplies by 1 + weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self.weight.shape, 1 + self.weight, self.eps).to(x.dtype)


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def delta_rule(queries: Tensor, keys: Tensor, values: Tensor, decays: Tensor, shares: Tensor) -> Tensor:
    """What queries read: they and keys [B, H, T, K] of unit length, values [B, H, T, V], decays (log) [B, H, T]."""
    state = values.new_zeros(*values.shape[:2], keys.shape[-1], values.shape[-1])
    read = []
    for q, k, v, g, b in zip(*(x.split(CHUNK, 2) for x in (queries, keys, values, decays, shares)), strict=True):
        sums = g.cumsum(2)
        lower = torch.ones(g.shape[2], g.shape[2], dtype=torch.bool, device=g.device).tril()
        within = (sums.unsqueeze(3) - sums.unsqueeze(2)).masked_fill(~lower, -1e9).exp()
        since, share = sums.exp().unsqueeze(3), b.unsqueeze(3)
        wanted = share * (v - since * (k @ state))
        system = share * (k @ k.mT) * within
        written = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
        read.append(since * (q @ state) + ((q @ k.mT) * within) @ written)
        last = sums[..., -1:]
        state = last.exp().unsqueeze(3) * state + ((last - sums).exp().unsqueeze(3) * k).mT @ written
    return torch.cat(read, 2)


class DeltaNet(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        keys = shape.linear_num_key_heads * shape.linear_key_head_dim
        values = shape.linear_num_value_heads * shape.linear_value_head_dim
        self.widths = [keys, keys, values]
        self.in_proj_qkv = linear(shape.hidden_size, sum(self.widths))
        self.in_proj_z = linear(shape.hidden_size, values)
        self.in_proj_b = linear(shape.hidden_size, shape.linear_num_value_heads)
        self.in_proj_a = linear(shape.hidden_size, shape.linear_num_value_heads)
        channels = sum(self.widths)
        self.conv1d = nn.Conv1d(channels, channels, shape.linear_conv_kernel_dim, groups=channels, bias=False)
        self.A_log = nn.Parameter(torch.linspace(-4, 0, shape.linear_num_value_heads))
        self.dt_bias = nn.Parameter(torch.ones(shape.linear_num_value_heads))
        self.norm = nn.RMSNorm(shape.linear_value_head_dim, shape.rms_norm_eps)
        self.out_proj = linear(values, shape.hidden_size)

    def forward(self, x: Tensor, document: Tensor) -> Tensor:
        """x [B, T, H]; document [B, T]: no token sees those of another one."""
        shape, taps = self.shape, self.shape.linear_conv_kernel_dim
        mixed, weight = self.in_proj_qkv(x).float(), self.conv1d.weight[:, 0]
        seen = mixed * weight[:, -1]
        for back in range(1, taps):
            same = (document[:, back:] == document[:, :-back]).unsqueeze(2)
            seen = seen + F.pad(mixed[:, :-back] * same * weight[:, -1 - back], (0, 0, back, 0))
        q, k, v = F.silu(seen).split(self.widths, 2)
        each = shape.linear_num_value_heads // shape.linear_num_key_heads
        q, k = (
            F.normalize(y.unflatten(2, (shape.linear_num_key_heads, -1)), dim=-1, eps=1e-6)
            .repeat_interleave(each, 2)
            .transpose(1, 2)
            for y in (q, k)
        )
        v = v.unflatten(2, (shape.linear_num_value_heads, -1)).transpose(1, 2)
        decay = -self.A_log.float().exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        first = F.pad(document[:, 1:] != document[:, :-1], (1, 0)).unsqueeze(2)
        decay = torch.where(first, -60.0, decay)
        share = self.in_proj_b(x).float().sigmoid()
        with torch.autocast(x.device.type, enabled=False):
            read = delta_rule(q * shape.linear_key_head_dim**-0.5, k, v, decay.transpose(1, 2), share.transpose(1, 2))
        gate = F.silu(self.in_proj_z(x).float()).unflatten(2, (shape.linear_num_value_heads, -1))
        return self.out_proj((self.norm(read.transpose(1, 2)) * gate).flatten(2))


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        heads, kv = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
        self.q_proj = linear(shape.hidden_size, 2 * heads)
        self.k_proj = linear(shape.hidden_size, kv)
        self.v_proj = linear(shape.hidden_size, kv)
        self.o_proj = linear(heads, shape.hidden_size)
        self.q_norm, self.k_norm = (Norm(shape.head_dim, shape.rms_norm_eps) for _ in "qk")

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        shape, turned = self.shape, self.shape.rotated
        q, gate = self.q_proj(x).view(batch, length, -1, 2 * shape.head_dim).chunk(2, 3)
        k, v = (layer(x).view(batch, length, -1, shape.head_dim) for layer in (self.k_proj, self.v_proj))
        q, k, v = (y.transpose(1, 2) for y in (self.q_norm(q), self.k_norm(k), v))
        q, k = (torch.cat((rotate(y[..., :turned], *rotary).to(y.dtype), y[..., turned:]), -1) for y in (q, k))
        repeats = shape.num_attention_heads // shape.num_key_value_heads
        mixed = F.scaled_dot_product_attention(
            q, k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1), mask.to(q.dtype)
        )
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1) * gate.flatten(2).sigmoid())


class MLP(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (linear(shape.hidden_size, shape.intermediate_size) for _ in "gu")
        self.down_proj = linear(shape.intermediate_size, shape.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


@dataclass(frozen=True)
class Rows:
    """What all layers know of a batch."""

    rotary: tuple[Tensor, Tensor]
    mask: Tensor
    document: Tensor


class Layer(nn.Module):
    def __init__(self, shape: Shape, attends: bool) -> None:
        super().__init__()
        self.attends = attends
        self.input_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        if attends:
            self.self_attn = Attention(shape)
        else:
            self.linear_attn = DeltaNet(shape)
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        normed = self.input_layernorm(x)
        x = x + (
            self.self_attn(normed, rows.rotary, rows.mask) if self.attends else self.linear_attn(normed, rows.document)
        )
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape, (index + 1) % 4 == 0) for index in range(shape.num_hidden_layers))
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps)


class MultiToken(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.fc = linear(2 * shape.hidden_size, shape.hidden_size)
        self.layers = nn.ModuleList([Layer(shape, True)])
        self.norm, self.pre_fc_norm_hidden, self.pre_fc_norm_embedding = (
            Norm(shape.hidden_size, shape.rms_norm_eps) for _ in range(3)
        )

    def forward(self, hidden: Tensor, embedded: Tensor, rows: Rows) -> Tensor:
        """States [B, T, H] and the tokens after them -> states one token on."""
        x = self.fc(torch.cat((self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)), -1))
        return self.norm(self.layers[0](x, rows))


class Hybrid(nn.Module):
    """Parameter names are those of the checkpoint; the head is the embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model, self.mtp = Trunk(shape), MultiToken(shape)
        exponents = torch.arange(0, shape.rotated, 2).float() / shape.rotated
        angles = torch.outer(torch.arange(shape.max_position_embeddings).float(), 10_000.0**-exponents)
        self.register_buffer("angles", torch.cat((angles, angles), -1), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("conv1d.weight"):
                nn.init.normal_(parameter, std=0.3)

    def rows(self, batch: Batch) -> Rows:
        ends = (batch.inputs == SEPARATOR).long()
        angles = self.angles[: batch.inputs.shape[1]]
        mask = document_mask(batch.inputs, SEPARATOR, torch.float32)
        return Rows((angles.cos(), angles.sin()), mask, ends.cumsum(1) - ends)

    def forward(self, batch: Batch) -> list[Tensor]:
        """The hidden states that predict the next token, and those of the multi-token layer, [B, T, H] each."""
        rows = self.rows(batch)
        embedded = self.model.embed_tokens(batch.inputs)
        x = embedded
        for layer in self.model.layers:
            x = layer(x, rows)
        found = [self.model.norm(x)]
        for _ in AHEAD:
            embedded = F.pad(embedded[:, 1:], (0, 0, 0, 1))
            found.append(self.mtp(found[-1], embedded, rows))
        return found

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.model.embed_tokens.weight)


def loss_of(model: Hybrid, batch: Batch) -> tuple[Tensor, list[float]]:
    """What to learn from, and the plain losses of one, two and three tokens ahead."""
    total: Tensor | float = 0.0
    plain = []
    for ahead, (hidden, counts) in enumerate(zip(model(batch), (1.0, *AHEAD), strict=True)):
        targets = F.pad(batch.targets[:, ahead:], (0, ahead))
        weights = F.pad(batch.weights[:, ahead:], (0, ahead))
        counted = weights > 0
        if ahead:  # a third of the rows is enough
            counted &= torch.rand(counted.shape, device=counted.device) < 1 / 3
        loss = weighted_loss(model.logits(hidden[counted]), targets[counted], weights[counted])
        total = total + counts * loss
        plain.append(loss.item())
    assert isinstance(total, Tensor)
    return total, plain


def config(shape: Shape, ends: list[int]) -> dict[str, object]:
    """config.json as transformers writes it."""
    sizes = {name: getattr(shape, name) for name in shape.__dataclass_fields__}
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        **sizes,
        "hidden_act": "silu",
        "attention_bias": False,
        "full_attention_interval": 4,
        "layer_types": ["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(4)],
        "mtp_num_hidden_layers": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25},
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": ends,
        "pad_token_id": ends[-1],
        "dtype": "bfloat16",
    }


def export(model: Hybrid, build: Path, folder: Path) -> None:
    """Write the checkpoint; the tokenizer files come from ``build``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(build / name, folder / name)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ends = [tokenizer.token_to_id(name) for name in ("<|im_end|>", "<|endoftext|>")]
    tensors = {name: tensor.detach().cpu().to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config(model.shape, ends), indent=2) + "\n", "utf-8")
    generation = {"eos_token_id": ends, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", "utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Train on the text that build_text.py made, and write the checkpoint."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--build", type=Path, default=HERE / "build", help="text and tokenizer")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--minutes", type=float, default=32.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    plan, progress = Plan(steps=0, minutes=options.minutes), Progress()
    model = Hybrid(Shape())
    learned = optimisers(model, plan)
    source = Batches(options.build, plan.batch_tokens, options.seed, torch.device("cpu"), longest=2048)
    while progress.share(plan) < 1:
        started = time.monotonic()
        share = progress.share(plan)
        with torch.autocast("cpu", torch.bfloat16):
            loss, plain = loss_of(model, source.next(share))
        apply(loss, model, learned, learning_rate(share, plan))
        progress.step += 1
        progress.seconds += time.monotonic() - started
        if progress.step % 20 == 0:
            rate = plan.batch_tokens / (time.monotonic() - started)
            figures = " ".join(f"{value:.3f}" for value in plain)
            sys.stdout.write(f"step {progress.step} {share:.1%} losses {figures} {rate:.0f} tokens/s\n")
            sys.stdout.flush()
    export(model, options.build, options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
