"""What a request hands to the chat template itself, in any dialect that has ``chat_template_kwargs`` (vLLM's)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.doors.http.fields import BadField
from engine.protocol import Thinking

RESERVED = frozenset({"add_generation_prompt", "chat_template", "continue_final_message", "messages", "tokenize"})
"""What a client may not hand to the chat template, because the request itself says it."""
_OWN = ("enable_thinking", "thinking", "reasoning_effort")


def check_variables(given: Mapping[str, Any] | None) -> None:
    """Raises BadField for what the fields of a request say."""
    if said := RESERVED.intersection(given or ()):
        name = f"chat_template_kwargs.{min(said)}"
        raise BadField(name, f"The field {name!r} is not supported. Use the fields of the request.")


def variables(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Further variables that the chat template is given."""
    found = (given or {}).items()
    return {name: value for name, value in found if name not in _OWN or not isinstance(value, bool | str | None)}


def thinking(switches: tuple[object, ...], efforts: tuple[object, ...]) -> Thinking:
    """Thinking by the first of the ``switches`` that is one, and the first of the ``efforts``. An effort of "none" is
    OpenAI's word for no thinking."""
    on = next((each for each in switches if isinstance(each, bool)), None)
    effort = next((each for each in efforts if isinstance(each, str)), "")
    return Thinking(on=False if on is None else on) if effort == "none" else Thinking(on=on, effort=effort)
