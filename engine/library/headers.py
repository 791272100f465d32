"""A repository's model without its weights: what says how large each tensor is, in files that hold nothing else.

Everything that plans a load reads headers alone, so it can plan the load of a model that is not here: its small files
are fetched whole, of its weights the headers, into files of the right length that are holes for the rest.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

from huggingface_hub import hf_hub_url

from engine.fetching.download import RemoteFile, beginning, fetch
from engine.fetching.errors import FetchFailed, Refused
from engine.library import hub, store
from engine.protocol.library import HubFile, HubRepository, HubVariant

SAFETENSORS_HEADER = 10_000_000
"""Bytes; a longer one is refused when the model is loaded, too."""
GGUF_HEADER = 24 << 20
"""Bytes that hold any header: the largest vocabularies, of 262,144 tokens, take half."""


def outline(found: HubRepository, variant: HubVariant, folder: Path) -> Path:
    """Make the outline of a variant in ``folder``; returns the path that plans a load. Raises :class:`FetchFailed`."""
    token = hub.token_of_user()
    try:
        for file in variant.files:
            name = found.model.repository
            url = hf_hub_url(name, file.name, revision=found.revision, endpoint=hub.endpoint())
            remote = store.remote(file, url, token)
            (folder / file.name).parent.mkdir(parents=True, exist_ok=True)
            if file.name.endswith(".safetensors"):
                _hollow(folder / file.name, file, _safetensors(remote))
            elif variant.format == "gguf":
                _hollow(folder / file.name, file, beginning(remote, min(GGUF_HEADER, file.bytes)))
            else:
                fetch(remote, folder, lambda count: None)
    except Refused as refused:
        if refused.status in (401, 403):
            raise FetchFailed(hub.refusal(found.model.repository)) from None
        raise
    return folder if variant.format == "safetensors" else folder / variant.files[0].name


def _safetensors(remote: RemoteFile) -> bytes:
    """Its length and its header."""
    first = beginning(remote, min(1 << 20, remote.bytes))
    length = struct.unpack("<Q", first[:8])[0] if len(first) >= 8 else 0
    if not 0 < length <= min(SAFETENSORS_HEADER, remote.bytes - 8):
        raise FetchFailed(f"{remote.filename} of {remote.host} is no file of safetensors, or is cut short.")
    header = first if 8 + length <= len(first) else beginning(remote, 8 + length)
    try:
        json.loads(header[8 : 8 + length])
    except ValueError:
        raise FetchFailed(f"{remote.filename} of {remote.host} is no file of safetensors, or is damaged.") from None
    return header[: 8 + length]


def _hollow(path: Path, file: HubFile, header: bytes) -> None:
    with path.open("wb") as out:
        out.write(header)
        out.truncate(file.bytes)
