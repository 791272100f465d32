"""Licence texts that wheels leave out, and libraries of others that wheels bring within them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kit.system_licences import DOCUMENTS

NOTICES = Path(__file__).resolve().parents[1] / "linux" / "notices"
Text = tuple[str, bytes]


def common(*names: str) -> list[Text]:
    """Texts that many share."""
    return [(name, (NOTICES / "common" / name).read_bytes()) for name in names]


def note(folder: str) -> list[Text]:
    """Texts that lie with these scripts, because wheels and common-licenses have none of them."""
    return [(path.name, path.read_bytes()) for path in sorted((NOTICES / folder).glob("*.txt"))]


def _pynvml(site: Path) -> list[Text]:
    """The comment that the module begins with: the wheel has no other."""
    head = (site / "pynvml.py").read_text(encoding="utf-8").split("#####")
    return [("LICENSE", head[1].strip().encode() + b"\n")] if len(head) > 2 else []


def _cobble(site: Path) -> list[Text]:
    """Neither the wheel nor its repository has a text: its metadata names the licence (BSD) and the author."""
    return [(path.name, path.read_bytes()) for path in site.glob("cobble-*.dist-info/METADATA")]


TEXTS: dict[str, Callable[[Path], list[Text]]] = {
    "cobble": _cobble,
    "latex2mathml": lambda site: note("latex2mathml"),
    "nvidia-ml-py": _pynvml,
    "pyside6-essentials": lambda site: common("LGPL-3", "GPL-3") + note("qt"),
    "shiboken6": lambda site: common("LGPL-3", "GPL-3"),
    "tokenizers": lambda site: common("Apache-2.0"),
}
"""By the normalised name of the distribution; asked only where its wheel has no text."""


class Inside(NamedTuple):
    name: str
    patterns: tuple[str, ...]
    """Names of files that show that it is there."""
    licence: str
    home: str
    version_of: str
    """The distribution with the same version; empty where the version is not known."""
    texts: Callable[[Mapping[str, Path]], list[Text]]
    """From the environment's folder of each bundled distribution."""


def _debian(package: str) -> list[Text]:
    path = DOCUMENTS / package / "copyright"
    return [(f"{package}.txt", path.read_bytes())] if path.is_file() else []


def _own(name: str, folders: Mapping[str, Path]) -> list[Text]:
    """The licence file of a wheel that has in it the texts of what the wheel brings."""
    if name not in folders:
        return []
    found = sorted(folders[name].glob(f"{name}-*.dist-info/licenses/LICENSE*"))
    return [(f"{name}.txt", path.read_bytes()) for path in found]


_of_numpy, _of_pillow = partial(_own, "numpy"), partial(_own, "pillow")


INSIDE = (
    Inside(
        "Qt",
        ("libQt6*.so*", "Qt6*.dll", "QtCore"),
        "LGPL-3.0-only",
        "https://www.qt.io",
        "pyside6-essentials",
        lambda folders: common("LGPL-3", "GPL-3", "GPL-2", "Apache-2.0") + note("qt"),
    ),
    Inside("ICU", ("libicu*.so*",), "Unicode-3.0", "https://icu.unicode.org", "", lambda folders: note("icu")),
    Inside(
        "GCC runtime libraries",
        ("libgomp*.so*", "libgfortran*.so*", "libgcc_s*.so*", "libstdc++*.so*"),
        "GPL-3.0-or-later WITH GCC-exception-3.1",
        "https://gcc.gnu.org",
        "",
        lambda folders: _debian("libgcc-s1") + common("GPL-3"),
    ),
    Inside(
        "libquadmath",
        ("libquadmath*.so*",),
        "LGPL-2.1-or-later",
        "https://gcc.gnu.org/onlinedocs/libquadmath/",
        "",
        lambda folders: _of_numpy(folders) + common("LGPL-2.1"),
    ),
    # Linked into PyTorch's CPU build for x86; `torch.__config__.show()` names it, its wheel has no text of it.
    Inside(
        "Intel oneMKL",
        ("libtorch_cpu.so", "torch_cpu.dll"),
        "LicenseRef-Intel-Simplified-2022-10",
        "https://www.intel.com/onemkl",
        "",
        lambda folders: note("onemkl"),
    ),
    Inside(
        "Decoders of pictures within Pillow",  # libjpeg-turbo, libpng, libwebp, libtiff, OpenJPEG, and what they need
        ("_imaging*",),
        "IJG AND BSD-3-Clause AND BSD-2-Clause AND libpng-2.0 AND libtiff AND FTL AND MIT AND 0BSD",
        "https://python-pillow.github.io",
        "pillow",
        _of_pillow,
    ),
    Inside(
        "STIX Two Math",
        ("STIXTwoMath-Regular.ttf",),
        "OFL-1.1",
        "https://www.stixfonts.org",
        "",
        lambda folders: note("stix"),
    ),
    Inside("OpenBLAS", ("*openblas*.so*",), "BSD-3-Clause", "https://www.openblas.net", "", _of_numpy),
)
