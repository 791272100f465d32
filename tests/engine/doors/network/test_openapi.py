"""The OpenAPI document: all that is served, with schemas that what is really sent holds to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from tests.engine.doors.network.conftest import Running

TURNS = [{"role": "user", "content": "a b c"}]
OPEN = {"/", "/api/version", "/health", "/ping", "/version"}


@pytest.fixture
def document(http: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = http.get("/openapi.json").raise_for_status().json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        yield from ((path, method, operation) for method, operation in methods.items())


def schemas_in(value: object) -> Iterator[dict[str, Any]]:
    """Every object below ``value`` that is a schema, or the place of one."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "schema":
                yield each
            yield from schemas_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from schemas_in(each)


def check(document: dict[str, Any], schema: dict[str, Any], sent: object) -> None:
    whole = {**schema, "components": document["components"]}
    jsonschema.Draft202012Validator(whole).validate(sent)


def test_every_route_is_in_it_with_its_methods(running: Running, document: dict[str, Any]) -> None:
    assert len(running.routes) > 20
    for route in running.routes:
        path = re.sub(r":\w+}", "}", route.path)
        described = document["paths"].get(path) or document["paths"][path.removesuffix("/")]
        assert {name.upper() for name in described} >= (route.methods or set()) - {"HEAD"}, route.path


def test_another_method_is_told_those_of_the_address(http: httpx.Client, document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        answer = http.request("TRACE", re.sub(r"{\w+}", "x", path))
        assert answer.status_code == 405
        assert set(answer.headers["allow"].split(", ")) - {"HEAD"} == {name.upper() for name in methods}, path


def test_it_is_an_openapi_document(document: dict[str, Any]) -> None:
    """What the specification asks for, as far as this document goes (OpenAPI 3.1, sections 4.8.1 to 4.8.17)."""
    assert re.fullmatch(r"3\.1\.\d+", document["openapi"])
    assert {"title", "version"} <= set(document["info"])
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    for path, method, operation in operations(document):
        assert method in ("get", "post", "put", "delete", "options", "head", "patch", "trace")
        assert all("description" in response for response in operation["responses"].values())
        told = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path" and each["required"]}
        assert told == set(re.findall(r"{(\w+)}", path))
    schemas = document["components"]["schemas"]
    assert all(re.fullmatch(r"[\w.\-]+", name) for name in schemas)
    for schema in [*schemas.values(), *schemas_in(document["paths"])]:
        jsonschema.Draft202012Validator.check_schema(schema)
    named = set(re.findall(r'"\$ref": ?"([^"]+)"', httpx.Response(200, json=document).text))
    assert named == {f"#/components/schemas/{name}" for name in schemas}, "each is there, and each is used"


def test_what_wants_no_key_is_said(running: Running, document: dict[str, Any]) -> None:
    assert {path for path, _, operation in operations(document) if operation.get("security") == []} == OPEN
    with httpx.Client(base_url=running.url) as stranger:
        assert stranger.get("/openapi.json").status_code == 401
        assert [stranger.get(path).status_code for path in sorted(OPEN)] == [200] * 5


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": TURNS, "logprobs": True, "top_logprobs": 1}),
        ("/v1/completions", {"prompt": "a b c", "logprobs": 1}),
        ("/completion", {"prompt": "a b c", "response_fields": ["content", "timings/prompt_n"]}),
        ("/v1/responses", {"input": TURNS, "tools": [{"type": "custom", "name": "a"}], "tool_choice": "none"}),
        ("/v1/responses/compact", {"input": TURNS, "model": "tiny"}),
        ("/v1/messages", {"messages": TURNS, "max_tokens": 3, "model": "tiny"}),
        ("/v1/messages/count_tokens", {"messages": TURNS, "model": "tiny"}),
        ("/api/chat", {"messages": TURNS, "model": "tiny", "stream": False}),
        ("/api/generate", {"prompt": "a b c", "model": "tiny", "stream": False}),
    ],
)
def test_requests_and_responses_hold_to_their_schemas(
    running: Running, http: httpx.Client, document: dict[str, Any], path: str, body: dict[str, Any]
) -> None:
    running.engine.speak(running.engine.template, "said")
    post = document["paths"][path]["post"]
    taken = post["requestBody"]["content"]["application/json"]["schema"]
    given = post["responses"]["200"]["content"]
    check(document, taken, body)
    check(document, taken, {**body, "temperature": None})
    with pytest.raises(jsonschema.ValidationError):
        check(document, taken, {**body, "temperature": "hot"})
    sent = http.post(path, json=body).raise_for_status().json()
    check(document, given["application/json"]["schema"], sent)
    if (streamed := given.get("text/event-stream")) is not None:
        lines = http.post(path, json={**body, "stream": True}).raise_for_status().text.splitlines()
        parts = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
        assert parts
        for part in parts:
            check(document, streamed["schema"], httpx.Response(200, text=part).json())


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/tiny", "/api/tags", "/api/ps", "/api/version", "/health"])
def test_lists_hold_to_their_schemas(http: httpx.Client, document: dict[str, Any], path: str) -> None:
    described = document["paths"].get(path) or document["paths"]["/v1/models/{name}"]
    schema = described["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    check(document, schema, http.get(path).raise_for_status().json())
