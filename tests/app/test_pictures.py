"""Pictures in the window: how they come into a message, what is sent and kept, and where they are seen."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QUrl
from PySide6.QtGui import QColor, QImage

from app.chat import pictures
from app.chat.composer import Composer
from app.chat.pictures import LONGEST_PX, MOST, MOST_BYTES, NoPictureError
from app.chat.session.conversation import Conversation
from app.chat.transcript.message import MessageView
from app.history.export import to_markdown
from app.history.records import Draft, StoredMessage
from app.history.store import HistoryStore
from app.program import WindowProgram
from app.theme.theme import Theme
from engine.protocol import ModelCard, Sampling


def image(width: int = 60, height: int = 40, colour: str = "red") -> QImage:
    made = QImage(width, height, QImage.Format.Format_RGB32)
    made.fill(QColor(colour))
    return made


def noise(width: int, height: int) -> QImage:
    """What no format makes small."""
    data = random.Random(1).randbytes(3 * width * height)
    return QImage(data, width, height, 3 * width, QImage.Format.Format_RGB888).copy()


@pytest.fixture
def photo(tmp_path: Path, qapp) -> Path:
    path = tmp_path / "a photo.jpg"
    assert image().save(str(path))
    return path


@pytest.fixture
def composer(qtbot, theme: Theme) -> Iterator[Composer]:
    made = Composer(theme)
    qtbot.addWidget(made)
    made.see(card(True))
    made.show()
    return made


def card(sees: bool) -> ModelCard:
    return ModelCard(
        name="Seer",
        path="/seer",
        architecture="x",
        parameters=1,
        quantisation="bf16",
        context=100,
        vocabulary=10,
        eos_ids=[1],
        has_chat_template=True,
        sampling=Sampling(),
        pictures=sees,
    )


def dropped(*paths: Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    return data


def pasted(picture: QImage, text: str = "") -> QMimeData:
    data = QMimeData()
    data.setImageData(picture)
    if text:
        data.setText(text)
    return data


def test_a_small_file_is_sent_as_it_is_and_a_large_one_is_made_small(tmp_path: Path, photo: Path) -> None:
    assert pictures.read(photo) == photo.read_bytes()
    large = tmp_path / "large.png"
    assert noise(3000, 900).save(str(large))
    assert large.stat().st_size > MOST_BYTES
    sent = pictures.read(large)
    found = QImage.fromData(sent)
    assert len(sent) <= MOST_BYTES
    assert (found.width(), found.height()) == (LONGEST_PX, round(900 * LONGEST_PX / 3000))


def test_what_is_no_picture_is_refused_with_a_sentence(
    tmp_path: Path, photo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "notes.png"
    text.write_text("no picture")
    with pytest.raises(NoPictureError, match=r"notes\.png cannot be read as a picture"):
        pictures.read(text)
    monkeypatch.setattr(pictures, "MOST_PIXELS", 2_000)
    with pytest.raises(NoPictureError, match=r"60 x 40 pixels, and a picture can have 2,000"):
        pictures.read(photo)


def test_drops_and_pastes_are_attached_and_text_stays_text(composer: Composer, photo: Path) -> None:
    composer.edit.insertFromMimeData(dropped(photo))
    composer.edit.insertFromMimeData(pasted(image(colour="blue")))
    assert composer.edit.canInsertFromMimeData(pasted(image()))
    assert [file == photo.read_bytes() for file in composer.attached.files] == [True, False]
    assert composer.text == ""
    composer.edit.insertFromMimeData(pasted(image(), "words of a table"))
    assert "words of a table" in composer.text
    assert len(composer.attached.files) == 2


def test_a_message_of_pictures_alone_can_be_sent_and_one_can_be_taken_out(
    qtbot, composer: Composer, photo: Path
) -> None:
    assert not composer.button.isEnabled()
    composer.take_pictures([photo, image(colour="blue")])
    assert composer.button.isEnabled()
    first = composer.attached.findChild(object, "attached-picture")
    assert first.accessibleName() == "Take out picture 1"
    first.click()
    assert len(composer.attached.files) == 1
    with qtbot.waitSignal(composer.sent) as sent:
        composer.edit.submitted.emit()
    assert sent.args == [""]
    composer.clear()
    assert (composer.attached.files, composer.attached.isHidden()) == ((), True)


def test_too_many_and_a_model_of_text_are_refused(qtbot, composer: Composer, photo: Path) -> None:
    with qtbot.waitSignal(composer.refused) as refused:
        composer.take_pictures([photo] * (MOST + 1))
    assert f"A message can have {MOST} pictures" in refused.args[0]
    assert composer.attach.accessibleName() == "Add documents or pictures"
    composer.see(card(False))
    assert composer.attach.accessibleName() == "Add documents"
    with qtbot.waitSignal(composer.refused) as refused:
        composer.edit.insertFromMimeData(dropped(photo))
    assert refused.args == ["Seer reads text only, so a message to it can have no pictures."]
    assert composer.attached.files == ()


def test_the_history_keeps_pictures_with_their_message(tmp_path: Path, history: HistoryStore) -> None:
    talk, two = Conversation(history), (b"\x89PNG one", b"two")
    asked = talk.ask("What is this?", pictures=two)
    talk.go_to(asked.id)
    later = talk.ask("And this?", pictures=(b"three",))
    assert [message.pictures for message in talk.prompt(later.id)] == [list(two), [b"three"]]
    history.close()
    again = HistoryStore(history.path)
    assert {message.id: message.pictures for message in again.messages(talk.chat.id)} == {
        asked.id: two,
        later.id: (b"three",),
    }
    again.remove_message(later.id)
    assert [message.pictures for message in again.messages(talk.chat.id)] == [two]
    assert again._read("SELECT count(*) FROM pictures") == [(2,)]
    again.delete(talk.chat.id)
    again.close()
    last = HistoryStore(history.path)
    assert last._read("SELECT count(*) FROM pictures") == [(0,)]
    last.close()


def test_an_exported_chat_has_its_pictures_in_it(history: HistoryStore) -> None:
    talk = Conversation(history)
    talk.go_to(talk.ask("Look", pictures=(b"\x89PNG one",)).id)
    encoded = base64.b64encode(b"\x89PNG one").decode()
    assert f"![picture](data:image/png;base64,{encoded})\n\nLook" in to_markdown(talk.chat, talk.path)


@pytest.mark.parametrize("text", ["What is this?", ""])
def test_a_message_shows_its_pictures_above_its_text(qtbot, theme: Theme, text: str) -> None:
    files = (pictures.encoded(image(500, 300)), pictures.encoded(image(colour="blue")), b"none at all")
    plain = MessageView(StoredMessage("a", "c", "", "user", text or "x"), theme, None)  # type: ignore[arg-type]
    shown = MessageView(StoredMessage("b", "c", "", "user", text, pictures=files), theme, None)  # type: ignore[arg-type]
    qtbot.addWidget(plain)
    qtbot.addWidget(shown)
    assert shown.fit(600) >= plain.fit(600) + 100
    labels = shown._pictures.findChildren(object)
    assert [label.text() for label in labels if hasattr(label, "text")][-1] == "A picture that cannot be shown"
    assert shown.fit(200) > shown.fit(900), "a narrow window breaks the row"


def test_pictures_are_sent_edited_and_left_with_their_chat(
    qtbot, start: Callable[..., WindowProgram], photo: Path
) -> None:
    program = start()
    chat = program.chat
    chat.composer.see(card(True))
    chat.composer.take_pictures([photo])
    chat.composer.edit.setPlainText("What is this?")
    chat.composer.edit.submitted.emit()
    qtbot.waitUntil(lambda: chat.session.talk.last("assistant") is not None)
    qtbot.waitUntil(lambda: not chat.session.streaming, timeout=10_000)
    asked = chat.session.talk.last("user")
    assert asked is not None
    assert asked.pictures == (photo.read_bytes(),)
    assert chat.composer.draft == Draft()
    chat.message_actions.act_on_last("user", "edit")
    assert chat.composer.draft.pictures == asked.pictures
    chat.composer.clear()
    chat.composer.see(card(True))
    chat.composer.take_pictures([image(colour="green")])
    first = chat.chat_id
    chat.new_chat()
    assert chat.composer.draft.pictures == ()
    chat.open_chat(first)
    assert len(chat.composer.draft.pictures) == 1
