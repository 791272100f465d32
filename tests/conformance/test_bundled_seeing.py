"""The tiny model that sees, which comes with the program: it says what is in pictures that it was not trained on."""

from __future__ import annotations

import io
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.protocol import ChatMessage
from tests.conformance.seeing_host import Seeing, link, shows
from tests.kit.servers import Serving

DEMO = Path(__file__).parents[2] / "assets" / "demo"
SEEING = DEMO / "kvasir-seeing"
QUESTION = "describe this picture"


class Drawn(NamedTuple):
    """A picture's file and what it shows."""

    file: bytes
    said: str


@pytest.fixture(scope="module")
def drawn() -> list[Drawn]:
    """Of another seed than the training's, as PNG and as JPEG."""
    sys.path.insert(0, str(DEMO))
    try:
        import seeing
    finally:
        sys.path.remove(str(DEMO))
    chance, made = random.Random(20261125), []
    for number in range(24):
        shown = chance.choice(list(seeing.COLOURS)), chance.choice(seeing.SHAPES), chance.choice(seeing.PLACES)
        file = io.BytesIO()
        seeing.draw(*shown, chance).save(file, "PNG" if number % 2 else "JPEG", quality=92)
        made.append(Drawn(file.getvalue(), seeing.answer("describe", *shown)))
    return made


@pytest.fixture(scope="module")
def host() -> Iterator[Seeing]:
    torch.set_num_threads(1)
    with Seeing(SEEING) as host:
        yield host


def say(host: Seeing, messages: list[ChatMessage]) -> str:
    loaded: Any = host.engine.loaded
    ids = host.reply(messages)
    end = loaded.files.tokenizer.encode("<|im_end|>", special=True)[0]
    text: str = loaded.files.tokenizer.decode(ids[: ids.index(end)])
    return text


@pytest.mark.slow
def test_it_tells_colours_shapes_and_places_apart(host: Seeing, drawn: list[Drawn]) -> None:
    found = [say(host, [ChatMessage.of("user", QUESTION, pictures=[each.file])]) for each in drawn]
    assert sum(text == each.said for text, each in zip(found, drawn, strict=True)) >= 0.9 * len(drawn), found
    assert len({each.said for each in drawn}) > 12


def test_it_says_what_it_says_in_transformers(host: Seeing, drawn: list[Drawn]) -> None:
    theirs: Any = transformers.Qwen3_5ForConditionalGeneration.from_pretrained(SEEING, dtype=torch.float32)
    processor = Qwen2VLImageProcessorPil.from_pretrained(SEEING)
    loaded: Any = host.engine.loaded
    for each in drawn[:6]:
        prompt = host.tokens([ChatMessage.of("user", QUESTION, pictures=[each.file])])
        tokens = torch.tensor([prompt.ids])
        image = dict(processor([Image.open(io.BytesIO(each.file))], return_tensors="pt"))
        mark = theirs.config.image_token_id
        with torch.inference_mode():
            given = {"input_ids": tokens, "mm_token_type_ids": (tokens == mark).int(), **image}
            said = theirs.generate(**given, max_new_tokens=16, do_sample=False)[0, tokens.shape[1] :].tolist()
        end = loaded.files.tokenizer.encode("<|im_end|>", special=True)[0]
        text = loaded.files.tokenizer.decode(said[: said.index(end)])
        assert say(host, [ChatMessage.of("user", QUESTION, pictures=[each.file])]) == text


def test_openai_s_client_asks_for_a_description(drawn: list[Drawn], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVASIR_HOME", str(tmp_path))
        serving = Serving(SEEING)
        try:
            while getattr(serving, "engine", None) is None or serving.engine.loaded is None:
                time.sleep(0.05)
            with serving.openai() as api:
                said = [
                    api.chat.completions.create(
                        model="", messages=[shows(QUESTION, link(each.file))], temperature=0.0, max_tokens=24
                    )
                    for each in drawn[:8:2]
                ]
        finally:
            serving.stop()
    texts = [done.choices[0].message.content for done in said]
    assert sum(text == each.said for text, each in zip(texts, drawn[:8:2], strict=True)) >= 3, texts
