"""Texts of the Models page: pure functions of records."""

from __future__ import annotations

from typing import NamedTuple

from app.gpu.words import Button, duration
from app.language import figure, known, plural, tr
from app.models import make_words
from app.words import size
from engine.base.sizes import billions
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
    if model.missing:
        return tr("{path} is not there any more", path=model.path)
    if model.held == "referred":
        whose = _whole(tr("linked, stays in its folder"))
    elif model.bundled:
        whose = _whole(tr("comes with Kvasir"))
    else:
        whose = "" if model.origin == "Kvasir" else tr("of {origin}", origin=model.origin)
    made = tr("made of {name}", name=model.made_of) if model.made_of else model.repository
    clause = known(model.about)
    about = f"{clause[:1].upper()}{clause[1:]}".removesuffix(".")
    return " · ".join(filter(None, (about, size(model.bytes), can(model), whose, made)))


def _whole(clause: str) -> str:
    """The clause, which goes to the next line as a whole."""
    return clause.replace(" ", "\xa0")


def in_menu(model: StoredModel, adapters: int = 0) -> str:
    """Size, format and what else it can, as short as a menu has room for. ``adapters``: those in memory with it."""
    loaded = plural("1 adapter", "{n} adapters", adapters) if adapters else ""
    return " · ".join(filter(None, (size(model.bytes), can(model), loaded)))


def can(model: StoredModel) -> str:
    """Describe the packing of the weights, and the model's vision, if any."""
    return " · ".join(
        filter(None, (packing(model.format, model.quantisation), tr("sees pictures") if model.sees else ""))
    )


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
        return (Button("remove", tr("Delete"), why_not=why_not),)
    return (Button("remove", tr("Forget"), why_not=why_not),) if model.held == "referred" else ()


def removing(model: StoredModel) -> tuple[str, str, str]:
    """Confirmation of a removal: a title, a question, and the title of the button that does it."""
    if model.held == "referred":
        question = tr("Forget {name}? It is not there any more.", name=model.name)
        if not model.missing:
            question = tr("Forget {name}? Its files stay where they are, in {path}.", name=model.name, path=model.path)
        return tr("Forget a model"), question, tr("Forget")
    again = tr("Nothing brings it back.")
    if model.made_of:
        again = tr("It can be made again.")
    elif model.held == "fetched":
        again = tr("It can be downloaded again.")
    question = tr("Delete {name} from this machine? {size} become free.", name=model.name, size=size(model.bytes))
    return tr("Delete a model"), f"{question} {again}", tr("Delete")


def folder(each: ModelFolder) -> str:
    """Models in a folder, and the free space there."""
    if not each.there:
        return tr("not there: plug in its disk, or look there no more")
    models = plural("1 model, {size}", "{n} models, {size}", each.models, size=size(each.bytes))
    return f"{models} · {tr('{free} of {total} free', free=size(each.free), total=size(each.total))}"


def licence(name: str) -> str:
    """Licence of a repository; "" if it names none. The hub says "other" of one that it has no name for."""
    return tr("licence of its own") if name == "other" else name and tr("licence {name}", name=name)


def found(model: HubModel) -> str:
    """Describe a repository by the facts that a search gives."""
    use = tr("{count} downloads", count=count(model.downloads)) if model.downloads else ""
    formats = ", ".join(packing(each, "" if each == "gguf" else model.quantisation) for each in model.formats)
    number = parameters(model.parameters)
    parts = (
        number and tr("{number} parameters", number=number),
        formats,
        licence(model.licence),
        use,
        model.modified and tr("changed {date}", date=model.modified),
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
    cancel: str = tr("Cancel")


TONES: dict[Verdict, str] = {"fits": "good", "tight": "warn", "too large": "bad"}
"""Tone of the badge of a verdict."""
VERDICTS: dict[Verdict, str] = {"fits": tr("fits"), "tight": tr("tight"), "too large": tr("too large")}


def speed(report: FitReport) -> str:
    """Describe the decoding speed, such as "≈ 24 tokens/s"; "" if it is not known."""
    return rate(_figure(report.decode)) if report.decode else ""


def rate(tokens: str) -> str:
    """A speed, whose figure is written already."""
    return tr("≈ {tokens} tokens/s", tokens=tokens)


def fitting(report: FitReport) -> str:
    """Explain a verdict, a line for each thing: what it takes, how fast it is, what would make it fit."""
    lines = [report.sentence]
    if report.fit is not None and report.verdict != "too large":
        weights, budget = size(report.fit.weights), size(report.fit.budget)
        lines.append(tr("{weights} for weights; {budget} may be used.", weights=weights, budget=budget))
        rooms = ", ".join(
            tr("{tokens:,} in {kind}", tokens=each.tokens, kind=_bits(each.kind)) for each in report.kinds
        )
        lines.append(tr("Tokens that have room: {rooms}.", rooms=rooms))
    if report.decode:
        decode, source = _figure(report.decode), known(report.source)
        if report.prefill:
            prefill = _figure(report.prefill)
            lines.append(
                tr("About {rate} tokens/s, reading {prefill}, {source}.", rate=decode, prefill=prefill, source=source)
            )
        else:
            lines.append(tr("About {rate} tokens/s, {source}.", rate=decode, source=source))
    if report.draft is not None:
        lines.append(
            tr(
                "With {proposer}: {steps} tokens a step, {rate} tokens/s, from your runs of it.",
                proposer=report.draft.proposer,
                steps=_figure(report.draft.tokens_per_step),
                rate=_figure(report.draft.rate),
            )
        )
    return "\n".join(filter(None, [*lines, *advice(report), report.assumed]))


def advice(report: FitReport) -> list[str]:
    """Suggestions that would make it fit, or fit better."""
    return [each.sentence for each in report.suggestions]


def facts(model: ModelDetails) -> list[tuple[str, str]]:
    """Names and values that the details of a model begin with."""
    heads = tr(
        "{heads} of queries, {kv_heads} of keys and values, {width} wide",
        heads=model.heads,
        kv_heads=model.kv_heads,
        width=model.head_dim,
    )
    place = tr("{repository} at {revision}", repository=model.repository, revision=model.revision[:12])
    return [
        (tr("Architecture"), model.architecture),
        (tr("Parameters"), f"{parameters(model.parameters)} ({figure(model.parameters)})"),
        (tr("Weights"), model.quantisation),
        (tr("Layers"), tr("{layers}, {width:,} wide", layers=model.layers, width=model.width)),
        (tr("Heads"), heads),
        (tr("Context"), tr("{tokens:,} tokens", tokens=model.context)),
        (tr("Vocabulary"), tr("{tokens:,} tokens", tokens=model.vocabulary)),
        (tr("Licence"), model.licence or tr("not stated in its files")),
        (tr("From"), place if model.repository else model.path),
        (tr("Files"), ", ".join(f"{file.name} ({_small(file.bytes)})" for file in model.files)),
        *((tr("Note"), notice) for notice in model.notices),
    ]


def download(each: Download) -> str:
    """Describe the progress of a download."""
    share = tr("{done} of {total}", done=size(each.done), total=size(each.total)) if each.total else ""
    if each.state == "waiting":
        return " · ".join(filter(None, (tr("queued"), share)))
    if each.state in ("paused", "failed"):
        return " · ".join(filter(None, (tr("paused") if each.state == "paused" else each.sentence, share)))
    if each.rate <= 0:
        return share
    left = tr("{duration} left", duration=duration((each.total - each.done) / each.rate))
    return " · ".join(filter(None, (share, f"{size(each.rate)}/s", left)))


def count(number: int) -> str:
    """Format a count, such as "1.2M", "34k", "870"."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if number >= unit:
            return figure(number / unit, ".2g" if number < 100 * unit else ".0f") + letter
    return str(number)


def parameters(number: int) -> str:
    """Format a number of parameters, such as "8.19B", "600M"; "" where it is not known (0)."""
    text = billions(number)
    return text and figure(float(text[:-1]), "g") + text[-1]


def _figure(value: float) -> str:
    """Format a speed, such as "0.8", "7.4", "1,320"."""
    return figure(value, ",.0f" if value >= 9.95 else ".1f")


def _bits(kind: str) -> str:
    """Name of a kind of KV cache, such as "16 bits"."""
    return tr("{bits} bits", bits=kind.removesuffix("bit")) if kind.endswith("bit") else kind


def _small(count: int) -> str:
    """Bytes of a file that may be small."""
    return size(count) if count >= 10**6 else f"{-(-count // 1000)} kB"
