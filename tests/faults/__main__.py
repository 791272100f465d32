"""Inject faults into a copy of the tree, one at a time, and say which test finds each.

    python -m tests.faults                          all faults, the tests of this checkout, the table in docs/faults.md
    python -m tests.faults --only cache --near 6    one kind (or name), the six nearest test files
    python -m tests.faults --suite COMMIT --out OLD.md
    python -m tests.faults --compare OLD.md docs/faults.md

The exit status is 1 where a fault is not found (of a comparison: where the old suite alone finds one), and 2 where the
code has gone on without a fault, whose old text then does not occur exactly once.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.faults import table
from tests.faults.fault import Fault, Stale
from tests.faults.list import FAULTS
from tests.faults.nearness import Imports
from tests.faults.suite import Suite, Verdict
from tests.faults.table import Row
from tests.faults.tree import Tree

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "docs" / "faults.md"
LIMIT = 300
PATIENCE = 60


def stale(faults: Sequence[Fault], root: Path) -> list[str]:
    """What is wrong with those whose old text is not in its file, or not once."""
    wrong = []
    for fault in faults:
        try:
            file = root / fault.file
            fault.applied(file.read_text("utf-8") if file.is_file() else "")
        except Stale as error:
            wrong.append(str(error))
    return wrong


def find(
    faults: Sequence[Fault], tree: Tree, suite: Suite, near: int, out: Path, known: dict[str, Row]
) -> dict[str, Row]:
    """Inject each fault and write the table ``out`` after each, in which the ``known`` rows of others stay. The rows
    of these faults. First come the test that found a fault before (``known``) and those that its origin names."""
    imports, mine = Imports(tree.folder), dict[str, Row]()
    before = {name: row.found for name, row in known.items()}
    asked = list(faults)
    while asked:
        for fault in asked:
            row = _row(fault, _tried(fault, imports, tree, suite, near, before.get(fault.name, "")))
            known[fault.name] = mine[fault.name] = row
            table.write(out, known.values())
            print(f"{fault.name}: {row.found or f'not found, {row.note}'} ({row.seconds:.0f} s)", flush=True)
        # A test that fails without the fault has not found it: another may.
        unsound = suite.failing({mine[fault.name].found for fault in asked} - {""})
        suite.untrusted |= unsound
        asked = [fault for fault in asked if mine[fault.name].found in unsound]
        for test in sorted(unsound):
            print(f"{test} fails without a fault, too", flush=True)
    return mine


def _tried(fault: Fault, imports: Imports, tree: Tree, suite: Suite, near: int, before: str) -> Verdict:
    """``before``: the test that comes first, if it is still there; then its file, those of the fault's origin, of which
    a commit has several, and the ``near`` nearest. A test that the origin names comes before its file, too."""
    there = [file for file in imports.tests_of(fault.module or fault.file) if file not in suite.untrusted]
    file_before, origins = before.partition("::")[0], _named_by(fault.origin, tree.folder)
    first = sorted(
        (file for file in there if file == file_before or Path(file).name in origins),
        key=lambda file: file != file_before,
    )
    origin = [f"{file}::{fault.origin}" for file in first] if fault.origin.startswith("test_") else [fault.origin]
    named = [test.partition("[")[0] for test in (before, *origin) if "::" in test and test.partition("::")[0] in there]
    nearest = [file for file in there if file not in first]
    with tree.injected(fault):
        return suite.first_failure([*first, *nearest[: near or None]], named)


def _named_by(origin: str, root: Path) -> set[str]:
    """Names of the test files that a fault's origin names: a path, the file of a test, those that a commit changed."""
    if origin.startswith("test_"):
        return {
            path.name for path in (root / "tests").rglob("test_*.py") if f"def {origin}(" in path.read_text("utf-8")
        }
    if not re.fullmatch(r"[0-9a-f]{7,40}", origin):
        return {Path(origin.partition("::")[0]).name}
    command = ["git", "show", "--name-only", "--format=", origin]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return {name for line in said.splitlines() if (name := Path(line).name).startswith("test_")}


def _row(fault: Fault, verdict: Verdict) -> Row:
    note = f"{verdict.files} files{'' if verdict.whole else ', cut off by the limit'}"
    return Row(fault.name, fault.kind, fault.breaks, verdict.test, verdict.seconds, note)


def _compared(old: Path, new: Path) -> int:
    text, lost = table.compare(table.read(old), table.read(new))
    print(text)
    for name in lost:
        print(f"Found by the old suite alone: {name}", file=sys.stderr)
    return 1 if lost else 0


def main(arguments: Sequence[str] | None = None, faults: Sequence[Fault] = FAULTS, root: Path = ROOT) -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these faults or kinds of faults")
    parser.add_argument(
        "--missing", action="store_true", help="only faults that the table lacks or that were not found"
    )
    parser.add_argument("--near", type=int, default=0, metavar="N", help="only the N nearest test files (0: all)")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"CPU seconds for each fault ({LIMIT})")
    parser.add_argument("--marks", default="not long", help='which tests, as pytest\'s -m has it ("not long")')
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, metavar="S", help=f"seconds that a test may take ({PATIENCE})"
    )
    parser.add_argument("--out", type=Path, default=OUT, metavar="TABLE.md", help="where the table is (docs/faults.md)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--tests", type=Path, metavar="CHECKOUT", help="the tests of another checkout")
    where.add_argument("--suite", metavar="COMMIT", help="the tests as they were at a commit")
    parser.add_argument("--list", action="store_true", help="name the faults and run nothing")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD.md", "NEW.md"), help="compare two tables")
    told = parser.parse_args(arguments)
    if told.compare:
        return _compared(*told.compare)
    known = {name: row for name, row in table.read(told.out).items() if name in {fault.name for fault in faults}}
    chosen = [fault for fault in faults if not told.only or {fault.name, fault.kind} & set(told.only)]
    if told.missing:
        chosen = [fault for fault in chosen if not (fault.name in known and known[fault.name].found)]
    if told.list:
        print("\n".join(f"{fault.name} ({fault.kind}, {fault.file}): {fault.breaks}" for fault in chosen))
        return 0
    if wrong := stale(chosen, root):
        print("\n".join(wrong), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="kvasir-faults-") as folder:
        tree = Tree(root, Path(folder, "tree"))
        if told.tests:
            tree.use_suite_of(told.tests)
        elif told.suite:
            tree.use_suite_at(root, told.suite)
        suite = Suite(tree.folder, told.limit, told.patience, ["-m", told.marks])
        found = find(chosen, tree, suite, told.near, told.out, known)
    return 0 if all(row.found for row in found.values()) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the tests that run are ended, too
    sys.exit(main())
