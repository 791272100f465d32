"""Open a checkpoint, whatever its format.

Only small files and headers are read, and everything that can be checked from them is checked, so that a wrong download
is refused before gigabytes are read.
"""

from __future__ import annotations

from pathlib import Path

from engine.base.errors import CheckpointError
from engine.base.files import regular_size, unreadable
from engine.formats.gguf.checkpoint import open_gguf
from engine.formats.gguf.find import gguf_model, is_gguf
from engine.formats.load import Checkpoint


def open_checkpoint(path: str | Path, need_tokenizer: bool = True) -> Checkpoint:
    """The model of a folder, or of a GGUF file.

    Raises :class:`CheckpointError` with a sentence about anything that is missing, damaged or contradictory.
    """
    folder = _existing(path)
    gguf = gguf_model(folder)
    return Checkpoint.of_folder(folder, need_tokenizer) if gguf is None else open_gguf(folder, gguf, need_tokenizer)


def _existing(path: str | Path) -> Path:
    """Check that the path is a folder or a GGUF file, and expand ``~``. Raises :class:`CheckpointError`."""
    found = Path(path)
    try:
        found = found.expanduser()
        if found.is_dir():
            return found
        regular_size(found)  # nothing but a file can be looked into
        if is_gguf(found):
            return found
    except (FileNotFoundError, RuntimeError) as error:  # no such home
        raise CheckpointError(f"There is no model at {found}. Check the path.") from error
    except OSError as error:
        raise unreadable(found, error) from error
    raise CheckpointError(
        f"{found} is a file. Choose a GGUF file, or the folder that holds config.json next to the weights."
    )
