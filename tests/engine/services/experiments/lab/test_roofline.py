"""The roofline: its bytes and operations against counts of the file itself, and what it says with made-up ceilings."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from safetensors import safe_open

from engine.cache.policies import WindowWithSinks
from engine.cache.stores.kinds import KVKind
from engine.cache.techniques.quest.policy import QuestPolicy
from engine.doors.cli import lab as command
from engine.library.paths import bundled_model, find_model
from engine.loading.model import LoadedModel
from engine.protocol import LoadOptions, Sampling, keys
from engine.protocol.lab import LabLine, LabRoofline
from engine.services.client import EngineClient, whole_steps
from engine.services.experiments.experiment import LabError
from engine.services.experiments.roofline import ceilings, points
from engine.services.experiments.roofline.ceilings import Rates, Roof
from engine.services.experiments.roofline.report import roofline
from engine.services.experiments.roofline.work import ForwardWork, WorkSettings, settings_of
from tests.engine.services.experiments.lab.conftest import loaded

HIGH = Rates(memory=1e13, cache=0.0, dense=1e15, packed=2e15)
CONTEXT = 100


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Little is run: what is measured is not looked at."""
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    for name, value in {"PROMPT": 64, "ANSWER": 8, "ROUNDS": 2}.items():
        monkeypatch.setattr(points, name, value)


@pytest.fixture(scope="module")
def client() -> Iterator[EngineClient]:
    yield from loaded("", draft="", dtype="float32", memory=400e6)


@pytest.fixture
def settings(client: EngineClient) -> WorkSettings:
    return settings_of(client.model, client.state())


def counted() -> tuple[float, float, dict[str, int]]:
    """Of the file itself: bytes that a row reads, parameters that it is multiplied with, and the configuration."""
    folder = Path(bundled_model().path)
    config = json.loads((folder / "config.json").read_text())
    read = parameters = 0.0
    with safe_open(folder / "model.safetensors", "pt") as file:
        for name in file.keys():  # noqa: SIM118 - it is not a dictionary
            shape, kind = file.get_slice(name).get_shape(), name.rsplit(".", 1)[-1]
            size = math.prod(shape)
            if kind == "qweight":  # eight codes of 4 bits in each
                read, parameters = read + 4 * size, parameters + 8 * size
            elif kind == "scales":
                read += 2 * size
            elif kind == "weight":  # held in float32; the token table is the head, too
                read += 4 * size
                parameters += size if name == "model.embed_tokens.weight" else 0
    return read, parameters, config


def test_bytes_and_operations_are_those_of_the_file(settings: WorkSettings) -> None:
    read, parameters, config = counted()
    work = settings.decode(CONTEXT)
    assert work.weights == read
    layers, heads, width = config["num_hidden_layers"], config["num_attention_heads"], config["head_dim"]
    kept = layers * 2 * config["num_key_value_heads"] * width * 4  # float32 was asked for
    assert work.kept == (CONTEXT + 1) * kept
    scores_and_sums = layers * heads * 2 * (2 * width) * (CONTEXT + 1)
    head = 2 * config["vocab_size"] * config["hidden_size"]
    assert work.packed == 2 * parameters - head
    assert work.dense == head + scores_and_sums


def test_bytes_are_those_that_the_engine_counts_of_a_step(client: EngineClient, settings: WorkSettings) -> None:
    prompt = list(range(100, 100 + 32))
    answer = client.answer(prompt, Sampling(temperature=0.0, max_tokens=4, ignore_eos=True), {keys.SPECULATION: "off"})
    alone = whole_steps(answer.steps, 1)
    assert [step.bytes_read for step in alone] == [settings.decode(32 + place).bytes for place in range(len(alone))]


def test_answers_share_the_weights_and_drafts_share_the_text_too(settings: WorkSettings) -> None:
    one, eight, drafts = settings.decode(CONTEXT), settings.decode(CONTEXT, 8), settings.decode(CONTEXT, drafts=7)
    assert eight.weights == drafts.weights == one.weights
    assert eight.kept == 8 * one.kept
    assert one.kept < drafts.kept < 1.1 * one.kept
    assert drafts.kept == settings.decode(CONTEXT + 7).kept
    assert eight.operations == drafts.operations == 8 * one.operations
    assert one.intensity < eight.intensity < drafts.intensity
    chunk = settings.prompt(64)
    head = 2 * settings.lm.head.in_features * settings.lm.head.out_features
    assert chunk.operations + 63 * head == pytest.approx(sum(settings.decode(row).operations for row in range(64)))


def test_drafts_share_the_state_of_their_answer() -> None:
    with EngineClient() as client:
        client.load(find_model("kvasir-hybrid").path, "", LoadOptions(device="cpu", dtype="float32", memory=400e6))
        settings, model = settings_of(client.model, client.state()), client.model
        one, drafts = settings.decode(CONTEXT), settings.decode(CONTEXT, drafts=7)
        assert drafts.kept - one.kept == 7 * model.reads.kv_per_token
        states = model.stores[0].states
        assert states is not None
        assert one.kept == (CONTEXT + 1) * model.reads.kv_per_token + states.page_bytes


def test_a_cache_of_fewer_bits_and_a_text_of_which_less_is_read(settings: WorkSettings) -> None:
    whole = settings.decode(4000).kept
    int8, kivi = (replace(settings, kind=KVKind(name)).decode(4000).kept for name in ("int8", "kivi"))
    assert whole / 4 < int8 < whole / 3  # of 32 bits
    assert kivi < int8
    assert replace(settings, kind=KVKind("kivi")).decode(100).kept == settings.decode(100).kept, (
        "recent tokens are whole"
    )
    window = replace(settings, policy=WindowWithSinks(256)).decode(4000)
    assert window.kept < whole / 10
    quest = replace(settings, policy=QuestPolicy(256, 0)).decode(4000)
    assert window.kept < quest.kept < whole
    assert quest.operations < settings.decode(4000).operations


def test_more_rows_ask_more_experts() -> None:
    moe = SimpleNamespace(moe=SimpleNamespace(num_experts=8, experts_per_token=2))
    sparse = WorkSettings(None, SimpleNamespace(config=moe), 300.0, 800.0, KVKind())  # type: ignore[arg-type]
    assert sparse._weights(1) == pytest.approx(300.0), "two of eight are counted there"
    assert sparse._weights(2) == pytest.approx(300 + 800 * (1 - 0.75**2 - 0.25))
    assert sparse._weights(10_000) == pytest.approx(900.0), "all of them"


@pytest.fixture(scope="module")
def found(client: EngineClient) -> LabRoofline:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PROMPT": 64, "ANSWER": 8, "ROUNDS": 2}.items():
            patch.setattr(points, name, value)
        return roofline(client, HIGH)


def test_points_lie_under_the_roof(found: LabRoofline) -> None:
    for point in found.points:
        assert point.roof == pytest.approx(1e13 * point.intensity)
        if point.group == "measured":
            assert 0 < point.low <= point.operations <= point.high < point.roof
        else:
            assert point.operations == point.roof
            assert point.setting.startswith("computed")
    assert [point.name for point in found.points if point.group == "measured"] == [
        "decode, batch 1",
        "decode, batch 8",
        "prefill",
    ]
    assert found.limit == pytest.approx(1e13 / (found.weights + found.kept))
    assert not any("too low" in sentence for sentence in found.sentences)


def test_every_switch_that_could_be_set_has_its_point(client: EngineClient, found: LabRoofline) -> None:
    state = client.state()
    other = {choice for choice in state[keys.KV_KIND].titles if choice not in state[keys.KV_KIND].disabled_choices}
    moved = [point.keys for point in found.points if point.keys]
    assert {keys.WEIGHTS: "16bit"} in moved
    assert {move[keys.KV_KIND] for move in moved if keys.KV_KIND in move} == other - {
        "16bit",
        "kivi",  # whose recent tokens, all of a text as short as this, are in 16 bits
    }
    assert {move[keys.DRAFT_LENGTH] for move in moved if keys.DRAFT_LENGTH in move} == set(points.DRAFTS)
    sixteen = next(point for point in found.points if point.keys == {keys.WEIGHTS: "16bit"})
    assert sixteen.tokens < found.limit


def test_what_is_set_now_counts_and_what_cannot_be_measured_has_no_point(client: EngineClient) -> None:
    state = client.state()
    quest = msgspec.structs.replace(state[keys.PAGE_POLICY], value="quest")
    unpacked = msgspec.structs.replace(state[keys.WEIGHTS], value="16bit")
    settings = settings_of(client.model, {**state, keys.PAGE_POLICY: quest})
    assert settings.policy == QuestPolicy(1024, 0)
    found = points.compute(settings, 2000, {**state, keys.PAGE_POLICY: quest, keys.WEIGHTS: unpacked})
    assert not any(keys.WEIGHTS in each.keys for each in found), "the rate of packed products is not known then"


def test_a_ceiling_is_raised_once_by_the_pass_that_was_fastest(settings: WorkSettings) -> None:
    work = ForwardWork(weights=1e10, kept=0.0, packed=3e9, dense=1e9)
    roof = Roof(Rates(memory=1e10, cache=0.0, dense=1e9, packed=1e9), settings, work.bytes)  # 1 s, and 4 s
    roof.raise_to([("one answer", work, 0.8), ("a prompt", work, 0.5), ("8 answers together", work, 0.625)])
    memory, dense, packed = roof.ceilings
    assert (memory.value, memory.raised) == (2e10, "a pass of a prompt was 100 % faster, and counts.")
    assert dense.value == packed.value == 8e9
    assert dense.raised == packed.raised == "a pass of a prompt was 700 % faster, and counts."
    assert roof.over(work) == work.operations / 0.5


def test_operations_with_packed_weights_and_without_have_their_own_rates(settings: WorkSettings) -> None:
    roof = Roof(Rates(memory=1e12, cache=0.0, dense=2e9, packed=1e9), settings, 1.0)
    both = ForwardWork(weights=1.0, kept=0.0, packed=1e9, dense=4e9)
    assert roof.over(both) == 5e9 / 3
    assert roof.binds(both) == roof.binds(both._replace(packed=3e9)) == "packed products and products in float32"
    assert roof.binds(both._replace(packed=1e7)) == "products in float32"
    assert roof.binds(both._replace(dense=0.0)) == "packed products"
    assert roof.binds(both._replace(weights=4e12)) == "memory"


def test_what_caches_hold_half_of_is_no_pass_of_memory(settings: WorkSettings, monkeypatch) -> None:
    monkeypatch.setattr(ceilings, "last_level_bytes", lambda: 10_000_000)
    roof = Roof(Rates(memory=1e9, cache=1e10, dense=1e15, packed=1e15), settings, 1e6)
    some = ForwardWork(weights=19e6, kept=0.0, packed=0.0, dense=1.0)
    roof.raise_to([("8 answers together", some, 0.01)])
    assert not any(each.raised for each in roof.ceilings)
    roof.raise_to([("8 answers together", some._replace(weights=20e6), 0.01)])
    assert [each.name for each in roof.ceilings if each.raised] == ["memory"]


def test_unlike_contexts_are_not_compared(client: EngineClient, monkeypatch) -> None:
    monkeypatch.setattr(points, "PROMPT_SECONDS", 0.0)
    (said,) = (sentence for sentence in roofline(client, HIGH).sentences if "Weights are read once" in sentence)
    assert said.startswith("8 answers, after 36 tokens each")
    assert "times one" not in said
    assert "instead" not in said


def test_a_pass_that_is_faster_than_a_ceiling_raises_it_and_that_is_said(client: EngineClient) -> None:
    low = roofline(client, Rates(memory=1e3, cache=0.0, dense=1e3, packed=1e3))
    for point in low.points:
        assert point.high <= point.roof * (1 + 1e-9)
    one = next(point for point in low.points if point.name == "decode, batch 1")
    assert one.tokens <= low.limit, "nobody passes it"
    assert any("was measured too low" in sentence and "faster, and counts." in sentence for sentence in low.sentences)


def test_the_same_ceilings_give_the_same_computed_points(client: EngineClient, found: LabRoofline) -> None:
    again = roofline(client, HIGH)
    assert [p for p in again.points if p.group != "measured"] == [p for p in found.points if p.group != "measured"]
    assert (again.limit, again.weights, again.kept) == (found.limit, found.weights, found.kept)


def test_what_fits_into_the_processors_cache_is_held_against_that(client: EngineClient, monkeypatch) -> None:
    monkeypatch.setattr(ceilings, "last_level_bytes", lambda: 1 << 30)
    cached = roofline(client, HIGH._replace(memory=1e9, cache=1e12))
    assert cached.memory.name == "processor's cache"
    assert cached.limit == pytest.approx(1e12 / (cached.weights + cached.kept))
    assert any("of its roof (processor's cache: " in said for said in cached.sentences)


@pytest.mark.slow
def test_ceilings_are_measured_once_for_what_a_token_reads(settings: WorkSettings, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(ceilings, "fresh_bandwidth", lambda device, size=0: asked.append(size) or 1e9 + size)
    monkeypatch.setattr(ceilings, "last_level_bytes", lambda: 1 << 30)
    measured = ceilings.measure_rates(settings, 5e6)
    assert asked == [0, 5_000_000]
    assert (measured.memory, measured.cache) == (1e9, 1e9 + 5e6)
    assert measured.dense > 0
    assert measured.packed > 0
    monkeypatch.setattr(ceilings, "last_level_bytes", lambda: 0)
    assert ceilings.measure_rates(settings, 5e6).cache == 0


def test_a_model_that_says_nothing_of_itself_is_a_sentence() -> None:
    model: LoadedModel = SimpleNamespace(model=None)  # type: ignore[assignment]
    with pytest.raises(LabError, match="Load one from a folder or a file"):
        settings_of(model, {})


def test_intensity_is_operations_over_bytes() -> None:
    assert ForwardWork(weights=6.0, kept=2.0, packed=12.0, dense=4.0).intensity == 2.0


@pytest.mark.slow
def test_the_command_prints_one_line_of_the_lab_or_a_table(monkeypatch, capsys) -> None:
    monkeypatch.setattr("engine.services.experiments.roofline.report.measure_rates", lambda settings, read: HIGH)
    for json_lines in (True, False):
        command.lab(["roofline"], model="", draft="", device="cpu", seed=1, pairs=0, seconds=1.0, json=json_lines)
        printed = capsys.readouterr().out
        if json_lines:
            assert isinstance(msgspec.json.decode(printed, type=LabLine), LabRoofline)
        else:
            assert "decode, batch 1" in printed
            assert "Nobody can pass" in printed
