"""The OpenAPI document, made of the routes that are served and the records that they read and write.

Source: https://spec.openapis.org/oas/v3.1.0, whose schemas are JSON Schema's, as msgspec makes them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

JSON = "application/json"
_ERROR = {"description": "An error, in the shape of this interface."}
_INFO = (
    "Addresses may end with a slash. Fields that other servers know are served, ignored or refused by name: see the "
    "user's guide."
)


class Streamed(NamedTuple):
    """A response that comes in parts, each a record of its own."""

    media_type: str
    part: Any


class Served(Route):
    """A route with the types of its records: those of which a request's body is one, and that of the whole response.

    Records that are ``partial`` may lack fields. ``streams``: what the response is instead where the request asks for a
    stream. ``open``: it wants no key. ``status``: that of the response to a request in order.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        methods: Sequence[str] = ("GET",),
        takes: Sequence[Any] = (),
        gives: Any = None,
        streams: Streamed | None = None,
        open: bool = False,
        status: int = 200,
    ) -> None:
        super().__init__(path, endpoint, methods=list(methods))
        self.takes, self.gives, self.streams = takes, gives, streams
        self.open, self.status = open, status

    @property
    def records(self) -> list[Any]:
        given = [] if self.gives is None else [self.gives]
        return [*self.takes, *given, *([self.streams.part] if self.streams is not None else [])]


class OpenApi:
    """The document of these routes."""

    def __init__(self, routes: Sequence[BaseRoute], version: str) -> None:
        self._routes = [route for route in routes if isinstance(route, Route)]
        self._version = version

    @cached_property
    def encoded(self) -> bytes:
        return msgspec.json.encode(self._document())

    def _document(self) -> dict[str, Any]:
        served = [route for route in self._routes if isinstance(route, Served)]
        records = [each for route in served for each in route.records]
        schemas, components = msgspec.json.schema_components(records, ref_template="#/components/schemas/{name}")
        for kind in {each for route in served for each in route.takes}:
            _take_null(components[kind.__name__])
        for kind in {each for record in records for each in (record, *get_args(record))}:
            if getattr(kind, "partial", False):
                components[kind.__name__].pop("required")
        found = iter(schemas)
        paths: dict[str, dict[str, Any]] = {}
        for route in self._routes:
            described = _operation(route, found)
            path = re.sub(r":\w+}", "}", route.path)
            if path == "/" or not path.endswith("/"):
                for method in sorted((route.methods or set()) - {"HEAD"}):
                    name = re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_")
                    paths.setdefault(path, {})[method.lower()] = {"operationId": name, **described}
        keys = {name: {"type": "apiKey", "in": "header", "name": name} for name in ("x-api-key", "api-key")}
        return {
            "openapi": "3.1.0",
            "info": {"title": "Kvasir", "version": self._version, "description": _INFO},
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}, **keys},
            },
            "security": [{name: []} for name in ("bearer", *keys)],
        }


def _take_null(record: dict[str, Any]) -> None:
    """Tell that null stands for a field that is left out, as :func:`engine.doors.http.fields.decoded` reads it."""
    for name in record["properties"].keys() - set(record.get("required", ())):
        record["properties"][name] = {"anyOf": [record["properties"][name], {"type": "null"}]}


def _operation(route: Route, schemas: Iterator[Any]) -> dict[str, Any]:
    """What stands in the document for each method of a route, with the next of the ``schemas``."""
    described: dict[str, Any] = {}
    names = re.findall(r"{(\w+)", route.path)
    if names:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if not isinstance(route, Served):
        return described | {"responses": {"default": _ERROR}}
    taken = [next(schemas) for _ in route.takes]
    if taken:
        schema = taken[0] if len(taken) == 1 else {"anyOf": taken}
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    content = {} if route.gives is None else {JSON: {"schema": next(schemas)}}
    if route.streams is not None:
        content[route.streams.media_type] = {"schema": next(schemas)}
    answered = {"description": "The answer."} | ({"content": content} if content else {})
    described["responses"] = {str(route.status): answered, "default": _ERROR}
    return described | ({"security": []} if route.open else {})
