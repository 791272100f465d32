"""What keeping only the windows brings and costs: ``python -m tests.conformance.measure_windows [PAIRS]``.

A random model of Gemma 3's pattern (five layers with a window for each that sees everything). Bytes and the longest
context in a small budget, then one long prompt and its answer with the switch off and on, in turn.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import torch
import transformers

from engine.protocol import LoadOptions, Sampling
from engine.services.client import EngineClient
from tests.kit.checkpoints import EOS, write_tokenizer

LOCAL, GLOBAL = "sliding_attention", "full_attention"
WINDOW, PROMPT, ANSWER = 512, 4096, 64
ROOM = 40_000_000
"""Bytes for keys and values in the small budget."""
SHAPE = {
    "vocab_size": EOS + 1,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "layer_types": [LOCAL, LOCAL, LOCAL, LOCAL, LOCAL, GLOBAL] * 2,
    "sliding_window": WINDOW,
    "max_position_embeddings": 32_768,
    "eos_token_id": EOS,
    "bos_token_id": None,
    "pad_token_id": None,
}


def write(folder: Path) -> None:
    torch.manual_seed(0)
    transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**SHAPE)).save_pretrained(folder)
    write_tokenizer(folder)


def room(client: EngineClient, path: str) -> None:
    _, fit = client.load(path, options=LoadOptions(device="cpu"))
    memory = fit.weights + fit.activations + ROOM
    for on in (False, True):
        client.set("window_pages", on)
        card, fit = client.load(path, options=LoadOptions(device="cpu", memory=memory))
        print(f"{'on' if on else 'off'}: {fit.kv / 1e6:.1f} MB for the cache, a context of {card.context:,} tokens")


def speed(client: EngineClient, path: str, pairs: int) -> None:
    client.load(path, options=LoadOptions(device="cpu", context=8192))
    sampling = Sampling(temperature=0.0, max_tokens=ANSWER, ignore_eos=True)
    prompt = [(7 * i + i * i // 5) % EOS for i in range(PROMPT)]
    first: dict[bool, list[float]] = {False: [], True: []}
    step: dict[bool, list[float]] = {False: [], True: []}
    texts = set()
    for pair in range(pairs + 1):
        for on in (False, True) if pair % 2 else (True, False):
            client.set("window_pages", on)
            answer = client.answer(prompt, sampling)
            texts.add(tuple(answer.ids))
            if pair:  # the first pair warms up
                first[on].append(answer.timings.ttft_ms)
                step[on].append(1e3 * statistics.median(answer.gaps))
                print(f"  {'on' if on else 'off'}: {first[on][-1]:.0f} ms, {step[on][-1]:.2f} ms a token", flush=True)
    for what, times in (("prefill", first), ("decoding", step)):
        ratios = [off / on for off, on in zip(times[False], times[True], strict=True)]
        medians = [statistics.median(times[on]) for on in (False, True)]
        print(f"{what}: {medians[0]:.2f} ms off, {medians[1]:.2f} on; speed on/off {statistics.median(ratios):.3f}")
        print(f"  of {pairs} pairs: {', '.join(f'{ratio:.3f}' for ratio in ratios)}")
    print(f"{len(texts)} different texts")


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        client = EngineClient()
        try:
            room(client, folder)
            speed(client, folder, pairs)
        finally:
            client.close()


if __name__ == "__main__":
    main()
