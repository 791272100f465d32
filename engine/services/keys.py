"""Named keys of the server: added, listed, revoked, and recognised by a server that runs.

``server-keys.json``, next to the settings, holds their hashes and limits; only the user can read it. It is replaced as
a whole, so a server sees that it changed by its place on the disk, and looks at each request.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.base import folders
from engine.base.fetching.lock import lock
from engine.base.files import UnreadableFileError, decode_file
from engine.protocol.access import AddedKey, AddKey, ListKeys, NamedKey, RevokeKey
from engine.services.operations import Context, Emit, OperationFailed

log = logging.getLogger(__name__)

PREFIX = "kv-"
"""The beginning of every key, by which people and scanners of secrets know one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_DAY = 24 * 3600


class KeptKey(msgspec.Struct, frozen=True):
    """``hash``: as :func:`hash_of` gives it."""

    record: NamedKey
    hash: str


class _KeyFile(msgspec.Struct, frozen=True):
    """``server-keys.json``."""

    keys: list[KeptKey] = []


def file() -> Path:
    """Path of ``server-keys.json``."""
    return folders.place("config", folders.SYSTEM.user_config_path) / "server-keys.json"


def hash_of(key: str) -> str:
    """SHA-256 of a key, in hexadecimal.

    Slow, salted hashes are for passwords, which can be guessed. A key is 256 random bits, of which nobody finds one by
    trying (NIST SP 800-63B, section 5.1.2.2: a plain hash from 112 bits on), and each request hashes one.
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def add(context: Context, request: AddKey, emit: Emit) -> AddedKey:
    """Raises :class:`OperationFailed`."""
    if not _NAME.fullmatch(request.name):
        text = f"{request.name!r} cannot be a key's name. Use letters, digits, dots and hyphens, 63 at most."
        raise OperationFailed(text)
    key, now = PREFIX + secrets.token_urlsafe(32), int(time.time())
    made = NamedKey(
        name=request.name,
        created=now,
        expires=now + request.days * _DAY if request.days else 0,
        rate=request.rate,
        concurrent=request.concurrent,
        service=request.service,
    )

    def with_it(kept: list[KeptKey]) -> list[KeptKey]:
        if any(each.record.name == made.name for each in kept):
            text = f"There is a key {made.name} already. Choose another name, or revoke that one first."
            raise OperationFailed(text)
        return [*kept, KeptKey(made, hash_of(key))]

    _change(with_it)
    return AddedKey(key=key, record=made)


def listed(context: Context, request: ListKeys, emit: Emit) -> list[NamedKey]:
    """Raises :class:`OperationFailed`."""
    return [each.record for each in _read(file())]


def revoke(context: Context, request: RevokeKey, emit: Emit) -> NamedKey:
    """Raises :class:`OperationFailed`."""
    found: list[KeptKey] = []

    def without_it(kept: list[KeptKey]) -> list[KeptKey]:
        found.extend(each for each in kept if each.record.name == request.name)
        if not found:
            names = ", ".join(each.record.name for each in kept) or "none"
            raise OperationFailed(f"There is no key {request.name!r}, only these: {names}.")
        return [each for each in kept if each not in found]

    _change(without_it)
    return found[0].record


class KnownKeys:
    """The keys as a running server knows them: those in the file now."""

    def __init__(self) -> None:
        self._file = file()
        self._seen: tuple[int, int, int] | None = None
        self._keys: dict[str, NamedKey] = {}

    def find(self, key: str) -> NamedKey | None:
        """The key with this secret, unless it has expired. Its hash is looked up, so that the time that this takes
        tells nothing of the keys."""
        self._look()
        found = self._keys.get(hash_of(key))
        return None if found is None or 0 < found.expires <= time.time() else found

    def any(self) -> bool:
        self._look()
        return bool(self._keys)

    def _look(self) -> None:
        """Read the file if it is another than the last time; one that makes no sense opens nothing."""
        if (now := self._identity()) == self._seen:
            return
        self._seen = now
        try:
            self._keys = {each.hash: each.record for each in _read(self._file)}
        except OperationFailed as error:
            self._keys = {}
            log.error("No named key is accepted: %s", error)

    def _identity(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._file)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size


def _read(path: Path) -> list[KeptKey]:
    try:
        return (decode_file(path, _KeyFile) or _KeyFile()).keys
    except UnreadableFileError as error:
        raise OperationFailed(f"{error.reason} Delete it, and add the keys again.") from error


def _change(edit: Callable[[list[KeptKey]], list[KeptKey]]) -> None:
    """Replace what is kept, in one step. ``edit`` may raise. Raises :class:`OperationFailed` and OSError."""
    path = file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    busy = OperationFailed("Another Kvasir is changing the keys. Wait a moment and try again.")
    with lock(path.with_name(path.name + ".lock"), busy, 10.0):
        write_private(path, msgspec.json.format(msgspec.json.encode(_KeyFile(edit(_read(path)))), indent=1))


def write_private(path: Path, content: bytes) -> None:
    """Replace a file by one that only the user can read, in one step. Raises OSError."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    new.replace(path)
