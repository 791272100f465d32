"""When the engine goes on in a GPU pack, and what is said where it does not: tables, with no engine started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from engine.base import installation
from engine.library import paths as config
from engine.services.packs import fingerprint as fingerprints
from engine.services.packs import launch, marker, start
from tests.engine.services.packs.packfolder import LOCK, PYTHON, make_pack


class WentOnError(Exception):
    """Instead of leaving this process."""


@pytest.fixture
def packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(start.SWITCH, raising=False)
    monkeypatch.setenv(start.REASON, "from a process before")
    folder = tmp_path / "home" / "data" / "gpu"
    folder.mkdir(parents=True)
    assert config.packs_folder() == folder
    return folder


@pytest.fixture
def went(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    commands: list[list[str]] = []

    def go_on(command: list[str]) -> None:
        commands.append(command)
        raise WentOnError

    monkeypatch.setattr(start, "_go_on", go_on)
    return commands


def reason_of(*arguments: str) -> str | None:
    """Why the CPU engine goes on, as it is told; fails where the pack is used."""
    start.redirect(["kvasir", *arguments])
    return os.environ.get(start.REASON)


@pytest.mark.parametrize(
    ("arguments", "computing"),
    [
        (["serve"], True),
        (["serve", "--child"], True),
        (["chat", "--prompt", "x"], True),
        (["doctor"], True),
        (["bench", "--rounds", "1"], True),
        (["models", "check"], True),
        (["train-heads", "x"], True),
        (["quantise", "x", "--to", "gptq"], True),
        (["lab", "prefixes"], True),
        (["compare", "--column", "kv_kind=int8"], True),
        (["chat", "--device", "cuda"], True),
        (["chat", "--device", "cpu"], False),
        (["serve", "--child", "--device=cpu"], False),
        (["chat", "--help"], False),
        (["serve", "-h"], False),
        (["--version"], False),
        (["gpu", "status"], False),
        (["uninstall"], False),
        ([], False),
    ],
)
def test_only_commands_that_compute_go_on_in_the_pack(packs, went, arguments, computing):
    pack = make_pack(packs)
    if computing:
        with pytest.raises(WentOnError):
            start.redirect(["kvasir", *arguments])
        assert went == [[*installation.pack_command(pack), *arguments]]
        assert start.REASON not in os.environ
        assert marker.deaths(packs) == ("--child" in arguments)
    else:
        assert reason_of(*arguments) == "from a process before"
        assert went == []


def test_there_is_nothing_to_say_without_a_pack(packs, went):
    assert reason_of("serve", "--child") is None
    assert not (packs / "starting").exists()


def test_a_packs_engine_stays_where_it_is(packs, went, monkeypatch):
    monkeypatch.setattr(installation, "_pack", make_pack(packs))
    start.redirect(["kvasir", "serve", "--child"])
    assert went == []


def test_a_users_no(packs, went, monkeypatch):
    make_pack(packs)
    monkeypatch.setenv(start.SWITCH, "off")
    assert "KVASIR_GPU_PACK=off" in str(reason_of("chat"))


def test_a_pack_that_has_failed_says_why_once(packs, went, monkeypatch):
    make_pack(packs)
    monkeypatch.setenv(launch.FAILED, "It cannot be loaded.")
    assert reason_of("chat") == "It cannot be loaded."
    with pytest.raises(WentOnError):
        start.redirect(["kvasir", "chat"])


def test_packs_that_do_not_fit_are_not_used(packs, went, monkeypatch):
    pack = make_pack(packs, python="3.2")
    assert "made for Python 3.2" in str(reason_of("chat"))
    note = {"python": PYTHON, "broken": "Files of torch are damaged."}
    (pack / "pack.json").write_text(json.dumps(note))
    assert "Files of torch are damaged. `kvasir gpu repair`" in str(reason_of("chat"))
    (pack / "pack.json").write_text(json.dumps({"python": PYTHON, "libraries": [1]}))
    assert "kvasir gpu repair" in str(reason_of("chat"))
    (pack / "pack.json").write_text("{")
    assert "kvasir gpu repair" in str(reason_of("chat"))
    (pack / "pack.json").unlink()
    assert "kvasir gpu repair" in str(reason_of("chat"))


@pytest.mark.parametrize("size", [None, 6])
def test_a_pack_without_one_of_its_libraries_is_not_used(packs, went, size):
    pack = make_pack(packs)
    library = pack / "libtorch.so"
    note = {"python": PYTHON, "libraries": {library.name: 7}}
    (pack / "pack.json").write_text(json.dumps(note))
    if size is not None:
        library.write_bytes(bytes(size))
    said = str(reason_of("chat"))
    assert "its file libtorch.so is missing or damaged" in said
    assert "kvasir gpu repair" in said
    library.write_bytes(bytes(7))
    with pytest.raises(WentOnError):
        start.redirect(["kvasir", "chat"])


@pytest.mark.parametrize("folder", ["gone", "..", "", ".", "/etc", "a/b", f"../gpu/{LOCK}"])
def test_only_a_folder_of_packs_is_a_pack(packs, went, folder):
    make_pack(packs)
    start.write_active(packs, {"folder": folder, "tested": start.fingerprint()})
    assert "kvasir gpu install" in str(reason_of("chat"))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"folder": 3}', "\udc80"])
def test_a_note_that_makes_no_sense_is_said_to_make_none(packs, went, text):
    make_pack(packs)
    (packs / "active.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert "kvasir gpu check" in str(reason_of("chat"))


def test_a_missing_interpreter(packs, went, monkeypatch, tmp_path):
    make_pack(packs)
    monkeypatch.setattr(installation, "python", lambda: tmp_path / "none")
    assert "missing" in str(reason_of("chat"))


def test_an_interpreter_that_cannot_be_run(packs, monkeypatch, tmp_path):
    make_pack(packs)
    (tmp_path / "python").write_text("")
    monkeypatch.setattr(installation, "python", lambda: tmp_path / "python")
    assert "could not be started" in str(reason_of("serve", "--child"))
    assert marker.deaths(packs) == 0


def test_deaths_at_the_start_are_counted_and_forgotten(packs, went):
    make_pack(packs)
    for expected in (1, 2):
        with pytest.raises(WentOnError):
            start.redirect(["kvasir", "serve", "--child"])
        assert marker.deaths(packs) == expected
    assert "ended 2 times" in str(reason_of("serve", "--child"))
    assert "ended 2 times" in str(reason_of("chat"))
    start.activate(packs, LOCK, "cuda13")
    with pytest.raises(WentOnError):
        start.redirect(["kvasir", "serve", "--child"])


def test_a_half_written_marker_counts_as_one_death(packs):
    (packs / "starting").write_text("")
    assert marker.deaths(packs) == 1


class Trials:
    """Self-tests with a given end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *results: start.SelfTest) -> None:
        self.results = list(results)
        monkeypatch.setattr(start, "self_test", lambda pack, seconds: self.results.pop(0))


PASSED, FAILED = start.SelfTest(True, "It works.", {}), start.SelfTest(False, "No GPU.", {})
LATE = start.SelfTest(False, "Too slow.", {}, timed_out=True)


def test_a_new_driver_is_tested_once(packs, went, monkeypatch, capsys):
    make_pack(packs, tested="an older driver")
    tests = Trials(monkeypatch, PASSED)
    for _ in range(2):
        with pytest.raises(WentOnError):
            start.redirect(["kvasir", "chat"])
    assert tests.results == []
    assert json.loads((packs / "active.json").read_text())["tested"] == start.fingerprint()
    assert "being tested" in capsys.readouterr().err


def test_a_pack_that_fails_with_a_new_driver_is_refused_until_something_changes(packs, went, monkeypatch, capsys):
    make_pack(packs, tested="an older driver")
    tests = Trials(monkeypatch, FAILED, PASSED)
    for _ in range(3):
        assert "No GPU." in str(reason_of("chat"))
    assert len(tests.results) == 1
    assert capsys.readouterr().err.count("No GPU.") == 1
    monkeypatch.setattr(start, "fingerprint", lambda: "yet another driver")
    with pytest.raises(WentOnError):
        start.redirect(["kvasir", "chat"])
    assert "refused" not in json.loads((packs / "active.json").read_text())


def test_a_driver_that_the_test_itself_loads_is_the_one_it_was_tested_with(packs, went, monkeypatch):
    make_pack(packs, tested="an older driver")
    seen = iter(["no driver yet", "a new driver", "a new driver"])
    monkeypatch.setattr(start, "fingerprint", lambda: next(seen))
    Trials(monkeypatch, PASSED)
    for _ in range(2):
        with pytest.raises(WentOnError):
            start.redirect(["kvasir", "chat"])


def test_a_full_disk_does_not_keep_the_pack_from_being_used(packs, went, monkeypatch):
    def full(packs: Path) -> None:
        raise OSError(28, "No space left on device")

    make_pack(packs)
    monkeypatch.setattr(marker, "begin", full)
    with pytest.raises(WentOnError):
        start.redirect(["kvasir", "serve", "--child"])


def test_the_driver_of_before_needs_no_test(packs, went, monkeypatch):
    make_pack(packs)
    Trials(monkeypatch, FAILED)
    with monkeypatch.context() as away:
        away.setattr(start, "fingerprint", lambda: "the GPU is unplugged")
        assert "No GPU." in str(reason_of("chat"))
    with pytest.raises(WentOnError):
        start.redirect(["kvasir", "chat"])


def test_a_test_that_is_late_is_made_again(packs, went, monkeypatch):
    make_pack(packs, tested="an older driver")
    tests = Trials(monkeypatch, LATE, PASSED)
    assert "Too slow." in str(reason_of("chat"))
    with pytest.raises(WentOnError):
        start.redirect(["kvasir", "chat"])
    assert tests.results == []


def test_nothing_of_python_or_the_packaged_program_reaches_the_pack(monkeypatch):
    outer = {
        "PATH": "/bin", "HOME": "/home/x", "PYTHONPATH": "/a", "PYTHONHOME": "/b", "_PYI_ARCHIVE_FILE": "k",
        "_MEIPASS2": "m", "LD_LIBRARY_PATH": "/opt/kvasir/_internal", "KVASIR_GPU_PACK_REASON": "x",
        "TRITON_CACHE_DIR": "/mine",
    }  # fmt: skip
    kept = {"PATH", "HOME", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "KVASIR_VERSION"}
    inner = start.environment(outer)
    assert set(inner) == kept | {"LD_LIBRARY_PATH"}  # in a Python environment it is the user's own
    assert inner["TRITON_CACHE_DIR"] == "/mine"
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", "/opt/kvasir/kvasir-engine")
    assert set(start.environment(outer)) == kept
    assert start.environment(outer | {"LD_LIBRARY_PATH_ORIG": "/mine"})["LD_LIBRARY_PATH"] == "/mine"
    # Started by another of the packaged programs, whose loader had put the folder there already.
    again = {"LD_LIBRARY_PATH": "/opt/kvasir/_internal:/opt/kvasir/_internal:/mine",
             "LD_LIBRARY_PATH_ORIG": "/opt/kvasir/_internal:/mine"}  # fmt: skip
    assert start.environment(outer | again)["LD_LIBRARY_PATH"] == "/mine"
    again["LD_LIBRARY_PATH_ORIG"] = "/opt/kvasir/_internal"
    assert set(start.environment(outer | again)) == kept


def test_the_fingerprint_is_of_the_driver_and_the_gpus(tmp_path):
    def machine(name: str, files: dict[str, str]) -> str:
        for file, text in files.items():
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_text(text)
        return fingerprints.fingerprint(tmp_path / name)

    proc, gpu = "proc/driver/nvidia", "proc/driver/nvidia/gpus/0000:01:00.0/information"
    line = "NVRM version: NVIDIA UNIX {kind}x86_64 Kernel Module  {v}  Tue Apr 1 2025\nGCC version: gcc 12.3.0\n"
    version = f"{proc}/version"
    one = {version: line.format(kind="", v="570.86.15"), gpu: "Model: \t NVIDIA H200\nIRQ: 5\n"}
    found = machine("one", one)
    assert "NVIDIA driver 570.86.15" in found
    assert "NVIDIA H200" in found
    assert machine("awake", {**one, gpu: "Model: \t NVIDIA H200\nIRQ: 9\n"}) == found
    open_kind = machine("open", {**one, version: line.format(kind="Open Kernel Module for ", v="580.1")})
    assert "NVIDIA driver 580.1" in open_kind
    other = machine("other", {**one, "proc/driver/nvidia/gpus/0000:02:00.0/information": "Model: NVIDIA H200\n"})
    assert other.count("NVIDIA H200") == 2
    bus = "sys/bus/pci/devices/0000:01:00.0"
    numbered = machine("numbers", {**one, f"{bus}/device": "0x2335\n", f"{bus}/subsystem_device": "0x18be\n"})
    assert "0x2335 0x18be" in numbered
    assert machine("none", {"etc/x": ""}) == f"kvasir {config.version()}"
    nodes = "sys/class/kfd/kfd/topology/nodes"
    amd = {
        f"{nodes}/0/properties": "cpu_cores_count 16\ngfx_target_version 0\n",
        f"{nodes}/1/properties": "gfx_target_version 110000\ndevice_id 29772\n",
        "proc/sys/kernel/osrelease": "6.8.0\n",
    }
    assert "AMD driver of Linux 6.8.0; AMD GPU 110000 29772" in machine("amd", amd)
    assert "AMD driver 6.10.5; AMD" in machine("amd dkms", {**amd, "sys/module/amdgpu/version": "6.10.5\n"})
    assert "libcuda.so.1" in machine("wsl", {"usr/lib/wsl/lib/libcuda.so.1": "x"})


def test_looking_for_a_pack_imports_nothing_heavy(packs):
    make_pack(packs, python="3.2")
    heavy = {"torch", "numpy", "msgspec", "importlib.metadata", "pynvml", "ssl", "asyncio"}
    code = (
        f"import os, sys\nsys.path += {[str(Path(start.__file__).parents[3]), sysconfig.get_path('purelib')]}\n"
        "from engine.services.packs import start\nstart.redirect(['kvasir', 'chat'])\n"
        f"assert 'made for' in os.environ[start.REASON]\nassert not {heavy} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
