"""Fetching files of known size and hash: resumed where they ended, hashed as they come, tried again after a cut."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from engine.base import stopping
from engine.base.fetching import trust
from engine.base.fetching.client import certificate_error, opened, way_to
from engine.base.fetching.errors import FetchFailed, RefusedByServer, cause, unreachable

CHUNK = 1 << 20
TIMEOUT = 30.0
"""Seconds without a byte after which a line counts as cut."""
PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries that brought nothing new; one that did begins them anew."""
INCOMPLETE = ".incomplete"
Progress = Callable[[int], None]
"""Callback with the number of bytes that are new; negative when bytes were given up. What it raises ends the download,
and what is there is kept."""


class _Cut(Exception):  # noqa: N818 - not a failure yet
    """The line was cut, or the server had no time; the message says how."""


class _Wrong(Exception):  # noqa: N818 - not a failure yet
    """Signals that the server's data is not the expected file; the message says how it differs."""


@dataclass(frozen=True, order=True)
class RemoteFile:
    """A file to be fetched, as a list describes it.

    ``filename``: its name below the folder that it goes to; ``bytes``: its size as it is fetched. Its hash is in hex:
    ``sha256``, or where that is "" git's of a blob (SHA-1 of "blob", the size and the content), which is what hubs know
    of small files. ``token`` is told to the host of ``url`` alone, not to those that it sends on to.
    """

    filename: str
    url: str
    sha256: str
    bytes: int
    blob: str = ""
    token: str = ""

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def hash(self) -> str:
        return self.sha256 or self.blob

    def hasher(self) -> hashlib._Hash:
        """A new hash object for the file's bytes: SHA-256, or Git's SHA-1 of a blob where only that is known."""
        return hashlib.sha256() if self.sha256 else hashlib.sha1(b"blob %d\0" % self.bytes, usedforsecurity=False)


def stored(remote: RemoteFile, folder: Path) -> int:
    """Number of a file's bytes that are in ``folder``, whole or in part."""
    for path in (folder / remote.filename, folder / (remote.filename + INCOMPLETE)):
        if path.is_file():
            return min(path.stat().st_size, remote.bytes)
    return 0


def fetch(remote: RemoteFile, folder: Path, progress: Progress) -> Path:
    """Have the file in ``folder``, whole and with the right hash.

    Raises :class:`FetchFailed`, after which what was downloaded is kept unless it is wrong; OSError of the disk.
    """
    done, part = folder / remote.filename, folder / (remote.filename + INCOMPLETE)
    done.parent.mkdir(parents=True, exist_ok=True)
    if done.is_file():
        if is_whole(remote, done, progress):
            return done
        progress(-min(done.stat().st_size, remote.bytes))
        done.unlink()
    resumed = part.is_file()
    while True:
        try:
            if _download(remote, part, progress) == remote.hash:
                part.replace(done)
                return done
            how = f"its {remote.hasher().name} differs"
        except _Wrong as wrong:
            how = str(wrong)
        progress(-min(part.stat().st_size, remote.bytes))
        part.unlink()
        if not resumed:
            raise FetchFailed(
                f"{remote.filename} from {remote.host} is not the file that it should be: {how}. It was deleted and "
                "not used. Try again; if it happens again, something between here and there changes files."
            )
        resumed = False  # the part may have been damaged where it lay


def is_whole(remote: RemoteFile, path: Path, progress: Progress = lambda count: None) -> bool:
    """True if ``path`` has the file's hash. ``progress`` is called often, with 0 bytes, and may raise to stop it."""
    with path.open("rb") as file:
        return _hashed(remote, file, progress).hexdigest() == remote.hash


def _hashed(remote: RemoteFile, file: IO[bytes], progress: Progress) -> hashlib._Hash:
    """The hash of what ``file`` holds; it ends at its end."""
    digest = remote.hasher()
    while block := file.read(CHUNK):
        digest.update(block)
        progress(0)
    return digest


def _download(remote: RemoteFile, part: Path, progress: Progress) -> str:
    """The hash of what is in ``part`` when it has as many bytes as it should."""
    failures = 0
    with part.open("a+b") as file:
        file.seek(0)
        digest = _hashed(remote, file, progress)
        if file.tell() > remote.bytes:
            digest = _restart(file, remote, progress)
        most = file.tell()
        while (at := file.tell()) < remote.bytes:
            try:
                for block in _blocks(remote, at):
                    if block is None:  # the server begins at the beginning
                        digest = _restart(file, remote, progress)
                        continue
                    file.write(block)
                    digest.update(block)
                    progress(len(block))
                    if file.tell() > most:  # else a server that begins anew each time would be asked for ever
                        failures, most = 0, file.tell()
            except _Cut as cut:
                if failures == len(PAUSES):
                    then = "What was downloaded is kept: check the network and start again."
                    raise FetchFailed(unreachable(way_to(remote.url), cut, then)) from None
                progress(0)
                time.sleep(PAUSES[failures])
                failures += 1
        file.flush()
        os.fsync(file.fileno())  # whole under its name, even if the power fails
    return digest.hexdigest()


def _restart(file: IO[bytes], remote: RemoteFile, progress: Progress) -> hashlib._Hash:
    progress(-min(file.tell(), remote.bytes))
    file.seek(0)
    file.truncate()
    return remote.hasher()


def _blocks(remote: RemoteFile, start: int, end: int | None = None) -> Iterator[bytes | None]:
    """The file's bytes from ``start`` on, up to ``end`` where one is asked for; None first where they come from 0 on.

    Raises _Cut, _Wrong, FetchFailed.
    """
    import httpx2

    last = remote.bytes if end is None else end
    headers = {}
    if start or end is not None:
        headers["Range"] = f"bytes={start}-" if end is None else f"bytes={start}-{end - 1}"
    at = start
    try:
        with opened(remote.url, TIMEOUT, headers, remote.token) as response:
            if response.status_code >= 300:
                raise _refusal(remote, response.status_code, response.reason_phrase)
            length = response.headers.get("Content-Length") or ""
            other = length.isdecimal() and length.lstrip("0") != str(remote.bytes)
            restarts = start and not (response.headers.get("Content-Range") or "").startswith(f"bytes {start}-")
            page = (response.headers.get("Content-Type") or "").partition(";")[0].strip().lower() == "text/html"
            if other and (restarts or (not start and page)):
                # Another page, of a network that wants a login say: what is here stays.
                raise _Cut(f"it sends {length} bytes that are not of {remote.filename}")
            if restarts:
                at = 0
                yield None
            for block in response.iter_raw():
                at += len(block)
                if at > remote.bytes:
                    raise _Wrong("it is longer")
                yield block
    except (httpx2.HTTPError, OSError) as error:  # nothing here touches the disk
        if (refused := certificate_error(error)) is not None:
            raise FetchFailed(trust.refusal(remote.host, refused)) from None
        raise _Cut(cause(error)) from error
    if at < last:
        raise _Cut("the connection was closed too early")


def _refusal(remote: RemoteFile, status: int, reason: str) -> Exception:
    """Exception for an HTTP answer without the file, by its status and the server's words."""
    if status == 416:  # the server's file is shorter than the part that is here
        return _Wrong("it is shorter")
    if status in (408, 425, 429, 500, 502, 503, 504):
        return _Cut(f"HTTP {status} {reason}".rstrip())
    said = f"HTTP {status} {reason}".rstrip()
    return RefusedByServer(f"{remote.host} does not give {remote.filename} ({said}). Try again later.", status)


def beginning(remote: RemoteFile, count: int) -> bytes:
    """The file's first ``count`` bytes, by one request for them. Raises :class:`FetchFailed`."""
    held = bytearray()
    for attempt, pause in enumerate((*PAUSES, None)):
        try:
            for block in _blocks(remote, len(held), count):
                if block is None:
                    held.clear()
                    continue
                held += block
                stopping.current().check()
                if len(held) >= count:
                    return bytes(held[:count])
        except _Cut as cut:
            if pause is None:
                raise FetchFailed(unreachable(way_to(remote.url), cut, "Check the network and try again.")) from None
            stopping.current().wait(PAUSES[attempt])
            stopping.current().check()
        except _Wrong as wrong:
            raise FetchFailed(f"{remote.filename} of {remote.host} is not what its list says: {wrong}.") from None
        else:
            break
    return bytes(held)
