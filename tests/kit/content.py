"""Cases that `make test` runs only where what they test has changed since they last passed: those of kernels, and long
histories, simulations and laws of fixed seeds.

``pytestmark = pytest.mark.content("engine/compute/models/families")`` says so of a file's cases. They test that file,
the files and folders named, and all that these import, however indirectly, with the versions of what is imported from
elsewhere. A hash of it stands in tests/kernels.json, written by

    python -m tests.kit.content

which runs the files whose hash is another one and records those that pass. While the hash is the recorded one, `make
test` skips those of its cases that are not marked ``always``; every kernel has one that is, and so has every file. With
``always("kind")`` it is the first case of a function for each value of that argument. Without ``-m "not long"`` nothing
is skipped, as in `make test-all`.

Only files of the repository and installed versions decide. Where a file has no record, or one byte or version differs,
all its cases run. The processor is no part of the hash, so cases that run native code must not be marked, nor those
of Hypothesis, which tries other examples each time.

Cases are skipped, not deselected: workers of pytest-xdist report what they skip and not what they deselect, and what a
run leaves out has to be told at its end.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

REASON = "unchanged since they last passed"
RECORD = "tests/kernels.json"
NAMES = ("engine/catalogue/", "engine/protocol/")
"""Floors that are left out where only imports lead there: they name switches and messages, and compute nothing."""
SOURCES = (".py", ".c", ".h", ".json")


class Content:
    """Hashes of what the test files of the repository at ``root`` test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._tests: dict[str, list[Path]] = {}
        self._known: dict[tuple[str, ...], list[Path]] = {}
        for path in sorted((root / "tests").rglob("*.py")):
            self._tests.setdefault(path.stem, []).append(path)

    def sources(self, test: Path, named: Iterable[str] = ()) -> tuple[set[Path], set[str]]:
        """What a test file tests, and the names of what is imported from elsewhere.

        Raises FileNotFoundError for a name that is neither a file nor a folder.
        """
        given = [path for name in named for path in self._files(name)]
        waiting = [
            test,
            *given,
            *(folder / "conftest.py" for folder in test.parents if folder.is_relative_to(self.root)),
        ]
        found: set[Path] = set()
        elsewhere: set[str] = set()
        while waiting:
            path = waiting.pop()
            if path in found or not path.is_file() or (self._of_names(path) and path not in given):
                continue
            found.add(path)
            for name in imports(path.read_bytes()) if path.suffix == ".py" else ():
                if name not in self._known:
                    self._known[name] = list(self._modules(name))
                modules = self._known[name]
                waiting += modules
                if not modules:
                    elsewhere.add(name[0])
        return found, elsewhere - sys.stdlib_module_names

    def hash(self, test: Path, named: Iterable[str] = ()) -> str:
        """Of the content of all sources, the versions of other packages, and Python's."""
        found, elsewhere = self.sources(test, named)
        made = hashlib.sha256(repr((sys.version_info[:2], sorted(map(_version, elsewhere)))).encode())
        for path in sorted(found):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            made.update(f"{path.relative_to(self.root).as_posix()} {content}\n".encode())
        return made.hexdigest()

    def _files(self, name: str) -> list[Path]:
        place = self.root / name
        if place.is_file():
            return [place]
        found = sorted(path for path in place.rglob("*") if path.suffix in SOURCES)
        if not found:
            raise FileNotFoundError(f"{name} holds no sources")
        return found

    def _of_names(self, path: Path) -> bool:
        return path.relative_to(self.root).as_posix().startswith(NAMES)

    def _modules(self, name: tuple[str, ...]) -> Iterator[Path]:
        """Files that an import of a dotted name runs. A module of tests is found by its own name, wherever it lies."""
        for count in range(1, len(name) + 1):
            place = self.root.joinpath(*name[:count])
            for path in (place.with_suffix(".py"), place / "__init__.py"):
                if path.is_file():
                    yield path
        if not (self.root / name[0]).is_dir():
            yield from self._tests.get(name[0], ())


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """And what holds statements: imports and definitions are nowhere else."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        yield (node := waiting.pop())
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, field, ())


@cache
def imports(source: bytes) -> set[tuple[str, ...]]:
    """The dotted names that a Python source imports anywhere, ``from a import b`` as a.b; none of a broken one."""
    found: set[tuple[str, ...]] = set()
    try:
        nodes = list(statements(ast.parse(source)))
    except (SyntaxError, ValueError):
        return found
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {(*node.module.split("."), alias.name) for alias in node.names}
    return found


_distributions = cache(metadata.packages_distributions)


def _version(module: str) -> tuple[str, ...]:
    """The module with the versions of what installed it; the module alone where it is not installed."""
    return module, *sorted(f"{name} {metadata.version(name)}" for name in set(_distributions().get(module, ())))


def recorded(root: Path) -> dict[str, str]:
    """Hashes by test file, of what has passed; none where the record is missing or damaged."""
    try:
        found = json.loads((root / RECORD).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def marked(items: Iterable[pytest.Item], root: Path) -> tuple[dict[str, list[pytest.Item]], dict[str, str]]:
    """By test file: its cases with the mark, and the hash of what they test."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("content"):
            cases.setdefault(item.path.relative_to(root).as_posix(), []).append(item)
    if not cases:
        return {}, {}
    content = Content(root)
    named = {file: {name for each in some for mark in each.iter_markers("content") for name in mark.args}
             for file, some in cases.items()}  # fmt: skip
    return cases, {file: content.hash(root / file, sorted(named[file])) for file in cases}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unchanged", action="store_true", help=f"run also cases of {REASON}")


def pytest_configure(config: pytest.Config) -> None:
    for mark in (
        "content(*names): run by make test where what it tests has changed",
        "always(*each): and these anyway",
    ):
        config.addinivalue_line("markers", f"{mark}; see tests.kit.content")


def skips(config: pytest.Config) -> bool:
    """Whether this run leaves out what has not changed: the short one does, where it is not asked for."""
    return "not long" in config.option.markexpr and not config.getoption("unchanged")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After the marks of the command line have chosen, so that the first of what is left represents the rest."""
    if not skips(config):
        return
    cases, hashes = marked(items, config.rootpath)
    known = recorded(config.rootpath)
    represented: set[tuple[str, ...]] = set()
    for file, some in cases.items():
        for item in some if known.get(file) == hashes[file] else ():
            if not _represents(item, represented):
                item.add_marker(pytest.mark.skip(reason=REASON))


def _represents(item: pytest.Item, represented: set[tuple[str, ...]]) -> bool:
    """Whether the mark ``always`` holds for this case; what it is the first of is added to ``represented``."""
    mark = item.get_closest_marker("always")
    if mark is None:
        return False
    kind = (item.nodeid.split("[")[0], *(repr(item.callspec.params[name]) for name in mark.args))  # type: ignore[attr-defined]
    first = kind not in represented
    represented.add(kind)
    return first or not mark.args


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for some in terminalreporter.stats.values() for report in some if hasattr(report, "when")]
    count = sum(report.skipped and REASON in str(report.longrepr) for report in reports)
    count += sum(
        value for report in reports if report.when == "call" for name, value in report.user_properties if name == REASON
    )
    if count:
        terminalreporter.write_line(f"cases skipped, {REASON}: {count} (`make test-all` runs them)")


def skipped_in(output: str) -> int:
    """How many cases another pytest, whose output this is, has skipped for that reason."""
    return sum(int(found) for found in re.findall(rf"^cases skipped, {REASON}: (\d+)", output, re.MULTILINE))


class Recorder:
    """A plugin that enters a run's files into the record when all their cases have passed."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.hashes = marked(session.items, session.config.rootpath)[1]

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        root = session.config.rootpath
        if exitstatus == 0:
            found = {file: each for file, each in (recorded(root) | self.hashes).items() if (root / file).is_file()}
            (root / RECORD).write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", "utf-8")


def marked_files(root: Path) -> list[Path]:
    """Test files with the mark."""
    files = sorted(path for path in (root / "tests").rglob("*.py") if path.parent.name != "kit")
    return [path for path in files if "pytest.mark.content" in path.read_text("utf-8")]


def main(files: list[str]) -> int:
    """Runs these files in this process, or without one every marked file in its own: the interpreter's want that."""
    if files:
        return int(pytest.main(["-q", "-m", "not long", *files], [Recorder()]))
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.kit.content"]
    return max(subprocess.run([*command, str(path)], cwd=root).returncode for path in marked_files(root))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
