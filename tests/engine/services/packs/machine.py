"""`kvasir …` on a machine with a GPU of NVIDIA's: ``python machine.py gpu install``.

Settings of the tests are in variables whose names begin with PACK_TEST_.
"""

import os
import shutil
import sys

from engine.base import installation
from engine.base.fetching import download, room
from engine.doors.cli import main
from engine.services.packs import gpus, make, store

SETTINGS = {
    name.removeprefix("PACK_TEST_"): value for name, value in os.environ.items() if name.startswith("PACK_TEST_")
}
PAUSES = (0.05, 0.05, 0.05)
FOUND = gpus.Gpu("nvidia", "NVIDIA Test 4090", SETTINGS.get("DRIVER", "580.95.05"), (8, 9))


def uv() -> object:
    if SETTINGS["UV"]:
        return SETTINGS["UV"]
    sys.executable = "/nowhere/python"
    shutil.which = lambda name: None
    return real_uv()


def as_on_that_machine() -> None:
    gpus.probe = lambda: [FOUND]
    download.PAUSES = PAUSES
    store.LOCK_WAIT = float(SETTINGS.get("LOCK_WAIT", "0.2"))
    if "LAUNCH" in SETTINGS:
        python = str(installation.python())
        installation.pack_command = lambda folder: [python, "-I", "-S", SETTINGS["LAUNCH"], str(folder)]
    if "UV" in SETTINGS:
        make.find_uv = uv
    if "ROOM" in SETTINGS:
        room.room_for = lambda folder, needed, what: None
    if "PYTHONPATH" in SETTINGS:
        os.environ["PYTHONPATH"] = SETTINGS["PYTHONPATH"]
        os.environ["PYTHONHOME"] = SETTINGS["PYTHONPATH"]


real_uv = make.find_uv
if __name__ == "__main__":
    as_on_that_machine()
    sys.argv[0] = "kvasir"
    main.main()
