"""Texts of the window about GPU packs: pure functions of a situation, for the card and for the section in Settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from app.gpu.packs import Action
from app.language import known, tr
from app.words import size
from engine.protocol import PackProgress, PackStage, PackStatus

Waiting = Literal["", "answer", "engine"]
"""Event that an installed pack waits for before it is used: the end of an answer, the engine's start."""
_STAGES: dict[PackStage, str] = {
    "checking": tr("checking"),
    "downloading": tr("downloading"),
    "installing": tr("installing"),
    "testing": tr("testing it on the GPU"),
}
_KINDS = {"cuda13": "CUDA 13", "cuda12": "CUDA 12", "rocm": "ROCm"}
_FAILED: dict[Action, str] = {
    "install": tr("The GPU pack could not be installed"),
    "repair": tr("The GPU pack could not be repaired"),
    "test": tr("The GPU pack does not work"),
    "remove": tr("The GPU pack could not be removed"),
    "remove_old": tr("The packs of earlier versions could not be removed"),
}
_STOPPED: dict[Action, str] = {
    "install": tr("The GPU pack is not installed yet"),
    "repair": tr("The GPU pack is not repaired yet"),
    "test": tr("The GPU pack is not tested yet"),
    "remove": tr("The GPU pack is not removed yet"),
    "remove_old": tr("The packs of earlier versions are not removed yet"),
}


_STEPPED: dict[Action, str] = {"install": tr("Making Kvasir fast"), "repair": tr("Repairing the GPU pack")}
"""The actions that go through the stages and can be stopped."""
_SHOWN = ("install", "repair", "test")
"""The actions that the card follows too; the rest happens in Settings, where it was asked for."""


class Button(NamedTuple):
    key: str
    title: str
    primary: bool = False
    why_not: str = ""
    """Reason it cannot be pressed; "" when it can."""


class CardContent(NamedTuple):
    """Content of a card. ``key`` names its subject, so that a person who closed it does not see it again."""

    key: str
    title: str
    caption: str = ""
    tone: Literal["notice", "bad"] = "notice"
    fraction: float | None = None
    """The progress bar's fraction; None without a bar."""
    buttons: tuple[Button, ...] = ()
    details: str = ""


@dataclass(frozen=True)
class Situation:
    """Everything that the words depend on."""

    status: PackStatus | None = None
    trouble: str = ""
    action: Action = ""
    progress: PackProgress | None = None
    rate: float | None = None
    """Bytes a second."""
    left: float | None = None
    """Seconds."""
    paused: Action = ""
    failed: Action = ""
    failure: str = ""
    cpu: bool = True
    """True if the engine computes on a CPU."""
    device: str = ""
    """The name of the engine's device."""
    notice: str = ""
    """The engine's own notice, of its Welcome."""
    waiting: Waiting = ""
    done: str = ""
    """Last words of a command that went well."""


def duration(seconds: float) -> str:
    """Format seconds as exactly as anybody needs: "5 s", "50 s", "4 min", "1 h 10 min"."""
    if seconds < 10:
        return f"{max(1, round(seconds))} s"
    if seconds < 55:
        return f"{5 * round(seconds / 5)} s"
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def kind(status: PackStatus) -> str:
    """Name of the pack's kind, such as "CUDA 13"."""
    return _KINDS.get(status.kind, status.kind)


def card(s: Situation) -> CardContent | None:
    """Card above the pages; None if there is nothing to say, which is the usual state."""
    if s.action in _SHOWN:
        return _progress(s)
    if s.waiting:
        return _waiting(s)
    if s.failed in _SHOWN:
        return _failed(s)
    if s.paused in _SHOWN:
        return _paused(s)
    if s.done:
        return CardContent(
            "done", tr("Kvasir now computes on {device}", device=s.device), buttons=(Button("close", tr("Close")),)
        )
    status = s.status
    if status is not None and s.cpu:
        if status.state in ("installed", "broken"):
            return _unused(s, status)
        if status.gpu and status.kind and not status.refused:
            return _offer(status)
    if not s.notice:
        return None
    key = f"notice {s.notice}"  # not shown
    return CardContent(key, s.notice, buttons=(Button("close", tr("Close")),))


def section(s: Situation) -> CardContent:
    """Content of the section in Settings: always something, at least the reason there is nothing to do."""
    if s.action:
        return _progress(s)._replace(details="")
    status = s.status
    if status is None:
        if not s.trouble:
            return CardContent("", tr("Looking for a GPU"))
        return CardContent("", tr("Not known"), s.trouble, buttons=(Button("check", tr("Look again")),))
    content = _state(s, status)
    if s.failed:
        return content._replace(title=_FAILED[s.failed], caption=s.failure, tone="bad")
    return content


def removal(status: PackStatus) -> str:
    """Question that is asked before a pack is removed."""
    question = tr("Remove the GPU pack ({size})?", size=size(status.disk_bytes))
    if status.others:
        question = tr("Remove the GPU pack ({size}), those of earlier versions too?", size=size(status.disk_bytes))
    then = tr(
        "The engine then computes on the processor, more slowly. "
        "Chats, models and settings stay, and the pack can be downloaded again."
    )
    return f"{question} {then}"


def offer_key(status: PackStatus) -> str:
    """The key of the offer for this GPU."""
    return f"offer {status.gpu}"  # not shown


def facts(status: PackStatus) -> str:
    """The GPU and what serves it: "NVIDIA GeForce RTX 4090, driver 580.95, CUDA 13"."""
    driver = tr("driver {version}", version=status.driver) if status.driver else ""
    return ", ".join(part for part in (status.gpu, driver, kind(status)) if part)


def _short_of_space(status: PackStatus) -> str:
    needed = max(status.needed_bytes, status.disk_bytes)
    if status.free_bytes >= needed:
        return ""
    free = size(status.free_bytes)
    return tr("It needs {needed}, and {free} are free. Make room, then look again.", needed=size(needed), free=free)


def _space(status: PackStatus) -> str:
    download = tr("{size} to download", size=size(status.download_bytes)) if status.download_bytes else ""
    taken, free = size(status.disk_bytes), size(status.free_bytes)
    disk = tr("{size} on the disk, where {free} are free", size=taken, free=free)
    return " · ".join(part for part in (download, disk if status.disk_bytes else "") if part)


def _offer(status: PackStatus) -> CardContent:
    short, partial = _short_of_space(status), status.state == "partial"
    start = Button("check", tr("Look again"))
    if not short:
        start = Button("install", tr("Go on") if partial else tr("Make it fast"), True)
    about = tr("The engine computes on the processor now. A GPU pack, downloaded once, lets it use the GPU.")
    faster = tr("Kvasir can be much faster on your {gpu}", gpu=status.gpu)
    then = tr(
        "It goes to {folder} and nowhere else; chats, models and settings stay as they are. It can be stopped at any "
        "time and continues from there. Settings removes it again, and installs it from a file where there is no "
        "network.",
        folder=status.folder,
    )
    return CardContent(
        key=offer_key(status),
        title=tr("The GPU pack is not complete yet") if partial else faster,
        caption=short or _space(status),
        buttons=(Button("details", tr("Details")), Button("dismiss", tr("Not now")), start),
        details=f"{about} {facts(status)}. {then}",
    )


def _progress(s: Situation) -> CardContent:
    progress = s.progress
    if s.action not in _STEPPED:
        title = tr("Testing the GPU pack") if s.action == "test" else tr("Removing")
        caption = progress.sentence if progress is not None else ""
        return CardContent("progress", title, caption, fraction=0.0 if progress is None else _share(progress))
    verb = _STEPPED[s.action]
    buttons = (Button("cancel", tr("Cancel")), Button("pause", tr("Pause")))
    if progress is None:
        return CardContent("progress", verb, tr("Starting"), fraction=0.0, buttons=buttons)
    place, count = 1 + list(_STAGES).index(progress.stage), len(_STAGES)
    return CardContent(
        "progress",
        tr(
            "{doing}: {stage} ({place} of {count})", doing=verb, stage=_STAGES[progress.stage], place=place, count=count
        ),
        _pace(s, progress) or progress.sentence,
        fraction=_share(progress),
        buttons=buttons,
    )


def _share(progress: PackProgress) -> float:
    return min(1.0, progress.done / progress.total) if progress.total else 0.0


def _pace(s: Situation, progress: PackProgress) -> str:
    if progress.stage != "downloading":
        return ""
    done = size(progress.done)
    if progress.total:
        done = tr("{done} of {total}", done=done, total=size(progress.total))
    rate = f"{size(s.rate)}/s" if s.rate else ""
    left = tr("{duration} left", duration=duration(s.left)) if s.left is not None else ""
    return " · ".join(part for part in (done, rate, left) if part)


def _waiting(s: Situation) -> CardContent:
    if s.waiting == "engine":
        return CardContent("waiting", tr("The engine is starting again"), s.done)
    return CardContent(
        "waiting",
        tr("The engine starts again when the answer is finished"),
        s.done,
        buttons=(Button("now", tr("Start it now")),),
    )


def _failed(s: Situation) -> CardContent:
    broken = s.failed == "test" or (s.status is not None and s.status.state == "broken" and s.failed != "repair")
    again = Button("repair", tr("Repair"), True) if broken else Button("again", tr("Try again"), True)
    return CardContent(
        "failed",
        _FAILED[s.failed],
        s.failure,
        tone="bad",
        buttons=(Button("settings", tr("Details")), Button("close", tr("Close")), again),
    )


def _paused(s: Situation) -> CardContent:
    missing = s.status.download_bytes if s.status is not None and s.status.state == "partial" else 0
    left = tr("Stopped. {size} are still to download; what is there stays.", size=size(missing))
    buttons = Button("close", tr("Later")), Button("again", tr("Go on"), True)
    return CardContent("paused", _STOPPED[s.paused], left if missing else tr("Stopped."), buttons=buttons)


def _unused(s: Situation, status: PackStatus) -> CardContent | None:
    reason = s.notice or status.reason or status.refused
    if not reason:
        return None
    there = status.state == "installed"
    act = Button("test", tr("Test it again"), True) if there else Button("repair", tr("Repair"), True)
    return CardContent(
        f"reason {reason}",  # not shown
        tr("The GPU pack is not in use") if there else tr("The GPU pack does not work"),
        reason,
        buttons=(Button("settings", tr("Details")), Button("dismiss", tr("Not now")), act),
    )


def _state(s: Situation, status: PackStatus) -> CardContent:
    """The section while nothing runs."""
    test = Button("test", tr("Test", "the verb on a button"))
    repair, remove = Button("repair", tr("Repair")), Button("remove", tr("Remove…"))
    if status.state == "installed":
        if status.active and not s.cpu:
            return CardContent("", tr("In use"), facts(status), buttons=(repair, remove))
        caption = s.notice or status.reason or status.refused or facts(status)
        return CardContent("", tr("Installed, not in use"), caption, buttons=(test, repair, remove))
    if status.state == "broken":
        return CardContent(
            "", tr("Does not work"), s.notice or status.reason or facts(status), "bad", buttons=(repair, remove)
        )
    file = Button("file", tr("Install from a file…"))
    if status.refused or not status.kind:
        reason = known(status.refused) or tr("No GPU was found that a pack would serve.")
        return CardContent(
            "", tr("None", "no GPU pack"), reason, buttons=(remove,) if status.state == "partial" else ()
        )
    short = _short_of_space(status)
    caption = f"{facts(status)}. {short or _space(status) + '.'}"
    install = Button("install", tr("Go on") if status.state == "partial" else tr("Install"), why_not=short)
    if status.state == "partial":
        return CardContent("", tr("Not complete"), caption, buttons=(install, file, remove))
    if status.former:
        caption = tr("A pack of an earlier version is in use. That of this version: {facts}", facts=caption)
        return CardContent("", tr("There is a newer one"), caption, buttons=(install, file, remove))
    return CardContent("", tr("Not installed"), caption, buttons=(install, file))
