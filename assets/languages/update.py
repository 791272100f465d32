"""Brings the translations of the window up to date: ``python assets/languages/update.py``.

It finds the texts of ``tr`` and ``plural``, and those of the engine that the window shows (``known``), has Qt's lupdate
merge them into ``LANGUAGE/ROOM.ts``, and lrelease make ``LANGUAGE.qm`` of these. ``--missing ROOM`` prints what has no
translation yet as JSON, and ``--fill FILE`` takes that JSON back in, filled. ``--left [ROOM]`` lists texts that
look as if people saw them and that nothing translates; a comment ``# not shown`` on the line says that nobody does.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import string
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import msgspec

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

import engine.loading.techniques  # noqa: E402, F401 - fills the catalogue
from app.language import CONTEXT, LANGUAGES  # noqa: E402
from engine import catalogue  # noqa: E402
from engine.catalogue import exclusions  # noqa: E402
from engine.decoding.speculation.control.controller import FORCED  # noqa: E402
from engine.decoding.speculation.technique import drafting  # noqa: E402
from engine.library.bundled import ABOUT  # noqa: E402
from engine.loading.advice import recommend, speed  # noqa: E402
from engine.protocol import compared  # noqa: E402
from engine.protocol.recommended import CuratedList  # noqa: E402
from engine.services.experiments import lab, papers  # noqa: E402
from engine.services.experiments.lab import batch_size, kivi, mlfq  # noqa: E402
from engine.services.experiments.workloads import finding  # noqa: E402
from engine.services.experiments.workloads.drafting import PER_STEP, SPEEDS  # noqa: E402

GENERAL = "general"
"""Room of the modules that are in none."""
ENGINE = "engine"
TRANSLATED = [code for code in LANGUAGES if code != "en"]
_EXCEPTIONS = {
    "AssertionError",
    "TypeError",
    "KeyError",
    "NotImplementedError",
    "IndexError",
    "AttributeError",
    "RuntimeError",
}
"""Faults of the program, which nobody is shown."""
_SILENT = {
    "named",
    "getLogger",
    "setObjectName",
    "setProperty",
    "findChild",
    "getattr",
    "setattr",
    "hasattr",
    "compile",
}
"""Calls whose plain strings are names; their titles are keywords."""


_TITLES = {"down", "title", "unit", "name", "note", "taken"}


class Text(NamedTuple):
    """``comment`` tells texts of several meanings apart."""

    source: str
    comment: str = ""
    plural: bool = False


def rooms() -> dict[str, list[Path]]:
    """The files of each room of the window."""
    found: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "app").rglob("*.py")):
        parts = path.relative_to(ROOT / "app").parts
        found.setdefault(parts[0] if len(parts) > 1 else GENERAL, []).append(path)
    return found


def texts_of(path: Path) -> Iterator[Text]:
    """Texts that a file has translated. Raises SystemExit for one that is not written out where it is looked up."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or (name := _called(node.func)) not in ("tr", "plural"):
            continue
        is_plural = name == "plural"
        written = node.args[: 2 if is_plural else len(node.args)]
        strings = [each.value for each in written if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if len(strings) != len(written) or not strings:
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            raise SystemExit(f"{where}: {name}() takes texts that are written out there.")
        yield Text(strings[1], "", True) if is_plural else Text(strings[0], strings[1] if len(strings) > 1 else "")


def _called(function: ast.expr) -> str:
    """The name of a function, also of one of the words that are given to it."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "words":
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def engine_texts() -> set[Text]:
    """Texts of the engine's that the window shows: those of its records, and phrases that are written out where it
    sends them. Sentences with values in them are English."""
    found = {*_switches(), *_rules(), *_lessons(), *_proposers(), *_models(), *_stages()}
    found.update(_sent("services/experiments", {"Refusal", "LabProgress"}))
    found.update(_sent("services/packs", {"PackChoice"}))
    found.update(_sent("services/experiments", {"Axis", "Ceiling", "Heat", "Metric", "Plot", "Series"}, names=True))
    return {Text(text) for text in found if text}


def _switches() -> Iterator[str]:
    for option in catalogue.BY_KEY.values():
        yield from (option.title, option.group, option.explains, option.measure.shows, option.range.zero_means)
        yield from (choice.title for choice in option.choices)
        for metric in (option.measure.metric, *(choice.metric for choice in option.choices)):
            if metric is not None:
                yield from (metric.title, metric.unit, metric.elsewhere)


def _rules() -> Iterator[str]:
    """Reasons that a switch, or a value of one, cannot apply."""
    yield from exclusions.MISSING.values()
    for rules in (exclusions.EXCLUSIONS, exclusions.IDLE, exclusions.SHAPES):
        yield from (rule.reason for rule in rules)  # type: ignore[attr-defined]


def _lessons() -> Iterator[str]:
    """Pages of the Lab's experiments, and what papers claim; where they say so is quoted in their own words."""
    for page in (experiment.page for experiment in lab.ALL):
        yield from (page.title, page.group, page.problem, page.question, page.lesson, page.fails)
        yield from (*page.choices, *page.sides, *(setting.title for setting in page.adjustable))
        for paper in papers.figures(page.name):
            yield from (paper.claim, paper.setting)
            if (plot := paper.plot) is not None:
                axes = (text for axis in (plot.x, plot.y) for text in (axis.title, axis.unit))
                yield from (plot.title, plot.note, *axes, *(series.name for series in plot.series))
                yield from (category for category in plot.categories if " " in category)
    yield from (finding.INSTEAD, finding.UNLEARNED, kivi.SIZE, kivi.OFF, *batch_size.FOUND_BY)
    yield from (*mlfq.CURVES, *mlfq.CURVES.values())
    yield from (each.metric.title for each in (*SPEEDS.values(), *PER_STEP.values()))


def _proposers() -> Iterator[str]:
    for style in (FORCED, *(technique.style for technique in drafting())):
        yield from (style.name, style.by, style.offer)


def _models() -> Iterator[str]:
    """Purposes of the models that come with Kvasir and of the recommended ones, and the reasons to recommend these."""
    yield from (*ABOUT.values(), speed.TRIED)
    listed = msgspec.json.decode((ROOT / "assets" / "models.json").read_bytes(), type=CuratedList)
    yield from (model.about for model in listed.models)
    yield from (recommend.BEST, recommend.SEES, recommend.LIGHT, recommend.ANOTHER, recommend.RUNS)


def _stages() -> Iterator[str]:
    """Stages of a load, and those of reading a part of it: "reading weights of the draft model"."""
    reading, parts = set(_sent("formats", {"progress"})), set(_sent("loading", {"between"}))
    yield from {*_sent("loading", {"progress"}), *reading, *(stage + part for stage in reading for part in parts)}


def _sent(folder: str, calls: set[str], names: bool = False) -> Iterator[str]:
    """Phrases that are written out as arguments of these calls, in a folder of the engine's; ``names`` of one word too,
    where an argument has a name in :data:`_TITLES`."""
    for path in sorted((ROOT / "engine" / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in calls:
                titles = [keyword.value for keyword in node.keywords if not names or keyword.arg in _TITLES]
                for given in (*node.args, *titles):
                    for each in (given.body, given.orelse) if isinstance(given, ast.IfExp) else (given,):
                        text = each.value if isinstance(each, ast.Constant) else None
                        if isinstance(text, str) and (" " in text or (names and text.isalpha())):
                            yield text


def texts() -> dict[str, set[Text]]:
    """The texts of each room."""
    found = {room: {text for path in paths for text in texts_of(path)} for room, paths in rooms().items()}
    found["panel"] |= {*texts_of(Path(compared.__file__)), Text(compared.FAULT), Text(compared.ROUNDING)}
    return {room: each for room, each in (found | {ENGINE: engine_texts()}).items() if each}


def messages(path: Path) -> list[ElementTree.Element]:
    """The entries of a .ts file."""
    return list(ElementTree.parse(path).iter("message"))


def text_of(message: ElementTree.Element) -> Text:
    return Text(message.findtext("source") or "", message.findtext("comment") or "", message.get("numerus") == "yes")


def forms(message: ElementTree.Element) -> list[str]:
    """Translations, one or one for each number; "" where there is none."""
    translation = message.find("translation")
    if translation is None:
        return [""]
    numbered = translation.findall("numerusform")
    return [form.text or "" for form in numbered] if numbered else [translation.text or ""]


def fields(text: str) -> set[str]:
    """Names of the places for values."""
    try:
        return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
    except ValueError:  # a brace by itself, in a text that takes no values
        return set()


def update(only: set[str] | None = None) -> None:
    """Merge the texts of today into the .ts files, and make the .qm file of each language."""
    found = texts()
    for language in TRANSLATED:
        folder = FOLDER / language
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.ts"):
            if old.stem not in found:
                old.unlink()
        for room, each in found.items():
            if only is None or room in only:
                _merge(folder / f"{room}.ts", language, each)
        release(language, FOLDER / f"{language}.qm")


def _merge(path: Path, language: str, found: set[Text]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        stub = Path(temporary) / "texts.cpp"
        lines = []
        for text in sorted(found):
            quoted = ", ".join(json.dumps(part, ensure_ascii=False) for part in (CONTEXT, text.source, text.comment))
            lines.append(f"QCoreApplication::translate({quoted}{', n' if text.plural else ''});")
        stub.write_text("void texts(int n) {\n" + "\n".join(lines) + "\n}\n")
        options = ["-locations", "none", "-no-obsolete", "-no-ui-lines", "-silent", "-target-language", language]
        _qt(
            "lupdate",
            str(stub),
            *options,
            "-source-language",
            "en",
            "-disable-heuristic",
            "similartext",
            "-ts",
            str(path),
        )


def release(language: str, path: Path) -> None:
    """Make the file that the window reads."""
    files = sorted(map(str, (FOLDER / language).glob("*.ts")))
    if files:
        _qt("lrelease", "-silent", "-nounfinished", *files, "-qm", str(path))


def _qt(tool: str, *arguments: str) -> None:
    ran = subprocess.run([Path(sys.executable).parent / f"pyside6-{tool}", *arguments], capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"{tool} failed: {ran.stdout}{ran.stderr}")


def missing(language: str, room: str) -> list[dict[str, object]]:
    """Texts without a translation, with a place for it."""
    found = []
    for message in messages(FOLDER / language / f"{room}.ts"):
        text = text_of(message)
        if not all(forms(message)):
            entry: dict[str, object] = {"source": text.source}
            if text.comment:
                entry["comment"] = text.comment
            found.append(entry | {language: ["", ""] if text.plural else ""})
    return found


def fill(language: str, path: Path) -> None:
    """Take translations from the JSON of :func:`missing`, filled in."""
    given = {(each["source"], each.get("comment", "")): each[language] for each in json.loads(path.read_text())}
    rooms_changed = set()
    for ts in sorted((FOLDER / language).glob("*.ts")):
        tree = ElementTree.parse(ts)
        changed = False
        for message in tree.iter("message"):
            text = text_of(message)
            new = given.get((text.source, text.comment))
            translation = message.find("translation")
            if not new or translation is None or (all(forms(message)) and forms(message) == new):
                continue
            translation.attrib.pop("type", None)
            if isinstance(new, list):
                for old in list(translation):
                    translation.remove(old)
                translation.text = None
                for form in new:
                    ElementTree.SubElement(translation, "numerusform").text = form
            else:
                translation.text = new
            changed = True
        if changed:
            rooms_changed.add(ts.stem)
            root = ElementTree.tostring(tree.getroot(), encoding="utf-8")
            ts.write_bytes(b'<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE TS>\n' + root)
    update(rooms_changed)  # lupdate writes the file in its own way again


def left(path: Path) -> Iterator[tuple[int, str]]:
    """Lines and texts of a file that look as if people saw them, and that nothing translates."""
    source = path.read_text()
    lines = source.splitlines()
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if isinstance(parents[node], ast.JoinedStr):
                continue
            text = node.value
        else:
            continue
        own_lines = "".join(lines[node.lineno - 1 : node.end_lineno])
        if _looks_shown(text) and not _is_hidden(node, parents) and "# not shown" not in own_lines:
            yield node.lineno, text


def _looks_shown(text: str) -> bool:
    words = re.findall(r"[A-Za-z]{2,}", text)
    if not words or (re.fullmatch(r"[\w.:/#*%-]*", text) and not re.fullmatch(r"[A-Z][a-z]+", text)):
        return False
    reads = re.search(r"[A-Za-z]{2,} [A-Za-z{(]|} [a-z]{2,}|^[A-Z][a-z]+…?$", text)
    return bool(reads) and not re.search(r"^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|Q[A-Z]\w+ ?[{:])", text)


def _is_hidden(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    parent: ast.AST | None = parents.get(node)
    if isinstance(parent, ast.Expr):  # a docstring
        return True
    child: ast.AST = node
    while parent is not None:
        if isinstance(parent, ast.Call):
            name = getattr(parent.func, "id", getattr(parent.func, "attr", ""))
            if name in ("tr", "plural", "known") or name in _EXCEPTIONS or (child in parent.args and name in _SILENT):
                return True
            owner = parent.func.value if isinstance(parent.func, ast.Attribute) else None
            if isinstance(owner, ast.Name) and owner.id in ("log", "re", "logging"):
                return True
        if isinstance(parent, ast.Assert) or getattr(parent, "annotation", None) is child:
            return True
        child, parent = parent, parents.get(parent)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", default="de", choices=TRANSLATED)
    parser.add_argument("--missing", metavar="ROOM")
    parser.add_argument("--fill", metavar="FILE", type=Path)
    parser.add_argument("--left", metavar="ROOM", nargs="?", const="")
    options = parser.parse_args()
    if options.missing:
        update({options.missing})
        print(json.dumps(missing(options.language, options.missing), indent=1, ensure_ascii=False))
    elif options.fill:
        fill(options.language, options.fill)
    elif options.left is not None:
        for room, paths in rooms().items():
            for path in paths if options.left in ("", room) else []:
                for line, text in left(path):
                    print(f"{path.relative_to(ROOT)}:{line}: {text!r}")
    else:
        update()


if __name__ == "__main__":
    main()
