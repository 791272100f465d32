"""The lists of packs, and which of them fits which machine."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.services.packs import lists
from engine.services.packs.gpus import Gpu, PackChoice, amd_gpus, choose, gfx, nvidia_gpus
from engine.services.packs.lists import PackFailed, PackList, parse

SHA = "ab" * 32
GOOD = f"""# kind: cuda13
# python: 3.11
# installed: 7 bytes
# driver: 580
# capability: 7.5
torch @ https://files.example/torch-2.13.0%2Bcu130-cp311-cp311-linux_x86_64.whl --hash=sha256:{SHA}  # 12 bytes
"""


def ours() -> dict[str, PackList]:
    folder = Path(lists.__file__).with_name("lists")
    return {path.stem: parse(path.read_text("utf-8"), path.name) for path in folder.glob("*.txt")}


def nvidia(driver: str, capability: tuple[int, int]) -> Gpu:
    return Gpu("nvidia", "GPU", driver, capability)


@pytest.mark.parametrize(
    ("gpus", "wanted", "kind", "why"),
    [
        ([nvidia("580.95.05", (8, 9))], "", "cuda13", ""),
        ([nvidia("580.65.06", (7, 5))], "", "cuda13", ""),
        ([nvidia("595.1", (12, 1))], "", "cuda13", ""),
        ([nvidia("610.1", (13, 0))], "", "cuda13", ""),
        ([nvidia("610.1", (13, 0))], "cuda12", "", "newer than this pack"),
        ([nvidia("575.51.03", (8, 9))], "", "cuda12", ""),
        ([nvidia("525.60.13", (9, 0))], "", "cuda12", ""),
        ([nvidia("580.95.05", (8, 9))], "cuda12", "cuda12", ""),
        ([nvidia("575.51.03", (8, 9))], "cuda13", "", "580 or newer is needed"),
        ([nvidia("520.61.05", (8, 9))], "", "", "525 or newer is needed"),
        ([nvidia("", (8, 9))], "", "", "it is unknown"),
        ([nvidia("580.95.05", (7, 0))], "", "", "compute capability 7.0, and packs begin at 7.5"),
        ([nvidia("580.95.05", (6, 1))], "", "", "too old"),
        ([nvidia("580.95.05", (6, 1)), nvidia("580.95.05", (8, 6))], "", "cuda13", ""),
        ([nvidia("580.95.05", (8, 9))], "rocm", "", "no pack rocm"),
        ([Gpu("nvidia", "NVIDIA GPU", silent="Driver Not Loaded")], "", "", "does not answer (Driver Not Loaded)"),
        ([Gpu("amd", "AMD GPU", target="gfx1100")], "cuda13", "", "no pack cuda13"),
        ([Gpu("amd", "AMD GPU", target="gfx1100")], "", "", "without a pack for AMD GPUs"),
        ([Gpu("amd", "AMD GPU", target="gfx1036"), nvidia("580.1", (8, 6))], "", "cuda13", ""),
        ([], "", "", "No GPU that a pack is made for was found."),
    ],
)
def test_which_pack_fits(gpus: list[Gpu], wanted: str, kind: str, why: str) -> None:
    choice = choose(gpus, ours(), wanted)
    assert choice.kind == kind
    assert (why in choice.refused) if why else choice.refused == ""
    assert (choice.gpu is None) == (gpus == [])


def test_amd_with_and_without_its_list() -> None:
    gpu = Gpu("amd", "AMD GPU", target="gfx1100")
    without = {kind: pack for kind, pack in ours().items() if kind != "rocm"}
    assert "gfx1100) cannot be used" in choose([gpu], without).refused
    rocm = parse(GOOD.replace("cuda13", "rocm") + "# targets: gfx1030 gfx1100\n", "rocm.txt")
    assert choose([gpu], {**without, "rocm": rocm}).kind == "rocm"
    other = choose([gpu._replace(target="gfx1036")], {"rocm": rocm})
    assert (other.kind, "none of the AMD GPUs that this pack" in other.refused) == ("", True)
    assert choose([gpu], {}).refused != ""
    assert choose([nvidia("580.1", (8, 9))], {}).refused == "This Kvasir comes without a pack for GPU (NVIDIA)."


def test_a_list_for_the_processor_needs_no_gpu() -> None:
    processor = parse(GOOD + "# device: cpu\n", "cuda13.txt")
    trial = {"cuda13": processor}
    assert choose([], trial) == PackChoice("cuda13", None, "")
    assert choose([], trial, "cuda13").kind == "cuda13"
    assert choose([nvidia("580.95.05", (6, 1))], trial).kind == "cuda13"
    assert choose([], trial, "cuda12").kind == ""
    assert choose([], {"cuda13": parse(GOOD, "cuda13.txt")}, "cuda13").kind == ""
    assert not any(pack.for_processor for pack in ours().values())


def test_our_lists_hold_what_an_engine_needs() -> None:
    assert {"cuda13", "cuda12"} <= set(ours())
    root = Path(lists.__file__).parents[3]
    project = (root / "pyproject.toml").read_text("utf-8")
    wanted = re.findall(r'^    "([A-Za-z0-9_.-]+)[><]', project.split("dependencies = [")[1].split("]")[0], re.M)
    for kind, pack in ours().items():
        assert pack.kind == kind
        assert pack.header["platform"] == "linux x86_64"
        assert pack.download_bytes == int(pack.header["download"].split()[0])
        assert pack.disk_bytes > pack.download_bytes > 10**9
        names = {wheel.name.lower().replace("_", "-") for wheel in pack.wheels}
        # The window's, and those of who looks for models, fetches them and writes them in another format.
        window = {"pyside6-essentials", "markdown-it-py", "pygments", "ziamath", "jeepney", "python-xlib"}
        window |= {"beautifulsoup4", "markdownify", "mammoth", "pypdfium2", "charset-normalizer"}
        programs = window | {"huggingface-hub", "socksio", "keyring", "gguf"}
        needed = {name.lower() for name in wanted} - programs
        assert len(needed) > 12
        assert needed <= names
        assert "triton" in names
        assert "pyside6-essentials" not in names
        for wheel in pack.wheels:
            assert "+cpu" not in wheel.url
            assert wheel.url.startswith(("https://files.pythonhosted.org/", "https://download.pytorch.org/whl/"))


def test_a_list_is_named_by_what_it_holds() -> None:
    pack = parse(GOOD, "list")
    (wheel,) = pack.wheels
    assert (wheel.name, wheel.version, wheel.bytes) == ("torch", "2.13.0+cu130", 12)
    assert wheel.filename == "torch-2.13.0+cu130-cp311-cp311-linux_x86_64.whl"
    assert len(pack.hash) == 16
    # Where it comes from and what is said about it do not matter; the files and the Python do.
    assert parse(GOOD.replace("files.example", "mirror.example").replace("7 bytes", "8 bytes"), "x").hash == pack.hash
    for change in (("3.11", "3.12"), ("abab", "cdab"), ("cuda13", "cuda12"), ("linux_x86", "manylinux_x86")):
        assert parse(GOOD.replace(*change, 1), "list").hash != pack.hash


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD.replace("https://", "http://"),
        GOOD.replace("https://", "file://"),
        GOOD.replace("https://files.example/", "http://127.0.0.1.evil.example/"),
        GOOD.replace(SHA, SHA[:-1]),
        GOOD.replace(f" --hash=sha256:{SHA}", ""),
        GOOD.replace("  # 12 bytes", ""),
        GOOD.replace("torch-2.13.0%2Bcu130", "..%2F..%2Ftorch-1"),
        GOOD.replace("torch-2.13.0%2Bcu130-cp311-cp311-linux_x86_64.whl", "torch-2.13.0.tar.gz"),
        GOOD.replace("# kind: cuda13\n", ""),
        GOOD.replace("# kind: cuda13", "# kind: cuda99"),
        GOOD.replace("# python: 3.11\n", ""),
        GOOD.replace("# installed: 7 bytes\n", ""),
        GOOD.replace("# installed: 7", "# installed: many"),
        GOOD.replace("# capability: 7.5", "# capability: new"),
        GOOD + GOOD.splitlines()[-1],
        "--index-url https://evil.example\n" + GOOD,
    ],
)
def test_a_list_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PackFailed, match="Install Kvasir again"):
        parse(text, "some list")


def test_a_pack_for_another_python_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.services.packs import standing

    (tmp_path / "cuda13.txt").write_text(GOOD.replace("3.11", "3.7"))
    monkeypatch.setenv("KVASIR_GPU_LISTS", str(tmp_path))
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    gpu = nvidia("580.1", (8, 9))
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    why = f"GPU packs are made for Python 3.7, and this Kvasir runs on {here}."
    with pytest.raises(PackFailed, match=why):
        standing.select([gpu])
    assert standing.status([gpu]).refused == why
    assert not (tmp_path / "home").exists()  # asking makes nothing
    (tmp_path / "cuda13.txt").write_text(GOOD.replace("3.11", here) + "# platform: plan9 mips\n")
    with pytest.raises(PackFailed, match="made for plan9 mips"):
        standing.select([gpu])
    (tmp_path / "cuda12.txt").write_text("nonsense")
    assert "has a line that is not a wheel" in standing.status([gpu]).refused
    (tmp_path / "cuda12.txt").unlink()
    with pytest.raises(PackFailed, match="without a list for rocm; it has cuda13"):
        standing.select([], "rocm", any_machine=True)


class NvmlError(Exception):
    pass


def nvml(**functions: Any) -> Any:
    def second(index: int) -> int:
        if index == 1:
            raise NvmlError
        return index

    working = {
        "NVMLError": NvmlError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"580.95.05",
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": second,
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (8, 9),
        "nvmlDeviceGetName": lambda handle: f"GPU {handle}",
    }
    return SimpleNamespace(**{**working, **functions})


def test_what_the_driver_of_nvidia_tells(tmp_path: Path) -> None:
    def fails(*arguments: object) -> None:
        raise NvmlError("Driver/library version mismatch")

    bus = tmp_path / "0000:01:00.0"
    bus.mkdir()
    (bus / "vendor").write_text("0x10de\n")
    (bus / "class").write_text("0x040300\n")  # the sound of a GPU
    found = nvidia_gpus(nvml(), tmp_path)
    assert [(gpu.name, gpu.driver, gpu.capability) for gpu in found] == [
        ("GPU 0", "580.95.05", (8, 9)),
        ("GPU 2", "580.95.05", (8, 9)),  # the one between did not answer
    ]
    assert nvidia_gpus(None, tmp_path) == []
    assert nvidia_gpus(nvml(nvmlInit=fails), tmp_path) == []
    (bus / "class").write_text("0x030000\n")
    (silent,) = nvidia_gpus(nvml(nvmlInit=fails), tmp_path)
    assert "Driver/library version mismatch" in choose([silent], ours()).refused
    (bus / "driver").symlink_to("/sys/bus/pci/drivers/vfio-pci")
    assert nvidia_gpus(nvml(nvmlInit=fails), tmp_path) == []  # a virtual machine has it
    assert nvidia_gpus(nvml(nvmlSystemGetDriverVersion=fails), tmp_path) == []


def test_what_the_kernel_tells_of_amd(tmp_path: Path) -> None:
    for node, version in ((0, 0), (1, 110000), (2, 90010), (10, 100306)):
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "properties").write_text(f"cpu_cores_count 0\ngfx_target_version {version}\n")
    (tmp_path / "3").mkdir()  # one that may not be read
    assert [gpu.target for gpu in amd_gpus(tmp_path)] == ["gfx1100", "gfx90a", "gfx1036"]
    assert amd_gpus(tmp_path / "nowhere") == []
    assert [gfx(90402), gfx(120001), gfx(90500)] == ["gfx942", "gfx1201", "gfx950"]
