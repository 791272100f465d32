"""Models of random weights to plan and to load, and what a load really holds."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FunctionType, ModuleType

import torch

from engine.compute.layers.embedding import StoredEmbedding
from engine.protocol import LoadOptions
from engine.services.client import EngineClient
from engine.services.experiments.workloads.shapes import Shape, gptq_folder
from tests.bench import folders
from tests.bench.gguf_files import gguf_file

MAKERS: dict[str, Callable[[Shape, Path], Path]] = {
    "bf16": lambda shape, root: folders.plain_folder(shape, root),
    "GPTQ": lambda shape, root: gptq_folder(shape, root, packed_head=False),
    "NF4": folders.nf4_folder,
    "Q4_K_M": lambda shape, root: gguf_file(shape, root, "Q4_K_M"),
    "Q8_0": lambda shape, root: gguf_file(shape, root, "Q8_0"),
}
SMALL = Shape("small", layers=4, hidden=512, ffn=1536, heads=8, kv_heads=2, vocabulary=4096, context=2048)
TIED = replace(SMALL, name="small-tied", tied=True)


@contextmanager
def loaded(path: Path, options: LoadOptions) -> Iterator[tuple[EngineClient, int]]:
    """An engine with the model, and the bytes of all tensors that can be reached from it, each memory once."""
    with EngineClient() as client:
        client.load(str(path), options=options)
        yield client, _reached(client.model.model, client.model.stores)


def _reached(*roots: object) -> int:
    memories: dict[int, int] = {}
    seen: set[int] = set()
    left: list[object] = list(roots)
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, type | ModuleType | FunctionType | torch.dtype | torch.device):
            continue
        seen.add(id(each))
        if isinstance(each, torch.Tensor):
            storage = each.untyped_storage()
            memories[storage.data_ptr()] = storage.nbytes()
        elif not isinstance(each, StoredEmbedding) or each.storage_size():  # what stays in the file is no memory
            left += gc.get_referents(each)
    return sum(memories.values())
