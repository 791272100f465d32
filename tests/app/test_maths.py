"""Maths in answers: drawn once and kept, at the size and in the colour of the text, copied as LaTeX, never a freeze."""

from __future__ import annotations

import subprocess
import sys

import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QGuiApplication, QHelpEvent, QTextCursor
from PySide6.QtWidgets import QApplication, QWidget

from app.chat.transcript.text.blocks import TextBlock
from app.chat.transcript.text.formula_object import sources
from app.chat.transcript.transcript import Transcript
from app.history.records import StoredMessage
from app.texts import formulas
from app.texts.formulas import DEEPEST, LONGEST, Drawing, FormulaRefusal, draw
from app.texts.markdown import OBJECT, MarkdownBlock, align, to_html
from app.theme.sheet import apply
from app.theme.theme import Theme


@pytest.fixture
def block(qtbot, theme: Theme):
    place = QWidget()
    qtbot.addWidget(place)
    place.resize(600, 400)

    def make(source: str, growing: bool = False, width: int = 600) -> TextBlock:
        made = TextBlock(theme, place)
        made.show_block(MarkdownBlock("text", 0, len(source), source, 0), growing)
        qtbot.waitUntil(lambda: not made._waiting)
        made.resize(width, made.fit(width))
        place.show()
        return made

    return make


@pytest.mark.parametrize(
    "latex",
    [
        r"\mathrm{softmax}\left(\frac{QK^\top}{\sqrt{d_k}}\right)V",
        r"\begin{bmatrix} 1 & 0 \\ 0 & 1 \end{bmatrix} = \begin{dcases} 1 & x > 0 \\ 0 & \text{else} \end{dcases}",
        r"\begin{eqnarray} a &=& b < c \end{eqnarray}",
        r"\operatorname*{arg\,max}_\theta \sum_{i \not= j} \mathbb{E}[x_i] \tag{3} \label{eq}",
        "α ≤ β",
    ],
)
def test_what_models_write_is_drawn(latex: str) -> None:
    drawing = draw(f"$${latex}$$")
    assert isinstance(drawing, Drawing)
    assert drawing.width > 2
    assert drawing.ascent > 0.5


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (r"$\foo{x}$", r"the command \foo is not known"),
        (r"$$\frac{a}{$$", "something is missing at its end"),
        (r"\(\left( x\)", r"\left and \right are not in pairs"),
        (r"\[\begin{tabular} a \end{tabular}\]", "the environment tabular is not known"),
        (r"$\def\a{\b\b}\a$", "it defines commands"),
        ("$中$", "the font for maths has no 中"),
        ("$$ $$", "it is empty"),
        ("$" + "x" * (LONGEST + 1) + "$", f"it has more than {LONGEST:,} characters"),
        ("$" + r"\sqrt{" * 40 + "x" + "}" * 40 + "$", "it is nested too deeply"),
        ("$$" + "xy+" * 390 + "$$", "it is too wide for one line"),
        (r"$a & b$", "it is not LaTeX that Kvasir can draw"),
    ],
)
def test_what_cannot_be_drawn_says_why(source: str, reason: str) -> None:
    assert draw(source) == FormulaRefusal(f"This formula is shown as its source: {reason}.")


def test_nesting_costs_no_more_than_its_depth_squared(monkeypatch) -> None:
    laid_out = 0
    rows = formulas._library().nodes.Mnode

    class Counted(rows, tag="counted"):
        pass

    before = rows.__init__

    def count(self, *args, **kwargs) -> None:
        nonlocal laid_out
        laid_out += 1
        before(self, *args, **kwargs)

    monkeypatch.setattr(rows, "__init__", count)
    depth = DEEPEST - 1
    assert isinstance(draw("$" + r"\frac{1}{" * depth + "x" + "}" * depth + "$"), Drawing)
    assert laid_out < 20 * depth**2  # the library alone: 4 ** depth


@pytest.mark.parametrize(
    "latex",
    [
        r"\left[\frac{a}{\left(b^2\right)}\right]_{x=0}^{\left|y\right|} = \{ x \mid \sqrt{\frac{1}{2}} \}",
        r"f(\frac{1}{2}) \to \overbrace{a + \vec{AB}}^{n} \Big( \big| x \big| \Big) \left. \int_0^1 \right\rvert",
        r"\begin{pmatrix} (\frac{1}{2}) & \lfloor x \rfloor \\ \langle y \rangle & \binom{n}{k} \end{pmatrix}",
    ],
)
def test_rows_that_remember_their_heights_draw_the_same(monkeypatch, latex: str) -> None:
    library = formulas._library()
    remembered = draw(f"$${latex}$$")
    monkeypatch.setitem(library.nodes.mnode._node_classes, "mrow", library.nodes.mrow.Mrow)
    assert formulas._draw(latex, True) == remembered


def test_the_library_comes_with_the_first_formula() -> None:
    code = (
        "import sys; from app.texts.formulas import draw; import app.chat.transcript.transcript;"
        "assert 'ziamath' not in sys.modules; draw('$x$'); assert 'ziamath' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_prices_and_variables_of_a_shell_are_no_maths() -> None:
    def mark(source: str, _: bool) -> str:
        return f"<{source}>"

    for words in ("$5 and $6", "US$5 to US$6", "$HOME/bin:$PATH", "from $5 million to 6$, or $7/$8", r"\$5 and 6\$"):
        assert "<$" not in to_html(words, mark)
    assert to_html("$x$, ($y$) and $5x$.", mark) == "<p><$x$>, (<$y$>) and <$5x$>.</p>\n"
    assert "<$" not in to_html("from $7/$", mark, growing=True)  # an 8 may follow


def test_formulas_stand_on_the_baseline_in_the_texts_colour(block, theme: Theme) -> None:
    made = block("mmm $m$ mmm\n\n$$m$$")
    image = made.grab().toImage()
    ratio, ground = image.devicePixelRatio(), image.pixelColor(image.width() - 1, 0)

    def lowest(left: float, right: float) -> int:
        return max(
            y
            for y in range(round(20 * ratio))
            for x in range(round(left * ratio), round(right * ratio))
            if image.pixelColor(x, y) != ground
        )

    cursor = QTextCursor(made.document())
    cursor.setPosition(4)
    start = made.cursorRect(cursor).left()
    cursor.setPosition(5)
    end = made.cursorRect(cursor).left()
    assert end - start > 8
    assert abs(lowest(0, start - 6) - lowest(start, end)) <= ratio
    below = range(round(30 * ratio), image.height())
    inks = {image.pixelColor(x, y).name() for x in range(image.width()) for y in below}
    assert theme.color("text").name() in inks


def test_a_formula_alone_in_a_line_has_the_baseline_of_text(block) -> None:
    made = block("- $x$\n- x\n- $x$")
    layout, at = made.document().documentLayout(), made.document().begin()
    ascents = []
    while at.isValid():
        line = at.layout().lineAt(0)
        ascents.append((layout.blockBoundingRect(at).height(), line.ascent(), line.descent()))
        at = at.next()
    assert len(set(ascents)) == 1


def test_formulas_follow_theme_and_text_size(block, theme: Theme, qapp) -> None:
    made = block("$$E = mc^2$$")
    high = made.fit(600)
    theme.set_scale(1.5)
    apply(theme, qapp)
    made.restyle()
    assert made.fit(600) > 1.3 * high


def test_a_wide_formula_is_made_smaller_and_not_cut(block) -> None:
    made = block("$$" + "+".join(f"a_{{{i}}}" for i in range(60)) + "$$", width=500)
    assert made.document().idealWidth() <= 500
    assert made.horizontalScrollBar().maximum() == 0


def test_selected_formulas_are_copied_as_latex(block) -> None:
    source = "so 🙂 $x^2$, \\(y<z\\)\n\n\\[\n\\frac{a}{b}\n\\]\n\nends"
    made = block(source)
    assert sources(made.document()) == ["$x^2$", "\\(y<z\\)", "\\[\n\\frac{a}{b}\n\\]"]
    made.selectAll()
    made.copy()
    copied = QGuiApplication.clipboard().mimeData()
    assert copied.text().rstrip() == "so 🙂 $x^2$, \\(y<z\\)\n\\[\n\\frac{a}{b}\n\\]\nends"
    assert "<img" not in copied.html()
    assert "\\(y&lt;z\\)" in copied.html()
    alone = block("$x$")
    alone.selectAll()
    alone.copy()
    copied = QGuiApplication.clipboard().mimeData()
    assert copied.text().rstrip() == "$x$"
    assert "\u200b" not in copied.html()


def test_a_refused_formula_is_code_with_its_reason_as_a_tooltip(block) -> None:
    made = block(r"see $\foo{x}$ here")
    assert made.toPlainText().rstrip() == r"see $\foo{x}$ here"
    cursor = QTextCursor(made.document())
    cursor.setPosition(8)
    look = cursor.charFormat()
    assert look.toolTip() == r"This formula is shown as its source: the command \foo is not known."
    assert look.background().style() != Qt.BrushStyle.NoBrush


def test_words_behind_a_formula_keep_their_place_in_the_source() -> None:
    source, shown = r"so $\frac{wide}{words}$ words end", f"so {OBJECT} words end"
    formula = r"$\frac{wide}{words}$"
    where = align(shown, source, formulas=[formula])
    assert where[3] == source.index("$")
    assert where[5:] == list(range(source.index(" words end") + 1, len(source)))
    for known in range(len(shown)):
        assert align(shown, source, where[:known], [formula]) == where


def test_formulas_that_have_to_wait_are_drawn_later_and_give_the_message_its_height(qtbot, theme: Theme, monkeypatch):
    monkeypatch.setattr(formulas._pace, "allows", lambda _: False)
    formulas._known.clear()
    view = Transcript(theme)
    qtbot.addWidget(view, before_close_func=lambda view: view.stop())
    view.resize(700, 500)
    view.show()
    answer = StoredMessage("a", "c", "", "assistant", "\n\n".join(f"$$\\frac{{{i}}}{{x}}$$" for i in range(3)))
    view.show_path([answer], lambda _: (0, 1))
    shown = view.views[0].blocks[0]
    assert "frac" in shown.toPlainText()
    monkeypatch.undo()
    qtbot.waitUntil(lambda: shown.toPlainText().rstrip() == "\n".join([OBJECT] * 3))
    assert shown.height() == shown.fit(shown.width())


@pytest.mark.parametrize(
    "text",
    [
        "\\[" + "x" * 100_000,
        "\\( " * 30_000,
        "$$" + "{" * 20_000 + "$$",
        "${" + "$a$ " * 2_000,
        "\\begin{align}" * 5_000,
    ],
    ids=["never closes", "opened again and again", "nested", "many", "environments"],
)
def test_hostile_formulas_leave_the_text_as_it_is(text: str) -> None:
    drawn = []

    def count(source: str, _: bool) -> str:
        drawn.append(source)
        return "F"

    html = to_html(text, count)
    assert len(drawn) in (0, 1, 2_000)
    assert all(isinstance(draw(source), FormulaRefusal) for source in set(drawn) - {"$a$"})
    assert html.count("F") == len(drawn)


def test_tooltips_of_formulas_do_not_reach_other_words(block) -> None:
    made = block(r"$\foo$ then")
    cursor = QTextCursor(made.document())
    cursor.setPosition(10)
    assert cursor.charFormat().toolTip() == ""
    QApplication.processEvents()


def test_the_mouse_over_a_formula_shows_its_latex_as_written(qtbot, block, monkeypatch) -> None:
    made = block("$a<b>c</b>$ and $\\foo$")
    shown: list[str] = []
    monkeypatch.setattr("app.chat.transcript.text.blocks.QToolTip.showText", lambda _, words, __: shown.append(words))
    for place in (0, 6):
        cursor = QTextCursor(made.document())
        cursor.setPosition(place)
        at = made.cursorRect(cursor).center() + QPoint(4, 0)
        help_event = QHelpEvent(QEvent.Type.ToolTip, at, made.viewport().mapToGlobal(at))
        QApplication.sendEvent(made.viewport(), help_event)
    assert shown == [
        "<p style='white-space: pre'>$a&lt;b&gt;c&lt;/b&gt;$</p>",
        "This formula is shown as its source: the command \\foo is not known.",
    ]
