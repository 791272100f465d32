from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from hub_server import Hub, Repository
from keyring.backends import fail

from engine.fetching import download


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
    make = random.Random(0).randbytes
    hub.repositories = {
        "some/model-GGUF": Repository(
            {
                "README.md": b"# A model\n",
                "model-Q4_K_M.gguf": make(300_000),
                "Q8_0/model-Q8_0-00001-of-00002.gguf": make(200_000),
                "Q8_0/model-Q8_0-00002-of-00002.gguf": make(250_000),
                "mmproj-model-F16.gguf": make(50_000),
            },
            tags=["gguf", "license:apache-2.0"],
            gguf={"total": 8_000_000_000, "architecture": "qwen3"},
        ),
        "some/model": Repository(
            {
                "config.json": b'{"architectures": ["Qwen3ForCausalLM"]}',
                "tokenizer.json": make(20_000),
                "model-00001-of-00002.safetensors": make(400_000),
                "model-00002-of-00002.safetensors": make(100_000),
                "model.safetensors.index.json": b"{}",
                "original/consolidated.00.pth": make(2000),
                "pytorch_model.bin": make(2000),
            },
            tags=["safetensors", "license:mit"],
            config={"architectures": ["Qwen3ForCausalLM"], "quantization_config": {"quant_method": "gptq"}},
            safetensors={"parameters": {"I32": 10, "BF16": 20}, "total": 30},
            downloads=99,
        ),
        "closed/model": Repository({"config.json": b"{}", "model.safetensors": make(5000)}, gated=True),
    }
    yield hub
    hub.close()
