"""The documentation says what the program does: generated pages are current, and named files exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_optimisations_page_is_the_catalogue() -> None:
    page = runpy.run_path(str(ROOT / "docs/generate.py"))["page"]()
    assert (ROOT / "docs/optimisations.md").read_text() == page, "run: python docs/generate.py"


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_links_and_named_paths_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if "://" not in link]
    paths = re.findall(r"`((?:app|engine|docs|tests|assets|packaging)/[\w./-]+)`", text)
    missing = [link for link in links if not ((ROOT / page).parent / link).exists()]
    missing += [path for path in paths if not (ROOT / path).exists()]
    assert not missing, f"{page} names what is not there: {missing}"
