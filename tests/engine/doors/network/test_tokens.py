"""Tokens and templates over HTTP, as vLLM's and llama.cpp's clients ask for them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from engine.text.tokenizer import Tokenizer
from tests.engine.doors.network.conftest import Running

TEXT = "Grüße, 你好 {x}"
MESSAGES: Any = [{"role": "user", "content": "abc"}]
RENDERED = "<|im_start|>user\nabc<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
def post(running: Running) -> Any:
    def asked(path: str, **body: Any) -> Any:
        with running.http() as http:
            return http.post(path, json=body).raise_for_status().json()

    return asked


def tokenizer(running: Running) -> Tokenizer:
    found: Tokenizer = running.engine.loaded.files.tokenizer
    return found


def test_texts_there_and_back(post: Any, running: Running) -> None:
    words = tokenizer(running)
    for field, special in (("prompt", True), ("content", False)):
        told = post("/tokenize", **{field: TEXT}, return_token_strs=True)
        ids = words.encode(TEXT, special=special)
        assert (told["tokens"], told["count"]) == (ids, len(ids))
        assert told["token_strs"] == [words.token(id) for id in ids]
        assert told["max_model_len"] == running.engine.loaded.card.context
        back = post("/detokenize", tokens=ids)
        assert back["prompt"] == back["content"] == words.decode(ids, skip_special=False)
    pieces = [each["piece"] for each in post("/tokenize", content=TEXT, with_pieces=True)["tokens"]]
    assert any(isinstance(piece, list) for piece in pieces), "a part of a character is no text"
    assert b"".join(bytes(piece) if isinstance(piece, list) else piece.encode() for piece in pieces) == TEXT.encode()


def test_conversations(post: Any, running: Running) -> None:
    assert post("/apply-template", messages=MESSAGES) == {"prompt": RENDERED}
    assert post("/tokenize", messages=MESSAGES)["tokens"] == tokenizer(running).encode(RENDERED, special=False)
    open_end = post("/apply-template", messages=MESSAGES, add_generation_prompt=False)
    assert open_end == {"prompt": "<|im_start|>user\nabc<|im_end|>\n"}
    for base in ("", "/v1"):
        counted = post(f"{base}/chat/completions/input_tokens", messages=MESSAGES)["input_tokens"]
        assert counted == len(post("/tokenize", messages=MESSAGES)["tokens"])
    begun = [*MESSAGES, {"role": "assistant", "content": "de"}]
    assert post("/apply-template", messages=begun) == {"prompt": RENDERED + "de"}


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/tokenize", {}, "There is no text."),
        ("/tokenize", {"prompt": 5}, "The request was not understood"),
        ("/tokenize", {"content": "a", "parse_special": False}, "'parse_special' is not supported"),
        ("/tokenize", {"messages": []}, "There is no message to answer."),
        ("/detokenize", {"tokens": [10**9]}, "1000000000 is not one of them."),
        ("/apply-template", {"prompt": "a"}, "'prompt' is not known"),
    ],
)
def test_what_is_refused(running: Running, path: str, body: Any, told: str) -> None:
    with running.http() as http:
        reply = http.post(path, json=body)
        assert reply.status_code == 400
        assert told in reply.json()["error"]["message"]
    assert httpx.post(f"{running.url}{path}", json=body).status_code == 401


def test_what_a_remote_tokenizer_asks_for(running: Running) -> None:
    with running.http() as http:
        told = http.get("/tokenizer_info").raise_for_status().json()
        template, card = running.engine.loaded.files.template, running.engine.loaded.card
        assert (told["tokenizer_class"], told["model_max_length"]) == ("PreTrainedTokenizerFast", card.context)
        assert told["chat_template"] == template.source
        assert {name: told[name] for name in template.special_tokens} == template.special_tokens
        running.engine.loaded = None
        assert http.get("/tokenizer_info").status_code == 503
