"""Attention through torch's fused kernels: the fast path on a CPU, and the torch path on CUDA.

The heads that share a KV head become rows of it, so keys are read once for all of them and never repeated
(Ainslie et al. 2023, grouped queries). Consecutive pages are read in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.stores.packed import PACKED_KINDS, PLAIN_KINDS, PackedKV
from engine.compute.attention.backends.plan import AttentionPlan, Block, KeySource, Padded, make_plan
from engine.compute.attention.backends.ranged_plan import make_ranged_plan
from engine.compute.attention.backends.scratch import Scratch
from engine.compute.attention.interface import AttentionBackend, AttnProblem, AttnSpec, KeyRange, merge
from engine.compute.attention.memo import PerBatch
from engine.compute.batch import Batch

_flash_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


class SdpaAttention(AttentionBackend):
    """Fused attention for each sequence, blocked over rows; short decoding sequences together in one padded call."""

    name = "sdpa"
    captures = False

    def __init__(self) -> None:
        # cuDNN's attention builds a plan for every new number of keys, which is to say for every token.
        torch.backends.cuda.enable_cudnn_sdp(False)
        self._scratch = Scratch()
        self._plans: PerBatch[tuple[AttentionPlan, KeyRange | None]] = PerBatch()

    def declines(self, problem: AttnProblem) -> str | None:
        """The fused kernels have no softcap, want keys and values of one width, and round as their tiles fall.

        Narrower values are read as wide as the keys where memory allows it, and the rest of the result is dropped.
        """
        if problem.kind not in (*PLAIN_KINDS, *PACKED_KINDS):
            return f"cannot read the KV kind {problem.kind}"
        if problem.batch_invariant:
            return "its last bits depend on how many rows run together"
        if problem.spec.softcap is not None:
            return "torch's fused attention has no softcap"
        k_dim, v_dim = problem.head_dims
        if v_dim > k_dim or (v_dim < k_dim and problem.kind not in ("latent", "wide")):
            return "torch's fused attention wants keys and values of the same width"
        if problem.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            return f"torch's fused attention is not used for {problem.dtype}"
        return None

    def attend(
        self,
        q: Tensor,
        kv: PackedKV,
        spec: AttnSpec,
        batch: Batch,
        group: int = 0,
        need_lse: bool = False,
        keys: KeyRange | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Implements `AttentionBackend.attend`."""
        v_dim, kv = kv.v_dim, _as_wide_as_keys(kv)
        plan = self._plan(q, kv, spec, batch, group, keys)
        if len(plan.sources) == 1 and q.shape[0] == 1 and not need_lse and plan.sources[0].blocks[0].mask is None:
            out = self._decode_one(q, kv, plan.sources[0], spec.scale)
            return (out if out.shape[2] == v_dim else out[..., :v_dim]), None
        untouched = q.shape[0] > batch.host.T or keys is not None
        out = torch.zeros_like(q) if untouched else torch.empty_like(q)
        lse = None
        if need_lse:
            lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32, device=q.device)
        if plan.padded is not None:
            k, v = self._scratch.gather(kv, plan.padded.pages, q.dtype)
            _attend_padded(q, k, v, plan.padded, spec.scale, out, lse)
        for source in plan.sources:
            k, v = self._read(kv, source, q.dtype)
            for block in source.blocks:
                _attend_block(q, k, v, block, spec.scale, out, lse)
        return (out if out.shape[2] == v_dim else out[..., :v_dim]), lse

    def _plan(
        self, q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, group: int, keys: KeyRange | None
    ) -> AttentionPlan:
        """The plan of this batch for this kind of layer and these ranges, made at the first such layer of a step."""
        plans, heads_per_kv = self._plans.of(batch), q.shape[1] // kv.kv_heads
        # The ranges are kept with their plan, so that no others are given their id while it lives.
        key = (spec.window, group, q.dtype, heads_per_kv, id(keys))
        found = plans.get(key)
        if found is None:
            plan = (
                make_plan(batch, spec, group, heads_per_kv, q.dtype, pages_for(kv.granule))
                if keys is None
                else make_ranged_plan(batch, spec, group, heads_per_kv, q.dtype, keys, pages_for(kv.granule))
            )
            found = plans[key] = (plan, keys)
        return found[0]

    def _decode_one(self, q: Tensor, kv: PackedKV, source: KeySource, scale: float) -> Tensor:
        """One row of one sequence, the shape of a chat's every token: [1, H, d] without a detour."""
        kv_heads, width = kv.kv_heads, q.shape[2]
        block = source.blocks[0]
        if source.pages is None and kv.k.dtype == q.dtype:
            k, v, first = kv.k, kv.v, source.first_slot + block.lo
        else:
            k, v = self._read(kv, source, q.dtype)
            first = block.lo
        shape = (1, kv_heads, block.hi - block.lo, width)
        k, v = _heads_first(k, shape, first), _heads_first(v, shape, first)
        return _fused(q.reshape(1, kv_heads, -1, width), k, v, None, scale).reshape(q.shape)

    def _read(self, kv: PackedKV, source: KeySource, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values of a source [length, H_kv, d]; gathered ones are valid until the next gathering."""
        if source.pages is not None:
            return self._scratch.gather(kv, source.pages, dtype)
        if kv.k.dtype != dtype:
            first = source.first_slot // PAGE_SIZE
            pages = torch.arange(first, first - (-source.length // PAGE_SIZE), device=kv.k.device)
            return self._scratch.gather(kv, pages, dtype)
        return kv.k.narrow(0, source.first_slot, source.length), kv.v.narrow(0, source.first_slot, source.length)


def _as_wide_as_keys(kv: PackedKV) -> PackedKV:
    """Values read as wide as the keys, see `PackedKV`: they begin with what is asked for."""
    if kv.kind == "latent":
        return PackedKV(kv.k, kv.k)
    if kv.v_dim == kv.k_dim:
        return kv
    return PackedKV(kv.k, kv.v.as_strided(kv.k.shape, kv.v.stride(), kv.v.storage_offset()))


def _heads_first(arena: Tensor, shape: tuple[int, ...], first: int) -> Tensor:
    """Slots of an arena from `first` on as [1, H_kv, n, d], in one step."""
    slot, head, _ = arena.stride()
    return arena.as_strided(shape, (0, head, slot, 1), arena.storage_offset() + first * slot)


def _attend_block(q: Tensor, k: Tensor, v: Tensor, block: Block, scale: float, out: Tensor, lse: Tensor | None) -> None:
    heads, width, kv_heads = q.shape[1], q.shape[2], k.shape[1]
    end = block.row + block.rows
    rows = q[block.row : end].view(block.rows, kv_heads, heads // kv_heads, width)
    grouped = rows.transpose(0, 1).reshape(1, kv_heads, -1, width)
    k, v = k[None, block.lo : block.hi].transpose(1, 2), v[None, block.lo : block.hi].transpose(1, 2)
    cut = block.split - block.lo
    part_lse: Tensor | None = None
    if block.mask is None or cut == 0:
        o, part_lse = _run(grouped, k, v, block.mask, scale, lse is not None)
    else:
        o1, lse1 = _fused_with_lse(grouped, k[:, :, :cut], v[:, :, :cut], None, scale)
        o2, lse2 = _fused_with_lse(grouped, k[:, :, cut:], v[:, :, cut:], block.mask, scale)
        o, part_lse = merge(o1, lse1, o2, lse2)
    shape = (kv_heads, block.rows, heads // kv_heads)
    out[block.row : end].view(*rows.shape).copy_(o.view(*shape, width).transpose(0, 1))
    if lse is not None and part_lse is not None:
        lse[block.row : end].view(*rows.shape[:3]).copy_(part_lse.reshape(shape).transpose(0, 1))
    if block.nothing is not None:
        out[block.row : end].masked_fill_(block.nothing[:, None, None], 0.0)
        if lse is not None:
            lse[block.row : end].masked_fill_(block.nothing[:, None], -torch.inf)


def _attend_padded(
    q: Tensor, k: Tensor, v: Tensor, padded: Padded, scale: float, out: Tensor, lse: Tensor | None
) -> None:
    heads, width, kv_heads, n = q.shape[1], q.shape[2], k.shape[1], padded.n
    rows = q[:n] if padded.rows is None else q.index_select(0, padded.rows)
    grouped = rows.view(n, kv_heads, heads // kv_heads, width)
    k, v = (part.view(n, -1, kv_heads, width).transpose(1, 2) for part in (k, v))
    o, part_lse = _run(grouped, k, v, padded.mask.expand(n, 1, grouped.shape[2], -1), scale, lse is not None)
    _put(out, padded.rows, o.reshape(n, heads, width))
    if lse is not None and part_lse is not None:
        _put(lse, padded.rows, part_lse.reshape(n, heads))


def _put(target: Tensor, rows: Tensor | None, values: Tensor) -> None:
    if rows is None:
        target[: values.shape[0]] = values
    else:
        target.index_copy_(0, rows, values)


def _run(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, need_lse: bool
) -> tuple[Tensor, Tensor | None]:
    return _fused_with_lse(q, k, v, mask, scale) if need_lse else (_fused(q, k, v, mask, scale), None)


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """q [B, H_kv, R, d], k and v [B, H_kv, N, d], mask broadcast to [B, H_kv, R, N] -> o like q."""
    if q.device.type == "cpu":
        return _flash_cpu(q, k, v, attn_mask=mask, scale=scale)[0]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


def _fused_with_lse(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """Same as `_fused`, and lse [B, H_kv, R] float32.

    Torch's flash kernel on CUDA gives it too, but takes no mask: there a masked part (the new rows among themselves)
    materialises its scores, and the part that grows with the context does not. GPUs older than compute capability 8.0
    have the memory-efficient kernel in its place.
    """
    if q.device.type == "cpu":
        o, lse = _flash_cpu(q, k, v, attn_mask=mask, scale=scale)
        return o, lse
    if mask is None and q.dtype != torch.float32:
        traits = q.device, q.dtype, q.shape[-1]
        if _flash_cuda_fails(*traits) is None:
            return _flash_cuda(q, k, v, scale)
        if _efficient_cuda_fails(*traits) is None:
            return _efficient_cuda(q, k, v, scale)
    scores = torch.matmul(q.float(), k.float().transpose(-1, -2)) * scale
    if mask is not None:
        scores = scores + mask
    lse = torch.logsumexp(scores, dim=-1)
    return torch.matmul(torch.exp(scores - lse.unsqueeze(-1)), v.float()).to(q.dtype), lse


def _flash_cuda(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    o, lse = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False, False, scale=scale)[:2]
    return o, lse


def _efficient_cuda(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    o, lse = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True, scale=scale)[:2]
    return o, lse[..., : q.shape[2]]  # its rows are padded


@functools.cache
def _flash_cuda_fails(device: torch.device, dtype: torch.dtype, width: int) -> str | None:
    return _fails(_flash_cuda, device, dtype, width)


@functools.cache
def _efficient_cuda_fails(device: torch.device, dtype: torch.dtype, width: int) -> str | None:
    return _fails(_efficient_cuda, device, dtype, width)


def _fails(
    kernel: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]],
    device: torch.device,
    dtype: torch.dtype,
    width: int,
) -> str | None:
    """Compare a kernel of torch with the definition once: torch promises nothing about these operators."""
    if width % 8 or width > 256:
        return f"it has no heads of {width}"
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 2, n, width, generator=generator).to(device, dtype) for n in (6, 40, 40))
    scores = q.float() @ k.float().transpose(-1, -2) * width**-0.5
    try:
        o, lse = kernel(q, k, v, width**-0.5)
    except RuntimeError as error:
        return f"it fails here ({str(error).splitlines()[0]})"
    right = torch.allclose(o.float(), scores.softmax(-1) @ v.float(), rtol=0.05, atol=0.02)
    if lse.shape != q.shape[:3] or not right or not torch.allclose(lse, scores.logsumexp(-1), rtol=0.01, atol=0.01):
        return "its result does not agree with the definition here"
    return None
