"""Variants of the models in a repository, told from the names of its files before any is downloaded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from engine.base.errors import plain
from engine.formats.gguf.find import PART, accompanies, alike, is_gguf, is_projector
from engine.protocol.library import HubFile, HubVariant

QUANTISATION = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ[12]_0|BF16|F16|F32|MXFP4(?:_MOE)?|NVFP4))(?=[-._]|$)",
    re.IGNORECASE,
)
"""Part of a GGUF file's name that says what packs its weights."""
SMALL = re.compile(
    r"(?:config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|preprocessor_config|"
    r"processor_config|video_preprocessor_config|quantize_config|quant_config|hf_quant_config|chat_template|"
    r"config_sentence_transformers|"
    r"model\.safetensors\.index|params)\.json|merges\.txt|(?:tokenizer|spiece)\.model|chat_template\.jinja|"
    r"tekken\.json|LICENSE(?:\.\w+)?|.+\.tiktoken",
    re.IGNORECASE,
)
"""Files that a model of safetensors needs besides its weights."""
_EMBEDS = re.compile(r"1_Pooling/config\.json|\d+_Dense/(?:config\.json|model\.safetensors)")
"""Files of sentence-transformers that say how an embedding is made of the states, and the layers that follow."""
MOST_PATH, MOST_NAME = 400, 240
"""Characters of a file's name with its folders, and bytes of each. Systems take more, but its folder's name and the
ends of unfinished files come on top."""
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)


def variants_of(files: Sequence[HubFile], quantisation: str) -> tuple[list[HubVariant], str]:
    """The models among ``files``, smallest first, and why there is none ("" if there is one).

    ``quantisation`` is what packs the weights of safetensors.
    """
    safe = [file for file in files if is_safe(file.name)]
    found = sorted([*_gguf(safe), *_safetensors(safe, quantisation)], key=lambda variant: variant.bytes)
    if found:
        return found, ""
    names = [file.name for file in safe]
    if any(name.endswith((".bin", ".pth", ".pt")) for name in names):
        return [], (
            "Its weights are pickled (.bin), which can run programs of others. Look for the same model as safetensors "
            "or GGUF."
        )
    if len(safe) < len(files) and any(is_gguf(PurePosixPath(file.name)) for file in files):
        return [], "Its files have names that not every disk takes, or that lead out of their folder."
    return [], "It holds no weights that Kvasir can load: neither safetensors next to a config.json, nor GGUF."


def is_safe(name: str) -> bool:
    """Return True if a file of that name can be kept on every system, and stays below the folder that it belongs to."""
    parts = name.split("/")
    odd = len(name) > MOST_PATH or plain(name) != name or any(character in '\\:<>"|?*' for character in name)
    return not odd and all(
        part
        and part == part.rstrip(". ")
        and not part.startswith(".")
        and not _RESERVED.fullmatch(part)
        and len(part.encode()) <= MOST_NAME
        for part in parts
    )


def is_repository(name: str) -> bool:
    """Return True if the name is ORGANISATION/NAME, of which a folder can be made."""
    return name.count("/") == 1 and is_safe(name)


def _gguf(files: Sequence[HubFile]) -> list[HubVariant]:
    """A variant for each model in GGUF. One that sees comes with its eyes: the projector next to it."""
    parts: dict[str, list[HubFile]] = {}
    eyes_in: dict[PurePosixPath, list[HubFile]] = {}
    for file in files:
        if is_projector((path := PurePosixPath(file.name)).name):
            eyes_in.setdefault(path.parent, []).append(file)
    for file in files:
        path = PurePosixPath(file.name)
        if not is_gguf(path) or accompanies(path.name):
            continue
        part = PART.fullmatch(path.name)
        parts.setdefault(str(path.with_name(part["stem"] + ".gguf")) if part else file.name, []).append(file)
    found = []
    for name, pieces in parts.items():
        part = PART.fullmatch(PurePosixPath(pieces[0].name).name)
        if part and len(pieces) != int(part["count"]):
            continue  # an upload that is not finished
        label = QUANTISATION.search(PurePosixPath(name).stem)
        eyes = _projector(eyes_in, PurePosixPath(name))
        held = [*sorted(pieces, key=lambda file: file.name), *eyes]
        found.append(
            HubVariant(
                name=name,
                format="gguf",
                quantisation=label[1].upper() if label else "",
                bytes=sum(file.bytes for file in held),
                files=held,
            )
        )
    return found


def _projector(found: Mapping[PurePosixPath, list[HubFile]], model: PurePosixPath) -> list[HubFile]:
    """The file with a model's vision tower, out of those of each folder: next to it or right above, of several the one
    of its name, in 16 bits rather than 32."""
    near = found.get(model.parent) or found.get(model.parent.parent) or []
    names = alike(model.name, [PurePosixPath(file.name).name for file in near])
    near = [file for file in near if not names or PurePosixPath(file.name).name in names]
    return sorted(near, key=lambda file: ("f32" in file.name.lower(), "bf16" in file.name.lower(), file.name))[:1]


def _safetensors(files: Sequence[HubFile], quantisation: str) -> list[HubVariant]:
    """Weights next to config.json at the top; a folder below is another program's copy (``original/``)."""
    top = [file for file in files if "/" not in file.name]
    weights = [file for file in top if file.name.endswith(".safetensors")]
    if any(not file.name.startswith("consolidated") for file in weights):
        weights = [file for file in weights if not file.name.startswith("consolidated")]
    if not weights or all(file.name != "config.json" for file in top):
        return []
    small = [file for file in top if SMALL.fullmatch(file.name)]
    held = [*small, *(file for file in files if _EMBEDS.fullmatch(file.name)), *weights]
    size = sum(file.bytes for file in held)
    return [HubVariant(name="safetensors", format="safetensors", quantisation=quantisation, bytes=size, files=held)]
