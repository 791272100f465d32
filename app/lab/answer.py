"""An answer of the person's own on the page of the experiment that explains its figures."""

from __future__ import annotations

from typing import NamedTuple

from app.history.records import AnswerStats
from app.lab.layout import PageSection, label
from app.lab.pictures import PictureView
from app.language import tr
from app.theme.theme import Theme
from app.theme.widgets import named
from app.words import PAGE_TOKENS
from engine.protocol import Timings, Usage
from engine.protocol.lab import Picture, Strip

PREFIXES = "prefixes"
_PICTURE_PX = (56, 160)


class OwnAnswer(NamedTuple):
    """``asked``: what it answers, in a few words."""

    asked: str
    usage: Usage
    timings: Timings


def of(stats: AnswerStats, asked: str) -> OwnAnswer | None:
    """None where the answer has no figures: it was interrupted."""
    if stats.usage is None or stats.timings is None:
        return None
    return OwnAnswer(asked, stats.usage, stats.timings)


def sentences(name: str, answer: OwnAnswer) -> list[str]:
    """What was measured while it was written, that of the experiment first."""
    cached, drafted = _of_cache(answer), _of_drafts(answer)
    return [each for each in ((cached, drafted) if name == PREFIXES else (drafted, cached)) if each]


def picture(name: str, answer: OwnAnswer) -> Picture | None:
    """The prompt's pages, those that came from the cache unread; None for other experiments: an answer's steps are
    counted and not kept."""
    usage = answer.usage
    if name != PREFIXES or not usage.prompt_tokens:
        return None
    starts = range(0, usage.prompt_tokens, PAGE_TOKENS)
    return Strip(read=[_read(start, min(usage.prompt_tokens, start + PAGE_TOKENS), usage) for start in starts])


def _read(start: int, end: int, usage: Usage) -> float:
    """Share of the tokens from ``start`` to ``end`` that were not in the cache."""
    return (end - max(start, min(end, usage.cached_tokens))) / (end - start)


def _of_cache(answer: OwnAnswer) -> str:
    usage, timings = answer.usage, answer.timings
    if not usage.cached_tokens:
        return ""
    left = usage.prompt_tokens - usage.cached_tokens
    return tr(
        "{cached:,} of the {prompt:,} tokens of its prompt came from the cache, so only {left:,} had to be read before "
        "its first word, which came after {ms:,.0f} ms.",
        cached=usage.cached_tokens,
        prompt=usage.prompt_tokens,
        left=left,
        ms=timings.ttft_ms,
    )


def _of_drafts(answer: OwnAnswer) -> str:
    usage, timings = answer.usage, answer.timings
    if not timings.proposed:
        return ""
    return tr(
        "{rate:.1f} tokens a step: its {tokens:,} tokens took {steps:,} steps, where one without drafts gives one "
        "token. {accepted:,} of {drafted:,} drafted tokens were accepted.",
        rate=timings.tokens_per_step,
        tokens=usage.generated_tokens,
        steps=timings.steps,
        accepted=timings.accepted,
        drafted=timings.proposed,
    )


class AnswerCard(PageSection):
    """The first thing on the experiment's page."""

    def __init__(self, name: str, answer: OwnAnswer, theme: Theme) -> None:
        super().__init__(box=True)
        named(self, "lab.answer", title=tr("Your answer"))
        self.add(label(tr("Your answer to “{asked}”", asked=answer.asked), "figure", "lab.answer.title"))
        for sentence in sentences(name, answer):
            self.add(label(sentence, name="lab.answer.figures"))
        self.picture: PictureView | None = None
        if (found := picture(name, answer)) is not None:
            self.picture = PictureView(theme)
            self.picture.show_picture(found)
            self.picture.fit(*map(theme.px, _PICTURE_PX))
            self.add(self.picture)
