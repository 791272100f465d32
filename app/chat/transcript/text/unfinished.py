"""Markdown that is still being written, shown as it will be: what may become a mark waits for what follows."""

from __future__ import annotations

import re

from app.texts.markdown_rules import end_of_maths

_MARKS = re.compile(r"[ \t>]*+(?:\d{1,9}[.)]?[ \t]*|[-+*][ \t]++\[[ xX]?\]?[ \t]*|[-+*_=#>`~|:$\\ \t]*)")
"""A line that may become a list, a heading, a fence, a rule, the underline of a heading or of a table's head."""
_BLOCK = re.compile(r"\n[ \t]*\n|\n(?=[ \t]*(?:[-+*]|\d{1,9}[.)]|#{1,6}|>)[ \t])")
"""Where another block begins, beyond which no emphasis goes on."""
_RUN = re.compile(r"\\.|`+|\*{1,3}|_{1,2}|~~|\$|\\", re.DOTALL)
_HALF_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*$")
_LONGEST = 10_000
"""Characters of a block in which ends that are missing are looked for."""
_MATHS = ("\\(", "\\[", "$")


def steady(text: str) -> str:
    """The text without its last line, if that may become a mark, and without the head of what may become a table.

    Of a longer text that begins with this one at least as much is steady.
    """
    last = text.rfind("\n") + 1
    before = text.rfind("\n", 0, max(0, last - 1)) + 1
    row, head = text[last:].lstrip().startswith("|"), last > 0 and text[before:last].lstrip().startswith("|")
    if row and not head:
        return text[:last]
    if not _MARKS.fullmatch(text, last):
        return text
    if not head:
        return text[:last]
    earlier = text.rfind("\n", 0, max(0, before - 1)) + 1
    is_second = before > 0 and text[earlier:before].lstrip().startswith("|")
    return text[:last] if is_second else text[:before]


def completed(source: str) -> str:
    """The source with the ends of emphasis and of code in its last block that are not written yet."""
    starts = [found.end() for found in _BLOCK.finditer(source)]
    start = starts[-1] if starts else 0
    if len(source) - start > _LONGEST:
        return source
    source = source[:start] + _HALF_LINK.sub(r"\1", source[start:])
    at, opened = start, list[str]()
    while found := _RUN.search(source, at):
        run, at = found[0], found.end()
        if run[0] == "`":
            closing = re.compile(rf"(?<!`){run}(?!`)").search(source, at)
            if closing is None:
                return _with_code(source, found) + "".join(reversed(opened))
            at = closing.end()
        elif run.startswith(_MATHS):
            end = end_of_maths(source, found.start(), len(source))
            if end < 0 and run != "$":
                break
            at = max(at, end)
        elif run[0] != "\\" and not _took(source, found, opened) and at == len(source):
            source = source[: found.start()]  # half of an end, or what follows has not come
    return source.rstrip() + "".join(reversed(opened)) if opened else source


def _with_code(source: str, found: re.Match[str]) -> str:
    """The source with the end of the code that ``found`` begins; without it while it is empty."""
    if not source[found.end() :].strip("` "):
        return source[: found.start()].rstrip()
    return source + "`" * (len(found[0]) - (len(source) - len(source.rstrip("`"))))


def _took(source: str, found: re.Match[str], opened: list[str]) -> bool:
    """Note what a run of emphasis opens or closes; False if it does neither."""
    run, before, behind = found[0], source[found.start() - 1 : found.start()], source[found.end() : found.end() + 1]
    if opened and opened[-1] == run and before and not before.isspace():
        opened.pop()
        return True
    if before.isalnum() or not behind or behind.isspace():
        return False
    opened.append(run)
    return True
