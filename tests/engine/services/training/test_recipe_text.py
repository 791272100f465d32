"""Text files to passages, and sentences for those that give none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.services.training.errors import RecipeError
from engine.services.training.text import TextEncoder, passages, text_files
from engine.services.training.train_heads import train_heads
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.engine.services.training.recipe_support import plan
from tests.kit.checkpoints import write_llama

GUIDE = Path(__file__).parents[4] / "assets" / "demo" / "kvasir-guide"


@pytest.fixture(scope="module")
def words() -> TextEncoder:
    return TextEncoder.of(Tokenizer.open(GUIDE), ChatTemplate.open(GUIDE), None)


def test_plain_text_is_cut_and_nothing_is_lost(words: TextEncoder, tmp_path: Path) -> None:
    text = "A page holds sixteen tokens.\n\n" * 60
    (tmp_path / "a.md").write_text(text, "utf-8")
    (tmp_path / "b.png").write_text("no text", "utf-8")
    found = passages(text_files([tmp_path]), words, 64)
    assert words.tokenizer.decode([token for passage in found for token in passage.tokens]) == text
    assert {len(passage.tokens) for passage in found[:-1]} == {64}
    assert all(passage.start == len(passage.tokens) // 4 for passage in found)


def test_every_piece_begins_as_the_tokenizer_begins_texts(words: TextEncoder, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("word " * 100, "utf-8")
    found = passages([tmp_path / "a.txt"], words._replace(begin=(7,)), 32)
    assert {passage.tokens[0] for passage in found} == {7}
    assert max(len(passage.tokens) for passage in found) == 32


def test_conversations_go_through_the_template(words: TextEncoder, tmp_path: Path) -> None:
    chat = [
        ("user", "What is a page?"),
        ("assistant", "Sixteen tokens."),
        ("user", "And a slot?"),
        ("assistant", "One."),
    ]
    lines = [
        json.dumps({"messages": [{"role": role, "content": text} for role, text in chat]}),
        json.dumps({"conversations": [{"from": {"user": "human"}.get(r, "gpt"), "value": t} for r, t in chat[:2]]}),
        json.dumps({"text": "plain text that\u2028goes on for a little while, at\x85least"}, ensure_ascii=False),
        "",
    ]
    (tmp_path / "chats.jsonl").write_text("\n".join(lines), "utf-8")
    first, second, plain = passages([tmp_path / "chats.jsonl"], words, 128)
    decode = words.tokenizer.decode
    prompt = decode(first.tokens[: first.start], skip_special=False)
    assert prompt.endswith("user\nAnd a slot?<|im_end|>\n<|im_start|>assistant\n")
    assert "Sixteen tokens." in prompt
    assert decode(first.tokens[first.start :]) == "One."
    assert decode(second.tokens[second.start :]) == "Sixteen tokens."
    assert decode(plain.tokens).startswith("plain text")
    (short,) = passages([tmp_path / "chats.jsonl"], words, 26)[:1]
    assert decode(short.tokens[short.start :], skip_special=False) == "Sixteen tokens.", "the last prompt that fits"


@pytest.mark.parametrize(
    "line", ["{", "3", '{"messages": 3}', '{"messages": [{"role": "tool", "content": "x"}]}', "[]"]
)
def test_a_bad_line_is_named(words: TextEncoder, tmp_path: Path, line: str) -> None:
    (tmp_path / "chats.jsonl").write_text('{"text": "fine"}\n' + line, "utf-8")
    with pytest.raises(RecipeError, match=r"Line 2 of chats\.jsonl is neither"):
        passages([tmp_path / "chats.jsonl"], words, 64)


def test_texts_that_cannot_be_used(words: TextEncoder, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="There is no text at"):
        text_files([tmp_path / "missing.txt"])
    with pytest.raises(RecipeError, match="holds no text"):
        text_files([tmp_path])
    with pytest.raises(RecipeError, match="no text to learn from"):
        text_files([])
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="not UTF-8"):
        passages([tmp_path / "binary.txt"], words, 64)


def test_too_little_text(tmp_path: Path) -> None:
    write_llama(tmp_path / "tiny")
    (tmp_path / "short.txt").write_text("toolittletext", "utf-8")
    with pytest.raises(RecipeError, match="The text is too short: it gives 1 rows, and 4 at least are needed"):
        train_heads(plan(tmp_path / "tiny", tmp_path / "short.txt", tmp_path / "heads"))
    assert not (tmp_path / "heads").exists(), "no trace of it"
