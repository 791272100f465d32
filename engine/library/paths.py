"""Paths of the engine's files: model folders, the runtime folder, the cache.

``KVASIR_HOME`` replaces all of the system's folders by subfolders of one folder. ``KVASIR_MODELS`` names further
folders with models (separated as in PATH).
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from engine.base import folders
from engine.base.errors import MOST, is_text, plain
from engine.base.installation import version as version
from engine.formats.gguf.find import gguf_models, is_gguf
from engine.library import roots, store
from engine.protocol import KnownModel

BUNDLED = "kvasir-guide"
DRAFT_SUFFIX = "-draft"
CACHES = ("bench", "triton", "cuda", "vocabularies")
"""Folders in the cache folder, besides those of quantised weights and saved chats: of measurements, of GPU packs, of
hashes of vocabularies."""


class ModelNotFound(Exception):  # noqa: N818 - an outcome that a person is told about
    """No model of that name or at that path; the message is a sentence for a person."""

    def __init__(self, sentence: str) -> None:
        super().__init__(plain(sentence, most=2 * MOST))  # whoever asks may give a name of any length


class Places(NamedTuple):
    """Kvasir's folders, whether they are there or not."""

    config: Path
    """The window's, as is ``log``."""
    data: Path
    cache: Path
    log: Path
    run: Path
    above: tuple[Path, ...]
    """Folders above these that are Kvasir's alone, inner ones first."""


def places() -> Places:
    """Paths of all that the user's Kvasir keeps. Creates nothing."""
    home = os.environ.get("KVASIR_HOME", "")
    log = folders.place("log", folders.SYSTEM.user_log_path)
    return Places(
        config=folders.place("config", folders.SYSTEM.user_config_path),
        data=folders.data_place(),
        cache=folders.cache_place(),
        log=log,
        run=_runtime_place(),
        above=(Path(home),) if home else (log.parent,) if log.parent.name == "kvasir" else (),
    )


def data_folder() -> Path:
    """Folder of the data that a user's Kvasir keeps, downloaded models among it; created when missing."""
    return _made(folders.data_place())


def cache_folder() -> Path:
    """Folder of files that can be made again; created when missing."""
    return _made(folders.cache_place())


def quantised_folder() -> Path:
    """Weights that were quantised while they were loaded, kept for the next load."""
    # Not made here: a load goes on where that cannot be done.
    return folders.cache_place() / "quantised"


def heads_folder() -> Path:
    """Heads that the user trained for models, in a folder for each model's fingerprint, and copies of pickled heads."""
    # Not made here: looked into by every load.
    return folders.data_place() / "heads"


def copies_folder() -> Path:
    """Copies of pickled heads that could not be written next to the originals."""
    return heads_folder() / "copies"


def packs_folder() -> Path:
    """GPU packs, and the file that names the one in use."""
    # Not made here: most have none.
    return folders.packs_place()


def keeps_quantised() -> bool:
    """Return True if weights that were quantised by a load are kept: ``KVASIR_REPACK_CACHE=0`` says no."""
    return os.environ.get("KVASIR_REPACK_CACHE", "") != "0"


def saved_cache_folder() -> Path:
    """Keys and values of chats, kept so that they continue without being read again."""
    # Not made here: chats go on where that cannot be done.
    return folders.cache_place() / "chats"


def runtime_folder() -> Path:
    """Folder of the user's own for what holds while a server runs, its token; created when missing."""
    folder = _runtime_place()
    if folder.parent == folders.data_place():
        data_folder()  # made for the user alone, too
    return _made(folder)


def token_file(port: int) -> Path:
    """File in which the server on ``port`` leaves its token for other programs of the same user."""
    return runtime_folder() / f"token-{port}"


def model_folders() -> list[Path]:
    """Folders whose subfolders and GGUF files are models: the bundled ones, the user's, those of ``KVASIR_MODELS``."""
    extra = [Path(os.path.expanduser(part)) for part in os.environ.get("KVASIR_MODELS", "").split(os.pathsep) if part]
    # Looked into, so not made: models can be read where nothing can be written.
    return [bundled_folder(), roots.store_folder(), *extra]


def known_models() -> list[KnownModel]:
    """Every model found that can be named in text, the bundled one first. ``NAME-draft`` is the draft model of
    ``NAME``, for folders as for GGUF files (``NAME.gguf`` and ``NAME-draft.gguf``)."""
    return [model for model in _found() if is_text(model.path)]


def unnamed_models() -> list[str]:
    """Paths of the models whose path is not text in UTF-8, so that no other program can be told of them."""
    return [model.path for model in _found() if not is_text(model.path)]


def _found() -> list[KnownModel]:
    found: dict[str, KnownModel] = {}
    for folder in model_folders():
        for path in sorted(models_in(folder)):
            suffix = _suffix(path)
            bare = path.name.removesuffix(suffix)
            drafts_for = bare.removesuffix(DRAFT_SUFFIX)
            if drafts_for not in ("", bare) and _is_model(path.with_name(drafts_for + suffix)):
                continue
            found.setdefault(path.name, _known(path))
    named = [
        *store.models(),
        *((each.name, Path(each.path)) for each in roots.read().references if roots.is_there(each)),
    ]
    for root in roots.read().roots:
        named += [(path.name, path) for path in roots.models_below(Path(root))]
    paths = {model.path for model in found.values()}
    for name, path in named:
        if str(path) not in paths:
            paths.add(str(path))
            unique = name if name not in found else str(path)
            found[unique] = msgspec.structs.replace(_known(path), name=unique)
    return list(found.values())


def models_in(folder: Path) -> list[Path]:
    """The models right in a folder and those of its subfolders; what cannot be read holds none."""
    found: list[Path] = []
    with contextlib.suppress(OSError):
        found += gguf_models(folder)
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                if os.path.isdir(path):
                    found += _models_of(path)
    return found


def bundled_folder() -> Path:
    """Folder of the models that come with Kvasir."""
    return _assets() / "demo"


def models_file() -> Path:
    """The list of recommended models."""
    return _assets() / "models.json"


def papers_folder() -> Path:
    """Figures of papers, redrawn in the Lab."""
    return _assets() / "papers"


def lab_folder() -> Path:
    """Results of the Lab's experiments."""
    return _made(folders.data_place() / "lab")


def bundled_model() -> KnownModel:
    """The model that ships with the program. Raises :class:`ModelNotFound`."""
    for model in known_models():
        if model.name == BUNDLED:
            return model
    raise ModelNotFound(
        f"The bundled model {BUNDLED} is not installed. Install Kvasir again, or name a model folder of your own."
    )


def find_model(model: str) -> KnownModel:
    """A model by its name or by the path of its folder or file. "" is the bundled one. Raises :class:`ModelNotFound`.

    Only names of folders that were found are names: nothing is looked up below a model folder.
    """
    if not model:
        return bundled_model()
    for known in known_models():
        if model in (known.name, known.path):
            return known
    path = Path(os.path.expanduser(model))
    if path.is_absolute() and (os.path.isdir(path) or _is_model(path)):
        return _known(path)
    if path.is_absolute() and os.path.isfile(path):
        raise ModelNotFound(
            f"{model} is a file. Give the folder that holds config.json, the tokenizer and the weights, or a GGUF file."
        )
    names = ", ".join(known.name for known in known_models()) or "none"
    raise ModelNotFound(f"There is no model {model!r}. Give the full path of a model folder, or one of: {names}.")


def resolve(model: str, draft: str | None) -> tuple[str, str]:
    """The paths of a model and of its draft ("" without one), which may be heads in a folder or a file.

    ``draft`` None takes the model's own draft model, if it has one.

    Raises :class:`ModelNotFound`.
    """
    found = find_model(model)
    if draft is None:
        return found.path, found.draft
    return found.path, _find_draft(draft) if draft else ""


def _find_draft(draft: str) -> str:
    for known in known_models():
        if known.draft and draft in (known.draft, Path(known.draft).name):
            return known.draft
    path = Path(os.path.expanduser(draft))
    if path.is_absolute() and os.path.isfile(path):
        return str(path)  # heads may be a single file; whoever opens it says what it is
    return find_model(draft).path


def _assets() -> Path:
    """assets/ lies next to the packages, in a source checkout as in an installed tree."""
    return Path(__file__).resolve().parents[2] / "assets"


def _known(path: Path) -> KnownModel:
    suffix = _suffix(path)
    draft = path.with_name(path.name.removesuffix(suffix) + DRAFT_SUFFIX + suffix)
    return KnownModel(name=path.name, path=str(path), draft=str(draft) if _is_model(draft) else "")


def _models_of(folder: Path) -> list[Path]:
    files = gguf_models(folder)
    if len(files) > 1 and not any(folder.glob("*.safetensors")):
        return files  # several versions of one model side by side: each counts
    return [folder] if _is_model(folder) else []


def _is_model(path: Path) -> bool:
    """A GGUF file, or a folder with a model in either form."""
    if os.path.isfile(path):  # False also for a name that is too long
        return is_gguf(path)
    return os.path.isfile(path / "config.json") or (os.path.isdir(path) and len(gguf_models(path)) == 1)


def _suffix(path: Path) -> str:
    return path.suffix if is_gguf(path) else ""


def _runtime_place() -> Path:
    """The login session's folder; where there is none, one next to the data rather than below /tmp, where all write."""
    sessionless = os.name == "posix" and sys.platform != "darwin" and not os.environ.get("XDG_RUNTIME_DIR")
    return folders.place("run", folders.data_place() / "run" if sessionless else folders.SYSTEM.user_runtime_path)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
