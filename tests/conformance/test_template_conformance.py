"""Chat templates and token ids against transformers, on tokenizers trained here."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.protocol import ChatMessage
from engine.text.prompt import prompt_ids
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.engine.text.samples import write_folder

transformers = pytest.importorskip("transformers")

CONVERSATIONS = [
    [("user", "What is a page?")],
    [("system", "Be brief."), ("user", " Grüße 🎉 \n"), ("assistant", "Hallo!"), ("user", "{{ 7 * 7 }} <b>&amp;</b>")],
    [("user", "a\n\nb"), ("assistant", ""), ("user", "last")],
]


@pytest.mark.parametrize("kind", ["chatml", "llama3", "sentencepiece"])
@pytest.mark.parametrize("turns", CONVERSATIONS)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_same_text_and_ids(
    kind: str, turns: list[tuple[str, str]], add_generation_prompt: bool, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path, kind)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    plain = [{"role": role, "content": content} for role, content in turns]
    messages = [ChatMessage.of(role, content) for role, content in turns]
    tokenizer, template = Tokenizer.open(folder), ChatTemplate.open(folder)
    expected = theirs.apply_chat_template(plain, tokenize=False, add_generation_prompt=add_generation_prompt)
    assert template.render(messages, add_generation_prompt) == expected
    if add_generation_prompt:
        ids = theirs.apply_chat_template(plain, add_generation_prompt=True, return_dict=False)
        assert prompt_ids(tokenizer, template, messages) == ids


def test_both_refuse_what_the_template_refuses(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, "sentencepiece")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    with pytest.raises(Exception, match="must alternate"):
        theirs.apply_chat_template([{"role": "assistant", "content": "x"}], tokenize=False)
    with pytest.raises(ValueError, match="must alternate"):
        ChatTemplate.open(folder).render([ChatMessage.of("assistant", "x")])
