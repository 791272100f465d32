"""Text between two others, in the shapes of llama.cpp, OpenAI and Ollama."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from engine.text.tokenizer import Tokenizer
from tests.engine.doors.network.conftest import Running
from tests.engine.text.samples import byte_level

ASKED = "<|fim_prefix|>def f(<|fim_suffix|>):\n<|fim_middle|>"
EXTRA: Any = {
    "n_indent": 4,
    "samplers": ["top_k", "infill"],
    "t_max_predict_ms": 500,
    "cache_prompt": True,
    "id_slot": 0,
}


@pytest.fixture
def filling(running: Running) -> Iterator[httpx.Client]:
    running.engine.speak(running.engine.template, "a, b", context=400)
    files = vars(running.engine.loaded.files)
    files["tokenizer"] = Tokenizer(byte_level(["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]))
    running.engine.loaded.files = SimpleNamespace(**files)
    with running.http() as http:
        yield http


def test_llamacpps_infill(filling: httpx.Client, running: Running) -> None:
    body = {"input_prefix": "def ", "prompt": "f(", "input_suffix": "):\n", "n_predict": 9, **EXTRA}
    whole = filling.post("/infill", json=body).json()
    assert running.prompt == ASKED
    assert (whole["content"], whole["stop"], whole["stop_type"], whole["tokens_predicted"]) == ("a, b", True, "eos", 4)
    lines = filling.post("/infill", json={**body, "stream": True}).text.split("\n\n")
    parts = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert "".join(part["content"] for part in parts) == "a, b"
    assert [part["stop"] for part in parts] == [False] * (len(parts) - 1) + [True]
    assert filling.post("/infill", json={"input_prefix": "a"}).json()["error"]["param"] == "input_suffix"


def test_suffixes_of_completions(filling: httpx.Client, running: Running) -> None:
    openai = filling.post("/v1/completions", json={"prompt": "def f(", "suffix": "):\n", "max_tokens": 9})
    assert (openai.json()["choices"][0]["text"], running.prompt) == ("a, b", ASKED)
    body = {"model": "tiny", "prompt": "def f(", "suffix": "):\n", "stream": False}
    ollama = filling.post("/api/generate", json=body)
    assert (ollama.json()["response"], running.prompt) == ("a, b", ASKED)
    formed = filling.post("/api/generate", json={**body, "format": "json"})
    assert (formed.status_code, "suffix" in formed.json()["error"]) == (400, True)
    echo = filling.post("/v1/completions", json={"prompt": "a", "suffix": "b", "echo": True})
    assert echo.json()["error"]["param"] == "suffix"


def test_a_model_without_marks_says_so(http: httpx.Client) -> None:
    for path, body in (
        ("/infill", {"input_prefix": "a", "input_suffix": "b"}),
        ("/v1/completions", {"prompt": "a", "suffix": "b"}),
        ("/api/generate", {"model": "tiny", "prompt": "a", "suffix": "b"}),
    ):
        answer = http.post(path, json=body)
        assert answer.status_code == 400
        assert "was not trained to fill in" in answer.text
