"""Packs on a stick: bundles, whole and damaged, and what is taken from them."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import msgspec
import pytest

from engine.protocol.gpu import PackProgress
from tests.engine.services.packs.packs_support import Kvasir, Server, flip, modules, stand_ins, write_list


@pytest.mark.slow
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
    # Of an installed pack only what is damaged is taken from it.
    flip(modules(Path(kvasir.status().folder)) / "helper" / "data.txt")
    code, told = kvasir.run("install", "--from", str(out))
    loading = [report for report in told if isinstance(report, PackProgress) and report.stage == "downloading"]
    small = (server.folder / "Helper_lib-1.0-py3-none-any.whl").stat().st_size
    assert (code, loading[-1].done, loading[-1].total) == (0, small, small)


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
    words = {
        "a bit": "is not the file that this Kvasir knows",
        "cut": "bundle",
        "no bundle": "is not a bundle of a GPU",
    }
    assert words.get(damage, "is not there" if damage == "not there" else "is missing") in refused.sentence
    assert not outside.exists()
    assert not (kvasir.packs / "active.json").exists()
    if damage in ("a bit", "cut"):
        assert kvasir.result("install").ok  # from the network, with what of the bundle was good


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


def test_a_bundle_says_of_which_kind_it_is(kvasir: Kvasir, server: Server, tmp_path: Path) -> None:
    write_list(kvasir.lists, stand_ins(server.folder, version="2.0"), server.address, kind="cuda12")
    out = tmp_path / "pack.tar"
    assert kvasir.result("bundle", "--kind", "cuda12", "--out", str(out)).ok
    installed = kvasir.result("install", "--from", str(out))
    assert "The GPU pack cuda12 is in use" in installed.sentence
    refused = kvasir.result("install", "--kind", "cuda13", "--from", str(out))
    assert "holds another pack (cuda12 for Python" in refused.sentence
