"""Plans of models to be made, the folders where they lie meanwhile, and the list of unfinished ones."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.base import folders
from engine.base.fetching.lock import lock
from engine.base.files import UnreadableFileError, decode_file, read_text
from engine.formats.fingerprint import fingerprint
from engine.formats.load import Checkpoint
from engine.library import paths
from engine.library.store import store_folder
from engine.protocol import DeviceName
from engine.protocol.making import MakeProgress
from engine.services.quantise.plain import FORMATS as PLAIN
from engine.services.training.errors import RecipeError

CALIBRATED = ("gptq", "awq")
"""Formats that are made layer by layer with a text."""
FORMATS = (*CALIBRATED, *PLAIN)
BITS = {"gptq": (4, 8), "awq": (4,)}
GROUPS = (128, 64, 32)
WHOLE_ROW = -1
ORGANISATION = "made"
"""In the store, models that were made here lie as if it had published them."""


@dataclass(frozen=True)
class MakePlan:
    """``source`` is a model's folder. All but ``to``, ``out`` and ``rotate`` concerns the formats made with a text."""

    source: Path
    to: str
    bits: int = 4
    group_size: int | None = None
    """Input features to a scale; :data:`WHOLE_ROW`: all of them; None: the most of :data:`GROUPS` that fits."""
    act_order: bool = True
    """GPTQ: round the columns of large inputs first."""
    static_groups: bool = True
    """GPTQ: keep groups runs of input features nevertheless, so that the model needs no order to be computed."""
    symmetric: bool = True
    """GPTQ: no zero-points."""
    text: tuple[Path, ...] = ()
    """Files and folders; none: the manual that comes with Kvasir."""
    samples: int = 128
    length: int = 512
    out: Path | None = None
    """None: in the store (engine/library/store.py)."""
    memory: int | None = None
    """Bytes that it may take; None: what is free."""
    device: DeviceName = "auto"
    rotate: bool = False
    """Rotate the residual stream first (engine/services/quantise/rotation.py)."""

    @property
    def name(self) -> str:
        """Name of the model that is made: "Qwen3-8B-GPTQ-4bit"."""
        bits = f"-{self.bits}bit" if self.to in CALIBRATED else ""
        rotated = "-rotated" if self.rotate else ""
        return f"{self.source.name}-{self.to.removeprefix('gguf-').upper()}{bits}{rotated}"

    @property
    def options(self) -> list[str]:
        """Command-line words besides the model and the format; options with their usual values are left out."""
        chosen = {
            "--bits": self.bits,
            "--group-size": self.group_size,
            "--samples": self.samples,
            "--length": self.length,
            "--out": self.out,
            "--memory": None if self.memory is None else self.memory / 1e9,
            "--device": self.device,
        }
        usual = {"--bits": 4, "--samples": 128, "--length": 512, "--device": "auto"}
        words = [
            word
            for name, value in chosen.items()
            if value is not None and value != usual.get(name)
            for word in (name, str(value))
        ]
        words += [] if self.act_order else ["--no-act-order"]
        words += [] if self.static_groups else ["--no-static-groups"]
        words += [] if self.symmetric else ["--asymmetric"]
        words += ["--rotate"] if self.rotate else []
        return words + [word for file in self.text for word in ("--text", str(file))]

    @property
    def target(self) -> Path:
        return self.out if self.out is not None else store_folder() / ORGANISATION / self.name

    def id(self, checkpoint: Checkpoint, group: int, texts: list[Path]) -> str:
        """The same for the same model, text, format and options."""
        options = (self.to, self.bits, group, self.act_order, self.static_groups, self.symmetric, self.rotate)
        words = [str(value) for value in (*options, self.samples, self.length, self.source.resolve())]
        words += [hashlib.sha256(file.read_bytes()).hexdigest() for file in texts]
        return hashlib.sha256("\0".join([fingerprint(checkpoint), *words]).encode()).hexdigest()[:12]


class WorkNote(msgspec.Struct, frozen=True):
    """``plan.json`` of a work folder: what a list of unfinished ones tells."""

    id: str
    model: str
    to: str
    total: int
    options: list[str] = []
    """As of :class:`MakeProgress`."""


class UnfinishedWork:
    """``data/making/ID``: a shard for each layer that is done, and what enters the next one.

    ``block-I.safetensors`` is written last for layer I, so a layer is done where it has its shard.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, id: str) -> UnfinishedWork:
        return cls(making_folder() / id)

    def note(self) -> WorkNote | None:
        """None where nothing is being made."""
        with contextlib.suppress(UnreadableFileError):
            note = decode_file(self.folder / "plan.json", WorkNote)
            return note if note is not None and note.id == self.folder.name else None
        return None

    def begin(self, note: WorkNote) -> None:
        """Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "plan.json", msgspec.json.encode(note))

    def shard(self, index: int) -> Path:
        return self.folder / f"block-{index:05}.safetensors"

    def errors(self, index: int) -> Path:
        """The :class:`LayerError` of each of its linear layers."""
        return self.folder / f"errors-{index:05}.json"

    def hidden(self, index: int) -> Path:
        """File of the inputs of layer ``index``."""
        return self.folder / f"hidden-{index:05}.bin"

    def took(self, seconds: float = 0.0) -> float:
        """The seconds that it took so far, in all runs, with these. Raises OSError."""
        file, before = self.folder / "seconds", 0.0
        with contextlib.suppress(UnreadableFileError, ValueError):
            before = float(read_text(file, 100) or 0.0)
        total = seconds + before
        write_whole(file, str(total).encode())
        return total

    def rotated(self, name: str) -> Path:
        """The rotated model of that name, which is what is then quantised."""
        return self.folder / "rotated" / name

    @property
    def made(self) -> Path:
        """The whole model, before it moves to where it is looked for."""
        return self.folder / "made"

    def done(self, total: int) -> int:
        """Number of layers done, of ``total``: they are made in order."""
        return next((index for index in range(total) if not self.shard(index).is_file()), total)

    def alone(self) -> contextlib.AbstractContextManager[int]:
        """Hold the folder, which exists, alone. Raises :class:`RecipeError`."""
        busy = RecipeError("This model is being made already, by another Kvasir. Wait for it, or stop it first.")
        return lock(self.folder / "lock", busy)

    def is_busy(self) -> bool:
        """Return True if somebody works on it now."""
        try:
            with self.alone():
                return False
        except RecipeError:
            return True


def making_folder() -> Path:
    """Folder of the unfinished models."""
    return folders.data_place() / "making"


def unfinished() -> Iterator[MakeProgress]:
    """Yield the progress of each model that was begun and is not done."""
    for folder in sorted(path for path in making_folder().glob("*") if path.is_dir()):
        work = UnfinishedWork(folder)
        note = work.note()
        if note is not None:
            done = work.done(note.total)
            yield MakeProgress(note.id, note.model, note.to, "paused", done, note.total, options=note.options)


def discard(id: str) -> None:
    """Delete an unfinished model. Raises :class:`RecipeError` where there is none, or where it is being made."""
    work = UnfinishedWork.of(id)
    if not re.fullmatch("[0-9a-f]{12}", id) or work.note() is None:
        raise RecipeError(f"Nothing unfinished has the ID {id!r}. `kvasir quantise --unfinished` lists them.")
    with work.alone():
        shutil.rmtree(work.folder, ignore_errors=True)


def bundled_text() -> list[Path]:
    """The manual that comes with the program, to calibrate with where the user names no text."""
    docs = paths.bundled_folder().parents[1] / "docs"
    return [docs / "using.md", docs / "optimisations.md"]


def write_whole(file: Path, content: bytes) -> None:
    """All of it or nothing. Raises OSError."""
    new = file.with_name(f"{file.name}.unfinished")
    new.write_bytes(content)
    new.replace(file)
