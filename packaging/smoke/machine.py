"""The computer of somebody who installs a GPU pack: an unpacked program, a hostile home, an index that is not far."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from smoke import processes, wheels
from smoke.dialogue import QUESTION
from smoke.index import Index
from smoke.programs import Programs, from_folder
from smoke.report import Report
from smoke.roots import run
from smoke.sandbox import UID, Done, Running, Sandbox
from smoke.terminal import wait_for_address

WELCOME = Path(__file__).with_name("welcome.py")
HOME = "/home/u"
DATA = f"{HOME}/.local/share/kvasir"
LISTS, LOW_LISTS = f"{HOME}/lists", f"{HOME}/lists that promise too much"
HOSTILE = f"{HOME}/hostile"
NOTHING = {"state": "none", "kind": "", "active": False, "reason": "", "download_bytes": 0}
"""Of ``kvasir gpu status --json``, where nothing else is said."""
INSTALL_S, ENGINE_S = 400.0, 180.0
POLL_S = 0.02


def make_home(sandbox: Sandbox, index: Index, files: list[Path], python: str) -> Sandbox:
    """Lists, and settings of Python, pip and uv under which nothing of Kvasir's could be found, or the wrong thing."""
    trap = f"{index.address}/trap"
    hostile = sandbox.outside(HOSTILE)
    hostile.mkdir()
    for name in ("torch", "msgspec", "sitecustomize", "usercustomize", "json"):
        (hostile / f"{name}.py").write_text(f"raise SystemExit('{name} of the user was imported')\n")
    settings = {
        ".config/pip/pip.conf": f"[global]\nindex-url = {trap}/pip\ntarget = {HOSTILE}/stolen\n",
        ".pip/pip.conf": f"[global]\nextra-index-url = {trap}/pip\n",
        ".config/uv/uv.toml": f'index-url = "{trap}/uv"\nrequire-hashes = false\n',
        ".pydistutils.cfg": f"[install]\nprefix = {HOSTILE}/stolen\n",
    }
    for name, text in settings.items():
        file = sandbox.outside(f"{HOME}/{name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    wheels.write_list(sandbox.outside(LISTS), files, index.address, python)
    wheels.write_list(sandbox.outside(LOW_LISTS), files, index.address, python, installed=1)
    run(["chown", "-R", f"{UID}:{UID}", *map(str, [hostile, *map(sandbox.outside, _owned())])])
    return sandbox.with_env(
        KVASIR_GPU_LISTS=LISTS,
        PYTHONHOME=HOSTILE,
        PYTHONPATH=HOSTILE,
        PYTHONSTARTUP=f"{HOSTILE}/torch.py",
        PIP_INDEX_URL=f"{trap}/pip",
        PIP_TARGET=f"{HOSTILE}/stolen",
        UV_INDEX_URL=f"{trap}/uv",
        UV_DEFAULT_INDEX=f"{trap}/uv",
        UV_PYTHON=f"{HOSTILE}/python",
        UV_PROJECT_ENVIRONMENT=f"{HOSTILE}/stolen",
        VIRTUAL_ENV=HOSTILE,
    )


def _owned() -> list[str]:
    return [f"{HOME}/{name}" for name in (".config", ".pip", ".pydistutils.cfg")] + [LISTS, LOW_LISTS]


@dataclass(frozen=True)
class Machine:
    """``folder``: of the programs, as seen inside."""

    report: Report
    sandbox: Sandbox
    folder: str
    index: Index
    files: list[Path]

    @property
    def programs(self) -> Programs:
        return from_folder(self.folder)

    def with_env(self, **values: str) -> Machine:
        return replace(self, sandbox=self.sandbox.with_env(**values))

    @property
    def torch(self) -> Path:
        """The wheel of torch."""
        return next(file for file in self.files if file.name.startswith("torch-"))

    @property
    def bytes(self) -> int:
        """What is to be fetched."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def packs(self) -> Path:
        """The folder of packs, from outside."""
        return self.sandbox.outside(f"{DATA}/gpu")

    # --- commands --------------------------------------------------------------------------------------------------

    def kvasir(self, *arguments: str, network: bool = False) -> Done:
        return self.sandbox.run([*self.programs.kvasir, *arguments], network=network, timeout=INSTALL_S)

    def start(self, *arguments: str, network: bool = False) -> Running:
        return self.sandbox.start([*self.programs.kvasir, *arguments], network=network)

    def gpu(self, *arguments: str, network: bool = True) -> tuple[Done, dict]:
        """``kvasir gpu … --json``: how it ended, and its last line."""
        done = self.kvasir("gpu", *arguments, "--json", network=network)
        return done, last_line(done.out)

    def status(self) -> dict:
        """What ``kvasir gpu status`` says, with what it leaves out."""
        return {**NOTHING, **self.gpu("status", network=False)[1]}

    def chat(self) -> tuple[Done, str]:
        """The answer to one question, the likeliest token each time."""
        done = self.kvasir("chat", "--temperature", "0", "--prompt", QUESTION)
        return done, done.out.strip()

    def broken_off(self, number: signal.Signals, ready: Callable[[], bool], what: str) -> Done:
        """An installation that gets a signal once ``ready``."""
        with self.start("gpu", "install", "--kind", wheels.KIND, "--json", network=True) as running:
            until = time.monotonic() + INSTALL_S
            while not ready():
                if not running.alive or time.monotonic() > until:
                    raise RuntimeError(f"it did not come to where {what}: {running.out[-2000:]}{running.err[-2000:]}")
                time.sleep(POLL_S)
            running.send(number)
            if self.index.hold:
                self.index.hold.released.set()
                self.index.hold = None
            return running.wait(60.0)

    # --- engines ---------------------------------------------------------------------------------------------------

    def check_files(self, running: Running, pack: str, what: str, argument: str) -> None:
        """Of the process in it that computes, started with ``argument``: whose Python and whose torch; ``pack`` "" is
        the program's.
        """
        place = f"/gpu/{pack}/" if pack else "/_internal/"
        engine, files = processes.wait_for_torch(first(running), ENGINE_S, place, argument)
        command = processes.command(engine)
        torch = sorted(file for file in files if "/torch/lib/" in file)
        # The engine's own module is the program's in any case, and so are the weights of the bundled model.
        libraries = (file for file in files if ".so" in Path(file).name)
        inside = sorted(file for file in libraries if "/_internal/" in file and "/_internal/engine/" not in file)
        folders = sorted({file.rpartition("/")[0] for file in torch})
        self.report.note(f"{what}: {' '.join(command)}\n{len(torch)} libraries of torch, from {', '.join(folders)}")
        if not pack:
            here = not any("/gpu/" in file for file in files) and any("/_internal/torch/" in file for file in torch)
            self.report.check(here, f"{what} computes in the program itself, with nothing of a pack", str(torch))
            return
        packs = all(f"/gpu/{pack}/" in file for file in torch)
        self.report.check(packs, f"{what} has the pack's torch in its memory and no other", str(torch))
        self.report.check(not inside, f"{what} has none of the program's own libraries", str(inside[:6]))
        python = Path(os.readlink(f"/proc/{engine}/exe"))
        bundled = command[0].startswith(f"{self.folder}/python/") and python.name.startswith("python3")
        self.report.check(bundled, f"{what} runs in the bundled Python", f"{python}: {command[:5]}")

    def serve(self, pack: str, ask: Callable[[Running, str, str], None] | None = None) -> None:
        """``kvasir serve``, looked into; ``ask`` is given it, its address and its token."""
        with self.start("serve", "--port", "0") as running:
            address, file = wait_for_address(running)
            self.check_files(running, pack, "kvasir serve", "serve")
            if ask:
                ask(running, address, running.file(file).read_text().strip())
            running.send(signal.SIGTERM)
            done = running.wait(60.0)
            self.report.check(
                done.code == 0 and not done.left, "SIGTERM ends it and all of it", f"{done.code} {done.left}"
            )


def first(running: Running) -> int:
    """Process 1 of what has just been started. Raises RuntimeError where it ends before."""
    while True:
        try:
            return running.pid
        except RuntimeError:
            if not running.alive:
                raise
            time.sleep(POLL_S)


def welcome(running: Running, address: str, token: str) -> dict:
    """What the engine greets a window with. Raises RuntimeError."""
    command: Sequence[str] = [*running.enter_network(), sys.executable, str(WELCOME), address.rpartition(":")[2]]
    done = subprocess.run(command, input=token, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"the engine does not greet: {done.stderr[-1500:]}")
    return json.loads(done.stdout)


def last_line(out: str) -> dict:
    """Of a command with --json; empty where it printed nothing."""
    lines = out.strip().splitlines()
    return json.loads(lines[-1]) if lines else {}
