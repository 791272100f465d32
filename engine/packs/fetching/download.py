"""Fetching the wheels of a pack: resumed where they ended, hashed as they come, tried again when a line is cut."""

from __future__ import annotations

import hashlib
import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from engine.packs.fetching import trust
from engine.packs.lists import PackFailed, Wheel

CHUNK = 1 << 20
TIMEOUT = 30.0
"""Seconds without a byte after which a line counts as cut."""
PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries that brought nothing new; one that did begins them anew."""
INCOMPLETE = ".incomplete"
Progress = Callable[[int], None]
"""Told how many bytes more are there; negative when bytes were given up."""


class _Cut(Exception):  # noqa: N818 - not a failure yet
    """The line was cut, or the server had no time; the message says how."""


class _Wrong(Exception):  # noqa: N818 - not a failure yet
    """What comes is not the wheel; the message says how it differs."""


def stored(wheel: Wheel, folder: Path) -> int:
    """How many of a wheel's bytes are in ``folder``."""
    for path in (folder / wheel.filename, folder / (wheel.filename + INCOMPLETE)):
        if path.is_file():
            return min(path.stat().st_size, wheel.bytes)
    return 0


def fetch(wheel: Wheel, folder: Path, progress: Progress) -> Path:
    """Have the wheel in ``folder``, whole and with the right hash.

    Raises :class:`PackFailed`, after which what was fetched is kept unless it is wrong; OSError of the disk.
    """
    done, part = folder / wheel.filename, folder / (wheel.filename + INCOMPLETE)
    if done.is_file():
        if hash_of(done) == wheel.sha256:
            return done
        progress(-min(done.stat().st_size, wheel.bytes))
        done.unlink()
    resumed = part.is_file()
    while True:
        try:
            if _download(wheel, part, progress) == wheel.sha256:
                part.replace(done)
                return done
            how = "its sha256 differs"
        except _Wrong as wrong:
            how = str(wrong)
        progress(-min(part.stat().st_size, wheel.bytes))
        part.unlink()
        if not resumed:
            raise PackFailed(
                f"{wheel.filename} from {wheel.host} is not the file that this Kvasir knows: {how}. It was deleted and "
                "nothing was installed. Try again; if it happens again, something between here and there changes files."
            )
        resumed = False  # the part may have been damaged where it lay


def hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(wheel: Wheel, part: Path, progress: Progress) -> str:
    """The sha256 of what is in ``part`` when it has as many bytes as it should."""
    failures = 0
    with part.open("a+b") as file:
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256")
        if file.tell() > wheel.bytes:
            digest = _restart(file, wheel, progress)
        most = file.tell()
        while (at := file.tell()) < wheel.bytes:
            try:
                for block in _blocks(wheel, at):
                    if block is None:  # the server begins at the beginning
                        digest = _restart(file, wheel, progress)
                        continue
                    file.write(block)
                    digest.update(block)
                    progress(len(block))
                    if file.tell() > most:  # else a server that begins anew each time would be asked for ever
                        failures, most = 0, file.tell()
            except _Cut as cut:
                if failures == len(PAUSES):
                    raise PackFailed(
                        f"{wheel.host} cannot be reached ({cut}). What was fetched is kept: check the network and "
                        "start again."
                    ) from None
                time.sleep(PAUSES[failures])
                failures += 1
    return digest.hexdigest()


def _restart(file: IO[bytes], wheel: Wheel, progress: Progress) -> hashlib._Hash:
    progress(-min(file.tell(), wheel.bytes))
    file.seek(0)
    file.truncate()
    return hashlib.sha256()


def _blocks(wheel: Wheel, start: int) -> Iterator[bytes | None]:
    """The wheel's bytes from ``start`` on; None first where they come from 0 on. Raises _Cut, _Wrong, PackFailed."""
    request = urllib.request.Request(wheel.url, headers={"Accept-Encoding": "identity", "User-Agent": "kvasir"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    at = start
    try:
        with trust.opener().open(request, timeout=TIMEOUT) as response:
            if start and not (response.headers.get("Content-Range") or "").startswith(f"bytes {start}-"):
                length = response.headers.get("Content-Length") or ""
                if length.isdecimal() and int(length) != wheel.bytes:  # another page, of a proxy say: keep what is here
                    raise _Cut(f"it sends {length} bytes that are not of {wheel.filename}")
                at = 0
                yield None
            while block := response.read1(CHUNK):
                at += len(block)
                if at > wheel.bytes:
                    raise _Wrong("it is longer")
                yield block
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the server's file is shorter than the part that is here
            raise _Wrong("it is shorter") from None
        if error.code not in (408, 425, 429, 500, 502, 503, 504):
            raise PackFailed(
                f"{wheel.host} does not give {wheel.filename} (HTTP {error.code} {error.reason}). Try again later, or "
                "take a newer Kvasir."
            ) from None
        raise _Cut(f"HTTP {error.code} {error.reason}") from None
    except (http.client.HTTPException, OSError) as error:  # nothing here touches the disk
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise PackFailed(trust.refusal(wheel.host, reason)) from None
        raise _Cut(str(reason) or type(error).__name__) from None
    if at < wheel.bytes:
        raise _Cut("the connection was closed too early")
