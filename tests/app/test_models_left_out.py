"""A model that cannot be offered, because what is noted of it makes no sense, is named once on the page."""

import sys

from app.models.library import Library

SCRIPT = "import sys; print('kvasir: …/kvasir.json is not valid JSON.', file=sys.stderr)"


def test_it_is_told_once(qtbot):
    library = Library([sys.executable, "-S", "-X", "utf8", "-c", SCRIPT])
    told = []
    library.failed.connect(told.append)
    for _ in range(2):
        with qtbot.waitSignal(library.stored_changed, timeout=60_000):
            library.refresh()
    assert told == ["…/kvasir.json is not valid JSON."]
    library.close_down()
