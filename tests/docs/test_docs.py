"""The documentation says what the program does: generated pages are current, nothing is denied, named files exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from app.help.pages import Page, load
from engine.catalogue import BY_KEY, Option

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("script", "page"), [("generate.py", "optimisations.md"), ("together.py", "together.md"),
                                              ("families.py", "families.md"), ("rooms.py", "inside.md")])  # fmt: skip
def test_pages_that_are_made_are_current(script: str, page: str) -> None:
    made = runpy.run_path(str(ROOT / "docs" / script))["page"]()
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == made, f"run: python docs/{script}"


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_links_and_named_paths_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if "://" not in link]
    paths = re.findall(r"`((?:app|engine|docs|tests|assets|packaging)/[\w./-]+)`", text)
    missing = [link for link in links if not ((ROOT / page).parent / link).exists()]
    missing += [path for path in paths if not (ROOT / path).exists()]
    assert not missing, f"{page} names what is not there: {missing}"


def pages() -> list[Page]:
    return load(ROOT / "docs")


@pytest.mark.parametrize("entry", BY_KEY.values(), ids=lambda entry: entry.key)
def test_every_switch_and_every_value_has_its_help(entry: Option) -> None:
    page = next(page for page in pages() if page.key == entry.key)
    assert page.title == entry.title
    for part in ("When it helps", "What it costs", "What to watch", "Setting", "In the source"):
        assert f"**{part}.**" in page.text
    for choice in entry.choices:
        assert choice.explains.endswith("."), f"{entry.key}={choice.key}: a sentence for a person"
        assert f"**{choice.title}**" in page.text
        assert choice.explains in page.text
        assert {name.lower() for name in choice.also} <= page.names
    assert all((ROOT / path).is_file() for path in entry.source), entry.source
    for paper in filter(None, entry.reference.split("; ")):
        assert re.search(r"arXiv \d{4}\.\d{5}|https://", paper), f"{entry.key}: {paper} cannot be looked up"
    assert page.text.count("https://") >= len(re.findall(r"arXiv \d{4}\.\d{5}|https://", entry.reference))


SUBJECTS = (
    "kv",
    "page",
    "cache",
    "prefix",
    "speculation",
    "draft",
    "swap",
    "radix tree",
    "medusa",
    "eagle",
    "attention",
)
DENIES = re.compile(
    r"\b(planned|not (there )?yet|not yet there|comes? later|in a later version|not supported yet)\b", re.I
)


def denied(text: str) -> list[str]:
    """The sentences of ``text`` that put off something which the catalogue has, or its subjects."""
    names = {name.lower() for entry in BY_KEY.values() for name in (entry.title, *entry.also)}
    names |= {name.lower() for entry in BY_KEY.values() for choice in entry.choices for name in choice.also}
    found = []
    for sentence in re.split(r"(?<=[.!?])\s", text):
        words = re.findall(r"[\w-]+", sentence.lower())
        spoken = f" {' '.join(words)} "
        if DENIES.search(sentence) and any(f" {name}" in spoken for name in (*names, *SUBJECTS)):
            found.append(sentence)
    return found


def test_no_help_page_and_no_knowledge_denies_what_the_catalogue_has() -> None:
    for page in pages():
        assert not denied(page.text), page.title
    for file in sorted((ROOT / "assets/demo/knowledge").glob("*.txt")):
        for line in file.read_text(encoding="utf-8").splitlines():
            assert not denied(line), file.name


@pytest.mark.parametrize(
    "sentence",
    [
        "Prefix reuse with a radix tree is planned and not there yet.",
        "Smaller KV kinds with 8, 4 or 2 bits are planned.",
        "Tree methods such as Medusa and EAGLE are planned for later.",
        "A preempted request is recomputed; copying its pages to main memory and back is planned.",
    ],
)
def test_a_denial_is_recognised(sentence: str) -> None:
    assert denied(f"True. {sentence}") == [sentence]
