"""The verdicts of comparisons of :mod:`engine.protocol.compared` in the window's language."""

from __future__ import annotations

from functools import partial

from app.language import figure, known, plural, tr
from engine.protocol import compared

_WORDS = compared.Wording(tr, plural, known, figure)
amount = partial(compared.amount, words=_WORDS)
busy_or_quiet = partial(compared.busy_or_quiet, words=_WORDS)
headline_of = partial(compared.headline_of, words=_WORDS)
quality_lines = partial(compared.quality_lines, words=_WORDS)
spread = partial(compared.spread, words=_WORDS)
text_verdict = partial(compared.text_verdict, words=_WORDS)
times = partial(compared.times, words=_WORDS)
verdict = partial(compared.verdict, words=_WORDS)


def capital(text: str) -> str:
    """The text as the beginning of a sentence."""
    return f"{text[:1].upper()}{text[1:]}"
