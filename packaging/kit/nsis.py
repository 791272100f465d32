"""What the Windows installer puts down and takes away again: NSIS lists made from the program folder itself."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from kit import layout

PROGRAMS = tuple(f"{name}.exe" for name in layout.PROGRAMS)
UNINSTALLER = "uninstall.exe"
LEFT_OUT = ("share",)
"""Linux' menus, icons and manual."""
LONGEST = 259 - len("C:\\Users\\" + 20 * "x" + "\\AppData\\Local\\Programs\\Kvasir\\")
"""Characters of a path below the program folder, so that the whole one stays below Windows' 260 for any user name."""
_FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f]|\$\{')  # the last would be a name to makensis
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


class PayloadError(Exception):
    """The folder cannot be installed on Windows; the text says why."""


def read(folder: Path) -> list[PurePosixPath]:
    """The program's files, relative and sorted. Raises :class:`PayloadError` for what Windows would not take."""
    missing = [name for name in PROGRAMS if not (folder / name).is_file()]
    if missing:
        raise PayloadError(f"{folder} lacks {', '.join(missing)}: it is no program folder for Windows.")
    files = []
    for path in sorted(folder.rglob("*")):
        if path.relative_to(folder).parts[0] in LEFT_OUT:
            continue
        if path.is_symlink():
            raise PayloadError(f"{path} is a link, which an installer cannot carry.")
        if path.is_file():
            files.append(PurePosixPath(path.relative_to(folder).as_posix()))
    wrong = problems(files)
    if wrong:
        raise PayloadError("\n".join(wrong))
    return files


def problems(files: list[PurePosixPath]) -> list[str]:
    """Why these names cannot be installed on Windows, a sentence each."""
    found, seen = [], dict[str, PurePosixPath]()
    for file in files:
        longest = max(len(str(file)), *(len(str(cache)) for cache in _caches(file)), 0)
        if longest > LONGEST:
            found.append(f"{file} is too long: {longest} characters, and {LONGEST} fit.")
        if any(_FORBIDDEN.search(part) or _DEVICE.fullmatch(part) or part.endswith((".", " ")) for part in file.parts):
            found.append(f"{file} has a name that Windows or makensis refuses.")
        if str(file).lower() == UNINSTALLER:
            found.append(f"{file} is the name of the uninstaller.")
        other = seen.setdefault(str(file).lower(), file)
        if other is not file:
            found.append(f"{file} and {other} are one file on Windows.")
    return found


def install_list(files: list[PurePosixPath]) -> str:
    """NSIS commands that write the files to $INSTDIR; their sources are relative to the program folder."""
    lines, folder = [], None
    for file in sorted(files, key=lambda file: (file.parent, file.name)):
        if file.parent != folder:
            folder = file.parent
            lines.append(f'SetOutPath "{_target(folder)}"')
        lines.append(f'File "/oname={_escaped(file.name)}" "{file}"')
    return "\n".join(lines) + "\n"


def remove_list(files: list[PurePosixPath]) -> str:
    """NSIS commands that delete these files, the caches Python may have made of them, and folders that are then empty.

    Nothing else: a file that a person put into one of the folders stays, and so does the folder.
    """
    caches = sorted({cache for file in files for cache in _caches(file)})
    lines = [f'Delete "{_target(file)}"' for file in sorted([*files, *caches])]
    folders = {parent for file in [*files, *caches] for parent in file.parents if parent.name}
    # A folder that holds one would not be empty.
    deepest_first = sorted(folders, key=lambda folder: (-len(folder.parts), folder))
    lines += [f'RMDir "{_target(folder)}"' for folder in deepest_first]
    return "\n".join(lines) + "\n"


def quad(version: str) -> str:
    """A version as Windows' four numbers, in the same order: 0.2.0rc1 is 0.2.0.301 and 0.2.0 is 0.2.0.1000.

    Raises ValueError for what is none of N.N.N, N.N.NaN, bN, rcN, .postN, .devN.
    """
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?(?:(a|b|rc|\.post|\.dev)(\d+))?", version)
    if match is None:
        raise ValueError(f"{version} is no version that Windows' four numbers can express.")
    base = {"a": 100, "b": 200, "rc": 300, ".post": 1000, ".dev": 0, None: 1000}[match[4]]
    return f"{match[1]}.{match[2]}.{match[3] or 0}.{base + int(match[5] or 0)}"


def _caches(file: PurePosixPath) -> list[PurePosixPath]:
    """What a CPython writes beside a module that it imports; the star is the interpreter's tag."""
    if file.suffix != ".py":
        return []
    return [file.parent / "__pycache__" / f"{file.stem}.cpython-3??.pyc"]


def _target(path: PurePosixPath) -> str:
    return "\\".join(["$INSTDIR", *(_escaped(part) for part in path.parts)])


def _escaped(text: str) -> str:
    return text.replace("$", "$$")
