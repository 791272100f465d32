"""Kvasir.app out of a program folder: ``python packaging/macos/build.py --program build/package/kvasir``.

It needs PySide6, which draws the icon. Signing is sign.sh, the disk image dmg.sh; both need macOS.
"""

from __future__ import annotations

import argparse
import plistlib
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from kit import bundle, layout, publisher  # noqa: E402 - the folder above is no package


def build(program: Path, out: Path, version: str) -> Path:
    """``out``/Kvasir.app, made anew. Raises bundle.BundleError, also for what codesign would refuse."""
    from kit import ico, icons  # here, for the signing order must be had without PySide6

    app = out / "Kvasir.app"
    if app.exists():
        shutil.rmtree(app)
    bundle.make(program, app, info(version), ico.icns(icons.SOURCE))
    wrong = bundle.problems(app)
    if wrong:
        raise bundle.BundleError("\n".join(wrong))
    return app


def info(version: str) -> dict[str, object]:
    """Info.plist with versions and publisher filled in. Apple takes numbers only, so 0.2.0rc1 is shown as 0.2.0."""
    numbers = re.match(r"\d+(\.\d+){0,2}", version)
    if numbers is None:
        raise bundle.BundleError(f"{version} does not begin with a number, as a bundle's version must.")
    plist: dict[str, object] = plistlib.loads((HERE / "Info.plist").read_bytes())
    return {
        **plist,
        "CFBundleIdentifier": publisher.COMPONENT,
        "CFBundleShortVersionString": numbers[0],
        "CFBundleVersion": numbers[0],
        "NSHumanReadableCopyright": f"{publisher.NAME}. Apache License 2.0.",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command")
    listing = commands.add_parser("signing-order", help="what sign.sh signs: 'program' or 'code', a tab, the path")
    listing.add_argument("app", type=Path)
    parser.add_argument("--program", type=Path, default=layout.PROGRAM, help="program folder")
    parser.add_argument("--out", type=Path, default=layout.DIST)
    parser.add_argument("--version", default="", help="that of pyproject.toml if left out")
    given = parser.parse_args()
    if given.command == "signing-order":
        for path, program in bundle.signing_order(given.app):
            print(f"{'program' if program else 'code'}\t{path}")
        return 0
    try:
        print(build(given.program, given.out, given.version or layout.version()))
    except bundle.BundleError as error:
        sys.exit(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
