"""GGUF files written by hand, so that they can be wrong in any way."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.formats.gguf.types import TYPES

CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
U32, F32, TEXT, LIST = 4, 6, 8, 9


class Raw(NamedTuple):
    """A value as (type, content); a list's content is (type of elements, contents)."""

    kind: int
    content: Any


class Info(NamedTuple):
    """A tensor's entry: ``sizes`` innermost first, ``offset`` from the start of the data."""

    name: str
    sizes: Sequence[int]
    type: int
    offset: int


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def content(kind: int, value: Any) -> bytes:
    if kind == TEXT:
        return text(value)
    if kind == LIST:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(content(inner, item) for item in items)
    return struct.pack(f"<{CODES[kind]}", value)


def keys(values: Sequence[tuple[str, Raw]]) -> bytes:
    return b"".join(text(key) + struct.pack("<I", raw.kind) + content(*raw) for key, raw in values)


def infos(tensors: Sequence[Info]) -> bytes:
    return b"".join(
        text(t.name) + struct.pack(f"<I{len(t.sizes)}QIQ", len(t.sizes), *t.sizes, t.type, t.offset) for t in tensors
    )


def whole(
    values: Sequence[tuple[str, Raw]], tensors: Sequence[Info], version: int = 3, alignment: int = 32, tail: int = 0
) -> bytes:
    """A file whose data is zeros; ``tail`` bytes are left out at its end."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values)) + keys(values) + infos(tensors)
    head += bytes(-len(head) % alignment)
    end = max((t.offset + size(t) for t in tensors), default=0)
    return head + bytes(end - tail)


def size(tensor: Info) -> int:
    kind = TYPES.get(tensor.type)
    return 0 if kind is None else math.prod(tensor.sizes) // kind.weights * kind.bytes


VALUES = [
    ("general.architecture", Raw(TEXT, "llama")),
    ("llama.block_count", Raw(U32, 2)),
    ("llama.attention.layer_norm_rms_epsilon", Raw(F32, 1e-5)),
    ("tokenizer.ggml.tokens", Raw(LIST, (TEXT, ["<s>", "é", ""]))),
    ("tokenizer.ggml.scores", Raw(LIST, (F32, [0.0, -1.0, 0.5]))),
    ("nested", Raw(LIST, (LIST, [(U32, [1, 2]), (TEXT, ["x"])]))),
]
TENSORS = [Info("a.weight", (64, 3), 2, 0), Info("b.weight", (7,), 0, 128), Info("c.weight", (256, 2), 12, 160)]


def write(folder: Path, data: bytes, name: str = "model.gguf") -> Path:
    file = folder / name
    file.write_bytes(data)
    return file
