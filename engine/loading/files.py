"""The opened files of a model, of the target or of its draft: checkpoint, tokenizer, template, channels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from engine.base.errors import CheckpointError
from engine.formats.fingerprint import fingerprint
from engine.formats.load import Checkpoint
from engine.formats.open import open_checkpoint
from engine.library import paths
from engine.protocol import Quantise
from engine.text.channels import ChannelStyle, channel_style
from engine.text.doubts import chat_doubts
from engine.text.formats.style import ToolStyle
from engine.text.grammar import Grammars
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer


class ModelFiles(NamedTuple):
    """The text parts may be used from any thread."""

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    template: ChatTemplate
    channels: ChannelStyle | None
    grammars: Grammars
    tools: ToolStyle

    @classmethod
    def open(cls, path: str, context: int | None, tables_in_file: bool = False) -> ModelFiles:
        """Raises :class:`CheckpointError`."""
        checkpoint = replace(open_checkpoint(path).for_context(context), tables_in_file=tables_in_file)
        tokenizer, template = checkpoint.tokenizer(), checkpoint.chat_template()
        channels, ends = channel_style(tokenizer, template.source), checkpoint.end_ids(tokenizer)
        eos_ids = channels.eos(ends) if channels is not None else ends
        grammars = Grammars(tokenizer, eos_ids, checkpoint.config.vocab_size)
        return cls(checkpoint, tokenizer, template, channels, grammars, ToolStyle(tokenizer, template, channels))

    @property
    def name(self) -> str:
        return self.checkpoint.path.name

    @property
    def eos_ids(self) -> list[int]:
        """The tokens that end an answer."""
        return self.grammars.end_ids

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices about the files, sentences for a person."""
        doubts = chat_doubts(self.tokenizer, self.template, self.name)
        return (*self.checkpoint.notices, *self.tokenizer.notices, *doubts)

    @property
    def heads_folders(self) -> tuple[Path, Path | None]:
        """Folders of heads that draft for the model: its own, and the one of those that the user trained for it."""
        path, name = self.checkpoint.path, fingerprint_of(self.checkpoint)
        own = (path if path.is_dir() else path.parent) / "heads"
        return own, paths.heads_folder() / name if name else None

    def quantised(self, method: Quantise) -> tuple[ModelFiles, str]:
        """The same, to be quantised while it is loaded; or unchanged with a sentence if it is packed already."""
        checkpoint = self.checkpoint
        if method == "none":
            return self, ""
        if checkpoint.packed:
            text = (
                f"{self.name} is packed in its file ({checkpoint.quantisation_title}) and stays so: "
                "only models of 16 or 32 bits are quantised while they are loaded."
            )
            return self, text
        return self._replace(checkpoint=checkpoint.quantised(method)), ""


def fingerprint_of(checkpoint: Checkpoint, *what: str) -> str:
    """The fingerprint of a model and ``what`` it runs on; "", which saves no pages, if its files cannot be read."""
    try:
        return fingerprint(checkpoint, *what)
    except CheckpointError:
        return ""
