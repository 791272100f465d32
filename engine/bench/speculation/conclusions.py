"""What the figures of ``kvasir bench --speculation`` say, in sentences."""

from __future__ import annotations

from engine.bench.speculation.figures import OverheadRow, SpeculationFigures, TextFigures, WayRow

PAYS = 1.05
"""A gain below this is within the noise."""
AIM = 0.03
"""Share of the speed that may be lost where the method "auto" has found that nothing pays."""


def conclusions(figures: SpeculationFigures) -> list[str]:
    """Where speculation pays, where it does not and why, what is left of its cost, and whether texts were the same."""
    device = "CPU" if figures.device == "cpu" else "GPU"
    said = [_of_text(text, device) for text in figures.texts]
    said += [_of_overhead(row) for row in figures.overhead]
    return [*said, *_of_equality(figures)]


def pays(row: WayRow) -> bool:
    """Whether it drafted, gained more than the noise in the median, and gained in three quarters of the pairs."""
    return row.drafting > 0 and row.speedup.median >= PAYS and row.speedup.low > 1


def _of_text(text: TextFigures, device: str) -> str:
    gains = [row for row in text.rows if pays(row)]
    unclear = [row for row in text.rows if row.drafting and row.speedup.median >= PAYS and row not in gains]
    losses = [row for row in text.rows if row.drafting and row.speedup.median < PAYS]
    idle = [row.title for row in text.rows if not row.drafting]
    sentences = []
    if gains:
        sentences.append(f"on this {device} it pays with {_named(gains)}.")
    else:
        sentences.append(f"on this {device} no draft method surely pays.")
    if unclear:
        sentences.append(f"A gain that the noise of this run covers: {_named(unclear)}.")
    if losses:
        sentences.append("It does not pay with " + "; ".join(map(_why, losses)) + ".")
    if idle:
        sentences.append(f"Never drafted: {', '.join(idle)}.")
    return f"{text.title[0].upper()}{text.title[1:]}: " + " ".join(sentences)


def _named(rows: list[WayRow]) -> str:
    return ", ".join(f"{row.title} ({row.speedup.median:.2f})" for row in rows)


def _why(row: WayRow) -> str:
    """The row's gain, and what it was lost by."""
    told = f"{row.title} ({row.speedup.median:.2f}: "
    cost = row.draft_pass * row.passes + row.verify_step
    return told + f"a step with drafts costs {cost:.2f} plain ones and gives {row.tokens_per_step:.2f} tokens)"


def _of_overhead(row: OverheadRow) -> str:
    lost = 1 - row.ratio.median
    who = f'The method "auto" on {row.text}, {row.batch} at once, drafted in {row.drafting:.0%} of its steps and '
    if row.best >= PAYS:
        return who + f"had {row.ratio.median:.2f} of the plain speed; a fixed length gains there too ({row.best:.2f})."
    if row.ratio.high >= 1:
        quarters = f"quarters {row.ratio.low:.2f} to {row.ratio.high:.2f}"
        return who + f"cost nothing that rises above the noise ({row.ratio.median:.2f}, {quarters})."
    verdict = "within" if lost < AIM else "beyond"
    return who + f"cost {lost:.1%} of the plain speed, {verdict} the aim of {AIM:.0%}."


def _of_equality(figures: SpeculationFigures) -> list[str]:
    rows = [row for text in figures.texts for row in text.rows]
    wrong = [
        f"{row.title} on {text.title}" for text in figures.texts for row in text.rows if row.exact < row.exact_answers
    ]
    if wrong:
        return [f"The text CHANGED in batch-invariant arithmetic, which is an error: {', '.join(wrong)}."]
    checked, near = sum(row.exact_answers for row in rows), sum(row.answers - row.equal for row in rows)
    said = []
    if checked:
        said.append(
            f"All {checked} answers in batch-invariant arithmetic were those of plain decoding, token for token."
        )
    if near:
        timed = sum(row.answers for row in rows)
        said.append(f"Of the {timed} timed ones {near} left the plain text at a near-tie of two tokens.")
    return said
