"""Places of models to download: on this machine or on its way, and the button that says so. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from app.gpu.words import Button
from app.language import tr
from engine.protocol import Download, DownloadState, HubVariant, StoredModel

HERE = tr("It is on this machine.")
LOADED = tr("It is loaded.")
_PARTS = r"(-\d{5}-of-\d{5})?\.gguf"
AGAIN = tr("Try again")
_STATES: dict[DownloadState, tuple[str, str]] = {
    "waiting": (tr("Queued"), tr("It is downloaded after the others.")),
    "running": (tr("Downloading…"), tr("It is on its way.")),
    "paused": (tr("Paused"), tr("Its download is paused: resume it under In progress, below.")),
    "done": (tr("Downloading…"), tr("It is on its way.")),
}


class Place(NamedTuple):
    """Place of one model of a repository: on this machine, or on its way; neither if it is only on the hub."""

    here: StoredModel | None = None
    coming: Download | None = None


Refused = Mapping[tuple[str, str], str]
"""By repository and variant: the reason that a download did not begin, as a sentence."""


def place(repository: str, variant: str, stored: Iterable[StoredModel], downloads: Iterable[Download]) -> Place:
    """``variant``: its name in the repository, or its kind, as `kvasir models get` takes both."""
    here = (
        each for each in stored if each.repository == repository and names(variant, _name(each)) and not each.missing
    )
    coming = (each for each in downloads if each.repository == repository and names(variant, each.variant))
    return Place(next(here, None), next(coming, None))


def names(variant: str, name: str) -> bool:
    """True if ``variant``, a name or a kind, means the variant called ``name``, or the file of that name or path."""
    if "safetensors" in (variant, name):
        return variant == name
    wanted, file = variant.casefold(), "/" + name.replace("\\", "/").casefold()
    if wanted.endswith(".gguf"):
        stem = re.sub(_PARTS + "$", "", wanted)
        return re.search(f"/{re.escape(stem)}{_PARTS}$", file) is not None
    return re.search(rf"(?<![a-z0-9]){re.escape(wanted)}(?![a-z0-9_])", file.rpartition("/")[2]) is not None


def _name(model: StoredModel) -> str:
    return model.path if model.format == "gguf" else model.format


def trouble(at: Place, refused: str | None) -> str:
    """Reason that its download did not begin (``refused``) or was stopped, as a sentence; "" for none."""
    if at.here is not None:
        return ""
    if at.coming is None:
        return refused or ""
    return at.coming.sentence if at.coming.state == "failed" else ""


def button(at: Place, loaded: str, title: str, refused: str | None = None) -> Button:
    """Button for the next step: load it, wait for it, or download it, which ``title`` says. ``loaded``: a path.

    ``refused``: reason that it was not downloaded when it was asked for.
    """
    if at.here is not None:
        return Button("load", tr("Load"), why_not=LOADED if at.here.path == loaded else "")
    if refused or (at.coming is not None and at.coming.state == "failed"):
        return Button("get", AGAIN)
    if at.coming is not None:
        said, why = _STATES[at.coming.state]
        return Button("get", said, why_not=why)
    return Button("get", title)


PREFERRED = ("Q4_K_M", "UD-Q4_K_XL", "Q4_K_L", "MXFP4", "Q4_0", "Q4_K_S", "IQ4_XS", "IQ4_NL", "Q4_1")
"""Types of about 4 bits, the usual choice first."""
SMALL = 1_000_000_000
"""Parameters below which 4 bits cost more than they save."""
USUAL = tr("The usual choice: about 4 bits a weight, at little loss of quality.")
FINE = tr("8 bits a weight: a model this small loses more with fewer, and saves little.")
LARGEST = tr("The largest that fits here, so the closest to the original.")


def recommended(
    variants: Sequence[HubVariant], parameters: int, too_large: Iterable[str] = ()
) -> tuple[str, str] | None:
    """The name of the GGUF to take of several, and why; None where there is no choice to make.

    ``too_large``: names of those that do not fit here. ``parameters``: 0 where their number is not known.
    """
    files = [each for each in variants if each.format == "gguf"]
    if len(files) < 2:
        return None
    large = set(too_large)
    fitting = [each for each in files if each.name not in large]
    by_type = {each.quantisation.upper(): each for each in reversed(fitting)}
    if 0 < parameters < SMALL and "Q8_0" in by_type:
        return by_type["Q8_0"].name, FINE
    for kind in PREFERRED:
        if kind in by_type:
            return by_type[kind].name, USUAL
    if large and fitting:
        return max(fitting, key=lambda each: each.bytes).name, LARGEST
    return None
