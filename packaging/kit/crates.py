"""The Rust crates that a wheel's compiled module is linked with, out of the bill of materials that the wheel brings.

Wheels hold no texts of crates, but a list of them (CycloneDX, from cargo): name, version, licence, authors, home.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kit.bundled import NOTICES, Text, common

HEAD = """Crates that are linked into this program or module, as the bill of materials in its wheel lists them: name,
version, licence, authors and home. Where a choice is given ("OR"), it is used under the Apache License 2.0 if that is
among them. The wheel brings no notices of the crates' own; they lie with each crate's source.

"""


def texts(boms: list[Path]) -> list[Text]:
    """The list, and the licences of it whose text is the same for all; empty where no crates are named."""
    listed = sorted({_line(crate) for bom in boms for crate in _crates(bom)})
    if not listed:
        return []
    words = set(re.findall(r"[\w.-]+", "\n".join(listed)))
    shared = sorted(path.name for path in (NOTICES / "common").iterdir() if path.name in words)
    own = ("crates/crates.txt", (HEAD + "\n".join(listed) + "\n").encode())
    return [own, *((f"crates/{name}", text) for name, text in common(*shared))]


def notices(name: str, version: str) -> list[Text]:
    """The crates' own notices, where a publisher has gathered them (README.md says how)."""
    found = sorted((NOTICES / "crates").glob(f"{name}-{version}.*"))
    return [(f"crates/notices{path.suffix}", path.read_bytes()) for path in found]


def _crates(bom: Path) -> list[dict[str, Any]]:
    """What is in the finished file: cargo marks what only helps to build it as excluded."""
    found = json.loads(bom.read_text(encoding="utf-8")).get("components", [])
    linked = [item for item in found if str(item.get("purl", "")).startswith("pkg:cargo/")]
    return [item for item in linked if item.get("scope", "required") == "required"]


def _line(crate: dict[str, Any]) -> str:
    licences = " AND ".join(
        item.get("expression") or item["license"].get("id") or item["license"]["name"]
        for item in crate.get("licenses", [])
    )
    pages = {item["type"]: item["url"] for item in crate.get("externalReferences", [])}
    parts = (licences or "no licence named", crate.get("author", ""), pages.get("vcs") or pages.get("website", ""))
    return "; ".join([f"{crate['name']} {crate['version']}", *filter(None, parts)])
