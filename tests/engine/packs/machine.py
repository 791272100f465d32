"""`kvasir …` on a machine with a GPU of NVIDIA's: ``python machine.py gpu install``.

``PACK_TEST_DRIVER`` is its driver's version; ``PACK_TEST_LAUNCH`` a script in place of the one that starts a pack.
"""

import os
import sys
from pathlib import Path

from engine.cli import main
from engine.packs import download, gpus, make, store

FOUND = [gpus.Gpu("nvidia", "NVIDIA Test 4090", os.environ.get("PACK_TEST_DRIVER", "580.95.05"), (8, 9))]


def as_on_that_machine() -> None:
    gpus.probe = lambda: FOUND
    download.PAUSES = (0.05, 0.05)
    store.LOCK_WAIT = 0.5
    if launch := os.environ.get("PACK_TEST_LAUNCH"):
        make.launcher = lambda: Path(launch)


if __name__ == "__main__":
    as_on_that_machine()
    sys.argv[0] = "kvasir"
    main.main()
