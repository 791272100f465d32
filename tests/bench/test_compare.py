"""`python -m tests.bench compare` on models small enough for a test: programs next to each other, and formats."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from typer.testing import CliRunner

from engine.formats.open import open_checkpoint
from engine.services.experiments.measures.timing import timed
from engine.services.experiments.workloads.shapes import Shape
from tests.bench import __main__ as tools
from tests.bench.compare import compare, named_programs
from tests.bench.folders import plain_folder
from tests.bench.formats import FORMATS, programs_on_formats
from tests.bench.programs import PROGRAMS, RunSpeed
from tests.bench.report import AllFigures
from tests.bench.worker import LoadFigures, ProgramWorker

TINY = Shape("tiny", layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, vocabulary=504, context=1024)
SMALL = Shape("tiny", layers=1, hidden=256, ffn=512, heads=4, kv_heads=2, vocabulary=512, context=1024)


class WorkerHere:
    """A :class:`ProgramWorker` without a process."""

    def __init__(self, name: str, model: Path, threads: int) -> None:
        self.program = PROGRAMS[name].make()
        with timed() as load:
            parts = self.program.load(model, threads)
        self.load = LoadFigures(load.seconds, 0, 0, parts)

    def __enter__(self) -> WorkerHere:
        return self

    def __exit__(self, *_: object) -> None:
        self.program.client.close()

    def run(self, prompt: list[int], tokens: int) -> RunSpeed:
        return self.program.run(prompt, tokens)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run in this process, all of them Kvasir's."""
    monkeypatch.setattr("tests.bench.compare.ProgramWorker", WorkerHere)


@pytest.mark.usefixtures("here")
def test_programs_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.compare.missing", lambda name: "" if name == "kvasir" else "a_package")
    found = compare(
        TINY,
        named_programs(["kvasir", "llama.cpp"], TINY, tmp_path),
        prompt_tokens=40,
        decode_tokens=6,
        rounds=1,
        threads=1,
    )
    assert [row.program for row in found.rows] == ["Kvasir, GPTQ int4"]
    assert (found.rows[0].prefill_ratio, found.rows[0].decode_ratio) == (1.0, 1.0)
    assert found.rows[0].prefill > 0
    assert found.absent == ["llama.cpp, Q4_0: the package a_package is not installed"]


def test_every_format_is_one_that_kvasir_reads(tmp_path: Path) -> None:
    """The file of each, made for measuring, opens, and is held packed in about its size."""
    shape = Shape("tiny", layers=1, hidden=256, ffn=512, heads=4, kv_heads=2, vocabulary=512, context=64)
    for name, format in FORMATS.items():
        opened = open_checkpoint(format.files(shape, tmp_path))
        assert opened.packed, name
        assert opened.resident_bytes(torch.bfloat16) < 1.1 * opened.weight_bytes, name


@pytest.mark.slow
def test_formats_beside_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real numbers out of real files, in a process each, those of bitsandbytes through transformers."""
    monkeypatch.setattr("tests.bench.compare.missing", lambda name: "llama_cpp" if name == "llama.cpp" else "")
    found = compare(SMALL, programs_on_formats(("nf4", "q4_k"), SMALL, tmp_path), rounds=1, threads=1, decode_tokens=4)
    found.show()
    assert [(row.format, row.program) for row in found.rows] == [
        ("nf4", "Kvasir, bitsandbytes NF4"),
        ("nf4", "transformers, bitsandbytes NF4"),
        ("q4_k", "Kvasir, GGUF Q4_K"),
    ]
    assert found.absent == ["llama.cpp, GGUF Q4_K: the package llama_cpp is not installed"]
    for row in found.rows:
        assert min(row.prefill, row.decode, row.load.rest, row.file_bytes) > 0
        assert (row.prefill_ratio == 1) == row.program.startswith("Kvasir")
    assert "tiny, random weights: prompt 512, then 4 tokens" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_quantising_while_loading_and_the_load_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first load quantises whatever an earlier bench kept; the second reads what it kept."""
    monkeypatch.setattr(tools, "shapes_of", lambda names: [SMALL])
    methods = ("nf4", "int4", "int8")
    formats = tuple(f"bf16-{method}" for method in methods)
    for _ in range(2):
        report = tmp_path / "figures.json"
        told = [
            "--formats",
            ",".join(formats),
            "--rounds",
            "1",
            "--threads",
            "1",
            "--tokens",
            "4",
            "--json",
            str(report),
        ]
        done = CliRunner().invoke(tools.app, ["compare", "--shapes", "1b", *told])
        (found,) = msgspec.json.decode(report.read_bytes(), type=AllFigures).comparisons
        rows = found.rows
        for method, first, second in zip(methods, rows[::2], rows[1::2], strict=True):
            assert first.program == f"Kvasir, bf16 as {method}"
            assert second.program == f"Kvasir again, bf16 as {method}"
            assert {"quantising", "keeping weights"} <= first.load.parts.keys()
            assert "quantising" not in second.load.parts
            assert second.load.parts["reading kept weights"] > 0
            for row in (first, second):
                assert sum(row.load.parts.values()) <= row.load.seconds
            assert first.decode_ratio == 1
    for kind in ("copying", "packing", "quantising", "keeping weights", "reading kept weights"):
        assert f"{kind} 0." in " ".join(done.output.split())
    assert not list((tmp_path / "home" / "cache").glob("quantised")), "the user's own kept weights are left alone"


@pytest.mark.slow
def test_what_fails_is_left_out_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that a file's maker lacks, and a program that dies between rounds; others go on, and have no ratio."""

    def lacking(*_: object) -> Path:
        raise ImportError("No module named 'gguf'")

    monkeypatch.setattr("tests.bench.formats.gguf_file", lacking)
    programs = programs_on_formats(["q4_0"], SMALL, tmp_path)
    figures = compare(SMALL, programs, prompt_tokens=8, decode_tokens=4, rounds=1, threads=1)
    assert figures.rows == []
    assert "Kvasir, GGUF Q4_0: No module named 'gguf'" in figures.absent
    running = ProgramWorker.run

    def dying(self: ProgramWorker, prompt: list[int], tokens: int) -> Any:
        if self.name == "kvasir" and tokens == 5:
            self._process.kill()
        return running(self, prompt, tokens)

    monkeypatch.setattr(ProgramWorker, "run", dying)
    monkeypatch.setattr("tests.bench.compare.gptq_folder", plain_folder)
    programs = named_programs(["kvasir nf4", "kvasir"], SMALL, tmp_path)
    found = compare(SMALL, programs, prompt_tokens=8, decode_tokens=5, rounds=2, threads=1)
    assert [(row.program, row.decode_ratio) for row in found.rows] == [("Kvasir, nf4", None)]
    assert found.absent == ["Kvasir, GPTQ int4: it stopped: no message"]


@pytest.mark.usefixtures("here")
def test_ratios_are_ours_whatever_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.compare.gptq_folder", plain_folder)
    programs = named_programs(["kvasir nf4", "kvasir"], SMALL, tmp_path)
    found = compare(SMALL, programs, prompt_tokens=8, decode_tokens=5, rounds=1, threads=1)
    assert [row.decode_ratio == 1 for row in found.rows] == [False, True]


def test_what_does_not_fit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.compare.psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    found = compare(
        TINY, named_programs(["kvasir"], TINY, tmp_path), prompt_tokens=8, decode_tokens=4, rounds=1, threads=1
    )
    assert found.rows == []
    assert "do not fit next to the others" in found.absent[0]
