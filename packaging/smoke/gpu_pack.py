"""A GPU pack from beginning to end with the packaged program, against an index of our own.

The pack is real but for its torch, which is the one for processors: there may be no GPU here. Whether it computes on a
GPU is for `make gpu-check` and for a person with one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from smoke import desktop, unpacked, wheels
from smoke.dialogue import QUESTION, Talk, sensible
from smoke.index import Index
from smoke.machine import DATA, HOME, Machine, make_home, welcome
from smoke.network import only_loopback
from smoke.pack_faults import bad_lines, broken_off, full_disk
from smoke.sandbox import UID, Running
from smoke.screen import Screen
from smoke.terminal import ask

if TYPE_CHECKING:
    from smoke.parts import Trial

LISTED = Path(__file__).resolve().parents[2] / f"engine/services/packs/lists/{wheels.KIND}.txt"


def gpu_pack(trial: Trial) -> None:
    """A GPU pack: installed with everything going wrong, used, broken, repaired, moved, bundled, removed."""
    suite = "bookworm"
    with trial.roots.fresh(suite, "gpu-pack", trial.keep) as sandbox:
        trial.roots.apt(sandbox, suite, ["install", "--no-install-recommends", *desktop.libraries()])
        folder = unpacked.unpack(trial.archive, sandbox.outside(unpacked.PLACE))
        unpacked.read_only(folder)
        python = next(folder.glob("python/bin/python3.*")).name.removeprefix("python")
        files = wheels.fetch(
            wheels.requirements(LISTED.read_text()), trial.build / "smoke" / "wheels", trial.python, python
        )
        with only_loopback(), Index(files[0].parent) as index:
            hostile = make_home(sandbox, index, files, python)
            machine = Machine(trial.report, hostile, f"{unpacked.PLACE}/{folder.name}", index, files)
            trial.report.figure("to fetch", f"{machine.bytes / 1e6:.0f} MB in {len(files)} wheels")
            of_the_program = answer_without_pack(machine)
            bad_lines(machine)
            full_disk(machine)
            pack = broken_off(machine)
            used(machine, pack, of_the_program)
            window(machine, pack, trial.picture("gpu-pack"))
            broken(machine, pack, of_the_program, trial.picture("gpu-pack-broken"))
            repaired(machine, pack)
            machine = moved(machine, folder, pack, of_the_program)
            on_a_stick(machine, pack)
            removed(machine)
            trial.report.check(not index.strange, "nobody asked for what no list names", str(index.strange[:10]))
            stolen = sandbox.outside(f"{HOME}/hostile/stolen")
            trial.report.check(not stolen.exists(), "nothing lies where the user's pip would put it")


def answer_without_pack(machine: Machine) -> str:
    report = machine.report
    status = machine.status()
    report.check(
        (status["state"], status["kind"], status["download_bytes"]) == ("none", wheels.KIND, machine.bytes),
        "kvasir gpu status says what fits and how much it is",
        str(status),
    )
    done, said = machine.chat()
    report.check(done.code == 0 and sensible(said), "without a pack the program answers", done.text)
    return said


def used(machine: Machine, pack: str, expected: str) -> None:
    """The commands compute in the pack, and say what the program says."""
    report = machine.report
    done = machine.kvasir("doctor")
    report.note(done.text.strip())
    report.check(done.code == 0 and pack in done.text, "kvasir doctor runs in the pack", done.text)
    report.check("Traceback" not in done.text, "without a traceback", done.text)
    with machine.start("chat", "--temperature", "0", "--prompt", QUESTION) as running:
        machine.check_files(running, pack, "kvasir chat", "chat")
        done = running.wait(180.0)
    same_text(machine, done.code, done.out.strip(), expected, "kvasir chat from the pack")
    report.figure("chat from the pack", f"{done.seconds:.1f} s")

    def over_http(running: Running, address: str, token: str) -> None:
        body = {"model": "kvasir-guide", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 200}
        status, reply = ask(running, f"{address}/v1/chat/completions", token, body)
        report.check(status == 200 and sensible(reply), "it answers over HTTP", f"{status} {reply}")
        notice = welcome(running, address, token).get("notice", "")
        report.check(notice == "", "its Welcome has nothing to complain of", notice)

    machine.serve(pack, over_http)
    off = machine.with_env(KVASIR_GPU_PACK="off")
    done, said = off.chat()
    same_text(off, done.code, said, expected, "with KVASIR_GPU_PACK=off the program")


def same_text(machine: Machine, code: int, said: str, expected: str, who: str) -> None:
    same = code == 0 and said == expected
    machine.report.check(same, f"{who} gives the same answer, letter by letter", f"{code}\n{said}\nnot\n{expected}")


def window(machine: Machine, pack: str, picture: Path) -> None:
    """The window's engine computes in ``pack`` ("": in the program), and answers."""
    report = machine.report
    with Screen() as screen, Talk(machine.sandbox, machine.programs, screen) as talk:
        try:
            talk.wait_for_window()
            answered = talk.ask(QUESTION)
        finally:
            report.note(f"picture: {screen.picture(picture)}")
        report.check(sensible(answered.answer.content), "the window answers", answered.answer.content)
        machine.check_files(talk.running, pack, "the window's engine", "--child")
        done = talk.close()
        ended = done.code == 0 and not done.left
        report.check(ended, "window and engine end together", f"{done.code} {done.err[-800:]} {done.left}")


def broken(machine: Machine, pack: str, expected: str, picture: Path) -> None:
    """A file of torch's is gone, then a library: the program computes by itself and says why."""
    report = machine.report
    torch = next(machine.packs.glob(f"{pack}/lib/python3.*/site-packages/torch"))
    library = torch / "lib" / "libtorch_cpu.so"

    def tells(text: str, what: str = library.name) -> bool:
        flat = "".join(text.split())  # a table breaks lines inside of words
        return what in flat and "`kvasirgpurepair`" in flat

    (torch / "version.py").rename(torch / "version.py.gone")
    done = machine.kvasir("doctor")
    told = done.code == 0 and tells(done.text, "torch.version")
    report.check(told, "without a module of torch's, kvasir doctor goes on and says why", done.text)
    done, said = machine.chat()
    same_text(machine, done.code, said, expected, "kvasir chat beside a torch that cannot be loaded")
    (torch / "version.py.gone").rename(torch / "version.py")
    library.unlink()

    done = machine.kvasir("doctor")
    report.note(done.text.strip())
    report.check(done.code == 0 and tells(done.text), "kvasir doctor goes on and names the reason", done.text)
    done, said = machine.chat()
    same_text(machine, done.code, said, expected, "kvasir chat beside the broken pack")

    def greeted(running: Running, address: str, token: str) -> None:
        notice = welcome(running, address, token).get("notice", "")
        report.note(notice)
        report.check(tells(notice), "the window is told in its Welcome", notice)

    machine.serve("", greeted)
    status = machine.status()
    report.check(status["state"] == "broken" and not status.get("active"), "kvasir gpu status says so", str(status))
    window(machine, "", picture)


def repaired(machine: Machine, pack: str) -> None:
    """`kvasir gpu repair`, after a library is cut short."""
    report, index = machine.report, machine.index
    library = next(machine.packs.glob(f"{pack}/lib/python3.*/site-packages/torch/lib/libtorch_python.so"))
    os.truncate(library, 4096)
    index.forget()
    done, told = machine.gpu("repair")
    report.note(told.get("sentence", ""))
    report.check(
        done.code == 0 and "Replaced: torch." in told.get("sentence", ""), "repair mends it", done.text[-1500:]
    )
    fetched = [entry.name for entry in index.log]
    report.check(fetched == [machine.torch.name], "and fetches nothing else", str(fetched))
    report.figure("repair", f"{done.seconds:.0f} s")
    machine.serve(pack)


def moved(machine: Machine, folder: Path, pack: str, expected: str) -> Machine:
    """The program's folder elsewhere: a pack does not know where it lay."""
    place = f"{HOME}/anders wö/kvasir"
    target = machine.sandbox.outside(place)
    target.parent.mkdir()
    folder.rename(target)
    machine = Machine(machine.report, machine.sandbox, place, machine.index, machine.files)
    with machine.start("chat", "--temperature", "0", "--prompt", QUESTION) as running:
        machine.check_files(running, pack, "kvasir chat of a moved program", "chat")
        done = running.wait(180.0)
    same_text(machine, done.code, done.out.strip(), expected, "moved elsewhere it")
    return machine


def on_a_stick(machine: Machine, pack: str) -> None:
    """A bundle made, the pack removed, and installed from the bundle without a network."""
    report = machine.report
    stick = machine.sandbox.outside(f"{HOME}/stick")
    stick.mkdir()
    os.chown(stick, UID, UID)
    out = f"{HOME}/stick/kvasir gpu.tar"
    done, told = machine.gpu("bundle", "--kind", wheels.KIND, "--out", out)
    report.note(told.get("sentence", ""))
    report.check(done.code == 0, "kvasir gpu bundle", done.text[-1500:])
    report.figure("bundle", f"{machine.sandbox.outside(out).stat().st_size / 1e6:.0f} MB, {done.seconds:.0f} s")
    done, told = machine.gpu("remove", network=False)
    left = sorted(path.name for path in machine.packs.iterdir())
    report.check(done.code == 0 and left == ["lock"], "kvasir gpu remove leaves nothing", f"{told} {left}")
    machine.serve("")
    machine.index.forget()
    done, told = machine.gpu("install", "--from", out, network=False)
    report.note(told.get("sentence", ""))
    report.check(done.code == 0, "kvasir gpu install --from FILE works without a network", done.text[-1500:])
    report.check(not machine.index.log, "and asks nobody", str(machine.index.log))
    report.figure("install from the bundle", f"{done.seconds:.0f} s")
    machine.serve(pack)


def removed(machine: Machine) -> None:
    """`kvasir uninstall --purge-gpu` takes the pack and nothing else."""
    report = machine.report
    data = machine.sandbox.outside(DATA)
    before = sorted(path.name for path in data.iterdir())
    done = machine.kvasir("uninstall", "--yes", "--purge-gpu")
    report.note(done.text.strip())
    after = sorted(path.name for path in data.iterdir())
    report.check(done.code == 0, "kvasir uninstall --yes --purge-gpu ends well", f"{done.code} {done.text}")
    report.check(
        after == [name for name in before if name != "gpu"], "the packs are gone and the rest stays", str(after)
    )
    machine.serve("")
