"""A chat as one HTML file that needs nothing else and loads nothing, and as the simpler HTML that becomes a PDF."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from html import escape

from app.history.export import document_line, part_title, picture_kind, speaker
from app.history.records import Chat, StoredMessage, thought_for
from app.history.sent import without_repeats
from app.language import tr
from app.texts.markdown import to_html as markdown_to_html
from app.theme.theme import DARK, LIGHT, Tokens
from engine.protocol import ToolCall, ToolResult

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Even a browser that were told to load something would not."""
_SCREEN = """
body { margin: 0; background: var(--bg); color: var(--text);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 800px; margin: 0 auto; padding: 32px 16px 64px; }
h1 { font-size: 22px; margin: 0; }
h2 { font-size: 12px; font-weight: 600; color: var(--mute); margin: 28px 0 6px; }
.meta { color: var(--mute); font-size: 13px; margin: 4px 0 24px; }
.user { background: var(--raised); border-radius: 10px; padding: 10px 14px; }
.user > :first-child, .answer > :first-child { margin-top: 0; }
.user > :last-child, .answer > :last-child { margin-bottom: 0; }
pre { background: var(--raised); border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px;
  overflow-x: auto; }
pre, code { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
table { border-collapse: collapse; }
th, td { border: 1px solid var(--line); padding: 4px 10px; }
blockquote { margin: 8px 0; padding-left: 12px; border-left: 3px solid var(--line); color: var(--mute); }
details { margin: 8px 0; color: var(--mute); }
summary { cursor: pointer; }
img { max-width: 100%; border-radius: 8px; }
a { color: var(--accent); }
.note { color: var(--mute); font-style: italic; }
"""
_PAPER = """
h1 { font-size: 17pt; }
.who { font-size: 9pt; font-weight: bold; }
pre { font-family: monospace; font-size: 8.5pt; white-space: pre-wrap; }
code { font-family: monospace; font-size: 9pt; }
"""
_PAPER_TABLE = '<table border="1" cellspacing="0" cellpadding="4" style="border-collapse: collapse">'
_PAPER_WIDTH = 480
"""Pixels that a picture takes on paper at most."""


def to_html(chat: Chat, path: Sequence[StoredMessage]) -> str:
    """``path`` is the branch to export, first message first."""
    colours = (
        f":root {{ {_variables(LIGHT)} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}"
    )
    body = "".join(
        [_head_of_chat(chat, paper=False), *(_message(message, paper=False) for message in without_repeats(path))]
    )
    return (
        '<!doctype html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(chat.title)}</title>\n<style>\n{colours}{_SCREEN}</style>\n</head>\n<body>\n<main>\n"
        f"{body}</main>\n</body>\n</html>\n"
    )


def paper_style() -> str:
    """The style sheet of :func:`paper_parts`."""
    return f"{_PAPER}.who, .mute {{ color: {LIGHT.mute}; }} pre {{ background-color: {LIGHT.raised}; }}"


def paper_parts(chat: Chat, path: Sequence[StoredMessage]) -> Iterator[str]:
    """The same in the part of HTML that Qt lays out on pages, a message at a time; nothing is folded there."""
    yield _head_of_chat(chat, paper=True)
    for message in without_repeats(path):
        yield _message(message, paper=True).replace("<table>", _PAPER_TABLE)


def _head_of_chat(chat: Chat, paper: bool) -> str:
    day = time.strftime("%Y-%m-%d", time.localtime(chat.created))
    head = f'<h1>{escape(chat.title)}</h1>\n<p class="meta mute">{day}</p>\n'
    if chat.system_prompt:
        head += f'{_head(tr("System prompt"), paper)}<div class="user">{markdown_to_html(chat.system_prompt)}</div>\n'
    return head


def _head(words: str, paper: bool) -> str:
    """Qt adds to the size of headings, whatever is said of it."""
    return f'<p class="who">{escape(words)}</p>\n' if paper else f"<h2>{escape(words)}</h2>\n"


def _message(message: StoredMessage, paper: bool) -> str:
    inside = [_folded(thought_for(message.stats.thought_s), markdown_to_html(message.thinking), paper)]
    if not message.thinking:
        inside = []
    inside += [_picture(data, paper) for data in message.pictures]
    inside += [
        f'<p class="note mute">{escape(document_line(each.document, each.use))}</p>\n' for each in message.documents
    ]
    if message.content:
        inside.append(_words(message.content, message.role == "user"))
    inside += [_part(part, paper) for part in message.parts]
    if message.state == "interrupted":
        inside.append(f'<p class="note mute">{escape(tr("interrupted"))}</p>\n')
    head = "" if message.role == "tool" else _head(speaker(message), paper)
    kind = "user" if message.role == "user" else "answer"
    return f'{head}<div class="{kind}">\n{"".join(inside)}</div>\n'


def _words(text: str, typed: bool) -> str:
    """What a person types keeps its lines, which Markdown would join."""
    return markdown_to_html(text.replace("\n", "  \n") if typed and "```" not in text else text)


def _part(part: ToolCall | ToolResult, paper: bool) -> str:
    """A call of a tool or a result, folded."""
    if isinstance(part, ToolCall):
        text, files = part.arguments, list[bytes]()
    else:
        text, files = part.content, part.pictures
    shown = "".join(_picture(data, paper) for data in files)
    return _folded(part_title(part), f"<pre>{escape(text)}</pre>{shown}", paper)


def _folded(head: str, inside: str, paper: bool) -> str:
    if paper:
        return f'<p class="mute"><i>{escape(head)}</i></p>\n<blockquote class="mute">{inside}</blockquote>\n'
    return f"<details>\n<summary>{escape(head)}</summary>\n{inside}</details>\n"


def _picture(data: bytes, paper: bool) -> str:
    """A picture in the file itself."""
    width = f' width="{_PAPER_WIDTH}"' if paper and _wide(data) else ""
    source = f"data:image/{picture_kind(data)};base64,{base64.b64encode(data).decode()}"
    return f'<p><img alt="{escape(tr("picture"))}" src="{source}"{width}></p>\n'


def _wide(data: bytes) -> bool:
    """True if a picture is wider than the paper has room for."""
    from PySide6.QtGui import QImage  # of pictures on paper only

    return QImage.fromData(data).width() > _PAPER_WIDTH


def _variables(tokens: Tokens) -> str:
    return " ".join(f"--{name}: {value};" for name, value in tokens._asdict().items())
