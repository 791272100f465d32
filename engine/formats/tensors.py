"""A checkpoint's tensors as the readers of formats see them: looked at in the header first, read after that."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.formats.safetensors import TensorFiles

FLOATING = (torch.float32, torch.float16, torch.bfloat16)
MISMATCH = "The configuration does not belong to these weights: download the model again."


class Tensors:
    """The tensors of ``files``. ``method`` ("awq") is named in the errors about packed modules."""

    def __init__(self, files: TensorFiles, method: str = "") -> None:
        self.files, self.method = files, method

    def has(self, name: str) -> bool:
        return name in self.files.entries

    def view(self, name: str) -> Tensor:
        """The tensor as a view of the mapped file, not to be written to."""
        return self.files.view(name)

    def dtype(self, name: str) -> torch.dtype:
        return self.files.dtype(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Raises :class:`CheckpointError` where there is no such tensor."""
        entry = self.files.entries.get(name)
        if entry is None:
            raise CheckpointError(f"The weights lack the tensor {name}. {MISMATCH}")
        return entry.shape

    def check(self, name: str, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...], packed: bool = False) -> None:
        """Raises :class:`CheckpointError` unless the header has the tensor with this shape and one of these dtypes."""
        found = self.shape(name)
        if found != shape:
            method = f" ({self.method})" if packed else ""
            raise CheckpointError(
                f"{name} has the shape {list(found)} where the configuration{method} implies {list(shape)}. {MISMATCH}"
            )
        if self.dtype(name) not in dtypes:
            known = ", ".join(map(_title, dtypes))
            raise CheckpointError(
                f"{name} is stored as {_title(self.dtype(name))}, and Kvasir reads {known} there. "
                "Choose another version of the model."
            )

    def small(self, name: str, most: int) -> bytes:
        """The bytes of a tensor of at most ``most``, read without mapping the file (so also while planning)."""
        entry = self.files.entries[name]
        if entry.size > most:
            raise CheckpointError(
                f"{name} takes {entry.size:,} bytes where at most {most:,} make sense. Download the model again."
            )
        try:
            with entry.file.open("rb") as stream:
                stream.seek(entry.start)
                raw = stream.read(entry.size)
        except OSError as error:
            raise CheckpointError(f"{entry.file} cannot be read ({error.strerror}). Check the file.") from error
        if len(raw) < entry.size:
            raise CheckpointError(f"{entry.file.name} is truncated: {name} is not all there. Download it again.")
        return raw


def _title(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
