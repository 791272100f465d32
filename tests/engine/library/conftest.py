from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backends import fail

from engine.base.fetching import download
from tests.hub_server import Hub, stock


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of the test's own, no keyring, and nobody else's models."""
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "kvasir"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "KVASIR_MODELS", "HF_TOKEN", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(download, "PAUSES", (0.01, 0.01))
    keyring.set_keyring(fail.Keyring())


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a model in GGUF (two kinds, one in two parts), one of safetensors, and a gated one."""
    hub = Hub()
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    hub.repositories = stock()
    yield hub
    hub.close()
