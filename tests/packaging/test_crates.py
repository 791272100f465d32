"""Which Rust crates a wheel's bill of materials names, and their licences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit import crates, environment

from tests.packaging import linux_standin

CRATE = {
    "name": "somecrate",
    "version": "1.2.3",
    "author": "Some One <one@example.org>",
    "scope": "required",
    "licenses": [{"expression": "MIT OR Apache-2.0"}],
    "purl": "pkg:cargo/somecrate@1.2.3",
    "externalReferences": [
        {"type": "website", "url": "https://example.org"},
        {"type": "vcs", "url": "https://example.org/git"},
    ],
}


def bom(folder: Path, *components: dict[str, Any]) -> list[Path]:
    file = folder / "x.cyclonedx.json"
    file.write_text(json.dumps({"bomFormat": "CycloneDX", "components": components}), encoding="utf-8")
    return [file]


def test_what_is_linked_is_listed_with_the_licences_that_are_the_same_for_all(tmp_path: Path) -> None:
    plain = {"name": "plain", "version": "2", "purl": "pkg:cargo/plain@2", "licenses": [{"license": {"id": "MPL-2.0"}}]}
    builds = {**CRATE, "name": "onlybuilds", "scope": "excluded"}
    module = {**CRATE, "name": "nocrate", "purl": "pkg:pypi/nocrate@1"}
    texts = dict(crates.texts(bom(tmp_path, CRATE, builds, module, plain)))
    assert set(texts) == {"crates/crates.txt", "crates/Apache-2.0", "crates/MPL-2.0"}
    assert b"Apache License" in texts["crates/Apache-2.0"]
    assert texts["crates/crates.txt"].decode().split("\n\n")[1].splitlines() == [
        "plain 2; MPL-2.0",
        "somecrate 1.2.3; MIT OR Apache-2.0; Some One <one@example.org>; https://example.org/git",
    ]


def test_without_crates_there_is_no_list(tmp_path: Path) -> None:
    assert crates.texts(bom(tmp_path)) == []
    assert crates.texts([]) == []


def test_a_crate_without_a_licence_is_said_to_have_none(tmp_path: Path) -> None:
    texts = dict(crates.texts(bom(tmp_path, {"name": "a", "version": "1", "purl": "pkg:cargo/a@1"})))
    assert texts["crates/crates.txt"].decode().endswith("\n\na 1; no licence named\n")


def test_notices_that_were_gathered_count_for_their_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crates, "NOTICES", tmp_path)
    assert crates.notices("uv", "1.0") == []
    (tmp_path / "crates").mkdir()
    (tmp_path / "crates" / "uv-1.0.html").write_bytes(b"notices")
    assert crates.notices("uv", "1.0") == [("crates/notices.html", b"notices")]
    assert crates.notices("uv", "1.0.1") == []


def test_the_wheels_of_this_environment_bring_their_lists() -> None:
    found = {item.metadata["Name"]: environment.describe(item) for item in environment.metadata.distributions()}
    boms = [Path(file) for file in found["tokenizers"]["boms"]]  # type: ignore[attr-defined]
    if not boms:
        pytest.skip(f"the wheel of tokenizers {found['tokenizers']['version']} has no bill of materials")
    assert boms[0].is_relative_to(linux_standin.site("tokenizers"))
    assert "onig_sys" in dict(crates.texts(boms))["crates/crates.txt"].decode()
