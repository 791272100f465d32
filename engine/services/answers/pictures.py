"""The pictures of a conversation, on their way into a prompt's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from engine.compute.vision.interface import Picture, PictureError
from engine.compute.vision.placeholders import placed
from engine.loop.admission import TEXT_ONLY
from engine.protocol import ChatMessage
from engine.services.answers.overflow import check_length
from engine.services.answers.refused import Refused
from engine.services.answers.request import PromptTokens
from engine.text.prompt import PromptText, rendered

if TYPE_CHECKING:
    from engine.compute.vision.processor import ImageProcessor
    from engine.loading.model import LoadedModel
    from engine.text.template import ChatTemplate


class PromptImages:
    """The pictures of one prompt; made before its text is rendered, and read when that has been tokenised."""

    def __init__(self, loaded: LoadedModel, prompt: Sequence[ChatMessage] | str) -> None:
        """Raises :class:`Refused` for pictures that this model, or that part of a conversation, cannot have."""
        said = () if isinstance(prompt, str) else prompt
        self._files = [file for message in said for file in message.pictures]
        self._album = loaded.pictures.processor
        self._known: list[Picture] | None = None
        if any(message.pictures and message.role not in ("user", "tool") for message in said):
            raise Refused("bad_prompt", "Only messages of the user can have pictures. Take out the others.")
        if self._files and self._album is None:
            raise Refused("no_pictures", loaded.pictures.refused or TEXT_ONLY.format(name=loaded.card.name))

    def around(self, text: PromptText) -> PromptText:
        """The rendered prompt with what this model has around pictures."""
        if not self._files or self._album is None:
            return text
        tower = self._album.tower
        return text._replace(text=text.text.replace(tower.marker, tower.marker.join(tower.around)))

    def fits(self, ids: Sequence[int]) -> bool:
        """Return True if ``ids`` have a mark for each picture, or need none."""
        return not self._files or self._album is None or list(ids).count(self._album.marker) == len(self._files)

    def within(self, ids: list[int]) -> PromptTokens:
        """The prompt's tokens with those of its pictures. Raises :class:`Refused` for one that cannot be shown."""
        if not self._files or self._album is None:
            return PromptTokens(ids)
        try:
            return PromptTokens(*placed(ids, self._album.marker, self._pictures(self._album), self._album.tower))
        except PictureError as error:
            raise Refused("bad_picture", str(error)) from error

    def _pictures(self, album: ImageProcessor) -> list[Picture]:
        if self._known is None:
            self._known = album.prepared(self._files)
        return self._known

    def place(self, ids: Sequence[int], index: int | None) -> int | None:
        """The place of token ``index`` of ``ids`` in :meth:`within`."""
        if index is None or not self._files or self._album is None:
            return index
        album = self._album
        more = list(accumulate((len(album.tower.layout(each)) - 1 for each in self._pictures(album)), initial=0))
        return index + more[min(list(ids[:index]).count(album.marker), len(more) - 1)]

    def tokens(self, message: ChatMessage) -> int:
        """Number of tokens that a message's pictures take."""
        if not message.pictures or self._album is None:
            return 0
        return sum(len(self._album.tower.layout(each)) for each in self._album.prepared(message.pictures))


def pictured_text(loaded: LoadedModel, prompt: ChatMessage, mark: str, context: int | None = None) -> PromptTokens:
    """The tokens of plain text with pictures in it, each where ``mark`` stands. Raises :class:`Refused`; with a
    ``context`` also for text that cannot fit it."""
    shown, files, album = PromptImages(loaded, [prompt]), loaded.files, loaded.pictures.processor
    assert files is not None
    assert album is not None
    check_length(prompt.content, files.tokenizer, context)
    text = prompt.content.replace(mark, _written(files.template, album.tower.marker))
    return shown.within(files.tokenizer.encode(shown.around(PromptText(text, special=True, continues=True)).text))


def _written(template: ChatTemplate, marker: str) -> str:
    """What a chat template writes of a picture: its ``marker``, and often a token before and after it."""
    bare, shown = (rendered(template, [ChatMessage.of("user", "X", pictures=files)]).text for files in ((), (b"",)))
    begin = next((place for place, (one, other) in enumerate(zip(bare, shown, strict=False)) if one != other), 0)
    found = shown[begin : len(shown) - len(bare) + begin]
    return found if found.count(marker) == 1 and bare[:begin] + found + bare[begin:] == shown else marker
