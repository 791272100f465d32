"""Texts about a model that is made smaller, and about one that was: pure functions of records."""

from __future__ import annotations

import math
from typing import NamedTuple

from app.gpu.words import duration
from app.language import figure, tr
from app.words import size
from engine.protocol import MakeProgress, MakeReport, StoredModel

WIDTHS = {"bfloat16": 16, "float16": 16, "float32": 32}
"""Bits of a weight that is not quantised, by its dtype."""
SHORT_TEXT = 500
"""Tokens below which a report gives no verdict."""
STRANGE = 1000.0
"""Perplexity of the original above which a text is not what the model was made for."""
ONE_RUN = tr("one run each, no verdict")
"""Note on speeds, which other programs disturb."""


class MakeFormat(NamedTuple):
    """``bits``: of a weight, with its share of the scales; ``embedding_bits``: of one of the embeddings and the output
    head, 0 where they stay as they are."""

    key: str
    title: str
    bits: float
    about: str
    calibrated: bool = False
    embedding_bits: float = 0.0


_LEVELS = tr("No calibration: it takes seconds to minutes.")
_CALIBRATED = tr("Calibrated on a text: it takes minutes to hours.")


def _gguf(bits: int) -> str:
    about = tr("{bits}-bit, block size 32; one file that llama.cpp, Ollama and LM Studio load as well.", bits=bits)
    return f"{about} {_LEVELS}"


_GPTQ = tr("4-bit, group size 128. Rounding errors are corrected as it goes, so quality stays close to the original.")
_AWQ = tr("4-bit, group size 128. The channels that matter most are scaled up before they are rounded.")
_NF4 = tr("4-bit (bitsandbytes): 16 levels, spaced to match typical weights.")
_INT8 = tr("8-bit (compressed-tensors): evenly spaced levels, with one scale per row.")
FORMATS = {
    each.key: each
    for each in (
        MakeFormat("gptq", "GPTQ", 4.16, f"{_GPTQ} {_CALIBRATED}", calibrated=True),
        MakeFormat("awq", "AWQ", 4.16, f"{_AWQ} {_CALIBRATED}", calibrated=True),
        MakeFormat("nf4", "NF4", 4.5, f"{_NF4} {_LEVELS}"),
        MakeFormat("int8", "int8", 8.0, f"{_INT8} {_LEVELS}"),
        MakeFormat("gguf-q4_0", "GGUF Q4_0", 4.5, _gguf(4), embedding_bits=8.5),
        MakeFormat("gguf-q5_0", "GGUF Q5_0", 5.5, _gguf(5), embedding_bits=8.5),
        MakeFormat("gguf-q8_0", "GGUF Q8_0", 8.5, _gguf(8), embedding_bits=8.5),
    )
}


def title(to: str) -> str:
    """Name of a format as people call it."""
    return FORMATS[to].title if to in FORMATS else to.upper().replace("GGUF-", "GGUF ")


def can_be_made_smaller(model: StoredModel) -> bool:
    return model.format == "safetensors" and model.quantisation in WIDTHS


def expected_bytes(model: StoredModel, to: str) -> float:
    """Number of bytes it is expected to take on the disk, from those that it takes now."""
    form, width = FORMATS[to], WIDTHS[model.quantisation]
    tables = min(model.embedding_bytes, model.bytes)
    packed = min(model.packable_bytes or model.bytes, model.bytes - tables)
    stays = model.bytes - tables - packed
    return tables * (form.embedding_bits or width) / width + packed * form.bits / width + stays


def expected(model: StoredModel, to: str) -> str:
    then, now = size(expected_bytes(model, to)), size(model.bytes)
    return tr("about {size} (an estimate), now {now}", size=then, now=now)


def progress(job: MakeProgress, stopping: bool) -> str:
    """Describe the progress of the job."""
    if job.state == "waiting":
        return tr("queued")
    if job.state == "failed":
        return job.sentence
    if job.state == "paused":
        return _parts(tr("paused"), _of(job))
    if stopping:
        return tr("stopping at a point that it can continue from…")
    if job.state == "done":
        return tr("done")
    doing = {
        "reading": tr("reading the model"),
        "quantising": tr("quantising"),
        "measuring": tr("measuring what it lost"),
    }
    left = tr("{duration} left", duration=duration(job.left_s)) if job.left_s > 0 else ""
    return _parts(doing[job.state], "" if job.state == "reading" else _of(job), left)


def _of(job: MakeProgress) -> str:
    if not job.total:
        return ""
    if job.state == "quantising":
        return tr("{done} of {total} layers", done=job.done, total=job.total)
    if job.state == "measuring":
        return tr("{done} of {total} texts", done=job.done, total=job.total)
    return tr("{done} of {total}", done=job.done, total=job.total)


def _parts(*parts: str) -> str:
    return " · ".join(filter(None, parts))


class ReportFigure(NamedTuple):
    """A line of the report's table. ``tone`` is the role of the change's label."""

    name: str
    before: str
    after: str
    change: str = ""
    tone: str = "caption"


def figures(report: MakeReport) -> list[ReportFigure]:
    """The table of a report."""
    before, after = report.before, report.after
    found = [
        ReportFigure(
            tr("Size"),
            size(before.bytes),
            size(after.bytes),
            percent(after.bytes / before.bytes) if before.bytes else "",
            "good" if after.bytes < before.bytes else "warn",
        )
    ]
    if not report.tokens:
        return found
    rise, few = _rise(report), report.tokens < SHORT_TEXT
    tone = "caption" if few or 0 <= rise < 1 else "good" if rise < 0 else "warn"
    change = tr("too few tokens") if few else f"{figure(rise, '+.1f')} %" if rise else tr("the same")
    was, now = (perplexity(each.perplexity) for each in (before, after))
    found.append(ReportFigure(tr("Perplexity"), was, now, change, tone))
    if min(before.tokens_per_second, after.tokens_per_second) > 0:
        was, now = (figure(each.tokens_per_second, ",.1f") for each in (before, after))
        found.append(ReportFigure(tr("Tokens a second"), was, now, ONE_RUN))
    found.append(ReportFigure(tr("KL divergence"), "", tr("{kl:.2g} nats", kl=report.kl)))
    found.append(ReportFigure(tr("Same top token"), "", f"{figure(100 * report.same_top, '.1f')} %"))
    return found


def summary(report: MakeReport) -> str:
    """All of it in a sentence, and whether it may be believed."""
    share = percent(report.after.bytes / report.before.bytes if report.before.bytes else 1.0)
    if not report.tokens:
        won = tr("It takes {share} of the room; what it lost was not measured.", share=share)
        return f"{won} {report.unmeasured}".rstrip()
    if report.tokens < SHORT_TEXT:
        return tr(
            "It takes {share} of the room. The {tokens:,} tokens that it was measured on are too few to say what it "
            "lost.",
            share=share,
            tokens=report.tokens,
        )
    said = _measured(share, _rise(report), percent(1 - report.same_top))
    if report.before.perplexity > STRANGE:
        strange = tr("This text is not what the model was made for, so its perplexity says little.")
        said = f"{said} {strange}"
    return said


def _measured(share: str, rise: float, other: str) -> str:
    """``share`` of the room, ``rise`` of the perplexity in percent, ``other`` top tokens."""
    if not rise:
        return tr(
            "It takes {share} of the room; its perplexity is the same, and it picks a different top token {other} of "
            "the time.",
            share=share,
            other=other,
        )
    if rise > 0:
        return tr(
            "It takes {share} of the room; its perplexity is {rise:.1f} % higher, and it picks a different top token "
            "{other} of the time.",
            share=share,
            rise=rise,
            other=other,
        )
    return tr(
        "It takes {share} of the room; its perplexity is {fall:.1f} % lower, and it picks a different top token "
        "{other} of the time.",
        share=share,
        fall=-rise,
        other=other,
    )


def about(report: MakeReport) -> str:
    """Describe the model that was made and the way it was measured."""
    took = tr("made in {duration}", duration=duration(report.seconds)) if report.seconds else ""
    on = tr("measured on {tokens:,} tokens that were not used for calibration", tokens=report.tokens)
    return _parts(made_of(report.to, report.source), took, on if report.tokens else "")


def made_of(to: str, name: str) -> str:
    """Name of the model in a format that is made of another."""
    return tr("{format} of {name}", format=title(to), name=name)


def perplexity(value: float) -> str:
    """Format a perplexity, such as "12.87", "9,279,973"."""
    return figure(value, ",.0f" if value >= STRANGE else ".2f")


def percent(share: float) -> str:
    """Two digits: "0.84 %", "12 %"."""
    value = 100 * share
    digits = max(0, 1 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{figure(value, f'.{digits}f')} %"


def _rise(report: MakeReport) -> float:
    """Rise of the perplexity, in percent, to the digit that is shown."""
    before, after = report.before.perplexity, report.after.perplexity
    return round(100 * (after / before - 1), 1) if before > 0 else 0.0
