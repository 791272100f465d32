"""What an answer's figures teach: the link below it, and its card in the Lab."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

from app.chat.transcript.offered import about, lesson
from app.history.records import AnswerStats, StoredMessage
from app.lab import answer
from app.lab.answer import AnswerCard
from app.window.window import MainWindow
from engine.protocol import RemoteModel, Timings, Usage
from tests.app.conftest import ask
from tests.app.lab_support import lab_of

USAGE = Usage(prompt_tokens=8300, cached_tokens=8120, generated_tokens=1240, seed=1)
TIMINGS = Timings(queued_ms=0, ttft_ms=61, total_ms=9000, tokens_per_second=140, tokens_per_step=3.1, steps=400)
DRAFTED = msgspec.structs.replace(TIMINGS, proposed=1100, accepted=840)


def message(usage: Usage | None = USAGE, timings: Timings | None = TIMINGS, **stats: object) -> StoredMessage:
    return StoredMessage("a", "c", "q", "assistant", "x", stats=AnswerStats(usage=usage, timings=timings, **stats))


def test_only_what_saved_much_is_worth_a_link() -> None:
    few = msgspec.structs.replace(USAGE, cached_tokens=400)
    assert (lesson(message()), about(message())) == ("prefixes", "8,120 of 8,300 tokens from the cache")
    assert lesson(message(few)) == ""
    assert lesson(message(Usage(prompt_tokens=20, cached_tokens=16, generated_tokens=1, seed=1))) == "", (
        "next to nothing"
    )
    assert (lesson(message(few, DRAFTED)), about(message(few, DRAFTED))) == ("speculation", "3.1 tokens a step")
    assert lesson(message(few, msgspec.structs.replace(DRAFTED, tokens_per_step=1.4))) == ""
    assert lesson(message(None, None)) == ""
    elsewhere = RemoteModel(server="lab", model="m")
    assert lesson(message(remote=elsewhere)) == "", "nothing is known of how another server computes"


def test_the_card_says_what_was_measured_and_nothing_else(qtbot, theme) -> None:
    own = answer.of(message(USAGE, DRAFTED).stats, "What is a page?")
    assert own is not None
    first, second = answer.sentences("prefixes", own)
    assert first.startswith("8,120 of the 8,300 tokens of its prompt came from the cache, so only 180 had to be read")
    assert "61 ms" in first
    assert second.startswith("3.1 tokens a step: its 1,240 tokens took 400 steps")
    assert "840 of 1,100 drafted tokens were accepted" in second
    assert answer.sentences("speculation", own) == [second, first]
    strip = answer.picture("prefixes", own)
    assert strip is not None
    assert (len(strip.read), sum(strip.read[:507]), strip.read[507], strip.read[508]) == (519, 0, 0.5, 1)
    assert answer.picture("speculation", own) is None
    card = AnswerCard("prefixes", own, theme)
    qtbot.addWidget(card)
    assert card.findChild(QLabel, "lab.answer.title").text() == "Your answer to “What is a page?”"
    assert card.picture is not None
    assert "519 pages" in card.picture.accessibleDescription()
    alone = answer.of(message(msgspec.structs.replace(USAGE, cached_tokens=0), TIMINGS).stats, "")
    assert alone is not None
    assert answer.sentences("prefixes", alone) == []
    assert answer.of(message(None, None).stats, "") is None


@pytest.mark.parametrize("again", [False, True])
def test_the_link_below_the_last_answer_opens_its_experiment(qtbot, start, state, again) -> None:
    program = start("--rate", "4000")
    fake, call = lab_of(state), program.link.call
    program.link.call = lambda op, *more: (fake.call if op.name.startswith("lab.") else call)(op, *more)
    ask(qtbot, program, "Hello")
    talk = program.chat.session.talk
    last = talk.last("assistant")
    talk.tree.put(last._replace(stats=msgspec.structs.replace(last.stats, usage=USAGE, timings=TIMINGS)))
    program.chat.session.changed.emit()
    program.chat.transcript.update_message(talk.last("assistant"))
    footer = program.chat.transcript.views[-1]._footer
    learn = footer._buttons["learn"]
    assert learn.isVisible()
    assert "8,120 of 8,300 tokens from the cache" in learn.toolTip().replace("\n", " ")
    if again:  # that page is open already
        program.window.show_page(MainWindow.LAB)
        qtbot.waitUntil(lambda: program.lab_page.inner._runs.index is not None)
        program.lab_page.inner.show_experiment("prefixes")
        program.window.show_page(MainWindow.CHAT)
    qtbot.mouseClick(learn, Qt.MouseButton.LeftButton)
    assert program.window.page == MainWindow.LAB
    view = program.lab_page.inner
    qtbot.waitUntil(lambda: view.open_page == "prefixes" and view.view.findChild(AnswerCard) is not None)
    card = view.view.findChild(AnswerCard)
    assert view.view.column.indexOf(card) == 0
    assert card.findChild(QLabel, "lab.answer.title").text() == "Your answer to “Hello”"
