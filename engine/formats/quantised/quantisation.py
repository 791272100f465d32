"""Reading of quantisation settings: how config.json (or quantize_config.json) says that the weights are packed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from engine.base.errors import CheckpointError
from engine.base.files import read_json
from engine.config.model import Quantisation
from engine.config.raw import RawConfig
from engine.formats.quantised import awq, bitsandbytes, compressed, fp4, gptq
from engine.formats.quantised.fp4 import GROUPS
from engine.formats.quantised.layouts import PackedModule
from engine.formats.tensors import Tensors

READ = "GPTQ, AWQ (gemm), AutoRound, compressed-tensors, bitsandbytes, FP8, NVFP4 and MXFP4"
OTHER = f"Choose a version of the model that is packed by one of {READ}, or one that is not quantised."
GPTQ_FORMATS = {"gptq": 1, "gptq_v2": 0}
"""GPTQ's checkpoint_format -> what to add to a stored zero-point."""
GPTQ_BITS = (2, 3, 4, 8)
TABLES = ("nf4", "fp4")
FP4_LAYOUTS = {"nvfp4-pack-quantized": "nvfp4", "mxfp4-pack-quantized": "mxfp4"}
FP8_LAYOUTS = ("float-quantized", "naive-quantized")
"""compressed-tensors' names."""
MOST_OTHERS = 64


def read_quantisation(raw: RawConfig, folder: Path) -> Quantisation | None:
    """None for a model that is not quantised. Raises :class:`CheckpointError` for a method that is not supported."""
    values = raw.values.get("quantization_config") or raw.values.get("compression_config")
    if values is None:
        stated = read_json(folder / "quantize_config.json")
        if stated is None:
            return None
        values = {"quant_method": "gptq"} | stated
    if not isinstance(values, dict):
        raise raw.wrong('"quantization_config" is not a JSON object')
    method = values.get("quant_method")
    if method == "modelopt" and "quant_algo" not in values:
        outer = read_json(folder / "hf_quant_config.json") or {}
        values = values | (outer["quantization"] if isinstance(outer.get("quantization"), dict) else {})
    if method is None and (values.get("load_in_4bit") or values.get("load_in_8bit")):
        method = "bitsandbytes"  # as early versions of transformers wrote it
    found = FORMATS.get(method) if isinstance(method, str) else None
    if found is None:
        raise CheckpointError(f"This model is quantised by the method {method!r}, which Kvasir does not read. {OTHER}")
    return found.read(RawConfig(values, raw.file))


def _refuse(what: str) -> CheckpointError:
    return CheckpointError(f"This model is {what}, which Kvasir does not read. {OTHER}")


def _group(raw: RawConfig, key: str, default: int) -> int:
    size = raw.integer(key, default, least=-1)
    if size == 0:
        raise raw.wrong(f'"{key}" is 0')
    return size


# --- GPTQ ------------------------------------------------------------------------------------------------------------


def _gptq(raw: RawConfig) -> Quantisation:
    bits, group = _gptq_bits(raw, None), _group(raw, "group_size", -1)
    layout = raw.values.get("checkpoint_format") or raw.values.get("format") or "gptq"
    if not isinstance(layout, str) or layout not in GPTQ_FORMATS:
        raise _refuse(f"stored in the GPTQ layout {layout!r}")
    if raw.values.get("pack_dtype", "int32") not in ("int32", "torch.int32"):
        raise CheckpointError(
            f"This GPTQ model is packed in {raw.values['pack_dtype']}, and Kvasir reads int32. {OTHER}"
        )
    return Quantisation(
        method="gptq",
        bits=bits,
        group_size=group,
        act_order=raw.flag("desc_act", False),
        symmetric=raw.flag("sym", True),
        zero_offset=GPTQ_FORMATS[layout],
        others=_overrides(raw, bits, group),
    )


def _gptq_bits(raw: RawConfig, default: int | None) -> int:
    bits = raw.integer("bits", default)
    if bits not in GPTQ_BITS:
        raise CheckpointError(
            f"This model is quantised by GPTQ to {bits} bits, and Kvasir reads 2, 3, 4 and 8. {OTHER}"
        )
    return bits


def _overrides(raw: RawConfig, bits: int, group: int) -> tuple[tuple[int, int], ...]:
    """The packings of GPTQModel's per-module rules; which module has which, the tensors show."""
    dynamic = raw.values.get("dynamic")
    if not isinstance(dynamic, dict):
        return ()
    rules = (RawConfig(rule, raw.file) for rule in dynamic.values() if isinstance(rule, dict))
    return _others(raw, (bits, group), [(_gptq_bits(rule, bits), _group(rule, "group_size", group)) for rule in rules])


def _others(raw: RawConfig, usual: tuple[int, int], found: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    others = tuple(packing for packing in dict.fromkeys(found) if packing != usual)
    if len(others) > MOST_OTHERS:
        raise raw.wrong(f"it packs modules in {len(others)} different ways")
    return others


# --- AWQ -------------------------------------------------------------------------------------------------------------


def _awq(raw: RawConfig) -> Quantisation:
    version = raw.values.get("version") or raw.values.get("format") or "gemm"
    if not isinstance(version, str) or version.lower() != "gemm":
        raise _refuse(f"stored in the AWQ layout {version!r}")
    bits = raw.integer("bits" if "bits" in raw.values else "w_bit")
    if bits != 4:
        raise CheckpointError(f"This model is quantised by AWQ to {bits} bits, and Kvasir reads 4. {OTHER}")
    return Quantisation(
        method="awq",
        bits=4,
        group_size=_group(raw, "group_size" if "group_size" in raw.values else "q_group_size", 128),
        symmetric=not raw.flag("zero_point", True),
    )


# --- AutoRound -------------------------------------------------------------------------------------------------------


def _auto_round(raw: RawConfig) -> Quantisation:
    """Intel's (Cheng et al. 2023, arXiv 2309.05516): rounding of its own, in modules as GPTQ's or AWQ's files have.

    Modules of ``extra_config`` are packed otherwise, or have 16 bits and are not.
    """
    layout, own = raw.values.get("packing_format", "auto_round:auto_gptq"), raw.values.get("extra_config")
    if raw.values.get("data_type", "int") != "int":
        raise _refuse(f"packed by AutoRound as {raw.values['data_type']!r}")
    rules = {name: rule for name, rule in own.items() if isinstance(rule, dict)} if isinstance(own, dict) else {}
    packed = {name: rule for name, rule in rules.items() if rule.get("bits") not in (16, 32)}
    if layout in ("auto_round:auto_gptq", "auto_round:gptq"):
        as_gptq = {"checkpoint_format": "gptq", "desc_act": False, "dynamic": packed}
        return _gptq(RawConfig(raw.values | as_gptq, raw.file))
    if layout in ("auto_round:auto_awq", "auto_round:awq") and not packed:
        as_awq = {"version": "gemm", "zero_point": not raw.flag("sym", True)}
        return _awq(RawConfig(raw.values | as_awq, raw.file))
    raise _refuse(f"stored in the AutoRound layout {layout!r}" + (" with modules of several kinds" if packed else ""))


# --- compressed-tensors ----------------------------------------------------------------------------------------------


def _compressed(raw: RawConfig) -> Quantisation:
    schemes = raw.values.get("config_groups")
    if not isinstance(schemes, dict) or not schemes or not all(isinstance(s, dict) for s in schemes.values()):
        raise raw.wrong('"config_groups" does not say how modules are packed')
    sparsity = raw.values.get("sparsity_config")
    if isinstance(sparsity, dict) and sparsity.get("format", "dense") != "dense":
        raise _refuse(f"stored sparsely, in the compressed-tensors layout {sparsity.get('format')!r}")
    if raw.values.get("transform_config"):
        raise _refuse("rotated as it runs (compressed-tensors with transforms)")
    found, tables, fp8 = [], set(), False
    block: tuple[int, int] | None = None
    for scheme in schemes.values():
        layout = scheme.get("format") or raw.values.get("format")
        if not isinstance(layout, str):
            raise _refuse(f"stored in the compressed-tensors layout {layout!r}")
        if layout in FP4_LAYOUTS:
            tables.add(FP4_LAYOUTS[layout])
        elif layout in FP8_LAYOUTS and _numbers(scheme) == "float":
            fp8, block = True, _block(raw, scheme["weights"].get("block_structure")) or block
        elif layout != "pack-quantized":
            raise _refuse(f"stored in the compressed-tensors layout {layout!r}")
        elif scheme.get("input_activations") is not None:
            raise _refuse("made for activations that are quantised too (compressed-tensors)")
        else:
            found.append(_scheme(RawConfig(scheme, raw.file)))
    if len(tables) > 1 or (tables and found):
        raise _refuse("packed in several ways at once (compressed-tensors)")
    if tables:
        table = tables.pop()
        return Quantisation("compressed-tensors", 4, GROUPS[table], table=table, fp8=fp8, block=block)
    if not found:
        return Quantisation("fp8", 8, fp8=True, block=block)
    bits, group, symmetric, act_order = found[0]
    return Quantisation(
        fp8=fp8,
        block=block,
        method="compressed-tensors",
        bits=bits,
        group_size=group,
        act_order=act_order,
        symmetric=symmetric,
        others=_others(raw, (bits, group), [(bits, group) for bits, group, *_ in found]),
    )


def _numbers(scheme: dict[str, Any]) -> Any:
    """The type of the weights' numbers."""
    weights = scheme.get("weights")
    return weights.get("type") if isinstance(weights, dict) else None


def _block(raw: RawConfig, stated: Any) -> tuple[int, int] | None:
    """Rows and columns that share a scale; None where nothing is stated."""
    if stated is None:
        return None
    if not isinstance(stated, list) or len(stated) != 2 or not all(type(n) is int and n > 0 for n in stated):
        raise raw.wrong(f"blocks of {stated!r} are not a pair of whole numbers")
    return stated[0], stated[1]


def _scheme(raw: RawConfig) -> tuple[int, int, bool, bool]:
    """Bits, group size, whether symmetric, whether the groups follow an order of their own."""
    values = raw.values.get("weights")
    if not isinstance(values, dict):
        raise raw.wrong('a group of "config_groups" does not say how its weights are packed')
    weights = RawConfig(values, raw.file)
    kind, bits, strategy = values.get("type", "int"), weights.integer("num_bits", 8), values.get("strategy")
    if kind != "int" or not 2 <= bits <= 8:
        raise _refuse(f"packed in {bits}-bit numbers of the type {kind!r}")
    grouped = values.get("group_size") is not None and values["group_size"] != -1
    strategy = strategy or ("group" if grouped else "channel")
    if strategy not in ("group", "channel"):
        raise _refuse(f"packed by the compressed-tensors strategy {strategy!r}")
    group = _group(weights, "group_size", -1) if strategy == "group" else -1
    order = values.get("actorder")
    return bits, group, weights.flag("symmetric", True), order is True or order == "group"


# --- bitsandbytes ----------------------------------------------------------------------------------------------------


def _bitsandbytes(raw: RawConfig) -> Quantisation:
    four = raw.flag("load_in_4bit", raw.flag("_load_in_4bit", False))
    eight = raw.flag("load_in_8bit", raw.flag("_load_in_8bit", False))
    if four == eight:
        raise raw.wrong('"quantization_config" does not say whether bitsandbytes packed 4 or 8 bits')
    if eight:
        return Quantisation(method="bitsandbytes", bits=8)
    table = raw.values.get("bnb_4bit_quant_type", "fp4")
    if table not in TABLES:
        raise _refuse(f"packed in the bitsandbytes type {table!r}")
    return Quantisation(method="bitsandbytes", bits=4, table=table)


# --- MXFP4 -----------------------------------------------------------------------------------------------------------


def _mxfp4(raw: RawConfig) -> Quantisation:
    """gpt-oss' experts. Which modules are not packed (``modules_to_not_convert``), the tensors show."""
    return Quantisation(method="mxfp4", bits=4, group_size=32)


# --- FP8 and NVFP4 ---------------------------------------------------------------------------------------------------


def _fp8(raw: RawConfig) -> Quantisation:
    """FP8 in the formats of DeepSeek-V3 and of transformers. The tensors show which modules are not converted."""
    return Quantisation("fp8", 8, fp8=True, block=_block(raw, raw.values.get("weight_block_size")))


def _modelopt(raw: RawConfig) -> Quantisation:
    """NVIDIA's. Modules in FP8 and in 4 bits may stand side by side ("MIXED_PRECISION")."""
    algorithm = raw.values.get("quant_algo")
    if algorithm == "FP8":
        return Quantisation("fp8", 8, fp8=True)
    if algorithm not in ("NVFP4", "MIXED_PRECISION"):
        raise _refuse(f"packed by ModelOpt as {algorithm!r}")
    return Quantisation("modelopt", 4, GROUPS["nvfp4"], table="nvfp4", fp8=True)


class PackedFormat(NamedTuple):
    """A way to pack weights in safetensors: ``read`` takes the settings of config.json, and ``packed`` looks at one
    module's tensors in the headers: how it is packed, or None where it is not. Without it no single modules are packed.
    """

    read: Callable[[RawConfig], Quantisation]
    packed: Callable[[Tensors, Quantisation, str, int, int], PackedModule | None] | None = None


FORMATS: dict[str, PackedFormat] = {}
"""By the method as config.json writes it."""


def register(method: str, format_: PackedFormat) -> None:
    """From now on checkpoints quantised by the method are read."""
    FORMATS[method] = format_


register("gptq", PackedFormat(_gptq, gptq.packed))
register("awq", PackedFormat(_awq, awq.packed))
register("auto-round", PackedFormat(_auto_round))
register("intel/auto-round", PackedFormat(_auto_round))
register("compressed-tensors", PackedFormat(_compressed, compressed.packed))
register("bitsandbytes", PackedFormat(_bitsandbytes, bitsandbytes.packed))
register("mxfp4", PackedFormat(_mxfp4))
register("fp8", PackedFormat(_fp8))
register("modelopt", PackedFormat(_modelopt, fp4.packed))
