"""The chats of a file or of the files in a zip, whichever program wrote it, with no more than one of them in memory."""

from __future__ import annotations

import contextlib
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from app.history.transfer import chat_file
from app.history.transfer.readers import lm_studio, open_webui, openai
from app.history.transfer.readers.found import FoundChat, Skipped
from app.language import tr

CHUNK = 1 << 20
MOST = 1 << 27
"""Characters that one chat can have."""
PICTURE = 1 << 26
"""Bytes of a picture in a zip at most."""
_OPENAI = re.compile(r"conversations(-\d+)?\.json")
"""The files of chats in OpenAI's zip, which has others."""
NO_CHAT = tr("not chats")
LATER = tr("of a later version of Kvasir")
EMPTY = tr("without messages")


class BrokenFileError(Exception):
    """A file cannot be read on; the text says why."""


def chats(path: Path, progress: Callable[[float], object]) -> Iterator[FoundChat | Skipped]:
    """The chats of ``path``; ``progress`` is told how much of it was read, 0 to 1, and what it raises ends the reading.

    Raises BrokenFileError, OSError.
    """
    with path.open("rb") as file:
        if zipfile.is_zipfile(file):
            yield from _zipped(file, progress)
            return
        file.seek(0)
        yield from _chats(file, path.stat().st_size, progress, lambda _: None)


def _zipped(file: IO[bytes], progress: Callable[[float], object]) -> Iterator[FoundChat | Skipped]:
    try:
        with zipfile.ZipFile(file) as zipped:
            names = [info for info in zipped.infolist() if info.filename.casefold().endswith(".json")]
            wanted = [info for info in names if _OPENAI.fullmatch(info.filename.rpartition("/")[2])] or names
            if not wanted:
                raise BrokenFileError(tr("no file of chats is in it"))
            whole, before = max(1, sum(info.file_size for info in wanted)), 0
            members = {info.filename.rpartition("/")[2]: info for info in zipped.infolist()}

            def find(begin: str) -> bytes | None:
                info = next((info for name, info in members.items() if begin and name.startswith(begin)), None)
                return zipped.read(info) if info is not None and info.file_size <= PICTURE else None

            for info in wanted:
                share, start = info.file_size / whole, before / whole

                def tell(part: float, share: float = share, start: float = start) -> None:
                    progress(start + share * part)

                with zipped.open(info) as member:
                    yield from _chats(member, info.file_size, tell, find)
                before += info.file_size
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:  # damaged, or with a password
        raise BrokenFileError(str(error) or tr("the zip is damaged")) from error


def _chats(
    file: IO[bytes], size: int, progress: Callable[[float], object], find: openai.Files
) -> Iterator[FoundChat | Skipped]:
    with contextlib.closing(io.TextIOWrapper(_Kept(file), encoding="utf-8-sig", errors="replace")) as stream:
        for value in _values(stream, lambda read: progress(min(1.0, read / max(1, size)))):
            yield _chat(value, find)


class _Kept(io.BufferedReader):
    """A file that stays open when what reads it is closed."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(_Raw(file), CHUNK)


class _Raw(io.RawIOBase):
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _values(stream: IO[str], progress: Callable[[int], object]) -> Iterator[Any]:
    """The values of a JSON list one at a time, or the one value of a file that has no list."""
    # A function of Python's for each object lets other threads have their turn while a large chat is decoded.
    decoder = json.JSONDecoder(object_hook=lambda value: value)
    buffer, at, read, ended = "", 0, 0, False
    inside = False
    while True:
        at = _past_space(buffer, at, inside)
        if at < len(buffer) and not inside and buffer[at] == "[":
            inside, at = True, at + 1
            continue
        if at < len(buffer) and inside and buffer[at] == "]":
            return
        error: Exception | None = None
        if at < len(buffer):
            if buffer[at] != "{":
                raise BrokenFileError(tr("it has no chats that Kvasir knows"))
            try:
                value, at = decoder.raw_decode(buffer, at)
            except RecursionError as nested:
                raise BrokenFileError(tr("it is nested too deeply")) from nested
            except ValueError as unfinished:
                error = unfinished
            else:
                yield value
                if not inside:
                    return
                continue
        if ended:
            raise BrokenFileError(tr("it ends in the middle, or is damaged") if read else tr("it is empty")) from error
        if len(buffer) - at > MOST:
            raise BrokenFileError(tr("one of its chats is too large, or it is damaged"))
        more = stream.read(max(CHUNK, len(buffer) - at))  # twice as much, so that few attempts are made
        read, ended = read + len(more), not more
        buffer, at = buffer[at:] + more, 0
        progress(read)


def _past_space(buffer: str, at: int, inside: bool) -> int:
    skipped = " \t\r\n," if inside else " \t\r\n"
    while at < len(buffer) and buffer[at] in skipped:
        at += 1
    return at


def _chat(value: Any, find: openai.Files) -> FoundChat | Skipped:
    if not isinstance(value, dict):
        return Skipped(NO_CHAT)
    try:
        if value.get("format") == chat_file.FORMAT:
            found = _own(value)
        elif openai.is_chat(value):
            found = openai.chat(value, find)
        elif open_webui.is_chat(value):
            found = open_webui.chat(value)
        elif lm_studio.is_chat(value):
            found = lm_studio.chat(value)
        else:
            return Skipped(NO_CHAT)
    except chat_file.LaterFormatError:
        return Skipped(LATER)
    except msgspec.ValidationError:
        return Skipped(tr("with parts that cannot be read"))
    return found if found.messages else Skipped(EMPTY)


def _own(value: dict[str, Any]) -> FoundChat:
    record = chat_file.from_json(value)
    return FoundChat(
        f"kvasir:{record.id}",
        record.chat,
        record.stored(),
        Counter(),
        record.folder,
        record.pinned,
        record.archived,
        tuple(record.tags),
        record.tools,
        [each.document for each in record.folder_documents],
        {each.document.digest for each in record.folder_documents if each.left_out},
    )
