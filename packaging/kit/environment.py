"""What the build environment holds and what of it a frozen program took; run by the environment's own interpreter.

``PYTHON environment.py PROGRAM…`` prints one JSON object. It is a script because the modules that lie in a program's
archive are read by PyInstaller, which the environment has, and listed by the version of Python that wrote them.
"""

from __future__ import annotations

import json
import re
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

TEXTS = re.compile(r"(?i)^(licen[cs]e|copying|copyright|notice|authors)|[-_ ](licen[cs]e)")
COOKIE = b"MEI\014\013\012\013\016"
"""With this PyInstaller marks the archive at the end of a program."""


def describe(distribution: metadata.Distribution) -> dict[str, object]:
    """Name, version, licence, home, files and licence texts of a distribution, as its own metadata has them."""
    fields = distribution.metadata
    files = [str(file) for file in distribution.files or []]
    return {
        "name": fields["Name"],
        "version": distribution.version,
        "licence": _licence(fields),
        "home": _home(fields),
        "files": files,
        "texts": [str(distribution.locate_file(file)) for file in files if _is_text(file)],
        "boms": [str(distribution.locate_file(file)) for file in files if ".dist-info/sboms/" in file],
        "folder": str(distribution.locate_file("")),
    }


def is_frozen(program: Path) -> bool:
    """Whether PyInstaller made this program, which then begins with PyInstaller's own code."""
    return COOKIE in program.read_bytes()[-4096:]


def modules(program: Path) -> list[str]:
    """The modules in a program's archive; none for a file that PyInstaller did not make."""
    if not is_frozen(program):
        return []
    from PyInstaller.archive.readers import CArchiveReader

    archive = CArchiveReader(str(program))
    return [name for pyz in archive.toc if pyz.endswith(".pyz") for name in archive.open_embedded_archive(pyz).toc]


def _licence(fields: metadata.PackageMetadata) -> str:
    """The SPDX expression, else the short form of the old field, else what the classifiers say."""
    expression = fields.get("License-Expression", "")
    old = str(fields.get("License", "")).replace("UNKNOWN", "")  # which setuptools wrote where nothing was said
    if expression or (old and "\n" not in old and len(old) < 100):
        return str(expression or old)
    classes = [line.split(" :: ")[-1] for line in fields.get_all("Classifier", []) if line.startswith("License ::")]
    return " AND ".join(classes)


def _home(fields: metadata.PackageMetadata) -> str:
    named = dict(line.split(", ", 1) for line in fields.get_all("Project-URL", []))
    wanted = {name.lower(): address for name, address in named.items()}
    for name in ("homepage", "home", "repository", "source", "source code", "documentation"):
        if name in wanted:
            return wanted[name]
    return str(fields.get("Home-page", ""))


def _is_text(file: str) -> bool:
    path = Path(file)
    in_metadata = ".dist-info/licenses/" in file or ".dist-info/license_files/" in file
    return in_metadata or (bool(TEXTS.search(path.name)) and path.suffix not in (".py", ".pyc", ".pyi", ".h"))


def _own_texts() -> list[Path]:
    """Where Python's own licence lies: with its library, or on Windows at its top."""
    return [Path(sysconfig.get_path("stdlib")) / "LICENSE.txt", Path(sys.base_prefix) / "LICENSE.txt"]


if __name__ == "__main__":
    programs = [Path(name) for name in sys.argv[1:]]
    found = {
        "distributions": [describe(distribution) for distribution in metadata.distributions()],
        "frozen": any(map(is_frozen, programs)),
        "modules": sorted({name for program in programs for name in modules(program)}),
        "texts": [str(path) for path in _own_texts() if path.is_file()],
        "version": sys.version.split()[0],
    }
    json.dump(found, sys.stdout)
