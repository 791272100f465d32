"""Find in the chat: what matches, which one is shown, and how the bar is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QTextEdit

from app.chat.find.matches import Count, Matches, Texts, finder, shown
from app.chat.page import ChatPage
from app.chat.transcript.message import MessageView
from app.chat.transcript.text.found import MatchPlace
from app.history.records import AnswerStats, Chat, StoredMessage
from app.link.link import EngineLink
from app.theme.theme import Theme
from tests.app.chatting import ask, chat_page
from tests.kit.fake_engine import CODE

MARKDOWN = (
    "Some **bo*ld*** text\nover [a link](http://hidden.example) and `co de` & <b>more</b>\n\n"
    "1. first\n2. second\n\n> quoted\u00a0words\n\n| kind | bits |\n| --- | --- |\n| body | 4 |\n\n"
    "```python\nx = 'code'\ny = x\n```\n\nThe end\\*"
)


@pytest.mark.parametrize("source", [MARKDOWN, CODE, "plain", "", "# Head\n\n- a\n- b\n  - c\n"])
def test_a_message_shows_what_is_looked_through(qtbot, theme: Theme, source: str) -> None:
    view = MessageView(StoredMessage("m", "c", "", "assistant", source), theme, None)  # type: ignore[arg-type]
    qtbot.addWidget(view)
    lines = "\n".join(block.view.toPlainText() for block in view.blocks).split("\n")
    assert [line.strip() for line in shown(source).split("\n") if line.strip()] == [
        line.strip() for line in lines if line.strip()
    ]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        *[("BOLD text over", 1), ("a link and co de", 1), ("hidden", 0), ("& <b>more</b>", 1), ("quoted words", 1)],
        *[("code' y", 0), ("bits", 1), ("second quoted", 0), ("x", 3), ("end*", 1), ("zz", 0), ("<b>", 1), ("", 0)],
        ("ë", 10),
    ],
)
def test_matches_are_of_what_is_shown(words: str, count: int) -> None:
    texts, message = Texts(), StoredMessage("m", "c", "", "assistant", MARKDOWN)
    found = texts.count(message, words, finder(words))
    assert found.content == count
    assert texts.count(message, words, finder(words)) == found


def test_matches_are_numbered_in_the_order_of_reading() -> None:
    matches = Matches([("a", Count(1, 2)), ("b", Count()), ("c", Count(0, 1))])
    assert len(matches) == 4
    assert [(match.message, *match.place) for match in matches] == [
        ("a", True, 0),
        ("a", False, 0),
        ("a", False, 1),
        ("c", False, 0),
    ]
    assert [matches.number(match) for match in matches] == [0, 1, 2, 3]
    assert (matches.match(4), matches.match(-1)) == (matches.match(0), matches.match(3))
    assert (matches.first_from("b"), matches.first_from("c"), matches.first_from("gone")) == (3, 3, 0)
    fewer = Matches([("a", Count(0, 1))])
    assert fewer.number(matches.match(2)) == 0
    assert fewer.number(matches.match(3)) == -1


@pytest.fixture
def make_page(qtbot, make_link, history, theme) -> Iterator[Callable[..., ChatPage]]:
    def make(*messages: StoredMessage, link: EngineLink | None = None) -> ChatPage:
        if messages:
            with history.together():
                history.save_chat(Chat("c", "Found", 1.0, 1.0, leaf=messages[-1].id))
                for message in messages:
                    history.save_message(message)
        page = chat_page(link or EngineLink([]), history, theme)
        qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
        page.resize(900, 700)
        page.show()
        if messages:
            page.open_chat("c")
        return page

    return make


def chat(*texts: str, thinking: str = "") -> list[StoredMessage]:
    """Questions and answers in turn; the last answer has this thinking."""
    made: list[StoredMessage] = []
    for number, text in enumerate(texts):
        parent = f"m{number - 1}" if number else ""
        role = "assistant" if number % 2 else "user"
        made.append(StoredMessage(f"m{number}", "c", parent, role, text, created=1.0))
    made[-1] = made[-1]._replace(thinking=thinking, stats=AnswerStats(thought_s=3.0))
    return made


def marked(page: ChatPage) -> tuple[list[str], list[str]]:
    """The words that are marked, and those of them that are marked strongly."""
    marks: tuple[list[str], list[str]] = [], []
    strong = QColor(page.transcript._theme.tokens.accent)
    for view in page.transcript.views:
        for text in view.findChildren(QTextEdit):
            for each in text.extraSelections():
                marks[0].append(each.cursor.selectedText())
                if each.format.background().color() == strong:
                    marks[1].append(each.cursor.selectedText())
    return marks


def find(qtbot, page: ChatPage, words: str) -> str:
    """Open the bar, type, wait until all is looked through; what the bar says."""
    page.finding.begin()
    qtbot.keyClicks(page.finding.bar.field, words)
    qtbot.waitUntil(lambda: not page.finding._left)
    return page.finding.bar.count


def test_matches_are_marked_and_gone_through(qtbot, make_page) -> None:
    page = make_page(*chat("What is a page?", "A **page** holds `page` tokens", "Page on", CODE))
    page.transcript.verticalScrollBar().setValue(0)
    assert find(qtbot, page, "page") == "1 of 8"
    assert [word.lower() for word in marked(page)[0]] == ["page"] * 8
    assert marked(page)[1] == ["page"]
    field = page.finding.bar.field
    seen = []
    for _ in range(8):
        qtbot.keyClick(field, Qt.Key.Key_Return)
        seen.append((page.finding.bar.count, marked(page)[1]))
    assert [count for count, _ in seen] == [f"{n} of 8" for n in (2, 3, 4, 5, 6, 7, 8, 1)]
    assert all(len(words) == 1 for _, words in seen)
    assert [words for _, words in seen][2] == ["Page"]
    qtbot.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert page.finding.bar.count == "8 of 8"
    field.selectAll()
    assert find(qtbot, page, "unfound") == "No match"
    assert marked(page) == ([], [])


def test_escape_closes_takes_the_marks_away_and_gives_the_keyboard_back(qtbot, make_page) -> None:
    page = make_page(*chat("What is a page?", "A page"))
    page.composer.setFocus()
    assert find(qtbot, page, "page") == "1 of 2"
    qtbot.keyClick(page.finding.bar.field, Qt.Key.Key_Escape)
    assert (page.finding.open, marked(page)) == (False, ([], []))
    assert page.focusWidget() is page.composer.edit
    page.finding.step(True)
    assert page.finding.open
    assert page.finding.bar.field.selectedText() == "page", "what was looked for last"
    assert page.finding.bar.count == "1 of 2"
    page.composer.setFocus()
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Escape)
    assert not page.finding.open


def test_folded_thinking_is_unfolded_for_its_match(qtbot, make_page) -> None:
    page = make_page(*chat("And?", "An answer", thinking="word " * 300 + "needle in thoughts"))
    view = page.transcript.view("m1")
    assert not view.thinking.open
    assert find(qtbot, page, "needle") == "1 of 1"
    assert view.thinking.open
    assert marked(page) == (["needle"], ["needle"])
    bar, body = page.transcript.verticalScrollBar(), view.thinking.body
    selections = body.extraSelections()
    place = body.mapTo(page.transcript.widget(), body.cursorRect(selections[0].cursor).topLeft()).y()
    assert bar.value() <= place <= bar.value() + page.transcript.viewport().height()


def test_a_match_far_away_is_scrolled_to_and_one_in_sight_moves_nothing(qtbot, make_page) -> None:
    texts = [f"text {number} " + "word " * 150 for number in range(60)]
    texts[7] += "\n\n```text\n" + "x" * 400 + " needle\n```\n\n needle two"
    page = make_page(*chat(*texts))
    bar = page.transcript.verticalScrollBar()
    end = bar.value()
    assert page.transcript.view("m7") is None
    assert find(qtbot, page, "needle") == "1 of 2"
    assert bar.value() < end
    code = next(block.view for block in page.transcript.view("m7").blocks if block.view.horizontalScrollBar().maximum())
    assert code.horizontalScrollBar().value() > 0, "a long line of code is scrolled, too"
    value = bar.value()
    page.finding.step(True)
    assert (page.finding.bar.count, bar.value()) == ("2 of 2", value)
    page.finding.bar.field.clear()
    bar.setValue(bar.maximum())
    assert find(qtbot, page, "text 5") == "9 of 11", "the first below what is in sight"
    bar.setValue(bar.maximum())
    page.finding.bar.field.clear()
    assert find(qtbot, page, "text 30") == "1 of 1", "none below, so the first of all"


def test_formulas_that_are_drawn_later_leave_the_marks(qtbot, make_page) -> None:
    page = make_page(
        *chat("And?", "The $page^{17}$ of a page:\n\n\\[ \\int page\\,dx \\]\n\n| page |\n| --- |\n| $page_{19}$ |")
    )
    assert find(qtbot, page, "page") == "1 of 2"
    texts = [block.view for block in page.transcript.view("m1").blocks]
    qtbot.waitUntil(lambda: not any(text._waiting for text in texts))
    assert marked(page) == (["page", "page"], ["page"])


def test_the_answer_that_is_written_is_looked_through_as_it_grows(qtbot, make_page, make_link) -> None:
    page = make_page(link=make_link("--rate", "150"))
    page.send("a long one")
    qtbot.waitUntil(lambda: page.streaming)
    assert page.finding.bar.isHidden()
    find(qtbot, page, "paragraph")
    totals: list[int] = []

    def grows() -> bool:
        totals.append(len(page.finding._matches))
        return max(totals) >= 2

    qtbot.waitUntil(grows)
    assert page.streaming
    page.stop()
    qtbot.waitUntil(lambda: not page.streaming)
    answer = page.session.talk.path[-1]
    assert len(page.finding._matches) == shown(answer.content).count("Paragraph")
    assert marked(page)[1] == []
    page.finding.step(True)
    assert [word.lower() for word in marked(page)[1]] == ["paragraph"]


def test_another_branch_and_another_chat_are_counted_again(qtbot, make_page, make_link) -> None:
    page = make_page(link=make_link("--rate", "4000"))
    ask(qtbot, page, "hello")
    assert find(qtbot, page, "seed") == "1 of 1"
    page.regenerate_last()
    qtbot.waitUntil(lambda: not page.streaming)
    assert page.finding.bar.count == "1 match", "that one is in a branch that is not shown"
    page.new_chat()
    assert page.finding.bar.count == "No match"


def test_a_chat_of_2000_messages_is_looked_through_without_a_long_stop(qtbot, make_page) -> None:
    """In slices: the window has its turn in between, and only messages that can match are rendered."""
    texts = ["What is the cache?" if n % 2 == 0 else f"Answer **{n}** of the cache. " * 4 for n in range(2000)]
    page = make_page(*chat(*texts))
    slices: list[int] = []
    page.finding._slice.timeout.connect(lambda: slices.append(len(page.finding._left)))
    page.transcript.verticalScrollBar().setValue(0)
    assert find(qtbot, page, "cache") == "1 of 5,000"
    assert len(slices) > 3
    assert len(page.finding._texts._shown) == 1000
    page.finding.bar.field.selectAll()
    assert find(qtbot, page, "Answer 1999 of") == "1 of 4"
    assert page.finding._current.place == MatchPlace(False, 0)


def test_the_keys_of_the_window(qtbot, make_program) -> None:
    window = make_program(model=False).window
    keys = {shortcut.key().toString(): shortcut.activated.emit for shortcut in window.commands.shortcuts}
    window.show_page(window.SETTINGS)
    keys["Ctrl+F"]()
    assert (window.page, window.chat.finding.open) == (window.CHAT, True)
    assert window.focusWidget() is window.chat.finding.bar.field
    qtbot.keyClick(window.chat.finding.bar.field, Qt.Key.Key_Escape)
    assert not window.chat.finding.open
    assert window.isVisible()
    keys["Shift+F3"]()
    assert window.chat.finding.open


def test_the_bar_fits_a_narrow_window(qtbot, make_page, theme: Theme) -> None:
    page = make_page(*chat("What is a page?", "A page"))
    find(qtbot, page, "page")
    bar = page.finding.bar
    for width in (900, 360, 260):
        page.resize(width, 600)
        right, room = bar.geometry().right(), page.transcript.viewport().width()
        assert 0 <= bar.x() < right <= room
        bar.layout().activate()
        parts = [bar.field, bar._count, *bar._buttons.values()]
        assert all(one.geometry().right() < other.geometry().left() for one, other in pairwise(parts))
        assert parts[-1].geometry().right() < bar.width()
