"""Begins answers of the models in some folders, as a process: ``python -m tests.kit.hand_over FOLDER...``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from msgspec.structs import replace

from engine.protocol import Sampling, keys
from engine.services.client import EngineClient

PROMPT = [7 * place % 60 for place in range(150)]
"""Neither whole pages nor whole groups of packed tokens."""
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0, ignore_eos=True, max_tokens=40),
    "sampled": Sampling(temperature=1.0, ignore_eos=True, max_tokens=40, frequency_penalty=0.5),
}
PLAIN = {keys.SPECULATION: "off"}


def load(client: EngineClient, folder: Path) -> None:
    """One with states is served over KIVI, which keeps recent tokens beside them."""
    client.set(keys.KV_KIND, "kivi" if folder.name.startswith("state") else "16bit")
    client.load(str(folder))


def begun(client: EngineClient, sampling: Sampling, tokens: int = 7) -> bytes:
    """The first tokens of an answer, for another engine."""
    return client.begin(PROMPT, replace(sampling, max_tokens=tokens), PLAIN)[1]


if __name__ == "__main__":
    torch.set_num_threads(1)
    with EngineClient(device="cpu") as engine:
        for folder in map(Path, sys.argv[1:]):
            load(engine, folder)
            for name, sampling in SAMPLINGS.items():
                (folder / name).write_bytes(begun(engine, sampling))
