"""The Debian package: the program in /usr/lib/kvasir, what desktops read in /usr/share, nothing anywhere else.

No script runs at installation: menu, icons, file types and manual pages are picked up by the triggers of
desktop-file-utils, hicolor-icon-theme, shared-mime-info and man-db, where these are installed.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import time
from email.utils import formatdate
from pathlib import Path

from kit import debcopyright, depends, publisher, share, tree
from kit.layout import LINUX

DESCRIPTION = """chat with language models on this computer
 Kvasir answers in a window, offline, with a small model that it brings or
 with GGUF and safetensors models of your own. Every optimisation of its
 engine is a switch, and it measures in front of you what each one brings.
 .
 It computes on the processor; where there is a supported GPU, the window
 offers to add what it needs. The same engine serves other programs, in the
 terminal and by an OpenAI-shaped interface."""
RECOMMENDS = ("ca-certificates", "libgl1-mesa-dri", "xdg-desktop-portal")
"""For GPU packs from the network, drawing by the graphics card, and the desktop's own file dialogues."""


def build(program: Path, out: Path, version: str, epoch: int, level: int = 6) -> Path:
    """Write ``out``/kvasir_VERSION_amd64.deb; the same program gives the same bytes.

    ``epoch`` (seconds) is the time of every file in it, ``level`` xz's effort: 6 is xz's own, 1 fast, for trials.
    Raises ValueError for what must not be in a package, OSError where dpkg-deb cannot be started or fails.
    """
    tree.check_links(program)
    needs = depends.of(program)
    out.mkdir(parents=True, exist_ok=True)
    place = out / f"kvasir_{version}_amd64.deb"
    with tree.scratch(out / ".deb") as scratch:
        root, made = scratch / "root", scratch / place.name
        _fill(root, program, version, epoch)
        _control(root, needs, version)
        tree.settle(root, epoch)
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", f"-z{level}", "--build", str(root), str(made)]
        environment = os.environ | {
            "SOURCE_DATE_EPOCH": str(epoch),
            "LC_ALL": "C.UTF-8",
            # Two at least: xz cuts its input into the same blocks for any number of threads, but older ones did not
            # for one. No option, because Ubuntu 22.04's dpkg-deb does not know it.
            "DPKG_DEB_THREADS_MAX": str(max(2, os.cpu_count() or 1)),
        }
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"dpkg-deb failed: {done.stderr.strip()}")
        made.replace(place)
    return place


def _fill(root: Path, program: Path, version: str, epoch: int) -> None:
    home = root / "usr" / "lib" / "kvasir"
    tree.copy(program, home, leave_out=("share",))
    tree.copy(program / "share", root / "usr" / "share", leave_out=("doc",))
    command = root / "usr" / "bin" / "kvasir"
    command.parent.mkdir(parents=True)
    command.symlink_to("../lib/kvasir/kvasir")
    for page in sorted((root / "usr" / "share" / "man").rglob("*.1")):
        _compressed(page.with_name(page.name + ".gz"), page.read_bytes())
        page.unlink()
    documents = root / "usr" / "share" / "doc" / "kvasir"
    documents.mkdir(parents=True)
    (documents / "copyright").write_text(debcopyright.text(program), encoding="utf-8")
    _compressed(documents / "changelog.gz", _changelog(version, epoch).encode())
    _compressed(documents / "using.md.gz", (program / "share" / "doc" / "using.md").read_bytes())
    overrides = root / "usr" / "share" / "lintian" / "overrides" / "kvasir"
    overrides.parent.mkdir(parents=True)
    shutil.copyfile(LINUX / "lintian-overrides", overrides)


def _control(root: Path, needs: depends.Needs, version: str) -> None:
    folder = root / "DEBIAN"
    folder.mkdir()
    sums = "".join(f"{_md5(path)}  {path.relative_to(root)}\n" for path in tree.files(root / "usr"))
    (folder / "md5sums").write_text(sums, encoding="utf-8")
    shutil.copyfile(LINUX / "prerm", folder / "prerm")
    (folder / "prerm").chmod(0o755)
    fields = {
        "Package": "kvasir",
        "Version": version,
        "Architecture": "amd64",
        "Maintainer": f"{publisher.NAME} <{publisher.MAIL or publisher.NO_MAIL}>",
        "Installed-Size": str(_installed_size(root)),
        "Depends": ", ".join(needs.depends),
        "Recommends": ", ".join(sorted({*needs.recommends, *RECOMMENDS})),
        "Section": "science",
        "Priority": "optional",
        "Homepage": publisher.HOME,
        "Description": DESCRIPTION,
    }
    text = "".join(f"{name}: {value}\n" for name, value in fields.items() if value)
    (folder / "control").write_text(text, encoding="utf-8")


def _installed_size(root: Path) -> int:
    """KiB as Debian policy counts them: files rounded up one by one, 1 for whatever else has a name."""
    paths = [path for path in tree.walk(root) if path.relative_to(root).parts[0] != "DEBIAN"]
    plain = [path.is_file() and not path.is_symlink() for path in paths]
    return sum(-(-path.stat().st_size // 1024) if file else 1 for path, file in zip(paths, plain, strict=True))


def _changelog(version: str, epoch: int) -> str:
    """Debian's form of the releases in metainfo.xml; a version that is not among them stands first, dated ``epoch``."""
    entries = share.releases()
    if version not in [entry[0] for entry in entries]:
        entries.insert(0, (version, time.strftime("%Y-%m-%d", time.gmtime(epoch)), f"Version {version}."))
    maintainer = f"{publisher.NAME} <{publisher.MAIL or publisher.NO_MAIL}>"
    return "\n".join(
        f"kvasir ({number}) unstable; urgency=medium\n\n  * {news}\n\n -- {maintainer}  {_rfc2822(date)}\n"
        for number, date, news in entries
    )


def _rfc2822(date: str) -> str:
    noon = time.strptime(f"{date} 12:00 UTC", "%Y-%m-%d %H:%M %Z")
    return formatdate(time.mktime(noon) - time.timezone, localtime=False).replace("-0000", "+0000")


def _compressed(place: Path, data: bytes) -> None:
    """With the greatest effort and no time in it, as Debian's policy asks."""
    place.write_bytes(gzip.compress(data, compresslevel=9, mtime=0))


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
