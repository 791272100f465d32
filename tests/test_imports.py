"""What tests share has one name and one place: no test is imported, and no helper but by its full name."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

TESTS = Path(__file__).parent
ELSEWHERE = TESTS / "conformance" / "fixtures"
"""Scripts that run in environments of their own, outside the repository."""
HELPERS = {
    file.stem
    for file in TESTS.rglob("*.py")
    if not file.is_relative_to(ELSEWHERE) and not file.stem.startswith(("test_", "__"))
} - sys.stdlib_module_names


_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<module>[.\w]+)[ \t]+import[ \t]+(?P<names>\([^)]*\)|[^#\n]*)"
    r"|import[ \t]+(?P<whole>[^#\n]*))",
    re.MULTILINE,
)
"""A statement; much faster than parsing each file."""


def modules(source: str) -> Iterator[str]:
    """The full names of all that is imported, wherever it is; of ``from a import b`` both a and a.b."""
    for found in _IMPORT.finditer(source):
        names = [
            name.split()[0] for name in (found["names"] or found["whole"]).strip("()\n ").split(",") if name.strip()
        ]
        if found["module"]:
            yield found["module"]
        yield from (f"{found['module']}.{name}" if found["module"] else name for name in names)


def faults(source: str, helpers: Collection[str] = HELPERS) -> list[str]:
    """Each import that breaks the rule."""
    found = []
    for name in dict.fromkeys(modules(source)):
        first, _, rest = name.partition(".")
        ours = first == "tests" or (not rest and (first in helpers or first.startswith("test_")))
        if ours and any(part.startswith("test_") for part in name.split(".")):
            found.append(f"{name} is a test")
        elif ours and first != "tests":
            found.append(f"{name} is a helper without its full name")
        elif name.startswith("."):
            found.append(f"{name} is relative")
    return found


def test_no_test_is_imported_and_helpers_have_their_full_names() -> None:
    files = [file for file in sorted(TESTS.rglob("*.py")) if not file.is_relative_to(ELSEWHERE)]
    assert len(files) > 400
    found = {str(file.relative_to(TESTS)): faults(file.read_text("utf-8")) for file in files}
    assert {name: each for name, each in found.items() if each} == {}


def test_the_rule_finds_what_breaks_it() -> None:
    broken = {
        "from tests.app.test_window import nameless": "tests.app.test_window is a test",
        "from tests.app import test_window": "tests.app.test_window is a test",
        "def f():\n    import test_window as w": "test_window is a test",
        "from toy_engine import Listener": "toy_engine is a helper without its full name",
        "import toy_engine": "toy_engine is a helper without its full name",
        "from .toy_engine import Listener": ".toy_engine is relative",
    }
    for source, fault in broken.items():
        assert faults(source, {"toy_engine"})[0] == fault
    assert faults("import torch, json\nfrom tests.engine.loop.toy_engine import ToyEngine\nfrom app import x") == []


def test_no_folder_of_tests_stands_on_the_path() -> None:
    options = tomllib.loads((TESTS.parent / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    assert "pythonpath" not in options
    assert "--import-mode=importlib" in options["addopts"].split()
