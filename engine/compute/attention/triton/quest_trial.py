"""The proof, before rows choose pages by the kernels of quest.py, that these choose and attend as QUEST defines it."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.packed import PackedKV
from engine.compute.attention.interface import AttnSpec
from engine.compute.attention.triton import quest, trial
from engine.compute.batch import Batch
from engine.compute.native.proof import machine_declines, tried

SHAPES = [(150, 1), (94, 3)]
PAGES = 4
HEADS_OF_KV = 2


@functools.cache
def disagrees(width: int, softcap: bool, dtype: torch.dtype, device: torch.device) -> str | None:
    """Reason not to trust the kernels here with heads of ``width`` channels; None where they agree."""
    if width % 8 or width > 256:
        return f"it has no heads of {width}"
    return machine_declines(dtype, device) or tried(
        ("quest", width, softcap, dtype), device, lambda: compare(width, softcap, dtype, device)
    )


def compare(width: int, softcap: bool, dtype: torch.dtype, device: torch.device) -> str | None:
    """Same as :func:`disagrees`, without the guard."""
    generator = torch.Generator().manual_seed(1)
    spec = AttnSpec(width**-0.5, None, 2.0 if softcap else None)
    batch = trial.batch_of(SHAPES)
    kv = trial.arenas("dense", (width, width), (16, 16), batch, dtype, generator)
    keys = kv.k.view(-1, PAGE_SIZE, *kv.k.shape[1:])
    bounds = torch.cat((keys.amin(1), keys.amax(1)), -1)
    q = torch.randn(batch.host.T, HEADS_OF_KV * kv.kv_heads, width, generator=generator).to(dtype)
    expected = scores_of(q.float(), bounds.float(), batch)
    there, moved, arenas = q.to(device), trial.batch_on(batch, device), trial.on(kv, device)
    arenas = arenas._replace(bounds=torch.zeros_like(bounds, device=device))
    quest.bound_pages(arenas, torch.arange(len(bounds), device=device))
    assert arenas.bounds is not None
    if not torch.equal(arenas.bounds.cpu(), bounds):
        return "the bounds of pages that it computes do not agree with the definition here"
    found = quest.page_scores(there, arenas.bounds, moved)
    limits = torch.tensor([PAGES, 2, PAGES, PAGES], dtype=torch.int32)
    pages = quest.choose_pages(there, arenas.bounds, moved, PAGES)
    out, lse = quest.attend_pages(there, arenas, spec, moved, pages, limits.to(device), need_lse=True)
    kept = torch.where(torch.arange(PAGES) < limits[:, None, None], pages.cpu(), -1)
    want, want_lse = attended(q.float(), kv, spec, batch, kept)
    if trial.far(found, expected, trial.TOLERANCE) or _misses(expected, kept):
        return "the pages that it chooses do not agree with the definition here"
    if trial.far(out, want, trial.TOLERANCE) or trial.far(lse, want_lse, trial.TOLERANCE):
        return "its result over chosen pages does not agree with the definition here"
    return None


def _misses(scores: Tensor, pages: Tensor) -> bool:
    """Return True if a page that was left out scores clearly more than one that was chosen."""
    left_out = scores.clone()
    for entry in pages.unbind(-1):  # of what is cut off, the best page stands in, which is always chosen
        left_out.scatter_(2, torch.where(entry < 0, pages[..., 0], entry)[..., None], -torch.inf)
    chosen = scores.gather(2, pages.clamp(min=0)).masked_fill(pages < 0, torch.inf)
    slack = trial.TOLERANCE * scores[scores.isfinite()].abs().max()
    return bool((left_out.amax(-1) > chosen.amin(-1) + slack).any())


def scores_of(q: Tensor, bounds: Tensor, batch: Batch) -> Tensor:
    """Same as `quest.page_scores`, by the definition."""
    host = batch.host
    scores = q.new_full((*q.shape[:2], -(-host.max_kv // PAGE_SIZE)), -torch.inf)
    for row, (sequence, index) in enumerate(_indices(batch)):
        own = index // PAGE_SIZE
        each = bounds[batch.page_table[0, sequence, :own].long()].repeat_interleave(HEADS_OF_KV, 1)
        least, greatest = each.chunk(2, -1)
        scores[row, :, :own] = torch.maximum(q[row] * least, q[row] * greatest).sum(-1).t()
        scores[row, :, own] = torch.inf
    return scores


def attended(q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, pages: Tensor) -> tuple[Tensor, Tensor]:
    """Same as `quest.attend_pages`, by the definition, for rows with a page at least."""
    out, lse = torch.zeros_like(q), q.new_zeros(q.shape[:2])
    for row, (sequence, index) in enumerate(_indices(batch)):
        for head in range(q.shape[1]):
            own = pages[row, head][pages[row, head] >= 0]
            keys = (own[:, None] * PAGE_SIZE + torch.arange(PAGE_SIZE)).flatten()
            keys = keys[keys <= index]
            slots = batch.page_table[0, sequence, keys // PAGE_SIZE].long() * PAGE_SIZE + keys % PAGE_SIZE
            k, v = (arena[slots, head // HEADS_OF_KV].float() for arena in (kv.k, kv.v))
            score = k @ q[row, head] * spec.scale
            if spec.softcap is not None:
                score = spec.softcap * torch.tanh(score / spec.softcap)
            out[row, head], lse[row, head] = score.softmax(0) @ v, score.logsumexp(0)
    return out, lse


def _indices(batch: Batch) -> list[tuple[int, int]]:
    """The sequence of each row and its index there."""
    host = batch.host
    return [
        (s, host.kv_len[s] - host.row_start[s + 1] + row)
        for s in range(host.S)
        for row in range(host.row_start[s], host.row_start[s + 1])
    ]
