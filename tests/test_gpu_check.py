"""`make gpu-check` without a GPU: every part in tiny sizes on the CPU, and its page on figures that are made up."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.compute.layers.numerics import Numerics
from engine.compute.runner.recorders import CudaRecorder
from tests.gpu import bench_tiles, kernel_kinds
from tests.gpu.check import __main__ as command
from tests.gpu.check import notes, report, trace, watching, wheels
from tests.gpu.check.notes import Notes, Setting
from tests.gpu.check.suite import Listener

ROOT = Path(__file__).parents[1]
WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(name + " is not in tests/gpu/requirements.txt", name=name)
sys.meta_path.insert(0, Absent())
from tests.gpu.check.__main__ import main
sys.exit(main({arguments!r}))
"""
MODULES = {
    "PySide6-Essentials": "PySide6",
    "markdown-it-py": "markdown_it",
    "nvidia-ml-py": "pynvml",
    "jinja2": "jinja2",
    "pillow": "PIL",
    "beautifulsoup4": "bs4",
    "charset-normalizer": "charset_normalizer",
}


def lacking() -> set[str]:
    """Modules of the project's dependencies that a Python for gpu-check need not have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {text.partition(">")[0] for text in project["dependencies"]}
    pinned = {name.lower() for name in wheels.pins()}
    return {MODULES.get(name, name) for name in names if name.lower() not in pinned} - {"torch"}


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What all parts write, run without what the pins leave out."""
    folder = tmp_path_factory.mktemp("dry")
    absent = lacking()
    assert {"PySide6", "starlette", "typer"} <= absent
    script = WITHOUT.format(absent=absent, arguments=["all", "--dry", "--here", "--out", str(folder)])
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "A DRY RUN" in done.stdout
    return report.read(folder)


def test_every_part_runs_and_every_prediction_has_its_figure(dry: dict[str, dict[str, Any]]) -> None:
    assert set(dry) == set(command.PARTS)
    for part in dry.values():
        assert part["complete"]
        assert not part["errors"]
    for prediction in report.predictions():
        value = dry[prediction.part]["figures"]
        for step in prediction.path:
            assert step in value, f"{prediction.name}: there is no {step} among {list(value)}"
            value = value[step]
        assert value is None or isinstance(value, (int, float))
    only_gpu = {"capture of a key", "GPU busy, as served", "dependent launch saves"}
    missing = {line.prediction.name for line in lines(dry) if line.verdict == "not measured"}
    assert only_gpu <= missing
    assert {line.verdict for line in lines(dry)} == {"not measured", "dry run"}
    assert dry["tests"]["figures"]["tests"]["passed"] > 0
    assert len(dry["engine"]["figures"]["load"]["paths"]) == 2, "4-bit layers and a head in 16 bits"


def lines(parts: dict[str, dict[str, Any]]) -> list[report.Line]:
    return [report.judged(each, parts.get(each.part)) for each in report.predictions()]


def content(part: str, figures: dict[str, Any], card: str = "NVIDIA H200", **more: Any) -> dict[str, Any]:
    machine = {"card": card, "torch": "2.11.0+cu130"}
    told = {
        "part": part,
        "machine": machine,
        "date": "2030-01-02",
        "seconds": 12.0,
        "complete": True,
        "figures": figures,
    }
    return {**told, "errors": {}, **more}


def decoded(speed: float) -> dict[str, Any]:
    row = {"tok/s": speed, "of read": 0.72}
    return {"greedy": {"eager": {**row, "tok/s": 64.0}, "graphs": row, "both": row}}


def test_the_page_says_which_predictions_fell(tmp_path: Path) -> None:
    failures = [
        {"test": f"tests/gpu/test_triton.py::test_{n}", "lines": ["E  wrong by 3", "E  more"]} for n in range(14)
    ]
    parts = {
        "tests": content("tests", {"tests": {"passed": 700, "failed": 14, "failures": failures}}),
        "engine": content(
            "engine",
            {"decode 1": decoded(321.0), "chat": {"compiled": 2, "eager steps": {"this shape is new": 4}},
             "profile": {"both": {"busy": 0.95, "kernels": 400.0, "top": [
                 {"kernel": "multiply", "a step": 128.0, "us a step": 900.5}]}}},
            errors={"equal answers": "Traceback\nRuntimeError: no bundled model"},
        ),
        "products": content("products", {"gate_up": {
            "int4 g128": {"1": {"microseconds": 30.0, "share_of_read": 0.6}, "8 rows to 1": 1.2},
            "int4 g128, 32 outputs a tile, 4 slices, 2 stages": {"1": {"microseconds": 25.0}}}}, complete=False),
    }  # fmt: skip
    for name, part in parts.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(part))
    (tmp_path / "sampling.json").write_text("{half")
    found = report.read(tmp_path)
    verdicts = {line.prediction.name: line.verdict for line in lines(found)}
    assert verdicts["decode, eager, 1 answer"] == "held"
    assert verdicts["decode, graphs, 1 answer"] == "held"
    assert verdicts["decode, as served, 1 answer"] == "FELL, below"
    assert verdicts["kernels a step, as served"] == "FELL, above"
    assert verdicts["GPU busy, as served"] == "held"
    assert verdicts["tests that fail"] == "FELL, above"
    assert verdicts["gate_up, one row"] == "FELL, above"
    assert verdicts["gate_up, one row, of the read ceiling"] == "held"
    assert verdicts["copy within the card"] == "not measured"
    page = report.page(found)
    for told in (
        "2030-01-02, card NVIDIA H200, torch 2.11.0+cu130",
        "products 12 s (incomplete)",
        "FAILED: engine, equal answers: RuntimeError: no bundled model",
        "FAILED: sampling, the file: sampling.json cannot be read",
        "test_triton.py::test_11\n    E  wrong by 3",
        "and 2 more in tests.json",
        "FELL, above: kernels a step, as served: 400 kernels, predicted at most 175 kernels",
        "gate_up, one row: 30 µs as served; 25 µs with 32 outputs a tile, 4 slices, 2 stages",
        "chat: 4 decoding steps ran eagerly (this shape is new)",
        "900.5 µs a step in  128.0 x multiply",
        "| 1 | greedy | 64 | 321 | 321 | 72% |",
        "| decode, as served, 1 answer | 321 tok/s | 450 to 500 tok/s | FELL, below |",
    ):
        assert told in page, told
    assert "test_12" not in page


def test_ranges_go_by_the_card() -> None:
    known = {each.name: each for each in report.predictions()}
    served = {"engine": content("engine", {"decode 1": decoded(180.0)}, card="NVIDIA GeForce RTX 4090")}
    assert report.judged(known["decode, as served, 1 answer"], served["engine"]).verdict == "held"
    share = known["as served, 1 answer, of the read ceiling"]
    assert report.judged(share, served["engine"]).verdict == "FELL, below"
    assert report.judged(share, content("engine", {"decode 1": decoded(180.0)})).verdict == "held"
    other = content("engine", {"decode 1": decoded(180.0)}, card="NVIDIA L4")
    assert report.judged(known["decode, as served, 1 answer"], other).verdict == "no prediction"
    assert "no part has run" in report.page({})


def test_a_measurement_that_fails_hides_no_other(tmp_path: Path) -> None:
    def halfway() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third")

    def measures() -> notes.Measures:
        yield "first", lambda: 7
        yield "second", halfway
        yield "third", lambda: json.loads((tmp_path / "some.json").read_text())["measuring"]
        raise OSError("between")

    file = tmp_path / "some.json"
    written = Notes(file, "ceilings", Setting(dry=True))
    assert not written.take(measures())
    kept = json.loads(file.read_text())
    assert kept["figures"] == {"first": 7, "second": 2, "third": "third"}
    assert kept["errors"]["second"].endswith("ValueError: the third")
    assert kept["errors"]["third"].endswith("OSError: between")
    assert kept["complete"]
    assert Notes(file, "ceilings", Setting(dry=True)).take([("one", lambda: 1)])


def test_a_part_that_takes_too_long_is_stopped_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_text(json.dumps(content("engine", {"load": {"seconds": 1.0}})))
    assert not command.run_apart("engine", tmp_path, Setting(dry=True), 0.1)
    found = report.read(tmp_path)
    assert "stopped after 0 seconds" in str(found["engine"]["errors"])
    assert found["engine"]["figures"] == {}, "nothing is left of an earlier run"
    assert "FAILED: engine" in report.page(found)


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert command.main(["ceilings", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "PyTorch finds no CUDA GPU here.\n"
    assert not list(tmp_path.iterdir())


def test_failed_tests_are_told_by_their_first_lines() -> None:
    def told(when: str, outcome: str, text: str = "") -> Any:
        return SimpleNamespace(when=when, outcome=outcome, failed=outcome == "failed", nodeid="a::b", longreprtext=text)

    written: list[int] = []
    listener = Listener(lambda: written.append(listener.figure["failed"]))
    marked = "x = 1\nE   assert 0.1 < 0.02\nE    + more"
    calls = [told("call", "passed"), told("call", "failed", marked), told("teardown", "passed")]
    for each in (told("setup", "passed"), *calls, told("setup", "skipped"), told("setup", "failed", "no GPU")):
        listener.pytest_runtest_logreport(each)
    listener.pytest_collectreport(told("collect", "failed", "E   ImportError: gpu_support"))
    figure = listener.figure
    assert written == [1, 2, 3], "each as soon as it is known"
    assert (figure["passed"], figure["failed"], figure["skipped"]) == (1, 3, 1)
    firsts = [failure["lines"][0] for failure in figure["failures"]]
    assert firsts == ["E   assert 0.1 < 0.02", "no GPU", "E   ImportError: gpu_support"]


def test_steps_are_found_in_a_profile() -> None:
    """48 steps of three kernels of 10 µs with 2 µs between them, after a prompt's many."""
    events: list[dict[str, Any]] = [{"cat": "cpu_op", "ts": 0.0, "dur": 1e6, "name": "forward"}]
    events += [{"cat": "kernel", "ts": 20.0 * n, "dur": 15.0, "name": "gemm"} for n in range(500)]
    at = 20000.0
    for step in range(48):
        for name in ("norm", "multiply", "draw"):
            events.append({"cat": "kernel", "ts": at, "dur": 10.0, "name": name})
            at += 12.0
        at += 0.0 if step % 2 else 100.0
    nodes = trace.nodes_of(list(reversed(events)))
    found = trace.summary(nodes, 48, 40e-6)
    assert (found["steps"], found["kernels"], found["kernel us"]) == (20, 3, 30.0)
    assert found["busy"] == pytest.approx(0.75)
    assert found["gap p50 us"] == pytest.approx(2.0)
    assert found["gap p95 us"] == pytest.approx(102.0)
    assert {row["kernel"]: row["a step"] for row in found["top"]} == {"norm": 1, "multiply": 1, "draw": 1}
    assert trace.summary(nodes, 49, 1.0)["steps"] == 20, "one step may have been launched in vain"
    assert trace.summary(nodes, 30, 1.0)["busy"] is None
    assert trace.summary(nodes, 48, None)["busy"] is None, "nobody timed a step"


def test_captures_and_compilations_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = pytest.importorskip("triton").knobs
    free = iter((1000e6, 990e6, 990e6, 984e6))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (next(free), 0))
    monkeypatch.setattr(CudaRecorder, "record", lambda recorder, run: run())
    before = knobs.runtime.jit_cache_hook
    with watching.watching() as watch:
        recorder = object.__new__(CudaRecorder)
        assert [recorder.record(run) for run in (lambda: "a", lambda: "b")] == ["a", "b"]
        hook = knobs.runtime.jit_cache_hook
        assert not hook(key="k", repr="r", fn=SimpleNamespace(name="attend"), compile={}, is_manual_warmup=True,
                        already_compiled=False)  # fmt: skip
        for name, hit in (("attend", True), ("gemm", False)):
            knobs.compilation.listener(src=SimpleNamespace(name=name), metadata={}, cache_hit=hit)
    assert knobs.compilation.listener is None
    assert (watch.hits, watch.misses) == (["attend"], ["gemm"])
    assert knobs.runtime.jit_cache_hook is before
    assert watch.compiled == ["attend"]
    figure = watch.figure()
    assert (figure["keys"], figure["MB"], figure["all MB"]) == (2, 8.0, 16.0)
    assert figure["seconds"] <= figure["most seconds"] < 1


def test_the_tiny_kernel_lets_the_next_one_begin() -> None:
    """Compiled for a GPU that is not here."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from tests.gpu.check.tiny_kernel import add_one

    texts = []
    for early in (False, True):
        source = ASTSource(
            add_one, {"x": "*fp32", "COUNT": "constexpr", "EARLY": "constexpr"}, {(1,): 1024, (2,): early}
        )
        code = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"launch_pdl": early})
        texts.append(code.asm["ptx"])
    assert "griddepcontrol" not in texts[0]
    assert texts[1].index("griddepcontrol.wait") < texts[1].index("ld.global")


@pytest.mark.parametrize("name", list(kernel_kinds.KINDS))
def test_a_tall_layer_is_as_one_that_was_made_whole(name: str) -> None:
    sizes = (3 * kernel_kinds.BASE, 512, torch.float32, torch.device("cpu"), Numerics())
    kind = kernel_kinds.KINDS[name]
    tall, whole = kernel_kinds.tall(kind, *sizes), kind(*sizes)
    assert tall.layer.out_features == whole.layer.out_features
    assert tall.layer.storage_size() == whole.layer.storage_size()
    for held in whole.layer.held:
        ours, theirs = getattr(tall.layer, held), getattr(whole.layer, held)
        assert (ours is None) == (theirs is None)
        assert ours is None or (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    assert tall.weight.shape == (kernel_kinds.BASE, 512)


def test_pins_are_those_of_the_project() -> None:
    written = (ROOT / "constraints.txt").read_text().splitlines()
    assert {f"{name}=={version}" for name, version in wheels.pins().items()} <= set(written)
    assert set(wheels.FETCHED) <= set(wheels.pins())


def test_what_is_missing_comes_from_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kvasir_tried", "msgspec"):
        with zipfile.ZipFile(tmp_path / f"{name}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}/__init__.py", "FROM_WHEEL = True")
    assert [wheel.name.split("-")[0] for wheel in wheels.missing(tmp_path)] == ["kvasir_tried"]
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    wheels.bring(tmp_path)
    asked = "import kvasir_tried, msgspec; print(kvasir_tried.FROM_WHEEL, hasattr(msgspec, 'FROM_WHEEL'))"
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=tmp_path.parent, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True False\n"


def test_each_matrix_has_its_quickest_cut() -> None:
    """The cut that is the fastest for a layer need not be that of any of its matrices."""
    times = {(4096, 4096): {"served": 6.0, "a": 5.0, "b": 10.0}, (28672, 4096): {"served": 22.0, "a": 24.0, "b": 20.0}}
    rows = [
        {"rows": 1, "outputs": outputs, "inputs": inputs, "what": what, "microseconds": time}
        for (outputs, inputs), matrix in times.items()
        for what, time in matrix.items()
    ]
    lines = bench_tiles.best([*rows, {**rows[0], "what": "of one matrix alone"}], "served").splitlines()
    assert lines[0] == "1 rows: served 28.0 us a layer, each matrix by its quickest 25.0"
    assert [line.split()[1] for line in lines[1:4]] == ["served", "a", "b"]
    assert lines[4].strip().startswith("4096 x 4096: served 6.0; 5.0 a, ")
    assert lines[5].strip().startswith("28672 x 4096: served 22.0; 20.0 b, ")
    assert (4096, 14336) in bench_tiles.LAYER
    splits = {getattr(cut, "splits", 1) for cut in bench_tiles.cuts(32)}
    assert splits == {1, 2, 4}
