"""The garbage collector passes over what was imported and collected before a file's tests: millions of objects.

Each load of a model collects twice, for over a second in a whole run, unless they are frozen. The engine freezes and
thaws too, at each load: that does nothing while tests run, but where `tests/engine/loading/test_memory_back.py` tests
it.
"""

from __future__ import annotations

import gc

import pytest

freeze, unfreeze = gc.freeze, gc.unfreeze


@pytest.fixture(scope="module", autouse=True)
def imports_stay() -> None:
    """Frozen anew for each file, since tests import too; by then what the last file made is garbage."""
    gc.freeze = gc.unfreeze = lambda: None
    gc.collect()
    freeze()
