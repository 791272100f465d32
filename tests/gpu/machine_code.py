"""The machine code of every Triton kernel, looked at without a GPU.

    python tests/gpu/machine_code.py [--sm 90 ...] [--kernel TEXT] [--dtype bfloat16] [--text FOLDER]

Layers are made on device "meta" and asked for a product; what they launch is not run but compiled for each target and
disassembled. For the innermost loop with tensor-core instructions (on sm_75 with multiplications, of dequantisation for
the whole kernel) it says how many instructions a weight costs, and what share of them the tensor cores' are with those
that feed them. At its memory's full speed an H200 has 3.7 for a weight of 4 bits, an H100 5.3, an RTX 2080 Ti 5.6, an
A100 5.9, an RTX 3090 10.8, a 5090 17, a 4090 23 (estimates from clock and bandwidth). "bars" are barriers in a turn of
the loop, "room" programs that fit on a multiprocessor at once, "KB" what one has asked for while it waits, in products
with 4,096 outputs: an H200 needs 20 (`runtime.UNDER_WAY`).
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from triton import __version__ as triton_version
from triton import compile, knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engine.compute.layers.activation import Gated
from engine.compute.layers.experts.few import FewExperts
from engine.compute.layers.experts.grouped import GroupedExperts
from engine.compute.layers.linear.base import Linear, Surroundings
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.linear.triton import resident, surrounded
from engine.compute.layers.linear.triton.experts import ExpertStack, SortedCut, SortedRows
from engine.compute.layers.linear.triton.kernels import blocks, bytes8, dense16, fma, gemm, planes
from engine.compute.layers.linear.triton.plane_layer import PlaneLinear
from engine.compute.layers.linear.triton.runtime import (
    DEEP,
    FIXED,
    FMA,
    SOME,
    SPLITS,
    Cut,
    RingCut,
    StripCut,
    Tile,
    WideTile,
    wide_tiles,
)
from engine.compute.layers.mlp import GatedMLP
from engine.compute.layers.norm import RMSNorm
from engine.compute.layers.numerics import Numerics
from engine.compute.native import triton_launch
from engine.config.feed_forward import MoEConfig
from tests.gpu.kernel_kinds import KINDS

TARGETS = (80, 86, 89, 90, 120)
TURING = 75
"""There 4-bit weights in planes have a kernel of their own, for float16, and others none."""
TYPES = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32", torch.uint8: "*u8", torch.int8: "*i8",
         torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64", torch.float64: "*fp64"}  # fmt: skip
MORE_SPILLED = 0 if triton_version == "3.6.0" else 16
"""Instructions that may be spilled beyond what the kernels were made for: 3.7.1 spills up to 14 more in some."""
OPTIONS = triton_launch.OPTIONS
INPUTS, OUTPUTS = 4096, 256


class Launch(NamedTuple):
    kernel: Any
    args: tuple[Any, ...]
    keywords: dict[str, Any]


class _Recorder:
    """Stands for a kernel: takes down its launches."""

    def __init__(self, kernel: Any, launches: list[Launch]) -> None:
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *args, **keywords: self.launches.append(Launch(self.kernel, args, keywords))


KERNELS = [(module, name) for module in (planes, bytes8, blocks) for name in ("multiply", "dequantise")]
KERNELS += [(gemm, "gemm"), (gemm, "add_parts"), (fma, "fma")]


@contextmanager
def recorded(names: Sequence[tuple[Any, str]] = KERNELS) -> Iterator[list[Launch]]:
    """The launches of these kernels of modules, which are not run."""
    launches: list[Launch] = []
    kernels = [(module, name, getattr(module, name)) for module, name in names]
    for module, name, kernel in kernels:
        setattr(module, name, _Recorder(kernel, launches))
    try:
        yield launches
    finally:
        for module, name, kernel in kernels:
            setattr(module, name, kernel)


def launches(
    kind: str, dtype: torch.dtype, cut: Cut | None, outputs: int = OUTPUTS, inputs: int = INPUTS, start: int = 0
) -> Launch:
    """What a layer of that kind launches for a product cut so; None: to dequantise from ``start`` on."""
    layer = KINDS[kind](outputs, inputs, dtype, torch.device("meta"), Numerics()).layer
    with recorded() as found:
        if cut is None:
            layer.launch_dequantise(start, outputs, torch.empty(outputs - start, inputs, dtype=dtype, device="meta"))
        else:
            x = torch.empty(cut.rows, inputs, dtype=dtype, device="meta")
            layer.launch_multiply(x, torch.empty(cut.rows, outputs, dtype=dtype, device="meta"), cut)
    return found[0]


def sorted_launches(
    kind: str, dtype: torch.dtype, cut: SortedCut, outputs: int = OUTPUTS, inputs: int = INPUTS
) -> Launch:
    """What eight experts of that kind, or "dense" ones, launch for rows that ask two each."""
    meta = torch.device("meta")
    if kind == "dense":
        layer: Linear = Dense(torch.empty(outputs, inputs, dtype=dtype, device=meta), None, Numerics())
    else:
        layer = KINDS[kind](outputs, inputs, dtype, meta, Numerics()).layer
    numbers = torch.empty(32, dtype=torch.int32, device=meta)
    rows = SortedRows(numbers, numbers, numbers.view(-1, 4), cut)
    with triton_launch.gathering() as found:
        ExpertStack([layer] * 8).multiply(torch.empty(16, inputs, dtype=dtype, device=meta), rows, 2)
    return Launch(found[0].kernel, found[0].args, found[0].keywords)


def surrounded_launches(
    kind: str, dtype: torch.dtype, cut: Tile, outputs: int = OUTPUTS, inputs: int = INPUTS
) -> dict[str, Launch]:
    """What a layer of that kind in planes launches for one row with what surrounds it in a layer: of q, k and v, of the
    output, of gates and ups."""
    layer = KINDS[kind](outputs, inputs, dtype, torch.device("meta"), Numerics()).layer
    assert isinstance(layer, PlaneLinear)
    layer.cut = lambda rows: cut  # type: ignore[method-assign]
    x, norm, stream = (torch.empty(1, size, dtype=dtype, device="meta") for size in (inputs, inputs, outputs))
    found = {}
    for name, around in {
        "norm": Surroundings(norm[0], 1e-5),
        "addition": Surroundings(stream=stream),
        "norm and gating": Surroundings(norm[0], 1e-5, "silu"),
        "gating": Surroundings(gating="silu"),
    }.items():
        with triton_launch.gathering() as launches:
            surrounded.multiply(layer, x, around)
        found[name] = Launch(launches[0].kernel, launches[0].args, launches[0].keywords)
    return found


def few_launches(
    kind: str, dtype: torch.dtype, moe: MoEConfig | None = None, hidden: int = 2048, shared: bool = True, rows: int = 1
) -> dict[str, Launch]:
    """What a mixture of experts of that kind in planes launches for few rows, by default of Qwen3.6-35B-A3B's shapes:
    its scores, its gates and ups, its sum; with a shared expert that is packed as they are and has a gate."""
    moe = moe or MoEConfig(256, 8, 512, (True,), normalised=True)

    def empty(*shape: int, of: torch.dtype = dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=of, device="meta")

    def layer(outputs: int, inputs: int) -> Any:
        made = KINDS[kind](16, inputs, dtype, torch.device("meta"), Numerics()).layer
        made.out_features, made.bias = outputs, empty(outputs) if moe.bias else None
        return made

    up, down = layer(2 * moe.intermediate_size, hidden), layer(hidden, moe.intermediate_size)
    scored = Dense(empty(moe.num_experts, hidden, of=torch.float32), None, Numerics())
    biases = empty(moe.num_experts, of=torch.float32) if moe.choice_bias else None
    router = SimpleNamespace(moe=moe, numerics=Numerics(), linear=scored, scales=None, bias=biases)
    gated = Gated("silu", Numerics())
    stacks = (ExpertStack([each] * moe.num_experts) for each in (up, down))
    block = GroupedExperts(cast(Any, router), *stacks, gated)
    mlp, gate = None, None
    if shared:
        mlp, gate = object.__new__(GatedMLP), Dense(empty(1, hidden), None, Numerics())
        mlp.gated, mlp.gate_up, mlp.down = gated, up, down
    few = FewExperts(block, mlp, gate, lambda x: None)
    x = empty(rows, hidden)
    with triton_launch.gathering() as found:
        judged = few.judge(x, x, 1.0, RMSNorm(empty(hidden), 1e-5, Numerics()))
        few.sum(judged, few.choose(judged), 1.0)
    names = ("scores", "gate and up", "sum")
    return {name: Launch(each.kernel, each.args, each.keywords) for name, each in zip(names, found, strict=True)}


def resident_launches(
    kind: str, dtype: torch.dtype, cut: StripCut | RingCut, outputs: int = OUTPUTS, inputs: int = INPUTS
) -> dict[str, Launch]:
    """What a layer of that kind in planes launches as a resident product: alone for one row and for eight, and for one
    with what surrounds it in a layer."""
    layer = KINDS[kind](outputs, inputs, dtype, torch.device("meta"), Numerics()).layer
    assert isinstance(layer, PlaneLinear)
    x, norm, stream = (torch.empty(1, size, dtype=dtype, device="meta") for size in (inputs, inputs, outputs))
    found = {}
    for name, (rows, around) in {
        "one row": (1, resident.NONE),
        "eight rows": (8, resident.NONE),
        "norm": (1, Surroundings(norm[0], 1e-5)),
        "addition": (1, Surroundings(stream=stream)),
        "norm and gating": (1, Surroundings(norm[0], 1e-5, "silu")),
        "eight rows, gating": (8, Surroundings(gating="silu")),
    }.items():
        out = torch.empty(rows, outputs // (2 if around.gating else 1), dtype=dtype, device="meta")
        with triton_launch.gathering() as launches:
            resident.launch(layer, x.expand(rows, -1), out, cut, around)
        found[name] = Launch(launches[0].kernel, launches[0].args, launches[0].keywords)
    return found


Specialised = tuple[dict[str, str], dict[tuple[int], Any], dict[tuple[int], list[list[Any]]]]


def specialised(launch: Launch) -> Specialised:
    """What Triton makes of the arguments, as a source to compile takes it: it compiles anew where that differs."""
    kernel = launch.kernel
    keywords = {name: value for name, value in launch.keywords.items() if name not in OPTIONS}
    values = dict(zip(kernel.arg_names, launch.args, strict=False)) | keywords
    unspecialised = {param.name for param in kernel.params if param.do_not_specialize}
    anywhere = {param.name for param in kernel.params if param.do_not_specialize_on_alignment}
    signature: dict[str, str] = {}
    constants: dict[tuple[int], Any] = {}
    attributes: dict[tuple[int], list[list[Any]]] = {}
    for place, name in enumerate(kernel.arg_names):
        value = values[name]
        if name in keywords or value is None or (type(value) is int and value == 1 and name not in unspecialised):
            signature[name], constants[(place,)] = "constexpr", value
            continue
        if isinstance(value, torch.Tensor):
            whole = value.is_meta or value.data_ptr() % 16 == 0
        else:
            whole = type(value) is int and value % 16 == 0
        if whole and name not in unspecialised | anywhere:
            attributes[(place,)] = [["tt.divisibility", 16]]
        numbers = "fp32" if isinstance(value, float) else "i32"
        signature[name] = TYPES[value.dtype] if isinstance(value, torch.Tensor) else numbers
    return signature, constants, attributes


def compiled(launch: Launch, sm: int) -> Any:
    """The kernel as Triton would compile it for these arguments."""
    options = {name: launch.keywords[name] for name in OPTIONS if name in launch.keywords}
    source = ASTSource
    if launch.kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        source = GluonASTSource
    return compile(source(launch.kernel, *specialised(launch)), GPUTarget("cuda", sm, 32), options)


def disassembled(program: Any) -> list[str]:
    """All instructions of compiled code, without their predicates."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(program.asm["cubin"])
        file.flush()
        return _parse(_run(str(knobs.nvidia.nvdisasm.path), "-c", file.name))[0]


class Code(NamedTuple):
    """``per_weight``: instructions of the inner loop (or the kernel) for each weight; ``wide``: 16-byte loads there.

    ``share``: of those, what tensor cores compute and what fetches their operands from shared memory; ``barriers``: of
    the loop. ``resident``: programs that a multiprocessor has room for.
    """

    per_weight: float
    share: float
    registers: int
    shared: int
    spilled: int
    wide: int
    operations: Counter[str]
    text: str
    barriers: int
    resident: int


def look(launch: Launch, sm: int, turn: int | None = None, marker: str | None = None) -> Code:
    """``turn``: elements that a turn of the loop with the marker handles; None: the weights of a product."""
    program = compiled(launch, sm)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(program.asm["cubin"])
        file.flush()
        tool = Path(knobs.nvidia.nvdisasm.path)
        text = _run(str(tool), "-c", file.name)
        usage = _run(str(tool.with_name("cuobjdump")), "-res-usage", file.name)
    instructions, loops = _parse(text)
    if marker is None:
        marker = "FFMA" if launch.kernel is fma.fma else "MMA"
    loop = min((body for body in loops if any(marker in line for line in body)), key=len, default=instructions)
    operations = Counter(line.split()[0] for line in loop)
    registers = int(next(iter(re.findall(r"REG:(\d+)", usage))))
    return Code(
        per_weight=len(loop) * 32 * launch.keywords["num_warps"] / (turn or _weights(launch)),
        share=sum(count for name, count in operations.items() if "MMA." in name or "LDSM" in name) / len(loop),
        registers=registers,
        shared=program.metadata.shared,
        spilled=sum(line.startswith(("STL", "LDL")) for line in instructions),
        wide=sum(count for name, count in operations.items() if name.startswith(("LDG", "LDGSTS")) and "128" in name),
        operations=operations,
        text=text,
        barriers=sum(count for name, count in operations.items() if name.startswith("BAR")),
        resident=room(registers, program.metadata.shared, launch.keywords["num_warps"], sm),
    )


MULTIPROCESSORS = {75: 68, 80: 108, 86: 82, 89: 128, 90: 132, 120: 170}
"""Of an RTX 2080 Ti, A100, RTX 3090, 4090, H200 and RTX 5090."""
_SHARED = {75: 64, 80: 164, 86: 100, 89: 100, 90: 228, 120: 100}
_WARPS = {75: 32, 80: 64, 86: 48, 89: 48, 90: 64, 120: 48}
"""Kilobytes of shared memory of a multiprocessor, and warps (CUDA C++ Programming Guide, compute capabilities)."""


def room(registers: int, shared: int, warps: int, sm: int) -> int:
    """Programs that fit on a multiprocessor at once: registers are given to a warp in 256s, and the driver takes 1 KB
    of shared memory for each."""
    by_registers = (1 << 16) // (-(-registers * 32 // 256) * 256 * warps)
    return min(by_registers, (_SHARED[sm] << 10) // (shared + 1024), _WARPS[sm] // warps, 32)


def under_way(launch: Launch, code: Code, sm: int, outputs: int) -> float:
    """Bytes of 4-bit weights that a multiprocessor has asked for while it waits, in a product of one tile of rows with
    so many outputs: of each program that there is and has room, all stages of its loop but the one that is used."""
    words = launch.keywords
    programs = -(-outputs // words["BN"]) * words.get("SPLITS", 1) / MULTIPROCESSORS[sm]
    return min(programs, code.resident) * max(1, words["num_stages"] - 1) * _weights(launch) / 2


def asked_first(launch: Launch, code: Code, sm: int, outputs: int) -> tuple[int, float]:
    """Of a resident product: loads or copies of 16 bytes of weights that a thread makes before it waits for the kernel
    before, or where it does not, for other warps, and by them the bytes that a multiprocessor has under way with so
    many outputs."""
    words, loads = launch.keywords, 0
    end = ("ACQBULK",) if words["WAITS"] else ("BAR",) if "AHEAD" in words else ("STS",)
    for line in _parse(code.text)[0]:
        name = line.split()[0]
        if "MMA" in name or name.startswith(end):
            break
        # Scales are narrower, and so is x where it is kept.
        loads += name.startswith(("LDG", "LDGSTS")) and "128" in name
    programs = outputs / resident.OUTPUTS / MULTIPROCESSORS[sm] if "AHEAD" in words else 1
    return loads, min(programs, code.resident) * loads * 16 * 32 * words["num_warps"]


def jumped(code: Code) -> float:
    """The share of the loop that its longest branch forward leaves out, where that is taken."""
    places: dict[str, int] = {}
    branches: list[tuple[int, str]] = []
    count = 0
    for line in code.text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            places[label[1]] = count
        if re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+.*;", line):
            target = re.search(r"BRA.*`\((\.L_x_\d+)\)", line)
            branches += [(count, target[1])] if target else []
            count += 1
    whole = sum(code.operations.values())
    loops = [(places[to], at) for at, to in branches if at - places[to] + 1 == whole]
    inside = [places[to] - at - 1 for at, to in branches for first, last in loops if first < at < places[to] <= last]
    return max(inside, default=0) / whole


def _weights(launch: Launch) -> int:
    """Weights that a program handles in one turn of its loop, or altogether where it has none."""
    words = launch.keywords
    if launch.kernel is gemm.gemm:
        return int(words["BN"] * words["TURN"] * 4)
    plane = words.get("PLANE", 1) * words.get("TURN", 4)
    if "TURNS" in words:  # a resident product: of a whole strip
        return int(resident.OUTPUTS * plane * words["WARPS"] * words["TURNS"])
    if launch.kernel is dense16.multiply_sorted:
        plane = words["PLANE"]
    return int(words.get("SLICES", 1) * words.get("SLOTS", 1) * words.get("BN", 1) * plane)


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _parse(text: str) -> tuple[list[str], list[list[str]]]:
    """All instructions without their predicates, and the bodies of all loops."""
    lines: list[str] = []
    labels: dict[str, int] = {}
    loops = []
    for line in text.splitlines():
        label = re.match(r"\s*(\.L_x_\d+):", line)
        if label:
            labels[label[1]] = len(lines)
        found = re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?(.*?);", line)
        if found:
            lines.append(found[1].strip())
            target = re.search(r"BRA.*`\((\.L_x_\d+)\)", found[1])
            # The endless loop behind the exit has one instruction.
            if target and labels.get(target[1], len(lines)) < len(lines) - 1:
                loops.append(lines[labels[target[1]] :])
    return lines, loops


def in_planes(kind: str) -> bool:
    layer = KINDS[kind](1, 512, torch.float16, torch.device("meta"), Numerics()).layer
    return isinstance(layer, PlaneLinear)


def cases(kind: str, sm: int) -> Iterator[tuple[str, Cut | None]]:
    """All that a layer of that kind launches on a target: a name for the rows, and the cut."""
    planes = in_planes(kind)
    if sm != TURING:
        yield from (("8", SOME), *((("8 deep", DEEP),) if planes else ()), ("16", FIXED))
        for cut in wide_tiles((sm // 10, sm % 10)) if planes else ():
            yield f"{cut.rows} x {cut.outputs}", cut
            if cut.rows == 32:
                yield f"32 in {SPLITS}", cut._replace(splits=SPLITS)
    elif planes:
        yield from ((str(cut.rows), cut) for cut in FMA)
    if sm != TURING or planes:
        yield "dequantise", None


def _looked_at(kind: str, sm: int, dtype: torch.dtype, options: argparse.Namespace) -> Iterator[tuple[str, Launch]]:
    if options.surrounded:
        for cut in (SOME, DEEP) if sm != TURING and in_planes(kind) else ():
            yield from surrounded_launches(kind, dtype, cut).items()
        return
    if options.few:
        yield from few_launches(kind, dtype).items() if sm != TURING and in_planes(kind) else ()
        return
    for rows, cut in cases(kind, sm):
        by_experts = options.experts and isinstance(cut, Tile | WideTile)
        yield rows, (sorted_launches if by_experts else launches)(kind, dtype, cut)  # type: ignore[arg-type]


def _kilobytes(kind: str, launch: Launch, code: Code, sm: int) -> str:
    """Under way for the 4,096 outputs of o and of down; "" for other kernels than products of planes."""
    if not in_planes(kind) or "num_stages" not in launch.keywords:
        return ""
    return f"{under_way(launch, code, sm, 4096) / 1024:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sm", type=int, nargs="+", default=[TURING, *TARGETS])
    parser.add_argument("--kernel", default="", help="only kinds whose name contains this")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--text", type=Path, help="write the disassembly into this folder")
    parser.add_argument("--experts", action="store_true", help="look at the products of experts instead")
    parser.add_argument("--few", action="store_true", help="look at a block of experts for few rows instead")
    parser.add_argument("--surrounded", action="store_true", help="look at products with what surrounds them instead")
    parser.add_argument("--operations", action="store_true", help="list the loop's commonest instructions")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    titles = "kind", "rows", "sm", "instr/weight", "share", "regs", "shared", "spills", "wide", "bars", "room", "KB"
    print("{:26} {:15} {:>4} {:>12} {:>6} {:>5} {:>7} {:>6} {:>5} {:>4} {:>4} {:>5}".format(*titles))
    for kind, sm in itertools.product([kind for kind in KINDS if options.kernel in kind], options.sm):
        for rows, launch in _looked_at(kind, sm, torch.float16 if sm == TURING else dtype, options):
            code = look(launch, sm)
            print(f"{kind:26} {rows:15} {sm:4} {code.per_weight:12.2f} {code.share:6.2f} {code.registers:5} "
                  f"{code.shared:7} {code.spilled:6} {code.wide:5} {code.barriers:4} {code.resident:4} "
                  f"{_kilobytes(kind, launch, code, sm):>5}", flush=True)  # fmt: skip
            if options.operations:
                print("    " + ", ".join(f"{count} {name}" for name, count in code.operations.most_common(14)))
            if options.text:
                options.text.mkdir(parents=True, exist_ok=True)
                name = re.sub(r"\W+", "_", f"{kind} {rows} sm{sm}")
                (options.text / f"{name}.txt").write_text(code.text)


if __name__ == "__main__":
    main()
