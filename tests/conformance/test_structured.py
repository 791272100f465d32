"""Structured output as OpenAI's and Ollama's clients ask for it, and the same tokens with speculation and without."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import httpx
import jsonschema
import ollama
import openai
import pytest
from pydantic import BaseModel, Field

from engine.library.paths import bundled_folder
from engine.protocol import (
    CallCollector,
    ChatMessage,
    Delta,
    Finished,
    LoadOptions,
    Sampling,
    StructuredOutput,
    Thinking,
    Tool,
    ToolConfig,
    keys,
)
from engine.services.answers.request import AnswerRequest, PromptTokens
from engine.services.answers.structured import compiled, held
from engine.services.client import EngineClient
from engine.text.prompt import PromptForm, rendered
from tests.kit.servers import TOKEN, Serving

GUIDE = bundled_folder() / "kvasir-guide"
QUESTION = "What does the prefix tree keep?"
MESSAGES: Any = [{"role": "user", "content": QUESTION}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "minLength": 1, "maxLength": 12},
        "kind": {"enum": ["pages", "tokens"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["answer", "kind", "count"],
    "additionalProperties": False,
}


class Kept(BaseModel):
    kind: Literal["pages", "tokens"]
    count: int = Field(ge=0, le=99)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVASIR_HOME", str(tmp_path_factory.mktemp("home")))
        made = Serving(GUIDE).loaded()
        yield made
        made.stop()


@pytest.fixture(scope="module")
def api(serving: Serving) -> Iterator[openai.OpenAI]:
    with serving.openai() as client:
        yield client


def ask(api: openai.OpenAI, **fields: Any) -> Any:
    given = {"model": "", "messages": MESSAGES, "max_tokens": 200, "seed": 5, "temperature": 1.0}
    return api.chat.completions.create(**given | fields)


def text_of(answer: Any) -> str:
    assert answer.choices[0].finish_reason == "stop"
    return str(answer.choices[0].message.content)


def test_a_class_is_parsed_whole_and_streamed(api: openai.OpenAI) -> None:
    given: Any = {"model": "", "messages": MESSAGES, "response_format": Kept, "max_tokens": 200, "seed": 1}
    parsed = api.chat.completions.parse(**given, temperature=1.0).choices[0].message.parsed
    assert isinstance(parsed, Kept)
    with api.chat.completions.stream(**given, temperature=1.0) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == parsed


def test_several_answers_with_probabilities_each_hold_to_the_schema(api: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "kept", "schema": SCHEMA, "strict": True}}
    answer = ask(api, response_format=form, n=3, logprobs=True, top_logprobs=2)
    for choice in answer.choices:
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)
        told = b"".join(bytes(each.bytes) for each in choice.logprobs.content)
        assert told.decode().startswith(choice.message.content)
    assert len({choice.message.content for choice in answer.choices}) > 1


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"structured_outputs": {"choice": ["yes", "no, never"]}}, "yes|no, never"),
        ({"structured_outputs": {"regex": "[a-f]{3}-[0-9]"}}, "[a-f]{3}-[0-9]"),
        ({"structured_outputs": {"json": {"const": "x"}}}, '"x"'),
        ({"structured_outputs": {"json": json.dumps({"const": 7})}}, "7"),
        ({"guided_choice": ["a", "b"]}, "[ab]"),
        ({"guided_regex": "[0-9]{1,5}"}, "[0-9]{1,5}"),
        ({"guided_json": {"enum": [None]}}, "null"),
        ({"json_schema": {"type": "boolean"}}, "true|false"),
        ({"response_format": {"type": "json_object", "schema": {"type": "boolean"}}}, "true|false"),
        ({"grammar": 'root ::= "(" n ")"\nn ::= [0-9] | [0-9] [0-9]'}, r"\([0-9]{1,2}\)"),
        ({"structured_outputs": {"grammar": 'start: "<" /[a-c]{1,3}/ ">"'}}, "<[a-c]{1,3}>"),
        ({"ebnf": 'root ::= "one"', "min_tokens": 50}, "one"),
        ({"regex": "x?y", "response_format": {"type": "text"}}, "x?y"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_fields_of_other_servers(api: openai.OpenAI, fields: dict[str, Any], pattern: str) -> None:
    assert re.fullmatch(pattern, text_of(ask(api, extra_body=fields, temperature=0.5)))


def test_plain_completions_and_prompts_of_ids(api: openai.OpenAI) -> None:
    for prompt in ("The number is", [5, 6, 7]):
        answer = api.completions.create(
            model="", prompt=prompt, max_tokens=20, extra_body={"guided_regex": " [0-9]{3}"}
        )
        assert re.fullmatch(" [0-9]{3}", answer.choices[0].text)


def test_anthropics_client(serving: Serving) -> None:
    url = serving.url
    form: Any = {"format": {"type": "json_schema", "schema": SCHEMA}}
    with anthropic.Anthropic(base_url=url, api_key=TOKEN, max_retries=0, timeout=300) as client:
        message = client.messages.create(
            model="kvasir-guide", messages=MESSAGES, max_tokens=200, output_config=form, extra_body={"seed": 3}
        )
    assert message.stop_reason == "end_turn"
    jsonschema.validate(json.loads(message.content[0].text), SCHEMA)  # type: ignore[union-attr]


def test_ollamas_client(serving: Serving) -> None:
    url = serving.url
    with ollama.Client(url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300) as client:
        whole = client.chat("kvasir-guide", MESSAGES, format=Kept.model_json_schema(), options={"temperature": 1.0})
        Kept.model_validate_json(whole.message.content or "")
        parts = client.generate("kvasir-guide", QUESTION, format=SCHEMA, stream=True)
        jsonschema.validate(json.loads("".join(part.response for part in parts)), SCHEMA)
        begun = client.generate("kvasir-guide", QUESTION, format="json", options={"num_predict": 5})
        assert begun.response.startswith("{")


@pytest.mark.parametrize(
    ("fields", "param", "told"),
    [
        ({"json_schema": {"type": "x"}}, "response_format", "cannot be served at #: Invalid type: x."),
        ({"response_format": {"type": "xml"}}, "response_format.type", "A format of type 'xml' is not supported."),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema", "has no schema"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_regex", "guided_regex and guided_choice each name one"),
        ({"guided_choice": []}, "guided_choice", "A choice needs texts"),
        ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos", "ignore_eos does not go with structured output"),
        ({"structured_outputs": {"structural_tag": {}}}, "structured_outputs.structural_tag", "not understood"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_is_refused(serving: Serving, fields: dict[str, Any], param: str, told: str) -> None:
    url = f"{serving.url}/v1/chat/completions"
    body = {"messages": MESSAGES, **fields}
    reply = httpx.post(url, json=body, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == param
    assert told in error["message"]


# --- with speculation and without --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineClient]:
    with pytest.MonkeyPatch.context() as patch, EngineClient() as made:
        patch.setenv("KVASIR_HOME", str(tmp_path_factory.mktemp("home")))
        made.load(
            str(GUIDE),
            str(bundled_folder() / "kvasir-guide-draft"),
            LoadOptions(device="cpu", dtype="float32", context=1024),
        )
        made.set(keys.BATCH_INVARIANT, True)
        yield made


def answer(client: EngineClient, temperature: float, **switches: Any) -> str:
    form = StructuredOutput("json_schema", json.dumps(SCHEMA))
    prompt = [ChatMessage.of("user", QUESTION)]
    ids = client.model.encode_prompt(prompt)
    request = AnswerRequest(
        prompt, Sampling(temperature=temperature, seed=9, max_tokens=200), optimisations=switches, structured=form
    )
    text = ""
    for event in client.stream(request, PromptTokens(ids, grammar=compiled(client.model, form))):
        if isinstance(event, Finished):
            assert event.reason == "stop"
        else:
            text += event.text
    jsonschema.validate(json.loads(text), SCHEMA)
    return text


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_speculation_changes_no_token(client: EngineClient, temperature: float) -> None:
    plain = answer(client, temperature, speculation="off", forced_tokens=False)
    for speculation in ({"speculation": "ngram"}, {"speculation": "draft", "draft_length": 4}):
        for forced in (True, False):
            assert answer(client, temperature, **speculation, forced_tokens=forced) == plain


TOOLS = ToolConfig(
    tools=[Tool(name="look_up", parameters=json.dumps(SCHEMA)), Tool(name="now")], choice="required", parallel=False
)


def called(client: EngineClient, temperature: float, **switches: Any) -> list[tuple[str, str]]:
    """The calls of an answer that must make some."""
    files = client.model.files
    assert files is not None
    form = PromptForm(tools=TOOLS)
    prompt = rendered(files.template, [ChatMessage.of("user", QUESTION)], Thinking(), form, files.tools)
    tokens = PromptTokens(files.tokenizer.encode(prompt.text, special=prompt.special))
    request = AnswerRequest(
        [], Sampling(temperature=temperature, seed=9, max_tokens=300), form=form, optimisations=switches
    )
    calls = CallCollector()
    for event in client.stream(request, tokens._replace(grammar=held(client.model, None, TOOLS).grammar)):
        if isinstance(event, Delta):
            assert not event.text.strip()
            calls.take(event)
        elif isinstance(event, Finished):
            assert (event.reason, event.detail) == ("stop", "")
    for call in calls.calls:
        jsonschema.validate(json.loads(call.arguments), SCHEMA if call.name == "look_up" else {"type": "object"})
    return [(call.name, call.arguments) for call in calls.calls]


def test_calls_are_the_same_with_speculation_and_without(client: EngineClient) -> None:
    plain = called(client, 1.0, speculation="off", forced_tokens=False)
    assert plain
    assert called(client, 1.0, speculation="draft", draft_length=4) == plain


@pytest.mark.parametrize("acceptance", ["ratio", "typical"])
def test_other_tests_of_drafts_keep_to_the_schema(client: EngineClient, acceptance: str) -> None:
    answer(client, 1.0, speculation="draft", acceptance=acceptance)
