"""Libraries that came from the build machine's Debian: which package brought them, and its licences."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

DOCUMENTS = Path("/usr/share/doc")
COMMON = Path("/usr/share/common-licenses")


def package_of(soname: str) -> str:
    """The installed package with a library of that name, empty where none has it or the machine has no dpkg."""
    try:
        done = subprocess.run(["dpkg", "-S", f"*/{soname}"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    owners = [line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line]
    # Other packages may bring a private copy in a folder of their own.
    plain = [name for name, place in owners if re.fullmatch(r"(/usr)?/lib/x86_64-linux-gnu/[^/]+", place)]
    return plain[0].split(",")[0].split(":")[0] if plain else ""


def describe(package: str) -> tuple[str, str]:
    """(version, home page) of an installed package."""
    shown = "${Version}\\n${Homepage}"
    done = subprocess.run(["dpkg-query", "-W", "-f", shown, package], capture_output=True, text=True, check=True)
    version, _, home = done.stdout.partition("\n")
    return version, home.strip()


def texts(package: str) -> list[Path]:
    """The package's copyright file and the common licences that it refers to."""
    own = DOCUMENTS / package / "copyright"
    if not own.is_file():
        return []
    content = own.read_text(encoding="utf-8", errors="replace")
    named = sorted(set(re.findall(r"/usr/share/common-licenses/([A-Za-z]+(?:-[0-9]+(?:\.[0-9]+)?)?)", content)))
    return [own, *(COMMON / name for name in named if (COMMON / name).is_file())]


def licence(package: str) -> str:
    """The short names in a machine-readable copyright file; for others, that its text says it."""
    content = (DOCUMENTS / package / "copyright").read_text(encoding="utf-8", errors="replace")
    if not content.startswith("Format:"):
        return "as its text says"
    names = {line.split(":", 1)[1].strip() for line in content.splitlines() if line.startswith("License:")}
    return " AND ".join(sorted(name for name in names if name)) or "as its text says"
