"""What is skipped while its sources are unchanged, what selects it again, and that it is told."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit import content
from tests.kit.content import REASON, Content

ROOT = Path(__file__).parents[2]
FILES = {
    "engine/__init__.py": "",
    "engine/kernel.py": "FACTOR = 2\n",
    "engine/launch.py": "def launch(x):\n    from engine.kernel import FACTOR\n    return FACTOR * x\n",
    "engine/families/one.py": "import engine.part\n",
    "engine/part.py": "",
    "engine/protocol/keys.py": "",
    "engine/other.py": "",
    "tests/conftest.py": "import engine.protocol.keys\n",
    "tests/somewhere/helper.py": "NUMBERS = range(6)\n",
    "tests/floor/test_kernel.py": """
import pytest
from helper import NUMBERS
import engine.launch

pytestmark = pytest.mark.content("engine/families")

@pytest.mark.always("kind")
@pytest.mark.parametrize("kind", ["a", "b"])
@pytest.mark.parametrize("number", NUMBERS)
def test_products(kind, number):
    assert engine.launch.launch(number) == number + number

@pytest.mark.long
@pytest.mark.parametrize("number", NUMBERS)
def test_more(number):
    pass

@pytest.mark.always
@pytest.mark.parametrize("number", [1, 2])
def test_both(number):
    pass

@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.always)])
def test_one(number):
    pass
""",
    "pytest.ini": """[pytest]
markers = long
pythonpath = . tests/somewhere
addopts = -p tests.kit.content -p no:cacheprovider
""",
}
UNTESTED = ("engine/protocol/keys.py", "engine/other.py")
TEST = "tests/floor/test_kernel.py"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository with a kernel of two kinds."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def hash_of(tree: Path) -> str:
    return Content(tree).hash(tree / TEST, ["engine/families"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(set(FILES) - {"pytest.ini"})), st.data())
def test_one_byte_of_what_is_tested_changes_the_hash(tree: Path, name: str, data: st.DataObject) -> None:
    """Of the test file, its helpers, the kernel, what launches it, what is named; and of nothing else."""
    before, text = hash_of(tree), (tree / name).read_bytes()
    place, byte = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 255))
    (tree / name).write_bytes(text[:place] + bytes([byte]) + text[place:])
    assert (hash_of(tree) != before) == (name not in UNTESTED)
    (tree / name).write_bytes(text)
    assert hash_of(tree) == before


def test_versions_are_in_the_hash(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is imported from elsewhere, and Python's; a package that comes or goes is another version."""
    (tree / "engine/part.py").write_text("import torch\n")
    found = [hash_of(tree)]
    for version in ("1.0", "1.1"):
        monkeypatch.setattr(
            content, "_version", lambda module, version=version: (module, version * (module == "torch"))
        )
        found.append(hash_of(tree))
    monkeypatch.setattr(sys, "version_info", (3, 99))
    found.append(hash_of(tree))
    assert len(set(found)) == 4
    assert Content(tree).sources(tree / TEST, ["engine/families"])[1] == {"pytest", "torch"}


def test_a_name_without_sources_is_refused(tree: Path) -> None:
    with pytest.raises(FileNotFoundError, match="engine/nowhere"):
        Content(tree).hash(tree / TEST, ["engine/nowhere"])


def run(tree: Path, *options: str, module: str = "pytest") -> tuple[dict[str, int], str]:
    """How many cases passed, failed, were skipped and so on; and the lines that tell of unchanged ones."""
    command = [sys.executable, "-m", module, *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    last = re.findall(r"(\d+) (passed|failed|skipped|deselected)", done.stdout.splitlines()[-1])
    return {what: int(count) for count, what in last}, "".join(re.findall(rf".*cases skipped, {REASON}.*", done.stdout))


QUICK = ("-q", "-m", "not long")
ALL, FEW = {"passed": 16, "deselected": 6}, {"passed": 5, "skipped": 11, "deselected": 6}


@pytest.mark.slow
def test_cases_are_skipped_once_recorded_and_run_again_when_a_byte_changes(tree: Path) -> None:
    assert run(tree, *QUICK) == (ALL, "")
    assert run(tree, TEST, module="tests.kit.content") == (ALL, "")
    assert json.loads((tree / content.RECORD).read_text()) == {TEST: hash_of(tree)}
    told = f"cases skipped, {REASON}: 11 (`make test-all` runs them)"
    assert run(tree, *QUICK) == (FEW, told)
    assert run(tree, *QUICK, "-p", "xdist", "-n", "2", "--dist", "loadfile")[1] == told
    assert run(tree, "-q") == ({"passed": 22}, "")
    assert run(tree, *QUICK, "--unchanged") == (ALL, "")
    kernel = tree / "engine/kernel.py"
    kernel.write_text(kernel.read_text().replace("2", "3"))
    failed = {"passed": 6, "failed": 10, "deselected": 6}
    assert run(tree, *QUICK) == (failed, "")
    assert run(tree, TEST, module="tests.kit.content") == (failed, "")
    assert json.loads((tree / content.RECORD).read_text()) != {TEST: hash_of(tree)}, "what fails is not recorded"


@pytest.mark.parametrize("text", ["", "<<<<<<< ours", "[]", '{"tests/floor/test_kernel.py": "another hash"}'])
def test_a_damaged_record_skips_nothing(tree: Path, text: str) -> None:
    (tree / content.RECORD).write_text(text)
    assert content.recorded(tree).get(TEST) != hash_of(tree)


def test_every_triton_kernel_is_what_marked_cases_test() -> None:
    """Each file that holds one; so its cases are selected when it changes."""
    kernels = {path for path in (ROOT / "engine").rglob("*.py") if "@triton.jit" in path.read_text("utf-8")}
    assert len(kernels) > 10
    found = Content(ROOT)
    marked = content.marked_files(ROOT)
    assert kernels <= set().union(*(found.sources(path)[0] for path in marked))
    assert all("pytest.mark.always" in path.read_text("utf-8") for path in marked)
    assert set(content.recorded(ROOT)) <= {path.relative_to(ROOT).as_posix() for path in marked}
