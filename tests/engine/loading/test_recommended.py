"""Recommended models judged for machines of several sizes, and the command that lists them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from engine.doors.cli.main import app
from engine.library import curated, hub, paths
from engine.loading.advice.recommend import (
    ANOTHER,
    BEST,
    LIGHT,
    RUNS,
    SEES,
    TO_BEGIN_WITH,
    fitting,
    judge,
    judge_stored,
    recommended,
)
from engine.protocol import StoredModel
from engine.protocol.library import decode_library_record
from engine.protocol.recommended import CuratedDraft, CuratedModel, Recommendation

GB = 10**9
FAST = 400e9
MODELS = curated.read(paths.models_file()).models


def model(**changes: object) -> CuratedModel:
    known = {
        "repository": "some/model-GGUF", "variant": "Q4_K_M", "format": "gguf", "family": "Qwen3ForCausalLM",
        "parameters": 8 * GB, "bytes": 5 * GB, "context": 32768, "kv_bytes": 147456, "purposes": ["chat"],
        "about": "A test.", "taken": "2026-11-25", "source": "test",
    }  # fmt: skip
    return CuratedModel(**(known | changes))


@pytest.mark.parametrize(
    ("free", "total", "bandwidth", "verdict", "words"),
    [
        (8 * GB, 8 * GB, FAST, "fits", ""),
        (8 * GB, 8 * GB, 0.0, "fits", ""),
        (8 * GB, 8 * GB, 10e9, "tight", "It writes 2 tokens a second at most"),
        (8 * GB, 8 * GB, 1e9, "tight", "It writes 1.6 tokens a second at most"),  # measured beside other programs
        (3 * GB, 8 * GB, FAST, "tight", "Close other programs."),
        (7 * GB, 7 * GB, FAST, "tight", "they have to be shorter"),
        (6 * GB, 6 * GB, FAST, "too large", "at most 5.1 GB may be used here"),
    ],
)
def test_one_model_on_several_machines(free, total, bandwidth, verdict, words) -> None:
    found = judge(model(), free, total, bandwidth)
    assert found.verdict == verdict
    assert words in found.sentence
    assert bool(found.sentence) == (verdict != "fits")
    assert found.need == int(5 * GB * 1.05 + (64 << 20) + 147456 * 8192)


def test_what_is_not_known_is_not_made_up() -> None:
    assert judge(model(bytes=0), 80 * GB, 80 * GB, FAST).verdict == ""
    assert judge(model(), 80 * GB, 80 * GB, 0.0).fastest == 0
    assert judge(model(active=GB), 80 * GB, 80 * GB, FAST).fastest == pytest.approx(FAST / 5e9 * 8)


@pytest.mark.parametrize(
    ("memory", "some"), [(4, "small"), (8, "small"), (16, "chat"), (24, "code"), (96, "reasoning")]
)
def test_more_memory_is_for_larger_models(memory, some) -> None:
    judged = recommended(MODELS, memory * GB, memory * GB, FAST)
    order = [("fits", "tight", "too large").index(each.verdict) for each in judged]
    assert order == sorted(order)
    assert judged[0].verdict == "fits"
    assert some in {purpose for each in judged if each.verdict == "fits" for purpose in each.model.purposes}
    sizes = [each.model.parameters for each in judged if each.verdict == "fits"]
    assert sizes == sorted(sizes, reverse=True)
    assert all(each.need <= 0.85 * memory * GB for each in judged if each.verdict == "fits")
    larger = recommended(MODELS, 2 * memory * GB, 2 * memory * GB, FAST)
    assert sum(each.verdict == "fits" for each in larger) >= len(sizes)


def begin(models: list[CuratedModel], memory: float, bandwidth: float = FAST) -> list[tuple[str, str]]:
    """Repository and reason of those that a newcomer is offered."""
    size = int(memory * GB)
    return [(each.model.repository, each.reason) for each in recommended(models, size, size, bandwidth) if each.reason]


@pytest.mark.parametrize("memory", [2, 6, 16, 25, 64])
def test_three_to_begin_with_suit_the_machine(memory) -> None:
    found = [each for each in recommended(MODELS, memory * GB, memory * GB, 20e9) if each.reason]
    assert len(found) == TO_BEGIN_WITH
    for each in found:
        if each.reason in (BEST, SEES, LIGHT):
            assert each.verdict == "fits"
            assert each.reason != BEST or "chat" in each.model.purposes
            assert each.need <= 0.85 * memory * GB / 2
        assert each.reason != SEES or "vision" in each.model.purposes


def test_each_of_them_has_its_own_reason() -> None:
    one = {"parameters": GB, "bytes": GB, "kv_bytes": 1000}
    models = [
        model(repository="a/large", parameters=70 * GB, bytes=40 * GB),
        model(repository="a/best"),
        model(repository="a/small", **one),
        model(repository="a/sees", purposes=["chat", "vision"], **(one | {"bytes": 2 * GB})),
        model(repository="a/code", purposes=["code"]),
    ]
    assert dict(begin(models, 24)) == {"a/best": BEST, "a/sees": SEES, "a/small": LIGHT}
    assert dict(begin(models[:3], 24)) == {"a/best": BEST, "a/small": LIGHT}, "what is too large is not offered"
    assert dict(begin(models[:1] + models[-1:], 24)) == {"a/code": ANOTHER}
    assert dict(begin(models[1:2], 8, 10e9)) == {"a/best": RUNS}
    assert begin(models[:1], 8) == []


def test_models_of_this_machine_are_judged_by_their_size() -> None:
    def stored(size: int) -> StoredModel:
        return StoredModel(name="x", path="/x", format="gguf", bytes=size)

    found = [judge_stored(stored(size * GB), 8 * GB, 16 * GB, 20e9).verdict for size in (2, 5, 8, 40)]
    assert found == ["fits", "tight", "tight", "too large"]
    assert judge_stored(stored(0), GB, GB, FAST).verdict == ""


def test_what_is_here_is_said() -> None:
    draft = CuratedDraft(kind="model", repository="some/draft-GGUF", variant="Q8_0")
    here = StoredModel(name="x", path="/m/model-Q4_K_M.gguf", format="gguf", bytes=1, repository="some/model-GGUF")
    found = judge(model(draft=draft), GB, GB, FAST, [here])
    assert (found.here, found.draft_here) == (True, False)
    assert not judge(model(variant="Q8_0"), GB, GB, FAST, [here]).here
    assert judge(model(variant="model-Q4_K_M.gguf"), GB, GB, FAST, [here]).here


def test_the_command_asks_no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    result = CliRunner().invoke(app, ["models", "recommended", "--for", "code", "--device", "cpu", "--json"])
    assert result.exit_code == 0, result.stderr
    told = [decode_library_record(line) for line in result.stdout.splitlines()]
    assert {each.model.repository for each in told if isinstance(each, Recommendation)} == {
        each.repository for each in MODELS if "code" in each.purposes
    }
    assert json.loads(result.stdout.splitlines()[0])["type"] == "Recommendation"
    shown = CliRunner().invoke(app, ["models", "recommended"], env={"COLUMNS": "200"})
    assert "Qwen/Qwen3-8B-GGUF" in shown.stdout
    assert "built-in" in shown.stdout
    assert CliRunner().invoke(app, ["models", "recommended", "--for", "poems"]).exit_code == 2


@pytest.mark.parametrize(
    ("size", "range_"),
    [("", "-10811M"), ("3B-9B", "3B-9B"), ("3B-20B", "3B-10811M"), ("20B-", None), ("20B-30B", None), ("-8b", "-8b")],
)
def test_a_search_for_what_fits(size: str, range_: str | None) -> None:
    assert fitting(size, 10 * GB) == range_
    assert range_ is None or hub.parameters(range_)


def test_a_search_where_nothing_fits_says_so() -> None:
    refused = CliRunner().invoke(app, ["models", "search", "--size", "900T-", "--fits"])
    assert refused.exit_code == 1
    assert refused.stderr.startswith("kvasir: No model of 900T- parameters fits into what is free now")
