"""``kvasir bench`` on models small enough for a test: what it measures and writes down, not how fast anything is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from engine.catalogue import BY_KEY
from engine.doors.cli.arguments import programs_of, shapes_of
from engine.formats.open import open_checkpoint
from engine.library.paths import bundled_model
from engine.loading.memory.estimate import kv_bytes_per_token
from engine.loading.memory.probe import choose_kv_dtype
from engine.protocol import Compared, Effect, GpuReading, Metric
from engine.services.bench import run as bench
from engine.services.bench import throughput
from engine.services.bench.folders import gptq_folder, plain_folder
from engine.services.bench.measure import timed
from engine.services.bench.null import CASES, NullFigures
from engine.services.bench.peers.compare import compare, named_programs
from engine.services.bench.peers.formats import FORMATS, programs_on_formats
from engine.services.bench.peers.programs import PROGRAMS, RunSpeed
from engine.services.bench.peers.worker import LoadFigures, ProgramWorker
from engine.services.bench.run import BenchOptions, Report, run
from engine.services.bench.shapes import EIGHT_B, ONE_B, Shape
from engine.services.bench.switches import drafters
from engine.services.bench.throughput import measure_shape

TINY = Shape("tiny", layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, vocabulary=504, context=1024)
SMALL = Shape("tiny", layers=1, hidden=256, ffn=512, heads=4, kv_heads=2, vocabulary=512, context=1024)


@pytest.mark.parametrize("group", [32, 64])
def test_a_shape_is_a_checkpoint_that_opens(tmp_path: Path, group: int) -> None:
    shape = Shape("tiny", 2, 64, 128, 4, 2, 504, group=group)
    folder = gptq_folder(shape, tmp_path)
    opened = open_checkpoint(folder)
    assert opened.config.quantisation is not None
    assert opened.config.quantisation.group_size == group
    assert (opened.config.num_layers, opened.config.vocab_size, opened.config.attention.head_dim) == (2, 504, 16)
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert gptq_folder(shape, tmp_path) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made, "made twice"


def test_the_known_shapes_are_those_of_llama_3() -> None:
    """Parameters of all quantised matrices and of the token table, in thousands of millions."""
    sizes = [sum(k * n for _, k, n in shape.linears()) + shape.vocabulary * shape.hidden for shape in (ONE_B, EIGHT_B)]
    assert [round(size / 1e9, 2) for size in sizes] == [1.5, 8.03]
    assert (EIGHT_B.layers, EIGHT_B.hidden, EIGHT_B.ffn, EIGHT_B.heads, EIGHT_B.kv_heads) == (32, 4096, 14336, 32, 8)
    assert (EIGHT_B.group, EIGHT_B.head_dim) == (128, 128)


@pytest.mark.slow
def test_energy_is_shown_where_a_gpu_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Meter:
        """2 J more at each reading."""

        def __init__(self, device: torch.device) -> None:
            self.joules = 7.0

        def read(self) -> GpuReading:
            self.joules += 2.0
            return GpuReading(joules=self.joules)

    measured = {"rounds": 2, "batches": (2,), "prompt_tokens": 20, "decode_tokens": 5}
    measure_shape(TINY, tmp_path, **measured).show()
    assert "J/token" not in capsys.readouterr().out
    monkeypatch.setattr(throughput, "Meter", Meter)
    figures = measure_shape(TINY, tmp_path, **measured)
    assert figures.batches[0].joules == 2.0 / (2 * 2 * 5)
    figures.show()
    assert "J/token" in capsys.readouterr().out


@pytest.mark.slow
def test_a_shape_alone(tmp_path: Path) -> None:
    figures = measure_shape(TINY, tmp_path, rounds=1, batches=(1, 3), prompt_tokens=100, decode_tokens=12)
    planned = open_checkpoint(gptq_folder(TINY, tmp_path)).planned(getattr(torch, figures.dtype))
    assert figures.weights == planned.storage_size()
    weights, cache = planned.bytes_read_per_step(), kv_bytes_per_token(planned.config, choose_kv_dtype(planned.dtype))
    assert [row.batch for row in figures.batches] == [1, 3]
    one, three = figures.batches
    # The prompt's step and the first token's are not decoding; the rest are, for everybody at once.
    assert 8 <= one.steps <= 11
    assert 8 <= three.steps <= 11
    # 64 tokens of prompt, then those written: the keys and values of one more in each step.
    assert weights + 64 * cache < one.bytes_per_token < weights + 80 * cache
    assert weights / 3 + 64 * cache < three.bytes_per_token < weights / 3 + 80 * cache
    assert one.bandwidth_share > 0
    assert figures.prefill > 0
    assert (figures.device, figures.device_peak) == ("CPU", 0)
    assert figures.paths


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
    monkeypatch.setattr("engine.services.bench.peers.compare.ProgramWorker", WorkerHere)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_programs_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "engine.services.bench.peers.compare.missing", lambda name: "" if name == "kvasir" else "a_package"
    )
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
    monkeypatch.setattr(
        "engine.services.bench.peers.compare.missing", lambda name: "llama_cpp" if name == "llama.cpp" else ""
    )
    report = run(BenchOptions(shapes=[SMALL], switches=False, formats=("nf4", "q4_k"), rounds=1, threads=1, tokens=4))
    (found,) = report.comparisons
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
def test_quantising_while_loading_and_the_load_after_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first load quantises whatever an earlier bench kept; the second reads what it kept."""
    methods = ("nf4", "int4", "int8")
    formats = tuple(f"bf16-{method}" for method in methods)
    for _ in range(2):
        report = run(BenchOptions(shapes=[SMALL], switches=False, formats=formats, rounds=1, threads=1, tokens=4))
        rows = report.comparisons[0].rows
        for method, first, second in zip(methods, rows[::2], rows[1::2], strict=True):
            assert first.program == f"Kvasir, bf16 as {method}"
            assert second.program == f"Kvasir again, bf16 as {method}"
            assert {"quantising", "keeping weights"} <= first.load.parts.keys()
            assert "quantising" not in second.load.parts
            assert second.load.parts["reading kept weights"] > 0
            for row in (first, second):
                assert sum(row.load.parts.values()) <= row.load.seconds
            assert first.decode_ratio == 1
    shown = capsys.readouterr().out
    for kind in ("copying", "packing", "quantising", "keeping weights", "reading kept weights"):
        assert f"{kind} 0." in " ".join(shown.split())
    assert not list((tmp_path / "home" / "cache").glob("quantised")), "the user's own kept weights are left alone"


@pytest.mark.slow
def test_what_fails_is_left_out_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that a file's maker lacks, and a program that dies between rounds; others go on, and have no ratio."""

    def lacking(*_: object) -> Path:
        raise ImportError("No module named 'gguf'")

    monkeypatch.setattr("engine.services.bench.peers.formats.gguf_file", lacking)
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
    monkeypatch.setattr("engine.services.bench.peers.compare.gptq_folder", plain_folder)
    programs = named_programs(["kvasir nf4", "kvasir"], SMALL, tmp_path)
    found = compare(SMALL, programs, prompt_tokens=8, decode_tokens=5, rounds=2, threads=1)
    assert [(row.program, row.decode_ratio) for row in found.rows] == [("Kvasir, nf4", None)]
    assert found.absent == ["Kvasir, GPTQ int4: it stopped: no message"]


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_ratios_are_ours_whatever_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.services.bench.peers.compare.gptq_folder", plain_folder)
    programs = named_programs(["kvasir nf4", "kvasir"], SMALL, tmp_path)
    found = compare(SMALL, programs, prompt_tokens=8, decode_tokens=5, rounds=1, threads=1)
    assert [row.decode_ratio == 1 for row in found.rows] == [False, True]


def test_what_does_not_fit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "engine.services.bench.peers.compare.psutil.virtual_memory", lambda: SimpleNamespace(available=1000)
    )
    found = compare(
        TINY, named_programs(["kvasir"], TINY, tmp_path), prompt_tokens=8, decode_tokens=4, rounds=1, threads=1
    )
    assert found.rows == []
    assert "do not fit next to the others" in found.absent[0]


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(bundled_model().path, "model.safetensors").is_file(), reason="the bundled model is not built yet"
)
def test_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every switch of the catalogue that can be compared has a row, and the file holds what was shown."""
    monkeypatch.setattr(bench, "QUESTIONS", bench.QUESTIONS[:1])
    monkeypatch.setattr(bench, "BATCHES", (1, 2))
    file = tmp_path / "figures.json"
    report = run(BenchOptions(shapes=[TINY], programs=(), rounds=1, threads=1, tokens=10), file)
    assert report.bundled is not None
    missing = {
        option.key for option in BY_KEY.values() if any(f"{option.title}: " in line for line in report.bundled.absent)
    }
    assert missing <= set(drafters()), "only what says how to draft may want somebody who drafts so"
    measured = {row.key for row in report.bundled.switches}
    assert measured == {option.key for option in BY_KEY.values() if option.compare} - missing
    for row in report.bundled.switches:
        assert min(row.speed) > 0, row.key
        assert row.values[0] != row.values[1]
    cache = next(row for row in report.bundled.switches if row.key == "kv_cache")
    assert cache.values == (False, True)
    # What a process holds may also fall meanwhile: memory of tests before this one comes free.
    assert report.bundled.peak >= report.bundled.rest != 0
    assert [figures.shape for figures in report.shapes] == ["tiny"]
    assert msgspec.json.decode(file.read_bytes(), type=Report) == report
    shown = capsys.readouterr().out
    for word in ("KV cache", "tiny", "listeners"):
        assert word in shown


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(bundled_model().path, "model.safetensors").is_file(), reason="the bundled model is not built yet"
)
def test_settings_compared_with_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("engine.services.answers.compare.MOST_SECONDS", -1.0)
    file = tmp_path / "figures.json"
    report = run(BenchOptions(switches=False, shapes=[], threads=1, null=3), file)
    assert report.null is not None
    assert [(one.key, *one.values) for one in report.null.tries] == [(key, value, value) for key, value in CASES[:3]]
    for one in report.null.tries:
        assert [run.value for run in one.runs] == one.values
        assert one.same
        assert one.effects[0].pairs == 1
    reuse = report.null.tries[1]
    assert all(run.cached_tokens for run in reuse.runs), "the prompt is in the cache, as the next message finds it"
    assert "3 of 3 comparisons of a setting with itself" in capsys.readouterr().out
    assert msgspec.json.decode(file.read_bytes(), type=Report) == report


def test_a_verdict_on_a_setting_itself_is_counted() -> None:
    metric = Metric(figure="tokens_per_second", title="tokens/s")

    def one(*verdicts: str) -> Compared:
        effects = [
            Effect(metric=metric, before=1, after=1, ratio=1, low=1, high=1, pairs=8, verdict=v) for v in verdicts
        ]  # type: ignore[arg-type]
        return Compared(id="", key="k", values=[], runs=[], same=True, before=1, after=1, effects=effects)

    found = NullFigures([one("none", "none"), one("none", "worse"), one("better", "none")])
    assert found.conclusion.startswith("2 of 3 comparisons")
    assert "1 in any figure" in found.conclusion


def test_names_on_the_command_line() -> None:
    assert shapes_of(None) is None
    assert shapes_of("none") == []
    assert shapes_of("1b, 8b") == [ONE_B, EIGHT_B]
    assert programs_of("kvasir") == ("kvasir",)
    with pytest.raises(Exception, match="'2b' is not one of 1b, 8b"):
        shapes_of("2b")
