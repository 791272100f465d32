from __future__ import annotations

from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models

from engine.text.detokenise import WindowDetokeniser, detokeniser
from engine.text.stream import StopStrings, TextStream
from engine.text.tokenizer import Tokenizer
from tests.engine.text.samples import trained
from tests.kit.examples import examples

KINDS = ["chatml", "llama3", "sentencepiece", "metaspace", "wordpiece"]
TOKENIZERS = {kind: Tokenizer(tokenizers.Tokenizer.from_str(trained(kind))) for kind in KINDS}


def streamed(tokenizer: Tokenizer, ids: list[int], stop: tuple[str, ...] = ()) -> str:
    stream = TextStream(tokenizer, stop)
    return "".join(stream.push(i).text for i in ids) + stream.flush().text


def ends_alike(whole: str, parts: str) -> bool:
    """Equal, but for U+FFFD that stand for an unfinished last character."""
    return whole == parts or (whole.startswith(parts) and set(whole[len(parts) :]) == {"\ufffd"})


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(max_size=60))
@examples(150)
def test_streamed_text_is_the_whole_text(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text)
    assert ends_alike(tokenizer.decode(ids), streamed(tokenizer, ids))


@pytest.mark.parametrize("kind", ["chatml", "llama3", "metaspace", "wordpiece"])
@given(data=st.data())
@examples(200)
def test_any_ids_stream_as_they_decode(kind: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary - 1), max_size=40))
    assert ends_alike(tokenizer.decode(ids), streamed(tokenizer, ids))


@given(data=st.data())
@examples(200)
def test_any_pieces_and_whole_byte_runs_of_sentencepiece(data: st.DataObject) -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    pieces = [[i] for i in range(tokenizer.vocabulary) if not tokenizer.token(i).startswith("<0x")]
    runs = [[3 + byte for byte in character.encode()] for character in "é日🎉 a\n"]
    ids = [i for run in data.draw(st.lists(st.sampled_from(pieces + runs), max_size=30)) for i in run]
    assert tokenizer.decode(ids) == streamed(tokenizer, ids)


@pytest.mark.parametrize("kind", ["chatml", "sentencepiece"])
def test_never_half_a_character(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode("a🎉日", special=False)
    for end in range(len(ids) + 1):
        text = streamed(tokenizer, ids[:end])
        assert "\ufffd" not in text
        assert "a🎉日".startswith(text)
    assert streamed(tokenizer, ids) == "a🎉日"


def test_broken_bytes_do_not_hold_up_the_text() -> None:
    tokenizer = TOKENIZERS["chatml"]
    lone = tokenizer.inner.token_to_id("ð")  # the byte F0, which begins a character of four
    letters = tokenizer.encode("after", special=False)
    assert streamed(tokenizer, [lone, *letters]) == "\ufffdafter"


def test_the_window_equals_the_bytes() -> None:
    tokenizer = TOKENIZERS["chatml"]
    ids = tokenizer.encode("Grüße, 你好 🎉👩‍🚀 end")
    window, quick = WindowDetokeniser(tokenizer), detokeniser(tokenizer)
    assert "".join(map(window.push, ids)) == "".join(map(quick.push, ids)) == "Grüße, 你好 🎉👩‍🚀 end"


def test_a_continuation_keeps_its_leading_space() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    ids = tokenizer.encode("one", special=False)
    plain = TextStream(tokenizer, before=[1])
    assert "".join(plain.push(i).text for i in ids) == " one"
    assert streamed(tokenizer, ids) == "one"


REPLACE, STRIP = decoders.Replace("▁", " "), decoders.Strip(" ", 1, 1)
METASPACE = decoders.Metaspace(prepend_scheme="first", split=False)


@pytest.mark.parametrize("steps", [[decoders.ByteFallback(), METASPACE], [REPLACE, decoders.Fuse(), STRIP]])
@pytest.mark.parametrize("prompt", [["Q"], ["<s>", "▁n", "x"], ["<0xE2>", "<0x82>", "<0xAC>"] * 3])
def test_a_continuation_through_the_library_is_what_it_adds(steps: list[Any], prompt: list[str]) -> None:
    """Whatever such a decoder takes off the beginning and the end of a text."""
    tokens = ["<s>", "Q", "▁n", "x", "▁y", "<0xE2>", "<0x82>", "<0xAC>"]
    inner = tokenizers.Tokenizer(models.BPE({token: at for at, token in enumerate(tokens)}, [], byte_fallback=True))
    inner.decoder = decoders.Sequence(steps)
    inner.add_special_tokens(tokens[:1])
    tokenizer, answer = Tokenizer(inner), [2, 3, 4, 5, 6, 7, 4]
    before = [tokens.index(token) for token in prompt]
    stream = TextStream(tokenizer, before=before)
    found = "".join(stream.push(id).text for id in answer) + stream.flush().text
    assert found == tokenizer.decode(before + answer)[len(tokenizer.decode(before)) :]
    assert found.startswith(" nx y")


def test_special_tokens_have_no_text() -> None:
    tokenizer = TOKENIZERS["chatml"]
    end = tokenizer.token_id("<|im_end|>")
    kept = tokenizer.token_id("<kept>")
    assert streamed(tokenizer, [end, kept, end]) == "<kept>"


def first_to_complete(text: str, stop: list[str]) -> str | None:
    """Character by character: the text before the stop string that completes first, the longest of those."""
    for end in range(1, len(text) + 1):
        complete = [s for s in stop if s and text[:end].endswith(s)]
        if complete:
            return text[: end - len(max(complete, key=len))]
    return None


@given(
    pieces=st.lists(st.text("ab\n", max_size=4), max_size=12),
    stop=st.lists(st.text("ab\n", max_size=4), max_size=3),
)
@examples(500)
def test_stop_strings_do_not_depend_on_the_pieces(pieces: list[str], stop: list[str]) -> None:
    strings = StopStrings(stop)
    out = ""
    for i, piece in enumerate(pieces):
        out += strings.push(piece)
        so_far = "".join(pieces[: i + 1])
        expected = first_to_complete(so_far, stop)
        if expected is not None:
            assert strings.stopped
            assert out == expected
            assert strings.flush() == ""
            return
        held = so_far[len(out) :]
        assert so_far.startswith(out)
        # Minimal: what is held begins a stop string, and nothing longer does.
        ends = [so_far[k:] for k in range(len(so_far)) if any(s.startswith(so_far[k:]) for s in stop if s)]
        assert held == (ends[0] if ends else "")
    assert not strings.stopped
    assert out + strings.flush() == "".join(pieces)


def test_a_stop_string_over_several_tokens() -> None:
    tokenizer = TOKENIZERS["chatml"]
    ids = tokenizer.encode("first line\n\nUser: second")
    stream = TextStream(tokenizer, ["\n\nUser:"])
    text = ""
    for token in ids:
        text += stream.push(token).text
        if stream.stopped:
            break
    assert stream.stopped
    assert text + stream.flush().text == "first line"
    assert stream.push(ids[0]).text == ""


def test_held_text_comes_back_when_it_was_no_stop() -> None:
    tokenizer = TOKENIZERS["chatml"]
    ids = tokenizer.encode("a END of it E")
    assert streamed(tokenizer, ids, ("END.",)) == "a END of it E"
