"""The help pages: sections of the documentation, Markdown as it is in docs/, and the search over them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.base.lines import split_lines

log = logging.getLogger(__name__)

SOURCES = (("using.md", "Using Kvasir"), ("optimisations.md", ""))
"""Files of docs/ in the order of the topics, and the group of their pages; without one it is the heading above."""
_HEADING = re.compile(r"^(#{2,3}) (.+?)(?: \(`(\w+)`\))?$")
_NAMED = re.compile(r"^- (\*\*.+?\*\*)(?: \(`|:)|^\*\*Also called\*\* (.+)\.$", re.MULTILINE)
_PICTURE = re.compile(r"^!\[[^]]*\]\([^)]*\)\n*", re.MULTILINE)
_EXACT, _TITLE, _NAME, _BODY = 4, 3, 2, 1


class Page(NamedTuple):
    group: str
    title: str
    text: str
    """Markdown without its heading and without pictures."""
    key: str = ""
    """The key of the switch that the page is about; empty for other pages."""

    @property
    def anchor(self) -> str:
        """Anchor of this page in links inside the documentation: "removing-kvasir"."""
        return re.sub(r"[^\w -]", "", self.title.lower()).replace(" ", "-")

    @property
    def names(self) -> frozenset[str]:
        """Names of the subject of the page and of its values, lower case; those in brackets too."""
        said = ", ".join(match[1] or match[2] for match in _NAMED.finditer(self.text))
        return frozenset(
            part.strip("*) ").lower().removeprefix("the ")
            for name in (self.title, *said.split(", "))
            for part in (name, *name.split(" ("))
        )


def parse(text: str, group: str = "") -> list[Page]:
    """A page for each heading of the second or third level that has text of its own."""
    pages: list[Page] = []
    for level, title, key, body in _sections(text):
        if level == 2 and not group:
            above = title
        if body:
            pages.append(Page(group or above, title, body, key))
    return pages


def _sections(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Level, title, key and text of each section; a heading within a code block is none."""
    level, title, key = 0, "", ""
    lines: list[str] = []
    fenced = False
    for line in [*split_lines(text), "## end"]:
        fenced ^= line.startswith("```")
        match = None if fenced else _HEADING.match(line)
        if match is None:
            lines.append(line)
            continue
        if level:
            yield level, title, key, _PICTURE.sub("", "\n".join(lines)).strip()
        level, title, key, lines = len(match[1]), match[2], match[3] or "", []


def load(folder: Path) -> list[Page]:
    """All pages of the documentation in ``folder``. A file that cannot be read is left out, and logged."""
    pages = []
    for name, group in SOURCES:
        try:
            pages += parse((folder / name).read_text(encoding="utf-8"), group)
        except (OSError, ValueError) as error:
            log.warning("help pages of %s left out: %s", folder / name, error)
    return pages


def search(pages: list[Page], words: str) -> list[Page]:
    """The pages that hold every word, best first; all of them in their order for no words.

    First come pages whose subject has just that name, then those with a word in the title, then with one in a name,
    then the rest; among equals those of whose text the words are the larger share.
    """
    wanted = words.lower().split()
    if not wanted:
        return pages
    found = [page for page in pages if all(word in _all(page) for word in wanted)]
    return sorted(found, key=lambda page: _rank(page, wanted), reverse=True)


def _all(page: Page) -> str:
    return f"{page.title}\n{page.text}\n{page.key}".lower()


def _rank(page: Page, wanted: list[str]) -> tuple[int, float]:
    text, names = page.text.lower(), " | ".join(page.names)
    share = sum(text.count(word) for word in wanted) / (len(text) + 200)
    if " ".join(wanted) in page.names:
        return _EXACT, share
    begins = [re.compile(rf"\b{re.escape(word)}") for word in wanted]
    if any(word.search(page.title.lower()) for word in begins):
        return _TITLE, share
    return (_NAME if any(word.search(names) for word in begins) else _BODY), share
