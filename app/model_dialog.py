"""One dialogue for a model, whether it is a folder or a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtWidgets import QDialog, QFileDialog, QWidget

from app.language import tr
from app.opening import trouble

MODELS = tr("Models (*.gguf *.safetensors config.json);;All files (*)")
HELPERS = tr("Draft models and heads (*.gguf *.safetensors *.pt *.bin config.json);;All files (*)")
_PART_OF_A_FOLDER = ("config.json", "tokenizer.json", ".safetensors")


def is_model(path: str) -> bool:
    return not trouble(path)


def is_helper(path: str) -> bool:
    """True if the folder may hold a draft model or heads: it has a .gguf, .safetensors, .pt or .bin file."""
    ends = (".gguf", ".safetensors", ".pt", ".bin")
    try:
        return any(file.suffix in ends for file in Path(path).iterdir())
    except OSError:
        return False


class ModelDialog(QFileDialog):
    """A folder that ``takes`` says is one is chosen as it is, any other is entered.

    The system's own dialogues choose either files or folders, so this is Qt's.
    """

    def __init__(self, parent: QWidget, title: str, folder: str, names: str, takes: Callable[[str], bool]) -> None:
        super().__init__(parent, title, folder, names)
        self._takes = takes
        self.chosen = ""
        self.setOption(QFileDialog.Option.DontUseNativeDialog)
        self.setFileMode(QFileDialog.FileMode.ExistingFile)
        self.setObjectName("model-dialog")

    def accept(self) -> None:
        path = next(iter(self.selectedFiles()), "")
        if path and Path(path).is_dir() and self._takes(path):
            self._choose(path)
        elif path and Path(path).is_file():
            whole = path.endswith(_PART_OF_A_FOLDER) and self._takes(str(Path(path).parent))
            self._choose(str(Path(path).parent) if whole else path)
        else:
            super().accept()

    def _choose(self, path: str) -> None:
        self.chosen = str(Path(path))  # with the separators of the system, as the engine names it
        self.done(QDialog.DialogCode.Accepted)


def ask(parent: QWidget, title: str, folder: str, names: str, takes: Callable[[str], bool]) -> str:
    """The chosen path, "" for none. ``folder`` is where it begins; one that is gone begins in the home folder."""
    start = folder if folder and Path(folder).is_dir() else str(Path.home())
    dialog = ModelDialog(parent, title, start, names, takes)
    try:
        dialog.exec()
        return dialog.chosen
    finally:
        dialog.deleteLater()
