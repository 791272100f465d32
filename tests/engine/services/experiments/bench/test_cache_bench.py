"""``kvasir bench --cache``: the traces, what is counted of them, and that no run profits from another."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch

from engine.catalogue import BY_KEY
from engine.protocol import LoadOptions, Sampling
from engine.services.client import EngineClient, EngineError
from engine.services.experiments.bench import BenchOptions, Report, run
from engine.services.experiments.measures import cache as cache_bench
from engine.services.experiments.measures.parts import SHOWN_BY, CacheFeature, parts
from engine.services.experiments.reports.cache import CacheFigures, CacheRow, CacheSide
from engine.services.experiments.workloads.shapes import Shape, gptq_folder
from engine.services.experiments.workloads.traces import ROOMY, TIGHT, TIGHT_ROOM, Words, chats, document, shared_prompt
from tests.kit.specs import refusing

VOCABULARY = range(10, 500)
TRACES = (*ROOMY, *TIGHT)


@pytest.mark.parametrize("context", [256, 2048, 8192])
@pytest.mark.parametrize("make", TRACES)
def test_every_request_fits_the_context(make, context: int) -> None:
    for seed in range(5):
        trace = make(Words(VOCABULARY, seed, 1), context)
        lengths = [len(opening) for opening in trace.openings]
        for wave in trace.waves:
            for ask in wave:
                assert ask.tokens
                if trace.grows:
                    lengths[ask.thread] += len(ask.tokens) + trace.answer
                else:
                    assert lengths[ask.thread] + len(ask.tokens) + trace.answer < context
        assert max(lengths) < context


def test_runs_differ_in_their_texts_and_not_in_their_lengths() -> None:
    for make in TRACES:
        one, same, other = (make(Words(VOCABULARY, 1, run), 2048) for run in (1, 1, 2))
        assert one == same
        assert one.waves[0][0].tokens != other.waves[0][0].tokens
        assert all(mine != theirs for mine, theirs in zip(one.openings, other.openings, strict=True) if mine)
        assert [[len(ask.tokens) for ask in wave] for wave in one.waves] == [
            [len(ask.tokens) for ask in wave] for wave in other.waves
        ]


def test_what_the_traces_share() -> None:
    words = Words(VOCABULARY, 1, 1)
    users = shared_prompt(words, 4096)
    assert len(users.openings) == users.requests == 12
    assert all(opening == users.openings[0] for opening in users.openings)
    assert len(users.openings[0]) == 512
    about = document(words, 8192)
    assert (len(about.openings[0]), about.requests, about.grows) == (4000, 4, False)
    talks = chats(words, 4096)
    assert (talks.requests, talks.grows) == (15, True)
    assert len({tuple(opening[:16]) for opening in talks.openings}) == 3


def test_what_the_small_cache_has_no_room_for() -> None:
    for context in (512, 2048):
        for make in TIGHT:
            trace = make(Words(VOCABULARY, 1, 1), context)
            texts = {tuple(opening) for opening in trace.openings if opening}
            asked = sum(len(ask.tokens) + trace.answer for wave in trace.waves for ask in wave)
            assert sum(map(len, texts)) + asked > TIGHT_ROOM * context, trace.name


SHAPE = Shape("tiny", layers=3, hidden=64, ffn=64, heads=2, kv_heads=1, vocabulary=504, context=512)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gptq_folder(SHAPE, tmp_path_factory.mktemp("models"))


@pytest.fixture
def client(folder: Path) -> Iterator[EngineClient]:
    with EngineClient() as made:
        made.load(str(folder), "", LoadOptions(dtype="float32", memory=400e6))
        yield made


def test_every_part_of_the_catalogue_is_shown_by_a_trace(client: EngineClient) -> None:
    names = {make(Words(VOCABULARY, 1, 1), 512).name for make in TRACES}
    assert set().union(*map(set, SHOWN_BY.values())) == names
    assert set(SHOWN_BY) <= set(BY_KEY)
    state = {spec.key: spec for spec in client.engine.catalogue_state()}
    found = list(parts(state, 512))
    shown = [key for key in SHOWN_BY if key != "window_pages"]  # this model has no windows
    assert [part.key for part in found if isinstance(part, CacheFeature)] == shown
    # What a model cannot do is said and not measured.
    without = dict(state)
    spec = state["kv_kind"]
    without["kv_kind"] = refusing(spec, {"kivi": "No.", "int4": "Not that."})
    found = list(parts(without, 512))
    assert "KV cache precision, kivi: No." in found
    (kinds,) = (part for part in found if isinstance(part, CacheFeature) and part.key == "kv_kind")
    assert [way.title for way in kinds.ways] == ["16 bits", "int8", "fp8"]


def test_an_emptied_cache_finds_nothing(client: EngineClient) -> None:
    prompt = [5 + 7 * i % 400 for i in range(100)]
    sampling = Sampling(temperature=0.0, max_tokens=4, ignore_eos=True)
    found = [client.answer(prompt, sampling, {"prefix_cache": True}).usage.cached_tokens for _ in range(2)]
    client.empty_cache()
    found.append(client.answer(prompt, sampling, {"prefix_cache": True}).usage.cached_tokens)
    assert found == [0, 96, 0]
    assert client.model.kind.name == "16bit"


def rows(figures: CacheFigures, key: str) -> Iterator[CacheRow]:
    for trace in figures.traces:
        yield from (row for row in trace.rows if row.part == key)


@pytest.mark.long
def test_the_parts_do_what_they_are_for(client: EngineClient) -> None:
    """In float32, where what is lossless gives the same tokens."""
    before = {spec.key: spec.value for spec in client.engine.catalogue_state()}
    figures = cache_bench.measure_cache(client, 1)
    assert {spec.key: spec.value for spec in client.engine.catalogue_state()} == before
    assert figures.absent == []
    assert [trace.name for trace in figures.traces] == [make(Words(VOCABULARY, 1, 1), 512).name for make in TRACES]
    for trace in figures.traces:
        assert trace.rows, trace.name
        assert 0 < trace.reserved_waste < 1
        for row in trace.rows:
            assert {side.answers for side in row.sides} == {trace.requests}
            for side in row.sides:
                assert side.approximate == (row.part in ("kv_kind", "page_policy") and side != row.sides[0])
                assert side.approximate or side.equal == side.answers, (trace.name, row.part, side.title)
                assert 0 <= side.waste < 1, (trace.name, row.part, side.title)
                assert 0 < side.ttft_median <= side.ttft_p95
                assert side.tokens_per_second > 0
    for row in rows(figures, "prefix_cache"):
        off, on = row.sides
        assert off.hit_rate == off.saved == 0
        assert on.hit_rate > 0.5
    for row in rows(figures, "page_reservation"):
        assert row.sides[0].waste > row.sides[1].waste
    for row in rows(figures, "kv_kind"):
        sizes = [side.bytes / side.pages for side in row.sides[:3]]
        assert sizes == sorted(sizes, reverse=True)
        assert row.sides[1].hit_rate == row.sides[0].hit_rate > 0
        assert all(side.hit_rate > 0 for side in row.sides)
    ((everything, window, quest),) = (row.sides for row in rows(figures, "page_policy"))
    assert window.pages < min(everything.pages, quest.pages)  # those two differ by when requests happen to overlap
    ((dropped, recomputed, swapped),) = (row.sides for row in rows(figures, "preemption"))
    assert min(dropped.preemptions, recomputed.preemptions, swapped.preemptions) > 0
    assert dropped.swapped == 0 < swapped.swapped
    ((without, host),) = (row.sides for row in rows(figures, "host_cache"))
    assert without.hit_rate == without.swapped == 0
    assert host.hit_rate > 0.3
    assert host.swapped > 0
    assert figures.host is not None
    parts_of_it = figures.host.schedule, figures.host.batch, figures.host.settle
    assert min(parts_of_it) > 0
    assert figures.host.least <= figures.host.total


@pytest.mark.slow
def test_what_the_engine_refuses_is_left_out_with_its_words(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = EngineClient.set

    def refusing(self: EngineClient, key: str, value: object) -> None:
        if (key, value) == ("page_policy", "quest"):
            raise EngineError("No room for that.")
        real(self, key, value)  # type: ignore[arg-type]

    monkeypatch.setattr(EngineClient, "set", refusing)
    measuring = cache_bench._TraceRunner(client, 1)
    (row,) = measuring.trace(ROOMY[3]).rows
    assert [side.title for side in row.sides] == ["all pages", "4 and the last 64"]
    assert measuring.absent == ["Attention, QUEST, 64 tokens, on long answers: No room for that."]


def test_unlike_answers_are_marked() -> None:
    side = CacheSide("int8", True, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 4, 4)
    assert side.answers_word == "approximate: 4/4 same"
    exact = msgspec.structs.replace(side, approximate=False)
    assert exact.answers_word == "same"
    assert msgspec.structs.replace(exact, equal=3).answers_word == "3/4 same"


@pytest.mark.long
def test_the_report_of_a_tiny_model(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command, with the long prefix on a model that is small enough for a test, and a chat after a restart."""
    from engine.services.experiments.measures import hits

    monkeypatch.setattr(hits, "LONG_SHAPE", dataclasses.replace(SHAPE, name="long", layers=1, context=6144))
    monkeypatch.setattr(cache_bench, "ROOMY", ROOMY[2:3])
    monkeypatch.setattr(cache_bench, "TIGHT", TIGHT[:1])
    file = tmp_path / "figures.json"
    threads = torch.get_num_threads()
    report = run(BenchOptions(switches=False, shapes=[], cache=True, rounds=1, threads=threads, model=folder), file)
    figures = report.cache
    assert figures is not None
    assert figures.absent == []
    assert [trace.name for trace in figures.traces] == ["document", "crowd"]
    assert figures.hit is not None
    assert (figures.hit.prompt, figures.hit.found) == (4020, 4000)
    assert figures.hit.ratio < 0.5
    assert figures.saved is not None
    assert figures.saved.found == 256, "the last token of an answer was never read"
    assert figures.saved.bytes > 0
    assert msgspec.json.decode(file.read_bytes(), type=Report).cache == figures
    shown = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "four questions about 320 tokens: 4 requests" in shown
    assert "of it" in shown
