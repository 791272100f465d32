"""What the Models page says: pure functions of records."""

from __future__ import annotations

from app.gpu.words import duration
from app.words import size
from engine.protocol import Download, HubModel, HubVariant, StoredModel


def stored(model: StoredModel) -> str:
    """Size, format and whose it is."""
    whose = "comes with Kvasir" if model.bundled else "" if model.origin == "Kvasir" else f"of {model.origin}"
    return " · ".join(filter(None, (size(model.bytes), _format(model.format), whose, model.repository)))


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
