"""LoRA adapters where the model sees pictures: what transformers says with their products added to its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.loop.commands import AddRequest
from engine.protocol import LoadAdapter
from tests.conformance.adapter_files import ALL, merged, write_adapter
from tests.conformance.seeing_host import CHATS, COUNT, GREEDY, Seeing
from tests.conformance.seeing_models import theirs, write_seeing
from tests.conformance.texts import VARIANTS


def of_the_language_model(adapter: Path) -> None:
    """Leave the modules of the tower out, which no adapter here has."""
    file = adapter / "adapter_model.safetensors"
    tensors = {name: each for name, each in load_file(file).items() if ".language_model." in name}
    assert tensors
    save_file(tensors, file)


def say(host: Seeing, adapter: str) -> list[str]:
    ids = [f"{adapter}.{len(host.answers)}.{name}" for name in CHATS]
    for id, chat in zip(ids, CHATS.values(), strict=True):
        prompt = host.tokens(chat)
        host.engine.submit(AddRequest(id, prompt.ids, GREEDY, adapter=adapter, pictures=prompt.pictures))
    return ids


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma3", "qwen3-vl"])
def test_answers_are_those_of_added_weights(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model: Any = write_seeing(tmp_path / "model", name)
    write_adapter(tmp_path / "one", model, ALL, strength=0.6)
    of_the_language_model(tmp_path / "one")
    other = merged(model, tmp_path / "one")
    other.generation_config = model.generation_config
    host = Seeing(tmp_path / "model")
    host.engine.submit(LoadAdapter(name="one", path=str(tmp_path / "one")))
    host.engine.step()
    expected = {
        adapter: [theirs(each, chat, host.tokens(chat).ids, COUNT, name)[0] for chat in CHATS.values()]
        for adapter, each in (("", model), ("one", other))
    }
    assert not any(map(list.__eq__, *expected.values()))
    for budget in (512, 33):
        host.fresh(VARIANTS["16bit"].switches)
        for _ in range(2):
            ids = {adapter: say(host, adapter) for adapter in expected}
            host.run(budget)
            assert {adapter: host.of(mine) for adapter, mine in ids.items()} == expected
        assert all(host.cached[id] for mine in ids.values() for id in mine)
