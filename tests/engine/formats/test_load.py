"""Loading: progress, cancelling, memory, and GPTQ's corners."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from engine.base.errors import CheckpointError, LoadCancelled
from engine.compute.layers.linear.affine import dequantise, unpack_words
from engine.formats.load import Checkpoint, load_model
from engine.formats.open import open_checkpoint
from engine.formats.quantised.gptq import GPTQWeights
from engine.formats.quantised.groups import AffineRuns, planned_group
from tests.engine.formats.llama_folders import write_dense, write_gptq

CPU = torch.device("cpu")


@pytest.fixture
def packed(tmp_path: Path) -> Checkpoint:
    write_gptq(tmp_path)
    return open_checkpoint(tmp_path, need_tokenizer=False)


def test_the_title_names_the_packing(packed: Checkpoint) -> None:
    assert packed.quantisation_title == "GPTQ 4-bit, groups of 32"
    assert packed.parameters == 2 * (128 * 128 * 2 + 128 * 64 * 2 + 3 * 128 * 256 + 2 * 128) + 65 * 128


@pytest.mark.parametrize("weights", ["4bit", "16bit"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_plan_is_what_is_held(packed: Checkpoint, dtype: torch.dtype, weights: str) -> None:
    model = load_model(packed, CPU, dtype, weights)
    assert packed.resident_bytes(dtype, weights) == model.storage_size()
    assert model.bytes_read_per_step() < model.storage_size()


def test_progress_goes_from_nothing_to_all(packed: Checkpoint) -> None:
    seen: list[float] = []
    load_model(packed, CPU, torch.float32, progress=lambda stage, fraction: seen.append(fraction))
    assert seen == sorted(seen)
    assert 0 < seen[0] < 0.5
    assert seen[-1] == pytest.approx(1.0)


def test_a_load_can_be_cancelled_at_any_module(packed: Checkpoint) -> None:
    total: list[float] = []
    load_model(packed, CPU, torch.float32, progress=lambda stage, fraction: total.append(fraction))
    for stop in range(len(total)):
        asked: list[int] = []

        def cancelled(stop: int = stop, asked: list[int] = asked) -> bool:
            asked.append(1)
            return len(asked) > stop

        with pytest.raises(LoadCancelled):
            load_model(packed, CPU, torch.float32, cancelled=cancelled)
    assert load_model(packed, CPU, torch.float32).storage_size() > 0


def test_a_file_cut_after_opening_is_refused(packed: Checkpoint) -> None:
    file = packed.path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-5000])
    with pytest.raises(CheckpointError, match="truncated"):
        load_model(packed, CPU, torch.float32)


def _gptq(qzeros: int, offset: int, g_idx: torch.Tensor | None = None, rows: int = 64, group: int = 32) -> AffineRuns:
    groups = -(-rows // group)
    qweight = torch.full((rows // 8, 16), -0x01234568, dtype=torch.int32)
    zeros = torch.full((groups, 2), qzeros, dtype=torch.int32)
    return AffineRuns(GPTQWeights("m", qweight, zeros, torch.ones(groups, 16), g_idx, group, offset))


def test_words_with_the_sign_bit_set() -> None:
    """-0x01234568 is 0xFEDCBA98: codes 8, 9, … 15 along the input features."""
    columns = _gptq(0x77777777, 1).columns(0, 16)
    assert unpack_words(columns.words, None)[:, 3].tolist() == list(range(8, 16)) * 8
    assert dequantise(columns, 32, None)[:8, 5].tolist() == [float(code - 8) for code in range(8, 16)]


def test_a_stored_15_is_a_zero_point_of_0_in_version_1() -> None:
    assert _gptq(-1, 1).columns(0, 16).zeros.unique().tolist() == [0]
    assert _gptq(-1, 0).columns(0, 16).zeros.unique().tolist() == [15]
    mixed = _gptq(0x0F7EF0F7, 1).columns(0, 8).zeros[0].tolist()
    assert mixed == [8, 0, 1, 0, 15, 8, 0, 1]


def test_columns_may_start_anywhere() -> None:
    part = _gptq(0x76543210, 0)
    whole = part.columns(0, 16)
    for start, stop in ((0, 3), (3, 8), (5, 14), (9, 16)):
        found = part.columns(start, stop)
        assert torch.equal(found.words, whole.words[:, start:stop])
        assert torch.equal(found.zeros, whole.zeros[:, start:stop])


def test_groups_out_of_range_are_refused() -> None:
    with pytest.raises(CheckpointError, match="g_idx"):
        _gptq(0, 1, torch.tensor([0] * 32 + [2] * 32, dtype=torch.int32))


def test_orders() -> None:
    plain = torch.arange(64, dtype=torch.int32) // 32
    assert _gptq(0, 1, plain).order is None
    assert _gptq(0, 1, torch.zeros(64, dtype=torch.int32)).order is None
    reverse = plain.flip(0)
    order = _gptq(0, 1, reverse).order
    assert order is not None
    assert order.tolist() == [*range(32, 64), *range(32)]
    uneven = torch.tensor([1] * 5 + [0] * 59, dtype=torch.int32)
    assert _gptq(0, 1, uneven).group == 1


@pytest.mark.parametrize(
    ("inputs", "group", "expected"), [(4096, 128, 128), (4096, -1, 256), (4096, 1024, 256), (160, 128, 32), (40, -1, 8)]
)
def test_planned_groups(inputs: int, group: int, expected: int) -> None:
    assert planned_group(inputs, group) == expected
    assert _gptq(0, 1, None, inputs, group if group > 0 else inputs).group == expected


PEAK = """
import json, os, sys, torch
from pathlib import Path
from engine.formats.load import load_model
from engine.formats.open import open_checkpoint

def anonymous():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])

def measure(folder, method="", store=""):
    checkpoint = open_checkpoint(folder, need_tokenizer=False)
    checkpoint = checkpoint.quantised(method) if method else checkpoint
    kept = checkpoint.kept(Path(store), torch.device("cpu")) if store else None
    before, peak = anonymous(), 0
    def watch(stage, fraction):
        nonlocal peak
        peak = max(peak, anonymous())
    asked = lambda: watch("", 0)  # returns None: go on
    model = load_model(checkpoint, torch.device("cpu"), torch.bfloat16, progress=watch, cancelled=asked, kept=kept)
    assert kept is None or not kept.notice, kept.notice
    assert ".packed" not in Path("/proc/self/maps").read_text(), "the kept file stays mapped"
    print(peak - before, anonymous() - before, model.storage_size(), flush=True)

torch.set_num_threads(1)
for arguments in json.loads(sys.argv[1]):
    if not os.fork():
        measure(*arguments)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(1)
"""


class Memory(NamedTuple):
    """A load's largest and resting size in private memory of its process, and what the model says that it holds."""

    peak: int
    resting: int
    held: int


def memory_of_loads(*loads: Sequence[str | Path]) -> list[Memory]:
    """Each in a process of its own, which begins with what all import."""
    run = [sys.executable, "-c", PEAK, json.dumps(loads, default=str)]
    out = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    found = [Memory(*map(int, line.split())) for line in out.stdout.splitlines()]
    assert len(found) == len(loads)
    for each in found:
        assert each.held > 80e6
        assert each.resting < 1.15 * each.held
    return found


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_loading_takes_little_more_than_the_model(tmp_path: Path) -> None:
    """Private memory of the process, sampled after each module: at most 1.2 times the resting size."""
    write_gptq(tmp_path, layers=12, hidden=1024, inner=4096, vocabulary=8000)
    (memory,) = memory_of_loads([tmp_path])
    assert memory.peak < 1.2 * memory.held


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dense")
    write_dense(folder, layers=12, hidden=1024, inner=4096, vocabulary=8000)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    "method", [pytest.param("nf4", marks=pytest.mark.long), pytest.param("int4", marks=pytest.mark.long), "int8"]
)
def test_quantising_takes_little_more_than_the_result(dense: Path, tmp_path: Path, method: str) -> None:
    """As above, sampled within modules too. The file is three times the result, so it cannot have been read whole.

    Writing what is kept, and reading it; of one method also keeping nothing.
    """
    stores: list[list[Path]] = [[tmp_path / "kept"]] * 2 + ([[]] if method == "int8" else [])
    for memory in memory_of_loads(*([dense, method, *store] for store in stores)):
        assert memory.peak < 1.15 * memory.resting


@pytest.mark.parametrize("method", ["nf4", "int4", "int8"])
def test_quantising_can_be_cancelled_within_a_module(tmp_path: Path, method: str) -> None:
    write_dense(tmp_path, layers=1, hidden=512, inner=2048, vocabulary=64)
    checkpoint = open_checkpoint(tmp_path, need_tokenizer=False).quantised(method)  # type: ignore[arg-type]
    stages: list[str] = []
    asked: list[int] = []

    def cancelled() -> bool:
        asked.append(len(stages))
        return False

    load_model(checkpoint, CPU, torch.float32, progress=lambda stage, done: stages.append(stage), cancelled=cancelled)
    assert set(stages) == {"quantising weights"}
    assert len(asked) > 1.5 * len(stages), "asked more often than modules end"
    busiest = max(set(asked), key=asked.count)
    count = asked.index(busiest) + 2

    def later() -> bool:
        nonlocal count
        count -= 1
        return count < 0

    stages.clear()
    with pytest.raises(LoadCancelled):
        load_model(checkpoint, CPU, torch.float32, progress=lambda stage, done: stages.append(stage), cancelled=later)
    assert len(stages) == busiest
