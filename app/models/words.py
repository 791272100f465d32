"""What the Models page says: pure functions of records."""

from __future__ import annotations

from typing import NamedTuple

from app.gpu.words import duration
from app.words import size
from engine.protocol import Download, FitReport, HubModel, HubVariant, StoredModel

USUAL, LEAST = 8192, 256
"""Tokens of a usual chat, and of the least with which a model is loaded (`kvasir models fit` counts the same)."""


def stored(model: StoredModel) -> str:
    """Size, format and whose it is."""
    whose = "comes with Kvasir" if model.bundled else "" if model.origin == "Kvasir" else f"of {model.origin}"
    joint = " " if model.format == "gguf" else ", "
    packing = joint.join(filter(None, (_format(model.format), model.quantisation)))
    made = f"made of {model.made_of}" if model.made_of else model.repository
    return " · ".join(filter(None, (size(model.bytes), packing, whose, made)))


def found(model: HubModel) -> str:
    """What a search knows of a repository."""
    use = f"{count(model.downloads)} downloads" if model.downloads else ""
    licence = model.licence and f"licence {model.licence}"
    formats = ", ".join(_format(each) for each in model.formats)
    parts = (parameters(model.parameters), formats, licence, use, model.modified and f"changed {model.modified}")
    return " · ".join(filter(None, parts))


def variant(each: HubVariant) -> str:
    """How one model of a repository is called."""
    if each.format == "gguf":
        return each.quantisation or each.name
    return f"safetensors, {each.quantisation}" if each.quantisation else "safetensors"


class Said(NamedTuple):
    """What a row of the tray says. ``stopping``: why it cannot be paused; ``cancel``: what gives it up."""

    title: str
    about: str
    stopping: str = ""
    cancel: str = "Cancel"


class Fitting(NamedTuple):
    """Whether a variant fits: a word for it, its tone, and the figures behind it."""

    word: str
    tone: str
    about: str


def fitting(each: HubVariant, smallest: HubVariant, report: FitReport | None) -> Fitting | None:
    """Whether a variant fits, told from the report on the repository's ``smallest``: what they differ by is weights."""
    if report is None:
        return None
    if report.fit is None or not report.kinds:
        return Fitting("too large", "warn", report.sentence)
    fit = report.fit
    left = fit.budget - fit.weights - fit.draft_weights - (each.bytes - smallest.bytes) - fit.activations - fit.states
    usual = min(report.longest, USUAL)
    tokens = [
        (kind.kind, int(left / kind.bytes_per_token) if kind.bytes_per_token else report.longest)
        for kind in report.kinds
    ]
    figures = f"{size(max(0, left))} are left for the cache: " + ", ".join(
        f"{max(0, count):,} tokens in {kind.replace('bit', ' bits')}" for kind, count in tokens
    )
    if left <= 0 or max(count for _, count in tokens) < min(usual, LEAST):
        need = fit.budget - left
        return Fitting(
            "too large", "warn", f"It takes {size(need)} and some for its cache; {size(fit.budget)} may be used."
        )
    if tokens[0][0] == "16bit" and tokens[0][1] >= usual:
        return Fitting("fits", "good", figures)
    return Fitting("tight", "warn", figures)


def download(each: Download) -> str:
    """How far it is."""
    share = f"{size(each.done)} of {size(each.total)}" if each.total else ""
    if each.state == "waiting":
        return " · ".join(filter(None, ("waits for its turn", share)))
    if each.state in ("paused", "failed"):
        return " · ".join(filter(None, ("paused" if each.state == "paused" else each.sentence, share)))
    left = f"{duration((each.total - each.done) / each.rate)} left" if each.rate > 0 else ""
    return " · ".join(filter(None, (share, f"{size(each.rate)}/s" if each.rate > 0 else "", left)))


def parameters(number: int) -> str:
    """As "8.2B parameters"; "" where the number is not known."""
    if not number:
        return ""
    return f"{number / 1e9:.3g}B parameters" if number >= 1e9 else f"{number / 1e6:.3g}M parameters"


def count(number: int) -> str:
    """As "1.2M", "34k", "870"."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.2g}{letter}" if number < 100 * unit else f"{number / unit:.0f}{letter}"
    return str(number)


def _format(name: str) -> str:
    return "GGUF" if name == "gguf" else name
