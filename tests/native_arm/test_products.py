"""The native code on ARM, and by another compiler, compared bit for bit with plain C here.

ARM's is compiled by a cross compiler and run by an emulator: Debian's packages gcc-aarch64-linux-gnu and qemu-user.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.compute.native.build import FLAGS, FOLDER, SOURCES, compilers
from engine.compute.native.instructions import DOTPROD, I8MM, PORTABLE, InstructionSet, sets_of
from engine.compute.native.triton_compiler import zig

ARM = {each.name: each for each in sets_of("aarch64")}
CROSS, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
PROCESSORS = {PORTABLE: "cortex-a53", DOTPROD: "neoverse-n1", I8MM: "max"}
"""What the emulator calls a processor that has each set and none above it."""

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")]


@pytest.fixture
def emulated() -> None:
    for name in (CROSS, EMULATOR):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")


def compiled(
    compiler: Sequence[str], instructions: InstructionSet, program: Path, link: Sequence[str] = ("-static",)
) -> Path:
    """The program of products.c with the native code's sources, without a warning."""
    flags = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")]
    # Where multiplying and adding are one instruction they would be rounded once.
    flags += ["-Werror", "-ffp-contract=off", '-DSOURCE_HASH=""', f"-I{FOLDER}", *instructions.flags]
    sources = [str(Path(__file__).with_name("products.c")), *map(str, SOURCES)]
    subprocess.run([*compiler, *flags, "-o", str(program), *sources, *link, "-lm"], check=True, capture_output=True)
    return program


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    program = compiled(["gcc"], InstructionSet(PORTABLE, "plain C"), tmp_path_factory.mktemp("plain") / "products")
    lines = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) == len({line.partition(":")[0] for line in lines}) > 1000
    return lines


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("name", ARM)
def test_results_are_those_of_plain_c(name: str, expected: list[str], tmp_path: Path) -> None:
    program = compiled([CROSS], ARM[name], tmp_path / "products")
    command = [EMULATOR, "-cpu", PROCESSORS[name], str(program), name]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.usefixtures("emulated")
def test_a_processor_is_not_taken_for_a_better_one(tmp_path: Path) -> None:
    program = compiled([CROSS], ARM[PORTABLE], tmp_path / "products")
    for name, lacking in ((PORTABLE, DOTPROD), (PORTABLE, I8MM), (DOTPROD, I8MM), (PORTABLE, "avx2")):
        command = [EMULATOR, "-cpu", PROCESSORS[name], str(program), lacking]
        assert subprocess.run(command, check=False, capture_output=True).returncode == 2


@pytest.mark.skipif(zig() is None, reason="the package ziglang is not installed; `make test-tritons` gets it")
def test_zig_makes_the_same(expected: list[str], tmp_path: Path) -> None:
    program = compiled(compilers()[-1], InstructionSet(PORTABLE, "plain C"), tmp_path / "products", link=())
    found = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    assert found == expected
