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
from typing import Any, NamedTuple, Protocol

from engine.bench.measure import timed
from engine.protocol import LoadOptions, Quantise, Sampling


class Speed(NamedTuple):
    """The speed of one run: seconds to the first token, and seconds a token after it."""

    prefill_seconds: float
    decode_seconds_per_token: float


class InferenceProgram(Protocol):
    """One program with one model in memory."""

    def load(self, model: Path, threads: int) -> dict[str, float]:
        """What the seconds went into, by what for; nothing where the program does not tell."""

    def run(self, prompt: list[int], tokens: int) -> Speed:
        """Answer the prompt with ``tokens`` tokens."""


class Kvasir:
    """This engine, driven as the server drives it: commands in, events out, the step loop in its own thread.

    With ``quantise`` the weights are packed while they are loaded. What is kept of that lies in a folder of its own
    next to the model's files, which ``fresh`` empties first.
    """

    def __init__(self, quantise: Quantise = "none", fresh: bool = False) -> None:
        self.quantise, self.fresh = quantise, fresh

    def load(self, model: Path, threads: int) -> dict[str, float]:
        import torch

        from engine.bench.client import EngineClient

        torch.set_num_threads(threads)
        if self.quantise != "none":
            home = model / f"kept-{self.quantise}"
            if self.fresh:
                shutil.rmtree(home, ignore_errors=True)
            os.environ["KVASIR_HOME"] = str(home)
        self.client = EngineClient()
        card, _ = self.client.load(str(model), options=LoadOptions(quantise=self.quantise))
        return card.load_seconds

    def run(self, prompt: list[int], tokens: int) -> Speed:
        sampling = Sampling(temperature=0.0, max_tokens=tokens, ignore_eos=True, seed=0)
        timings = self.client.answer(prompt, sampling).timings
        return Speed(timings.ttft_ms / 1000, (timings.total_ms - timings.ttft_ms) / 1000 / (tokens - 1))


class Transformers:
    """transformers with random bf16 weights of the shape in ``config.json``."""

    def load(self, model: Path, threads: int) -> dict[str, float]:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.set_num_threads(threads)
        config = AutoConfig.from_pretrained(model)
        del config.quantization_config
        with torch.device("meta"):
            skeleton = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = skeleton.to_empty(device=self.device).eval()
        noise = torch.empty(2**20, dtype=torch.bfloat16, device=self.device).normal_(0, 0.02)
        for parameter in self.model.parameters():
            flat = parameter.data.view(-1)
            for start in range(0, flat.numel(), noise.numel()):
                part = flat[start : start + noise.numel()]
                part.copy_(noise[: part.numel()])
        self._rebuild_rotary(config)
        return {}

    def _rebuild_rotary(self, config: Any) -> None:
        """Buffers made on the meta device are empty: make the rotary embedding's again."""
        self.model.model.rotary_emb = type(self.model.model.rotary_emb)(config).to(self.device)

    def run(self, prompt: list[int], tokens: int) -> Speed:
        import torch

        ids = torch.tensor([prompt], device=self.device)
        with torch.inference_mode():
            with timed() as prefill:
                output = self.model(ids, use_cache=True, logits_to_keep=1)
                token = output.logits[:, -1:].argmax(-1)
                token.item()  # a listener sees a token only once it is on the host
            cache = output.past_key_values
            with timed() as decode:
                for _ in range(tokens - 1):
                    output = self.model(token, past_key_values=cache, use_cache=True)
                    token = output.logits[:, -1:].argmax(-1)
                    token.item()
        return Speed(prefill.seconds, decode.seconds / (tokens - 1))


class BitsAndBytes(Transformers):
    """transformers with every linear layer held as bitsandbytes NF4 (blocks of 64), computed in bf16."""

    def load(self, model: Path, threads: int) -> dict[str, float]:
        super().load(model, threads)
        self._quantise(self.model)
        return {}

    def _quantise(self, module: Any) -> None:
        import bitsandbytes as bnb
        import torch

        for name, child in list(module.named_children()):
            if not isinstance(child, torch.nn.Linear):
                self._quantise(child)
                continue
            packed = bnb.nn.Linear4bit(
                child.in_features,
                child.out_features,
                bias=child.bias is not None,
                compute_dtype=torch.bfloat16,
                quant_type="nf4",
                device="meta",
            )
            weight: Any = bnb.nn.Params4bit(child.weight.data, requires_grad=False, quant_type="nf4")
            packed.weight = weight.to(self.device)
            setattr(module, name, packed.eval())


class BitsAndBytesFile(Transformers):
    """transformers on a folder of bitsandbytes NF4, whose codes are taken as they are; computed in bf16."""

    def load(self, model: Path, threads: int) -> dict[str, float]:
        import torch
        from safetensors import safe_open
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.set_num_threads(threads)
        config = AutoConfig.from_pretrained(model)
        del config.quantization_config
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        with torch.device("meta"):
            self.model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        with safe_open(model / "model.safetensors", "pt", device=str(self.device)) as file:
            names = set(file.keys())
            for name, child in list(self.model.named_modules()):
                if isinstance(child, torch.nn.Linear):
                    parts = {key: file.get_tensor(key) for key in names if key.startswith(f"{name}.weight")}
                    self.model.set_submodule(name, self._packed(name, child, parts))
                elif f"{name}.weight" in names:
                    child.weight = torch.nn.Parameter(file.get_tensor(f"{name}.weight"), requires_grad=False)
        self._rebuild_rotary(config)
        return {}

    def _packed(self, name: str, child: Any, parts: dict[str, Any]) -> Any:
        import bitsandbytes as bnb
        import torch

        packed = bnb.nn.Linear4bit(
            child.in_features,
            child.out_features,
            bias=False,
            compute_dtype=torch.bfloat16,
            quant_type="nf4",
            device="meta",
        )
        codes = parts.pop(f"{name}.weight")
        state = {key.removeprefix(f"{name}.weight."): tensor for key, tensor in parts.items()}
        packed.weight = bnb.nn.Params4bit.from_prequantized(codes, state, requires_grad=False, device=str(self.device))
        return packed.eval()


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
        self._warm_up()
        return {}

    def _warm_up(self) -> None:
        """Touch every page of the memory-mapped file once."""
        self.run([1, 2], 2)

    def run(self, prompt: list[int], tokens: int) -> Speed:
        import numpy as np

        self.llama.reset()
        self.llama._ctx.kv_cache_clear()
        with timed() as prefill:
            self.llama.eval(prompt)
            token = int(np.argmax(self._last_logits()))
        with timed() as decode:
            for _ in range(tokens - 1):
                self.llama.eval([token])
                token = int(np.argmax(self._last_logits()))
        return Speed(prefill.seconds, decode.seconds / (tokens - 1))

    def _last_logits(self) -> Any:
        import llama_cpp
        import numpy as np

        pointer = llama_cpp.llama_get_logits_ith(self.llama._ctx.ctx, -1)
        return np.ctypeslib.as_array(pointer, shape=(self.llama.n_vocab(),))


QUANTISING: tuple[Quantise, ...] = ("nf4", "int4", "int8")
PROGRAMS: dict[str, tuple[str, Callable[[], InferenceProgram]]] = {
    "kvasir": ("Kvasir, GPTQ int4", Kvasir),
    **{
        f"kvasir {method}{when}": (f"Kvasir, {method}", partial(Kvasir, method, fresh=not when))
        for method in QUANTISING
        for when in ("", " kept")
    },
    "llama.cpp": ("llama.cpp, Q4_0", LlamaCpp),
    "transformers": ("transformers, bf16", Transformers),
    "bitsandbytes": ("transformers + bitsandbytes NF4", BitsAndBytes),
    "bitsandbytes file": ("transformers + bitsandbytes", BitsAndBytesFile),
}
REQUIRES: dict[str, tuple[str, ...]] = {
    "kvasir": (),
    **{name: () for name in PROGRAMS if name.startswith("kvasir ")},
    "llama.cpp": ("llama_cpp", "gguf"),
    "transformers": ("transformers",),
    "bitsandbytes": ("transformers", "bitsandbytes"),
    "bitsandbytes file": ("transformers", "bitsandbytes"),
}
COMPARED = ("kvasir", "llama.cpp", "transformers", "bitsandbytes")
"""What a shape is compared with; the rest reads files of one format."""
