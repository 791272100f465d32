"""``kvasir bench`` on models small enough for a test: what it measures and writes down, not how fast anything is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from engine.catalogue import BY_KEY
from engine.doors.cli.arguments import shapes_of
from engine.formats.open import open_checkpoint
from engine.library.paths import bundled_model
from engine.loading.memory.estimate import kv_bytes_per_token
from engine.loading.memory.probe import choose_kv_dtype
from engine.protocol import GpuReading
from engine.services.experiments import bench
from engine.services.experiments.bench import BenchOptions, Report, run
from engine.services.experiments.measures import throughput
from engine.services.experiments.measures.switches import drafters
from engine.services.experiments.measures.throughput import measure_shape
from engine.services.experiments.workloads.shapes import EIGHT_B, ONE_B, Shape, gptq_folder

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


def test_a_shape_alone(tmp_path: Path) -> None:
    figures = measure_shape(TINY, tmp_path, rounds=1, batches=(1, 3), prompt_tokens=100, decode_tokens=12)
    checkpoint = replace(open_checkpoint(gptq_folder(TINY, tmp_path)), tables_in_file=True)
    planned = checkpoint.planned(getattr(torch, figures.dtype))
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


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(bundled_model().path, "model.safetensors").is_file(), reason="the bundled model is not built yet"
)
def test_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every switch of the catalogue that can be compared has a row, and the file holds what was shown."""
    monkeypatch.setattr(bench, "QUESTIONS", bench.QUESTIONS[:1])
    monkeypatch.setattr(bench, "BATCHES", (1, 2))
    file = tmp_path / "figures.json"
    report = run(BenchOptions(shapes=[TINY], rounds=1, threads=1, tokens=10), file)
    assert report.bundled is not None
    missing = {
        option.key for option in BY_KEY.values() if any(f"{option.title}: " in line for line in report.bundled.absent)
    }
    assert missing <= {*drafters(), "token_table"}, "what says how to draft wants one who does; its table is the head"
    measured = {row.key for row in report.bundled.switches}
    assert measured == {option.key for option in BY_KEY.values() if option.measure.compare} - missing
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


def test_names_on_the_command_line() -> None:
    assert shapes_of(None) is None
    assert shapes_of("none") == []
    assert shapes_of("1b, 8b") == [ONE_B, EIGHT_B]
    with pytest.raises(Exception, match="'2b' is not one of 1b, 8b"):
        shapes_of("2b")
