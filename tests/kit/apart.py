"""A test in a process of its own, whose garbage collector sees little but what the test makes.

In the suite's own processes a collection looks at a million objects of other tests, and what they have made is kept out
of it (tests/kit/collector.py), so that nothing can be told there of what a load freezes and of what a model leaves.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tests.kit import forked


def apart(test: Callable[..., None]) -> Callable[..., None]:
    """The test, run in a process that is forked for it. Its arguments are paths; it gets no fixtures but these."""

    @functools.wraps(test)
    def run(**paths: Path) -> None:
        given = json.dumps({name: str(path) for name, path in paths.items()})
        done = forked.run([sys.executable, "-m", __name__, test.__module__, test.__name__, given])
        assert done.returncode == 0, done.stderr

    return run


if __name__ == "__main__":
    _module, _name, _given = sys.argv[1:]
    _test = getattr(import_module(_module), _name).__wrapped__
    _test(**{name: Path(path) for name, path in json.loads(_given).items()})
