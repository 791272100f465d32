"""debian/copyright in its machine-readable form, from the index of licences that lies in the program."""

from __future__ import annotations

import json
from pathlib import Path

from kit import publisher

FORMAT = "https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
HOME = "usr/lib/kvasir/_internal/licences"


def text(program: Path) -> str:
    """One paragraph for Kvasir, one for each thing in the index. Raises ValueError where there is no index."""
    index = program / "_internal" / "licences" / "index.json"
    if not index.is_file():
        raise ValueError(f"{index} is missing: licences.collect must run before the package is built.")
    parts = [
        f"Format: {FORMAT}\nUpstream-Name: Kvasir\n"
        + (f"Source: {publisher.HOME}\n" if publisher.HOME else "")
        + "Comment: Kvasir is bundled with the Python, the libraries and the modules that it runs on."
        f"\n Each is named below with its licence; the texts are in /{HOME}.",
        f"Files: *\nCopyright: {publisher.SINCE} {publisher.NAME}\nLicense: Apache-2.0",
    ]
    for entry in json.loads(index.read_text(encoding="utf-8")):
        folders = sorted({str(Path(file).parent) for file in entry["files"]})
        where = "".join(f"\n /{HOME}/{folder}" for folder in folders)
        home = f"\n Its home is {entry['home']}" if entry["home"] else ""
        parts.append(
            f"Files: {HOME}/{folders[0]}/*\n"
            f"Copyright: the authors of {entry['name']}, as named in its texts\n"
            f"License: {_short(entry)}\n {entry['licence']}\n .\n The texts are in{where}\n"
            f"Comment: {entry['name']} {entry['version']}, bundled.{home}"
        )
    parts.append(
        "License: Apache-2.0\n On Debian systems the text of the Apache License, version 2.0, is in\n"
        " /usr/share/common-licenses/Apache-2.0."
    )
    return "\n\n".join(parts) + "\n"


def _short(entry: dict[str, str]) -> str:
    """A name without spaces that no other paragraph uses, since the texts differ from package to package."""
    return "".join(sign if sign.isalnum() or sign in ".-+" else "-" for sign in f"{entry['name']}-licence".lower())
