"""Small steps of a release: ``release.py version``, ``check-tag TAG``, ``sums OUT FILE…``. Standard library only."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from kit.layout import version


def check_tag(tag: str) -> None:
    """Raises SystemExit for a tag that is not the version's."""
    if tag != f"v{version()}":
        sys.exit(
            f"The tag {tag} is not v{version()}, which pyproject.toml says. Tag again, or change the version first."
        )


def sums(out: Path, files: list[Path]) -> None:
    """Write the files' checksums as sha256sum does, by name alone. Raises SystemExit when there are no files."""
    if not files:
        sys.exit("There is nothing to sum: name the files.")
    lines = []
    for file in sorted(files, key=lambda file: file.name):
        with file.open("rb") as opened:
            lines.append(f"{hashlib.file_digest(opened, 'sha256').hexdigest()}  {file.name}\n")
    out.write_bytes("".join(lines).encode())


def main() -> int:
    match sys.argv[1:]:
        case ["version"]:
            print(version())
        case ["check-tag", tag]:
            check_tag(tag)
        case ["sums", out, *files]:
            sums(Path(out), [Path(file) for file in files])
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
