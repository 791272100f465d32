"""`kvasir compare`: columns side by side, what they wrote, what it costs in quality, and the report."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from typer.testing import CliRunner, Result

from engine.cache.policies import KeepAll
from engine.cache.stores.kinds import KVKind
from engine.compute.runner.perplexity import score, scored
from engine.doors.cli.main import app
from engine.loading.runners import readers_of
from engine.protocol import ChatMessage, compared, keys
from engine.protocol.compared import FAULT, text_verdict
from engine.protocol.lab import Column, LabCompared, LabLine
from engine.services.client import EngineClient, EngineError
from engine.services.experiments.compare import comparison
from engine.services.experiments.compare.columns import (
    ComparedPrompt,
    ComparisonRequest,
    held,
    parse_column,
    prompts_of,
)
from engine.services.experiments.compare.comparison import compare
from engine.services.experiments.experiment import Lab, LabError
from engine.services.experiments.reports import page as report
from engine.services.experiments.same_text import apart, gap_of

TEXT = "The harbour was quiet when the first boat came in, and a page of the cache holds sixteen tokens. " * 4
PROMPTS = (ComparedPrompt("What is a <page>?"), ComparedPrompt("def add(a, b):\n", "code", plain=True))


def kvasir(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), prog_name="kvasir")


def request(*columns: Column, **more: Any) -> ComparisonRequest:
    return ComparisonRequest(columns, **{"prompts": PROMPTS, "tokens": 12, "pairs": 1, "device": "cpu", **more})


@pytest.fixture(scope="module")
def found() -> tuple[LabCompared, list[LabLine]]:
    """Alike, lossless with drafts, and lossy."""
    columns = (
        Column(name="baseline"),
        Column(name="again"),
        Column(name="drafts", set={keys.SPECULATION: "draft"}),
        Column(name="4 bits", set={keys.KV_KIND: "int4"}),
    )
    told: list[LabLine] = []
    return compare(request(*columns, text=TEXT), told.append), told


def test_a_column_is_read_as_the_command_line_has_it() -> None:
    assert parse_column("small: kv_kind=int8, speculation=off") == Column(
        name="small", set={keys.KV_KIND: "int8", keys.SPECULATION: "off"}
    )
    made = parse_column("model=some/where, draft=none, quantise=nf4, prefix_cache=off")
    assert (made.model, made.draft, made.quantise, made.set) == ("some/where", "", "nf4", {keys.PREFIX_CACHE: False})
    assert made.name == "model=some/where, draft=none, quantise=nf4, prefix_cache=off"
    for wrong, word in (
        ("kv_kind", "KEY=VALUE"),
        ("quantise=2bit", "nf4"),
        ("nothing=1", "kv_kind"),
        ("kv_kind=x", "x"),
        ("{}", "name"),
        ('{"name": "a", "set": {"nothing": 1}}', "kv_kind"),
        ('{"name": "a", "set": {"window_tokens": "many"}}', "number"),
    ):
        with pytest.raises(LabError, match=word):
            parse_column(wrong)


def test_a_column_is_read_as_the_figures_have_it() -> None:
    odd = Column(name="KV: 8, 4 = mine", model="/a,b", draft="", quantise="nf4", set={keys.PREFIX_CACHE: False})
    assert parse_column(msgspec.json.encode(odd).decode()) == odd
    assert parse_column('{"name": "a", "set": {"prefix_cache": "off"}}').set == {keys.PREFIX_CACHE: False}


def test_columns_alike_write_alike_and_take_alike(found: tuple[LabCompared, list[LabLine]]) -> None:
    result, told = found
    assert [kind.kind for kind in result.kinds] == ["prose", "code"]
    assert result.lossless == [True, True, False]
    for kind in result.kinds:
        titles = [figure.effects[0].metric.title for figure in kind.figures]
        assert titles[:4] == ["tokens/s", "TTFT", "weights and KV cache", "tokens per step"]
        memory = kind.figures[2]
        assert memory.runs[0] == memory.runs[1]
        assert memory.runs[3] < memory.runs[0], "the cache is smaller"
        for texts in kind.texts:
            assert [text.same for text in texts[:2]] == [True, True]
            assert "12 tokens" in texts[0].sentence
    progress = [line for line in told if type(line).__name__ == "LabProgress"]
    assert {line.side for line in progress} == {-1, 0, 1, 2, 3}


def test_memory_is_the_weights_and_what_the_arenas_take_for_an_answer(
    found: tuple[LabCompared, list[LabLine]], guide: EngineClient
) -> None:
    result, _ = found
    model = guide.model
    for kind, prompt in zip(result.kinds, PROMPTS, strict=True):
        chat = [ChatMessage.of("user", prompt.text)]
        ids = model.encode_prompt(prompt.text if prompt.plain else chat)
        each = sum(store.bytes_per_token() for store in model.stores)
        weights = model.fit.weights + model.fit.draft_weights
        assert kind.figures[2].runs[0][0] == weights + (len(ids) + 12) * each


def test_recent_tokens_that_are_not_packed_count_whole(guide: EngineClient) -> None:
    def cached(tokens: int) -> float:
        fit = guide.model.fit
        return held(guide.model, tokens) - fit.weights - fit.draft_weights

    plain = cached(100)
    with Lab(guide).switched({keys.KV_KIND: "kivi"}):
        assert cached(100) == plain, "the last 128 stay in 16 bits"
        assert cached(1000) < 5 * plain


def test_quality_is_what_scoring_by_hand_gives(found: tuple[LabCompared, list[LabLine]], guide: EngineClient) -> None:
    result, _ = found
    again, drafts, packed = result.quality
    assert again is not None
    assert packed is not None
    assert drafts is not None
    assert again.kl == pytest.approx(0, abs=1e-9)
    assert (again.same_top, again.first) == (1.0, pytest.approx(again.perplexity))
    loaded = guide.model
    assert loaded.model is not None
    assert loaded.files is not None
    ids = loaded.files.tokenizer.encode(TEXT)
    kinds = (KVKind(), KVKind("int4", hadamard=True))
    plain, int4 = (readers_of(loaded.model, loaded.device, kind)(KeepAll()) for kind in kinds)
    scores = scored(score(ids, plain.present, int4.present, loaded.card.vocabulary, ""))
    assert packed.tokens == len(ids) - 1
    assert packed.kl == pytest.approx(scores.divergence, rel=1e-6)
    assert packed.perplexity == pytest.approx(scores.present, rel=1e-6)


def test_the_gap_is_that_of_the_models_own_scores(guide: EngineClient) -> None:
    loaded = guide.model
    ids = loaded.encode_prompt("def add(a, b):\n")
    assert loaded.readers is not None
    scores = loaded.readers(KeepAll()).exact(len(ids))(ids, 0)[-1].double().log_softmax(-1)
    first, second = torch.topk(scores, 2).indices.tolist()
    assert gap_of(loaded, ids, first, second) == pytest.approx(float(scores[first] - scores[second]), abs=1e-5)
    assert gap_of(loaded, ids, first, first) == 0.0
    assert "near-tie" in apart(1e-5)
    assert "0.500" in apart(0.5)
    assert apart(math.inf) == ""


@pytest.mark.slow
def test_models_that_do_not_fit_side_by_side_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    open_now: set[int] = set()
    load, close = EngineClient.load, EngineClient.close

    def one_at_a_time(client: EngineClient, *told: Any) -> Any:
        if open_now:
            raise EngineError("The model needs 6 MB, and 1 MB is free.")
        open_now.add(id(client))
        return load(client, *told)

    def closing(client: EngineClient) -> None:
        open_now.discard(id(client))
        close(client)

    monkeypatch.setattr(EngineClient, "load", one_at_a_time)
    monkeypatch.setattr(EngineClient, "close", closing)
    columns = Column(name="a", draft=""), Column(name="b", draft="")
    # Of three rounds only one has the time to be run.
    result = compare(request(*columns, text=TEXT, prompts=PROMPTS[:1], pairs=3, seconds=0.01, tokens=4), lambda _: None)
    assert "in 1 round, too few for a verdict" in result.taken
    assert result.quality == [None]
    assert "do not fit" in result.absent[0]
    assert all(text.same for kind in result.kinds for texts in kind.texts for text in texts)
    assert not open_now


def test_other_vocabularies_are_not_scored_against_each_other() -> None:
    result = compare(
        request(Column(name="guide", draft=""), Column(name="seeing", model="kvasir-seeing"), text=TEXT), lambda _: None
    )
    assert result.models == ["kvasir-guide", "kvasir-seeing"]
    assert result.lossless == [False]
    assert result.quality == [None]
    scored, counted = result.absent
    assert "has another vocabulary" in scored
    length = sum(len(kind.texts[0][0].texts[0]) for kind in result.kinds) / (12 * len(PROMPTS))
    assert counted.endswith(f"those of guide {length:.1f}."), "a token of the one is not as long as one of the other"


def test_one_column_and_missing_models_are_refused() -> None:
    with pytest.raises(LabError, match="at least two"):
        compare(request(Column(name="a")), lambda _: None)
    with pytest.raises(LabError, match="nowhere"):
        compare(request(Column(name="a", draft=""), Column(name="b", model="nowhere/at-all")), lambda _: None)


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text, self.tags, self.links = "", [], []  # type: ignore[var-annotated]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_shows_all_and_fetches_nothing(found: tuple[LabCompared, list[LabLine]]) -> None:
    result, _ = found
    page = _Texts()
    page.feed(report.html(result))
    assert page.links == []
    assert "What is a <page>?" in page.text
    assert "script" not in page.tags
    for column_ in result.columns:
        assert column_.name in page.text
    runs = sum(len(side) for kind in result.kinds for figure in kind.figures for side in figure.runs)
    assert page.tags.count("circle") == runs
    assert any("perplexity" in line and line in page.text for line in compared.quality_lines(result))
    lossy = [text for kind in result.kinds for texts in kind.texts for text in texts[2:] if not text.same]
    assert page.tags.count("mark") >= len(lossy)


def test_a_lossless_column_that_differs_is_a_fault_where_arithmetic_is_exact(
    found: tuple[LabCompared, list[LabLine]],
) -> None:
    result, _ = found
    text = result.kinds[0].texts[0][0]
    wrong = msgspec.structs.replace(text, same=False, sentence="Differs from token 2 on.")
    exact = [
        msgspec.structs.replace(column, set={**column.set, keys.BATCH_INVARIANT: True}) for column in result.columns
    ]
    strict = msgspec.structs.replace(result, columns=exact)
    assert FAULT in text_verdict(strict, 0, wrong)
    assert FAULT not in text_verdict(result, 0, wrong)
    assert "rounding" in text_verdict(result, 0, wrong)
    assert text_verdict(strict, 0, msgspec.structs.replace(wrong, near_tie=True)) == wrong.sentence
    assert text_verdict(strict, 2, wrong) == wrong.sentence, "4 bits promise nothing"


def test_files_of_prompts(tmp_path: Path) -> None:
    lined = tmp_path / "some.jsonl"
    lined.write_text('{"text": "Hello"}\n\n{"text": "x = 1", "kind": "code", "plain": true}\n')
    assert prompts_of(lined) == [ComparedPrompt("Hello"), ComparedPrompt("x = 1", "code", True)]
    lined.write_text('{"text": "one\u2028prompt\x85still"}\n', "utf-8")
    assert prompts_of(lined) == [ComparedPrompt("one\u2028prompt\x85still")]
    lined.write_text("Hello\n")
    with pytest.raises(LabError, match="file of prompts"):
        prompts_of(lined)
    for content, word in ((b"\xd0\xff", "UTF-8"), (b" \n", "is empty"), (b'{"text": " "}', "prompt without text")):
        lined.write_bytes(content)
        with pytest.raises(LabError, match=word):
            prompts_of(lined)


def test_the_command_writes_what_bench_shows_again(
    found: tuple[LabCompared, list[LabLine]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ComparisonRequest] = []
    monkeypatch.setattr(comparison, "compare", lambda request, show: asked.append(request) or found[0])
    made, page = tmp_path / "made.json", tmp_path / "made.html"
    told = ["--column", "one: prefix_cache=off", "--column", "two: kv_kind=int8", "--tokens", "4", "--pairs", "1"]
    done = kvasir("compare", *told, "--device", "cpu", "--json", str(made), "--html", str(page))
    assert done.exit_code == 0, done.output
    columns = [Column(name="one", set={keys.PREFIX_CACHE: False}), Column(name="two", set={keys.KV_KIND: "int8"})]
    assert asked == [ComparisonRequest(columns, tokens=4, pairs=1, device="cpu")]
    assert "prose" in done.output
    assert "4 bits" in page.read_text()
    again = kvasir("bench", "--load", str(made))
    assert again.exit_code == 0, again.output
    assert again.output.strip() == done.output.strip()
    made.write_text('{"machine": "m", "threads": 1, "torch": "2"}')
    assert "1 threads" in kvasir("bench", "--load", str(made)).output
    for content in ("[]", "no"):
        made.write_text(content)
        failed = kvasir("bench", "--load", str(made))
        assert failed.exit_code == 1
        assert "does not hold what it should" in failed.output
    assert "There is no file" in kvasir("bench", "--load", str(tmp_path / "none")).output
    assert kvasir("compare", "--column", "a: kv_kind=nothing").exit_code == 1
