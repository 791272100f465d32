"""``make test-package``: tries the built files of dist/ on clean systems. See README.md beside this file."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from smoke import parts
from smoke.report import Report

TOOLS = {
    "bwrap": "bubblewrap",
    "debootstrap": "debootstrap",
    "Xvfb": "xvfb",
    "xdotool": "xdotool",
    "/usr/lib/python3/dist-packages/Xlib": "python3-xlib",
    "import": "imagemagick",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "dpkg-deb": "dpkg",
    "zstd": "zstd",
    "tar": "tar",
}
"""What the trial runs, by name or by path, and the Debian packages that have it."""


def missing(*tools: str) -> list[str]:
    """Sentences about those of TOOLS that are not here."""
    absent = (name for name in tools if not (Path(name).exists() if name.startswith("/") else shutil.which(name)))
    return [f"{name} is missing: apt-get install {TOOLS[name]}" for name in absent]


def obstacles() -> list[str]:
    """What keeps this from being run here, as sentences."""
    found = missing(*TOOLS)
    if os.geteuid():
        found.append("this has to be run as root: it mounts, and runs programs as another user")
    return found


def interrupted(number: int, _: object) -> None:
    """Being stopped is an exception, so that every context is left."""
    raise SystemExit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(description="Try the built files of dist/ on clean systems.")
    parser.add_argument("--only", action="append", choices=list(parts.PARTS), help="this part; repeatable")
    parser.add_argument("--dist", type=Path, default=parts.ROOT / "dist", help="where the built files are")
    parser.add_argument("--build", type=Path, default=parts.ROOT / "build", help="for systems, homes and pictures")
    python = parts.ROOT / ".venv/bin/python"
    parser.add_argument("--python", type=Path, default=python, help="of a checkout's environment, for the part source")
    parser.add_argument(
        "--forbid", type=Path, action="append", default=[], help="no file may hold this path; repeatable"
    )
    parser.add_argument("--keep", action="store_true", help="leave the systems in build/roots to be looked at")
    parser.add_argument("--list", action="store_true", help="name the parts and leave")
    arguments = parser.parse_args()
    if arguments.list:
        for name, part in parts.PARTS.items():
            print(f"{name:20} {getattr(part, 'func', part).__doc__}")
        return 0
    if problems := obstacles():
        sys.stderr.write("\n".join(problems) + "\n")
        return 2
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    report = Report()
    forbidden = parts.forbidden_paths(arguments.dist, arguments.python, arguments.forbid)
    build = arguments.build.resolve()
    trial = parts.Trial(report, arguments.dist, build, arguments.python.absolute(), arguments.keep, forbidden)
    for name in arguments.only or parts.BY_DEFAULT:
        with report.part(name):
            parts.PARTS[name](trial)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
