"""The programs that a comparison runs: Kvasir and its peers behind one small interface, each in a process of its own.

Every program loads one model, then answers the same question: how long from a prompt of n token ids to its first
token, and how long for the tokens after it. Greedy, end-of-text ignored, one stream.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from engine.loading.memory.environment import bound_spinning
from engine.protocol import DeviceName, LoadOptions, Quantise, Sampling, keys
from engine.services.experiments.measures.timing import timed
from tests.bench.cases import Case

if TYPE_CHECKING:
    from tests.bench.sequences import HeldSequences


class RunSpeed(NamedTuple):
    """The speed of one run: seconds to the first token, and seconds a token after it."""

    prefill_seconds: float
    decode_seconds_per_token: float


def _measured(step: Callable[[Any], Any], prompt: Any, tokens: int) -> RunSpeed:
    """The speed of ``step``, which reads tokens and returns the likeliest one after them."""
    with timed() as prefill:
        token = step(prompt)
    with timed() as decode:
        for _ in range(tokens - 1):
            token = step(token)
    return RunSpeed(prefill.seconds, decode.seconds / (tokens - 1))


class InferenceProgram(Protocol):
    """One program with one model in memory."""

    def load(self, model: Path, threads: int) -> dict[str, float]:
        """Load the model; return the seconds of each part of the load, empty if the program does not tell."""

    def run(self, prompt: list[int], tokens: int) -> RunSpeed:
        """Answer the prompt with ``tokens`` tokens."""


class Kvasir:
    """This engine, driven as the server drives it: commands in, events out, the step loop in its own thread.

    With ``quantise`` the weights are packed while they are loaded. What is kept of that lies in a folder of its own
    next to the model's files, which ``fresh`` empties first.
    """

    def __init__(self, quantise: Quantise = "none", fresh: bool = False, device: DeviceName = "auto") -> None:
        self.quantise, self.fresh, self.device = quantise, fresh, device

    def load(self, model: Path, threads: int) -> dict[str, float]:
        bound_spinning()
        import torch

        from engine.services.client import EngineClient

        torch.set_num_threads(threads)
        if self.quantise != "none":
            home = model / f"kept-{self.quantise}"
            if self.fresh:
                shutil.rmtree(home, ignore_errors=True)
            os.environ["KVASIR_HOME"] = str(home)
        self.client = EngineClient()
        # As the others' programs have it. What random weights bear says nothing about a model.
        self.client.set(keys.ACTIVATIONS, "8bit")
        card, _ = self.client.load(str(model), options=LoadOptions(quantise=self.quantise, device=self.device))
        return card.load_seconds

    def run(self, prompt: list[int], tokens: int) -> RunSpeed:
        sampling = Sampling(temperature=0.0, max_tokens=tokens, ignore_eos=True, seed=0)
        timings = self.client.answer(prompt, sampling).timings
        return RunSpeed(timings.ttft_ms / 1000, (timings.total_ms - timings.ttft_ms) / 1000 / (tokens - 1))


class KvasirSteps:
    """This engine's model alone on the processor, as llama.cpp's benchmarks measure theirs: no scheduler or sampler."""

    sequences: HeldSequences | None = None
    streams = tokens = 0

    def load(self, model: Path, threads: int) -> dict[str, float]:
        kvasir = Kvasir(device="cpu")
        seconds = kvasir.load(model, threads)
        from engine.loading.model import spare_the_collector  # brings torch, whose threads are bounded before

        self.model = kvasir.client.model
        self.chunk = int(kvasir.client.state()[keys.TOKEN_BUDGET].value)
        # Steps are of this thread; the engine's would keep threads of its own (engine/loading/memory/bandwidth.py).
        kvasir.client.close()
        spare_the_collector()  # as the engine has it while a model is loaded
        return seconds

    def run(self, order: dict[str, Any], count: int) -> list[float]:
        """Seconds of each of ``count`` steps of a :class:`Case`, after one more; of a prompt, of computing it once."""
        case = msgspec.convert(order, Case)
        sequences = self._sequences(case.streams, case.context + case.rows + count)
        if case.kind != "prompt":
            sequences.hold(case.streams, case.context, self.chunk)
        seconds = []
        for step in (0, *range(1 if case.kind == "prompt" else count)):
            with timed() as forward:
                if case.kind == "prompt":
                    sequences.prompt(case.rows, self.chunk)
                else:
                    sequences.forward(case.streams, case.rows, case.context + step, case.rows)
            seconds.append(forward.seconds)
        return seconds[1:]

    def _sequences(self, streams: int, tokens: int) -> HeldSequences:
        """At least so many, and at least so long; no smaller ones than before, so that all sizes soon fit."""
        from tests.bench.sequences import HeldSequences

        if streams > self.streams or tokens > self.tokens:
            self.streams, self.tokens = max(streams, self.streams), max(tokens, self.tokens)
            self.sequences = None  # frees its memory first
            self.sequences = HeldSequences(self.model, self.streams, self.tokens)
        assert self.sequences is not None
        self.sequences.spread(tokens)
        return self.sequences


class Transformers:
    """transformers with random bf16 weights of the shape in ``config.json``."""

    def load(self, model: Path, threads: int) -> dict[str, float]:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.set_num_threads(threads)
        config = AutoConfig.from_pretrained(model)
        del config.quantization_config
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        with torch.device("meta"):
            self.model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        self.fill(model)
        # Buffers made on the meta device are empty: make the rotary embedding's again.
        self.model.model.rotary_emb = type(self.model.model.rotary_emb)(config).to(self.device)
        return {}

    def fill(self, model: Path) -> None:
        """Give the parameters, which are on the meta device, their values."""
        import torch

        self.model.to_empty(device=self.device)
        noise = torch.empty(2**20, dtype=torch.bfloat16, device=self.device).normal_(0, 0.02)
        for parameter in self.model.parameters():
            for part in parameter.data.view(-1).split(noise.numel()):
                part.copy_(noise[: part.numel()])

    def run(self, prompt: list[int], tokens: int) -> RunSpeed:
        import torch

        cache = None

        def step(ids: Any) -> Any:
            nonlocal cache
            output = self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = output.past_key_values
            token = output.logits[:, -1:].argmax(-1)
            token.item()  # a listener sees a token only once it is on the host
            return token

        with torch.inference_mode():
            return _measured(step, torch.tensor([prompt], device=self.device), tokens)


class BitsAndBytes(Transformers):
    """transformers on a folder of bitsandbytes NF4, whose codes are taken as they are; computed in bf16."""

    def fill(self, model: Path) -> None:
        import bitsandbytes as bnb
        import torch
        from safetensors import safe_open

        device = str(self.device)
        with safe_open(model / "model.safetensors", "pt", device=device) as file:
            names = set(file.keys())
            for name, child in list(self.model.named_modules()):
                weight = f"{name}.weight"
                if isinstance(child, torch.nn.Linear):
                    linear = bnb.nn.Linear4bit(
                        child.in_features,
                        child.out_features,
                        bias=False,
                        compute_dtype=torch.bfloat16,
                        quant_type="nf4",
                        device="meta",
                    )
                    state = {key: file.get_tensor(key) for key in names if key.startswith(weight)}
                    codes = state.pop(weight)
                    state = {key.removeprefix(f"{weight}."): tensor for key, tensor in state.items()}
                    linear.weight = bnb.nn.Params4bit.from_prequantized(
                        codes, state, requires_grad=False, device=device
                    )
                    self.model.set_submodule(name, linear.eval())
                elif weight in names:
                    child.weight = torch.nn.Parameter(file.get_tensor(weight), requires_grad=False)


class LlamaCpp:
    """llama.cpp on a GGUF file, through llama-cpp-python."""

    def load(self, model: Path, threads: int) -> dict[str, float]:
        import llama_cpp

        self.llama = llama_cpp.Llama(
            str(model),
            n_ctx=2048,
            n_gpu_layers=-1,  # as many as a build with GPU support can hold; a build without ignores it
            n_threads=threads,
            n_threads_batch=threads,
            n_batch=512,
            verbose=False,
        )
        self.run([1, 2], 2)  # touches every page of the memory-mapped file once
        return {}

    def run(self, prompt: list[int], tokens: int) -> RunSpeed:
        import llama_cpp
        import numpy as np

        self.llama.reset()
        self.llama._ctx.kv_cache_clear()

        def step(ids: list[int]) -> list[int]:
            self.llama.eval(ids)
            pointer = llama_cpp.llama_get_logits_ith(self.llama._ctx.ctx, -1)
            return [int(np.argmax(np.ctypeslib.as_array(pointer, shape=(self.llama.n_vocab(),))))]

        return _measured(step, prompt, tokens)


class PeerProgram(NamedTuple):
    """``requires``: packages, by the names that they are imported by."""

    title: str
    make: Callable[[], InferenceProgram | KvasirSteps]
    requires: tuple[str, ...] = ()


QUANTISING: tuple[Quantise, ...] = ("nf4", "int4", "int8")
PROGRAMS: dict[str, PeerProgram] = {
    "kvasir": PeerProgram("Kvasir, GPTQ int4", Kvasir),
    "kvasir steps": PeerProgram("Kvasir", KvasirSteps),
    **{
        f"kvasir {method}{when}": PeerProgram(f"Kvasir, {method}", partial(Kvasir, method, fresh=not when))
        for method in QUANTISING
        for when in ("", " kept")
    },
    "llama.cpp": PeerProgram("llama.cpp, Q4_0", LlamaCpp, ("llama_cpp", "gguf")),
    "transformers": PeerProgram("transformers, bf16", Transformers, ("transformers",)),
    "bitsandbytes": PeerProgram("transformers + bitsandbytes NF4", BitsAndBytes, ("transformers", "bitsandbytes")),
}
COMPARED = ("kvasir", "llama.cpp", "transformers", "bitsandbytes")
"""What a shape is compared with; the rest quantises while loading."""
