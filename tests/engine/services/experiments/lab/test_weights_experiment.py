"""The Lab's weights in 16, 8 and 4 bits: bytes by their shapes, perplexity by transformers."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

from engine.library.paths import find_model
from engine.protocol import LoadOptions
from engine.protocol.lab import Amounts
from engine.services.client import EngineClient
from engine.services.experiments.experiment import Lab, LabError
from engine.services.experiments.lab import weights
from engine.services.experiments.laboratory import run
from engine.services.experiments.workloads.conversations import asked, conversation
from tests.bench.assisted import dequantised
from tests.engine.services.experiments.lab.conftest import loaded

TEXTS = 2


@pytest.fixture(scope="module")
def client() -> Iterator[EngineClient]:
    """In float32, as the model of transformers computes that its figures are held against."""
    yield from loaded("", draft="", dtype="float32")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PIECES", TEXTS)
    monkeypatch.setattr(weights, "PIECE", 256)


@pytest.mark.slow
def test_bytes_and_perplexity_are_those_counted_elsewhere(client: EngineClient) -> None:
    loaded, lab = client.model, Lab(client, pairs=1)
    result = run(lab, weights.Weights(), lambda line: None)
    plain, eight, four = (1e6 * side[0] for side in result.figures[0].runs)
    config = json.loads((Path(loaded.command.path) / "config.json").read_text())
    hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    head, keys = config["head_dim"], config["num_key_value_heads"]
    shapes = [(hidden + 2 * keys * head, hidden), (hidden, hidden), (2 * inner, hidden), (hidden, inner)]
    packed = layers * sum(rows * columns for rows, columns in shapes)
    assert plain - eight == packed - 4 * layers * sum(rows for rows, _ in shapes)  # a float32 scale for each row
    assert plain - four == pytest.approx(2 * packed - packed / 2 - 4 * packed / 64, rel=0.03)  # scales of groups of 64
    assert plain == pytest.approx(2 * loaded.card.parameters, rel=0.05)  # and a table of rotations
    draw = lab.random
    texts = [conversation(loaded, 256, draw) for _ in range(TEXTS)]
    assert loaded.files is not None
    reference = dequantised(loaded.files.checkpoint)
    with torch.no_grad():
        losses = [float(reference(torch.tensor([ids]), labels=torch.tensor([ids])).loss) for ids in texts]
    assert result.figures[2].runs[0][0] == pytest.approx(math.exp(sum(losses) / TEXTS), rel=1e-3)
    assert result.figures[2].runs[2][0] == pytest.approx(result.figures[2].runs[0][0], rel=0.01)  # the same numbers
    answer = reference.generate(
        torch.tensor([asked(loaded, 1, draw)]), do_sample=False, max_new_tokens=weights.ANSWER, eos_token_id=[0, 2]
    )
    assert result.text is not None
    assert loaded.files is not None
    written = [id for id in answer[0, -result.text.tokens - 1 :].tolist() if id not in (0, 2)]
    assert loaded.files.tokenizer.decode(written).endswith(result.text.texts[0])
    picture = result.pictures[0]
    assert isinstance(picture, Amounts)
    assert picture.amounts == [plain, eight, four]
    assert picture.limit > plain


@pytest.mark.slow
def test_layers_of_a_16_bit_model_are_rounded(client: EngineClient) -> None:
    with EngineClient() as other:
        other.load(find_model("kvasir-hybrid").path, "", LoadOptions(device="cpu"))
        result = run(Lab(other, pairs=1), weights.Weights(), lambda line: None)
        plain, eight, four = (side[0] for side in result.figures[0].runs)
        assert plain > eight > four
        losses = [side[0] for side in result.figures[2].runs]
        assert len(set(losses)) == 3
        assert [effect.verdict for effect in result.figures[2].effects] == ["few", "few"]  # one text is no verdict
        assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_what_it_cannot_copy_is_refused(client: EngineClient) -> None:
    experiment, loaded, state = weights.Weights(), client.model, client.state()
    huge = dataclasses.replace(loaded, card=structs.replace(loaded.card, parameters=10**13))
    short = dataclasses.replace(loaded, card=structs.replace(loaded.card, context=64))
    for model, says in ((huge, "GB are free"), (short, "context"), (dataclasses.replace(loaded, model=None), "copied")):
        refusal = experiment.refuses(model, state)
        assert refusal is not None
        assert says in refusal.why
        assert "bundled model" in refusal.instead


def test_copies_have_arenas_for_what_they_serve_alone(client: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the context is; and what does not fit all the same is a sentence."""
    made: list[int] = []

    def full(model: object, pages: int, *_: object) -> Any:
        made.append(pages)
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(weights, "new_runner", full)
    with pytest.raises(LabError, match="not enough memory for the copy of kvasir-guide in 16 bits"):
        run(Lab(client, pairs=1), weights.Weights(), lambda line: None)
    assert made == [weights.CONTEXT // 16 + 1]
    long = dataclasses.replace(client.model, card=structs.replace(client.model.card, context=10**9))
    assert weights.Weights().refuses(long, client.state()) is None


@pytest.mark.long
def test_in_full(client: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    result = run(Lab(client), weights.Weights(), lambda line: None)
    assert result.figures[0].effects[-1].verdict == "better"
