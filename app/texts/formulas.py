"""LaTeX to drawings, without Qt: what a formula looks like as SVG, or why it cannot be drawn. Both are kept.

Ziamath is imported with the first formula, beside the window's work: it takes 0.1 s, and most chats have none.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import zlib
from collections import OrderedDict
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from app.language import tr

if TYPE_CHECKING:
    from types import ModuleType

log = logging.getLogger(__name__)

EM = 16.0
"""Units of a drawing in one em."""
INK = "black"
"""Colour of a drawing; whoever shows it puts the theme's in its place."""
LONGEST = 1_200
"""Characters of a formula that is drawn: of the worst kind they take a third of a second."""
DEEPEST = 16
"""Braces, fences and environments inside each other."""
WIDEST = 200.0
"""Ems beyond which a formula would have to be made too small to be read."""
SLICE_S, EVERY_S = 0.012, 0.033
"""Time in which formulas are begun, and from one such time to the next."""
_KEPT = 1_000
_DEFINES = re.compile(r"\\(?:(?:re|provide)?newcommand|(?:re)?newenvironment|[egx]?def|let|DeclareMathOperator)\b")
_NESTS = re.compile(r"\\(?:[{}\\]|begin\b|end\b|left\b|right\b)|[{}]")
_INWARDS = {"{", r"\begin", r"\left"}
_OUTWARDS = {"}", r"\end", r"\right"}
_COMMAND = re.compile(r"\\[A-Za-z]+")
_TIDIED = (
    (re.compile(r"\\label\s*\{[^{}]*\}|\\(?:nonumber|notag)\b"), ""),
    (re.compile(r"\\tag\*?\s*\{([^{}]*)\}"), r"\\qquad\\text{(\1)}"),
    (re.compile(r"\\not\s*="), r"\\neq "),
    (re.compile(r"\\operatorname\*"), r"\\operatorname"),
    (re.compile(r"(\\begin\{align(?:ed)?at\*?\})\{\d+\}"), r"\1"),
    (re.compile(r"\\(?:math(?:op|rel|bin|ord|open|close|punct|inner)|middle)(?![A-Za-z])"), ""),
)
"""Commands that say nothing on a screen, or that the library has under another name or draws as nothing."""
_ALIASES = {
    **dict.fromkeys(("align", "alignat", "alignat*", "alignedat", "flalign", "eqnarray", "eqnarray*"), "align*"),
    "dcases": "cases",
}
"""Environments that are drawn as another one: without numbers at their lines, for example."""
ENVIRONMENTS = {
    *_ALIASES,
    *("align*", "aligned", "array", "cases", "equation", "equation*", "gather", "gather*", "gathered"),
    *("matrix", "bmatrix", "Bmatrix", "pmatrix", "vmatrix", "Vmatrix", "smallmatrix"),  # not shown
    *("multline", "multline*", "split", "substack"),
}
"""Environments that can be drawn."""
_ALIASED = re.compile(r"\\(begin|end)\s*\{([^{}]*)\}")
_ENVIRONMENT = re.compile(r"\\begin\s*\{([^{}]*)\}")
_DELIMITERS = {"\\(": False, "\\[": True, "$$": True, "$": False}
_WRONG = {
    "NoAvailableTokensError": tr("something is missing at its end"),
    "ExtraLeftOrMissingRightError": tr(r"\left and \right are not in pairs"),
    "MissingEndError": tr(r"\begin and \end are not in pairs"),
    "MissingSuperScriptOrSubscriptError": tr("something is missing after _ or ^"),
    "DoubleSubscriptsError": tr("it has two subscripts in one place"),
    "DoubleSuperscriptsError": tr("it has two superscripts in one place"),
    "NumeratorNotFoundError": tr("a fraction has no numerator"),
    "DenominatorNotFoundError": tr("a fraction has no denominator"),
}
"""Classes of the library's errors, which have no words."""


class Drawing(NamedTuple):
    """A formula that could be drawn. Its sizes are in ems; ``ascent`` and ``descent`` count from the baseline."""

    svg: bytes
    """Compressed by zlib, as thousands are kept."""
    width: float
    ascent: float
    descent: float


class FormulaRefusal(NamedTuple):
    """A formula that is shown as its source."""

    reason: str
    """One sentence."""


Result = Drawing | FormulaRefusal
_known: OrderedDict[str, Result] = OrderedDict()


def known(source: str) -> Result | None:
    """What became of this formula, with its delimiters, if it was drawn before."""
    if source in _known:
        _known.move_to_end(source)
    return _known.get(source)


def draw(source: str) -> Result:
    """Draw a formula with its delimiters, or say why not; takes milliseconds, once."""
    if (result := known(source)) is None:
        result = _known[source] = _draw(*bare(source))
        if len(_known) > _KEPT:
            _known.popitem(last=False)
    return result


def draw_soon(source: str) -> Result | None:
    """The same, but None while there is no time for it: the library is being loaded, or others were drawn just now."""
    if (result := known(source)) is not None:
        return result
    if not _load():
        return None
    return draw(source) if _pace.allows(time.monotonic()) else None


def bare(source: str) -> tuple[str, bool]:
    """LaTeX without its delimiters, and whether it is displayed on a line of its own."""
    for opening, displayed in _DELIMITERS.items():
        if source.startswith(opening):
            return source[len(opening) : -len(opening)].strip(), displayed
    return source, True


def _draw(latex: str, displayed: bool) -> Result:
    if (reason := _unfit(latex)) or not latex:
        return _refuse(reason or tr("it is empty"))
    for pattern, instead in _TIDIED:
        latex = pattern.sub(instead, latex)
    latex = _ALIASED.sub(lambda found: rf"\{found[1]}{{{_ALIASES.get(found[2], found[2])}}}", latex)
    for name in _ENVIRONMENT.findall(latex):
        if name not in ENVIRONMENTS:
            return _refuse(tr("the environment {name} is not known", name=name))
    try:
        library = _library()
    except (ImportError, OSError) as error:
        log.exception("maths cannot be drawn")
        return _refuse(tr("what draws maths could not be loaded ({error})", error=error))
    try:
        return _drawn(library, latex, displayed)
    except RecursionError:
        return _refuse(tr("it is nested too deeply"))
    except Exception as error:  # the library has no class of its own for what it cannot draw
        log.debug("a formula cannot be drawn", exc_info=True)
        return _refuse(_WRONG.get(type(error).__name__, tr("it is not LaTeX that Kvasir can draw")))


def _refuse(why: str) -> FormulaRefusal:
    return FormulaRefusal(tr("This formula is shown as its source: {why}.", why=why))


def _unfit(latex: str) -> str:
    """Why the library is not even asked, "" if it is."""
    if len(latex) > LONGEST:
        return tr("it has more than {n:,} characters", n=LONGEST)
    if _DEFINES.search(latex):
        return tr("it defines commands")
    depth = deepest = 0
    for found in _NESTS.findall(latex):
        depth += (found in _INWARDS) - (found in _OUTWARDS)
        deepest = max(deepest, depth)
    return tr("it is nested too deeply") if deepest > DEEPEST else ""


def _drawn(ziamath: Any, latex: str, displayed: bool) -> Result:
    tree = ElementTree.fromstring(ziamath.zmath.unescape(ziamath.tex.tex2mml(latex, inline=not displayed)))
    if reason := _unknown(tree, ziamath.zmath.loadedfonts["default"]):
        return _refuse(reason)
    _row_heights.clear()
    formula = ziamath.Math(tree, size=EM, margin=0.5)
    box = formula.node.bbox
    width = (box.xmax - box.xmin + 1) / EM
    if width > WIDEST:
        return _refuse(tr("it is too wide for one line"))
    return Drawing(zlib.compress(formula.svg().encode()), width, (box.ymax + 0.5) / EM, (0.5 - box.ymin) / EM)


def _unknown(tree: ElementTree.Element, font: Any) -> str:
    """What the library would draw as its name or as an empty box, "" for nothing."""
    for element in tree.iter():
        words = element.text or ""
        if command := _COMMAND.search(words):
            return tr("the command {name} is not known", name=command[0])
        for letter in words:
            if not letter.isspace() and not font.glyphindex(letter):
                return tr("the font for maths has no {letter}", letter=letter)
    return ""


_row_heights: dict[object, tuple[float, float]] = {}
"""Heights of rows of the formula that is being drawn."""


@cache
def _library() -> ModuleType:
    """Ziamath, with rows that remember their heights, and find them only for signs that are stretched to them.

    It lays out the children of a row twice, first to find their height, and so their children four times: without this
    a formula takes twice as long with each level of nesting, 45 s for fifteen fractions inside each other.
    """
    import ziamath
    from ziamath.nodes.mrow import Mrow
    from ziamath.operators import operators

    stretching = {name for (name, _), given in operators.items() if given.get("stretchy", "false") != "false"}

    def stretches(element: ElementTree.Element) -> bool:
        return element.get("stretchy", "false") != "false" or (element.text or "").strip() in stretching

    class FormulaRow(Mrow, tag="mrow"):
        def _get_height_nostretch(self, line: list[ElementTree.Element], **kwargs: Any) -> tuple[float, float]:
            if not any(stretches(part) for child in line for part in child.iter()):
                return 0.0, 0.0  # nothing here asks how high the row is
            given = {key: value for key, value in kwargs.items() if key not in ("rowymin", "rowymax", "nostretch")}
            xml = b"".join(ElementTree.tostring(child) for child in line)
            key = (xml, repr(self.style), self.size, repr(sorted(given.items())))
            if key not in _row_heights:
                _row_heights[key] = super()._get_height_nostretch(line, **kwargs)
            return _row_heights[key]

    ziamath.config.precision = 2
    ziamath.config.svg2 = False  # Qt's SVG has no use for href without xlink
    return ziamath


class _Pace:
    """Formulas are begun for so many seconds at a time, that the window has its turns."""

    def __init__(self) -> None:
        self._until = self._next = 0.0

    def allows(self, now: float) -> bool:
        """Whether one may be drawn at ``now`` (monotonic)."""
        if now >= self._next:
            self._until, self._next = now + SLICE_S, now + EVERY_S
        return now < self._until


_pace = _Pace()
_loader = threading.Thread(target=lambda: _library(), name="maths", daemon=True)


def _load() -> bool:
    """Have the library loaded in the background; True once that has ended, well or not."""
    if _loader.ident is None:
        _loader.start()
    return not _loader.is_alive()
