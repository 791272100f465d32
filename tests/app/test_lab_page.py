"""The Lab's page with made-up runs behind it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt
from PySide6.QtGui import QImage, QWheelEvent
from PySide6.QtWidgets import (
    QApplication,
    QFileDialog,
    QLabel,
    QPushButton,
    QSlider,
    QWidget,
)

from app.lab import player, words
from app.lab.compare.page import ComparePage
from app.lab.experiment import ExperimentView
from app.lab.export import page_of
from app.lab.figures import Dots
from app.lab.page import LabView
from app.lab.pictures import PlotView
from app.lab.runs import LabRuns, Subject
from app.lab.topics import TopicList
from app.texts.side_by_side import BothTexts
from app.theme.theme import Theme
from app.theme.widgets import tip
from engine.protocol import LoadOptions, Metric
from engine.protocol.lab import LabOutcome, LabPicture, LabProgress, RunExperiment
from tests.app.fake_lab import HEADLINE, PAGES, PAPER, result, tree
from tests.app.lab_support import asked, change, lab_of, said
from tests.app.naming import nameless
from tests.app.pressing import button_of, press
from tests.app.tabbing import tab_reaches_all

PREFIXES = PAGES[-1]


@pytest.fixture
def start(qtbot, theme: Theme, state: Path) -> Iterator[Callable[[], LabView]]:
    begun: list[LabRuns] = []

    def begin() -> LabView:
        runs = LabRuns(lab_of(state))
        begun.append(runs)
        view = LabView(runs, lambda: ComparePage(lab_of(state), theme), theme)
        qtbot.addWidget(view)
        view.resize(1200, 800)
        view.show()
        qtbot.waitUntil(lambda: runs.index is not None or bool(runs.trouble))
        return view

    yield begin
    for runs in begun:
        runs.close_down()


@pytest.fixture
def lab(start) -> LabView:
    return start()


def test_titles_stand_at_one_height_on_every_page(lab):
    heights = set()
    for topic in ("", "prefixes", "cache", "roofline", "compare"):
        lab.topics.choose(topic)
        QApplication.processEvents()
        title = next(
            label for label in lab.findChildren(QLabel) if label.property("role") == "title" and label.isVisible()
        )
        heights.add(title.mapTo(lab, title.rect().center()).y())
    assert max(heights) - min(heights) <= 1


def test_a_title_has_the_room_of_the_button_that_only_the_first_page_has(lab):
    lab.resize(560, 600)
    lab.topics.choose("prefixes")
    QApplication.processEvents()
    assert lab.everything.isHidden()
    assert lab.save.x() - lab.title.geometry().right() < lab.everything.sizeHint().width()


@pytest.mark.parametrize("topic", ["prefixes", "roofline", "compare"])
def test_tab_reaches_all_of_a_topic(qtbot, lab, topic):
    lab.topics.choose(topic)
    tab_reaches_all(qtbot, lab)


def run(qtbot, lab: LabView, name: str = "prefixes") -> None:
    """Through the page, to its end."""
    lab.show_experiment(name)
    press(lab, "lab.run")
    ended(qtbot, lab)


def ended(qtbot, lab: LabView) -> None:
    """Nothing runs, and what was found is on the page with all its parts."""
    qtbot.waitUntil(lambda: not lab._runs.running)
    if lab.view is not None and lab.view.found is not None:
        qtbot.waitUntil(lambda: lab.view.found.rest.over and bool(said(lab, "lab.taken")))


def begin(qtbot, lab: LabView, state: Path, name: str = "prefixes") -> None:
    """A run that stays in its middle."""
    change(state, steps=-1)
    lab.show_experiment(name)
    press(lab, "lab.run")
    qtbot.waitUntil(lambda: bool(lab._runs.pictures))


def test_what_was_known_at_the_last_start_is_there_at_once(qtbot, theme, state, tmp_path):
    kept = tmp_path / "lab" / "index.kept"
    first = LabRuns(lab_of(state), kept=kept)
    first.refresh()
    qtbot.waitUntil(lambda: first.index is not None)
    old = msgspec.structs.replace(first.index, model="of another day")
    kept.write_bytes(msgspec.json.encode(old))
    again = LabRuns(lab_of(state), kept=kept)
    assert again.index == old
    again.refresh()
    qtbot.waitUntil(lambda: again.index == first.index)
    assert LabRuns(None, kept=kept).index == first.index
    kept.write_bytes(b"no list")
    assert LabRuns(None, kept=kept).index is None
    for runs in (first, again):
        runs.close_down()


def test_the_experiments_are_listed_with_ticks_for_what_has_a_result(lab):
    texts = [lab.topics.item(row).text() for row in range(lab.topics.count())]
    assert texts == [
        "All experiments", "The basics", "1  KV cache", "Memory", "5  QUEST", "6  Window and sinks",
        "Sharing", "7  Prefix caching", "On this computer", "Compare any settings", "Roofline",
    ]  # fmt: skip
    items = {lab.topics.item(row).text(): lab.topics.item(row) for row in range(lab.topics.count())}
    role = Qt.ItemDataRole.AccessibleTextRole
    assert items["1  KV cache"].data(role) == "KV cache, with a result, no verdict"
    assert items["7  Prefix caching"].data(role) == "Prefix caching, no result"
    assert items["Roofline"].data(role) == "Roofline, no result"
    assert not items["Memory"].flags() & Qt.ItemFlag.ItemIsSelectable
    assert said(lab, "lab.card.cache.found") == HEADLINE
    assert "from 0.97 to 1.06" in said(lab, "lab.card.cache.below")
    assert said(lab, "lab.card.prefixes.found") == "About 30 s"
    assert said(lab, "lab.card.windows.found") == "This needs a GPU. A machine with one can show it."
    assert lab.everything.text() == "Run all, about 80 s"  # without the one that nothing here can show
    press(lab, "lab.open.prefixes")
    assert lab.view is not None
    assert lab.topics.currentItem().text() == "7  Prefix caching"
    assert nameless(lab) == []


def test_no_name_in_the_list_is_cut_off(qtbot, theme):
    title = "Sliding window + sinks"
    topics = TopicList(theme)
    qtbot.addWidget(topics)
    topics.fill([msgspec.structs.replace(PREFIXES, title=title)])
    topics.show_states((), {})
    topics.show()

    def row(width: int) -> QImage:
        topics.resize(width, 300)
        QApplication.processEvents()
        return topics.viewport().grab(topics.visualItemRect(topics.item(2))).toImage()

    wide = row(400)
    ground = wide.pixel(wide.width() - 1, 0)
    ends = max(x for x in range(wide.width()) for y in range(wide.height()) if wide.pixel(x, y) != ground) + 1
    shown = [row(width) for width in range(ends - 20, ends + 40, 2)]
    unbroken = [each for each in shown if each.height() == wide.height()]
    assert 0 < len(unbroken) < len(shown)
    assert all(each.copy(0, 0, ends, each.height()) == wide.copy(0, 0, ends, wide.height()) for each in unbroken)


@pytest.mark.parametrize("width", [150, 190])
def test_a_title_that_wraps_stands_below_itself(qtbot, theme, width):
    """Each line begins where the title does, one digit or two before it."""
    topics = TopicList(theme)
    qtbot.addWidget(topics)
    title = "Pictures of a cache that pages hold"
    topics.fill([msgspec.structs.replace(PREFIXES, title=title, number=number) for number in (1, 11)])
    topics.show_states((), {})
    topics.resize(width, 300)
    topics.show()
    QApplication.processEvents()
    for row, digits in ((2, 1), (3, 2)):
        place = topics.visualItemRect(topics.item(row))
        image = topics.viewport().grab(place).toImage()
        line = topics.fontMetrics().height()
        ground = image.pixel(image.width() - 1, 0)

        def starts(top: int, image: QImage = image, ground: int = ground, line: int = line) -> list[int]:
            rows = range(top, min(top + line, image.height()))
            return [x for x in range(image.width()) if any(image.pixel(x, y) != ground for y in rows)]

        assert image.height() >= 2 * line
        first, last = starts(0), starts(image.height() - line)
        ahead = topics.fontMetrics().horizontalAdvance("1" * digits + "  ")
        assert abs(min(last) - min(first) - ahead) <= 3


def test_a_click_anywhere_on_a_card_opens_it(qtbot, lab):
    for where in ("padding", "words"):
        lab.show_experiment("")
        card = next(each for each in lab.overview.cards if each.page.name == "prefixes")
        at = QPoint(3, 3) if where == "padding" else card.found.geometry().center()
        qtbot.mouseClick(card.childAt(at) or card, Qt.MouseButton.LeftButton)
        QApplication.processEvents()
        assert lab.open_page == "prefixes", where
        assert lab.view is not None


def test_a_card_has_the_picture_of_its_last_run_else_a_drawing(qtbot, lab):
    def told() -> dict[str, str]:
        return {
            card.page.name: card.picture.accessibleName() for card in lab.overview.cards if not card.picture.isHidden()
        }

    assert told() == {  # of the fake's other experiments nobody has a drawing
        "cache": "Prefix tree, in the last run",
        "prefixes": "Prefix tree, a drawing: this was not run yet",
    }
    card = next(each for each in lab.overview.cards if each.page.name == "prefixes")
    qtbot.mouseClick(card.picture, Qt.MouseButton.LeftButton)
    assert lab.open_page == "prefixes"
    run(qtbot, lab)
    lab.show_experiment("")
    assert told()["prefixes"] == "Prefix tree, in the last run"
    card = next(each for each in lab.overview.cards if each.page.name == "prefixes")
    card.show_picture(msgspec.structs.replace(result("prefixes"), pictures=[]))
    assert card.picture.isHidden(), "a drawing would say that it was not run yet"


def test_predict_run_and_see(qtbot, lab, state):
    lab.resize(800, 400)
    lab.show_experiment("prefixes")
    assert said(lab, "lab.headline") == said(lab, "lab.lesson") == ""
    assert not lab.save.isEnabled()
    button = lab.view.findChild(object, "lab.choice.2")
    button.click()
    run(qtbot, lab)
    assert asked(state) == [RunExperiment(name="prefixes")]
    assert said(lab, "lab.headline") == HEADLINE
    assert said(lab, "lab.second") == "4.0 times sooner (from 3.9 to 4.1 in 8 pairs)."
    assert said(lab, "lab.quiet") == "● This computer was quiet: other programs took 10\u00a0% of its processor."
    assert said(lab, "lab.prediction") == "You said “5 times”, and this computer measured 4.0: right."
    assert said(lab, "lab.lesson") == PREFIXES.lesson
    assert said(lab, "lab.here") == "14,844 tokens against 1,413."
    assert said(lab, "lab.text") == "The same text: identical, 96 tokens."
    assert said(lab, "lab.fails") == PREFIXES.fails
    assert "kvasir-guide on CPU (a machine), Kvasir 0.1.0, 26 November 2026, 02:50, seed 1" in said(lab, "lab.taken")
    assert button_of(lab, "lab.run").text() == "Run again, about 30 s"
    qtbot.waitUntil(lambda: not lab.view.found.lesson.visibleRegion().isEmpty())
    first, computed = lab.view.found.figures
    assert [label.text() for label in first.findChildren(QLabel)] == [
        "First token, median (lower is better)", "A  each prompt read whole", "418 ms", "B  prefix tree", "105 ms",
        "B against A", "4.0× sooner (3.9–4.1 in 8 pairs)",
    ]  # fmt: skip
    assert [label.text() for label in computed.findChildren(QLabel)][2:5:2] == ["14,844", "1,413"]
    dots = first.findChild(Dots)
    assert dots.accessibleDescription().startswith("400 ms, 405 ms")
    assert "; 100 ms, 101 ms" in dots.accessibleDescription()
    words_shown = {label.text() for label in lab.view.findChildren(QLabel)}
    assert {PAPER.claim, PAPER.setting, "one shared text", "12 users", "14,844 tokens against 1,413."} <= words_shown
    assert nameless(lab) == []


def test_a_wrong_prediction_and_no_clear_difference(qtbot, lab):
    lab.show_experiment("cache")
    lab.view.findChild(object, "lab.choice.3").click()
    run(qtbot, lab, "cache")
    wrong = "You said “20 times”; this computer measured no clear difference (from 0.97 to 1.06 times)."
    assert said(lab, "lab.prediction") == wrong
    shown = [label.text() for label in lab.view.found.figures[0].findChildren(QLabel)]
    assert shown[-1] == "no clear difference (0.97–1.06 in 8 pairs)"
    lab.show_experiment("prefixes")
    lab.show_experiment("cache")
    assert lab.view.choice == 3  # as it was left
    lab.view.findChild(object, "lab.choice.0").click()  # too late for this run
    lab.show_experiment("prefixes")
    lab.show_experiment("cache")
    assert lab.view.choice == 0
    assert said(lab, "lab.prediction") == wrong


@pytest.mark.parametrize(("ratio", "at"), [(0.7, 0), (1.39, 0), (1.4, 1), (9.99, 2), (10.0, 3), (500.0, 3)])
def test_the_place_of_a_ratio_among_the_choices(ratio, at):
    assert words.place(ratio, PREFIXES.bounds) == at


@pytest.mark.parametrize(
    ("number", "metric", "told"),
    [
        (1413.0, Metric(counted=True), "1,413"),
        (2.5, Metric(), "2.5"),
        (0.034, Metric(unit="ms"), "0.03 ms"),
        (5_000_000.0, Metric(unit="bytes"), "5.0 MB"),
        (87.5, Metric(unit="%"), "88 %"),
        (100.0, Metric(unit="%", counted=True), "100 %"),
        (17.0, Metric(unit="tokens/s"), "17 tokens/s"),
        (12_345.6, Metric(unit="tokens"), "12,346 tokens"),
    ],
)
def test_figures_are_told_in_their_unit(number, metric, told):
    assert words.value(number, metric) == told


def test_of_several_sides_those_that_ran_are_shown_each_against_the_first(qtbot, theme):
    """The model of the result lacks what the second side needs."""
    page = msgspec.structs.replace(PREFIXES, sides=["plain", "lacking", "draft", "heads"], bounds=[1.5, 2.5, 5.0])
    told = result("prefixes")
    figure = told.figures[0]
    weak = msgspec.structs.replace(figure.effects[0], ratio=1.8, low=1.7, high=1.9, after=232.0)
    figure = msgspec.structs.replace(
        figure, effects=[weak, figure.effects[0]], runs=[figure.runs[0], [232.0] * 8, figure.runs[1]]
    )
    trees = [tree(0), tree(1), tree(1)]
    told = msgspec.structs.replace(
        told, sides=["plain", "draft", "heads"], figures=[figure], pictures=trees, told_of=1, text=None
    )
    view = ExperimentView(page, 2, theme)
    qtbot.addWidget(view)
    view.show_result(None, -1)
    view.show_pictures(page.sides, {2: tree(1)})
    assert view.sides == ["plain", "lacking", "draft", "heads"]
    view.show_result(told, 2)
    qtbot.waitUntil(lambda: view.found.rest.over)
    assert view.sides == ["plain", "draft", "heads"]
    assert len(view.pictures) == 3
    assert view.found.prediction.text() == "You said “5 times”, and this computer measured 4.0: right."
    shown = [each.text() for each in view.found.figures[0].findChildren(QLabel)]
    for cell in ("A  plain", "B  draft", "C  heads", "418 ms", "232 ms", "1.80× sooner (1.70–1.90 in 8 pairs)"):
        assert cell in shown
    assert shown.count("4.0× sooner (3.9–4.1 in 8 pairs)") == 1


def test_a_result_comes_part_by_part_below_its_lesson(qtbot, theme):
    """So that no turn of the event loop is long."""
    told = result("prefixes")
    view = ExperimentView(PREFIXES, -1, theme)
    qtbot.addWidget(view)
    view.show_result(told, -1)
    found, seen = view.found, [0, 0, 0]
    assert [label.text() for label in found.findChildren(QLabel, "lab.lesson")] == [told.lesson]
    while not found.rest.over:
        found.rest.step()
        now = [len(found.figures), len(found.findChildren(PlotView)), len(found.findChildren(QLabel, "lab.text"))]
        assert sum(now) - sum(seen) <= 1
        seen = now
    assert seen == [len(told.figures), len(told.plots) + len(PREFIXES.papers), 1]
    assert found.findChild(QLabel, "lab.taken") is not None


class Frames(QObject):
    """Counts the frames that a window is about to paint, and notes the parts of it that lie over each other in one."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self.count, self.overlaps = 0, set()
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: N802
        if event.type() == QEvent.Type.UpdateRequest:
            self.count += 1
            for parent in watched.findChildren(QWidget):
                parts = [part for part in parent.children() if isinstance(part, QWidget) and part.isVisible()]
                for one, other in itertools.combinations(parts if parent.layout() is not None else (), 2):
                    if one.geometry().intersects(other.geometry()):
                        self.overlaps.add((type(parent).__name__, type(one).__name__, type(other).__name__))
        return False


def test_no_part_of_a_result_lies_over_another_while_it_comes(qtbot, lab):
    lab.resize(800, 900)
    lab.show_experiment("prefixes")
    frames = Frames(lab)
    run(qtbot, lab)
    assert frames.count > 9
    assert frames.overlaps == set()


def test_texts_that_differ_are_shown_with_the_first_difference_marked(qtbot, lab, state):
    change(state, same=False)
    run(qtbot, lab)
    assert said(lab, "lab.text").startswith("The texts differ from token 6 on. Both scores were within")
    both = lab.view.found.findChild(BothTexts)
    for view, word in zip(both.views, ("was", "is"), strict=True):
        _rest, first = view.extraSelections()
        assert first.cursor.selectedText() == word


def test_while_it_runs_it_shows_both_sides_and_is_cancelled_with_escape(qtbot, lab, state):
    begin(qtbot, lab, state)
    assert said(lab, "lab.status") == "Warming up: each prompt read whole"
    assert (lab.view.bar.maximum(), lab.view.bar.value()) == (4, 0)
    qtbot.waitUntil(lambda: lab.view.pictures[0].isVisibleTo(lab))
    assert not lab.view.run.isVisibleTo(lab)
    assert lab.topics.currentItem().data(Qt.ItemDataRole.AccessibleTextRole) == "Prefix caching, running"
    lab.show_experiment("cache")
    assert said(lab, "lab.status") == words.ELSEWHERE
    lab.show_experiment("prefixes")
    qtbot.waitUntil(lambda: lab.view.pictures[0].isVisibleTo(lab))  # what is known of the run
    qtbot.keyClick(lab.view.cancel, Qt.Key.Key_Escape)
    ended(qtbot, lab)
    assert said(lab, "lab.note") == words.STOPPED
    assert said(lab, "lab.headline") == ""


def test_a_run_that_was_stopped_leaves_what_was_known(qtbot, lab, state):
    lab.show_experiment("prefixes")
    lab.view.findChild(object, "lab.choice.0").click()
    run(qtbot, lab)
    wrong = said(lab, "lab.prediction")
    assert wrong == "You said “not at all”; this computer measured 4.0."
    before = [view._picture for view in lab.view.pictures]
    lab.view.findChild(object, "lab.choice.2").click()
    change(state, steps=-1)
    press(lab, "lab.run")
    assert lab.view.pictures == [], "those of the result are not those of the run"
    qtbot.waitUntil(lambda: bool(lab._runs.pictures))
    assert not lab.save.isEnabled()
    press(lab, "lab.cancel")
    assert said(lab, "lab.status") == words.STOPPING
    press(lab, "lab.cancel")  # it is told once
    ended(qtbot, lab)
    assert [view._picture for view in lab.view.pictures] == before
    assert said(lab, "lab.prediction") == wrong, "the result was known before the other prediction"
    lab.show_experiment("")
    lab.show_experiment("prefixes")
    assert said(lab, "lab.prediction") == wrong


def test_a_run_that_is_stopped_after_its_result_keeps_it(qtbot, lab, state):
    begin(qtbot, lab, state)
    press(lab, "lab.cancel")
    lab._runs._run.answer(LabOutcome(found=result("prefixes")))
    ended(qtbot, lab)
    assert said(lab, "lab.note") == ""
    assert said(lab, "lab.headline").startswith("10.5 times")


def test_enter_runs_it(qtbot, lab, state):
    lab.show_experiment("prefixes")
    qtbot.keyClick(lab.view.findChild(object, "lab.choice.1"), Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: "prefixes" in lab._runs.results and not lab._runs.running)
    assert asked(state) == [RunExperiment(name="prefixes")]
    qtbot.keyClick(lab.topics, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: len(asked(state)) == 2)
    ended(qtbot, lab)


def test_left_and_right_go_from_side_to_side_and_bring_them_into_view(qtbot, lab, state):
    lab.resize(800, 500)  # one below the other
    lab.activateWindow()
    lab.show_experiment("prefixes")
    lab.topics.setFocus()
    qtbot.keyClick(lab.topics, Qt.Key.Key_Right)
    assert QApplication.focusWidget() is lab.topics, "there are no sides yet"
    run(qtbot, lab)
    lab._scroll.verticalScrollBar().setValue(0)
    lab.lesson.begin(lab.view.found.lesson)  # as within a second after the result
    one, other = lab.view.boxes
    qtbot.waitUntil(other.isVisible)
    lab.topics.setFocus()
    at: QWidget = lab.topics
    for key, to in (("Right", one), ("Right", other), ("Right", other), ("Left", one), ("Left", one), ("Right", other)):
        qtbot.keyClick(at, getattr(Qt.Key, f"Key_{key}"))
        assert QApplication.focusWidget() is to, key
        qtbot.waitUntil(lambda to=to: not to.visibleRegion().isEmpty())
        at = to
        stands = lab._scroll.verticalScrollBar().value()
        lab.lesson.end()
        assert lab._scroll.verticalScrollBar().value() == stands, "the lesson does not come into view any more"
    change(state, steps=-1)
    qtbot.keyClick(other, Qt.Key.Key_Return)  # the sides of the result go, and the keyboard stays here
    assert QApplication.focusWidget() is lab.view.cancel
    qtbot.waitUntil(lambda: len(lab.view.boxes) == 2 and lab.view.boxes[1].isVisible())
    qtbot.keyClick(lab._scroll, Qt.Key.Key_Left)
    assert QApplication.focusWidget() is lab.view.boxes[1]
    qtbot.keyClick(lab.view.boxes[1], Qt.Key.Key_Escape)
    ended(qtbot, lab)
    assert said(lab, "lab.note") == words.STOPPED


def test_left_and_right_on_a_button_do_not_change_a_slider(qtbot, lab):
    lab.activateWindow()
    run(qtbot, lab)
    before = lab.view.sliders.values
    one, other = lab.view.boxes
    for button in (lab.view.run, lab.view.again, lab.view.use):
        button.setFocus()
        qtbot.keyClick(button, Qt.Key.Key_Right)
        assert QApplication.focusWidget() is one
        qtbot.keyClick(one, Qt.Key.Key_Right)
        assert QApplication.focusWidget() is other
        qtbot.keyClick(other, Qt.Key.Key_Right)
    assert lab.view.sliders.values == before
    lab.view.run.setFocus()
    qtbot.keyClick(lab.view.run, Qt.Key.Key_Right, Qt.KeyboardModifier.ControlModifier)
    assert not other.hasFocus(), "with a modifier it is another key"


def test_tab_goes_down_the_page(qtbot, lab):
    lab.activateWindow()
    run(qtbot, lab)
    lab.view.run.setFocus()
    seen = []
    while lab.view.again not in seen and len(seen) < 30:
        seen.append(QApplication.focusWidget())
        qtbot.keyClick(seen[-1], Qt.Key.Key_Tab)
    heights = [each.mapTo(lab.view, QPoint(0, 0)).y() for each in seen]
    assert heights == sorted(heights)
    assert seen[1:3] == lab.view.boxes
    assert seen[-3:] == [*lab.view.sliders.each, lab.view.again]


def test_a_slider_goes_in_steps_and_leaves_the_wheel_to_the_page(qtbot, lab):
    run(qtbot, lab)
    text = lab.view.findChild(QSlider, "lab.set.text")
    setting = next(each for each in PREFIXES.adjustable if each.key == "text")
    assert (text.minimum(), text.singleStep()) == (setting.least, setting.step), "as screen readers tell it"
    text.setValue(setting.least + setting.step + 1)
    assert text.value() == lab.view.sliders.values["text"] == setting.least + setting.step
    assert f"{text.value():,}" in {label.text() for label in lab.view.sliders.findChildren(QLabel)}
    at = QPointF(text.rect().center())
    turn = QWheelEvent(
        at, QPointF(text.mapToGlobal(at)), QPoint(), QPoint(0, 120), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    text.event(turn)
    assert not turn.isAccepted()
    assert text.value() == setting.least + setting.step


def test_sliders_stay_as_they_were_set(qtbot, lab, theme, state):
    run(qtbot, lab)
    lab.view.findChild(QSlider, "lab.set.users").setValue(6)
    set_to = {"text": 3000, "users": 6}
    theme.changed.emit()
    assert lab.view.sliders.values == set_to
    lab.show_experiment("cache")
    lab.show_experiment("prefixes")
    assert lab.view.sliders.values == set_to
    press(lab, "lab.run")
    ended(qtbot, lab)
    assert lab.view.sliders.values == set_to


def test_enter_measures_the_roofline(qtbot, lab, state):
    lab.show_experiment("roofline")
    qtbot.keyClick(lab.topics, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not lab._runs.running and lab._runs.roofline is not None)


@pytest.mark.parametrize(
    ("fact", "sentence"),
    [
        ({"fails": "The experiment ended: the engine stopped."}, "The experiment ended: the engine stopped."),
        ({"dies": True}, "The engine stopped before it answered. Try again."),
        ({"full": True}, "The result could not be kept: No space left on device."),
    ],
)
def test_what_goes_wrong_is_said_and_what_was_found_stays(qtbot, lab, state, fact, sentence):
    run(qtbot, lab)
    change(state, **fact)
    press(lab, "lab.run")
    ended(qtbot, lab)
    assert said(lab, "lab.note").lower() == sentence.lower()
    assert said(lab, "lab.headline").startswith("10.5 times")
    assert lab.view.run.isEnabled()
    lab.show_experiment("")
    assert said(lab, "lab.card.prefixes.note").lower() == sentence.lower()
    assert said(lab, "lab.card.prefixes.found") == HEADLINE
    change(state, fails="", dies=False, full=False)
    run(qtbot, lab)
    assert said(lab, "lab.note") == ""


def test_what_the_model_cannot_show_says_what_can(qtbot, lab, state):
    lab.show_experiment("windows")
    assert said(lab, "lab.refused") == "This needs a GPU. A machine with one can show it."
    assert not lab.view.run.isEnabled()
    lab.show_experiment("needle")
    assert said(lab, "lab.refused") == "The context is too short. A longer one can."
    assert lab.view.run.text() == "Run with needle-tiny, about 30 s"
    run(qtbot, lab, "needle")
    assert asked(state) == [RunExperiment(name="needle", model="needle-tiny")]
    assert "needle-tiny on CPU" in said(lab, "lab.taken")
    lab.show_experiment("")
    assert said(lab, "lab.card.needle.found").endswith("(needle-tiny)")


def test_run_all_runs_what_can_be_shown_in_its_order(qtbot, lab, state):
    press(lab, "lab.all")
    ended(qtbot, lab)
    assert [each.name for each in asked(state)] == ["cache", "needle", "prefixes"]
    change(state, steps=-1)
    press(lab, "lab.all")
    qtbot.waitUntil(lambda: bool(lab._runs.pictures))
    assert lab.everything.text() == "Cancel"
    assert said(lab, "lab.card.cache.found") == "Running now…"
    press(lab, "lab.all")
    ended(qtbot, lab)
    assert len(asked(state)) == 4
    assert said(lab, "lab.card.cache.found") == HEADLINE, "what is kept stays"


def test_ones_own_model_is_chosen(qtbot, lab, state):
    options = LoadOptions(quantise="int8", context=8192, memory=0.6, dtype="float16")
    own = Subject(name="Qwen3-4B", path="/models/Qwen3-4B", draft="/models/draft", options=options)
    lab._runs.device = lambda: "cuda:1"
    assert not lab.models.isVisibleTo(lab)
    lab.models.set_own(own)
    lab.show_experiment("prefixes")
    assert said(lab, "lab.memory") == ""
    chosen = button_of(lab, "lab.model.own")
    press(lab, "lab.model.own")
    assert button_of(lab, "lab.model.own") is chosen
    assert said(lab, "lab.memory") == words.memory("Qwen3-4B")
    press(lab, "lab.run")
    assert said(lab, "lab.status") == words.STARTING
    ended(qtbot, lab)
    there = msgspec.structs.replace(options, device="cuda:1")
    assert asked(state) == [
        RunExperiment(name="prefixes", model="/models/Qwen3-4B", draft="/models/draft", options=there)
    ]
    press(lab, "lab.run")
    press(lab, "lab.cancel")  # before it began
    ended(qtbot, lab)
    assert said(lab, "lab.note") == words.STOPPED
    assert len(asked(state)) == 1


def test_while_nothing_may_run_the_button_says_why(lab):
    lab.show_experiment("prefixes")
    lab.set_blocked(words.BUSY)
    assert not lab.view.run.isEnabled()
    assert said(lab, "lab.status") == words.BUSY
    lab.set_blocked("")
    assert lab.view.run.isEnabled()
    lab.show_experiment("")
    lab.set_blocked(words.BUSY)
    assert not lab.everything.isEnabled()


def test_an_index_that_fails_is_asked_for_again(qtbot, start, state):
    change(state, index_fails="There is no model.")
    lab = start()
    assert said(lab, "lab.said") == "There is no model."
    change(state, index_fails="")
    press(lab, "lab.again")
    qtbot.waitUntil(lambda: lab._runs.index is not None)
    assert lab.overview.cards


def test_a_result_is_saved_as_html_and_as_a_picture(qtbot, lab, tmp_path, monkeypatch):
    run(qtbot, lab)
    for ending in ("html", "png"):
        file = tmp_path / f"saved.{ending}"
        monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, file=file: (str(file), ""))
        press(lab, f"lab.save.{ending}")
        assert file.stat().st_size > 1000
        assert said(lab, "lab.saved") == f"Saved as {file}."
    page = (tmp_path / "saved.html").read_text()
    assert page.count("data:image/png;base64,") == 4  # two sides, our plot and the paper's
    assert HEADLINE in page
    assert PAPER.claim in page
    assert 'src="http' not in page
    assert (tmp_path / "saved.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path / "missing" / "x.html"), ""))
    press(lab, "lab.save.html")
    assert said(lab, "lab.saved").startswith("The file could not be written (No such file or directory)")
    assert said(lab, "lab.note") == "", "the run went well"
    lab.show_experiment("cache")
    assert said(lab, "lab.saved") == ""


def test_what_comes_from_outside_is_text_in_an_exported_page():
    hostile = msgspec.structs.replace(result("prefixes"), headline="<script>1</script>")
    assert "<script>" not in page_of(PREFIXES, hostile, [], [])


@pytest.mark.parametrize(("width", "scale", "columns"), [(800, 1.0, 1), (800, 1.5, 1), (1300, 1.0, 2)])
def test_nothing_is_cut_off_at_the_side(qtbot, lab, theme, width, scale, columns):
    lab.models.set_own(Subject(name="Qwen3-4B", path="/models/Qwen3-4B"))
    run(qtbot, lab)
    try:
        theme.set_scale(scale)
        lab.resize(width, 700)
        qtbot.waitUntil(lambda: lab.view is not None and lab.view.width() <= lab._scroll.viewport().width())
        assert lab.width() == width
        for label in (each for each in lab.view.findChildren(QLabel) if each.isVisibleTo(lab)):
            assert label.mapTo(lab.view, label.rect().topRight()).x() <= lab.view.width(), label.text()
        assert lab.view.columns.columns == columns
    finally:
        theme.set_scale(1.0)


def test_a_run_tells_sides_other_than_the_pages(qtbot, lab, state):
    run(qtbot, lab)
    change(state, steps=-1)
    press(lab, "lab.run")
    qtbot.waitUntil(lambda: bool(lab._runs.pictures))
    assert lab.view.sides == PREFIXES.sides
    sides = ["none", "half", "all"]
    lab._runs._on_event(LabProgress(name="prefixes", done=0, total=0, side=2, sentence="looking", sides=sides))
    lab._runs._on_event(LabPicture(name="prefixes", side=1, picture=tree(1)))
    assert (lab.view.sides, said(lab, "lab.status")) == (sides, "Looking: all")
    lab.show_experiment("cache")
    lab.show_experiment("prefixes")
    assert lab.view.sides == sides
    press(lab, "lab.cancel")
    ended(qtbot, lab)
    assert lab.view.sides == PREFIXES.sides, "those of the result before"


def test_progress_in_words():
    told = LabProgress(name="prefixes", done=300, total=1000, run=4, side=1)
    assert words.status(PREFIXES.sides, told) == "Run 4: prefix tree"
    longer = msgspec.structs.replace(told, sentence="running longer because this computer is busy")
    assert words.status(PREFIXES.sides, longer) == "Run 4, running longer because this computer is busy: prefix tree"
    assert words.status(PREFIXES.sides, None) == words.STARTING


def test_all_buttons_are_operated_by_keyboard(lab):
    lab.show_experiment("prefixes")
    for button in lab.view.findChildren(QPushButton):
        assert button.focusPolicy() & Qt.FocusPolicy.TabFocus, button.text()


def test_the_roofline_is_measured_and_shown(qtbot, lab, state):
    lab.show_experiment("roofline")
    assert lab.roof is not None
    assert not lab.save.isVisibleTo(lab)
    press(lab, "lab.roofline.run")
    qtbot.waitUntil(lambda: not lab._runs.running and lab._runs.roofline is not None)
    texts = [label.text() for label in lab.roof.findChildren(QLabel)]
    assert "One answer stands at 61 % of what this memory allows." in texts
    assert any("5.0 billion bytes a second. The fastest of several sums." in text for text in texts)
    for told in ("61 % of its roof, the fastest pass 70 %; measured: 90 passes", "1.20× the limit of one answer"):
        assert told in texts
    assert asked(state)[-1].name == "roofline"
    lab.show_experiment("")
    assert lab.overview.cards
    lab.show_experiment("roofline")
    assert len(lab.roof.findChildren(QLabel)) == len(texts), "what was measured stays"


def test_the_keyboard_keeps_its_place(qtbot, lab, theme):
    lab.activateWindow()
    lab.show_experiment("roofline")
    lab.roof.run.setFocus()
    before = lab.roof.run
    press(lab, "lab.roofline.run")
    ended(qtbot, lab)
    assert QApplication.focusWidget() is lab.roof.run is before
    theme.changed.emit()
    assert lab.roof.run is not before
    assert QApplication.focusWidget() is lab.roof.run
    run(qtbot, lab)
    side = lab.view.boxes[1]
    assert side.accessibleDescription() == lab.view.pictures[1].accessibleDescription() != ""
    side.setFocus()
    theme.changed.emit()
    assert QApplication.focusWidget() is lab.view.boxes[1] is not side


def test_how_the_pictures_came_about_is_played(qtbot, lab, state, monkeypatch):
    monkeypatch.setattr(player, "_SLOWEST_MS", 40)
    lab.show_experiment("prefixes")
    assert not lab.view.player.isVisibleTo(lab), "nothing was run"
    run(qtbot, lab)
    qtbot.wait(50)  # the pictures take the height that they want
    shown, (off, on) = lab.view.player, lab.view.pictures
    chats = shown.slider.maximum()
    assert shown.isVisibleTo(lab)
    assert (said(lab, "lab.moment.said"), shown.slider.value()) == (f"{chats} of {chats} chats", chats)
    whole = on.grab().toImage()
    press(lab, "lab.play")
    assert (shown.playing, shown.button.text(), said(lab, "lab.moment.said")) == (True, "Pause", f"0 of {chats} chats")
    assert on.grab().toImage() != whole
    press(lab, "lab.play")
    assert not shown.playing
    lab.activateWindow()
    shown.slider.setFocus()
    qtbot.keyClick(shown.slider, Qt.Key.Key_Right)  # a moment a press
    assert shown.slider.value() == 1
    qtbot.keyClick(shown.slider, Qt.Key.Key_Return)
    assert not lab._runs.running, "it runs nothing"
    assert shown.slider.accessibleDescription() == f"1 of {chats} chats"
    assert on.grab().toImage() != whole
    press(lab, "lab.play")
    qtbot.waitUntil(lambda: not shown.playing)
    assert shown.button.text() == "Play"
    assert on.grab().toImage() == whole
    assert off.moments == chats
    wheel = QWheelEvent(
        QPointF(5, 5), QPointF(5, 5), QPoint(), QPoint(0, 120), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(shown.slider, wheel)
    assert shown.slider.value() == chats, "the wheel is the page's"
    shown.slider.setValue(1)
    change(state, steps=-1)
    press(lab, "lab.run")
    assert not shown.isVisibleTo(lab), "while it runs the pictures are those of the run"
    qtbot.waitUntil(lambda: bool(lab._runs.pictures))
    assert not shown.isVisibleTo(lab)
    change(state, steps=0)
    press(lab, "lab.cancel")
    ended(qtbot, lab)
    assert shown.isVisibleTo(lab)
    qtbot.waitUntil(lambda: lab.view.pictures[1].grab().toImage() == whole)  # all of it, once there is room again
    lab.show_experiment("cache")
    lab.show_experiment("prefixes")
    assert lab.view.player.isVisibleTo(lab)


def test_a_run_that_is_cancelled_before_its_first_picture_leaves_those_of_the_result(qtbot, lab):
    run(qtbot, lab)
    before = [view.picture for view in lab.view.pictures]
    lab.activateWindow()
    lab.view.player.slider.setFocus()
    press(lab, "lab.run")
    assert lab.view.pictures == []
    assert QApplication.focusWidget() is lab.view.cancel, "the keyboard is not lost with the slider"
    press(lab, "lab.cancel")
    ended(qtbot, lab)
    assert [view.picture for view in lab.view.pictures] == before
    assert lab.view.player.isVisibleTo(lab)


def test_a_file_has_the_whole_pictures(qtbot, lab, tmp_path, monkeypatch):
    run(qtbot, lab)
    qtbot.wait(50)
    file = tmp_path / "result.html"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(file), ""))
    press(lab, "lab.save.html")
    whole = file.read_text()
    press(lab, "lab.play")
    press(lab, "lab.save.html")
    assert file.read_text() == whole
    assert not lab.view.player.playing


@pytest.mark.slow
def test_it_is_repeated_with_other_settings_which_are_not_what_was_asked(
    qtbot, lab, state, theme, tmp_path, monkeypatch
):
    lab.show_experiment("prefixes")
    assert not button_of(lab, "lab.try").isVisibleTo(lab)
    lab.view.findChild(object, "lab.choice.2").click()
    run(qtbot, lab)
    assert said(lab, "lab.headline").startswith("10.5 times"), said(lab, "lab.note")
    assert said(lab, "lab.prediction") == "You said “5 times”, and this computer measured 4.0: right."
    assert lab.view.sliders.values == {"text": 3000, "users": 12}
    press(lab, "lab.try")  # as they usually are
    ended(qtbot, lab)
    assert said(lab, "lab.prediction") != ""
    lab.activateWindow()
    users = lab.view.findChild(QSlider, "lab.set.users")
    users.setFocus()
    for _ in range(6):
        qtbot.keyClick(users, Qt.Key.Key_Left)  # which is not from side to side here
    qtbot.keyClick(users, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: len(asked(state)) == 3)
    ended(qtbot, lab)
    assert [each.chosen for each in asked(state)[1:]] == [{"text": 3000, "users": users} for users in (12, 6)]
    assert said(lab, "lab.headline").startswith("10.5 times")
    assert said(lab, "lab.prediction") == ""
    told = words.otherwise("Users 6")
    assert said(lab, "lab.chosen") == told
    assert lab.view.sliders.values == {"text": 3000, "users": 6}
    file = tmp_path / "saved.html"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(file), ""))
    press(lab, "lab.save.html")
    assert told in file.read_text()
    assert nameless(lab) == []
    theme.changed.emit()
    assert said(lab, "lab.chosen") == told, "the page made anew shows what it showed"
    lab.show_experiment("")
    assert said(lab, "lab.card.prefixes.found") == result("prefixes").headline
    lab.show_experiment("prefixes")
    assert said(lab, "lab.prediction") == "You said “5 times”, and this computer measured 4.0: right."
    assert said(lab, "lab.chosen") == "", "what is usual stands there again"
    lab.view.findChild(QSlider, "lab.set.users").setValue(0)
    press(lab, "lab.try")
    lab.show_experiment("cache")
    ended(qtbot, lab)
    lab.show_experiment("prefixes")
    assert said(lab, "lab.chosen") == words.otherwise("Users 3"), "it was not seen yet"
    run(qtbot, lab)
    assert said(lab, "lab.prediction") != ""
    assert said(lab, "lab.chosen") == ""
    lab.set_blocked(words.BUSY)
    assert not lab.view.again.isEnabled()
    assert lab.view.again.toolTip() == tip(words.BUSY)
    lab.show_experiment("cache")
    assert not lab.view.again.isVisibleTo(lab), "it has no settings"


def test_a_picture_that_all_sides_share_is_shown_once(qtbot, theme):
    view = ExperimentView(PREFIXES, -1, theme)
    qtbot.addWidget(view)
    view.show_result(msgspec.structs.replace(result("prefixes"), pictures=[tree(1)] * 2), -1)
    assert [each.accessibleName() for each in view.boxes] == [words.EVERY_SIDE]
    assert view.boxes[0].toolTip() == "", "there is no other side"


def test_of_three_texts_the_first_that_differs_is_shown_with_its_side(qtbot, theme):
    told = result("prefixes", same=False)
    one, other = told.text.texts
    text = msgspec.structs.replace(told.text, texts=[one, one, other, "A third."])
    sides = ["plain", "draft", "heads", "<b>"]
    told = msgspec.structs.replace(told, sides=sides, text=text)
    view = ExperimentView(PREFIXES, -1, theme)
    qtbot.addWidget(view)
    view.show_result(told, -1)
    qtbot.waitUntil(lambda: view.found.rest.over)
    assert [each.accessibleName() for each in view.found.findChild(BothTexts).views] == ["plain", "heads"]
    assert view.found.findChild(QLabel, "lab.text").text().endswith(" The first side that differs is C, heads.")
    assert "<h3>heads</h3><pre>The tree keeps what is new" in page_of(PREFIXES, told, [], [])
    older = msgspec.structs.replace(told, text=msgspec.structs.replace(text, texts=[one, other]))
    assert "<h3>" not in page_of(PREFIXES, older, [], []), "it does not tell which side wrote the other one"


def test_the_roofline_can_be_cancelled_and_fail(qtbot, lab, state):
    change(state, steps=-1)
    lab.show_experiment("roofline")
    press(lab, "lab.roofline.run")
    qtbot.waitUntil(lambda: button_of(lab, "lab.roofline.run").text() == "Cancel")
    press(lab, "lab.roofline.run")
    ended(qtbot, lab)
    assert said(lab, "lab.roofline.state") == words.STOPPED
    lab.set_blocked(words.BUSY)
    assert said(lab, "lab.roofline.state") == words.BUSY
    assert not button_of(lab, "lab.roofline.run").isEnabled()


def test_comparisons_and_experiments_do_not_disturb_each_other(qtbot, lab, state):
    begin(qtbot, lab, state)
    assert lab.findChild(ComparePage) is None  # it costs nothing until somebody opens it
    assert not lab.compare.go.isEnabled()
    lab._runs.cancel()
    ended(qtbot, lab)
    lab.show_experiment("compare")
    assert lab.compare.isVisibleTo(lab)
    assert lab.compare.go.isEnabled()
    assert lab.view is None
    begin(qtbot, lab, state)
    lab.show_experiment("compare")
    assert not lab.compare.go.isEnabled()
    lab._runs.cancel()
    ended(qtbot, lab)
    lab.show_experiment("prefixes")
    assert not lab.compare.isVisibleTo(lab)
    lab.compare.comparison._run = object()
    lab.compare.changed.emit()
    assert not lab.view.run.isEnabled()
    lab.compare.comparison._run = None
    lab.compare.changed.emit()
    assert lab.view.run.isEnabled()


def test_the_model_that_an_experiment_brings_is_the_one_that_is_offered(lab):
    lab.models.set_own(Subject("llama", "/llama"))
    assert lab.models._bundled == "kvasir-guide"
    lab.show_experiment("needle")
    assert lab.models._bundled == "needle-tiny"
    lab.show_experiment("prefixes")
    assert lab.models._bundled == "kvasir-guide"
