"""A format of packed weights in one folder: BitNet's, with its layout, its linear layer and a maker of random files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.base.errors import CheckpointError
from engine.formats.open import open_checkpoint
from tests.conformance.engine_support import Ours
from tests.extending.bitnet import files
from tests.extending.bitnet.make import write_bitnet
from tests.extending.busy_engine import PROMPTS, check, write_model


@pytest.mark.slow
def test_a_format(tmp_path: Path) -> None:
    packed, dense = write_model(tmp_path / "packed"), tmp_path / "dense"
    write_bitnet(packed, dense)
    with pytest.raises(CheckpointError, match="'bitnet', which Kvasir does not read"):
        open_checkpoint(packed)
    files.register()
    assert torch.allclose(Ours(packed).logits(PROMPTS[:1])[0], Ours(dense).logits(PROMPTS[:1])[0], atol=1e-4)
    loaded = check(packed, {}).engine.loaded
    assert loaded is not None
    assert {linear.kind for name, linear in loaded.model.linears() if name != "head"} == {"ternary"}
    assert loaded.card.quantisation == "BITNET 2-bit, one group per column"
