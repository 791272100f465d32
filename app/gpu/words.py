"""Texts of the window about GPU packs: pure functions of a situation, for the card and for the section in Settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from app.gpu.packs import Action
from app.words import size
from engine.protocol import PackProgress, PackStage, PackStatus

Waiting = Literal["", "answer", "engine"]
"""Event that an installed pack waits for before it is used: the end of an answer, the engine's start."""
_STAGES: dict[PackStage, str] = {
    "checking": "checking",
    "downloading": "downloading",
    "installing": "installing",
    "testing": "testing it on the GPU",
}
_KINDS = {"cuda13": "CUDA 13", "cuda12": "CUDA 12", "rocm": "ROCm"}
_FAILED: dict[Action, str] = {
    "install": "The GPU pack could not be installed",
    "repair": "The GPU pack could not be repaired",
    "test": "The GPU pack does not work",
    "remove": "The GPU pack could not be removed",
    "remove_old": "The packs of earlier versions could not be removed",
}
_STOPPED: dict[Action, str] = {
    "install": "The GPU pack is not installed yet",
    "repair": "The GPU pack is not repaired yet",
    "test": "The GPU pack is not tested yet",
    "remove": "The GPU pack is not removed yet",
    "remove_old": "The packs of earlier versions are not removed yet",
}


_STEPPED: dict[Action, str] = {"install": "Making Kvasir fast", "repair": "Repairing the GPU pack"}
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
        return CardContent("done", f"Kvasir now computes on {s.device}", buttons=(Button("close", "Close"),))
    status = s.status
    if status is not None and s.cpu:
        if status.state in ("installed", "broken"):
            return _unused(s, status)
        if status.gpu and status.kind and not status.refused:
            return _offer(status)
    return CardContent(f"notice {s.notice}", s.notice, buttons=(Button("close", "Close"),)) if s.notice else None


def section(s: Situation) -> CardContent:
    """Content of the section in Settings: always something, at least the reason there is nothing to do."""
    if s.action:
        return _progress(s)._replace(details="")
    status = s.status
    if status is None:
        if not s.trouble:
            return CardContent("", "Looking for a GPU")
        return CardContent("", "Not known", s.trouble, buttons=(Button("check", "Look again"),))
    content = _state(s, status)
    if s.failed:
        return content._replace(title=f"{_FAILED[s.failed]}", caption=s.failure, tone="bad")
    return content


def removal(status: PackStatus) -> str:
    """Question that is asked before a pack is removed."""
    return (
        f"Remove the GPU pack ({size(status.disk_bytes)}){', those of earlier versions too' if status.others else ''}? "
        "The engine then computes on the processor, more slowly. "
        "Chats, models and settings stay, and the pack can be downloaded again."
    )


def offer_key(status: PackStatus) -> str:
    """The key of the offer for this GPU."""
    return f"offer {status.gpu}"


def facts(status: PackStatus) -> str:
    """The GPU and what serves it: "NVIDIA GeForce RTX 4090, driver 580.95, CUDA 13"."""
    driver = f"driver {status.driver}" if status.driver else ""
    return ", ".join(part for part in (status.gpu, driver, kind(status)) if part)


def _short_of_space(status: PackStatus) -> str:
    needed = max(status.needed_bytes, status.disk_bytes)
    if status.free_bytes >= needed:
        return ""
    return f"It needs {size(needed)}, and {size(status.free_bytes)} are free. Make room, then look again."


def _space(status: PackStatus) -> str:
    download = f"{size(status.download_bytes)} to download" if status.download_bytes else ""
    disk = f"{size(status.disk_bytes)} on the disk, where {size(status.free_bytes)} are free"
    return " · ".join(part for part in (download, disk if status.disk_bytes else "") if part)


def _offer(status: PackStatus) -> CardContent:
    short, partial = _short_of_space(status), status.state == "partial"
    start = Button("check", "Look again") if short else Button("install", "Go on" if partial else "Make it fast", True)
    about = "The engine computes on the processor now. A GPU pack, downloaded once, lets it use the GPU."
    return CardContent(
        key=offer_key(status),
        title="The GPU pack is not complete yet" if partial else f"Kvasir can be much faster on your {status.gpu}",
        caption=short or _space(status),
        buttons=(Button("details", "Details"), Button("dismiss", "Not now"), start),
        details=f"{about} {facts(status)}. It goes to {status.folder} and nowhere else; chats, models and "
        "settings stay as they are. It can be stopped at any time and continues from there. Settings removes it again, "
        "and installs it from a file where there is no network.",
    )


def _progress(s: Situation) -> CardContent:
    progress = s.progress
    if s.action not in _STEPPED:
        title = "Testing the GPU pack" if s.action == "test" else "Removing"
        caption = progress.sentence if progress is not None else ""
        return CardContent("progress", title, caption, fraction=0.0 if progress is None else _share(progress))
    verb = _STEPPED[s.action]
    buttons = (Button("cancel", "Cancel"), Button("pause", "Pause"))
    if progress is None:
        return CardContent("progress", verb, "Starting", fraction=0.0, buttons=buttons)
    place = 1 + list(_STAGES).index(progress.stage)
    return CardContent(
        "progress",
        f"{verb}: {_STAGES[progress.stage]} ({place} of {len(_STAGES)})",
        _pace(s, progress) or progress.sentence,
        fraction=_share(progress),
        buttons=buttons,
    )


def _share(progress: PackProgress) -> float:
    return min(1.0, progress.done / progress.total) if progress.total else 0.0


def _pace(s: Situation, progress: PackProgress) -> str:
    if progress.stage != "downloading":
        return ""
    of = f" of {size(progress.total)}" if progress.total else ""
    rate = f"{size(s.rate)}/s" if s.rate else ""
    left = f"{duration(s.left)} left" if s.left is not None else ""
    return " · ".join(part for part in (f"{size(progress.done)}{of}", rate, left) if part)


def _waiting(s: Situation) -> CardContent:
    if s.waiting == "engine":
        return CardContent("waiting", "The engine is starting again", s.done)
    return CardContent(
        "waiting",
        "The engine starts again when the answer is finished",
        s.done,
        buttons=(Button("now", "Start it now"),),
    )


def _failed(s: Situation) -> CardContent:
    broken = s.failed == "test" or (s.status is not None and s.status.state == "broken" and s.failed != "repair")
    again = Button("repair", "Repair", True) if broken else Button("again", "Try again", True)
    return CardContent(
        "failed",
        _FAILED[s.failed],
        s.failure,
        tone="bad",
        buttons=(Button("settings", "Details"), Button("close", "Close"), again),
    )


def _paused(s: Situation) -> CardContent:
    missing = s.status.download_bytes if s.status is not None and s.status.state == "partial" else 0
    caption = f"Stopped. {size(missing)} are still to download; what is there stays." if missing else "Stopped."
    return CardContent(
        "paused", _STOPPED[s.paused], caption, buttons=(Button("close", "Later"), Button("again", "Go on", True))
    )


def _unused(s: Situation, status: PackStatus) -> CardContent | None:
    reason = s.notice or status.reason or status.refused
    if not reason:
        return None
    there = status.state == "installed"
    act = Button("test", "Test it again", True) if there else Button("repair", "Repair", True)
    return CardContent(
        f"reason {reason}",
        "The GPU pack is not in use" if there else "The GPU pack does not work",
        reason,
        buttons=(Button("settings", "Details"), Button("dismiss", "Not now"), act),
    )


def _state(s: Situation, status: PackStatus) -> CardContent:
    """The section while nothing runs."""
    test, repair, remove = Button("test", "Test"), Button("repair", "Repair"), Button("remove", "Remove…")
    if status.state == "installed":
        if status.active and not s.cpu:
            return CardContent("", "In use", facts(status), buttons=(repair, remove))
        caption = s.notice or status.reason or status.refused or facts(status)
        return CardContent("", "Installed, not in use", caption, buttons=(test, repair, remove))
    if status.state == "broken":
        return CardContent(
            "", "Does not work", s.notice or status.reason or facts(status), "bad", buttons=(repair, remove)
        )
    file = Button("file", "Install from a file…")
    if status.refused or not status.kind:
        reason = status.refused or "No GPU was found that a pack would serve."
        return CardContent("", "None", reason, buttons=(remove,) if status.state == "partial" else ())
    caption = f"{facts(status)}. {_short_of_space(status) or _space(status) + '.'}"
    install = Button("install", "Go on" if status.state == "partial" else "Install", why_not=_short_of_space(status))
    if status.state == "partial":
        return CardContent("", "Not complete", caption, buttons=(install, file, remove))
    if status.former:
        caption = f"A pack of an earlier version is in use. That of this version: {caption}"
        return CardContent("", "There is a newer one", caption, buttons=(install, file, remove))
    return CardContent("", "Not installed", caption, buttons=(install, file))
