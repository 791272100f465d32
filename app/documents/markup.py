"""HTML as Markdown, which shows a model headings, lists, tables and links."""

from __future__ import annotations

import re
import warnings

from bs4 import BeautifulSoup, MarkupResemblesLocatorWarning, XMLParsedAsHTMLWarning
from bs4.element import PreformattedString
from markdownify import MarkdownConverter

from app.language import tr

NESTED = tr("Its parts are nested too deeply, so its words were taken without their structure.")
_UNSEEN = ("script", "style", "noscript", "template", "head", "svg", "iframe", "object")


def parsed(text: str | bytes) -> BeautifulSoup:
    """HTML, or XML that is small: entities are not expanded, and nothing outside is looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        warnings.simplefilter("ignore", MarkupResemblesLocatorWarning)
        return BeautifulSoup(text, "html.parser")


def markdown(html: str | bytes) -> tuple[str, list[str]]:
    """The text of a page, and sentences on what is missing from it. Nothing is loaded from anywhere."""
    soup = parsed(html)
    title = soup.title.get_text(" ", strip=True) if soup.title is not None else ""
    for part in soup.find_all(_UNSEEN):
        part.decompose()
    for words in soup.find_all(string=lambda words: isinstance(words, PreformattedString)):
        words.extract()  # comments, and declarations such as those of XML
    notes = []
    try:
        text = MarkdownConverter(heading_style="ATX", bullets="-", strip=["img"], wrap=False).convert_soup(soup)
    except RecursionError:
        text, notes = soup.get_text("\n", strip=True), [NESTED]
    text = re.sub(r"[ \t\xa0]+\n", "\n", text)
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    if title and title not in text[:500]:
        text = f"{title}\n\n{text}"
    return text, notes
