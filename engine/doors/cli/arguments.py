"""Parse and check command-line arguments: each function raises typer.BadParameter with a sentence."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

import typer

import engine.loading.techniques  # noqa: F401 - registers what drafts
from engine.decoding.speculation.technique import drafting

if TYPE_CHECKING:
    from engine.protocol import LoadOptions, Quantise, StructuredOutput
    from engine.services.experiments.workloads.shapes import Shape

    Dtype = Literal["auto", "float32", "bfloat16", "float16"]

DEVICE_HELP = "auto, cpu, cuda (the GPU with the most free memory), cuda:1 (the second one) or mps (Apple's)."
QUANTISE_HELP = "Pack a 16- or 32-bit model while it is loaded: none, nf4, int4 or int8."
TRAINED = [each for each in drafting() if each.training is not None]
"""Techniques whose heads `kvasir train-heads` makes."""
HEADS = f"{' or '.join(each.label for each in TRAINED)} heads"
DRAFT_HELP = (
    f"A draft model, {HEADS}, or an assistant of Gemma 4, for speculation (a name or a path; the bundled "
    "model brings its own, 'none' for no draft model)."
)
ContextOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Longest text, in tokens. Fewer take less memory; some models can go beyond their own limit.",
        show_default=False,
    ),
]
DeviceOption = Annotated[str, typer.Option(help=DEVICE_HELP)]
DraftOption = Annotated[str | None, typer.Option(help=DRAFT_HELP, show_default=False)]
DtypeOption = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
MemoryOption = Annotated[
    str, typer.Option(help="What weights and cache may take: GB, or a share of what is free, as 60%; 85% if left out.")
]
QuantiseOption = Annotated[str, typer.Option(help=QUANTISE_HELP)]

ADAPTER_HELP = "NAME=FOLDER of a LoRA adapter (PEFT's format), asked for as the model NAME; repeatable."


ORIGIN_HELP = (
    "Web pages that may use the server, such as https://chat.example or http://localhost:3000; * stands for any "
    "characters; repeatable."
)
HOST_HELP = "A name by which the server may be reached, such as host.docker.internal, with a port or any; repeatable."
_ORIGIN = re.compile(r"\*|null|[A-Za-z*][A-Za-z0-9+.*-]*://[^/\s]*")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?")


def origins_of(texts: list[str] | None) -> list[str]:
    """Origins of web pages (RFC 6454), without the slash that people copy with them."""
    found = [text.removesuffix("/") if text.count("/") == 3 else text for text in texts or []]
    for text in found:
        if not _ORIGIN.fullmatch(text):
            message = f"{text!r} is not the origin of a page, such as https://chat.example or http://localhost:3000."
            raise typer.BadParameter(message, param_hint="--allow-origin")
    return found


def hosts_of(texts: list[str] | None) -> list[str]:
    """Names of hosts, with or without a port."""
    for text in texts or []:
        if not _HOST.fullmatch(text):
            message = f"{text!r} is not the name of a host, such as host.docker.internal or nas.local:8642."
            raise typer.BadParameter(message, param_hint="--allow-host")
    return texts or []


def adapters_of(texts: list[str] | None) -> dict[str, str]:
    """Folders by the adapters' names."""
    found: dict[str, str] = {}
    for text in texts or []:
        name, equals, folder = text.partition("=")
        if not (name.strip() and equals and folder):
            raise typer.BadParameter(f"{text!r} is not NAME=FOLDER.", param_hint="--adapter")
        found[name.strip()] = str(absolute(folder))
    return found


def shapes_of(names: str | None) -> list[Shape] | None:
    from engine.services.experiments.workloads.shapes import SHAPES

    return None if names is None else [SHAPES[name] for name in listed(names, SHAPES, "--shapes")]


def listed(names: str, known: Collection[str], option: str) -> list[str]:
    """Names between commas; "none" is none of them."""
    return [_known(name.strip(), known, option) for name in names.split(",") if name.strip() not in ("", "none")]


def _known(value: str, known: Collection[str], option: str) -> str:
    if value not in known:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}.", param_hint=option)
    return value


def switches_of(texts: list[str], example: str = "speculation=ngram") -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE, such as {example}.", param_hint="--set")
        found[key.strip()] = value.strip()
    return found


def schema_of(path: Path) -> StructuredOutput:
    """The form of answers that a file with a JSON schema describes."""
    from engine.protocol import StructuredOutput

    try:
        return StructuredOutput("json_schema", path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path} cannot be read as text ({error}).", param_hint="--schema") from error


def absolute(path: str | Path) -> Path:
    """A path of the command line, for processes that run elsewhere; the home of a user who is unknown stays a name."""
    return Path(os.path.realpath(os.path.expanduser(path)))


def path_or_name_of(model: str) -> str:
    """The model as it was given, or as an absolute path: on a command line a path may be relative."""
    path = absolute(model)
    parts = re.split(r"[/\\]", model)
    named = len(parts) == 2 and parts[0] not in ("", ".", "..", "~")  # as ORGANISATION/NAME, which was fetched
    return str(path) if model and (os.path.exists(path) or (len(parts) > 1 and not named)) else model


def draft_of(draft: str | None) -> str | None:
    if draft is None:
        return None
    return "" if draft.lower() in ("", "none") else path_or_name_of(draft)


def device_of(device: str) -> str:
    """A :data:`engine.protocol.DeviceName`."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]{1,3})?", device):
        text = f"{device!r} is none of auto, cpu, cuda and mps, and no single GPU, such as cuda:1."
        raise typer.BadParameter(text, param_hint="--device")
    return device


def dtype_of(dtype: str) -> Dtype:
    if dtype not in ("auto", "float32", "bfloat16", "float16"):
        raise typer.BadParameter(f"{dtype!r} is none of auto, float32, bfloat16, float16.", param_hint="--dtype")
    return cast("Dtype", dtype)


def quantise_of(method: str) -> Quantise:
    from engine.protocol import Quantise

    return cast("Quantise", _known(method, get_args(Quantise), "--quantise"))


def memory_of(memory: str) -> float | None:
    """Parse ``--memory`` for :class:`engine.protocol.LoadOptions`: a share up to 1, else bytes; None for ""."""
    if not memory:
        return None
    share = memory.endswith("%")
    with contextlib.suppress(ValueError):
        found = float(memory.removesuffix("%")) * (0.01 if share else 1e9)
        if 0 < found <= 1 if share else 1 < found < math.inf:
            return found
    text = f"{memory!r} is neither GB, such as 6.5, nor a share up to 100%."
    raise typer.BadParameter(text, param_hint="--memory")


def load_options_of(
    device: str = "auto", quantise: str = "none", context: int | None = None, dtype: str = "auto", memory: str = ""
) -> LoadOptions:
    from engine.protocol import LoadOptions

    return LoadOptions(memory_of(memory), context, device_of(device), dtype_of(dtype), quantise_of(quantise))
