"""Which fields of a request are served, which are ignored because they change nothing, and which are refused."""

from __future__ import annotations

import difflib
import re
from typing import TypeVar

import msgspec

IGNORED = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
"""Fields of OpenAI's interface that say nothing about the answer."""
ONLY: dict[str, tuple[object, ...]] = {
    "audio": (),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Fields that would change the answer and are not served, with the values besides null that ask for nothing."""
MOST_MESSAGES, MOST_PROMPT_TOKENS = 20_000, 1 << 20
"""Most messages of a conversation, and most tokens of a prompt that comes as ids: with more, all others would wait."""

_T = TypeVar("_T")
_IDS = re.compile(rb"\s*\[\s*\[?\s*\d")
_FIELD, _PATH = re.compile(r"field `([^`]+)`"), re.compile(r"`\$\.?([^`]+)`")


class BadField(ValueError):  # noqa: N818 - an outcome that a person is told about
    """A field cannot be served; the message is a sentence, ``param`` names the field as OpenAI's clients know it."""

    def __init__(self, param: str | None, message: str) -> None:
        super().__init__(message)
        self.param = param


def decoded(body: bytes, kind: type[_T]) -> _T:
    """The request in ``body``. Raises :class:`BadField`."""
    try:
        for name, value in msgspec.json.decode(body, type=dict[str, msgspec.Raw]).items():
            _check(name, value, kind)
            _check_number(name, bytes(value))
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadField(_param(str(error)), f"The request was not understood: {error}.") from error


def _check(name: str, value: msgspec.Raw, kind: type) -> None:
    known: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]
    if name in known or name in IGNORED or bytes(value) == b"null":
        return
    if name in ONLY:
        given = msgspec.json.decode(value)
        if given in ONLY[name]:
            return
        served = [msgspec.json.encode(one).decode() for one in ONLY[name] if one]
        but = f" but for {' and '.join(served)}" if served else ""
        raise BadField(name, f"The field {name!r} is not supported{but}. Leave it out.")
    near = difflib.get_close_matches(name, known, 1)
    hint = f"Did you mean {near[0]!r}?" if near else "Leave it out."
    raise BadField(name, f"The field {name!r} is not known. {hint}")


def _check_number(name: str, value: bytes) -> None:
    """Refuse what has too many parts, before an object is made for each."""
    if name == "messages" and (number := value.count(b'"role"')) > MOST_MESSAGES:  # in a text its quotes are escaped
        raise BadField(name, f"The conversation has {number:,} messages, and at most {MOST_MESSAGES:,} are read.")
    if name == "prompt" and _IDS.match(value) and (number := value.count(b",") + 1) > MOST_PROMPT_TOKENS:
        raise BadField(name, f"The prompt has {number:,} tokens, and at most {MOST_PROMPT_TOKENS:,} are read at once.")


def _param(problem: str) -> str | None:
    """The field that a sentence of msgspec is about."""
    parts = [found[1] for pattern in (_PATH, _FIELD) if (found := pattern.search(problem)) is not None]
    return ".".join(parts) or None
