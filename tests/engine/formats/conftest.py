from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import save_file

from tests.engine.formats.sound_folders import CONFIG, tensors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound checkpoint."""
    save_file(tensors(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path
