"""The real window is operated through the accessibility service alone, and names all that the keyboard reaches."""

from __future__ import annotations

import json

import pytest

from tests.app.screen_reader import found, missing

PAGES = {"Chat", "Models", "Lab", "Server", "Help", "Settings"}


@pytest.mark.long
def test_who_sees_nothing_reaches_every_page_asks_and_reads_the_answer():
    if lacks := missing():
        pytest.skip(lacks)
    run = found(capture=True)
    assert run.returncode == 0, run.stdout
    told = json.loads(run.stdout[run.stdout.index("{") :])
    assert set(told["pages"]) == PAGES
    assert not [each for page in told["pages"].values() for each in page["nameless"]]
    counts = {page["things"] for page in told["pages"].values()}
    assert len(counts) > 3, "pressing a page's button shows that page"
    assert "16 tokens" in " ".join(told["answer"])
