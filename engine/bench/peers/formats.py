"""``kvasir bench --formats``: one shape in every format, compared with other programs on the same files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from engine.bench import folders
from engine.bench.gguf_files import gguf_file
from engine.bench.peers.compare import ProgramFigures, row
from engine.bench.peers.entrants import Entrant, Result, course, race
from engine.bench.peers.programs import QUANTISING
from engine.bench.shapes import Shape
from engine.protocol import Quantise


class Format(NamedTuple):
    """Programs on the same file, with their titles: ``own`` are Kvasir's, whose first one the others are compared with,
    ``rivals`` other people's."""

    title: str
    files: Callable[[Shape, Path], Path]
    rivals: tuple[tuple[str, str], ...] = ()
    own: tuple[tuple[str, str], ...] = (("Kvasir", "kvasir"),)


def _gguf(kind: str) -> Format:
    return Format(f"GGUF {kind}", lambda shape, root: gguf_file(shape, root, kind), (("llama.cpp", "llama.cpp"),))


def _quantised(method: Quantise) -> Format:
    """The first load quantises and keeps, the second reads what was kept."""
    own = (("Kvasir", f"kvasir {method}"), ("Kvasir again", f"kvasir {method} kept"))
    return Format(f"bf16 as {method}", folders.plain_folder, own=own)


FORMATS: dict[str, Format] = {
    "gptq": Format("GPTQ int4", folders.gptq_folder),
    "awq": Format("AWQ int4", folders.awq_folder),
    "compressed": Format("compressed-tensors int4", folders.compressed_folder),
    "nf4": Format("bitsandbytes NF4", folders.nf4_folder, (("transformers", "bitsandbytes file"),)),
    "int8": Format("LLM.int8", folders.int8_folder),
    "q4_0": _gguf("Q4_0"),
    "q4_k": _gguf("Q4_K"),
    "q5_k": _gguf("Q5_K"),
    "q6_k": _gguf("Q6_K"),
    "q8_0": _gguf("Q8_0"),
    "iq4_xs": _gguf("IQ4_XS"),
}
"""What files can be packed in: all of ``--formats all``."""
KNOWN = FORMATS | {f"bf16-{method}": _quantised(method) for method in QUANTISING}
"""What ``--formats`` knows. The file of 16 bits is three times as large as the others, so it is made only if asked for.
"""


class FormatRow(msgspec.Struct, frozen=True):
    """One program on one format. The ratios of ``figures`` are Kvasir's speed on this format over this program's."""

    format: str
    file_bytes: int
    figures: ProgramFigures


class FormatFigures(msgspec.Struct, frozen=True):
    shape: str
    prompt_tokens: int
    decode_tokens: int
    rounds: int
    rows: list[FormatRow]
    absent: list[str]


def measure_formats(
    shape: Shape,
    names: Sequence[str],
    root: Path,
    *,
    prompt_tokens: int = 512,
    decode_tokens: int = 64,
    rounds: int = 3,
    threads: int = 2,
    say: Callable[[str], None] = lambda line: None,
) -> FormatFigures:
    """Load every format of ``names`` in Kvasir and in its rivals, then run all in turn.

    The files are made once under ``root`` (about 1 GB each for a shape of 1B, 3 GB in 16 bits).
    """
    entrants, formats = [], {}
    for name in names:
        known = KNOWN[name]
        for title, program in (*known.own, *known.rivals):
            entrants.append(Entrant(f"{title}, {known.title}", program, partial(known.files, shape, root)))
            formats[entrants[-1].title] = name
    results, absent = race(entrants, course(shape, prompt_tokens, decode_tokens, rounds, threads), say)
    ours: dict[str, Result] = {}
    for result in results:
        if result.entrant.program.startswith("kvasir"):
            ours.setdefault(formats[result.entrant.title], result)
    rows = [
        FormatRow(name, result.size, row(result, ours.get(name), prompt_tokens))
        for result in results
        for name in (formats[result.entrant.title],)
    ]
    return FormatFigures(shape.name, prompt_tokens, decode_tokens, rounds, rows, absent)
