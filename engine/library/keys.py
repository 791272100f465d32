"""The user's tokens for hubs: in the system's keyring, or where there is none in a file that only the user can read."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import keyring

# By name: a packaged program has no list of them. Each is there on every system, and counts where it works.
from keyring.backends import SecretService, Windows, kwallet, macOS  # noqa: F401
from keyring.errors import KeyringError, PasswordDeleteError

from engine.base import folders
from engine.base.files import UnreadableFileError, decode_file

SERVICE = "kvasir"


def read(server: str) -> str:
    """The token stored for a hub, which is its scheme, host and port; "" without one."""
    held = _read_file()
    for name in _names(server):
        if token := held.get(name, ""):
            return token
    with _keyring():
        return next(filter(None, (keyring.get_password(SERVICE, name) for name in _names(server))), "")
    return ""


def write(server: str, token: str) -> str:
    """Store the token in place of any other; returns where it is, for people. Raises OSError."""
    others = {name: each for name, each in _read_file().items() if name not in _names(server)}
    with _keyring():
        keyring.set_password(SERVICE, server, token)
        _write_file(others)
        return "the system's keyring"
    _write_file({**others, server: token})
    return f"{token_file()}, which only you can read, because this system's keyring cannot be used"


def forget(server: str) -> bool:
    """Delete the token stored for a hub, wherever it is; False where a keyring keeps one that it does not give away."""
    _write_file({name: each for name, each in _read_file().items() if name not in _names(server)})
    for name in _names(server):
        with _keyring(), contextlib.suppress(PasswordDeleteError):
            keyring.delete_password(SERVICE, name)
    with _keyring():
        return all(keyring.get_password(SERVICE, name) is None for name in _names(server))
    return True


def _names(server: str) -> list[str]:
    """Names that its token is kept under: an earlier version wrote the host alone, which can only have meant this."""
    scheme, _, host = server.partition("://")
    return [server, host] if scheme == "https" and ":" not in host else [server]


def token_file() -> Path:
    """File of the tokens where there is no keyring."""
    return folders.place("config", folders.SYSTEM.user_config_path) / "hub-tokens.json"


def _read_file() -> dict[str, str]:
    with contextlib.suppress(UnreadableFileError):
        return decode_file(token_file(), dict[str, str]) or {}
    return {}


def _write_file(tokens: dict[str, str]) -> None:
    file = token_file()
    if not tokens:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = file.with_name(file.name + ".new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        json.dump(tokens, out)
    new.replace(file)


@contextlib.contextmanager
def _keyring() -> Iterator[None]:
    """Go on after the block where the keyring cannot be used: none is there, or it stays locked."""
    with contextlib.suppress(KeyringError, RuntimeError, OSError):
        yield
