"""The map of a chat's branches: which versions it lists, and what a click shows."""

from __future__ import annotations

import pytest

from app.chat.session.branches import versions
from app.chat.transcript.branch_menu import BranchMenu
from app.history.records import AnswerStats, Chat, StoredMessage
from app.history.tree import MessageTree
from app.link.link import EngineLink
from tests.app.chatting import button, chat_page


def message(id: str, parent: str, text: str, role: str = "user") -> StoredMessage:
    return StoredMessage(id, "c", parent, role, text, stats=AnswerStats(edited=id == "a2"), created=1.0)


MESSAGES = (
    message("q1", "", "What is a page?"),
    message("a1", "q1", "Sixteen **tokens**.\nAnd more", "assistant"),
    message("a2", "q1", "", "assistant"),
    message("q2", "a1", "And then?"),
    message("q3", "a1", "And else?"),
    message("a3", "q3", "Nothing", "assistant"),
)


def test_versions_are_listed_below_the_branch_that_they_lie_in() -> None:
    tree = MessageTree(MESSAGES, "a3")
    assert [(each.words, each.depth, each.shown) for each in versions(tree)] == [
        ("Answer: Sixteen **tokens**.", 0, True),
        ("You: And then?", 1, False),
        ("You: And else?", 1, True),
        ("Answer (edited): no text", 0, False),
    ]
    assert versions(MessageTree(MESSAGES[:2])) == []


def test_a_deep_chat_is_listed() -> None:
    line = [message(f"m{n}", f"m{n - 1}" if n else "", "x") for n in range(3000)]
    assert [each.message.id for each in versions(MessageTree([*line, message("z", "m2998", "y")]))] == ["m2999", "z"]


@pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
def test_a_click_shows_that_branch(qtbot, history, theme) -> None:
    history.save_chat(Chat("c", "Branches", 1.0, 1.0, leaf="a3"))
    for each in MESSAGES:
        history.save_message(each)
    page = chat_page(EngineLink([]), history, theme)
    qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
    page.resize(900, 700)
    page.show()
    page.open_chat("c")
    position = button(page.transcript.view("q3"), "branches")
    assert (position.text(), position.accessibleName()) == ("2 / 2", "Version 2 of 2: all versions in this chat")
    position.click()
    menu = page.findChild(BranchMenu)
    assert [(action.text().strip(), action.isChecked()) for action in menu.actions()] == [
        ("Answer: Sixteen **tokens**.", True),
        ("You: And then?", False),
        ("You: And else?", True),
        ("Answer (edited): no text", False),
    ]
    assert menu.actions()[1].text().startswith("\u2003")
    menu.actions()[1].trigger()
    assert [each.id for each in page.session.talk.path] == ["q1", "a1", "q2"]
    menu.actions()[3].trigger()
    assert [each.id for each in page.session.talk.path] == ["q1", "a2"]
    menu.close()
