"""The wire: every message survives a round trip, unknown fields are ignored, unknown types are refused."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import msgspec
import pytest

from engine import protocol


def _tags(union: object) -> set[str]:
    return {kind.__struct_config__.tag for kind in get_args(union)}


def test_every_message_belongs_to_exactly_one_direction() -> None:
    kinds = {
        kind
        for kind in vars(protocol).values()
        if isinstance(kind, type) and issubclass(kind, protocol.Message) and kind is not protocol.Message
    }
    to_engine, from_engine = set(get_args(protocol.ToEngine)), set(get_args(protocol.FromEngine))
    assert not to_engine & from_engine
    printed = {protocol.Ready, *get_args(protocol.PackReport), *get_args(protocol.LibraryRecord)}
    printed |= {protocol.Recommended}  # by an operation, in a call's answer
    assert kinds == to_engine | from_engine | printed
    assert len(_tags(protocol.ToEngine | protocol.FromEngine)) == len(to_engine | from_engine)


@pytest.mark.parametrize(
    "message",
    [
        protocol.Generate(
            id="1",
            prompt=[protocol.ChatMessage.of("user", "hé\u2028llo")],
            sampling=protocol.Sampling(temperature=0.5, logit_bias={7: -1.0}, stop=["\n\n"]),
            optimisations={"kv_cache": False, "draft_length": 4, "speculation": "ngram"},
        ),
        protocol.Generate(id="2", prompt="plain"),
        protocol.Set(key="token_budget", value=64),
        protocol.Load(model="m", draft="", options=protocol.LoadOptions(memory=2e9)),
    ],
)
def test_messages_to_the_engine_survive_the_wire(message: protocol.Message) -> None:
    assert protocol.decode_to_engine(protocol.encode(message)) == message


def test_a_bool_stays_a_bool_and_an_int_an_int() -> None:
    for value in (True, 1, 0.5, "on"):
        back = protocol.decode_to_engine(protocol.encode(protocol.Set(key="k", value=value))).value
        assert back == value
        assert type(back) is type(value)


def test_tokens_and_neutral_fields_survive() -> None:
    message = protocol.Delta(
        id="1", text="a", tokens=[protocol.TokenInfo(id=3, source="draft", chars=1, logprob=-0.5, top=[(3, -0.5)])]
    )
    assert protocol.decode_from_engine(protocol.encode(message)) == message


def test_unknown_fields_are_ignored_and_unknown_types_refused() -> None:
    assert protocol.decode_to_engine('{"type":"cancel","id":"x","later":1}') == protocol.Cancel(id="x")
    with pytest.raises(msgspec.ValidationError, match="nonsense"):
        protocol.decode_to_engine('{"type":"nonsense"}')
    with pytest.raises(msgspec.DecodeError):
        protocol.decode_to_engine("{")


def test_the_protocol_needs_only_msgspec_and_the_standard_library() -> None:
    code = "import sys; import engine.protocol; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"torch", "numpy", "starlette", "websockets", "PySide6"}
