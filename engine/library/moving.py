"""Changes to the folders of models, and the move of the store to another disk.

No model is lost at any moment: all is copied and compared, then the other place counts, then the first one is deleted.
Interrupted before that, nothing has changed, and the same command again continues with what is there; after it, the
rest is deleted. Of a store in a folder of the user's own, only what Kvasir put there is moved.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from engine.base.fetching import room
from engine.base.fetching.download import CHUNK
from engine.base.fetching.lock import lock
from engine.formats.gguf.find import RECEIPT
from engine.library import downloads, roots, store
from engine.library.roots import UNFINISHED, LibraryFailed, ModelRoots
from engine.library.store import clear

PARTIAL = ".kvasir-part"
"""End of a file's name while it is copied."""
BEGUN = ".kvasir-moving"
"""The file in the folder that a store is moved to, until all is there: what is in it is ours."""
_NO_LINKS = (errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
"""Errors of disks that keep no links, such as exFAT's."""
Progress = Callable[[int, int], None]
"""Callback with the bytes that are there and verified, and those of all."""


def add_root(path: Path) -> None:
    """Look for models there too. Raises :class:`LibraryFailed`."""
    path = _folder(path)

    def edit(now: ModelRoots) -> ModelRoots:
        for other in (roots.store_folder(), *map(Path, now.roots)):
            if other == path or other in path.parents:
                raise LibraryFailed(f"Models in {path} are looked for already.")
        return msgspec.structs.replace(now, roots=[*now.roots, str(path)])

    roots.change(edit)


def remove_root(path: Path) -> None:
    """Look there no more; nothing is deleted. Raises :class:`LibraryFailed`."""
    wanted = str(Path(os.path.abspath(os.path.expanduser(path))))

    def edit(now: ModelRoots) -> ModelRoots:
        if wanted == str(roots.store_folder()):
            raise LibraryFailed(f"{wanted} is the folder that models are downloaded to. Choose another for that first.")
        if wanted not in now.roots:
            raise LibraryFailed(f"Models in {wanted} are not looked for. The folders are: kvasir models folders.")
        return msgspec.structs.replace(now, roots=[each for each in now.roots if each != wanted])

    roots.change(edit)


def fetch_to(path: Path) -> None:
    """Download models to that folder from now on; those in the former one stay there and are still found. Raises
    :class:`LibraryFailed`, OSError."""
    path = Path(os.path.abspath(os.path.expanduser(path)))
    if path != roots.usual_store():
        _folder(path)
    if path == (former := roots.store_folder()):
        raise LibraryFailed(f"Models are downloaded to {path} already.")
    _finish()
    with store.changing() if roots.store_is_there() else contextlib.nullcontext():
        if roots.store_folder() != former:
            raise LibraryFailed(f"Models are downloaded to {roots.store_folder()} since a moment ago. Try again.")
        if waiting := downloads.queue():
            raise LibraryFailed(
                f"{len(waiting)} downloads are not finished, and would stay in {former}. Finish or cancel them first: "
                "kvasir models downloads."
            )
        _refuse_while_busy(former)
        _make_store(path)
        holds = not roots.store_is_there() or any(child.name != UNFINISHED for child in _children(former))

        def edit(now: ModelRoots) -> ModelRoots:
            also = [*([str(former)] if holds else []), *filter(None, [now.leaving])]  # the rest of it counts again
            return msgspec.structs.replace(_with_store(now, path, also), leaving="")

        roots.change(edit)


def move_store(target: Path, progress: Progress = lambda done, total: None) -> int:
    """Move all that Kvasir keeps in the store to ``target``, which becomes the store; returns the bytes that were
    deleted. Raises :class:`LibraryFailed`, :class:`FetchFailed`, OSError."""
    target = Path(os.path.abspath(os.path.expanduser(target)))
    freed = _finish()
    with store.changing(), room.disk_errors(target):
        source = roots.store_folder()
        if target == source:
            if freed:  # that move was broken off
                return freed
            raise LibraryFailed(f"The models are in {target} already.")
        if _overlap(source, target):
            raise LibraryFailed(f"{target} and {source} lie within each other. Choose a folder elsewhere.")
        _refuse_while_busy(source)
        begun = target / BEGUN
        if _children(target) and not begun.is_file():
            raise LibraryFailed(f"{target} holds other files. Choose an empty folder, or one that is not there yet.")
        owned = _owned(source)
        sizes = {name: (source / name).lstat().st_size for name in _files(source, owned)}
        here = sum(size for name, size in sizes.items() if _size(target / name) == size)
        with _writable(target):
            target.mkdir(parents=True, exist_ok=True)
            begun.touch()
        room.room_for(target, sum(sizes.values()) - here + room.MARGIN, "Moving the models")
        done, total = 0, sum(sizes.values())
        for name, size in sizes.items():

            def tell(count: int, before: int = done) -> None:
                progress(before + count, total)

            if (source / name).is_symlink():
                _linked(source / name, target / name, owned)
            else:
                _copied(source / name, target / name, tell)
            done += size
        _make_store(target)
        roots.change(lambda now: msgspec.structs.replace(_with_store(now, target, []), leaving=str(source)))
    return _finish()


def _finish() -> int:
    """Delete what a store that was moved left behind; returns its bytes. Raises OSError."""
    if not roots.read().leaving or not roots.store_is_there():
        return 0
    with store.changing():
        if not (leaving := roots.read().leaving):  # another Kvasir did it meanwhile
            return 0
        source, target, freed = Path(leaving), roots.store_folder(), 0
        (target / BEGUN).unlink(missing_ok=True)
        if source.is_dir() and not _overlap(source, target):
            owned = _owned(source)
            # The receipts last: they say what was Kvasir's, should this be broken off.
            for name in sorted(_files(source, owned), key=lambda name: Path(name).name == RECEIPT):
                if _is_copy(source / name, target / name):  # else it came later, and is nobody's copy
                    freed += _size(source / name) or 0
                    (source / name).unlink(missing_ok=True)
            clear(source / UNFINISHED)
            for folder in owned:
                _remove_empty(folder, source)
        # What the user put there himself stays, and is found as before.
        stays = [str(source)] if source != target and roots.models_below(source) else []
        roots.change(lambda now: msgspec.structs.replace(_with_store(now, target, stays), leaving=""))
    return freed


def _remove_empty(folder: Path, source: Path) -> None:
    """Remove the empty folders below ``folder``, itself, and those up to the store that it was in."""
    inner = sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True)
    for each in (*inner, folder, *(above for above in folder.parents if above == source or source in above.parents)):
        with contextlib.suppress(OSError):
            each.rmdir()


def _overlap(one: Path, other: Path) -> bool:
    """Return True if two folders are the same or one lies in the other, by whatever links and names."""
    one, other = one.resolve(), other.resolve()
    for inner, outer in ((one, other), (other, one)):
        for each in (inner, *inner.parents):
            with contextlib.suppress(OSError):
                if each == outer or each.samefile(outer):
                    return True
    return False


def _owned(source: Path) -> list[Path]:
    """The folders in a store that are moved: all of the usual one, in any other those that Kvasir made there."""
    if source == roots.usual_store():
        return [source]
    inside = [folder for folder, _ in store.repositories(source) if source.resolve() in folder.resolve().parents]
    return [*inside, source / UNFINISHED]


def _with_store(now: ModelRoots, path: Path, also: list[str]) -> ModelRoots:
    others = [*now.roots, *(each for each in also if each not in now.roots)]
    chosen = "" if path == roots.usual_store() else str(path)
    return msgspec.structs.replace(now, store=chosen, roots=[each for each in others if each != str(path)])


def _make_store(path: Path) -> None:
    with _writable(path):
        (path / UNFINISHED).mkdir(parents=True, exist_ok=True)
        (path / UNFINISHED / "lock").touch()


@contextlib.contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LibraryFailed(f"Nothing can be written to {path} ({error.strerror}). Choose another folder.") from None


def _folder(path: Path) -> Path:
    path = Path(os.path.abspath(os.path.expanduser(path)))
    if not os.path.isdir(path):
        raise LibraryFailed(f"There is no folder {path}. Make it first, or check its name.")
    return path


def _refuse_while_busy(source: Path) -> None:
    """Whoever works on a download or an import holds its lock, which is taken while nobody else changes the store."""
    busy = LibraryFailed("A model is being downloaded or imported. Wait for it, or stop it, and then try again.")
    for working in _children(source / UNFINISHED):
        if (working / "lock").is_file():
            with lock(working / "lock", busy):
                pass


def _children(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _files(source: Path, owned: list[Path]) -> list[str]:
    """Files in these folders of a store, but locks, by name; links among them. Raises OSError."""
    return sorted(
        path.relative_to(source).as_posix()
        for folder in owned
        for path in _walk(folder)
        if path.name != "lock" and not path.name.endswith(PARTIAL)
    )


def _walk(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        for name in (*names, *(name for name in folders if (Path(where) / name).is_symlink())):
            yield Path(where) / name


def _size(path: Path) -> int | None:
    try:
        return path.lstat().st_size
    except OSError:
        return None


def _is_copy(source: Path, target: Path) -> bool:
    if source.is_symlink():
        return target.is_symlink()
    size = _size(source)
    return size is not None and _size(target) == size


def _linked(source: Path, target: Path, owned: list[Path]) -> None:
    """Have a link at ``target`` that leads where ``source`` does, or to what that becomes where it is moved too."""
    here = source.parent.resolve()
    leads = Path(os.path.normpath(here / os.readlink(source)))
    moved = any(folder.resolve() in (leads, *leads.parents) for folder in owned)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        target.symlink_to(os.path.relpath(leads, here) if moved else leads, target_is_directory=source.is_dir())
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise LibraryFailed(
            f"The disk of {target} keeps no links, and {source} is one. Put the file itself there, or choose a folder "
            "on another disk."
        ) from None


def _copied(source: Path, target: Path, progress: Callable[[int], None]) -> None:
    """Have the same file at ``target``, compared by its hash as it lies there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if _size(target) == source.stat().st_size and _hash(target) == _hash(source, progress):
        return
    partial = target.with_name(target.name + PARTIAL)
    digest, done = hashlib.sha256(), 0
    with source.open("rb") as file, partial.open("wb") as out:
        while block := file.read(CHUNK):
            digest.update(block)
            out.write(block)
            progress(done := done + len(block))
        out.flush()
        os.fsync(out.fileno())
    if _hash(partial) != digest.hexdigest():
        partial.unlink()
        raise LibraryFailed(f"{target} does not hold what was written to it. Check that disk; nothing was deleted.")
    partial.replace(target)


def _hash(path: Path, progress: Callable[[int], None] = lambda count: None) -> str:
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
            progress(done := done + len(block))
    return digest.hexdigest()
