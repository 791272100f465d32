"""While an answer is written nothing flickers, what is finished stays as it is, and what is selected stays selected."""

from __future__ import annotations

import html
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QMouseEvent, QTextCursor
from PySide6.QtWidgets import QApplication, QTextEdit

from app.chat.transcript.message import MessageView
from app.chat.transcript.text.blocks import TextBlock
from app.chat.transcript.text.unfinished import completed, steady
from app.chat.transcript.transcript import Transcript
from app.history.records import StoredMessage
from app.texts.markdown import to_html
from app.theme.theme import Theme
from tests.kit.examples import examples

ANSWER = r"""# An *answer*

Some **bold words**, `code`, ~~gone~~, __more__ and [a link](http://example.org/a_b). It costs $5, $x^2 * y_1$ not:
- an item with **two *kinds* of** marks
- [ ] a task

\[
x = \frac{a}{b}
- c
\]

| Name | Value |
|:-----|------:|
| one  | $\pi$ |
| two  | **2** |

1. first
2. second

```python
def f(x):
    return x  # done
```

The end of it all, with ``a ` b`` and 2 * 3.
"""
PIECES = st.sampled_from(
    [
        "word",
        " ",
        "\n",
        "\n\n",
        "-",
        "- ",
        "**",
        "*",
        "_",
        "`",
        "```",
        "#",
        "|",
        "| a |",
        "|-",
        "1",
        ".",
        ">",
        "$",
        "\\",
        "[",
    ]
)


@pytest.fixture
def transcript(qtbot, theme: Theme) -> Transcript:
    view = Transcript(theme)
    qtbot.addWidget(view, before_close_func=lambda view: view.stop())
    view.resize(700, 600)
    view.show()
    return view


@pytest.fixture
def message(transcript: Transcript) -> MessageView:
    transcript.show_path([StoredMessage("a", "c", "", "assistant", "", "streaming")], lambda _: (0, 1))
    return transcript.views[0]


def grow(message: MessageView, text: str, thinking: str = "") -> None:
    message.stream(text, [], thinking)
    message.fit(650)


@given(st.lists(PIECES, max_size=30))
@examples(150)
def test_what_is_steady_only_grows(pieces: list[str]) -> None:
    texts = ["".join(pieces[:end]) for end in range(len(pieces) + 1)]
    for text, longer in pairwise(texts):
        assert text.startswith(steady(text))
        assert steady(longer).startswith(steady(text))
        assert text.count("\n") - steady(text).count("\n") <= 1


def test_marks_are_never_seen_while_they_are_written() -> None:
    for end in range(len(ANSWER) + 1):
        source = steady(ANSWER[:end])
        text, _, _ = source.partition("```")
        shown = html.unescape(re.sub(r"<[^>]+>", "", to_html(completed(text), lambda source, _: "M", growing=True)))
        shown = shown.replace("a ` b", "")
        assert not re.search(r"\*\*|`|~~|__|\]\(|\|---", shown), shown
        assert "<h2>" not in to_html(completed(text), growing=True)


@pytest.mark.parametrize(
    ("source", "whole"),
    [
        ("some **bold*", "some **bold**"),
        ("**a *b*", "**a *b***"),
        ("a ``x`", "a ``x``"),
        ("- a\n- **b", "- a\n- **b**"),
        ("$a*b$ *c", "$a*b$ *c*"),
        ("some **", "some "),
        ("2 * 3, a*b, x_1, \\*no", "2 * 3, a*b, x_1, \\*no"),
        (r"\(a *b", r"\(a *b"),
        ("![a](http://x", "a"),
        ("*" * 20_000, "*" * 20_000),
    ],
)
def test_ends_that_are_not_written_yet_are_added(source: str, whole: str) -> None:
    assert completed(source) == whole


def test_finished_blocks_keep_their_place_and_height_as_the_text_grows(message: MessageView) -> None:
    known: list[tuple[int, int]] = []
    for end in range(len(ANSWER) + 1):
        grow(message, ANSWER[:end])
        places = [(block.y(), block.height()) for block in message.blocks[:-1]]
        assert places[: len(known)] == known[: len(places)]
        assert len(places) >= len(known)
        known = places
    kinds = [type(block) for block in message.blocks]
    message.show_message(message.message._replace(content=ANSWER, state="complete"))
    message.fit(650)
    assert [(block.y(), block.height()) for block in message.blocks[:-1]] == known
    assert [type(block) for block in message.blocks] == kinds


def drawn_text(qtbot, message: MessageView) -> str:
    """Text of the blocks once their formulas are drawn, which takes its turns."""
    blocks = [block for block in message.blocks if isinstance(block, TextBlock)]
    qtbot.waitUntil(lambda: not any(block._waiting for block in blocks))
    return "\n".join(block.toPlainText().strip() for block in blocks)


def test_the_text_that_grows_becomes_the_text_that_is_shown_later(
    qtbot, transcript: Transcript, message: MessageView
) -> None:
    for end in range(0, len(ANSWER), 3):
        grow(message, ANSWER[:end])
    message.show_message(message.message._replace(content=ANSWER, state="complete"))
    grown = drawn_text(qtbot, message)
    transcript.show_path([], lambda _: (0, 1))
    transcript.show_path([StoredMessage("b", "c", "", "assistant", ANSWER)], lambda _: (0, 1))
    assert drawn_text(qtbot, transcript.views[0]) == grown


def select(view: QTextEdit, words: str) -> None:
    cursor = view.document().find(words)
    assert cursor.hasSelection()
    view.setTextCursor(cursor)


def test_a_selection_stays_while_its_block_and_others_grow(message: MessageView) -> None:
    grow(message, "Finished words.\n\nSome **bold words")
    first, last = message.blocks
    select(first, "Finished")
    select(last, "words")
    grow(message, "Finished words.\n\nSome **bold words** and 🙂 more, and `code`")
    assert first.textCursor().selectedText() == "Finished"
    assert last.textCursor().selectedText() == "words"
    select(last, "🙂 more")
    grow(message, "Finished words.\n\nSome **bold words** and 🙂 more, and `code`\n\nAnother")
    assert last.textCursor().selectedText() == "🙂 more"
    content = "Finished words.\n\nSome **bold words** and 🙂 more, and `code`\n\nAnother one."
    message.show_message(message.message._replace(content=content, state="complete"))
    assert (first.textCursor().selectedText(), last.textCursor().selectedText()) == ("Finished", "🙂 more")


def test_a_selection_stays_in_code_and_in_thinking(message: MessageView) -> None:
    long = "thought " * 400
    grow(message, "", long)
    thinking = message.thinking.body
    select(thinking, "thought")
    grow(message, "", long + "more " * 50)
    assert thinking.textCursor().selectedText() == "thought"
    grow(message, "```py\nfirst = 1\n", long)
    code = message.blocks[0]._view
    select(code, "first")
    grow(message, "```py\nfirst = 1\nsecond = 2", long)
    message.show_message(message.message._replace(content="```py\nfirst = 1\n```\nend", state="complete"))
    assert code.textCursor().selectedText() == "first"


def test_a_selection_that_is_being_dragged_goes_on(message: MessageView) -> None:
    grow(message, "One two three four")
    (view,) = message.blocks

    def mouse(kind: QEvent.Type, place: int) -> None:
        cursor = QTextCursor(view.document())
        cursor.setPosition(place)
        at = view.cursorRect(cursor).center() + QPoint(1, 0)
        left = Qt.MouseButton.LeftButton
        event = QMouseEvent(
            kind, QPointF(at), view.viewport().mapToGlobal(QPointF(at)), left, left, Qt.KeyboardModifier(0)
        )
        QApplication.sendEvent(view.viewport(), event)

    mouse(QEvent.Type.MouseButtonPress, 4)
    mouse(QEvent.Type.MouseMove, 7)
    assert view.textCursor().selectedText() == "two"
    grow(message, "One two three four **five**")
    mouse(QEvent.Type.MouseMove, 13)
    assert view.textCursor().selectedText() == "two three"
    mouse(QEvent.Type.MouseButtonRelease, 13)
