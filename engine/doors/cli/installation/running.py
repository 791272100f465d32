"""Detection of a running Kvasir: its window, a server, or any program of its folder."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from pathlib import Path

import psutil

from engine.base.files import UnreadableFileError, can_be_path, read_text
from engine.base.installation import program_folder
from engine.library import paths as config

_WAIT_S = 0.5
_MOST_ADDRESS = 1000
"""Bytes of the file with the window's address."""


def running() -> str:
    """Name the process of this user that must be closed first, as a sentence; "" if there is none."""
    if (address := window_address()) is not None and _answers(address):
        return "Kvasir's window is open. Close it, then try again."
    for file in token_files():
        if _listens(int(file.name.removeprefix("token-"))):
            return (
                f"`kvasir serve` runs on port {file.name.removeprefix('token-')}. End it, then try again. "
                f"(If another program listens there, delete {file}.)"
            )
    process = _of_our_folder()
    if process is not None:
        return f"Kvasir runs in another place ({process.name()}, process {process.pid}). End it, then try again."
    return ""


def window_address() -> Path | None:
    """Address where the window listens for a second start (app/single.py), on Windows a named pipe; None if unknown."""
    with contextlib.suppress(UnreadableFileError):
        address = read_text(config.places().data / "window.address", _MOST_ADDRESS) or ""
        if can_be_path(address) and Path(address).name.startswith("kvasir-"):
            return Path(address)
    return None


def window_files() -> list[Path]:
    """Files that a killed window leaves behind, besides its chats."""
    data, address = config.places().data, window_address()
    socket_file = [] if address is None or os.name == "nt" or not address.is_socket() else [address]
    return [*socket_file, data / "window.address", data / "window.lock"]


def token_files() -> list[Path]:
    """The token files of servers that run, and of some that were killed."""
    with contextlib.suppress(OSError):
        return sorted(path for path in config.places().run.iterdir() if re.fullmatch(r"token-\d+", path.name))
    return []


def _answers(address: Path) -> bool:
    if os.name == "nt":
        return address.exists()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_WAIT_S)
        try:
            client.connect(str(address))
        except OSError:  # not there, or left behind by a crash
            return False
    return True


def _listens(port: int) -> bool:
    for host in ("127.0.0.1", "::1"):
        with contextlib.suppress(OSError), socket.create_connection((host, port), _WAIT_S):
            return True
    return False


def _of_our_folder() -> psutil.Process | None:
    """A process of this user whose program lies in the packaged program's folder, this one and its parents apart."""
    folder = program_folder()
    if folder is None:
        return None
    me = psutil.Process()
    own = {me.pid, *(parent.pid for parent in me.parents())}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid in own or process.username() != me.username():
                continue
            if Path(process.exe()).is_relative_to(folder):
                return process
    return None
