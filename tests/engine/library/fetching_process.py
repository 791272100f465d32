"""Works on the whole queue, three at once, as a process that may be killed: ``python fetching_process.py``."""

import sys

import keyring
from keyring.backends import fail

from engine.base.fetching import download
from engine.library import downloads

keyring.set_keyring(fail.Keyring())
download.PAUSES = (0.05, 0.05)
ended = []
working = downloads.Downloads(ended.append, 3)
sys.stdout.write("started\n")
sys.stdout.flush()
for job in downloads.queue():
    working.start(job)
working.finish()
sys.exit(any(told.state == "failed" for told in ended))
