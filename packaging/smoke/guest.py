"""Process 1 of a closed-off system; run as ``unshare … python3 guest.py SPEC.json`` as root.

Standard library only, one file: it is started by the host's Python. It mounts what a program needs below a root folder,
where nobody else sees it (the mounts end with this process), runs one command there as the user that SPEC names, waits
for it, and reports its exit code and which processes it left behind. See :class:`smoke.sandbox.Spec` for the fields.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

NODES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}
"""Minor numbers of the character devices of major 1 that every program may expect."""
LEFT_AFTER_S = 10.0
"""How long what the command started may take to end by itself, as a window's engine does."""
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def mount(source: str, target: Path, kind: str = "", options: str = "") -> None:
    command = ["mount", *(["-t", kind] if kind else []), *(["-o", options] if options else []), source, str(target)]
    subprocess.run(command, check=True)


def bind(source: str, target: Path, writable: bool) -> None:
    """``target`` is made, as the kind of thing that ``source`` is."""
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(source, target, options="bind")
    if not writable:
        mount(source, target, options="remount,bind,ro")


def devices(folder: Path) -> None:
    mount("tmpfs", folder, "tmpfs", "mode=755,nosuid")
    os.umask(0)
    for name, minor in NODES.items():
        os.mknod(folder / name, 0o020666, os.makedev(1, minor))
    os.mknod(folder / "tty", 0o020666, os.makedev(5, 0))
    os.umask(0o022)
    for name in ("pts", "shm"):
        (folder / name).mkdir()
    mount("devpts", folder / "pts", "devpts", "newinstance,ptmxmode=0666,mode=620")
    mount("tmpfs", folder / "shm", "tmpfs", "mode=1777")
    for name, target in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd")):
        (folder / name).symlink_to(target)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (folder / name).symlink_to(f"/proc/self/fd/{number}")


def loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(handle, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def furnish(spec: dict) -> Path:
    """Everything mounted; the root folder."""
    root = Path(spec["root"])
    if spec["host"]:  # this machine's own system, which cannot be written, with folders of its own where people write
        mount("/", root, options="bind")
        mount("/", root, options="remount,bind,ro")
        for name in ("tmp", "run", "root", "home"):
            mount("tmpfs", root / name, "tmpfs", "mode=1777" if name == "tmp" else "mode=755")
    mount("proc", root / "proc", "proc")
    mount("sysfs", root / "sys", "sysfs", "ro")
    devices(root / "dev")
    for source, target, writable in spec["binds"]:
        bind(source, root / target.lstrip("/"), writable)
    if spec["display_socket"]:
        sockets = root / "tmp/.X11-unix"
        sockets.mkdir(exist_ok=True)
        mount("tmpfs", sockets, "tmpfs", "mode=1777")
        bind(spec["display_socket"], sockets / Path(spec["display_socket"]).name, True)
    if spec["uid"]:
        runtime = root / f"run/user/{spec['uid']}"
        runtime.mkdir(parents=True, exist_ok=True)
        mount("tmpfs", runtime, "tmpfs", f"mode=700,uid={spec['uid']},gid={spec['gid']}")
    if not spec["network"]:
        loopback_up()
    return root


def become(spec: dict, root: Path) -> None:
    """This process goes on as the command. Does not return."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    os.chroot(root)
    os.setgroups([])
    os.setgid(spec["gid"])
    os.setuid(spec["uid"])
    os.umask(0o022)
    os.chdir(spec["cwd"])
    try:
        os.execvpe(spec["command"][0], spec["command"], spec["env"])
    except OSError as error:
        sys.stderr.write(f"{spec['command'][0]}: {error.strerror}\n")
        os._exit(127)


def others() -> dict[int, str]:
    """The processes besides this one, with their command lines; those that ended and wait to be read do not count."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == 1:
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if state != "Z":
            found[int(entry.name)] = line
    return found


def wait_for(child: int) -> int:
    """Its exit code, or minus the signal that ended it; whatever else ends meanwhile is read too."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text())
    # The host's /proc shows the host's processes; ours is wanted.
    mount("proc", Path("/proc"), "proc")
    root = furnish(spec)
    began = time.monotonic()
    Path(spec["began"]).write_text(str(began))
    child = os.fork()
    if child == 0:
        become(spec, root)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: os.kill(child, received))
    code = wait_for(child)
    seconds = time.monotonic() - began
    until = time.monotonic() + LEFT_AFTER_S
    while others() and time.monotonic() < until:
        time.sleep(0.05)
    report = {"code": code, "seconds": seconds, "left": list(others().values())}
    Path(spec["report"]).write_text(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
