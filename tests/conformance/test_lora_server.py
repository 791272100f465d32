"""Adapters over the wire: OpenAI's own client chooses them as models, the window's messages load and list them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
import typer
from transformers import LlamaForCausalLM

from engine import protocol as p
from engine.doors.cli.arguments import adapters_of
from engine.doors.cli.chat import ChatArguments, run_chat
from engine.services.client import EngineError
from tests.conformance.adapter_files import write_adapter
from tests.kit.checkpoints import write_llama
from tests.kit.servers import Client, Serving

GREEDY = p.Sampling(temperature=0.0, max_tokens=12, ignore_eos=True)
TEXT = "a text that is 4 pages long: " + "0123456789" * 4


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served")
    write_llama(root / "base", num_hidden_layers=3)
    model = LlamaForCausalLM.from_pretrained(root / "base", dtype=torch.float32)
    write_adapter(root / "one", model, strength=0.7)
    write_adapter(root / "two", model, ("v_proj", "up_proj"), 8, seed=1, strength=0.7)
    return root


@pytest.fixture(scope="module")
def serving(home: Path) -> Iterator[Serving]:
    made = Serving(home / "base", {"one": str(home / "one")})
    yield made
    made.stop()


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    with serving.connect() as socket:
        client = Client(socket)
        while client.welcome.loaded is None or not client.welcome.adapters:
            client.send(p.ListAdapters())
            told = client.until(p.Adapters)
            if told.adapters:
                break
        yield client


def answer(client: Client, adapter: str) -> str:
    client.send(p.Generate(id=f"by {adapter}", prompt=TEXT, sampling=GREEDY, adapter=adapter))
    message = client.until(p.Finished | p.Error)  # type: ignore[arg-type]
    if isinstance(message, p.Error):
        raise ValueError(message.message)
    return "".join(each.text for each in client.passed if isinstance(each, p.Delta))


def test_a_model_by_the_name_of_its_adapter(serving: Serving, client: Client) -> None:
    with serving.openai() as api:
        assert [model.id for model in api.models.list()] == ["base", "one"]
        assert (api.models.retrieve("one").id, api.models.retrieve("base").id) == ("one", "base")
        texts = {}
        for name in ("base", "one"):
            said: Any = {"ignore_eos": True}
            done = api.completions.create(model=name, prompt=TEXT, max_tokens=12, temperature=0, extra_body=said)
            assert done.model == name
            texts[name] = done.choices[0].text
            chunks = api.completions.create(
                model=name, prompt=TEXT, max_tokens=12, temperature=0, stream=True, extra_body=said
            )
            found = list(chunks)
            assert "".join(chunk.choices[0].text for chunk in found if chunk.choices) == texts[name]
            assert {chunk.model for chunk in found} == {name}
        assert texts["base"] != texts["one"]
        assert texts == {"base": answer(client, ""), "one": answer(client, "one")}
        chat: Any = [{"role": "user", "content": "abc"}]
        assert api.chat.completions.create(model="one", messages=chat, max_tokens=3).model == "one"
        with pytest.raises(openai.NotFoundError, match="these: base, one"):
            api.completions.create(model="two", prompt=TEXT)


def test_loading_listing_and_unloading(client: Client, home: Path) -> None:
    before = answer(client, "")
    client.send(p.LoadAdapter(name="two", path=str(home / "two")))
    told = client.until(p.Adapters)
    assert [(card.name, card.rank, card.modules) for card in told.adapters] == [("one", 4, 21), ("two", 8, 6)]
    client.send(p.ListAdapters())
    assert client.until(p.Adapters) == told
    assert len({before, answer(client, "one"), answer(client, "two")}) == 3
    client.send(p.LoadAdapter(name="three", path=str(home / "base")))
    assert client.until(p.Error).message.startswith(f"{home / 'base'} has no adapter_config.json.")
    client.send(p.LoadAdapter(name="three", path=str(home / "nowhere")))
    assert client.until(p.Error).message.startswith(f"There is no folder {home / 'nowhere'}.")
    client.send(p.UnloadAdapter(name="two"))
    assert [card.name for card in client.until(p.Adapters).adapters] == ["one"]
    with pytest.raises(ValueError, match="No adapter is called 'two'"):
        answer(client, "two")
    assert answer(client, "") == before


def test_adapters_come_back_with_a_model_that_was_idle(serving: Serving, client: Client) -> None:
    before = answer(client, "one")
    client.send(p.UnloadAfter(minutes=1e-4))
    assert client.until(p.Unloaded).idle
    with serving.openai() as api:
        assert [(model.id, model.model_extra) for model in api.models.list()] == [
            ("base", {"state": "not-loaded"}),
            ("one", {"state": "not-loaded"}),
        ]
        client.send(p.UnloadAfter(minutes=0))
        client.send(p.CountTokens(id="told", prompt=""))
        client.until(p.Counted | p.Error)  # type: ignore[arg-type]
        done = api.completions.create(
            model="one", prompt=TEXT, max_tokens=12, temperature=0, extra_body={"ignore_eos": True}
        )
        assert (done.model, done.choices[0].text) == ("one", before)
    client.until(p.Adapters)


def test_a_comparison_is_made_with_the_adapter(client: Client) -> None:
    client.send(p.Compare(id="c", key="prefix_cache", prompt=TEXT, sampling=GREEDY, rounds=1, adapter="one"))
    assert client.until(p.Compared).same
    client.send(p.Compare(id="c", key="prefix_cache", prompt=TEXT, sampling=GREEDY, rounds=1, adapter="nobody"))
    assert client.until(p.Error).message.startswith("No adapter is called 'nobody'.")


def test_serving_ends_where_an_adapter_is_needed_and_bad(home: Path) -> None:
    made = Serving(home / "base", {"one": str(home / "one"), "bad": str(home / "base")})
    made.thread.join(300)
    assert made.server.exit_code == 1
    assert "has no adapter_config.json" in made.server.failure


def test_in_the_terminal(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`kvasir chat --adapter FOLDER` answers with it."""

    def said(adapter: str) -> str:
        settings = ChatArguments(
            model=str(home / "base"), draft="", sampling=GREEDY, device="cpu", raw=True, adapter=adapter,
            load_options=p.LoadOptions(dtype="float32", memory=300e6),
        )  # fmt: skip
        run_chat(settings, TEXT)
        return capsys.readouterr().out

    plain, adapted = said(""), said(str(home / "one"))
    assert plain.strip()
    assert plain != adapted
    with pytest.raises(EngineError, match="There is no folder"):
        said(str(home / "nowhere"))


def test_names_and_folders_on_the_command_line() -> None:
    assert adapters_of(["a=/x", " b =/y=z"]) == {"a": "/x", "b": "/y=z"}
    for wrong in ("a", "=x", "a="):
        with pytest.raises(typer.BadParameter, match="is not NAME=FOLDER"):
            adapters_of([wrong])
