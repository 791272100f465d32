"""What kernels that are launched early do before they wait, read from their PTX and machine code without a GPU.

    python tests/gpu/early_code.py [--sm 90 ...]

A kernel that was launched early may read nothing that a kernel of its step writes before it has waited, has to wait
once and in no loop, and should let the next kernel in before. :func:`of_ptx` follows every address to the parameters
that it comes from.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from engine.compute.layers.linear.triton.runtime import DEEP, SOME
from engine.compute.layers.triton import fused
from engine.compute.native import triton_launch
from tests.gpu import attention_code
from tests.gpu.machine_code import Launch, compiled, disassembled, launches, specialised, surrounded_launches

TARGETS = (90, 100, 120)
"""Those whose kernels may start early."""
WAIT, LET_IN = "griddepcontrol.wait", "griddepcontrol.launch_dependents"
WRITES = ("st.global", "red.", "atom.", "cp.async.bulk.global", "cp.reduce")
FETCHES = "cp.async.bulk.prefetch"
_NAME = re.compile(r"%?[A-Za-z_][\w.$]*")


class Before(NamedTuple):
    """``waits`` and ``lets_in``: how often a kernel does. The rest is of what stands before the first wait: the
    parameters from which the addresses come that are ``read``, ``fetched`` into a cache and ``written``, and whether a
    branch leads over the wait, forward or back, so that it lies in a loop or some threads do without."""

    waits: int
    lets_in: int
    read: frozenset[str] = frozenset()
    fetched: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    crossed: bool = False


def statements(ptx: str) -> list[str]:
    """Instructions and labels of the kernel, one after the other, without declarations and comments."""
    body = ptx[ptx.index("{", ptx.index(".entry")) + 1 :]
    body = re.sub(r"//.*", "", body)
    found = []
    for part in re.split(r"[;\n]", body):
        part = part.strip().lstrip("{").strip()
        if part and part != "}" and not part.startswith((".reg", ".loc", ".file", ".section", ".b8", ".b32", ".b64")):
            found += [label + ":" for label in re.findall(r"^(\$?\w+):", part)]
            found += [rest] if (rest := re.sub(r"^\$?\w+:", "", part).strip()) else []
    return found


def of_ptx(ptx: str, names: list[str]) -> Before:
    """Of one kernel, whose parameters have these names in their order."""
    lines = statements(ptx)
    waits = [place for place, line in enumerate(lines) if WAIT in line]
    lets_in = sum(LET_IN in line for line in lines)
    if not waits:
        return Before(0, lets_in)
    labels = {line[:-1]: place for place, line in enumerate(lines) if line.endswith(":")}
    crossed = False
    for place, line in enumerate(lines):
        if to := re.search(r"\bbra(?:\.uni)?\s+(\$?\w+)", line):
            crossed |= (place < waits[0]) != (labels[to[1]] < waits[0])
    found: dict[str, set[str]] = {"read": set(), "fetched": set(), "written": set()}
    comes_from: dict[str, frozenset[str]] = {}
    for line in lines[: waits[0]]:
        what, come = _followed(line, names, comes_from)
        if what:
            found[what] |= come
    return Before(len(waits), lets_in, **{name: frozenset(each) for name, each in found.items()}, crossed=crossed)


def _followed(line: str, names: list[str], comes_from: dict[str, frozenset[str]]) -> tuple[str, frozenset[str]]:
    """What an instruction does with memory, and the parameters its address comes from; ``comes_from`` goes on."""
    line = re.sub(r"^@!?%?\w+\s+", "", line)
    operation, _, operands = line.partition(" ")
    operation, _, more = operation.partition("\t")
    operands = f"{more} {operands}"
    if param := re.search(r"\[\w+_param_(\d+)", operands):
        source = frozenset([names[int(param[1])]]) if int(param[1]) < len(names) else frozenset()
    else:
        source = frozenset()
    addresses = frozenset[str]().union(
        *(
            comes_from.get(name, frozenset())
            for inside in re.findall(r"\[(.*?)\]", operands)
            for name in _NAME.findall(inside)
        )
    )
    plain = re.sub(r"\[.*?\]", "", operands)
    first, _, others = plain.partition("}," if plain.strip().startswith("{") else ",")
    taken = source.union(addresses, *(comes_from.get(name, frozenset()) for name in _NAME.findall(others)))
    if operation.startswith(WRITES):
        return "written", addresses | {"something"}
    for name in _NAME.findall(first):
        comes_from[name] = taken
    if operation.startswith(FETCHES):
        return "fetched", addresses
    reads = operation.startswith("ld") and ".param" not in operation and ".shared" not in operation
    return ("read", addresses) if reads or operation.startswith(("cp.async.c", "ldu")) else ("", frozenset())


def looked_at(launch: Launch, sm: int) -> tuple[Before, list[str]]:
    """What it does before it waits, of pointers alone, and its machine code up to there."""
    signature, _, _ = specialised(launch)
    names = [name for name, kind in signature.items() if kind != "constexpr"]
    program: Any = compiled(launch, sm)
    before = of_ptx(program.asm["ptx"], names)
    pointers = {name for name, kind in signature.items() if kind.startswith("*")} | {"something"}
    sets = {name: getattr(before, name) & pointers for name in ("read", "fetched", "written")}
    code = disassembled(program)
    ends = next((place for place, line in enumerate(code) if line.startswith("ACQBULK")), 0)
    return before._replace(**sets), code[:ends]


def early_launches(dtype: torch.dtype = torch.bfloat16, ahead: bool = True) -> Iterator[tuple[str, Launch]]:
    """Every kernel that may be launched early, as the decoding steps of an 8B launch them, early; ``ahead``: and with
    weights to fetch."""
    words = torch.empty(4096, 2048, dtype=torch.int16, device="meta")

    def made(name: str, launch: Callable[[], Launch]) -> tuple[str, Launch]:
        with triton_launch.early([words] * 99, 8 << 20 if ahead else 0):
            with triton_launch.gathering():  # the first of a step is not early
                fused.gate(torch.empty(1, 2048, dtype=dtype, device="meta"), "silu")
            return name, launch()

    for cut in (SOME, DEEP):
        for name in ("norm", "addition", "norm and gating", "gating"):
            yield made(
                f"{name}, {cut.slices}", lambda name=name, cut=cut: surrounded_launches("int4 g128", dtype, cut)[name]
            )
        yield made(f"product, {cut.slices}", lambda cut=cut: launches("int4 g128", dtype, cut))
    for name in ("int4 rows fp32", "MXFP4", "NF4 nested", "int4 g64 zeros"):
        yield made(name, lambda name=name: launches(name, dtype, SOME))
    for kind in ("dense", "fp8", "int8", "int4"):
        yield made(f"attention {kind}", lambda kind=kind: attention_code.whole(kind, dtype).launch)
    yield made("attention of rows", lambda: attention_code.attention("dense", dtype, rows=5).launch)
    yield made("merge", lambda: attention_code.combining(dtype).launch)
    x, weight = (torch.empty(shape, dtype=dtype, device="meta") for shape in ((1, 4096), (4096,)))

    def one(launch: Callable[[], object]) -> Launch:
        with triton_launch.gathering() as found:
            launch()
        return Launch(found[0].kernel, found[0].args, found[0].keywords)

    yield made("add and norm", lambda: one(lambda: fused.add_norm(x, x, 1.0, weight, 1e-5)))
    gates = torch.empty(1, 28672, dtype=dtype, device="meta")
    yield made("gate", lambda: one(lambda: fused.gate(gates, "silu")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sm", type=int, nargs="+", default=[90])
    for sm in parser.parse_args().sm:
        for name, launch in early_launches():
            before, code = looked_at(launch, sm)
            loads = sum(line.startswith("LDG") for line in code)
            fetches = sum(line.startswith(("UBLKPF", "CCTL.PF")) for line in code)
            read, fetched = (", ".join(sorted(each)) or "nothing" for each in (before.read, before.fetched))
            print(f"sm_{sm} {name:20} {len(code):4} instructions before it waits: {loads:3} loads ({read}), "
                  f"{fetches} fetches ({fetched})")  # fmt: skip


if __name__ == "__main__":
    main()
