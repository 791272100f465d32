"""Whose words an answer has: tints with their legend and tooltips, the figures below it, and the heads that draft."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from PySide6.QtCore import QEvent, QPoint
from PySide6.QtGui import QHelpEvent
from PySide6.QtWidgets import QApplication, QSpinBox, QToolTip

from app.chat.page import ChatPage
from app.chat.session.answers import _Answer, origin
from app.chat.transcript.stats import SHARES, describe, explain
from app.chat.transcript.text.blocks import TextView
from app.chat.transcript.text.tint import TintRun, run_at, who
from app.history.records import AnswerStats, StoredMessage, TextSpan
from app.theme.sheet import apply
from app.theme.widgets import Toggle
from engine import protocol as p
from engine.decoding.speculation.technique import drafting
from engine.protocol import Timings, Usage
from tests.app.chatting import chat_page, selector, shown_text
from tests.app.specs import DRAFTERS


def test_every_source_has_its_span() -> None:
    assert [origin(source, 3) for source in DRAFTERS] == [TextSpan("accepted", 3, source) for source in DRAFTERS]
    assert origin("corrected", 2) == TextSpan("corrected", 2)
    assert origin("target", 1) == origin("bonus", 1) == TextSpan("", 1)
    assert set(DRAFTERS) == {each.name for each in drafting()}


def test_tokens_of_one_source_are_one_span_and_of_two_proposers_two() -> None:
    answer = _Answer(StoredMessage("a", "chat", "", "assistant", "", created=1.0))
    sources: list[p.Source] = ["target", "ngram", "ngram", "medusa", "bonus", "target"]
    tokens = [p.TokenInfo(id=number, source=source, chars=2) for number, source in enumerate(sources)]
    answer.take(p.Delta(id="a", answer=0, text="ab" * len(tokens), tokens=tokens))
    assert answer.snapshot().spans == [
        TextSpan("", 2), TextSpan("accepted", 4, "ngram"), TextSpan("accepted", 2, "medusa"), TextSpan("", 4),
    ]  # fmt: skip


def test_a_run_says_who_drafted_it() -> None:
    assert who(TintRun(0, 1, "good", "ngram")) == "Drafted from what the text repeats (n-gram), accepted by the model"
    assert who(TintRun(0, 1, "good", "medusa")) == "Drafted by the Medusa heads, accepted by the model"
    assert who(TintRun(0, 1, "good", "of a later engine")) == "Drafted by of a later engine, accepted by the model"
    assert who(TintRun(0, 1, "good")) == "Drafted, accepted by the model"
    assert "rejected" in who(TintRun(0, 1, "warn"))


@pytest.fixture
def page(qtbot, make_link, history, theme) -> Iterator[ChatPage]:
    page = chat_page(make_link("--rate", "2000"), history, theme)
    qtbot.addWidget(page)
    page.resize(900, 700)
    page.show()
    yield page
    page.close_down()


def ask(qtbot, page: ChatPage, text: str, **values: p.Value) -> StoredMessage:
    """Set these switches, ask, and wait; returns the answer."""
    for key, value in values.items():
        with qtbot.waitSignal(page._link.options, timeout=5_000):
            page._link.send(p.Set(key=key, value=value))
    qtbot.waitUntil(lambda: not page.composer.reason, timeout=10_000)
    page.send(text)
    qtbot.waitUntil(lambda: not page.streaming, timeout=20_000)
    return page.transcript.views[-1].message


def place(view: TextView, start: int) -> QPoint:
    """Inside the character at ``start``, in pixels of the viewport."""
    cursor = view.textCursor()
    cursor.setPosition(start)
    return view.cursorRect(cursor).center() + QPoint(3, 0)


def hover(view: TextView, start: int) -> str:
    """The tooltip that comes up over the character at ``start``."""
    point = place(view, start)
    QToolTip.hideText()
    QApplication.sendEvent(view.viewport(), QHelpEvent(QEvent.Type.ToolTip, point, view.viewport().mapToGlobal(point)))
    return QToolTip.text()


@pytest.mark.qt_log_ignore("raise", extend=True)
def test_the_tooltip_of_a_tinted_word_names_the_drafter(qtbot, page) -> None:
    answer = ask(qtbot, page, "Show me code", speculation="auto")
    assert {span.by for span in answer.spans if span.tint == "accepted"} == {"ngram", "medusa"}
    page.set_tint(True)
    view = page.transcript.views[-1].blocks[0]
    runs = view.tint_runs
    first = {by: next(run for run in runs if run.by == by and run.token == "good") for by in ("ngram", "medusa")}
    assert "n-gram" in hover(view, first["ngram"].start)
    assert "Medusa heads" in hover(view, first["medusa"].start + 1)
    corrected = next(run for run in runs if run.token == "warn")
    assert shown_text(view, corrected) == " by"
    assert "rejected" in hover(view, corrected.start + 1)
    after = next(b for a, b in pairwise(runs) if b.start > a.end + 4)
    assert run_at(view, place(view, after.start - 3), runs) is None, "plain words are nobody's draft"
    assert run_at(view, QPoint(view.width() - 2, 4), runs) is None, "nor is what stands right of the text"
    code = page.transcript.views[-1].blocks[1]
    assert "Drafted" in hover(code._view, code.tint_runs[0].start)


def test_saved_spans_keep_the_drafter(qtbot, page, history) -> None:
    answer = ask(qtbot, page, "hello", speculation="eagle")
    history.flush()
    saved = history.messages(page.chat_id)[-1]
    assert saved.spans == answer.spans
    assert ("accepted", "eagle") in {(span.tint, span.by) for span in saved.spans}


def test_the_legend_shows_while_words_are_tinted(qtbot, page, theme) -> None:
    assert page.legend.isHidden()
    with qtbot.waitSignal(page.tint_changed) as heard:
        page.header.tint.click()
    assert heard.args == [True]
    page.set_tint(True)
    assert page.legend.isVisible()
    for mode in ("light", "dark"):
        theme.set_mode(mode)
        assert theme.tint("good", 0.24) in page.legend.text()
        assert theme.tint("warn", 0.24) in page.legend.text()
    page.set_tint(False)
    assert page.legend.isHidden()
    assert not page.header.tint.isChecked()


@pytest.mark.parametrize("scale", [1.0, 1.5])
@pytest.mark.parametrize("place", ["short", "end", "middle", "top"])
def test_the_text_stays_where_it_is_when_the_legend_comes(qtbot, qapp, page, theme, place: str, scale: float) -> None:
    apply(theme, qapp)
    theme.set_scale(scale)
    try:
        view, count = page.transcript, 2 if place == "short" else 20
        said = [
            StoredMessage(f"m{i}", "c", f"m{i - 1}" if i else "", "assistant" if i % 2 else "user", "word " * 60)
            for i in range(count)
        ]
        view.show_path(said if place != "short" else [each._replace(content="word") for each in said], lambda _: (0, 1))
        bar = view.verticalScrollBar()
        if place in ("middle", "top"):
            bar.setValue(bar.maximum() // 2 if place == "middle" else 0)
        seen = next(item.id for item in said if view.view(item.id) and ys(page, item.id) > 0)
        settle()
        before, fits = ys(page, seen), bar.maximum() == 0
        for on in (True, False, True):
            page.set_tint(on)
            settle()
            assert ys(page, seen) == before, on
            assert page.legend.isVisible() is on
        assert fits is (bar.maximum() == 0) is (place == "short"), "nor is there anything to scroll that was not"
        assert page.legend.height() >= page.legend.heightForWidth(page.legend.width())
        top = page.legend.mapTo(page, QPoint(0, page.legend.height())).y()
        assert view.viewport().mapTo(page, QPoint(0, 0)).y() >= top, "it covers nothing"
        if place == "middle":
            bar.setValue(0)
            assert ys(page, "m0") >= top
    finally:
        page.set_tint(False)
        theme.set_scale(1.0)


def ys(page: ChatPage, message: str) -> int:
    """Where a message begins, in pixels below the page's top."""
    return page.transcript.view(message).mapTo(page, QPoint(0, 0)).y()


def settle() -> None:
    for _ in range(3):
        QApplication.sendPostedEvents()
        QApplication.processEvents()


def test_header_panel_and_shortcut_are_one_switch(qtbot, make_program) -> None:
    program = make_program("--loaded", model=False, opened=False)
    qtbot.waitUntil(lambda: program.window.panel.spec("speculation") is not None, timeout=20_000)
    toggle, button = program.window.panel.findChild(Toggle, "panel.tint"), program.chat.header.tint
    shortcut = next(one for one in program.window.commands.shortcuts if one.key().toString() == "Ctrl+Shift+T")
    for on, act in ((True, button.click), (False, toggle.click), (True, shortcut.activated.emit)):
        act()
        assert toggle.isChecked() is button.isChecked() is program.chat.legend.isVisible() is on
        assert program.store.settings.tint is on


def test_automatic_says_what_it_amounts_to(qtbot, make_program) -> None:
    program = make_program("--loaded", model=False, opened=False)
    panel = program.window.panel
    qtbot.waitUntil(lambda: panel.spec("tree_nodes") is not None, timeout=20_000)

    def figure(key: str) -> str:
        return panel.findChild(QSpinBox, f"{key}.value").text()

    program.link.send(p.Set(key="speculation", value="medusa"))
    qtbot.waitUntil(lambda: figure("tree_nodes") == "auto (16)", timeout=10_000)
    assert figure("draft_length") == "auto (4)"
    program.link.send(p.Set(key="speculation", value="ngram"))
    qtbot.waitUntil(lambda: figure("tree_nodes") == "auto", timeout=10_000)
    assert figure("draft_length") == "auto (4)"


def answer(
    proposed: int = 240, accepted: int = 31, steps: int = 31, generated: int = 62, **changes: object
) -> StoredMessage:
    timings = Timings(
        queued_ms=0,
        ttft_ms=61,
        total_ms=900,
        tokens_per_second=87.4,
        tokens_per_step=generated / steps,
        steps=steps,
        proposed=proposed,
        accepted=accepted,
    )
    usage = Usage(prompt_tokens=300, cached_tokens=120, generated_tokens=generated, seed=1)
    stats = AnswerStats(usage=usage, timings=timings, reason="stop", **changes)
    return StoredMessage("m", "c", "", "assistant", "Text.", stats=stats)


def test_an_answer_says_what_drafting_bought() -> None:
    line = describe(answer())
    assert "2.0 tokens per step · 31 forward passes saved · 13 % of drafts accepted" in line
    assert "1 forward pass saved" in describe(answer(steps=61))
    account = explain(answer())
    assert "31 of 240 drafted tokens accepted" in account
    assert "31 forward passes saved: 2.0 tokens per step, where a step without speculation gives one token" in account


def test_without_drafts_nothing_is_said_of_them() -> None:
    for text in (describe(answer(proposed=0, accepted=0, steps=62)), explain(answer(proposed=0, accepted=0, steps=62))):
        assert not any(word in text for word in ("saved", "draft", "tokens a step"))
    assert describe(answer(proposed=0, accepted=0, steps=62)).startswith("87.4 tok/s · TTFT 61 ms")


def test_less_room_leaves_less_of_the_line() -> None:
    lines = [describe(answer(diverged=7), share) for share in SHARES]
    assert [len(line) for line in lines] == sorted((len(line) for line in lines), reverse=True)
    assert lines[-1] == "87.4 tok/s · 2.0 tokens per step"


def test_the_footer_shows_it(qtbot, page) -> None:
    plain = ask(qtbot, page, "hello")
    assert plain.stats.timings is not None
    assert not plain.stats.timings.proposed
    assert "a step" not in page.transcript.views[-1]._footer.stats.text()
    made = ask(qtbot, page, "Show me code", speculation="medusa")
    assert made.stats.timings is not None
    assert made.stats.usage is not None
    saved = made.stats.usage.generated_tokens - made.stats.timings.steps
    assert saved > 50
    stats = page.transcript.views[-1]._footer.stats
    assert f"{saved} forward passes saved" in stats.toolTip().replace("\n", " ")


def test_heads_are_named_where_the_draft_is(qtbot, page, theme) -> None:
    page.resize(1200, 700)
    page.loads.load("tiny", "/models/tiny-heads")
    qtbot.waitUntil(lambda: page._link.card is not None and bool(page._link.card.heads), timeout=10_000)
    assert page.header.draft.text() == "Medusa and EAGLE heads"
    model = selector(qtbot, page, theme)
    assert "Speculates with Medusa and EAGLE heads" in model.model.toolTip()
    drafts = next(action.menu() for action in model.model.menu().actions() if action.text() == "Speculation helper")
    found = {action.text(): action for action in drafts.actions()}
    assert not found["No draft"].isChecked()
    assert "Medusa or EAGLE heads" in found["Choose a draft model or EAGLE/Medusa heads…"].toolTip()
    page.loads.load("tiny", "")
    qtbot.waitUntil(lambda: page._link.card is not None and not page._link.card.heads, timeout=10_000)
    assert page.header.draft.text() == ""


def test_the_menu_offers_what_can_draft_once_that_is_known(qtbot, page, theme) -> None:
    def helpers() -> list[str]:
        entries = selector(qtbot, page, theme).model.menu().actions()
        menu = next(action.menu() for action in entries if action.text() == "Speculation helper")
        return [action.text() for action in menu.actions()][2:-1]

    page.loads.load("tiny", "")
    qtbot.waitUntil(lambda: page._link.card is not None and page.loads.loading is None, timeout=10_000)
    assert "odd" in helpers()  # any model that the engine knows
    own = p.DraftOffer(name="its own", kind="mtp")
    page.loads.choice.drafts = lambda path: [p.DraftOffer(name="small", kind="model", path="/models/small"), own]
    assert helpers() == ["small"]


@pytest.mark.parametrize("width", [420, 560, 699, 700, 760, 892, 1000, 1300])
def test_nothing_in_the_header_is_cut(qtbot, page, width) -> None:
    page.loads.load("odd", "/models/a-draft-with-a-rather-long-name")
    qtbot.waitUntil(lambda: page._link.card is not None and page._link.card.name == "odd", timeout=10_000)
    page.resize(width, 600)
    page.header.context.show_tokens(125, 2048)
    header = page.header

    def cut() -> list[str]:
        parts = (header.draft, header.warning, header.context, header.tint, header.settings)
        shown = [part for part in parts if part.isVisible()]
        return [
            f"{part.objectName()}: {part.geometry()}, wants {part.sizeHint()} of {header.width()}"
            for part in shown
            if part.width() < part.sizeHint().width() or not header.rect().contains(part.geometry())
        ]

    qtbot.wait(300)
    assert cut() == []
    assert header.tint.isVisible()
    if width >= 892 or width < 560:
        assert header.draft.isVisible() is (width >= 892), "a wide page has room for the draft's name"


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_one_width_has_one_form(qtbot, qapp, page, scale) -> None:
    """Whether the page was wider or narrower before: what is left out then does not decide what is shown now."""
    theme = page.header._theme
    page.loads.load("odd", "/models/a-draft-with-a-rather-long-name")
    qtbot.waitUntil(lambda: page._link.card is not None and page._link.card.name == "odd", timeout=10_000)
    page.header.context.show_tokens(125, 2048)
    theme.set_scale(scale)
    forms: dict[int, set[tuple[object, ...]]] = {}
    for width in [*range(500, 1100, 4), *range(1100, 500, -4), *range(500, 1100, 4)]:
        page.header._fit(width)
        header = page.header
        shown = header.tint.text(), header.settings.text(), header.context.bar.isHidden(), header.draft.text()
        forms.setdefault(width, set()).add(shown)
    theme.set_scale(1.0)
    assert {width for width, seen in forms.items() if len(seen) > 1} == set()
    assert len({form for seen in forms.values() for form in seen}) > 3, "and there are several"
