"""Interface between a vision tower and what surrounds it: pictures in, embeddings out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from PIL.Image import Image
from torch import Tensor

from engine.compute.batch import Ahead


class PictureError(Exception):
    """A picture cannot be shown to the model; the message, one or two sentences for a person, says why."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture prepared for a model's tower."""

    pixels: Tensor
    """Input of the tower, float32 on the host: patches, or channels, rows and columns; the tower's own affair."""
    grid: tuple[int, int]
    """Rows and columns of tokens, as the language model sees them."""
    tokens: int
    """Number of embeddings it gives: rows times columns of the grid."""
    key: bytes
    """SHA-256 of the pixels and the tower's settings: a picture that is shown again has the same key."""


class Tower(Protocol):
    """The vision tower of a loaded model."""

    @property
    def title(self) -> str:
        """Title for people: "Qwen3.5 vision tower, 27 layers"."""

    @property
    def placeholder(self) -> int:
        """The token whose embeddings are replaced by those of pictures."""

    @property
    def marker(self) -> str:
        """The text of the one token of a rendered chat template that stands for a picture, and that :meth:`layout`
        takes the place of: "<|image_pad|>"."""

    @property
    def around(self) -> tuple[str, str]:
        """Text that is put before and after each marker of a rendered template, before it is tokenised."""

    @property
    def bidirectional(self) -> Ahead:
        """Layers of the language model in which the placeholders of one picture attend to those after them, too."""

    @property
    def positions(self) -> Literal["text", "mrope"]:
        """``mrope``: placeholders have positions (time, row, column) by the picture's grid, and the text goes on after
        the largest (Qwen2-VL, arXiv 2409.12191). ``text``: each token has the next position."""

    @property
    def deep(self) -> int:
        """Number of first layers of the language model with additions of their own (DeepStack, arXiv 2406.04334):
        after layer ``i < deep``, part ``i + 1`` of an embedding is added to the stream."""

    @property
    def most_ratio(self) -> float:
        """Largest allowed ratio of one side of a picture to the other."""

    def prepare(self, image: Image, most_tokens: int | None = None) -> Picture:
        """The picture of an RGB image, in fewer tokens than its size asks for where ``most_tokens`` says so and the
        tower has a choice. Raises :class:`PictureError` for one that the tower cannot be shown.
        """

    def layout(self, picture: Picture) -> list[int]:
        """The token ids that take the place of the marker's, ``picture.tokens`` placeholders among them."""

    def forward(self, pictures: Sequence[Picture]) -> list[Tensor]:
        """The embeddings of each, ``[tokens, (1 + deep) * hidden_size]`` in the model's dtype, on its device."""

    def storage_size(self) -> int:
        """Bytes of all its weights."""
