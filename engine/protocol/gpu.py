"""Output of `kvasir gpu … --json`, one object a line: the window runs that command to look after GPU packs."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.protocol.base import Message

PackState = Literal["none", "partial", "installed", "broken"]
"""``partial``: a download that was stopped and can go on. ``broken``: its self-test failed, or files are missing."""
PackStage = Literal["checking", "downloading", "installing", "testing"]


class PackStatus(Message, frozen=True):
    """``kvasir gpu status``."""

    gpu: str = ""
    """The GPU that a pack would serve, such as "NVIDIA GeForce RTX 4090"; "" when none was found."""
    driver: str = ""
    kind: str = ""
    """The pack that fits it: cuda13, cuda12 or rocm; "" when none does."""
    refused: str = ""
    """Reason that none fits, or that none can be installed here, as a sentence."""
    state: PackState = "none"
    active: bool = False
    """True if the engine is started from it."""
    reason: str = ""
    """Reason that an installed pack is not used, as a sentence."""
    download_bytes: int = 0
    """Bytes still to be downloaded."""
    disk_bytes: int = 0
    """Bytes that it takes on the disk in the end."""
    needed_bytes: int = 0
    """Bytes that must be free to install it: the download lies next to it until then."""
    free_bytes: int = 0
    """Bytes free where it would lie."""
    folder: str = ""
    former: str = ""
    """Folder of another pack that the engine is started from until this one is installed: of an earlier version."""
    others: list[str] = []
    """Folders of packs that this version does not use any more, and that can be removed."""


class PackProgress(Message, frozen=True):
    """Progress of an installation. ``total`` 0: not known."""

    stage: PackStage
    done: int = 0
    total: int = 0
    """Bytes while downloading, else steps."""
    sentence: str = ""


class PackResult(Message, frozen=True):
    """The last line of every command that changes something."""

    ok: bool
    sentence: str


PackReport = PackStatus | PackProgress | PackResult
decode_pack_report = msgspec.json.Decoder(PackReport).decode
"""One line of ``--json``. Raises msgspec.DecodeError, msgspec.ValidationError."""
