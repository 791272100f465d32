"""Which test files may notice a change of a file, the nearest and cheapest first, by the imports of the whole tree."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

_MODULE = re.compile(r"\b(?:app|engine|tests)(?:\.\w+)+")
_OWN = "tests/faults/"


class Imports:
    """``of[file]`` are the files of the tree that a file imports, anywhere in it; all are paths from its root.

    A test also imports the ``conftest.py`` of its folders, modules that its strings name, which it starts as processes,
    and files next to it that its strings name. What is imported for type checkers alone does not count.
    """

    def __init__(self, root: Path) -> None:
        files = [path.relative_to(root).as_posix() for path in root.rglob("*.py") if ".venv" not in path.parts]
        self._modules = {_module_name(file): file for file in files}
        self._stems: dict[str, list[str]] = {}
        for file in files:
            self._stems.setdefault(PurePosixPath(file).stem, []).append(file)
        self.of = {file: self._imported(file, root / file) for file in sorted(files)}
        self._by: dict[str, set[str]] = {file: set() for file in files}
        for file, imported in self.of.items():
            for other in imported:
                self._by[other].add(file)

    def tests_of(self, file: str) -> list[str]:
        """Test files that import the file in any number of steps. First those of its own name or of the folder that
        mirrors its own, then others that import it themselves, then all others; among equals those that import it
        themselves, those that are fewer steps away, and those that import less. Raises KeyError for a file that is not
        there."""
        path, steps = PurePosixPath(file), _distances(file, self._by)
        tests = [each for each in steps if _is_test(each) and not each.startswith(_OWN)]

        def place(test: str) -> tuple[bool, bool, int, int, str]:
            here = PurePosixPath(test)
            near = here.stem == f"test_{path.stem}" or here.is_relative_to("tests" / path.parent)
            direct = steps[test] == 1
            return not (near or direct), not near, steps[test], len(_distances(test, self.of)), test

        return sorted(tests, key=place)

    def _imported(self, file: str, path: Path) -> set[str]:
        names = set(_names(ast.parse(path.read_text("utf-8"))))
        found = {other for name in names for other in self._files(name, file)}
        folder = PurePosixPath(file).parent
        if file.startswith("tests/"):
            strings = list(_strings(ast.parse(path.read_text("utf-8"))))
            for name in {name for text in strings for name in _MODULE.findall(text)}:
                found |= set(self._files(name, file))
            found |= {str(folder / text) for text in strings} & set(self._modules.values())
            found |= {str(each / "conftest.py") for each in (folder, *folder.parents)} & set(self._modules.values())
        return found - {file}

    def _files(self, name: str, importer: str) -> Iterator[str]:
        """The file of a module (or of one that has ``name`` as an attribute) and those of the packages around it."""
        parts = name.split(".")
        if parts[0] not in ("app", "engine", "tests"):  # a file of the importer's folder, or of one on the path
            stems = self._stems.get(parts[0], [])
            beside = str(PurePosixPath(importer).parent / f"{parts[0]}.py")
            yield from [beside] if beside in stems else [stem for stem in stems if stem.startswith("tests/")]
            return
        if parts[-1] == "*":  # by a name that is not known before it runs
            yield from (file for module, file in self._modules.items() if module.startswith(name[:-1]))
        for count in range(1, len(parts) + 1):
            if file := self._modules.get(".".join(parts[:count])):
                yield file


def _module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _is_test(file: str) -> bool:
    return file.startswith("tests/") and PurePosixPath(file).name.startswith("test_")


def _distances(start: str, edges: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """The number of steps to each file that can be reached."""
    found, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        for there in edges[here]:
            if there not in found:
                found[there] = found[here] + 1
                queue.append(there)
    return found


def _names(tree: ast.AST) -> Iterator[str]:
    """What is imported; of ``import_module(f"a.b.{name}")`` "a.b.*"."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=rest):
                for each in rest:
                    yield from _names(each)
                continue
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str() as module, names=names):
                yield from (f"{module}.{each.name}" for each in names)
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.JoinedStr(values=[ast.Constant(value=str() as start), *_])],
            ):
                yield start + "*"
        yield from _names(node)


def _strings(tree: ast.AST) -> Iterator[str]:
    """The strings of a file that are no docstrings."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        yield from _strings(node)
