"""Help pages: sections of the documentation, the search, and links between them."""

from __future__ import annotations

import re

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QFontMetrics
from PySide6.QtWidgets import QApplication

from app.help.page import HelpPage
from app.help.pages import Page, load, parse, search
from app.paths import docs_dir
from app.theme.sheet import apply

TEXT = """# Using it

Not a page: nothing heads it.

## The window

Ask in the box.

![A picture](shot.png)

### Sampling

- **Temperature**: divides the scores. See [removing](#removing-it), [inside](inside.md) and
  [a paper](https://arxiv.org/abs/2402.02750).

```
## no heading in here
```

## Parts

### KV cache (`kv_cache`)

Keeps <b>keys</b>. With --temperature nothing changes.

**Also called** key-value cache, keys.

## Removing it

| what | where |
| --- | --- |
| chats | data |
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "using.md").write_text(TEXT, encoding="utf-8")
    (tmp_path / "optimisations.md").write_text("# All\n\n## Cache\n\n### Temperature of it (`heat`)\n\nWarm.\n")
    return tmp_path


def test_a_page_for_each_heading_with_text():
    pages = parse(TEXT)
    assert [(page.group, page.title, page.key) for page in pages] == [
        ("The window", "The window", ""),
        ("The window", "Sampling", ""),
        ("Parts", "KV cache", "kv_cache"),
        ("Removing it", "Removing it", ""),
    ]
    assert pages[0].text == "Ask in the box."
    assert "## no heading in here" in pages[1].text
    assert pages[3].anchor == "removing-it"
    assert {"kv cache", "key-value cache", "keys"} <= pages[2].names
    assert {page.group for page in parse(TEXT, "Using it")} == {"Using it"}


def test_a_file_that_is_not_there_is_left_out(folder, tmp_path):
    (folder / "using.md").write_bytes(b"\xff\xfe\xff")
    assert [page.title for page in load(folder)] == ["Temperature of it"]
    assert load(tmp_path / "gone") == []


def test_search_needs_every_word_and_puts_names_first():
    pages = parse(TEXT)
    assert search(pages, "") == pages
    assert search(pages, "keys nonsense") == []
    assert [page.title for page in search(pages, "temperature")] == ["Sampling", "KV cache"]
    titled = Page("", "Warm temperature", "Words.")
    assert search([*pages, titled], "temperature")[1] == titled, "a title comes after a thing of just that name"


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("KIVI", "KV cache precision"),
        ("PagedAttention", "KV allocation"),
        ("RadixAttention", "Prefix caching (RadixAttention)"),
        ("cascade", "Shared-prefix attention (cascade)"),
        ("sinks", "Attention"),
        ("StreamingLLM", "Attention"),
        ("QUEST", "Attention"),
        ("EAGLE", "Speculation"),
        ("Medusa", "Speculation"),
        ("temperature", "Sampling"),
        ("tint", "Speculation and the tint"),
        ("thinking", "Thinking"),
        ("GPU pack", "The GPU pack"),
        ("page map", "Cache view: page map and prefix tree"),
        ("prefix tree", "Cache view: page map and prefix tree"),
        ("divergence", "Terms"),
        ("commands", "Commands in the terminal"),
    ],
)
def test_what_people_look_for_is_found_first(words, title):
    assert search(load(docs_dir()), words)[0].title == title


def test_the_page_searches_as_one_types(qtbot, theme, folder):
    page = HelpPage(folder, theme)
    qtbot.addWidget(page)
    page.show()
    items = [page.topics.item(row) for row in range(page.topics.count())]
    assert [item.text() for item in items if not item.flags()] == ["Using Kvasir", "Cache"]
    assert page.topics.currentItem().text() == "The window"
    assert "Ask in the box" in page.text.toPlainText()
    page.search_field.setText("temperature")
    assert [entry.title for entry in page.found] == ["Sampling", "Temperature of it", "KV cache"]
    assert "divides the scores" in page.text.toPlainText()
    page.topics.setCurrentRow(2)
    assert "<b>keys</b>" in page.text.toPlainText(), "the documentation holds no markup but Markdown"
    page.search_field.setText("<b>nothing</b>")
    assert page.topics.count() == 0
    assert "Nothing in the help" in page.text.toPlainText()


def test_titles_in_the_list_are_whole(qtbot, qapp, theme):
    apply(theme, qapp)
    page = HelpPage(docs_dir(), theme)
    qtbot.addWidget(page)
    page.resize(1000, 700)
    page.show()
    topics = page.topics
    QApplication.processEvents()  # the scroll bar takes room
    for item in (each for each in map(topics.item, range(topics.count())) if each.flags()):
        place = topics.visualItemRect(item)
        place.setWidth(min(place.width(), topics.viewport().width()))
        place.adjust(10, 6, -10, -6)  # the style sheet's padding
        words = topics.fontMetrics().boundingRect(place, Qt.TextFlag.TextWordWrap, item.text())
        assert words.height() <= place.height() + 1, item.text()


def test_links_lead_to_pages_and_papers(qtbot, theme, folder, monkeypatch):
    opened = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))
    page = HelpPage(folder, theme)
    qtbot.addWidget(page)
    page.show()
    page.search_field.setText("divides")
    html = page.text.toHtml()
    assert "arxiv.org" in html
    assert "inside.md" not in html, "a file that the help does not show"
    page.text.anchorClicked.emit(QUrl("https://arxiv.org/abs/2402.02750"))
    assert opened == ["https://arxiv.org/abs/2402.02750"]
    page.text.anchorClicked.emit(QUrl("#removing-it"))
    assert page.topics.currentItem().text() == "Removing it"
    assert page.search_field.text() == ""
    page.text.anchorClicked.emit(QUrl("#nowhere"))
    assert page.topics.currentItem().text() == "Removing it"


def test_it_begins_with_a_short_page_that_leads_to_what_people_look_for(qtbot, qapp, theme):
    apply(theme, qapp)
    page = HelpPage(docs_dir(), theme)
    qtbot.addWidget(page)
    page.resize(800, 600)
    page.show()
    assert page.topics.currentItem().text() == "Where to begin"
    QApplication.processEvents()
    assert page.text.verticalScrollBar().maximum() == 0, "it is seen at a glance"
    led = []
    for link in re.findall(r'<a href="([^"]*)"', page.text.toHtml()):
        page.text.anchorClicked.emit(QUrl(link))
        led.append(page.topics.currentItem().text())
        page.open(page.pages[0])
    assert led == [
        "Finding and downloading models",
        "Documents",
        "Keyboard shortcuts and the command palette",
        "The server in the window",
        "Why this speed?",
    ]


def test_missing_help_says_where_it_was_looked_for(qtbot, theme, tmp_path):
    page = HelpPage(tmp_path / "gone", theme)
    qtbot.addWidget(page)
    page.show()
    assert str(tmp_path / "gone") in page.text.toPlainText()


def test_no_topic_is_cut(qtbot, folder, theme):
    long = "How the cache of keys and values is given to chats, and what becomes of it when memory is full"
    (folder / "using.md").write_text(f"# Using\n\n## {long}\n\nWords.\n", encoding="utf-8")
    page = HelpPage(folder, theme)
    qtbot.addWidget(page)
    page.resize(800, 600)
    page.show()
    topics = page.topics
    QApplication.processEvents()  # the scroll bar takes room
    item = next(topics.item(row) for row in range(topics.count()) if topics.item(row).text() == long)
    lines = topics.visualItemRect(item).height() // topics.fontMetrics().height()
    assert lines >= -(-topics.fontMetrics().horizontalAdvance(long) // topics.viewport().width())
    assert lines > 1


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_no_topic_of_the_documentation_is_cut(qtbot, theme, scale):
    """With the scroll bar, which takes some of the width."""
    page = HelpPage(docs_dir(), theme)
    qtbot.addWidget(page)
    page.resize(800, 600)
    page.show()
    theme.set_scale(scale)
    QApplication.processEvents()
    topics = page.topics
    assert topics.verticalScrollBar().isVisible()
    for item in map(topics.item, range(topics.count())):
        room, padding = topics.visualItemRect(item), 2 * 10
        metrics = QFontMetrics(item.data(Qt.ItemDataRole.FontRole) or topics.font())
        wanted = metrics.boundingRect(0, 0, room.width() - padding, 1000, Qt.TextFlag.TextWordWrap, item.text())
        assert room.height() >= wanted.height() + 2 * 6, item.text()
        assert wanted.width() <= room.width() - padding, item.text()
