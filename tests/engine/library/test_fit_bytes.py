"""Bytes that a fit predicts, next to those that the loaded model holds; and speed, where nothing was run before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.decoding.telemetry import runs
from engine.loading.advice.fit import Asked, fit_of, fits_of
from engine.protocol import LoadOptions
from engine.protocol.library import FitReport, HubFile, HubVariant
from tests.engine.library.fit_models import MAKERS, SMALL, TIED, loaded

OPTIONS = LoadOptions(context=1024)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {name: make(TIED if name == "Q8_0" else SMALL, root) for name, make in MAKERS.items()}


def planned(report: FitReport) -> int:
    assert report.fit is not None
    return report.fit.weights + report.fit.kv + report.fit.states


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_what_is_planned_is_what_is_held(models: dict[str, Path], name: str) -> None:
    report = fit_of(models[name], Asked(options=OPTIONS, trial=False))
    with loaded(models[name], OPTIONS) as (client, held):
        assert planned(report) == pytest.approx(held, rel=0.05)
        assert report.fit.weights == client.model.model.storage_size()
    assert report.decode == 0.0


def variant(path: Path, name: str, quantisation: str) -> HubVariant:
    size = path.stat().st_size
    return HubVariant(name=name, format="gguf", quantisation=quantisation, bytes=size, files=[HubFile(name, size)])


def test_one_header_tells_of_all_files_of_a_model(models: dict[str, Path], tmp_path: Path) -> None:
    kinds = {kind: MAKERS["Q8_0"](SMALL, tmp_path) if kind == "Q8_0" else models[kind] for kind in ("Q4_K_M", "Q8_0")}
    small, large = (variant(path, path.name, kind) for kind, path in kinds.items())
    reports = fits_of(kinds["Q4_K_M"], small, [small, large], Asked("a/b", options=OPTIONS, trial=False))
    for report, path in zip(reports, kinds.values(), strict=True):
        alone = fit_of(path, Asked(options=OPTIONS, trial=False))
        assert report.variant == path.name
        assert report.fit.weights == pytest.approx(alone.fit.weights, rel=0.02)
        assert report.read_bytes == pytest.approx(alone.read_bytes, rel=0.02)
        assert (report.longest, report.verdict) == (alone.longest, "fits")
    assert [bool(report.assumed) for report in reports] == [False, True]


def test_a_smaller_file_of_the_same_model_is_suggested(models: dict[str, Path]) -> None:
    small = variant(models["Q4_K_M"], "small.gguf", "Q4_K_M")
    large = HubVariant(name="large.gguf", format="gguf", quantisation="F16", bytes=10**15)
    asked = Asked("a/b", options=OPTIONS, trial=False)
    fits, large_report = fits_of(models["Q4_K_M"], small, [small, large], asked)
    assert (fits.verdict, large_report.verdict) == ("fits", "too large")
    assert [(each.kind, each.value) for each in large_report.suggestions] == [("variant", "small.gguf")]
    assert not fits.suggestions


def test_what_the_loaded_model_holds_counts_as_free(models: dict[str, Path]) -> None:
    weights = fit_of(models["bf16"], Asked(options=OPTIONS, trial=False)).fit.weights
    huge = HubVariant(name="x", format="gguf", quantisation="Q4_K_M", bytes=10**12)
    small = variant(models["Q4_K_M"], "small.gguf", "Q4_K_M")
    asked = Asked("a/b", options=OPTIONS, trial=False, credit=2 * 10**12)
    _, report = fits_of(models["Q4_K_M"], small, [small, huge], asked)
    assert report.verdict == "fits"
    assert report.fit.free > 2 * 10**12 > weights
    assert [each.kind for each in report.suggestions] == ["unload"]


@pytest.mark.parametrize("name", ["GPTQ", "Q4_K_M"])
def test_without_runs_some_layers_are_tried_once(models: dict[str, Path], tmp_path: Path, name: str) -> None:
    hollow = tmp_path / models[name].name  # as headers.outline makes it: nothing but zeros after the header
    if models[name].is_dir():
        shutil.copytree(models[name], hollow)
        empty(hollow / "model.safetensors")
    else:
        shutil.copy(models[name], hollow)
        empty(hollow)
    report = fit_of(hollow, Asked(options=OPTIONS))
    assert report.decode > 0
    assert report.prefill > 0
    assert report.source == "estimated from a measurement of some layers"
    kept = runs.read()
    assert [(run.what, run.trial) for run in kept] == [("decode", True), ("prefill", True)]
    again = fit_of(hollow, Asked(options=OPTIONS))
    assert again.decode / again.bandwidth == pytest.approx(report.decode / report.bandwidth)
    assert runs.read() == kept


def empty(file: Path) -> None:
    size, header = file.stat().st_size, 1 << 18
    with file.open("r+b") as stream:
        stream.truncate(header)
        stream.truncate(size)
