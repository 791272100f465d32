"""A small process that speaks `kvasir gpu … --json` about a pack that is a number in a file.

    python fake_gpu.py STATE.json COMMAND… --json

STATE.json holds {"total": BYTES, "done": BYTES, "state": …, and any field of PackStatus}; what is asked for is written
to "asked" there. "script" tells it how to go wrong: "fail" in the middle of the download, "die" there without a word,
"slow" waits at a half for a signal, "deaf" ignores it; "hang" is a status that does. Each works once.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, os.getcwd())  # it runs as a script, from the repository's root

from engine import protocol as p

CHUNK = 10


def say(report: p.Message) -> None:
    print(p.encode(report), flush=True)


class Pack:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts = json.loads(path.read_text())

    def save(self, **facts: object) -> None:
        self.facts.update(facts)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.facts))
        new.replace(self.path)

    def take(self, name: str) -> bool:
        """Whether the script says so, for the last time."""
        if self.facts.get("script") != name:
            return False
        self.save(script="")
        return True

    def status(self) -> None:
        facts = {name: value for name, value in self.facts.items() if name in p.PackStatus.__struct_fields__}
        left = self.facts["total"] - self.facts["done"]
        say(p.PackStatus(**{"download_bytes": left, **facts}))

    def install(self) -> None:
        say(p.PackProgress(stage="checking", sentence="Looking for what fits."))
        total = self.facts["total"]
        while self.facts["done"] < total:
            self.save(done=min(total, self.facts["done"] + CHUNK), state="partial")
            say(p.PackProgress(stage="downloading", done=self.facts["done"], total=total))
            if self.facts["done"] * 2 >= total:
                self.misbehave()
        say(p.PackProgress(stage="installing", done=1, total=2, sentence="Unpacking."))
        self.test()

    def test(self) -> None:
        say(p.PackProgress(stage="testing", sentence="One product on the GPU."))
        self.save(state="installed", active=True, reason="", notice="")
        say(p.PackResult(ok=True, sentence="The GPU pack is installed and works on Fake GPU."))

    def misbehave(self) -> None:
        if self.take("fail"):
            say(p.PackResult(ok=False, sentence="The connection was cut. Connect to the network, then try again."))
            sys.exit(1)
        if self.take("die"):
            print("Killed by the script", file=sys.stderr, flush=True)
            os._exit(9)
        deaf = self.take("deaf")
        if deaf:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if deaf or self.take("slow"):
            time.sleep(60)


def main() -> None:
    state, command, *rest = sys.argv[1:]
    pack = Pack(Path(state))
    if command == "status":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if pack.take("hang"):
            time.sleep(60)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        pack.status()
        return
    pack.save(asked=[*pack.facts.get("asked", []), [command, *rest]])
    if command == "remove":
        named = [folder for folder in rest if folder != "--json"]
        if named:
            pack.save(others=[folder for folder in pack.facts["others"] if folder not in named])
        else:
            pack.save(state="none", active=False, done=0, others=[])
        say(p.PackResult(ok=True, sentence="The GPU pack was removed."))
        return
    if command == "check":
        pack.test()
        return
    pack.install()


if __name__ == "__main__":
    main()
