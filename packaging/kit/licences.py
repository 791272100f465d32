"""The licences of everything in a packaged program: an index, and every text. What has no text stops the build."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from kit import crates, elf, system_licences, tree
from kit.bundled import INSIDE, TEXTS, Inside, note
from kit.layout import PROGRAMS, ROOT

REFUSED = {"libreadline8": "readline", "libreadline8t64": "readline", "libgdbm6": "_gdbm", "libgdbm6t64": "_gdbm"}
"""Debian packages under the GPL alone, by the Python module that takes them along. In one program with what PyTorch
brings (Intel's oneMKL, which may not be modified) they cannot be given away."""


class MissingLicence(ValueError):  # noqa: N818 - the name says what it is
    """Things in the program whose licence nobody knows; the message names each."""


class RefusedLicence(ValueError):  # noqa: N818 - the name says what it is
    """Something that must not lie in the program; the message names it and says what to do."""


class Entry(NamedTuple):
    name: str
    version: str
    licence: str
    home: str
    texts: list[tuple[str, bytes]]
    """(name of the file, its content)."""


def collect(program: Path, python: Path) -> None:
    """Write _internal/licences/ of a frozen program, from nothing: index.json and the texts that it names.

    ``python`` is the interpreter of the environment that the program was frozen from. Raises MissingLicence for a
    bundled thing without a licence or a text, and for a binary file that nobody brought, RefusedLicence for a library
    that may not be bundled.
    """
    environment = _environment(program, python)
    taken = [item for item in environment["distributions"] if _is_taken(item, program, environment)]
    entries = [_kvasir(), _cpython(environment)]
    entries += [_uv(program, environment)] if (program / "tools").is_dir() else []
    entries += [_distribution(item) for item in taken]
    entries += _inside(program, taken)
    entries += _wheels(program)
    entries += _from_system(program, taken)
    gaps = [entry.name for entry in entries if not entry.texts or not entry.licence]
    if gaps:
        raise MissingLicence(f"No licence or no text of it is at hand for: {', '.join(sorted(gaps))}.")
    _write(program / "_internal" / "licences", entries)


def _write(folder: Path, entries: Iterable[Entry]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    index = []
    for entry in sorted(entries, key=lambda entry: entry.name.lower()):
        files = []
        for name, content in entry.texts:
            relative = Path(re.sub(r"[^A-Za-z0-9.+-]+", "-", entry.name).strip("-").lower()) / name
            place = folder / relative
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            files.append(relative.as_posix())
        home = {"name": entry.name, "version": entry.version, "licence": entry.licence, "home": entry.home}
        index.append({**home, "files": sorted(files)})
    text = json.dumps(index, indent=1, ensure_ascii=False) + "\n"
    (folder / "index.json").write_text(text, encoding="utf-8")


def _environment(program: Path, python: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("environment.py")
    named = [program / (name + suffix) for name in PROGRAMS for suffix in ("", ".exe")]
    programs = [str(path) for path in named if path.is_file()]
    command = [str(python), "-I", str(script), *programs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{python} could not list what it has installed: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _is_taken(item: dict[str, Any], program: Path, environment: dict[str, Any]) -> bool:
    """Whether something of a distribution lies in the program: a file, a compiled module, one in its archive."""
    name = _normal(item["name"])
    if name in ("kvasir", "uv"):
        return False
    if name == "pyinstaller":
        return bool(environment["frozen"])
    known = set(environment["modules"])
    for file in item["files"]:
        if ".dist-info/" in file or file.startswith(".."):
            continue
        place = program / "_internal" / file
        if place.is_file() or (
            place.suffix == ".py" and (place.with_suffix(".pyc").is_file() or _module(file) in known)
        ):
            return True
    return False


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _distribution(item: dict[str, Any]) -> Entry:
    folder = Path(item["folder"])
    texts = [(_short(path, folder), path.read_bytes()) for path in map(Path, item["texts"]) if path.is_file()]
    supplied = TEXTS.get(_normal(item["name"]))
    if not texts and supplied:
        texts = supplied(folder)
    if texts:
        texts += crates.texts(list(map(Path, item["boms"]))) + crates.notices(item["name"], item["version"])
    return Entry(item["name"], item["version"], item["licence"], item["home"], texts)


def _short(path: Path, folder: Path) -> str:
    """A text's place below the distribution's metadata, or below the environment for others."""
    relative = path.relative_to(folder)
    inside = relative.parts[0].endswith(".dist-info")
    return str(Path(*relative.parts[1:])).removeprefix("licenses/") if inside else relative.as_posix()


def _kvasir() -> Entry:
    from kit import publisher, share

    text = (ROOT / "LICENSE").read_bytes()
    return Entry("Kvasir", share.releases()[0][0], "Apache-2.0", publisher.HOME, [("LICENSE", text)])


def _cpython(environment: dict[str, Any]) -> Entry:
    """Its own licence, and an account of what others wrote that is built into the interpreter."""
    texts = [("LICENSE.txt", Path(path).read_bytes()) for path in environment["texts"][:1]]
    texts += note("cpython") if texts else []
    return Entry("CPython", environment["version"], "Python-2.0", "https://www.python.org", texts)


def _uv(program: Path, environment: dict[str, Any]) -> Entry:
    """From the environment's distribution, or from texts beside the program."""
    installed = [item for item in environment["distributions"] if _normal(item["name"]) == "uv"]
    if installed:
        return _distribution(installed[0])
    beside = sorted((program / "tools").glob("LICENSE*"))
    texts = [(path.name, path.read_bytes()) for path in beside]
    return Entry("uv", "", "Apache-2.0 OR MIT", "https://github.com/astral-sh/uv", texts)


def _inside(program: Path, taken: list[dict[str, Any]]) -> list[Entry]:
    """Libraries of others that wheels bring within them."""
    names = {path.name for path in tree.files(program)}
    versions = {_normal(item["name"]): item["version"] for item in taken}
    folders = {_normal(item["name"]): Path(item["folder"]) for item in taken}

    def entry(item: Inside) -> Entry:
        return Entry(item.name, versions.get(item.version_of, ""), item.licence, item.home, item.texts(folders))

    return [entry(item) for item in INSIDE if any(fnmatch.filter(names, pattern) for pattern in item.patterns)]


def _wheels(program: Path) -> list[Entry]:
    """Wheels that lie in the program packed, such as ensurepip's pip, and what is installed in its Python."""
    entries = []
    for wheel in sorted((program / "python").rglob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        with zipfile.ZipFile(wheel) as archive:
            inside = [part for part in archive.namelist() if re.search(r"(?i)/(licen[cs]e|copying)[^/]*$", part)]
            texts = [(f"wheel/{part}", archive.read(part)) for part in inside]
        entries.append(Entry(f"{name} (for Python)", version, "MIT", f"https://pypi.org/project/{name}/", texts))
    return entries


def _from_system(program: Path, taken: list[dict[str, Any]]) -> list[Entry]:
    """Binary files that no distribution, CPython or Kvasir itself brought: Debian's, by the name of the library."""
    brought = {file for item in taken for file in item["files"]}
    names = {Path(file).name for file in brought}
    packages, unknown = set(), []
    for path in tree.files(program):
        relative = path.relative_to(program)
        if not elf.is_elf(path) or _is_own(relative):
            continue
        if str(relative.relative_to("_internal") if relative.parts[0] == "_internal" else relative) in brought:
            continue
        package = system_licences.package_of(path.name) or system_licences.package_of(
            elf.read(path).soname or path.name
        )
        if package:
            packages.add(package)
        elif path.name not in names:
            unknown.append(str(relative))
    if unknown:
        raise MissingLicence(f"Nobody is known to have brought: {', '.join(sorted(unknown))}.")
    if refused := sorted(packages & REFUSED.keys()):
        told = ", ".join(f"{name} (leave out the module {REFUSED[name]})" for name in refused)
        raise RefusedLicence(f"Under the GPL alone, so not to be bundled: {told}.")
    return [_package(name) for name in sorted(packages)]


def _package(name: str) -> Entry:
    version, home = system_licences.describe(name)
    texts = [(path.name, path.read_bytes()) for path in system_licences.texts(name)]
    return Entry(name, version, system_licences.licence(name) if texts else "", home, texts)


def _is_own(relative: Path) -> bool:
    """What Kvasir, PyInstaller and CPython themselves brought; each of them has its entry."""
    parts = relative.parts
    if len(parts) == 1 or parts[0] == "tools" or parts[:2] == ("_internal", "engine"):
        return True
    interpreter = re.fullmatch(r"(libpython3.*\.so.*|python3[0-9.]*)", relative.name)
    return "lib-dynload" in parts or interpreter is not None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
