"""Looking after an installed pack: damage and repair, removal, and former versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.services.packs import selftest, start
from tests.engine.services.packs.packs_support import TORCH, Kvasir, Server, flip, modules, stand_ins, write_list


@pytest.mark.parametrize("damage", ["a bit", "a file", "a list of files", "a whole part"])
def test_what_is_damaged_is_fetched_again(kvasir: Kvasir, server: Server, installed: Path, damage: str) -> None:
    place = modules(installed)
    {
        "a bit": lambda: flip(place / "helper" / "data.txt"),
        "a file": lambda: (place / "helper" / "data.txt").unlink(),
        "a list of files": lambda: (place / "Helper_lib-1.0.dist-info" / "RECORD").write_text("helper/__init__.py,,\n"),
        "a whole part": lambda: [shutil.rmtree(path) for path in place.glob("[hH]elper*")],
    }[damage]()
    told = kvasir.result("check")
    assert not told.ok
    assert told.sentence == "Files of Helper_lib are missing or damaged. `kvasir gpu repair` replaces them."
    assert kvasir.status().state == "broken"
    assert not kvasir.status().active
    repaired = kvasir.result("repair")
    assert repaired.ok
    assert repaired.sentence.startswith("Replaced: Helper_lib. ")
    assert [entry.name for entry in server.log] == ["Helper_lib-1.0-py3-none-any.whl"]
    assert (place / "helper" / "data.txt").read_text() == "what the helper knows\n"
    assert kvasir.result("check").ok
    assert kvasir.status().active
    assert {path.name for path in kvasir.packs.iterdir()} == {installed.name, "active.json", "lock"}


def test_a_missing_library_is_noticed_without_a_look_at_every_file(kvasir: Kvasir, installed: Path) -> None:
    library = modules(installed) / "torch" / "lib" / "libtorch.so"
    library.unlink()
    status = kvasir.status()
    assert (status.state, status.active) == ("broken", False)
    assert "its file libtorch.so is missing or damaged" in status.reason
    assert kvasir.result("repair").sentence.startswith("Replaced: torch. ")
    status = kvasir.status()
    assert (status.state, status.active, library.stat().st_size) == ("installed", True, 3 << 20)


@pytest.mark.slow
def test_the_pack_in_use_is_the_one_that_is_looked_after(kvasir: Kvasir, server: Server, installed: Path) -> None:
    write_list(kvasir.lists, stand_ins(server.folder, version="2.0"), server.address, kind="cuda12")
    other = kvasir.result("install", "--kind", "cuda12")
    assert other.ok, other.sentence
    used = kvasir.status()
    assert (used.kind, used.active, used.others) == ("cuda12", True, [str(installed)])
    for command in ("check", "repair", "install"):
        assert "The GPU pack cuda12 is in use" in kvasir.result(command).sentence
    assert "The GPU pack cuda13 is in use" in kvasir.result("install", "--kind", "cuda13").sentence


def test_a_repair_that_was_broken_off_goes_on(kvasir: Kvasir, server: Server, installed: Path) -> None:
    flip(modules(installed) / "torch" / "lib" / "libtorch.so")
    server.cuts = [1 << 20, 0, 0, 0, 0]
    assert not kvasir.result("repair").ok
    status = kvasir.status()
    assert (status.state, status.reason, status.active) == ("broken", "Its repair was not finished.", False)
    server.cuts = []
    assert kvasir.result("repair").ok
    assert server.asked(TORCH)[-1].range == f"bytes={1 << 20}-"
    assert kvasir.status().active


def test_what_was_damaged_and_is_whole_again_is_used(kvasir: Kvasir, installed: Path) -> None:
    library = modules(installed) / "torch" / "lib" / "libtorch.so"
    flip(library)
    assert not kvasir.result("check").ok
    flip(library)
    assert kvasir.status().state == "broken"
    assert kvasir.result("check").ok
    assert kvasir.status().active


def test_a_pack_without_its_receipt_is_made_anew(kvasir: Kvasir, server: Server, installed: Path) -> None:
    (installed / "pack.json").unlink()
    assert not kvasir.status().active
    assert kvasir.result("repair").ok
    assert {entry.name for entry in server.log} == {path.name for path in server.folder.glob("*.whl")}
    assert kvasir.status().active


def test_a_good_pack_is_not_fetched_again(kvasir: Kvasir, server: Server, installed: Path) -> None:
    assert kvasir.result("repair").sentence.startswith("Every file is as it was installed. ")
    assert server.log == []


def test_removed(kvasir: Kvasir, installed: Path) -> None:
    assert kvasir.result("remove", installed.name).ok
    assert {path.name for path in kvasir.packs.iterdir()} == {"lock"}
    assert kvasir.status().state == "none"
    assert "There was no GPU pack." in kvasir.result("remove").sentence
    assert "There is no pack 0123456789abcdef" in kvasir.result("remove", "0123456789abcdef").sentence
    assert not kvasir.result("remove", "../../../etc").ok


def upgraded(kvasir: Kvasir, server: Server, works: bool = True) -> None:
    """A later Kvasir, whose list holds other files."""
    shutil.rmtree(server.folder)
    write_list(kvasir.lists, stand_ins(server.folder, works, version="2.0"), server.address)


@pytest.mark.slow
def test_a_pack_of_a_former_version_is_used_until_there_is_another(
    kvasir: Kvasir, server: Server, installed: Path
) -> None:
    upgraded(kvasir, server)
    status = kvasir.status()
    assert (status.state, status.active, status.former, status.others) == ("none", False, str(installed), [])
    assert f"{installed}, a pack of another version" in kvasir.shown()
    assert kvasir.result("install").ok
    now = kvasir.status()
    assert now.active
    assert now.folder != str(installed)
    assert (now.former, now.others) == ("", [str(installed)])
    assert kvasir.result("remove", str(installed)).ok
    assert kvasir.status().others == []
    assert kvasir.status().active


def test_a_former_version_stays_in_use_where_the_new_one_fails(kvasir: Kvasir, server: Server, installed: Path) -> None:
    upgraded(kvasir, server, works=False)
    failed = kvasir.result("install")
    assert "the one in use before stays. No GPU answers." in failed.sentence
    status = kvasir.status()
    assert (status.state, status.active, status.former) == ("installed", False, str(installed))
    assert "Another pack is in use." in status.reason
    note = kvasir.active()
    (kvasir.packs / "active.json").write_text(json.dumps(note | {"tested": "", "refused": start.fingerprint()}))
    status = kvasir.status()
    assert (status.former, status.others) == ("", [str(installed)])
    assert "not tested yet" in status.reason


def test_a_pack_that_the_driver_is_too_old_for_gives_way(kvasir: Kvasir, server: Server, installed: Path) -> None:
    other = server.folder / "cuda12"
    write_list(kvasir.lists, stand_ins(other, version="12.0"), f"{server.address}/cuda12", "cuda12")
    server.folder = other
    assert kvasir.result("install", "--kind", "cuda12").ok
    text = (kvasir.lists / "cuda12.txt").read_text()
    (kvasir.lists / "cuda12.txt").write_text(text.replace("driver: 580", "driver: 999"))
    status = kvasir.status()
    assert (status.kind, status.state, Path(status.former).name) == ("cuda13", "installed", kvasir.active()["folder"])
    assert "The GPU pack cuda13 is in use" in kvasir.result("check").sentence
    assert kvasir.status().active


def test_a_failure_of_another_day_is_forgotten(kvasir: Kvasir, installed: Path) -> None:
    note = kvasir.active() | {"refused": "the GPU was unplugged", "reason": "No GPU answers."}
    (kvasir.packs / "active.json").write_text(json.dumps(note))
    status = kvasir.status()
    assert (status.state, status.active, status.reason) == ("installed", True, "")


def test_a_pack_is_repaired_by_a_program_that_has_moved(kvasir: Kvasir, server: Server, installed: Path) -> None:
    for link in (installed / "bin").glob("python*"):
        link.unlink()
        link.symlink_to("/nowhere/kvasir-0.1.0/python/bin/python3")
    flip(modules(installed) / "helper" / "data.txt")
    assert kvasir.result("repair").ok
    assert kvasir.status().active


def test_what_a_link_of_the_users_points_to_stays(kvasir: Kvasir, installed: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "a larger disk"
    installed.rename(elsewhere)
    installed.symlink_to(elsewhere)
    assert kvasir.status().active
    assert kvasir.result("remove").ok
    assert (elsewhere / "pack.json").is_file()
    assert {path.name for path in kvasir.packs.iterdir()} == {"lock"}


def test_a_pack_that_is_removed_without_its_receipt_is_not_missed(kvasir: Kvasir, installed: Path) -> None:
    (installed / "pack.json").unlink()
    assert kvasir.result("remove", installed.name).ok
    assert not (kvasir.packs / "active.json").exists()


def test_a_removal_that_was_broken_off_is_finished(kvasir: Kvasir, installed: Path) -> None:
    old = kvasir.packs / "0123456789abcdef.removing"
    (old / "lib").mkdir(parents=True)
    assert kvasir.status().others == [str(old)]
    assert kvasir.result("install").ok
    assert not old.exists()


@pytest.mark.parametrize(("said", "device"), [("cpu", "cpu"), ("NVIDIA GPUs of a test", "cuda")])
def test_the_self_test_looks_for_the_device_that_the_list_names(kvasir: Kvasir, said: str, device: str) -> None:
    file = kvasir.lists / "cuda13.txt"
    file.write_text(f"# device: {said}\n" + file.read_text())
    assert kvasir.result("install").ok
    folder = Path(kvasir.status().folder)
    assert selftest._device_asked_for(folder) == device
    flip(modules(folder) / "helper" / "data.txt")
    assert kvasir.result("repair").ok
    assert selftest._device_asked_for(folder) == device
