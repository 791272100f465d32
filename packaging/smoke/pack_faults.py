"""Installing a GPU pack where everything goes wrong on the way."""

from __future__ import annotations

import shutil
import signal
import threading
from pathlib import Path

from smoke import unpacked, wheels
from smoke.index import Hold, Index
from smoke.machine import DATA, HOME, LOW_LISTS, Machine, last_line
from smoke.sandbox import UID

SMALL_MB, ENOUGH_MB, LARGE_MB = 500, 800, 3000
"""Of the disk that is full: too small by what the list says, too small in truth, and large enough."""
FULL_DISK = """
user() { setpriv --reuid=$USER_ID --regid=$USER_ID --clear-groups env HOME=%(home)s USER=u LOGNAME=u "$@"; }
user mkdir -p "%(data)s"
mount -t tmpfs -o size=%(small)dm,uid=$USER_ID,gid=$USER_ID,mode=700 kvasir "%(data)s"
user "$@"; echo "ended with $?"; du -sm "%(data)s" | cut -f1; echo ----
mount -o remount,size=%(enough)dm "%(data)s"
user KVASIR_GPU_LISTS="%(low)s" "$@"; echo "ended with $?"; du -sm "%(data)s" | cut -f1; echo ----
mount -o remount,size=%(large)dm "%(data)s"
user "$@"; echo "ended with $?"; du -sm "%(data)s" | cut -f1
"""


def bad_lines(machine: Machine) -> None:
    """A file that is not what the list names."""
    report, index = machine.report, machine.index
    name = next(file.name for file in machine.files if file.name.startswith("sympy-"))
    index.spoilt.add(name)
    done, told = machine.gpu("install", "--kind", wheels.KIND)
    said = told.get("sentence", "")
    report.note(said)
    wrong = done.code == 1 and told.get("ok") is not True and name in said and "sha256" in said
    report.check(wrong, "a wheel with another hash is refused by its name", done.text[-600:])
    report.check("Traceback" not in done.text, "without a traceback", done.err[-1500:])
    report.check(machine.status()["state"] == "partial", "what was fetched before is kept")
    index.spoilt.clear()
    shutil.rmtree(machine.packs)
    index.forget()


def full_disk(machine: Machine) -> None:
    """The data folder on a disk that is too small, then on one that fills, then on one that is large enough."""
    report, index = machine.report, machine.index
    sizes = {"small": SMALL_MB, "enough": ENOUGH_MB, "large": LARGE_MB}
    script = FULL_DISK % {"home": HOME, "data": DATA, "low": LOW_LISTS, **sizes}
    install = [*machine.programs.kvasir, "gpu", "install", "--kind", wheels.KIND, "--json"]
    outer = machine.sandbox.with_env(USER_ID=str(UID))
    done = outer.run(["sh", "-c", script, "sh", *install], as_root=True, network=True, timeout=900.0)
    tries = done.out.split("----\n")
    if len(tries) != 3:
        raise RuntimeError(f"the small disk could not be tried: {done.text[-3000:]}")
    told = [last_line(text[: text.rindex("ended with")]) for text in tries]
    ends = [text[text.rindex("ended with") :].split() for text in tries]
    for line, end in zip(told, ends, strict=True):
        report.note(f"{line.get('sentence', '')} (exit code {end[2]}, {end[3]} MB taken)")
    report.check("Traceback" not in done.text, "a full disk shows no traceback", done.err[-1500:])
    refused = ends[0][2] == "1" and "not enough room" in told[0].get("sentence", "")
    report.check(refused, "without room nothing is begun", tries[0][-600:])
    filled = ends[1][2] == "1" and "is full" in told[1].get("sentence", "")
    report.check(filled, "a disk that fills in the middle is a sentence", tries[1][-600:])
    report.check(ends[2][2] == "0", "with room the same command goes on to its end", tries[2][-600:])
    asked = index.asked(machine.torch.name)
    report.check(len(asked) == 1, "and fetches nothing twice", str(asked))
    index.forget()


def broken_off(machine: Machine) -> str:
    """The line cut, the program told to end, killed, and killed again while it unpacks; then whole. The pack's name."""
    report, index, name = machine.report, machine.index, machine.torch.name
    size = machine.torch.stat().st_size
    cut, first, second = size // 4, size // 2, 3 * size // 4

    index.cuts[name] = cut
    hold = index.hold = Hold(name, first)
    done = machine.broken_off(signal.SIGKILL, hold.reached.is_set, "half of torch is there")
    report.check(done.code == -signal.SIGKILL, "killed while it downloads", str(done.code))
    asked = wait_for_log(index, name, 2)
    report.check(
        [(entry.start, entry.status) for entry in asked] == [(0, 200), (cut, 206)],
        "a cut line goes on where it was cut, by Range",
        str(asked),
    )
    status = machine.status()
    kept = machine.bytes - status["download_bytes"]
    report.check(status["state"] == "partial" and kept >= cut, "what was downloaded is kept", str(status))
    index.forget()

    index.ranges = False
    hold = index.hold = Hold(name, second)
    done = machine.broken_off(signal.SIGTERM, hold.reached.is_set, "three quarters of torch are there")
    told = last_line(done.out)
    stopped = done.code == 130 and told.get("sentence", "").startswith("Stopped.")
    report.check(stopped, "told to end, as the window's Pause does, it says how to go on", f"{done.code} {told}")
    asked = wait_for_log(index, name, 1)
    anew = len(asked) == 1 and asked[0].start >= cut and asked[0].status == 200
    report.check(anew, "a server without ranges is begun anew", str(asked))
    index.ranges = True
    index.forget()

    unpacked_torch = "*.part/env/lib/python3.*/site-packages/torch/lib"
    done = machine.broken_off(
        signal.SIGKILL, lambda: any(machine.packs.glob(unpacked_torch)), "torch is being unpacked"
    )
    report.check(done.code == -signal.SIGKILL, "killed while it unpacks", str(done.code))
    asked = wait_for_log(index, name, 1)
    went_on = len(asked) == 1 and asked[0].start >= first and asked[0].status == 206
    report.check(went_on, "killed or told to end, it goes on where it was", str(asked))
    report.check(not list(machine.packs.glob("*/pack.json")), "half a pack is none")
    index.forget()

    done, told = machine.gpu("install", "--kind", wheels.KIND)
    report.note(told.get("sentence", ""))
    works = done.code == 0 and "in use from the next start on" in told.get("sentence", "")
    report.check(works, "then it is installed, tests itself and is used", done.text[-1500:])
    report.check(not index.log, "without fetching anything more", str(index.log))
    status = machine.status()
    whole = (status["state"], status["active"], status.get("reason", "")) == ("installed", True, "")
    report.check(whole, "kvasir gpu status says so", str(status))
    pack = Path(status["folder"])
    left = sorted(path.name for path in machine.packs.iterdir())
    report.check(left == sorted([pack.name, "active.json", "lock"]), "nothing else is left of it", str(left))
    report.figure("unpacking and test", f"{done.seconds:.0f} s")
    size_on_disk = unpacked.installed_size(machine.packs)
    report.figure("pack", f"{size_on_disk / 1e6:.0f} MB on the disk, {status['disk_bytes'] / 1e6:.0f} MB announced")
    return pack.name


def wait_for_log(index: Index, name: str, count: int) -> list:
    """The server writes down an answer when it notices that nobody listens any more."""
    patience = threading.Event()
    for _ in range(200):
        if len(index.asked(name)) >= count:
            break
        patience.wait(0.05)
    return index.asked(name)
