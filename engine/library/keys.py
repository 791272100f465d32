"""The user's token for the hub: in the system's keyring, or where there is none in a file for the user alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import keyring

# By name: a packaged program has no list of them. Each is there on every system, and counts where it works.
from keyring.backends import SecretService, Windows, kwallet, macOS  # noqa: F401
from keyring.errors import KeyringError, PasswordDeleteError

from engine import folders

SERVICE, NAME = "kvasir", "hub"


def read() -> str:
    """The stored token; "" without one."""
    with _keyring():
        if token := keyring.get_password(SERVICE, NAME):
            return token
    try:
        return _file().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def write(token: str) -> str:
    """Store the token in place of any other; returns where it is, for people. Raises OSError."""
    with _keyring():
        keyring.set_password(SERVICE, NAME, token)
        _file().unlink(missing_ok=True)
        return "the system's keyring"
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = file.with_name(file.name + ".new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(token)
    new.replace(file)
    return f"{file}, which only you can read, because this system has no keyring"


def forget() -> None:
    """Delete the stored token, wherever it is."""
    with _keyring(), contextlib.suppress(PasswordDeleteError):
        keyring.delete_password(SERVICE, NAME)
    _file().unlink(missing_ok=True)


def _file() -> Path:
    return folders.place("config", folders.SYSTEM.user_config_path) / "hub-token"


@contextlib.contextmanager
def _keyring() -> Iterator[None]:
    """Go on after the block where the keyring cannot be used: none is there, or it stays locked."""
    with contextlib.suppress(KeyringError, RuntimeError, OSError):
        yield
