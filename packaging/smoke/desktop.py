"""What a desktop has to offer: the libraries that the window needs, and the menu with its file types."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from smoke.report import Report
from smoke.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
TOOLS = [
    "desktop-file-utils",
    "xdg-utils",
    "libglib2.0-bin",
    "shared-mime-info",
    "appstream",
    "man-db",
    "hicolor-icon-theme",
]
ICON_SIZES = (16, 24, 32, 48, 64, 128, 256)
ENTRY = "/usr/share/applications/kvasir.desktop"


def libraries() -> list[str]:
    """Debian packages of what app/system_libraries.py names, and a font: any desktop has them."""
    place = importlib.util.spec_from_file_location("system_libraries", ROOT / "app/system_libraries.py")
    assert place is not None
    assert place.loader is not None
    lists = importlib.util.module_from_spec(place)
    place.loader.exec_module(lists)
    named = [library.package for library in lists.CORE + lists.XCB + lists.WAYLAND]
    return [*dict.fromkeys(named), "fonts-dejavu-core"]


def gguf_type(folder: Path) -> str:
    """The media type that the package gives to \\*.gguf, by its files in share/mime/packages; empty without one."""
    for file in sorted(folder.glob("*kvasir*.xml")):
        for kind, body in re.findall(
            r'<mime-type\s+type="([^"]+)"[^>]*>(.*?)</mime-type>', file.read_text(), re.DOTALL
        ):
            if re.search(r'pattern="\*\.gguf"', body):
                return kind
    return ""


def menu(report: Report, sandbox: Sandbox) -> None:
    """The menu entry, the file type, the icons, the metadata and the manual, by the desktop's own tools."""

    def expect(what: str, *command: str, says: str = "") -> None:
        done = sandbox.run(command)
        holds = done.code == 0 and says in done.text
        report.check(holds, what, f"{' '.join(command)}: exit code {done.code}\n{done.text[-1500:]}")

    root = sandbox.root
    entry = (root / ENTRY.lstrip("/")).read_text()
    report.check("NoDisplay=true" not in entry and "Categories=" in entry, "the menu shows it, in a category", entry)
    expect("the menu entry is valid", "desktop-file-validate", ENTRY)
    for file in sorted((root / "usr/share/metainfo").glob("*kvasir*.xml")):
        expect(
            "the AppStream metadata is valid",
            "appstreamcli",
            "validate",
            "--no-net",
            f"/usr/share/metainfo/{file.name}",
        )
    kind = gguf_type(root / "usr/share/mime/packages")
    report.check(bool(kind), "*.gguf has a media type")
    report.check(f"{kind};" in entry, "the menu entry says that it opens it", entry)
    model = root / "home/u/a model.gguf"
    model.write_bytes(b"GGUF" + bytes(60))
    expect(
        "a .gguf file is known by its type", "gio", "info", "-a", "standard::content-type", "a model.gguf", says=kind
    )
    expect("Kvasir is what opens it", "xdg-mime", "query", "default", kind, says="kvasir.desktop")
    expect("gio knows that too", "gio", "mime", kind, says="kvasir.desktop")
    model.unlink()
    icons = root / "usr/share/icons/hicolor"
    absent = [size for size in ICON_SIZES if not (icons / f"{size}x{size}/apps/kvasir.png").exists()]
    report.check(not absent, "icons in all sizes", f"none of {absent}")
    report.check((icons / "scalable/apps/kvasir.svg").exists(), "an icon of any size")
    expect("man kvasir", "man", "--pager=cat", "kvasir", says="kvasir")
    autostart = sorted(str(path) for path in (root / "etc/xdg/autostart").glob("*kvasir*"))
    report.check(not autostart, "it does not start by itself", str(autostart))
