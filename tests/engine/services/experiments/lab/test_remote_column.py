"""A column of Compare whose model is another server's: a stand-in, and a second Kvasir."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keyring
import msgspec
import pytest
from keyring.backends import fail

from engine import protocol as p
from engine.doors.cli.compare import tell
from engine.library.paths import find_model
from engine.protocol import compared, keys
from engine.protocol.access import AddKey
from engine.protocol.lab import Column, KindFigures, LabCompared, LabFigure
from engine.protocol.operations import ADD_KEY, ADD_REMOTE
from engine.services.experiments.compare import remote
from engine.services.experiments.compare.columns import ComparedPrompt, ComparisonRequest, parse_column
from engine.services.experiments.compare.comparison import compare
from engine.services.experiments.experiment import LabError
from engine.services.experiments.reports import page as report
from engine.services.operations import perform
from tests.kit.remote_server import EVENTS, Odd, chunk
from tests.kit.servers import Serving

THERE = p.RemoteModel(server="far", model="big")
COLUMNS = Column(name="here", draft=""), Column(name="there", remote=THERE)
PROMPTS = (ComparedPrompt("What is a <page>?"),)
USAGE = (
    b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 6, '
    b'"prompt_tokens_details": {"cached_tokens": 4}}}\n\n'
)
DONE = b"data: [DONE]\n\n"
ANSWER = chunk(reasoning="Hm. ") + chunk(content="From ") + chunk(content="afar.") + USAGE + DONE


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Odd]]:
    keyring.set_keyring(fail.Keyring())
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    made: list[Odd] = []

    def make(*args: Any, **options: Any) -> Odd:
        made.append(Odd(*args, **options))
        perform(ADD_REMOTE, p.AddRemote(url=made[-1].url, name="far", key="a-secret"))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def run(*columns: Column, prompts: Any = PROMPTS, **more: Any) -> LabCompared:
    asked = {"tokens": 8, "pairs": 2, "device": "cpu", "prompts": prompts} | more
    return compare(ComparisonRequest(columns or COLUMNS, **asked), lambda _: None)


def figures(kind: KindFigures) -> dict[str, LabFigure]:
    return {figure.effects[0].metric.title: figure for figure in kind.figures}


def test_it_is_measured_from_here_and_what_is_not_seen_is_said(
    odd: Callable[..., Odd], capsys: pytest.CaptureFixture[str]
) -> None:
    server = odd(ANSWER, EVENTS)
    found = run(text="A page holds sixteen tokens of one chat. " * 3)
    host = server.url.removeprefix("http://")
    assert found.models == ["kvasir-guide", f"big on far ({host})"]
    kind = figures(found.kinds[0])
    for title in ("tokens/s", "TTFT", "time of an answer"):
        assert [len(runs) for runs in kind[title].runs] == [2, 2], title
        assert kind[title].remarks == ["", ""]
    assert kind["prompt tokens from the cache"].runs == [[0.0, 0.0], [4.0, 4.0]]
    for title in ("weights and KV cache", "tokens per step", "draft tokens accepted"):
        assert kind[title].runs[1] == []
        assert compared.cells(kind[title])[1] == ("–", remote.UNSEEN)
    (text,) = found.kinds[0].texts[0]
    assert text.texts[1] == "Hm. From afar."
    assert compared.text_verdict(found, 0, text) == text.sentence
    assert "cannot be proved there" in text.sentence
    assert found.lossless == [False]
    assert found.absent[0] == remote.UNPROVED.format("there")
    assert "no scores" in found.absent[1]
    assert "timed from here" in found.taken
    for _, key, sent in server.asked[1:]:
        assert key == "Bearer a-secret"
        assert sent["messages"] == [{"role": "user", "content": "What is a <page>?"}]
        assert (sent["temperature"], sent["seed"], sent["max_tokens"]) == (0.0, 1, 8)
        assert "ignore_eos" not in sent, "an addition of some servers, which others refuse"
    assert len(server.asked) == 4, "its models, a warm-up and two rounds"
    tell(found)
    for written in (report.html(found), capsys.readouterr().out, msgspec.json.encode(found).decode()):
        assert host in written or "–" in written
        assert remote.UNSEEN in written
        assert "a-secret" not in written


def test_what_the_server_does_not_count_is_counted_here_or_not_told(odd: Callable[..., Odd]) -> None:
    odd(chunk(content="From afar.") + DONE, EVENTS)
    kind = figures(run().kinds[0])
    assert kind["tokens/s"].runs[1] == []
    assert kind["tokens/s"].remark(1) == remote.AT_ONCE
    assert kind["prompt tokens from the cache"].remark(1) == remote.NOT_TOLD


def test_pieces_are_counted_where_there_is_no_usage(odd: Callable[..., Odd]) -> None:
    odd(chunk(content="From ") + chunk(content="afar.") + DONE, EVENTS)
    kind = figures(run().kinds[0])
    assert min(kind["tokens/s"].runs[1]) > 0
    assert compared.cells(kind["tokens/s"])[1][1].endswith(remote.PIECES)


@pytest.mark.parametrize(
    ("replies", "says", "text"),
    [
        ([(b'{"error": {"message": "no"}}', "application/json", 401, False)], "does not accept the key", ""),
        ([(chunk(content="so far"), EVENTS, 200, True)], "ended the connection early", "so far"),
        (
            [(ANSWER, EVENTS, 200, False), (b"busy", "text/plain", 503, False)],
            "HTTP 503",
            "Hm. From afar.",
        ),
        ([(DONE, EVENTS, 200, False)], "gave an empty answer", ""),
    ],
)
def test_a_failure_there_ends_its_column_alone(replies: Any, says: str, text: str, odd: Callable[..., Odd]) -> None:
    server = odd(b"")
    server.replies = replies
    found = run()
    kind = figures(found.kinds[0])
    assert kind["tokens/s"].runs[1] == []
    assert says in kind["tokens/s"].remark(1)
    assert kind["TTFT"].remark(1) == remote.ENDED
    assert all(len(figure.runs[0]) == 2 for figure in found.kinds[0].figures), "the other one goes on"
    told = found.kinds[0].texts[0][0]
    assert told.texts[1] == text
    assert (says in told.sentence) == (text != "Hm. From afar."), "a text that was whole is still compared"
    assert not told.same


def test_a_server_that_is_gone_ends_its_column(odd: Callable[..., Odd]) -> None:
    odd(b"").stop()
    found = run()
    assert "cannot be reached" in found.kinds[0].figures[0].remark(1)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([COLUMNS[1], COLUMNS[0]], "first column is the baseline"),
        ([COLUMNS[0], Column(name="b", remote=THERE, set={keys.KV_KIND: "int8"})], "its own settings"),
        ([COLUMNS[0], Column(name="b", remote=THERE, quantise="nf4")], "its own settings"),
    ],
)
def test_what_another_server_cannot_be_told_is_refused(columns: list[Column], says: str) -> None:
    with pytest.raises(LabError, match=says):
        run(*columns)


def test_the_command_line_names_the_server() -> None:
    assert parse_column("there: server=far, model=big") == COLUMNS[1]
    assert parse_column(msgspec.json.encode(COLUMNS[1]).decode()) == COLUMNS[1]


@pytest.mark.slow
def test_the_same_model_in_another_kvasir_writes_the_same_text(odd: Callable[..., Odd]) -> None:
    """In one arithmetic, batch-invariant: what the cache has read before a round hangs on how rounds are drawn."""
    serving = Serving(Path(find_model("kvasir-guide").path), dtype="auto")
    try:
        url = serving.url
        perform(ADD_REMOTE, p.AddRemote(url=url, name="near", key=perform(ADD_KEY, AddKey(name="far")).key))
        there = Column(name="there", remote=p.RemoteModel(server="near", model="kvasir-guide"))
        serving.engine.submit(p.Set(key=keys.BATCH_INVARIANT, value=True))
        here = Column(name="here", draft="", set={keys.BATCH_INVARIANT: True})
        found = run(here, there, prompts=(), tokens=32)
    finally:
        serving.stop()
    assert [kind.kind for kind in found.kinds] == ["prose", "code"]
    assert [text.same for kind in found.kinds for texts in kind.texts for text in texts] == [True] * 4
    kind = figures(found.kinds[0])
    assert min(kind["prompt tokens from the cache"].runs[1]) > 0, "of the round before"
    assert kind["tokens/s"].remarks == ["", ""]
