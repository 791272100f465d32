"""The maker of the lists of GPU packs, without an index."""

import lock_gpu
import pytest

from engine.services.packs.lists import parse

BASE = "https://files.example/numpy-2.4.6-"


def offered(*tags: str) -> list[dict]:
    return [{"url": f"{BASE}{tag}.whl", "hashes": {"sha256": "ab" * 32}, "size": 5} for tag in tags]


@pytest.mark.parametrize(
    ("tags", "chosen"),
    [
        (["cp311-cp311-win_amd64", "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64"], 1),
        (["py3-none-any", "cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_x86_64"], 1),
        (["cp38-abi3-manylinux_2_18_x86_64", "py3-none-any"], 0),
        (["cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_34_x86_64"], 0),
    ],
)
def test_the_wheel_that_fits_best_is_named(tags: list[str], chosen: int) -> None:
    assert lock_gpu.best("numpy", "2.4.6", offered(*tags)).url == f"{BASE}{tags[chosen]}.whl"


def test_a_distribution_without_a_fitting_wheel_ends_it() -> None:
    with pytest.raises(SystemExit, match=r"numpy 2\.4\.6 has no wheel"):
        lock_gpu.best(
            "numpy", "2.4.6", offered("cp311-cp311-manylinux_2_34_x86_64", "cp311-cp311-musllinux_1_2_x86_64")
        )


def test_the_engine_needs_nothing_of_the_window_and_torch_comes_from_the_recipe() -> None:
    wanted = {lock_gpu.name_of(line) for line in lock_gpu.engine_requires()}
    assert {"numpy", "tokenizers", "starlette", "nvidia-ml-py"} <= wanted
    assert not wanted & {"torch", "pyside6-essentials", "markdown-it-py", "pygments", "ziamath", "pypdfium2", "mammoth"}
    limited = {lock_gpu.name_of(line) for line in lock_gpu.tested_versions()}
    assert "numpy" in limited
    assert not limited & {"torch", "triton"}


def test_what_is_written_is_read_back() -> None:
    wheels = [
        lock_gpu.Wheel("numpy", "2.4.6", f"{BASE}cp311-cp311-linux_x86_64.whl", "ab" * 32, 100_000_001, 300_000_003),
        *lock_gpu.RECIPES["cuda12"].wheels,  # its address was not reached
    ]
    pack = parse(lock_gpu.written("cuda12", lock_gpu.RECIPES["cuda12"], wheels), "cuda12.txt")
    assert [wheel.version for wheel in pack.wheels] == ["2.4.6", "2.11.0+cu128"]
    assert pack.download_bytes == 100_000_001 + 820_214_272
    assert pack.header["installed"].endswith("(torch estimated)")
    assert pack.disk_bytes == pytest.approx(3 * pack.download_bytes, abs=9)
    assert (pack.driver, pack.capabilities, pack.python) == (525, ((7, 5), (13, 0)), "3.11")
