"""What the Models page says: pure functions of records."""

from __future__ import annotations

from app.gpu.words import duration
from app.words import size
from engine.protocol import Download, FitReport, HubModel, HubVariant, StoredModel
from engine.protocol.library import Verdict
from engine.sizes import billions


def stored(model: StoredModel) -> str:
    """Size, format and whose it is."""
    whose = "comes with Kvasir" if model.bundled else "" if model.origin == "Kvasir" else f"of {model.origin}"
    return " · ".join(filter(None, (size(model.bytes), _format(model.format), whose, model.repository)))


def found(model: HubModel) -> str:
    """What a search knows of a repository."""
    use = f"{count(model.downloads)} downloads" if model.downloads else ""
    licence = model.licence and f"licence {model.licence}"
    formats = ", ".join(_format(each) for each in model.formats)
    number = billions(model.parameters)
    parts = (number and f"{number} parameters", formats, licence, use, model.modified and f"changed {model.modified}")
    return " · ".join(filter(None, parts))


def variant(each: HubVariant) -> str:
    """How one model of a repository is called."""
    if each.format == "gguf":
        return each.quantisation or each.name
    return f"safetensors, {each.quantisation}" if each.quantisation else "safetensors"


TONES: dict[Verdict, str] = {"fits": "good", "tight": "warn", "too large": "bad"}
"""How the badge of a verdict looks."""


def speed(report: FitReport) -> str:
    """As "24 tokens/s"; "" where it is not known."""
    return f"≈ {figure(report.decode)} tokens/s" if report.decode else ""


def figure(number: float) -> str:
    """As "0.8", "7.4", "120"."""
    return f"{number:.0f}" if number >= 10 else f"{number:.1f}"


def fitting(report: FitReport) -> str:
    """What is behind a verdict, a line for each thing: what it takes, how fast it is, what would make it fit."""
    lines = [report.sentence]
    if report.fit is not None and report.verdict != "too large":
        lines.append(f"{size(report.fit.weights)} for weights; {size(report.fit.budget)} may be used.")
        rooms = ", ".join(f"{each.tokens:,} in {each.kind.replace('bit', ' bits')}" for each in report.kinds)
        lines.append(f"Tokens that have room: {rooms}.")
    if report.decode:
        reading = f", reading {figure(report.prefill)}" if report.prefill else ""
        lines.append(f"About {figure(report.decode)} tokens/s{reading}, {report.source}.")
    if report.draft is not None:
        steps, rate = figure(report.draft.tokens_per_step), figure(report.draft.rate)
        lines.append(f"With {report.draft.proposer}: {steps} tokens a step, {rate} tokens/s, from your runs of it.")
    return "\n".join(filter(None, [*lines, *advice(report), report.assumed]))


def advice(report: FitReport) -> list[str]:
    """What would make it fit, or fit better."""
    return [each.sentence for each in report.suggestions]


def download(each: Download) -> str:
    """How far it is."""
    share = f"{size(each.done)} of {size(each.total)}" if each.total else ""
    if each.state == "waiting":
        return " · ".join(filter(None, ("waits for its turn", share)))
    if each.state in ("paused", "failed"):
        return " · ".join(filter(None, ("paused" if each.state == "paused" else each.sentence, share)))
    left = f"{duration((each.total - each.done) / each.rate)} left" if each.rate > 0 else ""
    return " · ".join(filter(None, (share, f"{size(each.rate)}/s" if each.rate > 0 else "", left)))


def count(number: int) -> str:
    """As "1.2M", "34k", "870"."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.2g}{letter}" if number < 100 * unit else f"{number / unit:.0f}{letter}"
    return str(number)


def _format(name: str) -> str:
    return "GGUF" if name == "gguf" else name
