"""Fit of models that are not here, from their headers alone, next to the same model when it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from typer.testing import CliRunner

from engine.doors.cli.main import app
from engine.library import paths, roots
from engine.loading.advice.fit import Asked, fit_of
from engine.protocol import LoadOptions
from engine.protocol.library import FitReport, decode_library_record
from engine.services.packs import start
from tests.engine.library.fit_models import MAKERS, SMALL
from tests.hub_server import Hub, Repository

GUIDE = Path(paths.bundled_folder()) / "kvasir-guide"


@pytest.fixture
def guide(hub: Hub) -> str:
    files = {file.name: file.read_bytes() for file in GUIDE.iterdir() if file.is_file()}
    hub.repositories["kvasir/guide"] = Repository(files, tags=["safetensors"])
    return "kvasir/guide"


def report(*words: str) -> FitReport:
    result = CliRunner().invoke(app, ["models", "fit", *words, "--json"])
    assert result.exit_code == 0, result.stderr
    told = decode_library_record(result.stdout)
    assert isinstance(told, FitReport)
    return told


def test_headers_alone_give_the_fit_of_the_whole(hub: Hub, guide: str) -> None:
    far, here = report(guide), fit_of(GUIDE)
    assert (far.fit.weights, far.fit.activations) == (here.fit.weights, here.fit.activations)
    assert far.fit.kv_tokens == here.fit.kv_tokens  # the bytes of heads that lie in folders below come on top here
    assert (far.parameters, far.longest, far.read_bytes) == (here.parameters, here.longest, here.read_bytes)
    assert [kind.bytes_per_token for kind in far.kinds] == [kind.bytes_per_token for kind in here.kinds]
    assert far.name.startswith(guide)
    weights = sum((GUIDE / name).stat().st_size for name in hub.sent if name.endswith(".safetensors"))
    sent = sum(hub.sent[name] for name in hub.sent if name.endswith(".safetensors"))
    assert 0 < sent < weights / 4
    assert far.verdict == "fits"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_too_large_and_tight(dtype: Literal["float32", "bfloat16"]) -> None:
    def fit(memory: float | None) -> FitReport:
        return fit_of(GUIDE, Asked(options=LoadOptions(memory=memory, dtype=dtype), trial=False))

    large = fit(50e6)
    assert large.verdict == "too large"
    assert large.sentence.startswith("The model does not fit")
    needed = fit(None).fit
    room = needed.weights + needed.activations + needed.kv / needed.kv_tokens * 1000
    tight = fit(room + needed.draft_weights)
    assert tight.verdict == "tight"
    assert tight.context < 1200
    assert [each.kind for each in tight.suggestions] == ["kv_kind", "context"]
    assert {kind.kind: kind.tokens for kind in tight.kinds}["int8"] > tight.context


def test_a_kind_of_cache_is_suggested_only_where_it_has_room_for_more_text() -> None:
    """In bfloat16 the model's heads have room next to 8-bit keys and values, which then hold less text than 16-bit."""

    def fit(memory: float | None) -> FitReport:
        return fit_of(GUIDE, Asked(options=LoadOptions(memory=memory, dtype="bfloat16"), trial=False))

    needed = fit(None).fit
    tight = fit(needed.weights + needed.activations + needed.kv / needed.kv_tokens * 1000)
    assert max(kind.tokens for kind in tight.kinds[1:]) < tight.context
    assert [each.kind for each in tight.suggestions] == ["context"]


@pytest.mark.parametrize("fault", ["no header", "cut", "gone"])
def test_what_is_no_model_is_said(hub: Hub, guide: str, fault: str) -> None:
    files = hub.repositories[guide].files
    weights = next(name for name in files if name.endswith(".safetensors"))
    if fault == "no header":
        files[weights] = b"<html>" * 1000
    elif fault == "cut":
        files[weights] = files[weights][:4]
    else:
        hub.repositories.pop(guide)
    result = CliRunner().invoke(app, ["models", "fit", guide])
    assert result.exit_code == 1
    words = {"no header": "is not a file of safetensors", "cut": "is not a file of safetensors", "gone": "has no model"}
    assert words[fault] in result.stderr


@pytest.fixture
def several(hub: Hub, tmp_path: Path) -> str:
    files = {f"model-{kind}.gguf": MAKERS[kind](SMALL, tmp_path).read_bytes() for kind in ("Q4_K_M", "Q8_0")}
    hub.repositories["kvasir/several-GGUF"] = Repository(files, tags=["gguf"])
    return "kvasir/several-GGUF"


@pytest.mark.slow
def test_all_variants_of_a_repository_are_told_from_one_header(hub: Hub, several: str) -> None:
    result = CliRunner().invoke(app, ["models", "fit", several, "--json"])
    assert result.exit_code == 0, result.stderr
    reports = [decode_library_record(line) for line in result.stdout.splitlines()]
    assert all(isinstance(each, FitReport) and each.verdict == "fits" for each in reports)
    assert [each.variant for each in reports] == ["model-Q4_K_M.gguf", "model-Q8_0.gguf"]
    assert [bool(each.assumed) for each in reports] == [False, True]
    assert not any("Q8_0" in name for name, sent in hub.sent.items() if sent)
    shown = CliRunner().invoke(app, ["models", "fit", several]).stdout
    assert "model-Q8_0.gguf" in shown
    assert "Planned from the header of model-Q4_K_M.gguf" in shown
    hub.close()
    gone = CliRunner().invoke(app, ["models", "fit", several])
    assert gone.exit_code == 1
    assert "cannot be reached" in gone.stderr


def test_the_hub_is_not_asked_for_what_no_hub_has(hub: Hub, tmp_path: Path) -> None:
    reference = roots.Reference("imported/small", str(MAKERS["Q8_0"](SMALL, tmp_path)))
    roots.change(lambda now: roots.ModelRoots(references=[reference]))
    assert report(reference.name).verdict == "fits"
    assert not hub.asked


def test_a_pack_plans_and_judges() -> None:
    assert start.computes(["models", "fit", "some/model"])
    assert start.computes(["models", "recommended"])
    assert not start.computes(["models", "list"])
    assert start.computes(["models", "check", "x"])


def test_people_see_a_table(hub: Hub, guide: str) -> None:
    shown = CliRunner().invoke(app, ["models", "fit", guide]).stdout
    assert "longest text" in shown
    assert json.dumps(guide).strip('"') in shown
