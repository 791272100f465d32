"""Fields of a request that say what an answer has to be, in the names that OpenAI's, vLLM's, SGLang's and llama.cpp's
servers give them."""

from __future__ import annotations

import json

import msgspec
from msgspec import Raw

from engine.doors.http.fields import BadField
from engine.doors.http.sampling import SamplingIn
from engine.protocol import StructuredOutput
from engine.services.answers.refused import shortened

_NONE = Raw(b"null")


def nothing() -> Raw:
    """What a field is that is left out; a function, since a schema could not tell a Raw as its default."""
    return _NONE


class JsonSchemaIn(msgspec.Struct):
    """A schema always holds to the letter, so that ``strict`` changes nothing."""

    name: str = ""
    schema: Raw = msgspec.field(default_factory=nothing)
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(msgspec.Struct):
    """OpenAI's; llama.cpp's has the schema in the object itself."""

    type: str
    json_schema: JsonSchemaIn | None = None
    schema: Raw = msgspec.field(default_factory=nothing)


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True):
    """vLLM's."""

    json: Raw = msgspec.field(default_factory=nothing)
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool | None = None
    whitespace_pattern: None = None
    structural_tag: None = None


class StructuredIn(SamplingIn, kw_only=True):
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Raw = msgspec.field(default_factory=nothing)
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    json_schema: Raw = msgspec.field(default_factory=nothing)
    regex: str | None = None
    grammar: str | None = None
    ebnf: str | None = None

    def structured(self) -> StructuredOutput | None:
        """What the answer has to be. Raises BadField where that is said twice, or not understood."""
        inside = self.structured_outputs or StructuredOutputs()
        if inside.grammar == "":
            raise BadField("structured_outputs.grammar", "The grammar is empty. Write one, or leave it out.")
        said = {
            "response_format": None if self.response_format is None else _formatted(self.response_format),
            "structured_outputs.json": schema_of(inside.json),
            "structured_outputs.json_object": StructuredOutput("json_object") if inside.json_object else None,
            "structured_outputs.regex": _form("regex", inside.regex),
            "structured_outputs.choice": _choice(inside.choice, "structured_outputs.choice"),
            "structured_outputs.grammar": _form("grammar", inside.grammar),
            "guided_json": schema_of(self.guided_json),
            "guided_regex": _form("regex", self.guided_regex),
            "guided_choice": _choice(self.guided_choice, "guided_choice"),
            "guided_grammar": _form("grammar", self.guided_grammar),
            "json_schema": schema_of(self.json_schema),
            "regex": _form("regex", self.regex),
            "grammar": _form("grammar", self.grammar),
            "ebnf": _form("grammar", self.ebnf),
        }
        given = {name: form for name, form in said.items() if form is not None}
        if len(given) > 1:
            names = " and ".join(given)
            raise BadField(
                next(iter(given)), f"The answer has one form, and {names} each name one. Leave out all but one."
            )
        return next(iter(given.values()), None)


def schema_of(given: Raw) -> StructuredOutput | None:
    """The form that a JSON Schema describes, which some clients send as text; None for null."""
    if bytes(given) == b"null":
        return None
    decoded = msgspec.json.decode(given)
    return StructuredOutput("json_schema", decoded if isinstance(decoded, str) else bytes(given).decode())


def _formatted(given: ResponseFormat) -> StructuredOutput | None:
    if given.type == "text":
        return None
    inner = given.schema if given.json_schema is None else given.json_schema.schema
    if given.type == "json_object":
        return schema_of(inner) or StructuredOutput("json_object")
    if given.type == "json_schema":
        if (found := schema_of(inner)) is None:
            raise BadField("response_format.json_schema.schema", "The format has no schema. Send one, or json_object.")
        return found
    text = f"A format of type {shortened(given.type)!r} is not supported. Use text, json_object or json_schema."
    raise BadField("response_format.type", text)


def _form(kind: str, source: str | None) -> StructuredOutput | None:
    """An empty text asks for nothing, as some clients send it."""
    return msgspec.convert({"kind": kind, "source": source}, StructuredOutput) if source else None


def _choice(choices: list[str] | None, name: str) -> StructuredOutput | None:
    if choices is None:
        return None
    if not choices or not all(choices):
        raise BadField(name, "A choice needs texts to choose from, none of which is empty.")
    return StructuredOutput("choice", json.dumps(choices))
