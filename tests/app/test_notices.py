"""Never two banners: the one that spoke last is on show, the other comes back after it."""

from __future__ import annotations

from app.window.window import MainWindow
from tests.app.conftest import WindowProgram


def test_of_two_notices_the_newer_is_on_show(start) -> None:
    program: WindowProgram = start()
    window, above, below = program.window, program.window.notice, program.chat.notice

    def shown() -> tuple[bool, bool]:
        return above.isVisible(), below.isVisible()

    above.say("A model is here.", topic="arrived")
    below.say("The answer was stopped.")
    assert shown() == (False, True)
    assert (above.text, above.shows("arrived")) == ("A model is here.", True), "it is kept"
    window.show_page(MainWindow.MODELS)
    assert shown() == (True, False), "on its own it is seen"
    window.show_page(MainWindow.CHAT)
    assert shown() == (False, True)
    below._close.click()
    assert shown() == (True, False)
    assert below.text == ""
    below.say("Another.")
    above.clear("arrived")
    assert (shown(), above.text) == ((False, True), "")
    above.say("Newer.")
    assert shown() == (True, False)
    below.clear()
    above.clear()
    assert shown() == (False, False)
