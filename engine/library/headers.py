"""A repository's model without its weights: what says how large each tensor is, in files that hold nothing else.

Everything that plans a load reads headers alone, so it can plan the load of a model that is not here: its small files
are fetched whole, of its weights the headers, into files of the right length that are holes for the rest.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

from engine.base.fetching.download import RemoteFile, beginning, fetch
from engine.base.fetching.errors import FetchFailed, RefusedByServer
from engine.base.files import SAFETENSORS_HEADER
from engine.library import hub, store
from engine.protocol.library import HubFile, HubRepository, HubVariant

GGUF_HEADER = 24 << 20
"""Bytes that hold any header: the largest vocabularies, of 262,144 tokens, take half."""
LATER_HEADER = 2 << 20
"""Bytes that hold the headers of the further parts of a model, and of a vision tower, which have no vocabulary."""


def outline(found: HubRepository, variant: HubVariant, folder: Path) -> Path:
    """Make the outline of a variant in ``folder``; returns the path that plans a load. Raises :class:`FetchFailed`."""
    hub.asked_at_all()
    token = hub.token_of_user()
    try:
        for file in variant.files:
            name = found.model.repository
            url = hub.address_of(name, file.name, found.revision, hub.endpoint())
            remote = store.remote(file, url, token)
            (folder / file.name).parent.mkdir(parents=True, exist_ok=True)
            if file.name.endswith(".safetensors"):
                _hollow(folder / file.name, file, _safetensors(remote))
            elif variant.format == "gguf":
                most = GGUF_HEADER if file is variant.files[0] else LATER_HEADER
                _hollow(folder / file.name, file, beginning(remote, min(most, file.bytes)))
            else:
                fetch(remote, folder, lambda count: None)
    except RefusedByServer as refused:
        if refused.status in (401, 403):
            raise FetchFailed(hub.refusal(found.model.repository)) from None
        raise
    return folder if variant.format == "safetensors" else folder / variant.files[0].name


def _safetensors(remote: RemoteFile) -> bytes:
    """Its length and its header."""
    first = beginning(remote, min(1 << 20, remote.bytes))
    length = struct.unpack("<Q", first[:8])[0] if len(first) >= 8 else 0
    if not 0 < length <= min(SAFETENSORS_HEADER, remote.bytes - 8):
        raise FetchFailed(f"{remote.filename} of {remote.host} is not a file of safetensors, or is cut short.")
    header = first if 8 + length <= len(first) else beginning(remote, 8 + length)
    try:
        json.loads(header[8 : 8 + length])
    except (ValueError, RecursionError):
        raise FetchFailed(f"{remote.filename} of {remote.host} is not a file of safetensors, or is damaged.") from None
    return header[: 8 + length]


def _hollow(path: Path, file: HubFile, header: bytes) -> None:
    with path.open("wb") as out:
        if sys.platform == "win32":
            _may_have_holes(out.fileno())
        out.write(header)
        out.truncate(file.bytes)


if sys.platform == "win32":
    import ctypes
    import msvcrt

    _SET_SPARSE = 0x900C4

    def _may_have_holes(descriptor: int) -> None:
        """Mark a file as sparse: NTFS would give room to all of it (FSCTL_SET_SPARSE). Raises :class:`FetchFailed`."""
        done, handle = ctypes.c_ulong(), ctypes.c_void_p(msvcrt.get_osfhandle(descriptor))
        if not ctypes.windll.kernel32.DeviceIoControl(handle, _SET_SPARSE, None, 0, None, 0, ctypes.byref(done), None):
            raise FetchFailed("This disk cannot hold a file with holes, so it cannot be told whether the model fits.")
