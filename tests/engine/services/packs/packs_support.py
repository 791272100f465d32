"""Small wheels, a server that serves them well or badly, and Kvasir as a process on a machine with a GPU."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import ssl
import subprocess
import sys
import zipfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from engine.base import installation
from engine.base.fetching import download
from engine.doors.cli.main import app
from engine.protocol.gpu import PackReport, PackResult, PackStatus, decode_pack_report
from engine.services.packs import gpus, standing, store
from tests.engine.services.packs.machine import FOUND, PAUSES
from tests.range_server import RangeServer, asked_span

MACHINE = Path(__file__).with_name("machine.py")
TORCH = "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl".replace("311", f"3{sys.version_info.minor}")
LAUNCH = """
import json, pathlib, site, sys, os
folder = pathlib.Path(sys.argv[1])
site.addsitedir(str(next(folder.glob("lib/python3.*/site-packages"))))
import torch, helper
pathlib.Path(os.environ["PACK_TEST_SEEN"]).write_text(json.dumps({"path": sys.path, "environment": dict(os.environ)}))
print("a line of somebody's")
sentence = "One matmul agrees." if torch.WORKS else "No GPU answers."
print(json.dumps({"ok": torch.WORKS, "sentence": sentence, "facts": {}}))
sys.exit(0 if torch.WORKS else 1)
"""


def make_wheel(folder: Path, filename: str, files: dict[str, bytes]) -> Path:
    """A wheel as an installer wants it. ``filename`` says its name and version."""
    name, version = filename.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    tag = filename.removesuffix(".whl").split("-", 2)[2]
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    lines = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,"]).encode()
    with zipfile.ZipFile(folder / filename, "w") as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path), content)
    return folder / filename


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def stand_ins(folder: Path, works: bool = True, version: str = "1.0") -> list[Path]:
    """Wheels of a pack: a torch of 3 MB that cannot be packed further, and a module beside it."""
    folder.mkdir(exist_ok=True)
    weight = random.Random(0).randbytes(3 << 20)
    torch = {"torch/__init__.py": f"WORKS = {works}\n".encode(), "torch/lib/libtorch.so": weight}
    helper = {"helper/__init__.py": b"", "helper/data.txt": b"what the helper knows\n"}
    return [
        make_wheel(folder, TORCH, torch),
        make_wheel(folder, f"Helper_lib-{version}-py3-none-any.whl", helper),
    ]


def write_list(folder: Path, wheels: list[Path], address: str, kind: str = "cuda13", installed: int = 1) -> Path:
    folder.mkdir(exist_ok=True)
    lines = [f"# kind: {kind}", f"# python: 3.{sys.version_info.minor}", f"# installed: {installed} bytes"]
    lines += ["# driver: 580", "# capability: 7.5"]
    for wheel in wheels:
        content = wheel.read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        lines.append(f"x @ {address}/{wheel.name} --hash=sha256:{sha256}  # {len(content)} bytes")
    (folder / f"{kind}.txt").write_text("\n".join(lines) + "\n")
    return folder / f"{kind}.txt"


class Asked(NamedTuple):
    """One request. ``range``: its header; ``sent``: bytes of content that went out."""

    name: str
    range: str
    status: int
    sent: int


class Server(RangeServer):
    """Serves ``folder``. ``ranges``: whether it knows of Range. ``elsewhere``: where everything is sent to. ``gate``:
    called before each block of an answer, with the file's name and what of it was sent."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ranges = folder, True
        self.elsewhere = ""
        self.gate: Callable[[str, int], None] = lambda name, sent: None
        self.log: list[Asked] = []
        super().__init__()

    def encrypt(self, context: ssl.SSLContext) -> None:
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.address = f"https://localhost:{self.port}"

    def asked(self, name: str) -> list[Asked]:
        return [entry for entry in self.log if entry.name == name]

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        name, asked = to.path.rsplit("/", 1)[-1], to.headers.get("Range", "")
        if self.statuses:
            status = self.statuses.pop(0)
            self.log.append(Asked(name, asked, status, 0))
            to.send_error(status)
            return
        if self.elsewhere:
            to.send_response(302)
            to.send_header("Location", f"{self.elsewhere}/{name}")
            to.end_headers()
            return
        content = self.page or (self.folder / name).read_bytes()
        try:
            span = asked_span(to, len(content)) if self.ranges and not self.page else None
        except ValueError:
            self.log.append(Asked(name, asked, 416, 0))
            to.send_error(416)
            return
        sent = self.send(to, content, span, lambda sent: self.gate(name, sent))
        self.log.append(Asked(name, asked, 206 if span else 200, sent))


class Kvasir:
    """The command on a machine with a GPU, with folders of its own."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        self.home, self.lists, self.seen = folder / "home", folder / "lists", folder / "seen.json"
        (folder / "launch.py").write_text(LAUNCH)
        kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        self.environment = {
            **kept,
            "KVASIR_HOME": str(self.home),
            "KVASIR_GPU_LISTS": str(self.lists),
            "PACK_TEST_LAUNCH": str(folder / "launch.py"),
            "PACK_TEST_SEEN": str(self.seen),
            "NO_COLOR": "1",
        }

    @property
    def packs(self) -> Path:
        return self.home / "data" / "gpu"

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(MACHINE), "gpu", *arguments],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, list[PackReport]]:
        """Exit code and what was told, of a command with --json."""
        process = self.start(*arguments, "--json", **environment)
        out, complaint = process.communicate(timeout=300)
        assert "Traceback" not in complaint, complaint
        return process.returncode, [decode_pack_report(line) for line in out.splitlines()]

    def result(self, *arguments: str, **environment: str) -> PackResult:
        """How a command ended; its exit code agrees. A process of its own is for commands with an environment."""
        code, told = (self.run if environment else self._run_here)(*arguments, **environment)
        last = told[-1]
        assert isinstance(last, PackResult)
        assert code == (0 if last.ok else 1)
        return last

    def _run_here(self, *arguments: str) -> tuple[int, list[PackReport]]:
        """As `run`, in this process: the start of another costs more than most commands do."""
        command = [sys.executable, "-I", "-S", str(self.folder / "launch.py")]
        with pytest.MonkeyPatch.context() as patch:
            for name in set(os.environ) - set(self.environment):
                patch.delenv(name)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            patch.setattr(gpus, "probe", lambda: [FOUND])
            patch.setattr(download, "PAUSES", PAUSES)
            patch.setattr(store, "LOCK_WAIT", 0.2)
            patch.setattr(installation, "pack_command", lambda folder: [*command, str(folder)])
            done = CliRunner().invoke(app, ["gpu", *arguments, "--json"], catch_exceptions=False)
        return done.exit_code, [decode_pack_report(line) for line in done.stdout.splitlines()]

    def shown(self) -> str:
        """`kvasir gpu status` in words."""
        out, complaint = self.start("status", COLUMNS="500").communicate(timeout=300)
        assert complaint == ""
        return out

    def status(self) -> PackStatus:
        """As `kvasir gpu status` says it, without the wait for a process."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KVASIR_HOME", self.environment["KVASIR_HOME"])
            patch.setenv("KVASIR_GPU_LISTS", self.environment["KVASIR_GPU_LISTS"])
            return standing.status([FOUND])

    def active(self) -> dict[str, str]:
        return json.loads((self.packs / "active.json").read_text())


def in_use(kvasir: Kvasir) -> None:
    """The pack is installed whole and in use, and nothing else is left."""
    status = kvasir.status()
    assert (status.state, status.active, status.reason) == ("installed", True, "")
    folder = Path(status.folder)
    assert kvasir.active()["folder"] == folder.name
    left = {path.name for path in kvasir.packs.iterdir()}
    assert left == {folder.name, "active.json", "lock"}
    assert (
        next(folder.glob("lib/python3.*/site-packages")) / "torch" / "lib" / "libtorch.so"
    ).stat().st_size == 3 << 20


def modules(folder: Path) -> Path:
    return next(folder.glob("lib/python3.*/site-packages"))


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:7] + bytes([content[7] ^ 1]) + content[8:])
