"""What the trial of GPU packs is made of; the trial itself needs root and a package (make test-package)."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from smoke import gpu_pack, processes, welcome, wheels
from smoke.index import Hold, Index
from smoke.machine import last_line

from engine.base.fetching.download import fetch
from engine.base.fetching.errors import FetchFailed
from engine.services.packs.lists import parse

CONTENT = bytes(range(256)) * 2000


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with zipfile.ZipFile(tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", "w") as archive:
        archive.writestr("torch/lib/libtorch.so", CONTENT)
    with Index(tmp_path) as index:
        yield index


def test_what_a_pack_needs_without_a_gpu() -> None:
    names = wheels.requirements(gpu_pack.LISTED.read_text())
    assert "torch==2.13.0+cpu" in names
    assert any(name.startswith("nvidia_ml_py==") for name in names)
    assert any(name.startswith("tokenizers==") for name in names)
    assert not [name for name in names if name.startswith(("cuda", "nvidia_cu", "triton", "ziglang"))]


def test_the_list_of_the_trial_is_one_that_kvasir_takes(index: Index, tmp_path: Path) -> None:
    file = wheels.write_list(tmp_path / "lists", sorted(tmp_path.glob("*.whl")), index.address, "3.11")
    pack = parse(file.read_text(), "list")
    assert pack.for_processor
    assert pack.disk_bytes == len(CONTENT)
    done = tmp_path / "done"
    done.mkdir()
    (wheel,) = pack.wheels
    whole = (tmp_path / wheel.filename).read_bytes()
    index.cuts[wheel.filename] = 100_000
    assert fetch(wheel, done, lambda count: None).read_bytes() == whole
    index.settle()
    asked = [(entry.start, entry.status, entry.sent) for entry in index.asked(wheel.filename)]
    assert asked == [(0, 200, 100_000), (100_000, 206, len(whole) - 100_000)]

    (done / wheel.filename).unlink()
    index.settle()
    index.forget()
    index.spoilt.add(wheel.filename)
    with pytest.raises(FetchFailed, match="sha256 differs"):
        fetch(wheel, done, lambda count: None)
    index.spoilt.clear()

    (done / f"{wheel.filename}.incomplete").write_bytes(whole[:70_000])
    index.settle()
    index.forget()
    index.ranges = False
    assert fetch(wheel, done, lambda count: None).read_bytes() == whole
    index.settle()
    assert [(entry.start, entry.status) for entry in index.log] == [(70_000, 200)]
    assert index.strange == []


def test_an_answer_can_wait_and_strangers_are_noted(index: Index, tmp_path: Path) -> None:
    name = next(tmp_path.glob("*.whl")).name
    hold = index.hold = Hold(name, 1 << 16)
    got: list[bytes] = []
    url = f"{index.address}/wheels/{name}"
    reader = threading.Thread(target=lambda: got.append(urllib.request.urlopen(url, timeout=300).read()))
    reader.start()
    assert hold.reached.wait(300)
    assert not got
    hold.released.set()
    reader.join(300)
    assert got == [(tmp_path / name).read_bytes()]
    for path in ("/trap/pip/torch/", "/wheels/other.whl"):
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(index.address + path, timeout=300)
    assert index.strange == ["GET /trap/pip/torch/", "GET /wheels/other.whl"]


@pytest.mark.parametrize("size", [3, 125, 126, 60_000])
def test_a_frame_is_read_as_it_was_written(size: int) -> None:
    text = b"x" * size
    sent = welcome.frame(text)
    head = 2 if size < 126 else 4
    assert sent[1] & 0x80  # a client's frames are masked
    assert welcome.payload(io.BytesIO(sent[:1] + bytes([sent[1] & 0x7F]) + sent[2:head] + sent[head + 4 :])) == text


def test_a_message_in_parts_among_others() -> None:
    parts = b"\x89\x01p" + b"\x01\x02ab" + b"\x8a\x00" + b"\x80\x01c"
    assert welcome.payload(io.BytesIO(parts)) == b"abc"
    with pytest.raises(ValueError, match="closed"):
        welcome.payload(io.BytesIO(b"\x88\x02\x03\xe8"))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_processes_and_what_they_have_in_memory() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            while len(found := processes.family(process.pid)) < 2 or "input()" not in processes.command(found[1]):
                assert process.poll() is None
            while not any("libc" in Path(file).name for file in processes.mapped(found[1])):
                assert process.poll() is None  # the program is there before what it is linked with
            assert all(file.startswith("/") for file in processes.mapped(found[1]))
        finally:
            process.communicate(b"\n")
    assert processes.command(process.pid) == []
    with pytest.raises(TimeoutError):
        processes.wait_for_torch(os.getppid(), 0.0)


def test_the_last_line_is_the_result() -> None:
    assert last_line('{"type":"a"}\n{"ok":true}\n') == {"ok": True}
    assert last_line("\n") == {}
