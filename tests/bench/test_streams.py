"""`python -m tests.bench streams`: rows of both servers, and Kvasir's own with a model that comes with the program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.library.paths import bundled_model
from tests.bench.streams import StreamsFigures, Turn, in_turns, kvasir_server


class Script:
    def __init__(self, title: str, seconds: float) -> None:
        self.title, self.seconds, self.asked = title, seconds, list[int]()

    def turn(self, prompts: Sequence[str], tokens: int) -> Turn:
        self.asked.append(len(set(prompts)))
        return Turn(self.seconds * len(prompts), self.seconds, len(prompts) * tokens)


def test_a_row_of_each_for_each_count(capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = Script("Kvasir", 2.0), Script("other", 1.0)
    rows = in_turns(ours, theirs, [1, 4], rounds=3, tokens=8)
    assert ours.asked == theirs.asked == [1, 4] * 4, "each prompt is a text of its own; the first round warms up"
    assert [(row.streams, row.program, row.speed.median, row.speed.pairs) for row in rows] == [
        (1, "Kvasir", 4.0, 3), (1, "other", 8.0, 3), (4, "Kvasir", 4.0, 3), (4, "other", 8.0, 3),
    ]  # fmt: skip
    assert [row.ratio and row.ratio.median for row in rows] == [None, 0.5, None, 0.5]
    StreamsFigures("a.gguf", 2, 3, 8, rows).show()
    assert "0.50" in capsys.readouterr().out


@pytest.mark.slow
def test_a_turn_of_kvasirs_server() -> None:
    with kvasir_server(Path(bundled_model().path), 1) as server:
        turn = server.turn(["a page", "a tree"], 5)
    assert turn.tokens == 10
    assert 0 < turn.first < turn.seconds


@pytest.mark.slow
def test_a_server_that_does_not_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="did not start"), kvasir_server(tmp_path / "none.gguf", 1):
        pass
