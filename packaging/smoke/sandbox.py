"""A closed-off system in a folder, in which commands run as an ordinary user without a network.

Nothing has to be unmounted or ended afterwards: mounts and processes live in namespaces that end with process 1
(guest.py), and process 1 ends with the process that started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

GUEST = Path(__file__).with_name("guest.py")
UID = 1000
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Bind:
    """``source`` on this machine, seen at ``target`` inside."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True)
class Done:
    """A command that ended. ``code`` is minus the signal's number if one ended it; ``left`` are command lines."""

    code: int
    out: str
    err: str
    left: list[str]
    seconds: float

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass(frozen=True)
class Sandbox:
    """``root`` is a folder with a Linux system in it, or an empty one if ``host``: then this machine's own is shown.

    ``home`` is the user's, as seen inside; it is kept between commands. ``env`` comes on top of what a login sets.
    """

    root: Path
    user: str = "u"
    home: str = "/home/u"
    host: bool = False
    binds: tuple[Bind, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def outside(self, path: str) -> Path:
        """A path inside, as this machine sees it."""
        for bound in self.binds:
            if path == bound.target or path.startswith(bound.target.rstrip("/") + "/"):
                return bound.source / path[len(bound.target) :].lstrip("/")
        return self.root / path.lstrip("/")

    def with_env(self, **values: str) -> Sandbox:
        return replace(self, env={**self.env, **values})

    def start(
        self,
        command: Sequence[str],
        *,
        as_root: bool = False,
        network: bool = False,
        display: int | None = None,
        binds: Sequence[Bind] = (),
        cwd: str | None = None,
    ) -> Running:
        """Start ``command``; leave the result as a context."""
        uid = 0 if as_root else UID
        home = "/root" if as_root else self.home
        env = {"HOME": home, "PATH": PATH, "LANG": "C.UTF-8", "USER": "root" if as_root else self.user}
        if not as_root:
            env |= {"LOGNAME": self.user, "XDG_RUNTIME_DIR": f"/run/user/{uid}"}
        if display is not None:
            env |= {"DISPLAY": f":{display}", "XDG_SESSION_TYPE": "x11"}
        spec = {
            "root": str(self.root),
            "host": self.host,
            "binds": [[str(b.source), b.target, b.writable] for b in (*self.binds, *binds)],
            "display_socket": "" if display is None else f"/tmp/.X11-unix/X{display}",
            "uid": uid,
            "gid": uid,
            "network": network,
            "env": {**env, **self.env},
            "cwd": cwd or home,
            "command": list(command),
        }
        return Running(spec)

    def run(
        self,
        command: Sequence[str],
        *,
        timeout: float = 120.0,
        as_root: bool = False,
        network: bool = False,
        binds: Sequence[Bind] = (),
        cwd: str | None = None,
    ) -> Done:
        """Run ``command`` to its end. Raises TimeoutError, with what it printed, when it takes longer than that."""
        with self.start(command, as_root=as_root, network=network, binds=binds, cwd=cwd) as running:
            return running.wait(timeout)


def die_with_parent() -> None:
    """In a child before its program begins: whatever ends the parent ends it too."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Running:
    """A command inside; ``pid`` is process 1 of it as this machine numbers it. Leaving the context ends all of it."""

    def __init__(self, spec: dict) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kvasir-smoke-")
        folder = Path(self._folder.name)
        self._report, self._began = folder / "report.json", folder / "began"
        files = {"report": str(self._report), "began": str(self._began)}
        (folder / "spec.json").write_text(json.dumps({**spec, **files}))
        self._out, self._err = folder / "out", folder / "err"
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        if not spec["network"]:
            unshare.append("--net")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [*unshare, "--", sys.executable, str(GUEST), str(folder / "spec.json")],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    @property
    def began(self) -> float:
        """When the command itself was started, on the monotonic clock. Raises FileNotFoundError before that."""
        return float(self._began.read_text())

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    @property
    def pid(self) -> int:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        if not children:
            raise RuntimeError(f"The closed-off system did not start: {self.err or self.out}")
        return int(children[0])

    def send(self, number: signal.Signals) -> None:
        """To the command."""
        os.kill(self.pid, number)

    def enter_network(self) -> list[str]:
        """The beginning of a command line that runs a program of this machine in the network of the inside."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--"]

    def file(self, root: Path, path: str) -> Path:
        """A file that only the inside has, such as one in its /run."""
        return Path(f"/proc/{self.pid}/root{root}") / path.lstrip("/")

    def wait(self, timeout: float) -> Done:
        """Raises TimeoutError, with what was printed, when it takes longer; it is ended then."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            text = (self.out + self.err)[-4000:]
            self.end()
            raise TimeoutError(f"no end after {timeout:.0f} s; it printed:\n{text}") from None
        if not self._report.exists():
            raise RuntimeError(f"The closed-off system failed: {self.err[-4000:] or self.out[-4000:]}")
        report = json.loads(self._report.read_text())
        return Done(report["code"], self.out, self.err, report["left"], report["seconds"])

    def end(self) -> None:
        """Everything inside is killed."""
        if self.alive:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self._folder.cleanup()
