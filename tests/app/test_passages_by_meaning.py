"""Passages by meaning: embeddings that the engine computes, what is kept of them, and what the window says."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from operator import mul
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QFrame, QLabel, QToolButton
from transformers import BertConfig, BertModel

from app.chat.context.documents import next_documents
from app.chat.session.settling import BY_WORDS, ONE_PASSAGE, SPREAD
from app.chat.transcript.documents import DocumentBlock
from app.documents import embedder, meaning, vectors
from app.documents.ahead import PIECE
from app.documents.embedder import OTHER
from app.documents.meaning import AUTO, NO_NUMBERS, OFF, USUAL, PassageEmbeddings, Prepared, chosen
from app.documents.passages import DAMAGED, SPLITTING, fused, search, split
from app.documents.plan import DocumentCount
from app.documents.records import Document, DocumentUse, MessageDocument, PassageSearch, of_text
from app.documents.vectors import VectorFolder, VectorHead
from app.history.records import Attached, Draft, Folder, FolderDocument, StoredMessage, new_id
from app.link.calls import GONE
from app.program import WindowProgram
from app.settings.passages import NONE_HERE, EmbeddingChoice
from app.theme.widgets import ElidedLabel
from engine import protocol as p
from engine.protocol import EmbeddedTexts, EmbedTexts, RemoteModel, StoredModel, TextEmbeddings
from engine.protocol.library import ModelFormat
from tests.app.conftest import ask as say
from tests.kit.checkpoints import LETTERS, write_model
from tests.kit.operations import RealOperations

FACT = "The golden key lies below the stairs."
LONG = "\n".join(
    f"{at}. {FACT if at == 250 else ''} Nothing of note happened on this day, and so we went home." for at in range(300)
)
"""About 4,800 tokens of the fake engine, whose context has 2,048."""
QUESTION = "Whence comes that which opens every door?"
"""It shares no word with any passage."""
PLACES = split(LONG)
DOCUMENT = of_text("story.txt", LONG)
NAME = "tiny-bert"


class FakeEmbedder(QObject):
    """Answers calls as the engine does, one event of ``batch`` texts in each turn of the event loop. The first number
    of a vector is 1 for a text that is about the key, and for QUESTION."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[EmbedTexts] = []
        self.batch, self.dimensions, self.fingerprint = 8, 3, "f" * 32
        self.refuses = ""
        self.most = 10**9
        """Texts after which nothing comes any more."""
        self.before_end: Callable[[], object] = lambda: None
        self.running: list[Any] = []
        self.cancelled = 0

    def call(self, operation: Any, request: Any, on_answer: Any, on_error: Any, on_event: Any) -> Any:
        call = _Call(self, request, on_answer, on_error, on_event)
        self.asked.append(request)
        self.running.append(call)
        QTimer.singleShot(0, self, call.go_on)
        return call

    def vector(self, text: str) -> tuple[float, ...]:
        near = FACT in text or text == QUESTION
        return (1.0, *[0.0] * (self.dimensions - 1)) if near else (0.0, 1.0, *[0.0] * (self.dimensions - 2))

    @property
    def documents(self) -> list[int]:
        """How many passages each call had."""
        return [len(each.texts) for each in self.asked if each.kind == "document"]


class _Call:
    def __init__(self, of: FakeEmbedder, request: EmbedTexts, on_answer: Any, on_error: Any, on_event: Any) -> None:
        self.of, self.request, self.done = of, request, 0
        self.on_answer, self.on_error, self.on_event = on_answer, on_error, on_event

    def cancel(self) -> None:
        if self in self.of.running:
            self.of.running.remove(self)
            self.of.cancelled += 1

    def go_on(self) -> None:
        of, texts = self.of, self.request.texts
        if self not in of.running or self.done >= of.most:
            return
        if of.refuses:
            of.running.remove(self)
            self.on_error(p.Error(code="failed", message=of.refuses))
            return
        some = texts[self.done : self.done + of.batch]
        if some:
            packed = b"".join(struct.pack(f"<{of.dimensions}f", *of.vector(text)) for text in some)
            self.on_event(EmbeddedTexts(first=self.done, vectors=packed))
            self.done += len(some)
            QTimer.singleShot(0, of, self.go_on)
            return
        of.before_end()
        of.running.remove(self)
        self.on_answer(TextEmbeddings(model=NAME, fingerprint=of.fingerprint, dimensions=of.dimensions, tokens=1))


@pytest.fixture
def fake(qapp) -> FakeEmbedder:
    return FakeEmbedder()


@pytest.fixture
def prepare(qtbot, fake: FakeEmbedder, tmp_path: Path) -> Callable[..., Prepared]:
    """Prepare a document for the question, to the end."""
    parent = QObject()
    source = PassageEmbeddings(fake, tmp_path / "passages", parent)
    source.model = lambda: "/models/tiny-bert"

    def run(document: Any = DOCUMENT, question: str = QUESTION) -> Prepared:
        found: list[Prepared] = []
        source.told = []  # type: ignore[attr-defined]
        made = source.prepare(document, question, lambda *of: source.told.append(of), found.append, parent)  # type: ignore[attr-defined]
        assert made is not None
        qtbot.waitUntil(lambda: bool(found))
        return found[0]

    run.source, run.parent = source, parent  # type: ignore[attr-defined]
    return run


def found_by(prepared: Prepared) -> Any:
    return search(PassageSearch(LONG, QUESTION, 900, prepared.path, [*prepared.question]))


# --- ranking -------------------------------------------------------------------------------------------------------


def test_rankings_are_fused_by_reciprocal_ranks() -> None:
    """7: 1/61 + 2/63, 9: 1/63 + 2/61, 8: 3/62; a number that only one has is behind, by words alone last."""
    assert fused([7, 8, 9], [9, 8, 7, 4]) == [9, 8, 7, 4]
    assert fused([5], [1, 2]) == [1, 2, 5]
    assert fused([2, 5], [1, 2]) == [2, 1, 5]
    assert fused([], [3, 1]) == fused([3, 1], []) == [3, 1]


def test_what_says_it_in_other_words_is_found_by_its_vector(prepare: Callable[..., Prepared]) -> None:
    by_words = search(PassageSearch(LONG, QUESTION, 900))
    assert not by_words.matched
    prepared = prepare()
    assert (prepared.model, prepared.reason) == (NAME, "")
    found = found_by(prepared)
    assert any(FACT in LONG[each.start : each.end] for each in found.passages)
    assert (found.of, found.unused) == (len(PLACES), "")


# --- what is kept --------------------------------------------------------------------------------------------------


def test_a_document_is_computed_once_and_a_question_each_time(prepare: Callable[..., Prepared], fake: Any) -> None:
    first, second = prepare(), prepare()
    assert first == second
    assert fake.documents == [len(PLACES)]
    assert [each.kind for each in fake.asked] == ["query", "document", "query"]
    assert prepare.source.told == [], "nothing is left to do"  # type: ignore[attr-defined]
    fake.fingerprint, fake.dimensions = "a" * 32, 4
    other = prepare()
    assert fake.documents == [len(PLACES)] * 2, "another model computes its own"
    assert other.path != first.path
    assert any(FACT in LONG[each.start : each.end] for each in found_by(other).passages)


def test_what_was_broken_off_is_gone_on_with(qtbot, prepare: Callable[..., Prepared], fake: Any) -> None:
    source, heard = prepare.source, []  # type: ignore[attr-defined]
    fake.most = 2 * fake.batch
    made = source.prepare(DOCUMENT, QUESTION, lambda *of: heard.append(of), heard.append, prepare.parent)  # type: ignore[attr-defined]
    qtbot.waitUntil(lambda: (16, len(PLACES)) in heard)
    made.cancel()
    assert fake.cancelled == 1
    assert not any(isinstance(each, Prepared) for each in heard)
    fake.most = 10**9
    prepared = prepare()
    assert fake.documents == [len(PLACES), len(PLACES) - 16]
    assert any(FACT in LONG[each.start : each.end] for each in found_by(prepared).passages)


def test_a_question_waits_for_so_long_and_says_so(
    prepare: Callable[..., Prepared], fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meaning, "WAIT_MS", 200)
    fake.most = fake.batch
    prepared = prepare()
    assert prepared.path == ""
    assert prepared.reason.startswith(f"Only 8 of {len(PLACES)} passages were read")
    assert fake.cancelled == 1


def test_a_model_that_changes_meanwhile_is_not_mixed(prepare: Callable[..., Prepared], fake: Any) -> None:
    marks = iter("abbc")  # of the question, of its passages, and again
    fake.before_end = lambda: setattr(fake, "fingerprint", next(marks) * 32)
    assert prepare().reason == OTHER
    assert prepare().reason == OTHER
    fake.before_end = lambda: setattr(fake, "dimensions", 5)  # once the question has its vector
    assert prepare().reason == OTHER, "vectors of another length than those that are there"
    fake.before_end = lambda: None
    assert prepare().model == NAME


@pytest.mark.parametrize("refusal", ["There is no model at /m. Check the path.", "The model does not fit.", GONE])
def test_what_the_engine_refuses_is_the_reason(prepare: Callable[..., Prepared], fake: Any, refusal: str) -> None:
    fake.refuses = refusal
    assert prepare() == Prepared(reason=refusal)


def test_too_many_passages_and_a_folder_that_cannot_be_written(
    prepare: Callable[..., Prepared], fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedder, "MOST_PASSAGES", len(PLACES) - 1)
    assert f"has {len(PLACES)} passages" in prepare().reason
    monkeypatch.undo()
    (tmp_path / "passages").write_text("a file")
    assert "could not be kept" in prepare().reason
    assert fake.documents == []


def test_a_document_of_thousands_of_passages(prepare: Callable[..., Prepared], fake: Any) -> None:
    fake.batch = 1000
    long = "\n".join(f"{at}. {'word ' * 150}" for at in range(4000)).replace("2500. word", f"2500. {FACT}", 1)
    text = long[:2_000_000]
    count = len(split(text))
    assert 2500 < count < embedder.MOST_PASSAGES
    prepared = prepare(of_text("long.txt", text))
    assert sum(fake.documents) == count
    assert max(fake.documents) == meaning.AT_ONCE
    found = search(PassageSearch(text, QUESTION, 900, prepared.path, [*prepared.question]))
    assert any(FACT in text[each.start : each.end] for each in found.passages)


def test_the_engine_computes_what_is_kept(qtbot, tmp_path: Path) -> None:
    """Its operation itself, with a model of random weights: a passage is nearest to a question of the same text."""
    config = BertConfig(vocab_size=len(LETTERS) + 1, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                        num_attention_heads=2, max_position_embeddings=512)  # fmt: skip
    write_model(tmp_path / "tiny-bert", lambda: BertModel(config))
    text = "\n\n".join(letter * 700 for letter in "abcde")
    places, parent, found = split(text), QObject(), list[Prepared]()
    source = PassageEmbeddings(RealOperations(), tmp_path / "passages", parent)
    source.model = lambda: str(tmp_path / "tiny-bert")
    question = text[slice(*places[3])]
    assert source.prepare(of_text("letters.txt", text), question, lambda *_: None, found.append, parent) is not None
    qtbot.waitUntil(lambda: bool(found))
    assert (found[0].reason, found[0].model) == ("", "tiny-bert")
    rows = list(vectors.read(Path(found[0].path), len(found[0].question), len(places)))
    products = [sum(map(mul, row, found[0].question)) for row in rows]
    assert products.index(max(products)) == 3
    assert products[3] == pytest.approx(1, abs=0.01)


HEAD = VectorHead("f" * 32, 3, 4, SPLITTING)


def test_files_that_hold_something_else_begin_anew(tmp_path: Path) -> None:
    folder = VectorFolder(tmp_path)
    file = folder.add(folder.open("digest", HEAD), struct.pack("<6f", *range(6)))
    assert (file.done, folder.open("digest", HEAD).done) == (2, 2)
    with file.path.open("ab") as opened:
        opened.write(b"torn")
    assert folder.open("digest", HEAD).done == 2
    for wrong in (b"x" * 8, b"x" * 12 * 3):
        with pytest.raises(ValueError, match="bytes after 2 vectors"):
            folder.add(file, wrong)
    with pytest.raises(ValueError, match="not all vectors"):
        vectors.read(file.path, 3, 4)
    for junk in (b"", b"{", b"\xff" * 600, b'{"fingerprint":"f"}'.ljust(500)):
        file.path.write_bytes(junk)
        assert folder.open("digest", HEAD).done == 0
    folder.add(folder.open("digest", HEAD), bytes(48))
    assert folder.open("digest", msgspec.structs.replace(HEAD, passages=5)).done == 0


def test_two_chats_that_write_the_same_file_write_the_same(tmp_path: Path) -> None:
    folder, packed = VectorFolder(tmp_path), struct.pack("<12f", *range(12))
    one, two = folder.open("digest", HEAD), folder.open("digest", HEAD)
    one = folder.add(one, packed[:24])
    two = folder.add(two, packed[:12])
    three = folder.open("digest", HEAD)
    assert (three.done, folder.add(two, packed[12:36]).done, folder.add(one, packed[24:]).done) == (2, 3, 4)
    assert [number for row in vectors.read(one.path, 3, 4) for number in row] == [*map(float, range(12))]


def test_vectors_go_with_their_document_and_the_longest_unused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = VectorFolder(tmp_path)
    files = [folder.add(folder.open(name, HEAD), bytes(48)) for name in ("one", "../two", "three")]
    for number, file in enumerate(files):
        os.utime(file.path, (number, number))
    assert {file.path.parent for file in files} == {tmp_path}
    folder.keep({"../two", "three"})
    assert [file.path.exists() for file in files] == [False, True, True]
    folder.open("../two", HEAD)  # used again
    monkeypatch.setattr(vectors, "MOST_BYTES", 2 * files[1].path.stat().st_size)
    folder.open("four", HEAD)
    assert [file.path.exists() for file in files] == [False, True, False]


# --- the window ----------------------------------------------------------------------------------------------------


@pytest.fixture
def chatting(start: Callable[..., WindowProgram], fake: FakeEmbedder) -> WindowProgram:
    program = start()
    source = program.chat.session.meaning
    source._engine = fake
    source.model = lambda: "/models/tiny-bert"
    return program


def ask(qtbot, program: WindowProgram, text: str = QUESTION) -> DocumentUse:
    """Ask about the document in a new chat; what of it was sent."""
    session = program.chat.session
    session.new()
    session.send(text, documents=(MessageDocument(DOCUMENT),))
    return decided(qtbot, program)


def decided(qtbot, program: WindowProgram) -> DocumentUse:
    session = program.chat.session
    qtbot.waitUntil(lambda: session.talk.last("assistant") is not None and not session.streaming)
    question: StoredMessage | None = session.talk.last("user")
    assert question is not None
    use = question.documents[0].use
    assert use is not None
    return use


def has_fact(use: DocumentUse) -> bool:
    return any(FACT in LONG[each.start : each.end] for each in use.passages or ())


def block_of(program: WindowProgram) -> DocumentBlock:
    question = program.chat.session.talk.last("user")
    assert question is not None
    block = program.chat.transcript.view(question.id).findChild(DocumentBlock)
    assert isinstance(block, DocumentBlock)
    return block


def hint(block: DocumentBlock) -> str:
    (label,) = block.findChildren(QLabel, "document-hint")
    return "" if label.isHidden() else label.text()


def test_a_question_in_other_words_is_answered_from_its_passage(qtbot, chatting: WindowProgram, fake: Any) -> None:
    told: list[str] = []
    chatting.chat.answers.preparing.connect(lambda _, words: told.append(words))
    use = ask(qtbot, chatting)
    assert has_fact(use)
    assert (use.model, use.note) == (NAME, "")
    assert f"reading story.txt by meaning, 8 of {len(PLACES)} passages" in told
    block = block_of(chatting)
    assert hint(block) == "", "while it is folded"
    block.head.click()
    assert hint(block) == f"Found by their words, and by their meaning with {NAME}."
    ask(qtbot, chatting, "Where do we find the golden key?")
    assert fake.documents == [len(PLACES)]


def test_without_a_model_it_is_words_and_one_quiet_line(qtbot, chatting: WindowProgram, fake: Any) -> None:
    chatting.chat.session.meaning.model = lambda: ""
    use = ask(qtbot, chatting, "Where is the golden key?")
    assert (use.model, use.note, fake.asked) == ("", "", [])
    block = block_of(chatting)
    block.head.click()
    assert "Settings, Passages by meaning" in hint(block)
    assert ask(qtbot, chatting).note == SPREAD
    block = block_of(chatting)
    block.head.click()
    assert hint(block).startswith("With an embedding model")


def test_what_cannot_be_computed_is_told_and_words_find_what_they_can(
    qtbot, chatting: WindowProgram, fake: Any
) -> None:
    fake.refuses = "The model does not fit."
    use = ask(qtbot, chatting, "Where is the golden key?")
    assert has_fact(use)
    assert (use.model, use.note) == ("", BY_WORDS.format(reason=fake.refuses))
    fake.refuses = ""
    odd = (float("nan"),) * 3
    fake.vector = lambda text: odd
    assert ask(qtbot, chatting, "Where is the golden key?").note == BY_WORDS.format(reason=NO_NUMBERS)
    fake.vector = lambda text: (1.0, 0.0, 0.0) if text.endswith("key?") else odd
    use = ask(qtbot, chatting, "Where is the golden key?")
    assert (use.model, use.note) == ("", BY_WORDS.format(reason=DAMAGED))
    del fake.vector
    assert ask(qtbot, chatting).model == NAME, "the damaged file is gone"


def test_stop_ends_it_and_what_was_computed_stays(qtbot, chatting: WindowProgram, fake: Any) -> None:
    fake.most = fake.batch
    session = chatting.chat.session
    session.send(QUESTION, documents=(MessageDocument(DOCUMENT),))
    qtbot.waitUntil(lambda: bool(fake.documents))
    qtbot.waitUntil(lambda: fake.running[0].done == 8)
    chatting.chat.stop()
    assert (fake.running, session.streaming) == ([], False)
    question = session.talk.last("user")
    assert question is not None
    assert question.documents[0].use is None
    fake.most = 10**9
    chatting.chat.message_actions.act_on_last("assistant", "regenerate")
    assert has_fact(decided(qtbot, chatting))
    assert fake.documents == [len(PLACES), len(PLACES) - 8]


# --- ahead of the question ------------------------------------------------------------------------------------------


def attach(program: WindowProgram, document: Document = DOCUMENT) -> None:
    """A document that was read, in the composer."""
    program.chat.composer.show_draft(Draft(documents=(Attached(document.name, document),)))


def said_ahead(program: WindowProgram) -> str:
    label = program.chat.composer.documents.findChild(ElidedLabel, "document-ahead")
    return "" if label is None or label.isHidden() else label.text()


def test_a_document_that_does_not_fit_is_read_before_the_question(qtbot, chatting: WindowProgram, fake: Any) -> None:
    chat, heard = chatting.chat, list[str]()
    chat.session.ahead.changed.connect(lambda: heard.append(said_ahead(chatting)))
    attach(chatting)
    qtbot.waitUntil(lambda: said_ahead(chatting) == "Its passages can be found by meaning.")
    assert f"Reading by meaning: 8 of {len(PLACES)}" in heard
    assert (sum(fake.documents), max(fake.documents)) == (len(PLACES), PIECE), "a few at a time"
    assert {each.kind for each in fake.asked} == {"document"}
    (chip,) = chat.composer.documents.findChildren(QFrame, "document-chip")
    assert chip.accessibleName().endswith("Its passages can be found by meaning.")
    chat.send(QUESTION)
    use = decided(qtbot, chatting)
    assert has_fact(use)
    assert (use.model, sum(fake.documents)) == (NAME, len(PLACES)), "nothing is left to compute"


def test_a_question_goes_on_from_what_is_read_and_nothing_is_read_twice(
    qtbot, chatting: WindowProgram, fake: Any
) -> None:
    session, sent = chatting.chat.session, []
    attach(chatting)

    def send() -> None:  # while the next piece is being computed
        known = session.ahead.of(DOCUMENT)
        if not sent and known is not None and known.done == 2 * PIECE:
            sent.append(True)
            QTimer.singleShot(0, chatting.chat, lambda: chatting.chat.send(QUESTION))

    session.ahead.changed.connect(send)
    qtbot.waitUntil(lambda: bool(sent))
    assert has_fact(decided(qtbot, chatting))
    assert sum(fake.documents) == len(PLACES)
    assert fake.cancelled == 0


def test_what_is_taken_out_is_read_no_further(qtbot, chatting: WindowProgram, fake: Any) -> None:
    session, chips = chatting.chat.session, chatting.chat.composer.documents
    attach(chatting)

    def take_out() -> None:
        known = session.ahead.of(DOCUMENT)
        if known is not None and known.done == PIECE:
            chips.findChild(QToolButton, "document-close").click()

    session.ahead.changed.connect(take_out)
    qtbot.waitUntil(lambda: not chips.attached and not fake.running)
    assert sum(fake.documents) <= 2 * PIECE
    attach(chatting)
    qtbot.waitUntil(lambda: said_ahead(chatting) == "Its passages can be found by meaning.")
    assert sum(fake.documents) == len(PLACES), "what was read stays"


def test_ahead_too_no_two_models_are_mixed(qtbot, chatting: WindowProgram, fake: Any) -> None:
    def change() -> None:
        fake.before_end = lambda: None
        fake.fingerprint, fake.dimensions = "a" * 32, 4

    chatting.chat.session.ahead.changed.connect(
        lambda: sum(fake.documents) == 2 * PIECE and fake.fingerprint[0] == "f" and setattr(fake, "before_end", change)
    )
    attach(chatting)
    qtbot.waitUntil(lambda: said_ahead(chatting) == "Its passages can be found by meaning.")
    assert sum(fake.documents) == 3 * PIECE + len(PLACES), "what the first one computed is no use"
    chatting.chat.send(QUESTION)
    assert has_fact(decided(qtbot, chatting))
    assert sum(fake.documents) == 3 * PIECE + len(PLACES)


def test_a_model_that_is_never_the_same_is_told(qtbot, chatting: WindowProgram, fake: Any) -> None:
    marks = iter(range(10**6))
    fake.before_end = lambda: setattr(fake, "fingerprint", str(next(marks)))
    attach(chatting)
    qtbot.waitUntil(lambda: said_ahead(chatting) == f"Not read by meaning yet: {OTHER}")
    assert (len(fake.running), next(marks)) == (0, 4)


def test_closing_stops_it(qtbot, chatting: WindowProgram, fake: Any) -> None:
    fake.most = 0
    attach(chatting)
    qtbot.waitUntil(lambda: bool(fake.running))
    chatting.chat.close_down()
    assert (fake.running, fake.cancelled) == ([], 1)


def test_without_a_model_nothing_is_read_and_with_one_it_begins(qtbot, chatting: WindowProgram, fake: Any) -> None:
    session = chatting.chat.session
    session.meaning.model = lambda: ""
    attach(chatting)
    qtbot.waitUntil(lambda: bool(session.ahead._wanted))
    assert (fake.asked, said_ahead(chatting)) == ([], "")
    session.meaning.model = lambda: "/models/tiny-bert"
    session.ahead.refresh()
    qtbot.waitUntil(lambda: said_ahead(chatting) == "Its passages can be found by meaning.")
    fake.refuses = "The model does not fit."
    session.meaning.model = lambda: "/models/other"
    session.ahead.refresh()
    qtbot.waitUntil(lambda: said_ahead(chatting) == "Not read by meaning yet: The model does not fit.")


@pytest.mark.parametrize("over", ["engine", "model", "question"])
def test_what_hindered_is_tried_again_once_it_is_over(qtbot, chatting: WindowProgram, fake: Any, over: str) -> None:
    say(qtbot, chatting, "Hello")  # what stands in the composer stays in a chat that is begun
    fake.refuses = "The model does not fit."
    attach(chatting)
    qtbot.waitUntil(lambda: said_ahead(chatting) == "Not read by meaning yet: The model does not fit.")
    assert len(fake.asked) == 1, "not again and again"
    fake.refuses = ""
    if over == "engine":
        chatting.link.welcomed.emit(chatting.link.welcome)
    elif over == "model":
        chatting.library.stored_changed.emit()
    else:
        other = of_text("other.txt", LONG + LONG)
        chatting.chat.session.send(QUESTION, documents=(MessageDocument(other),))
    qtbot.waitUntil(lambda: said_ahead(chatting) == "Its passages can be found by meaning.")


def test_what_lies_in_the_document_stays(
    qtbot, chatting: WindowProgram, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedder, "MOST_PASSAGES", len(PLACES) - 1)
    attach(chatting)
    qtbot.waitUntil(lambda: f"has {len(PLACES)} passages" in said_ahead(chatting))
    chatting.chat.session.ahead.retry()
    assert (len(fake.asked), f"has {len(PLACES)} passages" in said_ahead(chatting)) == (1, True)


def in_folder(program: WindowProgram, *documents: Document) -> None:
    """A new chat in a folder that has them."""
    folder = new_id()
    program.history.save_folder(Folder(folder, "House"))
    program.history.set_folder_documents(folder, [FolderDocument(f"{at}", each) for at, each in enumerate(documents)])
    program.chat.session.new(folder)


def test_what_fits_is_not_read_until_it_fits_no_more(qtbot, chatting: WindowProgram, fake: Any) -> None:
    """Of 1,536 tokens that the fake engine leaves to documents, the own one takes 7 and the folder's about 800."""
    chat, session = chatting.chat, chatting.chat.session
    short, notes = of_text("short.txt", FACT), of_text("notes.txt", LONG[: len(LONG) // 6])
    in_folder(chatting, notes)
    attach(chatting, short)
    qtbot.waitUntil(lambda: session.tokens.of(short) is not None and session.tokens.of(notes) is not None)
    chat.composer.edit.setPlainText("Where is it? ")

    qtbot.waitUntil(lambda: chat.header.context.text != "")
    assert fake.asked == []
    chat.composer.edit.setPlainText("Where is it? " * 300)
    qtbot.waitUntil(lambda: "found by meaning" in chat.composer.folder.button.toolTip())
    assert said_ahead(chatting) == "", "the short one still fits"
    assert {text for each in fake.asked for text in each.texts} == {notes.text[a:b] for a, b in split(notes.text)}


def test_another_servers_chat_is_read_ahead_by_what_is_estimated(qtbot, chatting: WindowProgram, fake: Any) -> None:
    session = chatting.chat.session
    long = of_text("long.txt", LONG * 4)
    in_folder(chatting, DOCUMENT)
    session.set_remote(RemoteModel(server="there", model="far"))
    attach(chatting, long)
    qtbot.waitUntil(lambda: said_ahead(chatting) == "Its passages can be found by meaning.")
    read = {text for each in fake.asked for text in each.texts}
    assert read == {long.text[start:end] for start, end in split(long.text)}, "the folder's would fit"
    session.send(QUESTION, documents=(MessageDocument(long),))
    qtbot.waitUntil(lambda: session.talk.last("user").documents[0].use is not None)
    assert sum(fake.documents) == len(split(long.text)), "the question finds them there"
    assert session.talk.last("user").documents[0].use.model == NAME


@pytest.mark.parametrize("base", [0, 700])
def test_what_stands_in_front_is_decided_anew(base: int) -> None:
    """Of 2,000 tokens 1,500 are left to documents, and the folder's stand in what is counted."""
    one, two = of_text("one.txt", "1"), of_text("two.txt", "2")
    front, known = {one.digest, two.digest}, [400, 500]
    found = next_documents(2000, base + 900, [], [one, two], known, front)
    if not base:
        assert found == ([DocumentCount(400, True, False), DocumentCount(500, True, False)], [], 0)
        return
    assert found.counts == [DocumentCount(400, True, True), DocumentCount(500, False, True)]
    assert found.searched == [two]
    assert found.tokens == ONE_PASSAGE - 500, "passages in place of all of it"
    answer = next_documents(2000, base + 900, [], [one, two], known, front, question=False)
    assert (answer.searched, answer.tokens) == ([], 0)
    new = next_documents(2000, base, [None, two], [one], [None, 500, 400], ())
    assert (new.counts[0], new.searched) == (None, [two])


# --- the choice ----------------------------------------------------------------------------------------------------


def stored(name: str, size: int, embeds: bool = True, format: ModelFormat = "safetensors") -> StoredModel:
    return StoredModel(name=name, path=f"/m/{name}", format=format, bytes=size, embeds=embeds)


HERE = [stored("large", 2 << 30), stored("chat", 1, embeds=False), stored("small", 91_000_000), stored("mid", 10**8)]


def test_the_smallest_model_is_taken_unless_another_is_chosen() -> None:
    assert chosen(AUTO, HERE) == "/m/small"
    assert chosen(AUTO, HERE[:2]) == "", "a large one is for those who choose it"
    assert chosen("/m/large", HERE) == "/m/large"
    assert chosen("/m/gone", HERE) == "/m/gone", "of which the engine says that it is not there"
    assert chosen(OFF, HERE) == chosen(AUTO, []) == ""


def test_the_setting_offers_what_is_here(qtbot) -> None:
    choice = EmbeddingChoice()
    qtbot.addWidget(choice)
    assert choice.title == NONE_HERE
    choice.offer_models(HERE)
    assert choice.title == "small"
    titles = [action.text() for action in choice.menu().actions() if not action.isSeparator()]
    assert titles == ["Off", "small, 91 MB", "mid, 100 MB", "large, 2.1 GB", "Find an embedding model…"]
    asked: list[str] = []
    choice.chosen.connect(asked.append)
    choice.menu().actions()[0].trigger()
    choice.menu().actions()[2].trigger()
    assert asked == [OFF, "/m/mid"]
    choice.choose(OFF)
    assert choice.title == "Off"
    choice.choose("/m/gone")
    assert choice.title == "gone (not here)"
    assert choice.accessibleName() == "Passages by meaning: gone (not here)"


def test_settings_and_models_know_of_it(qtbot, start: Callable[..., WindowProgram]) -> None:
    program = start()
    page, source = program.window.settings_page.passages, program.chat.session.meaning
    program.library.stored = HERE
    program.library.stored_changed.emit()
    assert (page.title, source.model()) == ("small", "/m/small")
    page.chosen.emit("/m/mid")
    assert (program.store.settings.passages, page.title, source.model()) == ("/m/mid", "mid", "/m/mid")
    program.store.move_models("/m", "/n")
    assert program.store.settings.passages == "/n/mid"
    page.chosen.emit(OFF)
    assert source.model() == ""
    page.find_asked.emit()
    assert program.window.models_page.field.text() == USUAL
