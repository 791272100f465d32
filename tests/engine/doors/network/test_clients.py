"""Requests as other programs send them, recorded: what they ask for is served, what says nothing here is ignored."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from engine.doors.http.body import MAX_BODY
from engine.doors.http.fields import BadField, decoded
from engine.doors.http.openai import stream
from engine.doors.http.openai.types import CompletionIn, OpenAIChat, StreamOptions
from engine.doors.http.openai.writers import ChatWriter, Telling, TextWriter
from engine.doors.http.timings import AnswerPace
from engine.protocol import Delta as Part
from engine.protocol import Finished, Prefill, Sampling, Timings, TokenInfo, Usage
from engine.text.template import ChatTemplate
from tests.engine.doors.network.conftest import Running

MESSAGES = [{"role": "user", "content": "abc"}]
CHAT: dict[str, tuple[dict[str, Any], Sampling]] = {
    "guidellm": (
        {
            "model": "tiny", "stream": True, "stop": None, "ignore_eos": True, "max_completion_tokens": 8,
            "max_tokens": 8, "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "messages": [{"role": "user", "content": [{"type": "text", "text": "abc"}]}],
        },
        Sampling(max_tokens=8, ignore_eos=True),
    ),
    "open-webui": (
        {
            "model": "tiny", "stream": True, "stream_options": {"include_usage": True}, "think": False,
            "repeat_penalty": 1.1, "num_ctx": 4096, "keep_alive": "5m", "reasoning_effort": None, "seed": 4,
            "messages": [
                {"role": "user", "content": "abc", "id": "1", "timestamp": 2, "models": ["tiny"], "files": []},
                {"role": "assistant", "content": "x", "done": True, "usage": {"total_tokens": 1}},
                *MESSAGES,
            ],
        },
        Sampling(repetition_penalty=1.1, seed=4),
    ),
    "llama.cpp's page": (
        {
            "messages": MESSAGES, "stream": True, "cache_prompt": True, "reasoning_format": "auto", "samplers": "",
            "temperature": 0.8, "dynatemp_range": 0, "dynatemp_exponent": 1, "top_k": 40, "top_p": 0.95, "min_p": 0.05,
            "xtc_probability": 0, "xtc_threshold": 0.1, "typ_p": 1, "n_predict": -1, "repeat_last_n": 64,
            "repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0, "dry_multiplier": 0, "dry_base": 1.75,
            "dry_allowed_length": 2, "dry_penalty_last_n": -1, "timings_per_token": False, "verbose": False,
        },
        Sampling(0.8, 40, 0.95, 0.05, 1.0, 1.0),
    ),
    "vLLM's": (
        {
            "messages": MESSAGES, "add_generation_prompt": True, "continue_final_message": False, "min_tokens": 3,
            "skip_special_tokens": True, "spaces_between_special_tokens": True, "include_reasoning": True,
            "include_stop_str_in_output": False, "add_special_tokens": False, "stop_token_ids": [],
            "bad_words": [], "cache_salt": "x",
            "length_penalty": 1.0, "use_beam_search": False, "priority": 0, "max_tokens": 16.0, "top_k": -1,
            "chat_template_kwargs": {"enable_thinking": False, "custom": 1}, "guided_json": None, "documents": None,
            "dry_multiplier": 0.5, "dry_sequence_breakers": [], "typical_p": 0.9, "tool_choice": "none",
            "tools": [{"type": "function", "function": {"name": "f"}}],
        },
        Sampling(top_k=-1, typical_p=0.9, dry_multiplier=0.5, max_tokens=16, min_tokens=3),
    ),
    "Ollama's": (
        {
            "messages": MESSAGES, "stream": False, "format": "", "keep_alive": 300, "temperature": 0.5,
            "options": {"num_ctx": 8192, "temperature": 0.1, "num_predict": 7, "repeat_penalty": 1.2, "num_gpu": 99},
        },
        Sampling(temperature=0.5, max_tokens=7, repetition_penalty=1.2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAT)
def test_requests_of_other_clients_are_read(name: str) -> None:
    body, sampling = CHAT[name]
    read = decoded(json.dumps(body).encode(), OpenAIChat)
    read.check(402)
    assert read.sampling() == sampling
    assert not read.prefills()


def test_null_is_the_same_as_nothing() -> None:
    nothing: Any = {"model": None, "stop": None, "n_predict": None, "max_tokens": 3, "options": None, "made_up": None}
    read = decoded(json.dumps({"messages": MESSAGES, **nothing}).encode(), OpenAIChat)
    assert (read.model, read.sampling()) == ("", Sampling(max_tokens=3))
    with pytest.raises(BadField, match="missing required field `messages`"):
        decoded(b'{"messages": null}', OpenAIChat)


def test_what_says_how_to_think_is_one_thing() -> None:
    def thinking(**fields: Any) -> tuple[bool | None, str, bool]:
        read = decoded(json.dumps({"messages": MESSAGES, **fields}).encode(), OpenAIChat)
        said = read.wanted_thinking()
        return said.on, said.effort, read.tells_thinking

    assert thinking() == (None, "", True)
    assert thinking(thinking={"type": "enabled", "budget_tokens": 9}) == (True, "", True)
    assert thinking(reasoning={"effort": "high", "exclude": True}) == (None, "high", False)
    assert thinking(include_reasoning=False, enable_thinking=True) == (True, "", False)
    assert thinking(think=True, chat_template_kwargs={"enable_thinking": False}) == (False, "", True)


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    *parts, end = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line.startswith("data: ")]
    assert end == "[DONE]"
    return [json.loads(part) for part in parts]


def test_each_part_of_a_stream_tells_its_usage(http: httpx.Client, running: Running) -> None:
    chunks = events(http.post("/v1/chat/completions", json=CHAT["guidellm"][0]))
    size = len(running.asked[0].prompt_ids)
    told = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert (told[0], told[-1]) == (0, 8)
    assert told == sorted(told)
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {size}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert chunks[0]["system_fingerprint"].startswith("kvasir-")
    del (body := dict(CHAT["guidellm"][0]))["stream_options"]
    assert not any("usage" in chunk for chunk in events(http.post("/v1/chat/completions", json=body)))


def test_a_silent_stream_says_that_it_goes_on(
    http: httpx.Client, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before the engine says anything, as while another prompt is read."""
    monkeypatch.setattr("engine.doors.http.service.KEEP_ALIVE_SECONDS", 0.01)
    held: list[Prefill] = []
    emit = running.engine.emit
    running.engine.emit = lambda event: held.append(event) if isinstance(event, Prefill) else emit(event)
    running.engine.gate.clear()
    with http.stream("POST", "/v1/chat/completions", json={"messages": MESSAGES, "stream": True}) as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": keep-alive"
        running.engine.gate.set()
        rest = [line for line in lines if line]
    assert held
    assert rest[-1] == "data: [DONE]"
    assert all(line.startswith("data: ") or line == ": keep-alive" for line in rest)


def test_a_stream_is_not_silent_while_a_prompt_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """How far it is read comes at every step and is not told, so that it is no sign of life."""
    monkeypatch.setattr("engine.doors.http.service.KEEP_ALIVE_SECONDS", 0.0)
    read = [Prefill(id="", done=done, cached=0, total=3) for done in range(3)]

    async def messages(silence: float) -> AsyncIterator[Prefill]:
        for message in read:
            yield message

    async def told() -> list[bytes]:
        reading: Any = SimpleNamespace(messages=messages, answers=1, prompt_tokens=3)
        writer: Any = None
        return [event async for event in stream.events(reading, writer, StreamOptions(), AnswerPace())]

    assert asyncio.run(told()) == [stream.KEEP_ALIVE] * 3 + [b"data: [DONE]\n\n"]


def test_addresses_with_and_without_what_clients_add(http: httpx.Client) -> None:
    for base in ("/v1", ""):
        for slash in ("", "/"):
            assert http.get(f"{base}/models{slash}").json()["data"][0]["id"] == "tiny"
            assert http.get(f"{base}/models/tiny{slash}").json()["id"] == "tiny"
            assert http.post(f"{base}/chat/completions{slash}", json={"messages": MESSAGES}).status_code == 200
            assert http.post(f"{base}/completions{slash}", json={"prompt": "a"}).status_code == 200


def test_compressed_bodies_are_read_within_bounds(http: httpx.Client) -> None:
    body = json.dumps({"messages": MESSAGES}).encode()

    def status(data: bytes, encoding: str) -> tuple[int, str]:
        answer = http.post("/v1/chat/completions", content=data, headers={"Content-Encoding": encoding})
        return answer.status_code, answer.json().get("error", {}).get("code", "")

    assert status(gzip.compress(body), "gzip") == status(zlib.compress(body), "deflate") == (200, "")
    assert status(body, "identity") == (200, "")
    members = gzip.compress(body[:9]) + gzip.compress(b"") + gzip.compress(body[9:])
    assert status(members, "gzip") == (200, "")
    assert status(members + b"more", "gzip") == status(zlib.compress(body) * 2, "deflate") == (400, "bad_encoding")
    assert status(gzip.compress(b" " * (MAX_BODY + 1)), "gzip") == (413, "too_large")
    assert status(gzip.compress(b" " * MAX_BODY) + gzip.compress(b"  "), "gzip") == (413, "too_large")
    assert status(gzip.compress(body)[:-9], "gzip") == status(body, "gzip") == (400, "bad_encoding")
    assert status(body, "br") == (415, "unsupported_encoding")


def test_the_last_message_of_the_assistant_is_continued(http: httpx.Client, running: Running) -> None:
    loaded = running.engine.loaded

    def prompt(content: str = "so ", **fields: Any) -> str:
        message = {"role": "assistant", "content": content, **fields.pop("last", {})}
        assert http.post("/v1/chat/completions", json={"messages": [*MESSAGES, message], **fields}).status_code == 200
        text: str = loaded.files.tokenizer.decode(running.last.prompt_ids, skip_special=False)
        return text.split("<|im_start|>assistant\n", 1)[1]

    assert prompt() == prompt(continue_final_message=True) == prompt(last={"prefix": True}) == "so "
    assert prompt(add_generation_prompt=False) == "so "
    assert running.last.prefilled
    assert not running.last.continues, "what it thinks is told apart still"
    assert prompt(add_generation_prompt=True) == "so <|im_end|>\n<|im_start|>assistant\n"
    assert prompt(continue_final_message=False) == "so <|im_end|>\n<|im_start|>assistant\n"
    assert not running.last.prefilled
    # A template that shows no such message, or refuses it: what begins a turn, then the text.
    loaded.files.template = ChatTemplate("{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    assert prompt() == "so "


def test_a_continued_message_is_recognised_when_it_comes_back_as_one(http: httpx.Client, running: Running) -> None:
    running.engine.context = 512
    running.engine.loaded = running.engine._model("/models/tiny")
    said = [*MESSAGES, {"role": "assistant", "content": "keys"}]
    answer = http.post("/v1/chat/completions", json={"messages": said, "max_tokens": 3}).json()
    first = list(running.last.prompt_ids)
    whole = "keys" + answer["choices"][0]["message"]["content"]
    http.post(
        "/v1/chat/completions", json={"messages": [*MESSAGES, {"role": "assistant", "content": whole}, *MESSAGES]}
    )
    assert list(running.last.prompt_ids)[: len(first) + 2] == [*first, *first[::-1][:2]]


def test_several_prompts_are_echoed_with_what_is_known_of_them(http: httpx.Client, running: Running) -> None:
    """As lm-eval asks of multiple choice; the answers to each prompt follow one another."""
    body = {"prompt": [[7, 8, 9], [10, 11]], "echo": True, "logprobs": 1, "max_tokens": 1, "n": 2, "temperature": 0}
    answer = http.post("/v1/completions", json=body).json()
    tokenizer = running.engine.loaded.files.tokenizer
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"] == {
        "prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    choice, other = answer["choices"][0], answer["choices"][2]
    assert choice["text"] == "".join(tokenizer.piece(token) for token in (7, 8, 9, 9))
    assert choice["logprobs"]["tokens"] == [tokenizer.piece(token) for token in (7, 8, 9, 9)]
    assert choice["logprobs"]["token_logprobs"] == [None, -0.25, -0.5, -0.5]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3]
    assert choice["logprobs"]["top_logprobs"][:2] == [None, {tokenizer.piece(7): -0.1, tokenizer.piece(8): -0.25}]
    assert other["logprobs"]["token_logprobs"] == [None, -0.25, -0.5]
    assert [command.prompt_logprobs for command in running.asked] == [1, 1]
    chunks = events(http.post("/v1/completions", json={**body, "stream": True}))
    for whole in answer["choices"]:
        mine = [each["choices"][0] for each in chunks if each["choices"][0]["index"] == whole["index"]]
        assert "".join(part["text"] for part in mine) == whole["text"]
        for field in whole["logprobs"]:
            assert [v for part in mine if part["logprobs"] for v in part["logprobs"][field]] == whole["logprobs"][field]


def test_prompts_are_told_in_vllms_shape(http: httpx.Client, running: Running) -> None:
    piece = running.engine.loaded.files.tokenizer.piece
    body = {"prompt": [[8, 7], [9]], "prompt_logprobs": 1, "echo": True, "logprobs": 0, "max_tokens": 1}
    first, other = http.post("/v1/completions", json=body).json()["choices"]
    likeliest = {"logprob": -0.1, "rank": 1, "decoded_token": piece(7)}
    assert (first["prompt_logprobs"], other["prompt_logprobs"]) == ([None, {"7": likeliest}], [None])
    assert first["logprobs"]["top_logprobs"][1] == {piece(7): -0.25}, "echo was asked for no other"
    chat = http.post("/v1/chat/completions", json={"messages": MESSAGES, "prompt_logprobs": 1}).json()
    ids = running.last.prompt_ids
    own = {"logprob": -0.25, "rank": None, "decoded_token": piece(ids[1])}
    assert chat["prompt_logprobs"][1] == {"7": likeliest, str(ids[1]): own}
    assert len(chat["prompt_logprobs"]) == len(ids)
    assert http.post("/v1/chat/completions", json={"messages": MESSAGES}).json()["prompt_logprobs"] is None
    refused = http.post("/v1/completions", json={**body, "stream": True}).json()["error"]
    assert refused["param"] == "prompt_logprobs"


def test_a_prompt_is_echoed_without_an_answer(http: httpx.Client, running: Running) -> None:
    body = {"prompt": ["The keys", "and"], "echo": True, "max_tokens": 0}
    for stream_it in (False, True):
        answer = http.post("/v1/completions", json={**body, "stream": stream_it})
        choices = [each["choices"][0] for each in events(answer)] if stream_it else answer.json()["choices"]
        text = {index: "".join(c["text"] for c in choices if c["index"] == index) for index in (0, 1)}
        assert text == {0: "The keys", 1: "and"}
        assert all(choice["logprobs"] is None for choice in choices)
        assert choices[-1]["finish_reason"] == "stop"  # as the engine of these tests ends all
    assert [command.prompt_logprobs for command in running.asked] == [None] * 4
    assert http.post("/v1/completions", json={"prompt": ["a", "b"], "max_tokens": 2}).json()["choices"][1]["text"]


def test_one_refused_prompt_refuses_them_all(http: httpx.Client, running: Running) -> None:
    answer = http.post("/v1/completions", json={"prompt": ["a", "word " * 70]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert answer.json()["error"]["n_ctx"] == 64
    assert answer.json()["error"]["n_prompt_tokens"] > 64
    assert not running.server.hub.answering


END = Finished(id="", reason="stop", usage=Usage(1, 0, 3, 1), timings=Timings(0, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("early", [0, 3, 9, 11])
def test_tokens_that_a_stop_string_cut_off_are_not_told(early: int, running: Running) -> None:
    """Joined they give the text: of one that was cut in its middle the part that is in it is told. ``early``: so many
    characters were told before it was known which token they belong to."""
    tokenizer = running.engine.loaded.files.tokenizer
    ids = tokenizer.encode("cache that holds", special=False)
    pieces = [tokenizer.piece(token) for token in ids]
    lengths = list(map(len, pieces))
    kept = sum(lengths) - len("holds")
    told: list[list[TokenInfo]] = [[], []]
    start = 0
    for token, size in zip(ids, lengths, strict=True):
        end = start + size
        begin, cut = start if end <= early else max(start, early), max(0, min(size, end - kept))
        info = TokenInfo(id=token, chars=max(0, min(end, kept) - begin), cut=cut, logprob=-1.0, top=[(5, -0.5)])
        told[end > early].append(info)
        start = end
    said = "cache that "
    deltas = [Part(id="", text=said[:early], tokens=told[0]), Part(id="", text=said[early:], tokens=told[1])]
    chat, text = ChatWriter("1", 2, "tiny", tokenizer), TextWriter("1", 2, "tiny", tokenizer, telling=Telling(top=1))
    for delta in deltas:
        chat.add(delta)
        text.add(delta)
    content = chat._choice(END).logprobs
    assert content is not None
    assert "".join(each.token for each in content.content) == said
    assert bytes(byte for each in content.content for byte in each.bytes) == said.encode()
    choice = text._choice(END).logprobs
    assert choice is not None
    assert "".join(choice.tokens) == said
    assert choice.text_offset == [sum(lengths[:place]) for place in range(len(choice.tokens))]
    assert choice.top_logprobs[0] == {tokenizer.piece(5): -0.5, pieces[0]: -1.0}, "the drawn one is among them"


def test_the_bytes_of_a_character_that_was_cut_off_are_not_told(running: Running) -> None:
    tokenizer = running.engine.loaded.files.tokenizer
    first, *ids = [7, *tokenizer.encode("日", special=False)]
    assert len(ids) > 1
    told = [TokenInfo(id=token, cut=token == ids[-1], logprob=-1.0) for token in ids]
    told.insert(0, TokenInfo(id=first, chars=1, logprob=-1.0))
    writer = TextWriter("1", 2, "tiny", tokenizer)
    writer.add(Part(id="", text=tokenizer.piece(first), tokens=told))
    logprobs = writer._choice(END).logprobs
    assert logprobs is not None
    assert (logprobs.tokens, logprobs.text_offset) == ([tokenizer.piece(first)], [0])


def test_a_completion_may_have_no_limit() -> None:
    assert decoded(b'{"prompt": "a", "max_tokens": -1}', CompletionIn).sampling().max_tokens is None
    assert decoded(b'{"prompt": "a", "n_predict": 5, "max_tokens": 6}', CompletionIn).sampling().max_tokens == 6
    assert decoded(b'{"prompt": "a"}', CompletionIn).sampling().max_tokens == 16
