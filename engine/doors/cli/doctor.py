"""`kvasir doctor`: what this machine offers, what was chosen, and why the rest declined."""

from __future__ import annotations

import importlib.util
import itertools
import logging
import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import NamedTuple

import torch
from rich.table import Table

from engine.base import installation
from engine.base.devices import make_current, traits
from engine.base.terminal import console as plain_console
from engine.compute.attention.interface import AttnProblem, AttnSpec
from engine.compute.attention.registry import choose
from engine.compute.attention.triton import pack_trial, trial
from engine.compute.layers.linear.base import Surroundings
from engine.compute.layers.linear.triton import resident
from engine.compute.layers.linear.triton.int4 import try_kernels
from engine.compute.layers.linear.triton.runtime import PATH
from engine.compute.layers.mlp import GatedMLP
from engine.compute.layers.moe import SparseMLP
from engine.compute.layers.norm import RMSNorm
from engine.compute.layers.recurrent import delta_rule
from engine.compute.layers.triton import delta, fused
from engine.compute.models.base import CausalLM
from engine.compute.native import remembered, shipped, triton_compiler
from engine.compute.native.instructions import VARIABLE, wanted
from engine.compute.native.library import find as native_library
from engine.compute.runner.graphs import NOT_HERE
from engine.config.states import RecurrentShape
from engine.library import paths as config
from engine.loading.capabilities import draws_there, forms, problem
from engine.loading.memory.bandwidth import measure_bandwidth
from engine.loading.memory.estimate import size
from engine.loading.memory.probe import (
    all_devices,
    choose_device,
    choose_dtype,
    described,
    probe,
    usable_cores,
    why_no_gpu,
)
from engine.loading.model import LoadedModel
from engine.loading.runners import resident_reasons
from engine.protocol import DeviceName, LoadOptions
from engine.services.client import CLOSE_SECONDS, EngineClient
from engine.services.packs.start import REASON

LIBRARIES = (
    "torch",
    "tokenizers",
    "safetensors",
    "msgspec",
    "starlette",
    "uvicorn",
    "websockets",
    "PySide6-Essentials",
)


class Kernel(NamedTuple):
    """Layers that compute in the same way. ``declined``: faster ways with their reasons."""

    part: str
    layers: int
    chosen: str
    declined: tuple[str, ...]


def run_doctor(model: str, device: str, options: LoadOptions) -> None:
    """Print it all. Raises errors whose message is a sentence."""
    logging.basicConfig(level=logging.ERROR)
    console = plain_console()
    path, draft = config.resolve(model, None)
    engine = EngineClient(device=device)
    try:
        console.print(_facts("Machine", machine_facts(device)))
        console.print(_facts("Versions", version_facts()))
        console.print(_facts("Compilers", compiler_facts(choose_device(device))))
        console.print(_facts("Folders", folder_facts()))
        card, _ = engine.load(path, draft, options)
        loaded = engine.model
        facts = [
            ("weights", f"{card.quantisation}, {size(loaded.fit.weights)}"),
            ("load", load_times(card.load_seconds)),
            ("context", f"{card.context:,} tokens; room for {loaded.fit.kv_tokens:,} in all"),
            ("draft", card.draft or card.draft_refused or "none"),
            ("captured steps", graphs_fact(loaded)),
            ("steps ahead", "the next one is launched before the last is read" if draws_there(loaded) else NOT_AHEAD),
        ]
        console.print(_facts(f"Model {card.name}", facts))
        console.print(_facts("Draft methods available", list(loaded.drafting.methods)))
        console.print(_kernel_table(loaded))
        for notice in filter(None, [card.computing, *card.notices]):
            console.print(notice, style="yellow")
    finally:
        engine.close(CLOSE_SECONDS)


NOT_AHEAD = "no: they are for a GPU on which Kvasir's kernels draw the tokens"


def graphs_fact(loaded: LoadedModel) -> str:
    """Say whether decoding steps are captured, or why not."""
    if not loaded.graphs or loaded.model is None:
        return f"not used: {NOT_HERE}"
    backends = [choose(problem(loaded.model, kv)).backend for kv in forms(loaded.stores[0])]
    planned = next((backend.name for backend in backends if not backend.captures), "")
    reason = loaded.model.uncaptured or (planned and f"the attention backend {planned} plans each step on the host")
    return f"not used: {reason}" if reason else "captured as shapes are met, and in idle moments"


def load_times(seconds: Mapping[str, float]) -> str:
    """Format the load time of the weights by cause: "1.2 s: copying 0.4 s, packing 0.8 s"."""
    parts = ", ".join(f"{what} {took:.2f} s" for what, took in seconds.items())
    return f"{sum(seconds.values()):.2f} s: {parts}"


def machine_facts(name: DeviceName) -> list[tuple[str, str]]:
    """Every device with its memory, and the read bandwidth of the one in use."""
    used = choose_device(name)
    facts = [("system", f"{platform.system()} {platform.release()}, Python {platform.python_version()}")]
    found = all_devices()
    for place in found:
        mark = " (in use)" if place == used else ""
        facts.append((f"{place}{mark}", _device_fact(place, place == used)))
    if used.type == "cpu" and (len(found) == 1 or (name == "auto" and found[1].type == "mps")):
        reason, advice = why_no_gpu("mps" if platform.system() == "Darwin" or len(found) > 1 else "cuda")
        facts.append(("GPU", f"none in use: {reason}. {advice}"))
    elif torch.version.hip is not None:
        facts.append(("ROCm", f"{torch.version.hip}; PyTorch calls its GPUs cuda, too"))
    facts.append(("GPU pack", pack_fact()))
    try:
        facts.append(("read bandwidth", f"{measure_bandwidth(used) / 1e9:.1f} GB/s measured on {used.type}"))
    except RuntimeError as error:
        facts.append(("read bandwidth", f"cannot be measured: {_first_line(error)}"))
    capability = torch.backends.cpu.get_cpu_capability()
    cores = f"{usable_cores()} of {os.cpu_count()} cores usable"
    facts.append(("processor", f"{capability}, {torch.get_num_threads()} threads of torch, {cores}"))
    return facts


def _device_fact(place: torch.device, used: bool) -> str:
    try:
        device = probe(place) if used else described(place)
    except RuntimeError as error:  # it was lost, or another program has it for itself
        return f"does not answer ({_first_line(error)}). Restart the machine if no other program keeps it for itself."
    return f"{device.name}, {size(device.free_bytes)} of {size(device.total_bytes)} free"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300].rstrip(".")


def pack_fact() -> str:
    """The GPU pack that this engine runs in, or why it runs in none."""
    pack = installation.pack()
    if pack is not None:
        return f"in use: {pack}"
    reason = os.environ.get(REASON, "")
    return f"not used: {reason}" if reason else "none in use; `kvasir gpu status` says whether one fits this machine"


def version_facts() -> list[tuple[str, str]]:
    facts = [("kvasir", config.version())]
    for name in LIBRARIES:
        try:
            facts.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            facts.append((name, "not installed"))
    return facts


def folder_facts() -> list[tuple[str, str]]:
    """List the folders where the user's files lie, once there are any."""
    return [
        ("data", str(config.heads_folder().parent)),
        ("trained heads", str(config.heads_folder())),
        ("cache", str(config.quantised_folder().parent)),
        ("quantised weights", str(config.quantised_folder())),
        ("saved chats", str(config.saved_cache_folder())),
    ]


def compiler_facts(device: torch.device) -> list[tuple[str, str]]:
    """List the compilers available for kernels, and whether the kernels compute correctly on ``device``."""
    triton = importlib.util.find_spec("triton")
    library, reason = native_library()
    wanting = ["the native code"] * bool(reason) + ["Triton"] * bool(triton and not triton_compiler.c_compiler())
    missing = (
        f"not found; {' and '.join(wanting)} would need one (the package gcc)" if wanting else "not found, not needed"
    )
    return [
        ("Triton", _triton_version() if triton else "not installed; torch's own operations are used"),
        ("Triton kernels", _triton_kernels(device)),
        ("compiled kernels", shipped.described(triton is not None and traits(device).kernels)),
        ("Triton's C compiler", (triton_compiler.c_compiler() or "not found") if triton else "not needed"),
        ("C compiler", triton_compiler.system_compiler() or missing),
        ("native code", reason or "built from the present source"),
        ("its instructions", f"{library.instructions if library else 'none'} ({VARIABLE}={wanted()})"),
    ]


def _triton_version() -> str:
    """Triton's version, by the distribution that brings it: PyTorch's builds for AMD GPUs have one of another name."""
    names = metadata.packages_distributions().get("triton", [])
    return ", ".join(f"{metadata.version(name)}{f' ({name})' * (name != 'triton')}" for name in names) or "unknown"


def _triton_kernels(device: torch.device) -> str:
    """Say whether a 4-bit product was computed correctly on a GPU, or why none is."""
    if not traits(device).kernels:
        return f"not used: they are for CUDA and ROCm, and this is {traits(device).title}"
    make_current(device)
    with remembered.afresh():
        reason = try_kernels(choose_dtype(device).dtype, device)
    return f"not used: {reason}" if reason else "tried on the GPU: a 4-bit product agrees with its definition"


def kernels(model: CausalLM) -> list[Kernel]:
    """The linear layers by what they are and how they compute."""
    counts: dict[tuple[str, str, tuple[str, ...]], int] = {}
    for name, linear in model.linears():
        declined = tuple(f"{path}: {reason}" for path, reason in linear.declined)
        key = (f"{name.rsplit('.', 1)[-1]} ({linear.kind})", linear.path, declined)
        counts[key] = counts.get(key, 0) + 1
    return [Kernel(part, layers, chosen, declined) for (part, chosen, declined), layers in counts.items()]


def attention_kernels(model: CausalLM) -> Iterator[Kernel]:
    """The attention backend for each kind of window that the layers have, and for drafted trees."""
    heads, latent = model.config.attention, model.config.attention.latent
    layers_of = Counter((heads.heads_of(layer).width, heads.windows[layer]) for layer in model.config.attending)
    for (head, window), layers in layers_of.items():
        kinds = [("attention", "dense", (head, head), model.kv_dtype)]
        if latent is not None:
            kinds = [
                ("attention to latents", "latent", (latent.rank + latent.rope, latent.rank), model.kv_dtype),
                ("attention to expanded latents", "wide", (head, latent.value), model.dtype),
            ]
        for (form, kind, widths, kept), tree in itertools.product(kinds, (False, True)):
            spec = AttnSpec(head**-0.5, window)
            traits = (model.device.type, model.dtype, spec, kind, tree)
            choice = choose(AttnProblem(*traits, head_dims=widths, kv_dtype=kept))
            part = form + (f", window of {window}" if window else "") + (", trees" if tree else "")
            yield Kernel(part, layers, choice.backend.name, tuple(f"{name}: {why}" for name, why in choice.declined))


WITHIN = "norm, gating and addition within products"
IN_ATTENTION = "rotation, writing and merging within attention"
FEW_EXPERTS = "norm, choice and addition within the products of experts"
APART = dict.fromkeys((WITHIN, IN_ATTENTION, FEW_EXPERTS), "kernels of their own")
"""Chosen where a kernel of several parts declines, if not torch."""


def fused_kernels(model: CausalLM) -> Iterator[Kernel]:
    """Yield the operations between a layer's products, each one fused kernel on a GPU where it has passed its trial."""
    if not traits(model.device).kernels:
        return
    config, kinds = model.config, (model.dtype, model.device)
    reasons: dict[str, str | None] = {}
    if config.attention.latent is None:
        turns = config.positions.rope.width(config.attention.head_dim) if any(config.positions.rotary) else 0
        kind = "rotation and writing of keys and values"
        reasons[kind] = pack_trial.disagrees("dense", (16, 16), config.attention.head_dim, turns, *kinds)
        own = config.attention
        widths, per_kv, window = (own.head_dim,) * 2, own.num_heads // own.num_kv_heads, any(own.windows)
        more = window, own.softcap is not None, *kinds, per_kv
        reason = trial.writes_wrongly("dense", widths, turns, *more) or trial.merges_wrongly("dense", widths, *more)
        reasons[IN_ATTENTION] = reason
    weight = torch.float32 if config.unit_offset_norms else model.dtype
    reasons["addition and norm"] = fused.norm_disagrees(config.hidden_size, weight, *kinds)
    if config.mlp.activation not in ("relu", "relu2"):
        clamped = config.moe is not None and config.moe.swiglu_limit is not None
        reasons["gating"] = fused.gate_disagrees("clamped" if clamped else config.mlp.activation, *kinds)
    block = next((mlp for layer in model.layers if isinstance(mlp := getattr(layer, "mlp", None), GatedMLP)), None)
    if block is not None:
        x, gated = (torch.empty(1, each.in_features, dtype=model.dtype, device=model.device)
                    for each in (block.gate_up, block.down))  # fmt: skip
        norm = torch.ones(config.hidden_size, dtype=weight, device=model.device)
        around = Surroundings(norm, config.rms_norm_eps, config.mlp.activation), Surroundings(stream=x)
        reason = block.gate_up.declines_within(x, around[0]) or block.down.declines_within(gated, around[1])
        reasons[WITHIN] = reason
    mixture = next((mlp for layer in model.layers if isinstance(mlp := getattr(layer, "mlp", None), SparseMLP)), None)
    if mixture is not None and mixture.few is not None:
        x = torch.empty(1, config.hidden_size, dtype=model.dtype, device=model.device)
        norm = torch.ones(config.hidden_size, dtype=weight, device=model.device)
        reasons[FEW_EXPERTS] = mixture.few.declines(x, RMSNorm(norm, config.rms_norm_eps, model.numerics))
    if isinstance(config.recurrent, RecurrentShape):
        reasons["delta rule"] = delta.disagrees(config.recurrent, *kinds, delta_rule.by_torch)
    for part, reason in reasons.items():
        declined = () if reason is None else (f"{PATH}: {reason}",)
        yield Kernel(part, config.num_layers, PATH if reason is None else APART.get(part, "torch"), declined)


RESIDENT = "resident products (a switch)"


def resident_kernels(model: CausalLM) -> Iterator[Kernel]:
    """Yield the products that the switch of this name would replace, by what one row of them says in a trial."""
    counts: Counter[str | None] = Counter()
    for layer, reason in resident_reasons(model) if traits(model.device).kernels else ():
        counts[reason or resident.disagrees(layer, 1, model.dtype, resident.NONE)] += 1
    for reason, count in counts.items():
        declined = () if reason is None else (f"{PATH}: {reason}",)
        yield Kernel(RESIDENT, count, "products that are not" if declined else PATH, declined)


def _kernel_table(loaded: LoadedModel) -> Table:
    table = Table("part", "layers", "kernel", "declined, and why", title="Kernels", title_justify="left", expand=False)
    for prefix, model in (("", loaded.model), ("draft: ", loaded.drafting.model)):
        if model is not None:
            for kernel in _all_kernels(model):
                declined = "\n".join(kernel.declined) or "nothing"
                table.add_row(prefix + kernel.part, str(kernel.layers), kernel.chosen, declined)
    return table


def _all_kernels(model: CausalLM) -> Iterator[Kernel]:
    for those in (kernels, attention_kernels, fused_kernels, resident_kernels):
        yield from those(model)


def _facts(title: str, facts: list[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 2))
    table.add_column()
    table.add_column(overflow="fold")  # nothing of a path is left out
    for name, value in facts:
        table.add_row(name, value)
    return table
