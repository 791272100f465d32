from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def whole_transformers() -> Iterator[None]:
    """transformers with `assistant_models.sharing_modes`."""
    import transformers

    from tests.conformance.assistant_models import sharing_modes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformers.Gemma4TextConfig, "kv_sharing_modes", property(sharing_modes))
        yield
