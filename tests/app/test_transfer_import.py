"""Import of chats: Kvasir's own files, OpenAI's, Open WebUI's and LM Studio's, twice, broken, cancelled and undone."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtWidgets import QFileDialog, QPushButton

from app.documents.records import DocumentPassage, DocumentUse, MessageDocument, of_text
from app.history.records import AnswerStats, Chat, Folder, Repeat, StoredMessage, TextSpan
from app.history.sidebar import Sidebar
from app.history.store import HistoryStore
from app.history.transfer import chat_file
from app.history.transfer.export_job import ExportJob
from app.history.transfer.formats import FORMATS
from app.history.transfer.import_dialog import ImportDialog
from app.history.transfer.import_job import ImportJob
from app.history.transfer.places import ZipPlace
from app.history.transfer.readers import files
from app.history.transfer.readers.found import FoundChat, Skipped
from app.history.tree import MessageTree
from engine.protocol import Tool, ToolCall, ToolConfig, ToolResult
from tests.app.transfers import picture
from tests.kit.examples import examples

WHEN = 1_700_000_000.0


def node(key: str, parent: str | None, role: str = "", content: Any = None, **more: Any) -> dict[str, Any]:
    """A node of OpenAI's mapping."""
    if isinstance(content, str):
        content = {"content_type": "text", "parts": [content]}
    message = {"id": key, "author": {"role": role}, "create_time": WHEN, "content": content, "recipient": "all"}
    return {
        "id": key,
        "parent": parent,
        "children": [],
        "message": {**message, "metadata": {}, **more} if role else None,
    }


def openai(key: str = "conv-1", **more: Any) -> dict[str, Any]:
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "S", "content": "Let me see."}]}
    shown = [
        {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-abc"},
        {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_gone"},
        {"content_type": "real_time_user_audio_video_asset_pointer"},
        "Look at this",
    ]
    nodes = [
        node("root", None),
        node("sys", "root", "system", "", metadata={"is_visually_hidden_from_conversation": True}),
        node("q", "sys", "user", {"content_type": "multimodal_text", "parts": shown}),
        node("t", "q", "assistant", thoughts, metadata={"model_slug": "o5"}),
        node("c", "t", "assistant", {"content_type": "code", "text": "search()"}, recipient="web"),
        node("r", "c", "tool", "found"),
        node("a", "r", "assistant", "First \ue200cite\ue202x\ue201part.", metadata={"model_slug": "o5"}),
        node("b", "a", "assistant", "Second part."),
        node("a2", "q", "assistant", "Another answer", metadata={"model_slug": "o4"}),
        node("q2", "b", "user", "Thanks"),
    ]
    mapping = {one["id"]: one for one in nodes}
    for one in nodes:
        if one["parent"]:
            mapping[one["parent"]]["children"].append(one["id"])
    value = {"title": "A\n title", "create_time": WHEN, "update_time": WHEN + 9, "mapping": mapping}
    return {**value, "current_node": "q2", "conversation_id": key, "is_archived": True, **more}


def open_webui() -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(picture()).decode()}"
    thought = '<details type="reasoning" done="true" duration="5">\n<summary>Thought</summary>\n&gt; Hm &amp; so\n'
    thought += "</details>\n"
    tool = '<details type="tool_calls" done="true" id="x">\n<summary>Ran</summary>\n</details>\n'
    shown = [{"type": "image", "url": url}, {"type": "file", "name": "a.pdf"}]
    messages = {
        "2": {"id": "2", "parentId": "1", "role": "assistant", "content": f"{thought}{tool}Yes.", "model": "qwen3:8b"},
        "1": {"id": "1", "parentId": None, "role": "user", "content": "See", "timestamp": WHEN, "files": shown},
        "3": {"id": "3", "parentId": "1", "role": "assistant", "content": "No.", "model": "gemma", "done": False},
    }
    chat = {"title": "Web", "history": {"messages": messages, "currentId": "2"}, "params": {"system": "Be kind."}}
    return {
        "id": "w1",
        "title": "Web",
        "chat": {**chat, "timestamp": WHEN * 1000},
        "created_at": WHEN,
        "updated_at": WHEN + 5,
        "pinned": True,
        "meta": {"tags": ["general", "to read"]},
    }


def lm_studio() -> dict[str, Any]:
    def said(*texts: str, **more: Any) -> dict[str, Any]:
        return {"type": "contentBlock", "content": [{"type": "text", "text": text} for text in texts], **more}

    def answer(*steps: dict[str, Any]) -> dict[str, Any]:
        return {"type": "multiStep", "role": "assistant", "senderInfo": {"senderName": "qwen"}, "steps": steps}

    def asked(text: str, *more: dict[str, Any]) -> dict[str, Any]:
        return {"type": "singleStep", "role": "user", "content": [{"type": "text", "text": text}, *more]}

    thinking = said("Inwardly", style={"type": "thinking"})
    return {
        "name": "Studio",
        "createdAt": WHEN * 1000,
        "assistantLastMessagedAt": (WHEN + 7) * 1000,
        "systemPrompt": "Short.",
        "messages": [
            {"versions": [asked("Hello", {"type": "file", "fileType": "image"})], "currentlySelected": 0},
            {
                "versions": [
                    answer(thinking, said("One"), {"type": "debugInfoBlock"}),
                    answer(said("<think>x</think>Two")),
                ],
                "currentlySelected": 0,
            },
            {"versions": [asked("More")], "currentlySelected": 0},
        ],
    }


def read(value: Any) -> list[FoundChat | Skipped]:
    return list(files._chats(io.BytesIO(json.dumps(value).encode()), 1, lambda _: None, lambda _: None))


def only(value: Any) -> FoundChat:
    (found,) = read([value])
    assert isinstance(found, FoundChat)
    return found


def branch(found: FoundChat, leaf: str | None = None) -> list[str]:
    tree = MessageTree(found.messages, found.chat.leaf)
    return [message.content for message in tree.path(leaf)]


def test_openai_keeps_branches_thinking_and_models() -> None:
    found = only(openai())
    assert found.origin == "openai:conv-1"
    assert (found.chat.title, found.chat.created, found.chat.updated) == ("A title", WHEN, WHEN + 9)
    assert found.archived
    assert branch(found) == ["Look at this", "First part.\n\nSecond part.", "Thanks"]
    asked, one, two = (
        next(message for message in found.messages if message.content.startswith(begin))
        for begin in ("Look", "First", "Another")
    )
    assert (one.thinking, one.stats.model, two.stats.model) == ("Let me see.", "o5", "o4")
    assert one.parent == two.parent == asked.id
    assert found.left_out == {"pictures that are not in the file": 2, "recordings": 1, "tool calls and results": 2}


def test_openai_reads_pictures_of_its_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as zipped:
        zipped.writestr("conversations.json", json.dumps([openai(), {"mapping": {}}]))
        zipped.writestr("user.json", "{}")
        zipped.writestr("file-abc-photo.png", picture())
    found, other = files.chats(tmp_path / "export.zip", lambda _: None)
    assert isinstance(found, FoundChat)
    assert found.messages[0].pictures == (picture(),)
    assert other == Skipped("without messages")


def test_open_webui_keeps_branches_thinking_and_pictures() -> None:
    found = only(open_webui())
    assert (found.origin, found.chat.title, found.chat.system_prompt) == ("open-webui:w1", "Web", "Be kind.")
    assert (found.pinned, found.tags) == (True, ("general", "to read"))
    assert branch(found) == ["See", "Yes."]
    by = {message.content: message for message in found.messages}
    assert by["See"].pictures == (picture(),)
    assert (by["Yes."].thinking, by["Yes."].stats) == ("Hm & so", AnswerStats(model="qwen3:8b", thought_s=5.0))
    assert (by["No."].state, by["No."].parent, by["No."].stats.model) == ("interrupted", by["See"].id, "gemma")
    assert found.left_out == {"tool calls and results": 1, "attached documents": 1}


def test_lm_studio_keeps_versions() -> None:
    found = only(lm_studio())
    assert (found.chat.title, found.chat.updated, found.chat.system_prompt) == ("Studio", WHEN + 7, "Short.")
    assert branch(found) == ["Hello", "One", "More"]
    by = {message.content: message for message in found.messages}
    assert by["Two"].parent == by["One"].parent == by["Hello"].id
    assert (by["One"].thinking, by["Two"].thinking, by["One"].stats.model) == ("Inwardly", "x", "qwen")
    assert found.left_out == {"pictures that are not in the file": 1}
    assert only({**lm_studio(), "systemPrompt": ""}).origin == found.origin == f"lm-studio:{WHEN * 1000}"


NAMES = [
    *("mapping", "message", "author", "role", "content", "parts", "parent", "children", "history", "messages", "type"),
    *("currentId", "chat", "versions", "steps", "text", "title", "create_time", "createdAt", "format", "version", "id"),
    *("files", "tags", "metadata", "thoughts"),
]
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.sampled_from(["user", "assistant", "kvasir.chat", "text", "contentBlock"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=25,
)


@examples(80)
@given(
    value=st.lists(st.dictionaries(st.sampled_from(["mapping", "chat", "messages", "history", "format"]), json_values))
)
def test_any_value_is_read_or_skipped(value: list[Any]) -> None:
    assert len(read(value)) == len(value)


@examples(40)
@given(value=st.lists(st.dictionaries(st.text(max_size=5), json_values, max_size=4)), chunk=st.integers(1, 9))
def test_a_list_is_read_one_by_one_as_at_once(value: list[Any], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "CHUNK", chunk)
        for indent in (None, 1):
            text = json.dumps(value, indent=indent, ensure_ascii=False)
            assert list(files._values(io.StringIO(text), lambda _: None)) == value


@pytest.fixture
def sidebar(qtbot, history: HistoryStore, theme) -> Iterator[Sidebar]:
    bar = Sidebar(history, theme)
    qtbot.addWidget(bar)
    bar.show()
    yield bar
    bar.close_down()


def written(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def imported(qtbot, sidebar: Sidebar, *paths: Path) -> ImportDialog:
    sidebar.import_files(paths)
    dialog = sidebar.findChildren(ImportDialog)[-1]
    qtbot.waitUntil(lambda: not dialog.job.running and dialog._close.text() == "Close", timeout=20_000)
    return dialog


def checked(history: HistoryStore) -> None:
    history.flush()
    with contextlib.closing(sqlite3.connect(history.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        for table in ("words", "letters"):
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")


def test_chats_of_three_programs_arrive_once_and_can_be_undone(
    qtbot, sidebar: Sidebar, history: HistoryStore, tmp_path: Path, monkeypatch
) -> None:
    history.save_chat(Chat("mine", "Mine", 1.0, 2.0))
    paths = [
        written(
            tmp_path / "conversations.json", [openai(), openai("conv-2", title="Other", is_archived=False), {"x": 1}]
        ),
        written(tmp_path / "web.json", [open_webui()]),
        written(tmp_path / "1.conversation.json", lm_studio()),
    ]
    monkeypatch.setattr(QFileDialog, "getOpenFileNames", lambda *_: ([str(path) for path in paths], ""))
    sidebar._ask_import()
    dialog = sidebar.findChild(ImportDialog)
    qtbot.waitUntil(lambda: dialog._close.text() == "Close", timeout=20_000)
    said = dialog._said.text()
    assert "4 chats with 15 messages imported." in said
    assert "1 skipped: 1 not chats." in said
    assert "2 recordings" in said
    assert [(chat.title, chat.archived, chat.pinned, chat.tags) for chat in history.listed()] == [
        ("A title", True, False, ()),
        ("Other", False, False, ()),
        ("Studio", False, False, ()),
        ("Web", False, True, ("general", "to read")),
        ("Mine", False, False, ()),
    ]
    assert {hit.chat.title for hit in history.search("another ans")} == {"A title", "Other"}
    checked(history)
    again = imported(qtbot, sidebar, *paths)
    assert "0 chats with 0 messages imported. 5 skipped: 4 already here, 1 not chats." in again._said.text()
    assert not again.findChild(QPushButton, "import.undo").isVisible()
    again.reject()
    dialog.findChild(QPushButton, "import.undo").click()
    qtbot.waitUntil(lambda: "4 imported chats removed." in dialog._said.text(), timeout=20_000)
    assert [chat.title for chat in history.listed()] == ["Mine"]
    assert history.search("another ans") == []
    checked(history)
    assert len(imported(qtbot, sidebar, *paths).job.report.ids) == 4  # what was undone can be imported again


def test_own_files_come_back_whole(qtbot, sidebar: Sidebar, history: HistoryStore, tmp_path: Path) -> None:
    record = chat_file.ChatRecord(
        version=1,
        id="c",
        title="Own",
        created=5.0,
        updated=6.0,
        messages=[],
        leaf="a",
        folder="Work",
        tags=["x"],
        pinned=True,
    )
    tools = ToolConfig(tools=[Tool(name="files__read")])
    stats = AnswerStats(model="m", tools="d1", servers=["files"], repeat=Repeat("b", True, "same"))
    messages = [
        StoredMessage(
            *("q", "c", "", "user", "half \ud83d"),
            created=7.0,
            pictures=(b"one", b"two"),
            documents=(
                MessageDocument(of_text("a.txt", "One. Two."), DocumentUse([DocumentPassage(1, 0, 4)], 2, 9)),
                MessageDocument(of_text("b.txt", "Three.")),
            ),
        ),
        StoredMessage(
            "a", "c", "q", "assistant", "Yes", "complete", stats, (TextSpan("accepted", 3, "eagle"),), 8.0, "Hm"
        ),
        StoredMessage("b", "c", "q", "assistant", "", parts=(ToolCall("k", "f", "{}"),), created=9.0),
        StoredMessage("t", "c", "b", "tool", "", parts=(ToolResult("k", "no", "f", [b"p"], True),), created=9.5),
    ]
    record.messages = [
        chat_file._message(message._replace(content=message.content.strip("\ud83d"))) for message in messages
    ]
    record.tools = {"d1": tools}
    (tmp_path / "own.json").write_bytes(chat_file.to_json(record))
    history.save_folder(Folder("w", "Work"))
    dialog = imported(qtbot, sidebar, tmp_path / "own.json")
    (chat_id,) = dialog.job.report.ids
    listed = history.listed()[0]
    assert (listed.folder, listed.tags, listed.pinned) == ("w", ("x",), True)
    back = chat_file.read(history, listed, "Work")
    names = {new.id: old.id for new, old in zip(back.messages, record.messages, strict=True)}
    for message in back.messages:
        message.id, message.parent = names[message.id], names.get(message.parent, "")
        if message.stats.repeat is not None:
            assert message.stats.repeat.of not in ("b", message.id)
            message.stats = stats
    back.id, back.leaf = "c", names[back.leaf]
    assert back == record
    assert history.tools(chat_id, "d1") == tools
    assert "1 already here" in imported(qtbot, sidebar, tmp_path / "own.json")._said.text()


def test_a_zip_of_all_chats_comes_back(qtbot, sidebar: Sidebar, history: HistoryStore, tmp_path: Path) -> None:
    other = HistoryStore(tmp_path / "other" / "history.db")
    other.save_folder(Folder("f", "Trips"))
    for number, title in enumerate(("conversations about pages", "Same", "Same")):
        other.save_chat(Chat(f"o{number}", title, 1.0, 2.0 + number))
        other.save_message(StoredMessage(f"m{number}", f"o{number}", "", "user", f"text {number}", created=3.0))
    other.set_folder("o1", "f")
    job = ExportJob(other, other.listed(), FORMATS["json"], ZipPlace(tmp_path / "all.zip"))
    with qtbot.waitSignal(job.ended, timeout=10_000):
        job.start()
    imported(qtbot, sidebar, tmp_path / "all.zip")
    (folder,) = history.folders()
    assert [(chat.title, chat.folder) for chat in history.listed()] == [
        ("Same", ""),
        ("Same", folder.id),
        ("conversations about pages", ""),
    ]
    assert [history.messages(chat.id)[0].content for chat in history.listed()] == ["text 2", "text 1", "text 0"]
    other.close()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "it is empty"),
        (b"\x00\xff\xfe nothing", "it has no chats that Kvasir knows"),
        (b"[1, 2]", "it has no chats that Kvasir knows"),
        (json.dumps([openai()]).encode()[:-40], "it ends in the middle, or is damaged"),
        (b'[{"a":' + b"[" * 200_000, "nested too deeply"),
        (b"PK\x03\x04 no zip at all", "it has no chats that Kvasir knows"),
        (b"PK\x05\x06" + bytes(18), "no file of chats is in it"),
    ],
)
def test_broken_files_are_said_in_one_sentence(
    qtbot, sidebar: Sidebar, history: HistoryStore, tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / "broken.json").write_bytes(content)
    good = written(tmp_path / "good.json", open_webui())
    said = imported(qtbot, sidebar, tmp_path / "broken.json", good)._said.text()
    assert "“broken.json” could not be read to its end: " in said
    assert sentence in said
    assert said.startswith("1 chat with 3 messages imported.")
    checked(history)


def test_a_zip_that_is_damaged_inside_keeps_what_came_before(
    qtbot, sidebar: Sidebar, history: HistoryStore, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(files, "CHUNK", 1 << 12)
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("conversations.json", json.dumps([openai(str(number)) for number in range(150)]))
    raw = bytearray(path.read_bytes())
    raw[len(raw) * 3 // 4 : len(raw) * 3 // 4 + 30] = b"x" * 30
    path.write_bytes(raw)
    said = imported(qtbot, sidebar, path)._said.text()
    assert "could not be read to its end" in said
    assert 0 < len(history.listed()) < 150
    checked(history)
    gone = imported(qtbot, sidebar, tmp_path / "gone.json")._said.text()
    assert "“gone.json” could not be read (No such file or directory)." in gone


def test_a_cancelled_import_leaves_whole_chats(qtbot, history: HistoryStore, tmp_path: Path) -> None:
    long = open_webui()
    nodes = long["chat"]["history"]["messages"]
    for number in range(4, 600):
        nodes[str(number)] = {"id": str(number), "parentId": str(number - 1), "role": "user", "content": f"m{number}"}
    path = written(tmp_path / "web.json", [openai(), long])
    job = ImportJob(history, [path])
    with qtbot.waitSignal(job.ended, timeout=20_000) as ended:
        job.progressed.connect(lambda _, chats: job.cancel())
        job.start()
        qtbot.waitUntil(lambda: not job.running, timeout=20_000)
    report = ended.args[0]
    whole = {chat.id: len(history.messages(chat.id)) for chat in history.listed()}
    assert set(whole) == set(report.ids)
    assert set(whole.values()) <= {4, 599}
    checked(history)


def test_what_the_window_writes_meanwhile_is_kept(qtbot, history: HistoryStore, tmp_path: Path) -> None:
    path = written(tmp_path / "conversations.json", [openai(str(number)) for number in range(150)])
    job = ImportJob(history, [path])
    with qtbot.waitSignal(job.ended, timeout=60_000):
        job.start()
        for number in range(20):
            history.save_chat(Chat(f"w{number}", "Window", WHEN, WHEN))
            assert history.flush()
    assert len(history.listed()) == 170
    job.close_down()
    checked(history)


def test_closing_the_program_ends_an_import(qtbot, sidebar: Sidebar, history: HistoryStore, tmp_path: Path) -> None:
    path = written(tmp_path / "conversations.json", [openai(str(number)) for number in range(300)])
    sidebar.import_files([path])
    job = sidebar.findChild(ImportDialog).job
    sidebar.close_down()
    assert not job.running
    assert len(job.report.ids) == len(history.listed()) < 300
    checked(history)
