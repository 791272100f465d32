"""The faults fit the code, and the script that injects them says what is found."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import table
from tests.faults.__main__ import ROOT, main, stale
from tests.faults.fault import Fault
from tests.faults.list import FAULTS
from tests.faults.nearness import Imports
from tests.faults.table import Row

LEAST = {
    "cache": 5, "scheduler": 4, "verifier": 5, "sampling": 3, "formats": 6, "kernels": 5, "server": 6, "window": 3,
    "history": 3, "downloads": 4, "text": 2,
}  # fmt: skip
"""Faults of each kind below which a comparison of two suites says little."""
FILES = {
    "engine/__init__.py": "",
    "engine/pages.py": "def pages_for(tokens):\n    return -(-tokens // 16)\n\n\ndef unseen():\n    return 1\n",
    "engine/tree.py": "from engine.pages import pages_for\n\n\ndef held(tokens):\n    return pages_for(tokens)\n",
    "app/__init__.py": "",
    "tests/engine/test_pages.py": (
        "from engine.pages import pages_for\n\n\ndef test_whole():\n    assert pages_for(32) == 2\n\n\n"
        "def test_begun():\n    assert pages_for(33) == 3\n"
    ),
    "tests/test_far.py": "from engine.tree import held\n\n\ndef test_held():\n    assert held(33) == 3\n",
    "tests/test_other.py": "def test_nothing():\n    pass\n",
    "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['long: slow']\n",
}


def fault(name: str, old: str, new: str) -> Fault:
    return Fault(name, "pages", "engine/pages.py", old, new, "A page is missing.", "here")


FOUND = fault("found", "-(-tokens // 16)", "tokens // 16")
UNFOUND = fault("unfound", "return 1", "return 2")
STALE = fault("stale", "tokens // 17", "tokens // 18")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small program and its tests, in git."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path / "checkout"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "add", "."], check=True)
    return root


def content(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def test_each_fault_still_fits_the_code() -> None:
    assert stale(FAULTS, ROOT) == []


def test_the_faults_are_of_all_kinds() -> None:
    kinds, names = Counter(fault.kind for fault in FAULTS), [fault.name for fault in FAULTS]
    assert {kind: least for kind, least in LEAST.items() if kinds[kind] < least} == {}
    assert len(set(names)) == len(names)


def test_a_fault_without_its_text_is_stale(checkout: Path) -> None:
    twice = fault("twice", "return", "yield")
    missing = FOUND._replace(name="missing", file="engine/gone.py")
    assert [line.partition(":")[0] for line in stale([FOUND, STALE, twice, missing], checkout)] == [
        "stale", "twice", "missing",
    ]  # fmt: skip


def test_nothing_runs_while_a_fault_is_stale(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "table.md"
    assert main(["--out", str(out)], (FOUND, STALE), checkout) == 2
    assert not out.exists()
    assert "stale: its old text occurs 0 times" in capsys.readouterr().err


def test_the_nearest_tests_come_first(checkout: Path) -> None:
    assert Imports(checkout).tests_of("engine/pages.py") == ["tests/engine/test_pages.py", "tests/test_far.py"]
    assert Imports(checkout).tests_of("engine/tree.py") == ["tests/test_far.py"]


def test_a_process_that_a_test_names_is_an_import(checkout: Path) -> None:
    (checkout / "tests" / "test_other.py").write_text('"""engine.pages"""\nCOMMAND = ["-m", "engine.pages"]\n')
    (checkout / "tests" / "test_more.py").write_text('FAKE = "fake.py"\n')
    (checkout / "tests" / "fake.py").write_text("import engine.tree\n")
    (checkout / "tests" / "test_words.py").write_text('"""engine.pages"""\n')
    assert set(Imports(checkout).tests_of("engine/pages.py")) == {
        "tests/engine/test_pages.py", "tests/test_far.py", "tests/test_more.py", "tests/test_other.py",
    }  # fmt: skip


@pytest.mark.slow
def test_what_a_test_finds_and_what_none_finds(checkout: Path, tmp_path: Path) -> None:
    before, out = content(checkout), tmp_path / "table.md"
    named = FOUND._replace(name="named", origin="tests/test_far.py::test_held")
    assert main(["--out", str(out)], (FOUND, UNFOUND, named), checkout) == 1
    rows = table.read(out)
    assert rows["found"].found == "tests/engine/test_pages.py::test_begun"
    assert rows["named"].found == "tests/test_far.py::test_held", "its origin is asked first"
    assert (rows["unfound"].found, rows["unfound"].note) == ("", "2 files")
    assert content(checkout) == before


@pytest.mark.long
def test_a_test_that_fails_anyway_has_found_nothing(checkout: Path, tmp_path: Path) -> None:
    with (checkout / "tests/engine/test_pages.py").open("a") as file:
        file.write("\n\ndef test_begun():\n    assert not pages_for(33)\n")
    out = tmp_path / "table.md"
    assert main(["--out", str(out)], (FOUND,), checkout) == 0
    assert table.read(out)["found"].found == "tests/test_far.py::test_held"


@pytest.mark.long
def test_the_tests_of_a_commit_and_of_another_checkout(checkout: Path, tmp_path: Path) -> None:
    git = ["git", "-C", str(checkout), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "commit", "-q", "-m", "All tests"], check=True)
    smaller, old, new = tmp_path / "smaller", tmp_path / "old.md", tmp_path / "new.md"
    shutil.copytree(checkout, smaller)
    for name in ("tests/engine/test_pages.py", "tests/test_far.py"):
        for root in (checkout, smaller):
            (root / name).unlink()
    assert main(["--suite", "HEAD", "--out", str(old)], (FOUND,), checkout) == 0
    assert main(["--tests", str(smaller), "--out", str(new)], (FOUND,), checkout) == 1
    assert main(["--compare", str(old), str(new)]) == 1
    assert main(["--compare", str(new), str(old)]) == 0


@pytest.mark.long
def test_a_test_that_takes_the_process_with_it_or_never_ends(checkout: Path, tmp_path: Path) -> None:
    with (checkout / "tests/engine/test_pages.py").open("a") as file:
        file.write(
            "\n\ndef test_dies():\n    import os\n\n    from engine.pages import unseen\n\n    while unseen() == 3:\n"
            "        pass\n    if unseen() == 2:\n        os.abort()\n"
        )
    endless, out = fault("endless", "return 1", "return 3"), tmp_path / "table.md"
    assert main(["--out", str(out), "--limit", "4"], (UNFOUND, endless), checkout) == 1
    rows = table.read(out)
    assert rows["unfound"].found == "tests/engine/test_pages.py::test_dies"
    assert (rows["endless"].found, rows["endless"].note) == ("", "2 files, cut off by the limit")
    assert main(["--out", str(out), "--patience", "1"], (endless,), checkout) == 0
    assert table.read(out)["endless"].found == "tests/engine/test_pages.py::test_dies"


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = [
        Row("one", "cache", "A | of two.", "tests/test_one.py::test_it[a | b-`c`]", 3.0),
        Row("two", "text", "All is lost.", "", 12.0, "6 files"),
    ]
    out = tmp_path / "table.md"
    table.write(out, rows)
    assert list(table.read(out).values()) == rows
    assert table.read(tmp_path / "none.md") == {}


def test_a_comparison_names_what_is_lost() -> None:
    def found(*names: str) -> dict[str, Row]:
        return {name: Row(name, "cache", "It is lost.", "" if name == "c" else f"test_{name}", 1.0) for name in names}

    text, lost = table.compare(found("a", "b"), {**found("a"), "b": Row("b", "cache", "It is lost.", "", 1.0)})
    assert lost == ["b"]
    assert "| b | `test_b` | no |" in text
    assert table.compare(found("a", "c"), found("c"))[1] == ["a"]
    assert table.compare(found("c"), found("a", "c"))[1] == []
