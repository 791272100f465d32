"""Texts of the Models page: pure functions of records."""

from __future__ import annotations

from typing import NamedTuple

from app.gpu.words import Button, duration
from app.models import make_words
from app.words import size
from engine.base.sizes import billions, figure
from engine.protocol import (
    Download,
    FitReport,
    HubModel,
    HubVariant,
    ModelDetails,
    ModelFolder,
    ModelFormat,
    StoredModel,
)
from engine.protocol.library import Verdict

_METHODS = {"gptq": "GPTQ", "awq": "AWQ", "nf4": "NF4", "mxfp4": "MXFP4", "fp8": "FP8"}
"""Methods of quantising whose names are written otherwise than configurations write them."""


def stored(model: StoredModel) -> str:
    """Describe a stored model: its purpose, its size and format, and its origin."""
    whose = "comes with Kvasir" if model.bundled else "" if model.origin == "Kvasir" else f"of {model.origin}"
    if model.missing:
        return f"{model.path} is not there any more"
    if model.held == "referred":
        whose = "linked, stays in its folder"
    made = f"made of {model.made_of}" if model.made_of else model.repository
    about = f"{model.about[:1].upper()}{model.about[1:]}".removesuffix(".")
    return " · ".join(filter(None, (about, size(model.bytes), can(model), whose, made)))


def in_menu(model: StoredModel, adapters: int = 0) -> str:
    """Size, format and what else it can, as short as a menu has room for. ``adapters``: those in memory with it."""
    loaded = f"{adapters} adapter{'s' * (adapters != 1)}" if adapters else ""
    return " · ".join(filter(None, (size(model.bytes), can(model), loaded)))


def can(model: StoredModel) -> str:
    """Describe the packing of the weights, and the model's vision, if any."""
    return " · ".join(filter(None, (packing(model.format, model.quantisation), "sees pictures" if model.sees else "")))


def packing(format: ModelFormat, quantisation: str) -> str:
    """Name of the packing of the weights, as people call it: "GGUF Q4_K_M", "GPTQ", "bfloat16 safetensors"."""
    if format == "gguf":
        return f"GGUF {quantisation}".rstrip()
    if quantisation in make_words.WIDTHS or not quantisation:
        return f"{quantisation} safetensors".lstrip()
    return _METHODS.get(quantisation.lower(), quantisation)


def removal(model: StoredModel, why_not: str = "") -> tuple[Button, ...]:
    """The button that takes a model away, where it is Kvasir's to do that."""
    if model.held in ("fetched", "copied"):
        return (Button("remove", "Delete", why_not=why_not),)
    return (Button("remove", "Forget", why_not=why_not),) if model.held == "referred" else ()


def removing(model: StoredModel) -> tuple[str, str, str]:
    """Confirmation of a removal: a title, a question, and the title of the button that does it."""
    if model.held == "referred":
        if model.missing:
            return "Forget a model", f"Forget {model.name}? It is not there any more.", "Forget"
        return "Forget a model", f"Forget {model.name}? Its files stay where they are, in {model.path}.", "Forget"
    again = "Nothing brings it back."
    if model.held == "fetched" or model.made_of:
        again = f"It can be {'made' if model.made_of else 'downloaded'} again."
    question = f"Delete {model.name} from this machine? {size(model.bytes)} become free. {again}"
    return "Delete a model", question, "Delete"


def folder(each: ModelFolder) -> str:
    """Models in a folder, and the free space there."""
    if not each.there:
        return "not there: plug in its disk, or look there no more"
    models = f"{each.models} models, {size(each.bytes)}" if each.models != 1 else f"1 model, {size(each.bytes)}"
    return f"{models} · {size(each.free)} of {size(each.total)} free"


def licence(name: str) -> str:
    """Licence of a repository; "" if it names none. The hub says "other" of one that it has no name for."""
    return "licence of its own" if name == "other" else name and f"licence {name}"


def found(model: HubModel) -> str:
    """Describe a repository by the facts that a search gives."""
    use = f"{count(model.downloads)} downloads" if model.downloads else ""
    formats = ", ".join(packing(each, "" if each == "gguf" else model.quantisation) for each in model.formats)
    number = billions(model.parameters)
    parts = (
        number and f"{number} parameters",
        formats,
        licence(model.licence),
        use,
        model.modified and f"changed {model.modified}",
    )
    return " · ".join(filter(None, parts))


def variant(each: HubVariant) -> str:
    """Name of one model of a repository."""
    if each.format == "gguf":
        return each.quantisation or each.name
    return packing(each.format, each.quantisation)


class Said(NamedTuple):
    """Texts of a row of the tray. ``stopping``: the reason it cannot be paused; ``cancel``: title of the button that
    gives it up."""

    title: str
    about: str
    stopping: str = ""
    cancel: str = "Cancel"


TONES: dict[Verdict, str] = {"fits": "good", "tight": "warn", "too large": "bad"}
"""Tone of the badge of a verdict."""


def speed(report: FitReport) -> str:
    """Describe the decoding speed, such as "≈ 24 tokens/s"; "" if it is not known."""
    return f"≈ {figure(report.decode)} tokens/s" if report.decode else ""


def fitting(report: FitReport) -> str:
    """Explain a verdict, a line for each thing: what it takes, how fast it is, what would make it fit."""
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
    """Suggestions that would make it fit, or fit better."""
    return [each.sentence for each in report.suggestions]


def facts(model: ModelDetails) -> list[tuple[str, str]]:
    """Names and values that the details of a model begin with."""
    return [
        ("Architecture", model.architecture),
        ("Parameters", f"{billions(model.parameters)} ({model.parameters:,})"),
        ("Weights", model.quantisation),
        ("Layers", f"{model.layers}, {model.width:,} wide"),
        ("Heads", f"{model.heads} of queries, {model.kv_heads} of keys and values, {model.head_dim} wide"),
        ("Context", f"{model.context:,} tokens"),
        ("Vocabulary", f"{model.vocabulary:,} tokens"),
        ("Licence", model.licence or "not stated in its files"),
        ("From", f"{model.repository} at {model.revision[:12]}" if model.repository else model.path),
        ("Files", ", ".join(f"{file.name} ({_small(file.bytes)})" for file in model.files)),
        *(("Note", notice) for notice in model.notices),
    ]


def download(each: Download) -> str:
    """Describe the progress of a download."""
    share = f"{size(each.done)} of {size(each.total)}" if each.total else ""
    if each.state == "waiting":
        return " · ".join(filter(None, ("queued", share)))
    if each.state in ("paused", "failed"):
        return " · ".join(filter(None, ("paused" if each.state == "paused" else each.sentence, share)))
    left = f"{duration((each.total - each.done) / each.rate)} left" if each.rate > 0 else ""
    return " · ".join(filter(None, (share, f"{size(each.rate)}/s" if each.rate > 0 else "", left)))


def count(number: int) -> str:
    """Format a count, such as "1.2M", "34k", "870"."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.2g}{letter}" if number < 100 * unit else f"{number / unit:.0f}{letter}"
    return str(number)


def _small(count: int) -> str:
    """Bytes of a file that may be small."""
    return size(count) if count >= 10**6 else f"{-(-count // 1000)} kB"
