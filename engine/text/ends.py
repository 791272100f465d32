"""Tokens that end an answer: those that a model's files declare, and those that do in every family that has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

KNOWN = frozenset(
    (
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>"),
        *("<end_of_turn>", "<end_of_utterance>", "<turn|>", "<|tool_response>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]"),
        *("<|endoftext|>", "<|end_of_text|>", "<eos>", "</s>", "<｜end▁of▁sentence｜>"),
    )
)
"""Tokens that end an answer in the families that have them, which files often do not declare."""
FILL_IN = {
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
"""Tokens between the files of a prompt for code, by the GGUF key that declares them: what follows is no answer."""
_NO_ENDS = (
    ({"<|return|>", "<|call|>"}, "<|end|>"),
    ({"<|return|>", "<|calls|>"}, "<|end|>"),
    ({"<|flush|>", "<|call|>"}, "<|end|>"),
    ({"<|flush|>", "<|calls|>"}, "<|end|>"),
    ({"<|tool_response>"}, "</s>"),
)
"""Sets of end tokens (of gpt-oss and its kin, Gemma 4), each with a token that ends no more than a message within an
answer where a model's end tokens include the set."""


def end_ids(
    declared: Iterable[int],
    control: Mapping[str, int],
    text_of: Callable[[int], str],
    stated: Iterable[str] = (),
) -> list[int]:
    """The ids that end an answer, the ``declared`` ones first.

    ``control`` are the tokens of which known names count, by their texts; ``text_of`` is the text of any id.
    ``stated``: the keys of :data:`FILL_IN` whose token is declared, so that its usual names do not count.
    """
    names = {*KNOWN, *(name for key, usual in FILL_IN.items() if key not in set(stated) for name in usual)}
    found = list(dict.fromkeys((*declared, *sorted(control[name] for name in names if name in control))))
    texts = {text_of(index) for index in found}
    inner = {token for others, token in _NO_ENDS if others <= texts}
    return [index for index in found if text_of(index) not in inner]
