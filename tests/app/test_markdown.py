"""Markdown blocks: whole and growing text agree, code keeps its place, spans find their characters."""

from __future__ import annotations

import html
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.transcript.text.blocks import QUOTE_PX, TextBlock
from app.chat.transcript.text.highlight import lex, utf16_length
from app.chat.transcript.text.tint import TintRun, in_utf16, tinted_runs
from app.history.records import TextSpan
from app.texts.markdown import Alignment, GrowingText, align, merged, parse, to_html
from app.texts.markdown_rules import IMAGE
from tests.kit.examples import examples
from tests.kit.fake_engine import CODE, long_answer

ODD = ("\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r", "\r\n", "\r\n\r\n", "\x00", "\ufdd0")
"""What str.splitlines takes for the end of a line, and other letters that are taken for something else somewhere."""
PIECES = st.sampled_from(
    [*ODD, "word ", "**bold** ", "\\(x\\) ", "\\[\n", "\\]\n", "$$\n", "$a$ ",
     "[1]: http://x\n", "``` ", "| 1 | 2 | 3 | 4 |\n", "\n", "\n\n",
     "```python\n", "x = 1\n", "```\n", "- item\n", "1. one\n", "# head\n", "> q\n",
     "| a | b |\n", "| - | - |\n", "    indented\n", "---\n", "ünï🙂 ", "`c` ", "\t"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40))
@examples(150)
def test_every_character_is_in_one_block_and_every_word_is_shown(pieces: list[str]) -> None:
    growing, text = GrowingText(), ""
    for number, piece in enumerate(pieces):
        text += f"{piece}w{number}q"
        growing.update(text)
    for blocks in (growing.blocks, parse(text), merged(parse(text), text)):
        assert "".join(text[block.start : block.end] for block in blocks) == text
        assert all(one.end == other.start for one, other in pairwise(blocks))
        shown = "".join(to_html(one.body) if one.kind != "code" else f"{one.info}\n{one.body}" for one in blocks)
        assert [number for number in range(len(pieces)) if shown.count(f"w{number}q") != 1] == []
        for block in blocks:
            assert block.start == 0 or text[block.start - 1] in "\r\n"
            if block.kind == "code":
                assert [(one.kind, one.body) for one in parse(text[block.start : block.end])] == [("code", block.body)]
            if block.kind == "code" and block.body_start >= 0:
                assert (
                    text[block.body_start :]
                    .replace("\r\n", "\n")
                    .replace("\r", "\n")
                    .startswith(block.body.replace("\ufffd", "\x00"))
                )


def test_growing_text_ends_like_the_whole() -> None:
    text, growing = CODE + "\n" + long_answer(300), GrowingText()
    for end in range(0, len(text), 7):
        growing.update(text[:end])
    growing.update(text)
    assert growing.blocks == parse(text)


def test_only_blocks_from_the_last_on_change() -> None:
    growing = GrowingText()
    assert growing.update("one\n\ntwo") == 0
    assert growing.update("one\n\ntwo more") == 1
    assert growing.update("one\n\ntwo more\n\n```py\nx") == 1
    assert [block.kind for block in growing.blocks] == ["text", "text", "code"]
    assert growing.blocks[2].language == "py"


def test_neighbouring_text_is_merged_for_display() -> None:
    text = "a\n\nb\n\n```\nc\n```\n\nd"
    blocks = merged(parse(text), text)
    assert [(block.kind, block.body) for block in blocks] == [("text", "a\n\nb"), ("code", "c"), ("text", "d")]


def test_raw_html_and_images_are_shown_as_text() -> None:
    assert "<script>" not in to_html("<script>alert(1)</script>")
    assert "<img" not in to_html("![x](file:///etc/passwd)")
    assert to_html("![a *fat* cat](http://x/cat.png) there") == f"<p><i>{IMAGE} a fat cat</i> there</p>\n"
    assert "&lt;b&gt;" in to_html("![<b>](http://x/y.png)")
    assert "href" not in to_html("[x](javascript:alert)")


@pytest.mark.parametrize(
    ("shown", "source", "word"),
    [
        ("a bold word", "a **bold** word", "bold"),
        ("one\ntwo", "- one\n- two", "two"),
        ("see this now", "see [this](http://x) now", "now"),
    ],
)  # fmt: skip
def test_align_finds_shown_words_in_the_source(shown: str, source: str, word: str) -> None:
    where = align(shown, source)
    assert [where[shown.index(word) + i] for i in range(len(word))] == [
        source.index(word) + i for i in range(len(word))
    ]


def test_runs_of_one_tint() -> None:
    spans = [TextSpan("", 2), TextSpan("accepted", 3, "ngram"), TextSpan("corrected", 1), TextSpan("", 4)]
    assert tinted_runs(range(10), 0, spans) == [(2, 5, "good", "ngram"), (5, 6, "warn", "")]
    assert tinted_runs([0, 1, -1, 2], 3, spans) == [(0, 2, "good", "ngram"), (3, 4, "warn", "")]


def test_runs_of_one_tint_and_two_drafters_are_two() -> None:
    spans = [TextSpan("accepted", 2, "ngram"), TextSpan("accepted", 3, "medusa"), TextSpan("accepted", 1)]
    assert tinted_runs(range(6), 0, spans) == [(0, 2, "good", "ngram"), (2, 5, "good", "medusa"), (5, 6, "good", "")]
    assert tinted_runs(range(4), 0, [TextSpan("", 4)]) == []


def test_lexing_counts_in_utf16() -> None:
    assert utf16_length("a🙂") == 3
    runs = list(lex('x = "🙂"  # c\ny = 2', "python"))
    assert [(run.start, run.length) for run in runs[0] if run.token == "mute"] == [(10, 3)]
    assert any(run.token == "warn" for run in runs[1])
    assert list(lex("anything", "no-such-language")) == []


def test_runs_count_as_qt_does() -> None:
    assert in_utf16([TintRun(1, 3, "good")], "a🙂b") == [TintRun(1, 4, "good")]


def test_alignment_of_a_growing_text_equals_that_of_the_whole() -> None:
    source = " ".join(f"word **bold{i}** `code`" for i in range(80))
    shown = source.replace("*", "").replace("`", "")
    aligned = Alignment("", "", [])
    for end in range(0, len(source), 37):
        part = source[:end]
        seen = part.replace("*", "").replace("`", "")
        aligned = Alignment(seen, part, align(seen, part, aligned.prefix(seen, part)))
    assert align(shown, source, aligned.prefix(shown, source)) == align(shown, source)


def test_task_lists_have_boxes() -> None:
    html = to_html("- [ ] one\n- [x] two\n- [y] three\n\n[x] no item")
    assert "<li>☐ one</li>\n<li>☑ two</li>\n<li>[y] three</li>" in html
    assert "<p>[x] no item</p>" in html
    assert "<ul>" in html


def test_a_box_takes_the_place_of_the_bullet_where_all_items_have_one() -> None:
    html = to_html("* [ ] one\n  - [x] inner\n  - plain\n* [x] two\n\n1. [x] counted")
    none = '<ul style="list-style-type: none">'
    assert html.startswith(f"{none}\n<li>☐ one\n<ul>\n<li>☑ inner")
    assert html.count(none) == 1
    assert "<ol>\n<li>☑ counted" in html


def test_footnotes_are_raised_and_stay_whole() -> None:
    html = to_html("Words[^1] and [^note].\n\n[^1]: The first.\n[^note]: word\n")
    assert "Words<sup>1</sup> and <sup>note</sup>." in html
    assert "<p><sup>1</sup> The first.</p>\n<p><sup>note</sup> word</p>" in html
    assert "".join(block.body for block in parse("[^a]: b\n\nc")) == "[^a]: bc"


def shown(source: str) -> str:
    """What stands on the screen, with its line ends."""
    return html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"<br />\n?", "\n", to_html(source)))).strip()


@pytest.mark.parametrize(
    "source",
    [
        r"so \(a_1 * b_2 * c\) and \[ \frac{a}{b}\,c \] hold",
        "where\n\\[\na\n- b\n+ c\n= d\n\\]\nends",
        "$$\nx = \\begin{matrix} a & b \\\\ c \\end{matrix}\n$$",
        "\\begin{align*}\na &= b \\\\\n- c &= d\n\\end{align*}",
        "inline $a*b*c$, prices of $5 to $10 and $5/$6",
        r'var s = @"\(user\)", x\,y',
        "[1]: http://example.org/a_b_c 'A title'",
    ],
)
def test_maths_and_definitions_are_shown_as_written(source: str) -> None:
    assert shown(source) == source


def test_maths_that_is_being_written_stays_one_block() -> None:
    growing, text = GrowingText(), "Then\n\n\\[\na\n- b\n\\]\n\nand *so* on: \\*no\\*"
    for end in range(len(text) + 1):
        growing.update(text[:end])
    assert growing.blocks == parse(text)
    assert [block.body for block in growing.blocks][1] == "\\[\na\n- b\n\\]"
    assert shown(growing.blocks[2].body) == "and so on: *no*"


def test_a_row_longer_than_its_table_keeps_its_end() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 | 3 | 4 |\n| 5 |\n"
    assert "<td>2 | 3 | 4</td>" in to_html(table)
    assert "<td>2 | 3 | 4</td>" in to_html("".join(f"> {line}\n" for line in table.splitlines()))


@pytest.fixture
def block(qtbot, theme):
    from PySide6.QtWidgets import QWidget

    place = QWidget()
    qtbot.addWidget(place)
    place.resize(600, 400)

    def make(source: str) -> TextBlock:
        made = TextBlock(theme, place)
        made.show_block(parse(source)[0]._replace(body=source), False)
        made.resize(600, made.fit(600))
        place.show()
        return made

    return make


def test_headings_are_of_the_looks_sizes_and_near_to_what_follows(block) -> None:
    made = block("before\n\n# One `x`\n\nafter\n\n## Two\n\n#### Four")
    found, at = {}, made.document().begin()
    while at.isValid():
        if level := at.blockFormat().headingLevel():
            sizes = {part.fragment().charFormat().font().pixelSize() for part in at.begin()}
            found[level] = sizes
            assert at.blockFormat().topMargin() > at.blockFormat().bottomMargin()
        at = at.next()
    assert found == {1: {18}, 2: {16}, 4: {14}}


def test_quotes_have_a_bar_and_rules_are_hairlines_in_the_themes_colour(block, theme) -> None:
    line = theme.color("line").name()

    def column(made: TextBlock, x: int) -> set[str]:
        image = made.grab().toImage()
        return {image.pixelColor(x, y).name() for y in range(image.height())}

    quote = block("> one\n>\n> > two")
    assert line in column(quote, 1)
    assert line in column(quote, QUOTE_PX + 1)
    assert line not in column(block("one two"), 1)
    rule = block("one\n\n---\n\ntwo")
    assert line in column(rule, 300)
