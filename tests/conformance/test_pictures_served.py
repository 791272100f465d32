"""Pictures over HTTP, by OpenAI's own client, and over the websocket: the engine itself behind the whole server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import torch

from engine import protocol as p
from engine.doors.http.prompts import MARK
from engine.services.answers.pictures import PromptImages
from engine.text.prompt import rendered
from tests.conformance.seeing_host import link, shows
from tests.conformance.seeing_models import IMAGE, photo, theirs, user, write_seeing
from tests.kit.servers import Client, Serving

COUNT = 16
QUESTION = "describe this picture"
PICTURE, OTHER = photo(100, 80), photo(61, 109)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("models") / "seeing"


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return write_seeing(folder)


@pytest.fixture(scope="module")
def serving(folder: Path, model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVASIR_HOME", str(tmp_path_factory.mktemp("home")))
        made = Serving(folder)
        with made.connect() as socket:
            client = Client(socket)
            while made.engine.loaded is None:
                client.receive()
            client.send(p.Set(key="batch_invariant", value=True))
            client.until(p.Options)
        yield made
        made.stop()


@pytest.fixture
def api(serving: Serving) -> Iterator[openai.OpenAI]:
    with serving.openai() as client:
        yield client


@pytest.fixture
def http(serving: Serving) -> Iterator[httpx.Client]:
    with serving.http() as client:
        yield client


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    with serving.connect() as socket:
        yield Client(socket)


def expected(serving: Serving, model: Any, chat: list[p.ChatMessage]) -> tuple[str, int]:
    """The text of transformers' answer, and how many tokens the prompt has."""
    loaded: Any = serving.engine.loaded
    text = rendered(loaded.files.template, chat)
    ids = PromptImages(loaded, chat).within(loaded.files.tokenizer.encode(text.text, special=text.special)).ids
    return loaded.files.tokenizer.decode(theirs(model, chat, ids, COUNT)[0]), len(ids)


def ask(api: openai.OpenAI, *messages: Any, **options: Any) -> Any:
    given = {"temperature": 0.0, "max_tokens": COUNT, "extra_body": {"ignore_eos": True}} | options
    return api.chat.completions.create(model="", messages=list(messages), **given)


def test_describe_this_picture(api: openai.OpenAI, serving: Serving, model: Any) -> None:
    text, length = expected(serving, model, [user(QUESTION, PICTURE)])
    done = ask(api, shows(QUESTION, link(PICTURE)))
    assert done.choices[0].message.content == text
    assert done.usage.prompt_tokens == length > 56
    streamed = ask(api, shows(QUESTION, link(PICTURE)), stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices) == text


def marked(serving: Serving) -> str:
    """The prompt of a question about a picture, as plain text."""
    loaded: Any = serving.engine.loaded
    text = rendered(loaded.files.template, [user(QUESTION, PICTURE)]).text
    before, rest = text.split("<|vision_start|>")
    return f"{before}{MARK}{rest.partition('<|vision_end|>')[2]}"


def test_pictures_in_plain_text(http: httpx.Client, serving: Serving, model: Any) -> None:
    """Told as those of messages are; and an embedding of one is not that of the text alone."""
    prompt, file = marked(serving), base64.b64encode(PICTURE).decode()
    given = {"prompt_string": prompt, "multimodal_data": [file]}
    before, after = ({"type": "text", "text": part} for part in prompt.split(MARK))
    parts = {"content": [before, {"type": "image_url", "image_url": {"url": link(PICTURE)}}, after]}
    text, length = expected(serving, model, [user(QUESTION, PICTURE)])
    asked = {"prompt": [given, parts], "temperature": 0.0, "n_predict": COUNT, "ignore_eos": True}
    for told in http.post("/completion", json=asked).json():
        assert (told["content"], told["tokens_evaluated"]) == (text, length)
    rows = http.post("/embeddings", json={"content": [given, parts, {"prompt_string": prompt}]}).json()
    first, second, bare = (np.array(row["embedding"][0]) for row in rows)
    np.testing.assert_allclose(first, second, atol=1e-5)
    assert first @ bare < 0.999


@pytest.mark.parametrize(
    ("prompt", "param", "said"),
    [
        ({"prompt_string": "a", "multimodal_data": ["aGk="]}, "prompt.multimodal_data", "has 0 marks"),
        ({"prompt_string": MARK * 2, "multimodal_data": ["aGk="]}, "prompt.multimodal_data", "has 2 marks"),
        ({"prompt_string": MARK, "multimodal_data": ["a?"]}, "prompt.multimodal_data[0]", "damaged"),
        ({"prompt_string": MARK, "multimodal_data": ["aGk="]}, "prompt", "not a picture"),
        ({"prompt_string": MARK * 17, "multimodal_data": ["aGk="] * 17}, "prompt", "16 pictures"),
        ({"content": [{"type": "image_url", "image_url": "http://a/b"}]}, "prompt.content[0].image_url", "not fetched"),
    ],
)
def test_no_such_pictures_in_plain_text(http: httpx.Client, prompt: Any, param: str, said: str) -> None:
    answer = http.post("/completion", json={"prompt": prompt})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert said in answer.json()["error"]["message"]


def test_a_conversation_goes_on_from_what_was_read(api: openai.OpenAI, serving: Serving, model: Any) -> None:
    first = ask(api, shows(QUESTION, link(OTHER)))
    answer = first.choices[0].message.content
    said = [user(QUESTION, OTHER), p.ChatMessage.of("assistant", answer), user("and now? " * 4, PICTURE)]
    messages = [shows(QUESTION, link(OTHER)), {"role": "assistant", "content": answer}]
    second = ask(api, *messages, shows("and now? " * 4, link(PICTURE)))
    assert second.usage.prompt_tokens_details.cached_tokens >= 45
    assert second.choices[0].message.content == expected(serving, model, said)[0]


def test_over_the_websocket(client: Client, serving: Serving, model: Any) -> None:
    said = [user(QUESTION, PICTURE)]
    text, length = expected(serving, model, said)
    client.send(p.CountTokens(id="c", prompt=said))
    assert client.until(p.Counted).tokens == length
    greedy = p.Sampling(temperature=0.0, max_tokens=COUNT, ignore_eos=True)
    client.send(p.Generate(id="g", prompt=said, sampling=greedy, chat="a chat"))
    client.until(p.Finished)
    assert "".join(message.text for message in client.passed if isinstance(message, p.Delta)) == text
    told = [said[0], p.ChatMessage.of("assistant", text), user("and?", OTHER)]
    client.send(p.Generate(id="h", parent="g", prompt=told, sampling=greedy, chat="a chat"))
    assert client.until(p.Finished).usage.cached_tokens >= length // 16 * 16
    assert "".join(m.text for m in client.passed if isinstance(m, p.Delta)) == expected(serving, model, told)[0]
    client.send(p.MeasureCost(id="m", prompt="", chat="a chat"))
    assert client.until(p.Error).message.startswith("This chat has pictures")
    client.send(p.Compare(id="x", key="prefix_cache", prompt=said, sampling=greedy, rounds=1))
    compared = client.until(p.Compared)
    assert sorted((run.value, run.cached_tokens > 0) for run in compared.runs) == [(False, False), (True, True)]
    assert compared.same


def test_a_mark_that_the_model_drew_stands_for_no_picture(client: Client) -> None:
    drawn = p.Sampling(temperature=0.0, max_tokens=3, logit_bias={IMAGE: 100.0}, ignore_eos=True)
    said = [user(QUESTION, PICTURE)]
    client.send(p.Generate(id="g", prompt=said, sampling=drawn))
    client.until(p.Finished)
    assert [info.id for m in client.passed if isinstance(m, p.Delta) for info in m.tokens] == [IMAGE] * 3
    told = [*said, p.ChatMessage.of("assistant", ""), user("and?")]
    client.send(p.Generate(id="h", parent="g", prompt=told, sampling=p.Sampling(max_tokens=1)))
    assert client.until(p.Finished).reason == "length"


DAMAGED = PICTURE[: len(PICTURE) // 2]
BAD: dict[str, tuple[Any, str]] = {
    "an address": (shows("x", "https://example.org/a.jpg"), "Pictures are not fetched from addresses."),
    "a file's address": (shows("x", "file:///etc/passwd"), "Pictures are not fetched from addresses."),
    "no address": ({"role": "user", "content": [{"type": "image_url"}]}, "Pictures are not fetched from addresses."),
    "no base64": (shows("x", "data:image/png,abc"), "The data URL of the picture is not in base64."),
    "damaged base64": (shows("x", "data:image/png;base64,a?=="), "The base64 of the picture is damaged."),
    "no picture": (shows("x", link(b"%PDF-1.7 and so on")), "The file is not a picture that Kvasir reads"),
    "nothing": (shows("x", link(b"")), "The file is not a picture that Kvasir reads"),
    "half of one": (shows("x", link(DAMAGED)), "The picture is damaged, or not all of it is there."),
    "the second": (shows("x", link(PICTURE), link(DAMAGED)), "Picture 2 of 2: The picture is damaged"),
    "ten thousand": (shows("x", *[link(b"x")] * 10_000), "The conversation has 10,000 pictures, and at most 128"),
    "of the system": (shows("x", link(PICTURE)) | {"role": "system"}, "A message of the role 'system' cannot have"),
    "a mark": (shows("<|image_pad|>", link(PICTURE)), "The text of the conversation has <|image_pad|>"),
    "sound": ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, "Content of type 'input"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", list(BAD))
def test_what_is_no_picture_is_refused_with_a_sentence(api: openai.OpenAI, case: str) -> None:
    message, sentence = BAD[case]
    with pytest.raises(openai.BadRequestError) as refused:
        ask(api, message)
    assert refused.value.body["message"].startswith(sentence)  # type: ignore[index]
    assert ask(api, shows(QUESTION, link(PICTURE)), max_tokens=1).choices[0].message.content


def test_more_pictures_than_the_context_holds(api: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(api, shows("x", *[link(PICTURE)] * 20))
    assert refused.value.code == "context_length_exceeded"
    turns = [shows("x", link(PICTURE)), {"role": "assistant", "content": "y"}] * 15
    cut = api.chat.completions.with_raw_response.create(
        model="",
        messages=[*turns, shows("z", link(OTHER))],
        max_tokens=2,
        extra_body={"overflow": "drop_middle"},
    )
    assert cut.headers["x-kvasir-context-cut"].startswith("drop_middle; first=2;")
    assert cut.parse().usage.prompt_tokens <= 1024 - 2  # type: ignore[union-attr]


def test_a_frame_of_another_shape(client: Client, serving: Serving) -> None:
    for pictures in ("x", [1], ["not base64!"]):
        message = {"role": "user", "content": "x", "pictures": pictures}
        client.socket.send(json.dumps({"type": "generate", "id": "g", "prompt": [message]}))
        assert client.until(p.Error).code == "malformed"
    wrong = [p.ChatMessage.of("assistant", "x", pictures=[PICTURE])]
    client.send(p.Generate(id="g", prompt=wrong))
    assert client.until(p.Error).message.startswith("Only messages of the user can have pictures.")
    assert httpx.get(f"{serving.url}/health").json()["status"] == "ok"
