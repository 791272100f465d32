"""The Windows installer out of a program folder: ``python packaging/windows/build.py --program build/package/kvasir``.

It needs makensis (NSIS 3.08 or newer) and PySide6, which draws the icon; it runs on Linux as on Windows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from kit import ico, icons, layout, nsis, publisher  # noqa: E402 - the folder above is no package


def build(program: Path, out: Path, version: str, sign: str = "", makensis: str = "makensis") -> Path:
    """The installer's path. ``sign``: a command that signs the file ``%1``, run for uninstaller and installer.

    Raises nsis.PayloadError, ValueError for a version, subprocess.CalledProcessError when makensis refuses.
    """
    program, out = program.resolve(), out.resolve()
    files = nsis.read(program)
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"kvasir-{version}-windows-x86_64-setup.exe"
    with tempfile.TemporaryDirectory(prefix="kvasir-nsis-") as name:
        work = Path(name)
        (work / "install.nsh").write_text(nsis.install_list(files), encoding="utf-8")
        (work / "remove.nsh").write_text(nsis.remove_list(files), encoding="utf-8")
        (work / "kvasir.ico").write_bytes(ico.ico(icons.SOURCE))
        (work / "licence.txt").write_text(_licence(), encoding="utf-8-sig", newline="\r\n")
        size = sum((program / file).stat().st_size for file in files)
        values = {
            "VERSION": version,
            "QUAD": nsis.quad(version),
            "PUBLISHER": publisher.NAME,
            "HOME": publisher.HOME,
            "KILOBYTES": str(-(-size // 1024)),
            "PROGRAM": str(program),
            "WORK": str(work),
            "TARGET": str(target),
            **({"SIGN": sign} if sign else {}),
        }
        command = [makensis, "-V2", "-WX", "-NOCONFIG", "-INPUTCHARSET", "UTF8"]
        command += [f"-D{key}={value}" for key, value in values.items()]
        subprocess.run([*command, str(HERE / "kvasir.nsi")], check=True)
    return target


def _licence() -> str:
    return (layout.ROOT / "LICENSE").read_text(encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, default=layout.PROGRAM, help="the program folder")
    parser.add_argument("--out", type=Path, default=layout.DIST)
    parser.add_argument("--version", default="", help="that of pyproject.toml if left out")
    parser.add_argument("--sign", default="", help='such as: signtool sign /fd sha256 ... "%%1"')
    parser.add_argument("--makensis", default="makensis")
    given = parser.parse_args()
    try:
        print(build(given.program, given.out, given.version or layout.version(), given.sign, given.makensis))
    except (nsis.PayloadError, ValueError) as error:
        sys.exit(str(error))
    except FileNotFoundError as error:
        sys.exit(f"{error.filename} is not there. Install NSIS (Debian: nsis), or name it with --makensis.")
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
