"""The closed-off system and the screen of the trial of a package, by small programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PySide6.QtGui import QImage
from smoke import processes, run, sandbox, source
from smoke.network import only_loopback
from smoke.sandbox import UID, Bind, Sandbox
from smoke.screen import SIZE, Screen

from app import preflight
from tests.kit.interrupts import interruptible

SECONDS = 60.0
"""The longest wait for a program that has nothing to do."""


def needs(*programs: str) -> None:
    """Skip where one of the trial's programs is not installed, or this is not root's to do."""
    if absent := run.missing(*programs):
        pytest.skip("; ".join(absent))
    if os.geteuid():
        pytest.skip("namespaces of the trial need root")


@pytest.fixture
def here(tmp_path: Path) -> Sandbox:
    """This machine's system, closed off."""
    needs("bwrap", "nsenter", "setpriv")
    tried = subprocess.run(
        ["bwrap", "--bind", "/", "/", "--unshare-pid", "--unshare-net", "true"], capture_output=True, text=True
    )
    if tried.returncode:
        pytest.skip(f"bubblewrap makes no namespaces here: {tried.stderr}")
    tmp_path.chmod(0o755)
    return source.on_this_machine(tmp_path / "trial")


def environment() -> list[Bind]:
    """What the Python of these tests is made of, also where an ordinary user cannot reach it."""
    folder = Path(sys.prefix).resolve()
    return [Bind(folder, str(folder)), *source.interpreter(Path(sys.executable))]


def everywhere(commands: list[str]) -> list[str]:
    """Those that run on this machine, inside or not."""
    running = {" ".join(processes.command(int(folder.name))) for folder in Path("/proc").glob("[0-9]*")}
    return [command for command in commands if command in running]


def sh(here: Sandbox, script: str, **settings: bool) -> sandbox.Done:
    return here.run(["sh", "-c", script], timeout=SECONDS, **settings)


# --- what bubblewrap is asked for ------------------------------------------------------------------------------------


def system(of: Sandbox, as_root: bool = False, network: bool = False, display: int | None = None) -> str:
    return " ".join(of.system(as_root=as_root, network=network, display=display, binds=()))


def test_a_system_in_a_folder_is_the_root_and_this_machines_own_is_read_only(tmp_path: Path) -> None:
    own = system(Sandbox(tmp_path, binds=(Bind(Path("/a"), "/x/b"), Bind(Path("/c"), "/d", writable=True))))
    assert own.startswith("bwrap --die-with-parent --unshare-pid --unshare-net ")
    assert f" --bind {tmp_path} / --proc /proc --ro-bind /sys /sys --dev /dev " in own
    assert " --perms 0755 --dir /x --ro-bind /a /x/b --perms 0755 --dir / --bind /c /d " in own
    assert "/home" not in own
    host = system(Sandbox(Path("/"), host=True))
    assert " --ro-bind / / --perms 1777 --tmpfs /tmp --perms 0755 --tmpfs /run --perms 0755 --tmpfs /root" in host
    assert " --perms 0755 --tmpfs /home --proc " in host
    assert " --bind " not in host


def test_network_screen_and_a_runtime_folder_are_there_where_they_are_wanted(tmp_path: Path) -> None:
    plain, root = system(Sandbox(tmp_path)), system(Sandbox(tmp_path), as_root=True)
    assert "X11" not in plain
    runtime = " --perms 0755 --dir /run/user --perms 0700 --tmpfs /run/user/1000 "
    assert f"{runtime}-- sh -c chown 1000:1000 /run/user/1000 && echo && exec sleep infinity" in plain
    assert "/run/user" not in root
    assert "--unshare-net" not in system(Sandbox(tmp_path), network=True)
    shown = system(Sandbox(tmp_path), display=7)
    assert " --perms 1777 --tmpfs /tmp/.X11-unix --bind /tmp/.X11-unix/X7 /tmp/.X11-unix/X7 " in shown


def test_the_variables_are_those_of_a_login_and_what_was_given(tmp_path: Path) -> None:
    of = Sandbox(tmp_path).with_env(LANG="de_DE", MORE="1")
    plain = {"HOME": "/home/u", "PATH": sandbox.PATH, "LANG": "de_DE", "USER": "u", "MORE": "1", "LOGNAME": "u"}
    plain["XDG_RUNTIME_DIR"] = "/run/user/1000"
    assert of.login(as_root=False, display=None) == plain
    shown = {"DISPLAY": ":3", "XDG_SESSION_TYPE": "x11", "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
    assert of.login(as_root=False, display=3) == plain | shown
    root = {"HOME": "/root", "PATH": sandbox.PATH, "LANG": "de_DE", "USER": "root", "MORE": "1"}
    assert of.login(as_root=True, display=None) == root


def test_paths_inside_are_found_outside(tmp_path: Path) -> None:
    of = Sandbox(tmp_path / "root", binds=(Bind(tmp_path / "home", "/home/u"),))
    assert of.outside("/home/u/x") == tmp_path / "home/x"
    assert of.outside("/home/uwe/x") == tmp_path / "root/home/uwe/x"


def test_what_is_missing_is_named_by_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.shutil, "which", lambda name: None if name in ("bwrap", "import") else f"/usr/bin/{name}")
    monkeypatch.setattr(run.Path, "exists", lambda path: False)
    found = run.obstacles()
    assert found[:3] == [
        "bwrap is missing: apt-get install bubblewrap",
        "/usr/lib/python3/dist-packages/Xlib is missing: apt-get install python3-xlib",
        "import is missing: apt-get install imagemagick",
    ]
    assert len(found) == (4 if os.geteuid() else 3)


# --- what is to be seen inside ---------------------------------------------------------------------------------------


def test_an_ordinary_user_who_can_write_the_home_and_nothing_else(here: Sandbox) -> None:
    script = """
        id -u; id -g; id -G; pwd; umask
        grep -E '^Cap(Prm|Eff)' /proc/self/status
        for place in / /usr /etc /home /root /run /sys/kernel /proc/sys/kernel /dev; do
            touch $place/x 2>/dev/null && echo "wrote $place"
        done
        touch ~/kept /tmp/x /dev/shm/x $XDG_RUNTIME_DIR/x && ls /tmp /home && stat -c %a $XDG_RUNTIME_DIR
    """
    done = sh(here, script)
    assert done.err == ""
    zero = "0" * 16
    assert done.out.split() == [
        *[str(UID)] * 3, "/home/u", "0022", "CapPrm:", zero, "CapEff:", zero, "/home:", "u", "/tmp:", "x", "700"
    ]  # fmt: skip
    assert here.outside("/home/u/kept").stat().st_uid == UID
    again = sh(here, "ls /home/u /tmp /dev/shm $XDG_RUNTIME_DIR")
    assert again.out.split() == ["/dev/shm:", "/home/u:", "kept", f"{sandbox.RUNTIME}:", "/tmp:"]


def test_root_may_mount_and_nobody_else_sees_it(here: Sandbox) -> None:
    done = sh(here, "id -u; pwd; mount -t tmpfs kvasir /mnt && touch /mnt/x && ls /mnt", as_root=True)
    assert done.out.split() == ["0", "/root", "x"]
    assert not Path("/mnt/x").exists()


def test_variables_and_input_are_not_this_machines(here: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THIS_MACHINE", "1")
    seen = dict(line.split("=", 1) for line in here.run(["env"], timeout=SECONDS).out.splitlines())
    assert seen == here.login(as_root=False, display=None)
    assert sh(here, "cat; tty").out == "not a tty\n"


def test_there_is_a_loopback_and_no_other_network(here: Sandbox) -> None:
    needs("ip")
    interfaces = "ip -oneline addr"
    inside = sh(here, interfaces).out.splitlines()
    assert {line.split()[1] for line in inside} == {"lo"}
    assert any("127.0.0.1/8" in line for line in inside)
    before = subprocess.run(interfaces.split(), capture_output=True, text=True, check=True).stdout
    assert sh(here, interfaces, network=True).out == before
    with only_loopback():
        own = sh(here, interfaces, network=True).out
        assert {line.split()[1] for line in own.splitlines()} == {"lo"}
    assert subprocess.run(interfaces.split(), capture_output=True, text=True, check=True).stdout == before


def test_another_program_of_this_machine_can_enter_the_network(here: Sandbox) -> None:
    server = [sys.executable, "-c", "import socket, time; s = socket.create_server(('127.0.0.1', 0)); "
              "print(s.getsockname()[1], flush=True); s.accept()[0].sendall(b'here')"]  # fmt: skip
    reader = "import socket, sys; print(socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(9))"
    with here.start(server, binds=environment()) as running:
        until = time.monotonic() + SECONDS
        while not running.out.endswith("\n"):
            assert running.alive, running.err
            assert time.monotonic() < until
        command = [*running.enter_network(), sys.executable, "-c", reader, running.out.strip()]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "b'here'\n"
        assert running.wait(SECONDS).code == 0


# --- how a command ends, and what it leaves --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 3", 3), ("exit 130", 130), ("kill -INT $$", -2), ("kill -KILL $$", -9), ("exit 137", 137)],
)
def test_an_exit_code_is_not_a_signal(here: Sandbox, script: str, code: int) -> None:
    with interruptible():
        done = sh(here, f"echo out; echo err >&2; {script}")
    assert (done.code, done.out, done.err, done.text, done.left) == (code, "out\n", "err\n", "out\nerr\n", [])


def test_a_program_that_is_not_there_is_a_sentence(here: Sandbox) -> None:
    done = here.run(["no-such-program"], timeout=SECONDS)
    assert done.code == 127
    assert "no-such-program" in done.err


def test_what_goes_on_is_waited_for_and_then_named(here: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    done = sh(here, "sleep 0.3 & exit 0")
    assert done.left == []
    assert done.seconds < sandbox.LEFT_AFTER_S
    monkeypatch.setattr(sandbox, "LEFT_AFTER_S", 0.2)
    # A marked duration: whether it still runs can be looked for on the whole machine.
    left = sh(here, "sleep 987651 & setsid sleep 987652 & (sleep 987653 &) ; exit 0").left
    assert sorted(left) == ["sleep 987651", "sleep 987652", "sleep 987653"]
    assert not everywhere(left)


def test_a_signal_goes_to_the_command(here: Sandbox) -> None:
    with here.start(
        ["sh", "-c", "trap 'echo told; exit 4' TERM; touch /run/user/1000/x; while :; do sleep 0.01; done"]
    ) as (running):
        until = time.monotonic() + SECONDS
        while not running.file("/run/user/1000/x").exists():
            assert time.monotonic() < until
        assert processes.command(running.pid)[0] == "sh"
        assert running.alive
        running.send(signal.SIGTERM)
        done = running.wait(SECONDS)
        assert (done.code, done.out) == (4, "told\n")
        assert not running.alive
        with pytest.raises(RuntimeError):
            _ = running.pid


def test_what_takes_too_long_is_ended(here: Sandbox) -> None:
    with pytest.raises(TimeoutError, match="said"):
        here.run(["sh", "-c", "echo said; sleep 987654"], timeout=0.5)
    assert not everywhere(["sleep 987654"])


def test_an_inside_that_cannot_be_made_is_an_error(here: Sandbox) -> None:
    with pytest.raises(RuntimeError, match=r"did not start: .*no-such-folder"):
        here.run(["true"], binds=[Bind(Path("/no-such-folder"), "/mnt")])


def test_it_ends_with_the_program_that_started_it(here: Sandbox, tmp_path: Path) -> None:
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from smoke import source
with source.on_this_machine(Path(sys.argv[2])).start(["sleep", "987655"]) as running:
    while True:
        try:
            print(running.pid, flush=True)
            input()
        except RuntimeError:
            pass
"""
    packaging = str(Path(sandbox.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", code, packaging, str(tmp_path / "other")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        inside = int(process.stdout.readline())
        process.kill()
    until = time.monotonic() + SECONDS
    while processes.command(inside):
        assert time.monotonic() < until


# --- the screen ------------------------------------------------------------------------------------------------------

WINDOW = """
from PySide6.QtWidgets import QApplication, QLineEdit
class Field(QLineEdit):
    def closeEvent(self, event):
        print(self.text(), flush=True)
app = QApplication([])
field = Field()
field.setWindowTitle("Trial")
field.setPlaceholderText("What is written smoothly has many shades of one colour")
field.resize(600, 50)
field.move(10, 5)
field.show()
app.exec()
"""


def test_a_window_is_seen_typed_into_and_closed(here: Sandbox, tmp_path: Path) -> None:
    needs("Xvfb", "xdotool", "/usr/lib/python3/dist-packages/Xlib", "import")
    if absent := preflight.sentence(preflight.missing(["xcb"])):
        pytest.skip(absent)
    assert not list(here.outside("/home/u").iterdir())
    with Screen() as screen:
        with here.start([sys.executable, "-c", WINDOW], display=screen.number, binds=environment()) as running:
            window = screen.wait_for_window("Trial", running, SECONDS)
            screen.wait_for_paint(running, SECONDS)
            left, top, width, height = screen.geometry(window)
            assert (left, top, width, height) == (10, 5, 600, 50)
            screen.focus(window)
            screen.click(left + width // 2, top + height // 2)
            screen.type("a KV cache?")
            screen.key("BackSpace")
            picture = QImage(str(screen.picture(tmp_path / "new" / "seen.png")))
            assert (picture.width(), picture.height()) == SIZE
            screen.close(window)
            done = running.wait(SECONDS)
        assert (done.code, done.out, done.err, done.left) == (0, "a KV cache\n", "", [])
        assert screen.windows("Trial") == []
        with here.start(["sh", "-c", "ls /tmp/.X11-unix; exit 1"], display=screen.number) as running:
            with pytest.raises(RuntimeError, match="ended without a window"):
                screen.wait_for_window("Trial", running, SECONDS)
            assert running.wait(SECONDS).out == f"X{screen.number}\n"
        assert sh(here, "ls -A /tmp").out == ""
