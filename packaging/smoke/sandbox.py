"""A closed-off system in a folder, in which commands run as an ordinary user without a network.

bubblewrap makes the namespaces and the mounts; its first process there takes in what loses its parent. One command is
brought in by nsenter, which ends as the command does, by an exit code or by a signal. Nothing has to be unmounted or
ended afterwards: all of it ends with that first process, and that ends with the process that started it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from smoke import processes

UID = 1000
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RUNTIME = f"/run/user/{UID}"
LEFT_AFTER_S = 10.0
"""How long what the command started may take to end by itself, as a window's engine does."""


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
    """``root`` is a folder with a Linux system in it. If ``host``, it is this machine's own, which cannot be written,
    with folders of its own where people write.

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

    def system(self, *, as_root: bool, network: bool, display: int | None, binds: Sequence[Bind]) -> list[str]:
        """The command line that makes the inside and keeps it; it prints a line once that is whole."""
        command = ["bwrap", "--die-with-parent", "--unshare-pid", *([] if network else ["--unshare-net"])]
        if self.host:
            command += ["--ro-bind", "/", "/", *_tmpfs("1777", "/tmp")]
            for folder in ("/run", "/root", "/home"):
                command += _tmpfs("0755", folder)
        else:
            command += ["--bind", str(self.root), "/"]
        command += ["--proc", "/proc", "--ro-bind", "/sys", "/sys", "--dev", "/dev", *_tmpfs("1777", "/dev/shm")]
        for bound in (*self.binds, *binds):
            kind = "--bind" if bound.writable else "--ro-bind"
            command += [*_above(bound.target), kind, str(bound.source), bound.target]
        if display is not None:
            socket = f"/tmp/.X11-unix/X{display}"
            command += [*_tmpfs("1777", "/tmp/.X11-unix"), "--bind", socket, socket]
        script = "echo && exec sleep infinity"
        if not as_root:
            command += [*_above(RUNTIME), *_tmpfs("0700", RUNTIME)]
            script = f"chown {UID}:{UID} {RUNTIME} && {script}"
        return [*command, "--", "sh", "-c", script]

    def login(self, *, as_root: bool, display: int | None) -> dict[str, str]:
        """All variables that a command gets."""
        env = {"HOME": "/root" if as_root else self.home, "PATH": PATH, "LANG": "C.UTF-8"}
        env["USER"] = "root" if as_root else self.user
        if not as_root:
            env |= {"LOGNAME": self.user, "XDG_RUNTIME_DIR": RUNTIME}
        if display is not None:
            # There is no session bus, and none is to be started for the display, as libdbus does where it can.
            env |= {"DISPLAY": f":{display}", "XDG_SESSION_TYPE": "x11", "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
        return {**env, **self.env}

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
        """Start ``command``; leave the result as a context. Raises RuntimeError where the inside cannot be made."""
        uid, env = 0 if as_root else UID, self.login(as_root=as_root, display=display)
        # A session of its own, as a login's: its processes have no terminal, and what they signal stays among them.
        user = ["setsid", "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        user += ["env", f"--chdir={cwd or ('/root' if as_root else self.home)}"]
        system = self.system(as_root=as_root, network=network, display=display, binds=binds)
        return Running(system, [*user, *command], env)

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


def _tmpfs(mode: str, target: str) -> list[str]:
    return ["--perms", mode, "--tmpfs", target]


def _above(target: str) -> list[str]:
    """The folders above ``target``, open to everybody: bubblewrap would make them for root alone."""
    return ["--perms", "0755", "--dir", str(Path(target).parent)]


class Running:
    """A command inside. Leaving the context ends all of it.

    ``began`` is when the command itself was started, on the monotonic clock.
    """

    def __init__(self, system: Sequence[str], command: Sequence[str], env: Mapping[str, str]) -> None:
        self._system = subprocess.Popen(
            system,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": PATH},
            start_new_session=True,
        )
        assert self._system.stdout is not None
        if not self._system.stdout.readline():
            raise RuntimeError(f"The closed-off system did not start: {self._system.communicate()[1]}")
        # bubblewrap waits outside; its child is process 1 of the inside, whose child keeps it from ending.
        _, self._first, self._keeper = processes.family(self._system.pid)
        self._folder = tempfile.TemporaryDirectory(prefix="kvasir-smoke-")
        self._out, self._err = (Path(self._folder.name) / name for name in ("out", "err"))
        enter = ["nsenter", f"--target={self._first}", "--mount", "--pid", "--net", "--"]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.began = time.monotonic()
            self._command = subprocess.Popen(
                [*enter, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=dict(env),
                umask=0o022,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._command.poll() is None

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The command as this machine numbers it. Raises RuntimeError before it is there and once it has ended."""
        below = processes.family(self._command.pid)[1:]
        if not below:
            raise RuntimeError(f"The command does not run: {self.err or self.out}")
        return below[0]

    def send(self, number: signal.Signals) -> None:
        """To the command."""
        os.kill(self.pid, number)

    def enter_network(self) -> list[str]:
        """The beginning of a command line that runs a program of this machine in the network of the inside."""
        return ["nsenter", f"--net=/proc/{self._first}/ns/net", "--"]

    def file(self, path: str) -> Path:
        """A file that only the inside has, such as one in its /run."""
        return Path(f"/proc/{self._first}/root") / path.lstrip("/")

    def wait(self, timeout: float) -> Done:
        """Raises TimeoutError, with what was printed, when it takes longer; it is ended then."""
        try:
            code = self._command.wait(timeout)
        except subprocess.TimeoutExpired:
            text = (self.out + self.err)[-4000:]
            self.end()
            raise TimeoutError(f"no end after {timeout:.0f} s; it printed:\n{text}") from None
        seconds = time.monotonic() - self.began
        until = time.monotonic() + LEFT_AFTER_S
        while (left := self._left()) and time.monotonic() < until:
            time.sleep(0.05)
        if self._system.poll() is not None:
            raise RuntimeError(f"The closed-off system ended before the command: {self._system.communicate()[1]}")
        return Done(code, self.out, self.err, left, seconds)

    def _left(self) -> list[str]:
        """Command lines of what the command started and what still runs; it belongs to process 1 once that ended."""
        pids = [pid for pid in processes.family(self._first)[1:] if pid != self._keeper]
        return [" ".join(words) for words in map(processes.command, pids) if words]

    def end(self) -> None:
        """Everything inside is killed, and gone when this returns."""
        if self._system.poll() is None:
            os.kill(self._first, signal.SIGKILL)
            self._system.communicate()
        self._command.wait()

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self._folder.cleanup()
