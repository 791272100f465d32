"""The transcript builds widgets near the viewport only and keeps what is read in its place."""

from __future__ import annotations

from itertools import pairwise

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QStackedWidget, QToolButton, QWidget

from app.chat.transcript.stats import time_of
from app.chat.transcript.transcript import Transcript
from app.history.records import AnswerStats, StoredMessage, TextSpan
from app.theme.sheet import apply
from app.theme.theme import Theme
from tests.kit.fake_engine import CODE, long_answer


@pytest.fixture
def transcript(qtbot, theme: Theme) -> Transcript:
    view = Transcript(theme)
    qtbot.addWidget(view, before_close_func=lambda view: view.stop())
    view.resize(900, 600)
    view.show()
    return view


def test_the_end_is_in_sight_after_it_grew_behind_another_page(qtbot, theme: Theme) -> None:
    pages, view = QStackedWidget(), Transcript(theme)
    qtbot.addWidget(pages, before_close_func=lambda _: view.stop())
    pages.addWidget(view)
    pages.addWidget(QWidget())
    pages.resize(900, 600)
    pages.show()
    answer = StoredMessage("a", "c", "", "assistant", "word " * 400, "streaming")
    view.show_path([answer], lambda _: (0, 1))
    pages.setCurrentIndex(1)
    view.update_message(answer._replace(content="word " * 4000, state="complete"))
    pages.setCurrentIndex(0)
    bar = view.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 1000 and bar.value() == bar.maximum())


def messages(count: int) -> list[StoredMessage]:
    texts = [CODE, long_answer(120), "short", "word " * 400]
    return [
        StoredMessage(f"m{i}", "c", f"m{i - 1}", "assistant", texts[(i // 2) % 4])
        if i % 2
        else StoredMessage(f"m{i}", "c", f"m{i - 1}" if i else "", "user", "And?")
        for i in range(count)
    ]


def only(_: str) -> tuple[int, int]:
    return (0, 1)


def test_the_keyboard_draws_an_edge_around_the_messages_and_the_mouse_none(
    qtbot, qapp, transcript: Transcript, theme: Theme
) -> None:
    apply(theme, qapp)
    transcript.activateWindow()
    qtbot.waitUntil(transcript.isActiveWindow)

    def edge() -> str:
        return transcript.grab().toImage().pixelColor(300, 0).name()

    transcript.setFocus(Qt.FocusReason.MouseFocusReason)
    assert transcript.hasFocus()
    assert edge() != theme.tokens.accent
    transcript.clearFocus()
    transcript.setFocus(Qt.FocusReason.TabFocusReason)
    assert edge() == theme.tokens.accent


def test_a_long_chat_has_widgets_only_where_it_is_seen(transcript: Transcript) -> None:
    transcript.show_path(messages(300), only)
    assert 2 <= len(transcript.views) <= 40
    assert transcript.views[-1].message.id == "m299"
    bar = transcript.verticalScrollBar()
    assert bar.value() == bar.maximum()
    bar.setValue(0)
    assert transcript.views[0].message.id == "m0"
    assert len(transcript.views) <= 60
    assert transcript.view("m299") is None


def test_views_do_not_overlap_and_none_is_missing_in_sight(transcript: Transcript) -> None:
    transcript.show_path(messages(120), only)
    bar = transcript.verticalScrollBar()
    for share in (1.0, 0.7, 0.31, 0.3, 0.0, 0.55):
        bar.setValue(int(bar.maximum() * share))
        places = [view.geometry() for view in transcript.views]
        assert all(a.bottom() < b.top() + 1 for a, b in pairwise(places))
        numbers = [int(view.message.id[1:]) for view in transcript.views]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert places[0].top() <= max(20, bar.value())
        assert places[-1].bottom() >= min(bar.value() + transcript.viewport().height(), transcript._page.height() - 21)


def test_growing_text_does_not_move_what_is_read(transcript: Transcript) -> None:
    path = [*messages(40), StoredMessage("s", "c", "m39", "assistant", "", "streaming")]
    transcript.show_path(path, only)
    bar = transcript.verticalScrollBar()
    transcript.stream("s", lambda: (long_answer(100), [TextSpan("", 10)]))
    transcript._frames.stop()
    transcript._frames.paint()
    assert bar.value() == bar.maximum()
    bar.setValue(bar.maximum() - 200)
    value = bar.value()
    transcript.stream("s", lambda: (long_answer(400), [TextSpan("", 10)]))
    transcript._frames.stop()
    transcript._frames.paint()
    assert bar.value() == value
    assert bar.maximum() > value + 200


def test_a_narrower_window_lays_out_again(transcript: Transcript) -> None:
    transcript.show_path(messages(10), only)
    before = transcript._page.height()
    transcript.resize(420, 600)
    assert transcript._page.height() > before
    assert all(view.width() <= 420 for view in transcript.views)


def test_a_change_of_theme_reaches_the_text(transcript: Transcript, theme: Theme) -> None:
    transcript.show_path(messages(4), only)
    theme.set_mode("light")
    view = transcript.view("m1")
    assert view is not None
    assert theme.tokens.raised in view.blocks[0].document().defaultStyleSheet()


def test_nothing_moves_when_the_scroll_bar_comes(qtbot, transcript: Transcript) -> None:
    short = StoredMessage("a", "c", "", "assistant", "hello")
    transcript.show_path([short], only)
    before = transcript.view("a").geometry()
    assert not transcript.verticalScrollBar().isVisible()
    transcript.show_path([short, StoredMessage("b", "c", "a", "assistant", "word\n\n" * 80)], only)
    qtbot.waitUntil(transcript.verticalScrollBar().isVisible)
    transcript.verticalScrollBar().setValue(0)
    after = transcript.view("a").geometry()
    assert (after.x(), after.width()) == (before.x(), before.width())


def test_a_button_leads_to_the_end_and_says_that_text_came(qtbot, transcript: Transcript) -> None:
    transcript.show_path([*messages(40), StoredMessage("s", "c", "m39", "assistant", "", "streaming")], only)
    bar, button = transcript.verticalScrollBar(), transcript.findChild(QToolButton, "to-end")
    assert not button.isVisible()
    bar.setValue(bar.maximum() // 2)
    assert (button.isVisible(), button.news, button.accessibleName()) == (True, False, "To the end")
    transcript.stream("s", lambda: (long_answer(100), [TextSpan("", 10)]))
    bar.setValue(bar.maximum() - 200)  # near enough for the answer to have a widget
    transcript._frames.stop()
    transcript._frames.paint()
    assert (button.news, button.accessibleName()) == (True, "New text below: to the end")
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert (bar.value(), button.isVisible(), button.news) == (bar.maximum(), False, False)
    block = transcript.view("m39").blocks[0]
    qtbot.keyClick(block, Qt.Key.Key_Home)
    assert (bar.value(), button.isVisible()) == (0, True)
    qtbot.keyClick(transcript.views[0].blocks[0], Qt.Key.Key_End, Qt.KeyboardModifier.ControlModifier)
    assert (bar.value(), button.isVisible()) == (bar.maximum(), False)


def test_a_footer_names_the_model_where_it_changes_and_the_time(transcript: Transcript) -> None:
    asked = StoredMessage("q", "c", "", "user", "And?", created=1_700_000_000.0)
    models = ("one", "one", "", "two", "two")
    answers = [
        StoredMessage(f"m{n}", "c", f"m{n - 1}" if n else "q", "assistant", "Yes.", created=1_700_000_000.0)._replace(
            stats=AnswerStats(model=model)
        )
        for n, model in enumerate(models)
    ]
    transcript.show_path([asked, *answers], only)
    time = time_of(asked)
    whos = [view._footer.who for view in transcript.views]
    assert [who.text() for who in whos] == [time, time, time, time, f"two · {time}", time]
    assert "one\n" in whos[1].toolTip().replace("<br>", "\n")
    assert "2023" in whos[0].toolTip()
    assert not whos[0].isVisible(), "that of a question shows with its buttons"
    assert whos[1].isVisible()
    narrow = transcript.views[1]._footer
    narrow.stats.setText("x")
    narrow.choose(60)
    assert not narrow.who.isVisible()
