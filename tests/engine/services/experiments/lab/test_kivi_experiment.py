"""The Lab's KIVI experiment with the bundled model for it, and its numbers counted another way."""

from __future__ import annotations

import pytest
import torch

from engine.compute.runner.perplexity import Scores
from engine.decoding.telemetry.pairs import estimate
from engine.library.paths import bundled_model
from engine.protocol import LoadOptions
from engine.protocol.lab import Heat, LabFigure, LabLine, LabPicture
from engine.services.client import EngineClient
from engine.services.experiments import laboratory
from engine.services.experiments.experiment import Lab, LabError
from engine.services.experiments.lab import kivi
from engine.services.experiments.pairs import Side
from engine.services.experiments.workloads import finding
from tests.engine.services.experiments.lab import finding_reference as reference

TEXT = 640
LAYERS, HEADS, WIDTH = 6, 4, 32


@pytest.fixture
def client(needle: EngineClient) -> EngineClient:
    return needle


def of_a_token(key_bits: float, value_bits: float) -> float:
    """Bytes of one token's keys and values in all layers."""
    return LAYERS * HEADS * WIDTH * (key_bits + value_bits) / 8


@pytest.mark.slow
def test_it_counts_what_fits_and_what_is_found(client: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kivi, "LONGEST", TEXT)
    monkeypatch.setattr(kivi, "SCORED", 320)
    monkeypatch.setattr(kivi, "ANSWER", 5)
    lines: list[LabLine] = []
    result = laboratory.run(Lab(client, pairs=1), kivi.Kivi(), lines.append)
    text = finding.text_for(client.model, TEXT, "1 0")
    length = len(text.ids)
    assert TEXT - 9 < length <= TEXT
    fits, found, _, perplexity = (figure.runs for figure in result.figures)
    # A scale of 16 bits for each int8 key, scale and minimum for 32 numbers in 4 bits and in KIVI's pages.
    int8, int4, two = 8 + 16 / WIDTH, 4 + 32 / 32, 2 + 32 / 32
    packed = 32 * ((length - 128) // 32)
    wanted = [length * of_a_token(bits, bits) for bits in (16, int8, int4, int4)]
    wanted.append(packed * of_a_token(two, two) + (length - packed) * of_a_token(16, 16))
    assert [runs[0] for runs in fits] == pytest.approx([1e9 * length / size for size in wanted])
    effect = result.figures[0].effects[-1]
    assert effect.verdict == "better"
    assert effect.ratio == pytest.approx(wanted[0] / wanted[-1])
    share = sum(found[-1]) / len(found[-1])
    assert result.headline == (
        f"{effect.ratio:.2f} times more tokens of text in 1 GB: {effect.after:,.0f} instead of {effect.before:,.0f}. "
        f"{share:.0f} % of the codes were found with KIVI, {sum(found[0]) / len(found[0]):.0f} % with 16 bits."
    )
    assert found[0][0] == reference.share_found(reference.model_of(), text) > 50
    for place, effect in enumerate(result.figures[1].effects):  # the table says what the sentence says
        assert (effect.before, effect.after) == (found[0][0], found[place + 1][0])
    assert f"Of the codes {found[0][0]:.0f} % were found with 16 bits" in result.why[2]
    assert [effect.verdict for effect in result.figures[3].effects] == ["few"] * 4
    assert result.lesson == kivi.Kivi.page.lesson
    exact, *others = (runs[0] for runs in perplexity)
    assert exact == pytest.approx(others[0], rel=0.02)
    assert result.text is not None
    shown = {line.side for line in lines if isinstance(line, LabPicture)}
    assert shown == set(range(len(kivi.KINDS)))
    state = client.state()
    assert (state["kv_kind"].value, state["kv_hadamard"].value) == ("16bit", True)


def test_the_pictures_are_the_keys_and_what_became_of_them(client: EngineClient) -> None:
    ids = finding.text_for(client.model, TEXT, "picture").ids
    pictures, largest = kivi._pictures(client.model, ids)
    assert all(isinstance(each, Heat) and each.columns == WIDTH for each in pictures)
    size, _, four, rotated, two = (torch.tensor(each.values).view(-1, WIDTH) for each in pictures)
    made_large = [1, 9, 1 + WIDTH // 2, 9 + WIDTH // 2]
    others = [channel for channel in range(WIDTH) if channel not in made_large]
    assert largest > 4
    assert size[:, made_large].mean() > 4 * size[:, others].mean()
    # A scale that a token's channels share hurts the small ones, a channel's own none more than others.
    assert four[:, others].mean() > 3 * four[:, made_large].mean()
    assert 0.5 < two[:, others].mean() / two[:, made_large].mean() < 2
    assert four[:, others].mean() > rotated[:, others].mean()


def test_a_figure_of_many_texts_is_the_share_of_all_their_codes() -> None:
    runs = [[100.0, 100.0, 25.0], [100.0, 0.0, 0.0]]
    made = LabFigure(effects=[estimate(*runs, kivi.FOUND.metric)], runs=runs)
    (effect,) = kivi._pooled(made).effects
    assert (effect.before, effect.after) == (75.0, pytest.approx(100 / 3))


def test_a_model_that_finds_nothing_shows_nothing(client: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def found_little(side: kivi._CacheKindSide) -> Side:
        side.bits = 16.0
        return {kivi.FITS.key: 1000.0, kivi.FOUND.key: 25.0, kivi.SPEED.key: 10.0}

    monkeypatch.setattr(kivi, "affordable", lambda *_, **__: TEXT)
    monkeypatch.setattr(kivi._CacheKindSide, "run", found_little)
    monkeypatch.setattr(kivi, "same_text", lambda *_, **__: None)
    monkeypatch.setattr(kivi, "_scored", lambda *_: Scores(63, 2.0, 2.0, 0.1, ""))
    result = laboratory.run(Lab(client, pairs=1), kivi.Kivi(), lambda line: None)
    said = "With everything kept this model finds 25 % of the codes, so that it cannot show what is lost."
    assert result.headline.endswith(said)
    assert result.why[-1] == result.lesson == said


def test_what_cannot_show_it_is_refused_with_what_can() -> None:
    with EngineClient() as client:
        client.load(str(reference.NEEDLE), "", LoadOptions(device="cpu", context=1024))
        with pytest.raises(LabError, match=r"context is 1,024 tokens.*kvasir-needle, which comes with"):
            laboratory.run(Lab(client), kivi.Kivi(), lambda line: None)
        client.load(bundled_model().path, "", LoadOptions(device="cpu"))
        with pytest.raises(LabError, match=r"never learned to find a code.*kvasir-needle, which comes with"):
            laboratory.run(Lab(client), kivi.Kivi(), lambda line: None)
        pages = {page.name: page for page in laboratory.index(client.model, client.state()).pages}
    assert pages["kivi"].brings == pages["quest"].brings == "kvasir-needle"
    assert pages["quest"].refused
