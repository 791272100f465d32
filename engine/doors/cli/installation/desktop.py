"""`kvasir desktop`: the menu entry, icons and file type of a program folder that lies anywhere, for its user alone.

By the freedesktop specifications: Desktop Entry 1.5 (quoting of Exec), Icon Theme, Shared MIME-info, Base Directory.
A Debian package brings these files for everybody, so there is nothing to do there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

from engine.base.installation import program_folder, without_own_libraries
from engine.base.terminal import say
from engine.doors.cli.errors import CommandFailed

ENTRY = PurePosixPath("applications/kvasir.desktop")
FILES, FOLDER = "X-Kvasir-Files", "X-Kvasir-Folder"
"""The entry's own keys: the files installed with it, so that any version can remove it, and which program it starts."""
_GENERATED = (
    *("XMLnamespaces", "aliases", "generic-icons", "globs", "globs2", "icons"),
    *("magic", "mime.cache", "subclasses", "treemagic", "types", "version"),
)
"""What update-mime-database writes next to ``packages``."""


def run_install() -> None:
    """Put Kvasir into the user's menu. Raises :class:`CommandFailed`."""
    written = install(_folder(), data_home())
    say(f"Kvasir is in your menu now ({written}). `kvasir desktop remove` takes it out again.")


def run_remove() -> None:
    """Take it out again."""
    removed = remove(data_home())
    say("Kvasir is no longer in your menu." if removed else "Kvasir has put nothing into your menu.")


def data_home() -> Path:
    """The user's ``share``."""
    chosen = os.environ.get("XDG_DATA_HOME", "")
    return Path(chosen) if os.path.isabs(chosen) else Path.home() / ".local" / "share"


def install(program: Path, home: Path) -> Path:
    """Copy what ``program/share`` has into ``home``; the entry starts the programs of ``program``. The entry's path."""
    share = program / "share"
    files = [
        path.relative_to(share).as_posix()
        for kind in ("icons/hicolor/*/*/*", "mime/packages/*.xml")
        for path in sorted(share.glob(kind))
        if path.is_file()
    ]
    template = share / ENTRY
    if not template.is_file():
        raise CommandFailed(f"{template} is missing. Unpack Kvasir again.")
    text = entry(template.read_text("utf-8"), program, files)
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise CommandFailed(f"The name of {str(program)!r} is not in UTF-8, as menu entries are. Rename it.") from None
    if os.path.lexists(home / ENTRY) and not installed(home):
        raise CommandFailed(f"{home / ENTRY} was not made by Kvasir. Move it elsewhere, then try again.")
    remove(home)  # an earlier version may have had other files
    for name in files:
        _write(home / name, (share / name).read_bytes())
    _write(home / ENTRY, content)
    _tell_desktop(home)
    return home / ENTRY


def remove(home: Path) -> list[Path]:
    """Delete what :func:`install` wrote there, and nothing else; the files that went."""
    listed = _value(home, FILES)
    if listed is None:
        return []  # there is none, or it is somebody else's
    names = [name for name in listed.split(";") if name and _is_ours(name)]
    gone = []
    for path in [*(home / name for name in names), home / ENTRY]:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            gone.append(path)
    _tell_desktop(home)
    _clear_generated(home)
    for path in gone:
        _remove_empty(path.parent, home)
    return gone


def installed(home: Path) -> bool:
    """Return True if there is an entry that :func:`install` wrote."""
    return _value(home, FILES) is not None


def starts(home: Path, program: Path) -> bool:
    """Return True if an entry of :func:`install` starts this program, or one that is gone."""
    folder = _value(home, FOLDER)
    return folder is not None and (folder == escape(str(program)) or not os.path.lexists(_unescaped(folder)))


def entry(template: str, program: Path, files: list[str]) -> str:
    """The desktop entry of a program folder. Raises :class:`CommandFailed` for a path that no entry can hold."""
    if "=" in str(program):
        raise CommandFailed(
            f"A menu entry cannot start a program in a folder with an equals sign in its path ({program}). Rename the "
            "folder, then try again."
        )
    lines = []
    for line in template.splitlines():
        key, _, value = line.partition("=")
        if key == "TryExec":
            continue
        if key == "Exec":
            name, _, rest = value.partition(" ")
            start = quote(str(program / name))
            # GLib looks for the program before it reads %% as %, so such a path must not come first.
            line = f"Exec={'env ' if '%' in start else ''}{start} {rest}".rstrip()
        lines.append(line)
        if line == "[Desktop Entry]":
            lines += [f"{FILES}={''.join(name + ';' for name in files)}", f"{FOLDER}={escape(str(program))}"]
            # Menus leave out an entry whose program is gone: its folder was deleted, or moved.
            lines.append(f"TryExec={escape(str(program / 'kvasir'))}")
    return "\n".join(lines) + "\n"


def quote(argument: str) -> str:
    """An argument as the value of Exec has it: quoted, field codes doubled, then escaped as every string is."""
    for character in '\\"`$':  # the backslash first
        argument = argument.replace(character, "\\" + character)
    return escape('"' + argument.replace("%", "%%") + '"')


def escape(value: str) -> str:
    """A string as a value in a desktop entry."""
    for character, written in (("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        value = value.replace(character, written)
    return f"\\s{value[1:]}" if value.startswith(" ") else value


def _unescaped(value: str) -> str:
    codes = {"s": " ", "n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
    return re.sub(r"\\([sntr\\])", lambda match: codes[match[1]], value)


def of_a_package(folder: Path) -> bool:
    """Return True if the system's package manager put the program there."""
    return folder.is_relative_to("/usr") and not folder.is_relative_to("/usr/local")


def _folder() -> Path:
    folder = program_folder()
    if not sys.platform.startswith("linux"):
        raise CommandFailed("Menu entries are made by the installer on this system.")
    if folder is None:
        raise CommandFailed(
            "This Kvasir runs from a Python environment, which has no menu entry. Start it by `kvasir`."
        )
    if of_a_package(folder):
        raise CommandFailed("Kvasir's package has put it into everybody's menu already.")
    return folder


def _value(home: Path, key: str) -> str | None:
    """The value of a key in the user's entry; None where there is none."""
    with contextlib.suppress(OSError, ValueError):
        for line in (home / ENTRY).read_text("utf-8").splitlines():
            if line.startswith(key + "="):
                return line.removeprefix(key + "=")
    return None


def _is_ours(name: str) -> bool:
    """Return True if a name lies below the folders that :func:`install` writes to, whatever the entry says."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and path.parts[:1] in (("icons",), ("mime",))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def _tell_desktop(home: Path) -> None:
    """Have the menus and file types read anew; desktops without these programs look by themselves, or at the login."""
    commands = [["update-desktop-database", "-q", str(home / "applications")]]
    if (home / "mime" / "packages").is_dir():
        commands.append(["update-mime-database", str(home / "mime")])
    variables = without_own_libraries(os.environ)
    for command in commands:
        if shutil.which(command[0]) is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(command, env=variables, capture_output=True, timeout=60, check=False)
    with contextlib.suppress(OSError):
        os.utime(home / "icons" / "hicolor")  # icon caches are told stale by it


def _clear_generated(home: Path) -> None:
    """Remove the files that the desktop's programs generated once no source file of theirs is left."""
    if not list((home / "mime" / "packages").glob("*.xml")):
        for name in _GENERATED:
            (home / "mime" / name).unlink(missing_ok=True)
        for folder in sorted(path for path in (home / "mime").glob("*") if path.is_dir()):
            _remove_empty(folder, home)
    if not list((home / "applications").rglob("*.desktop")):
        (home / "applications" / "mimeinfo.cache").unlink(missing_ok=True)


def _remove_empty(folder: Path, top: Path) -> None:
    """The folder and those above it that are empty, below ``top``."""
    while folder != top:
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return
        folder = folder.parent
