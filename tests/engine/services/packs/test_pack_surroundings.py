"""What a pack is installed among: the user's settings, proxies, certificates, a full disk, an old driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.base.fetching import room
from engine.protocol.gpu import PackProgress, decode_pack_report
from tests.engine.services.packs.packs_support import TORCH, Kvasir, Server, in_use, write_list


def test_settings_of_the_users_do_not_leak_in(kvasir: Kvasir, server: Server) -> None:
    evil = kvasir.folder / "evil"
    evil.mkdir()
    (evil / "torch.py").write_text("raise RuntimeError('the wrong torch')\n")
    (evil / "uv.toml").write_text('index-url = "http://127.0.0.1:9/simple"\nno-binary = true\n')
    (evil / "uv").mkdir()
    (evil / "uv" / "uv.toml").write_text('index-url = "http://127.0.0.1:9/simple"\nno-binary = true\n')
    (evil / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:9/simple\n")
    hostile = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_CONFIG_FILE": str(evil / "pip.conf"),
        "PIP_TARGET": str(evil / "target"),
        "UV_INDEX_URL": "http://127.0.0.1:9/simple",
        "UV_CONFIG_FILE": str(evil / "uv.toml"),
        "UV_NO_BINARY": "1",
        "UV_CACHE_DIR": str(evil / "cache"),
        "UV_PYTHON": "2.7",
        "UV_TARGET": str(evil / "target"),
        "UV_REQUIRE_HASHES": "0",
        "XDG_CONFIG_HOME": str(evil),
        "VIRTUAL_ENV": str(evil),
        "CONDA_PREFIX": str(evil),
    }
    # PYTHONPATH and PYTHONHOME would keep the test's own interpreter from starting, so they are set inside it.
    assert kvasir.result("install", PACK_TEST_PYTHONPATH=str(evil), **hostile).ok
    in_use(kvasir)
    assert {path.name for path in evil.iterdir()} == {"torch.py", "uv.toml", "uv", "pip.conf"}
    seen = json.loads(kvasir.seen.read_text())
    assert str(evil) not in seen["path"]
    assert not [name for name in seen["environment"] if name.startswith("PYTHON")]


def test_a_proxy_is_used(kvasir: Kvasir, server: Server) -> None:
    write_list(kvasir.lists, sorted(server.folder.glob("*.whl")), "http://127.0.0.1:9")
    assert not kvasir.result("install").ok
    assert kvasir.result("install", http_proxy=server.address, no_proxy="").ok
    in_use(kvasir)


def test_without_uv_it_is_said_before_anything_is_fetched(kvasir: Kvasir, server: Server) -> None:
    refused = kvasir.result("install", PACK_TEST_UV="")
    assert refused.sentence.startswith("uv, which makes GPU packs, is missing.")
    assert server.log == []


def test_the_disk_is_asked_before_anything_is_fetched(kvasir: Kvasir, server: Server) -> None:
    write_list(kvasir.lists, sorted(server.folder.glob("*.whl")), server.address, installed=10**15)
    refused = kvasir.result("install")
    assert not refused.ok
    assert "There is not enough room" in refused.sentence
    assert server.log == []


IN_A_SMALL_DISK = """
set -e
mount -t tmpfs -o size={size} disk "$1"
shift
"$@" || true
df --output=used "$KVASIR_HOME" >&2
mount -o remount,size=64m "$KVASIR_HOME"
"$@"
"""


@pytest.mark.parametrize("where", ["downloading", "installing"])
def test_a_disk_that_fills_up(kvasir: Kvasir, server: Server, where: str) -> None:
    able = subprocess.run(["unshare", "-r", "-m", "true"], capture_output=True, check=False)
    if able.returncode:
        pytest.skip("a small disk takes a mount namespace of one's own, which this system does not give")
    kvasir.home.mkdir()
    script = IN_A_SMALL_DISK.format(size={"downloading": "2m", "installing": "5m"}[where])
    code = Path(__file__).with_name("machine.py")
    command = ["unshare", "-r", "-m", "sh", "-c", script, "sh", str(kvasir.home), sys.executable, str(code)]
    environment = {**kvasir.environment, "PACK_TEST_ROOM": "unlimited"}
    done = subprocess.run(
        [*command, "gpu", "install", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    ends = [
        report for line in done.stdout.splitlines() if not isinstance(report := decode_pack_report(line), PackProgress)
    ]
    assert [end.ok for end in ends] == [False, True], done.stdout + done.stderr
    assert "is full" in ends[0].sentence
    if where == "downloading":
        assert server.asked(TORCH)[-1].range  # it went on
    else:
        used = int(done.stderr.split("Used")[1].split()[0])
        assert used < 4 << 10  # what was fetched, in kB, and nothing of what was unpacked


def test_no_pack_for_an_old_driver(kvasir: Kvasir, server: Server) -> None:
    refused = kvasir.result("install", PACK_TEST_DRIVER="470.82")
    assert "580 or newer is needed" in refused.sentence
    assert server.log == []
    assert os.listdir(kvasir.folder / "lists") == ["cuda13.txt"]


def test_what_nobody_thought_of_ends_with_a_result_too(kvasir: Kvasir) -> None:
    kvasir.packs.parent.mkdir(parents=True)
    kvasir.packs.touch()
    refused = kvasir.result("install")
    assert refused.sentence.startswith(f"{kvasir.packs} cannot be used (")


def test_the_room_that_is_asked_for_is_the_room_that_is_needed(kvasir: Kvasir, server: Server) -> None:
    status = kvasir.status()
    sizes = sum(path.stat().st_size for path in server.folder.glob("*.whl"))
    assert status.needed_bytes == sizes + 1 + room.MARGIN
    server.cuts = [1 << 30, 1 << 20, 0, 0, 0]
    assert not kvasir.result("install").ok
    assert kvasir.status().needed_bytes == status.needed_bytes - (sizes - kvasir.status().download_bytes)


def test_a_disk_is_known_before_there_is_a_folder(tmp_path: Path) -> None:
    assert room.same_disk(tmp_path / "not" / "there", tmp_path)
    if Path("/proc/self").exists():
        assert not room.same_disk(tmp_path, Path("/proc/self"))
