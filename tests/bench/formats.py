"""`python -m tests.bench compare --formats`: a shape in every format, next to other programs on the same files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from engine.services.experiments.workloads.shapes import Shape, gptq_folder
from tests.bench import folders
from tests.bench.compare import Entrant
from tests.bench.gguf_files import TYPES, gguf_file
from tests.bench.programs import QUANTISING


class Format(NamedTuple):
    """``programs`` on the same file, (title, program) each: the first is Kvasir, which the others are compared with."""

    title: str
    files: Callable[[Shape, Path], Path]
    programs: tuple[tuple[str, str], ...] = (("Kvasir", "kvasir"),)


def _gguf(kind: str) -> Format:
    programs = (("Kvasir", "kvasir"), ("llama.cpp", "llama.cpp"))
    return Format(f"GGUF {kind}", lambda shape, root: gguf_file(shape, root, kind), programs)


FORMATS: dict[str, Format] = {
    "gptq": Format("GPTQ int4", gptq_folder),
    "awq": Format("AWQ int4", folders.awq_folder),
    "compressed": Format("compressed-tensors int4", folders.compressed_folder),
    "nf4": Format("bitsandbytes NF4", folders.nf4_folder, (("Kvasir", "kvasir"), ("transformers", "bitsandbytes"))),
    "int8": Format("LLM.int8", folders.int8_folder),
} | {kind.lower(): _gguf(kind) for kind in TYPES}
"""What files can be packed in: all of ``--formats all``."""
_QUANTISED = {  # the first load quantises and keeps, the second reads what was kept
    f"bf16-{method}": Format(
        f"bf16 as {method}",
        folders.plain_folder,
        (("Kvasir", f"kvasir {method}"), ("Kvasir again", f"kvasir {method} kept")),
    )
    for method in QUANTISING
}
KNOWN = FORMATS | _QUANTISED
"""What ``--formats`` knows. The file of 16 bits is three times as large as the others, so it is made only if asked for.
"""


def programs_on_formats(names: Sequence[str], shape: Shape, root: Path) -> list[Entrant]:
    """Kvasir and its rivals on every format of ``names``.

    The files are made once under ``root`` (about 1 GB each for a shape of 1B, 3 GB in 16 bits).
    """
    entrants = []
    for name in names:
        title, files, programs = KNOWN[name]
        for who, program in programs:
            ours = program.startswith("kvasir")
            entrants.append(Entrant(f"{who}, {title}", program, partial(files, shape, root), ours, name))
    return entrants
