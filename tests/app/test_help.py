"""Help pages: the format, the search, and that the bundled files are all readable."""

from __future__ import annotations

import pytest

from app.help.page import HelpPage
from app.help.pages import Entry, Page, load, parse, search
from app.paths import assets_dir

TEXT = """# About pages

Q: What is a page?
Q: explain kv pages
A: A page holds sixteen tokens.

Q: How large is it?
A: That depends on the model.
It is a few kilobytes.
"""


def test_parse():
    page = parse(TEXT)
    assert page.title == "About pages"
    assert page.entries[0] == Entry(
        "What is a page?", "A page holds sixteen tokens.", "what is a page? explain kv pages"
    )
    assert page.entries[1].answer == "That depends on the model.\nIt is a few kilobytes."


def test_a_file_without_title_is_left_out(tmp_path):
    (tmp_path / "a.txt").write_text("Q: one\nA: two\n")
    (tmp_path / "b.txt").write_text(TEXT)
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ValueError, match="no title"):
        parse("Q: one\nA: two\n")
    assert [page.title for page in load(tmp_path)] == ["About pages"]


def test_search_needs_every_word_and_knows_other_phrasings():
    pages = [parse(TEXT), Page("Other", (Entry("Why?", "Because.", "why?"),))]
    assert search(pages, "") == pages
    assert [entry.question for entry in search(pages, "explain KV")[0].entries] == ["What is a page?"]
    assert [entry.question for entry in search(pages, "kilobytes")[0].entries] == ["How large is it?"]
    assert search(pages, "sixteen nonsense") == []


def test_all_bundled_pages_load():
    folder = assets_dir() / "demo" / "knowledge"
    pages = load(folder)
    assert len(pages) == len(list(folder.glob("*.txt"))) > 10
    assert sum(len(page.entries) for page in pages) > 100


def test_the_page_searches_as_one_types(qtbot, theme, tmp_path):
    (tmp_path / "b.txt").write_text(TEXT)
    page = HelpPage(tmp_path, theme)
    qtbot.addWidget(page)
    page.show()
    assert page.topics.count() == 1
    assert "sixteen tokens" in page.text.toPlainText()
    page.search_field.setText("kilobytes")
    assert "sixteen tokens" not in page.text.toPlainText()
    assert "kilobytes" in page.text.toPlainText()
    page.search_field.setText("<b>nothing</b>")
    assert page.topics.count() == 0
    assert "Nothing in the help" in page.text.toPlainText()


def test_missing_help_says_where_it_was_looked_for(qtbot, theme, tmp_path):
    page = HelpPage(tmp_path / "gone", theme)
    qtbot.addWidget(page)
    page.show()
    assert str(tmp_path / "gone") in page.text.toPlainText()
