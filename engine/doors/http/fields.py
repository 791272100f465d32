"""Fields of a request: those served, those ignored because they change nothing, and those refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from engine.services.answers.refused import shortened

IGNORED = frozenset(
    {
        # OpenAI's, and Codex's
        "client_metadata",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "store",
        "user",
        # vLLM's and OpenRouter's
        "cache_salt",
        "priority",
        "request_id",
        "usage",
        # llama.cpp's
        "backend_sampling",
        "cache_prompt",
        "id_slot",
        "n_cache_reuse",
        "n_keep",
        "parse_tool_calls",
        # Ollama's: what is set when a model is loaded, and how long it stays
        "f16_kv",
        "keep_alive",
        "low_vram",
        "main_gpu",
        "num_batch",
        "num_ctx",
        "num_gpu",
        "num_keep",
        "num_thread",
        "numa",
        "use_mlock",
        "use_mmap",
        # details of samplers that are refused where they are switched on
        "dynatemp_exponent",
        "mirostat_eta",
        "mirostat_tau",
        "xtc_threshold",
    }
)
"""Fields that say nothing about the answer."""
ONLY: dict[str, tuple[object, ...]] = {
    "allowed_token_ids": ([],),
    "audio": (),
    "bad_words": ([],),
    "detokenize": (True,),
    "documents": ([],),
    "dynatemp_range": (0,),
    "echo": (False,),
    "format": ("",),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "grammar": ("",),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logprob_token_ids": ([],),
    "logits_processors": ([],),
    "lora": ([],),
    "min_keep": (0,),
    "mirostat": (0,),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"],),
    "moderation": (),
    "n_indent": (0,),
    "n_probs": (0,),
    "post_sampling_probs": (False,),
    "prediction": (),
    "reasoning_budget": (-1,),
    "reasoning_format": ("auto", "deepseek"),
    "reasoning_in_content": (False,),
    "response_fields": ([],),
    "response_format": ({"type": "text"},),
    "return_progress": (False,),
    "return_token_ids": (False,),
    "return_tokens": (False,),
    "return_tokens_as_token_ids": (False,),
    "samplers": ([], ""),
    "skip_special_tokens": (True,),
    "smoothing_factor": (0,),
    "spaces_between_special_tokens": (True,),
    "stop_token_ids": ([],),
    "suffix": ("",),
    "t_max_predict_ms": (0, -1),
    "t_max_prompt_ms": (0, -1),
    "tfs_z": (1,),
    "thinking_forced_open": (False,),
    "timings_per_token": (False,),
    "parallel_tool_calls": (True, False),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_a": (0,),
    "top_n_sigma": (-1, 0),
    "use_beam_search": (False,),
    "verbose": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
    "xtc_probability": (0,),
}
"""Fields that would change the answer and are not served, with the values besides null that ask for nothing."""
SYNONYMS = {
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
    "typ_p": "typical_p",
}
"""The names of other servers for fields that are served."""
NESTED = "options"
"""Where Ollama's clients put settings."""
MOST_MESSAGES, MOST_PROMPT_TOKENS = 20_000, 1 << 20
"""Most messages of a conversation, and most tokens of prompts that come as ids: with more, all others would wait."""

Fields = dict[str, msgspec.Raw]
_NULL = msgspec.Raw(b"null")
_T = TypeVar("_T")
_UNCALLED = {"tools": "tool_choice", "functions": "function_call"}
"""Tools, and what says "none" where none of them may be called."""
_PENALTIES = {"repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
_DRY = {"dry_multiplier": 0}
_DETAILS: dict[str, tuple[Mapping[str, float], object]] = {
    "dry_penalty_last_n": (_DRY, -1),
    "dry_sequence_breakers": (_DRY, []),
    "repeat_last_n": (_PENALTIES, -1),
}
"""Details of what the fields named switch on where they differ from these values, and the detail as it is served."""
_IDS = re.compile(rb"\s*\[\s*\[?\s*\d")
_WHOLE = re.compile(rb"-?\d+(?=\.0+$)")
_INTEGERS = frozenset(
    {
        "best_of", "dry_allowed_length", "logprobs", "max_completion_tokens", "max_output_tokens", "max_tokens",
        "min_tokens", "n", "seed", "top_k", "top_logprobs", "ttl",
    }
)  # fmt: skip
_FIELD, _PATH = re.compile(r"field `([^`]+)`"), re.compile(r"`\$\.?([^`]+)`")


class BadField(ValueError):  # noqa: N818 - an outcome that a person is told about
    """A field cannot be served; the message is a sentence, ``param`` names the field as OpenAI's clients know it."""

    def __init__(self, param: str | None, message: str) -> None:
        super().__init__(message)
        self.param = param


def decoded(body: bytes, kind: type[_T]) -> _T:
    """The request in ``body``. Raises :class:`BadField`."""
    try:
        str(body, "utf-8")  # raw parts are read later, and not checked here
        given = msgspec.json.decode(body, type=Fields)
        fields = _renamed(_unfolded(given))
        for name, value in fields.items():
            _check(name, value, kind, fields)
            _check_number(name, bytes(value))
        # Read from the body itself where nothing was renamed, which spares a copy of it.
        return msgspec.json.decode(body if fields == given else msgspec.json.encode(fields), type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadField(_param(str(error)), f"The request was not understood: {error}.") from error


def named(body: bytes) -> Fields:
    """The fields in which a request that can be one of several kinds says something; none where it is not understood,
    which reading it as one of them tells."""
    try:
        fields = msgspec.json.decode(body, type=Fields)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return {name: value for name, value in fields.items() if value != _NULL}


def _unfolded(fields: Fields) -> Fields:
    """The fields, with those of ``options`` besides: what a request says itself counts."""
    if NESTED not in fields:
        return fields
    nested = msgspec.json.decode(fields[NESTED], type=Fields | None)
    rest = {name: value for name, value in fields.items() if name != NESTED}
    return {**(nested or {}), **rest}


def _renamed(fields: Fields) -> Fields:
    """The fields that say something, under the names that they have here, and whole numbers as such: some clients write
    null for what they leave out, and 16.0."""
    given = {name: value for name, value in fields.items() if value != _NULL}
    found: Fields = {}
    for name, value in given.items():
        if (own := SYNONYMS.get(name)) is not None:
            if own in given:
                continue
            name = own
        whole = _WHOLE.match(bytes(value)) if name in _INTEGERS else None
        found[name] = value if whole is None else msgspec.Raw(whole[0])
    return found


def _check(name: str, value: msgspec.Raw, kind: type, fields: Fields) -> None:
    known: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]
    if name in known or name in IGNORED:
        return
    if name in _UNCALLED and _value(fields, _UNCALLED[name]) == "none":
        return
    neutral: dict[str, tuple[object, ...]] = getattr(kind, "neutral", {})
    if name in _DETAILS:
        switches, served = _DETAILS[name]
        if all(_value(fields, switch) in (None, off) for switch, off in switches.items()):
            return
        _only(name, value, (served,))
    elif name in neutral or name in ONLY:
        _only(name, value, {**ONLY, **neutral}[name])
    else:
        near = difflib.get_close_matches(name, known, 1) if len(name) < 100 else ()
        hint = f"Did you mean {near[0]!r}?" if near else "Leave it out."
        raise BadField(name, f"The field {shortened(name)!r} is not known. {hint}")


def _only(name: str, value: msgspec.Raw, served: tuple[object, ...]) -> None:
    """Raises :class:`BadField` for another value than those ``served``."""
    if msgspec.json.decode(value) in served:
        return
    # An empty value or a false one asks for nothing, and needs no mention.
    shown = [msgspec.json.encode(one).decode() for one in served if one]
    but = f" but for {' and '.join(shown)}" if shown else ""
    raise BadField(name, f"The field {name!r} is not supported{but}. Leave it out.")


def _value(fields: Fields, name: str) -> Any:
    return msgspec.json.decode(fields[name]) if name in fields else None


def _check_number(name: str, value: bytes) -> None:
    """Refuse what has too many parts, before an object is made for each."""
    if name == "messages" and (number := value.count(b'"role"')) > MOST_MESSAGES:  # in a text its quotes are escaped
        raise BadField(name, f"The conversation has {number:,} messages, and at most {MOST_MESSAGES:,} are read.")
    if name == "input" and (number := max(value.count(b'"role"'), value.count(b'"type"'))) > MOST_MESSAGES:
        raise BadField(name, f"The input has {number:,} items and parts, and at most {MOST_MESSAGES:,} are read.")
    if name in ("prompt", "input") and _IDS.match(value) and (number := value.count(b",") + 1) > MOST_PROMPT_TOKENS:
        raise BadField(name, f"The prompt has {number:,} tokens, and at most {MOST_PROMPT_TOKENS:,} are read at once.")


def _param(problem: str) -> str | None:
    """The field that a sentence of msgspec is about."""
    parts = [found[1] for pattern in (_PATH, _FIELD) if (found := pattern.search(problem)) is not None]
    return ".".join(parts) or None
