"""What loads models keeps nothing in the user's folders, and tells a listener."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.kit.listener import Listener


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def heard() -> Listener:
    torch.set_num_threads(1)
    return Listener()
