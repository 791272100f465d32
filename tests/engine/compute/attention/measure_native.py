"""How long native attention takes in one layer, for one token and for prompts beside torch's: `measure_native.py`.

The kinds take turns, each call on memory that no cache still holds, and the least of many calls is told: processor time
for one thread, so that other programs disturb little, and time on the clock where threads are compared.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from engine.cache.stores.codecs import pack_absmax
from engine.cache.stores.packed import BYTE_KINDS, PackedKV
from engine.compute.attention.backends.native import NativeAttention
from engine.compute.attention.backends.sdpa import SdpaAttention
from engine.compute.attention.interface import AttnSpec
from engine.compute.native.attention import attend_of
from engine.compute.native.library import NativeLibrary, find
from tests.engine.compute.attention.attention_cases import Case, place

KINDS = {
    "16 bit": ("dense", 16),
    "int8": ("int8", 8),
    "fp8": ("fp8", 8),
    "int4": ("int4", 4),
    "KIVI, 4 bits": ("kivi", 4),
    "KIVI, 2 bits": ("kivi", 2),
}
BEYOND_CACHES = 160e6
"""Bytes that calls of one kind go through before they come back to the same memory."""


def random_cache(kind: str, bits: int, slots: int, kv_heads: int, width: int) -> PackedKV:
    """Arenas of random numbers or codes."""
    if kind in ("dense", "latent"):
        k = torch.randn(slots, kv_heads, width).bfloat16()
        return PackedKV(k, k[..., : width - 64], kind) if kind == "latent" else PackedKV(k, k.flip(0))
    if kind in BYTE_KINDS:
        k, v = (pack_absmax(torch.randn(slots, kv_heads, width), kind) for _ in "kv")
        return PackedKV(k.codes, v.codes, kind, k.meta, v.meta, bits, bits)
    shape = (slots, kv_heads, width * bits // 8)
    k, v = (torch.randint(0, 127, shape, dtype=torch.uint8) for _ in "kv")
    meta = (slots, kv_heads, width // 32, 2)
    k_meta = torch.rand((slots // 16, kv_heads, width) if kind == "kivi" else meta).half()
    return PackedKV(k, v, kind, k_meta, torch.rand(meta).half(), bits, bits)


def size(kv: PackedKV) -> int:
    """Bytes of the arenas."""
    tensors = (kv.k, None if kv.kind == "latent" else kv.v, kv.k_meta, kv.v_meta)
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


class Calls(NamedTuple):
    """One token's attention over each of several contexts that lie behind each other."""

    run: list[Callable[[], None]]
    bytes_each: int


def calls(library: NativeLibrary, kind: str, bits: int, keys: int, heads: int, kv_heads: int, width: int) -> Calls:
    """Contexts on shuffled pairs of pages."""
    one = size(random_cache(kind, bits, 32, kv_heads, width)) * keys // 32
    contexts = max(2, int(BEYOND_CACHES / one))
    kv = random_cache(kind, bits, keys * contexts, kv_heads, width)
    pairs = torch.randperm(keys * contexts // 32)
    pages = torch.stack((2 * pairs, 2 * pairs + 1), dim=1).to(torch.int32).view(contexts, -1)
    q = torch.randn(1, heads, width).bfloat16()
    out = torch.empty(1, heads, kv.v_dim).bfloat16()
    rows = torch.tensor([[0, 0, keys]])

    def call(own: Tensor) -> Callable[[], None]:
        return lambda: library.attend(attend_of(q, kv, own, rows, width**-0.5, out))

    return Calls([call(own) for own in pages.contiguous()], one)


def least(runs: dict[str, list[Callable[[], None]]], clock: Callable[[], float], rounds: int = 60) -> dict[str, float]:
    """Seconds by name, the least of the rounds, in which everyone has a turn."""
    found = dict.fromkeys(runs, float("inf"))
    for i in range(rounds):
        for name, run in runs.items():
            begin = clock()
            run[i % len(run)]()
            found[name] = min(found[name], clock() - begin)
    return found


def say(line: str) -> None:
    """A line, now."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def prompts() -> None:
    """512 rows of a prompt after some keys, which both read as bfloat16: this code, and torch's in float32."""
    spec = AttnSpec(0.1)
    for heads, kv_heads, width in ((32, 8, 64), (32, 8, 128), (16, 16, 64), (24, 8, 96)):
        for start in (0, 2048, 8192):
            case = Case(start, 512).fill(heads, kv_heads, width, torch.bfloat16, torch.Generator())
            batch, q, kv = place([case], 1)
            products = 2 * 512 * heads * width * (start + 256.5)
            runs = {
                backend.name: [functools.partial(backend.attend, q, kv, spec, batch)]
                for backend in (NativeAttention(), SdpaAttention())
            }
            found = least(runs, time.thread_time, 7)
            own, others = found["native"], found["sdpa"]
            say(
                f"{heads}/{kv_heads} of {width}, after {start:,}: {own * 1e3:,.1f} and {others * 1e3:,.1f} ms "
                f"({others / own:.2f}), {products / own / 1e9:.0f} billion products a second"
            )


def main() -> None:
    """Print the tables."""
    library, reason = find()
    if library is None:
        raise SystemExit(reason)
    torch.set_num_threads(1)
    say(f"512 rows of a prompt, one thread, {library.instructions}")
    prompts()
    say("One thread, 32/8 heads of 128: microseconds (GB/s)")
    for keys in (4096, 16384):
        kinds = {name: calls(library, *kind, keys, 32, 8, 128) for name, kind in KINDS.items()}
        found = least({name: kind.run for name, kind in kinds.items()}, time.thread_time)
        row = [f"{name} {s * 1e6:,.0f} ({kinds[name].bytes_each / s / 1e9:.1f})" for name, s in found.items()]
        say(f"{keys} keys: {', '.join(row)}")
    say("One and two threads, 16 bit: microseconds on the clock")
    shapes = {
        "32/8 heads of 128": (32, 8, 128),
        "8/1 heads of 128": (8, 1, 128),
        "latents, 16 heads of 576": (16, 1, 576),
    }
    for name, (heads, kv_heads, width) in shapes.items():
        for keys in (512, 2048, 8192, 32768):
            kind = "latent" if width == 576 else "dense"
            run = calls(library, kind, 16, keys, heads, kv_heads, width).run
            row = []
            for threads in (1, 2):
                torch.set_num_threads(threads)
                row.append(least({name: run}, time.perf_counter, 200)[name])
            say(f"{name}, {keys} keys: {row[0] * 1e6:,.0f}, {row[1] * 1e6:,.0f}")


if __name__ == "__main__":
    main()
