"""Looking after an installed pack: damage and repair, removal, former versions, and packs on a stick."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import msgspec
import pytest
from packs_support import TORCH, Kvasir, Server, stand_ins, write_list

from engine.packs import selftest


@pytest.fixture
def installed(kvasir: Kvasir, server: Server) -> Path:
    """The folder of a pack in use."""
    assert kvasir.result("install").ok
    server.log.clear()
    return Path(kvasir.status().folder)


def modules(folder: Path) -> Path:
    return next(folder.glob("lib/python3.*/site-packages"))


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:7] + bytes([content[7] ^ 1]) + content[8:])


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


def test_a_pack_of_a_former_version_is_another_and_can_be_removed(
    kvasir: Kvasir, server: Server, installed: Path
) -> None:
    shutil.rmtree(server.folder)
    write_list(kvasir.lists, stand_ins(server.folder, version="2.0"), server.address)
    status = kvasir.status()
    assert (status.state, status.active, status.others) == ("none", False, [str(installed)])
    assert kvasir.result("install").ok
    now = kvasir.status()
    assert now.active
    assert now.folder != str(installed)
    assert kvasir.result("remove", str(installed)).ok
    assert kvasir.status().others == []
    assert kvasir.status().active


def test_a_removal_that_was_broken_off_is_finished(kvasir: Kvasir, installed: Path) -> None:
    old = kvasir.packs / "0123456789abcdef.removing"
    (old / "lib").mkdir(parents=True)
    assert kvasir.status().others == [str(old)]
    assert kvasir.result("install").ok
    assert not old.exists()


def test_a_pack_on_a_stick_needs_no_network(kvasir: Kvasir, server: Server, tmp_path: Path) -> None:
    stick = tmp_path / "stick"
    stick.mkdir()
    out = stick / "kvasir gpu.tar"
    assert "not there" in kvasir.result("bundle", "--out", str(tmp_path / "nowhere" / "x.tar")).sentence
    server.cuts = [1 << 30, 1 << 20]
    made = kvasir.result("bundle", "--kind", "cuda13", "--out", str(out), PACK_TEST_DRIVER="1.0")
    assert made.ok, made.sentence  # for another machine: this one's GPU does not matter
    assert [path.name for path in stick.iterdir()] == [out.name]
    assert {path.name for path in kvasir.packs.iterdir()} == {"lock"}
    server.log.clear()
    assert kvasir.result("install", "--from", str(out)).ok
    assert server.log == []
    assert kvasir.status().active


def make_bundle(kvasir: Kvasir, out: Path) -> Path:
    assert kvasir.result("bundle", "--out", str(out)).ok
    return out


def test_a_bundle_of_another_version_is_refused(kvasir: Kvasir, server: Server, tmp_path: Path) -> None:
    out = make_bundle(kvasir, tmp_path / "old.tar")
    shutil.rmtree(server.folder)
    write_list(kvasir.lists, stand_ins(server.folder, version="2.0"), server.address)
    refused = kvasir.result("install", "--from", str(out))
    assert not refused.ok
    assert "holds another pack (cuda13 for Python" in refused.sentence
    assert not (kvasir.packs / "active.json").exists()


@pytest.mark.parametrize("damage", ["a bit", "cut", "no bundle", "missing", "not there", "an absolute name", "a link"])
def test_a_bundle_that_is_damaged_or_none(kvasir: Kvasir, server: Server, tmp_path: Path, damage: str) -> None:
    out = make_bundle(kvasir, tmp_path / "pack.tar")
    content = out.read_bytes()
    outside = tmp_path / "outside"
    if damage == "a bit":
        at = content.index(b"what the helper knows")
        out.write_bytes(content[:at] + b"W" + content[at + 1 :])
    elif damage == "cut":
        out.write_bytes(content[: len(content) // 2])
    elif damage == "no bundle":
        out.write_bytes(b"PK\x03\x04 something else")
    elif damage == "not there":
        out.unlink()
    else:
        with tarfile.open(out) as whole, tarfile.open(tmp_path / "less.tar", "w") as less:
            for member in whole.getmembers():
                if not member.name.startswith("Helper"):
                    less.addfile(member, whole.extractfile(member))
                elif damage == "an absolute name":
                    member.name = str(outside)
                    less.addfile(member, whole.extractfile(member))
                elif damage == "a link":
                    member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc/passwd", 0
                    less.addfile(member)
        (tmp_path / "less.tar").replace(out)
    refused = kvasir.result("install", "--from", str(out))
    assert not refused.ok
    words = {"a bit": "is not the file that this Kvasir knows", "cut": "bundle", "no bundle": "is no bundle of a GPU"}
    assert words.get(damage, "is not there" if damage == "not there" else "is missing") in refused.sentence
    assert not outside.exists()
    assert not (kvasir.packs / "active.json").exists()
    if damage in ("a bit", "cut"):
        assert kvasir.result("install").ok  # from the network, with what of the bundle was good


@pytest.mark.parametrize(("said", "device"), [("cpu", "cpu"), ("NVIDIA GPUs of a test", "cuda")])
def test_the_self_test_looks_for_the_device_that_the_list_names(kvasir: Kvasir, said: str, device: str) -> None:
    file = kvasir.lists / "cuda13.txt"
    file.write_text(f"# device: {said}\n" + file.read_text())
    assert kvasir.result("install").ok
    folder = Path(kvasir.status().folder)
    assert selftest._device_asked_for(folder) == device
    flip(modules(folder) / "helper" / "data.txt")
    assert kvasir.result("repair").ok
    assert json.loads((folder / "pack.json").read_text())["device"] == device


def test_a_bundle_cannot_bring_a_list_of_its_own(kvasir: Kvasir, server: Server, tmp_path: Path) -> None:
    out = make_bundle(kvasir, tmp_path / "pack.tar")
    with tarfile.open(out) as whole:
        first = whole.extractfile(whole.getmembers()[0])
        assert first is not None
        told = msgspec.json.decode(first.read())
    told["list"] = told["list"].replace("# kind: cuda13", "# kind: cuda12")
    manifest = tmp_path / "kvasir-pack.json"
    manifest.write_text(json.dumps(told))
    with tarfile.open(tmp_path / "other.tar", "w") as other:
        other.add(manifest, manifest.name)
    refused = kvasir.result("install", "--from", str(tmp_path / "other.tar"))
    assert "holds another pack (cuda12" in refused.sentence
