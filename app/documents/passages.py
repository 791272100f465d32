"""Passages of a document that is too long for the context: how it is split, and which of them fit a question."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from operator import mul
from pathlib import Path

from app.documents import vectors
from app.documents.records import DocumentPassage, FoundPassages, PassageSearch
from app.language import tr

PASSAGE_BYTES = 800
"""Of UTF-8, which are about 200 tokens in most languages."""
OVERLAP = 0.2
"""Share of a passage that the one before it holds too, so that no sentence is torn in both."""
SPLITTING = f"{PASSAGE_BYTES} bytes, {OVERLAP}"
"""How texts are split, for those who keep what they know of each passage: to be changed with :func:`split`."""
MOST_WORDS = 64
"""Words of a question that are looked for."""
RANK_OFFSET = 60
"""Constant of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009), as they have it."""
MEANING_WEIGHT = 2.0
"""Weight of the ranking by embeddings next to that by words, by the questions of docs/measurements.md: a word that is
in a question by chance brings up passages of no use."""
DAMAGED = tr("The embeddings of its passages are damaged.")
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts that are written without spaces."""
_SIGN = re.compile(f"([{_UNSPACED}])")
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]+")
_BREAKS = ("\n\n", "\n", ". ", "? ", "! ", "。", "; ", ", ", " ")


def split(text: str) -> list[tuple[int, int]]:
    """(start, end) of passages that cover the text, each beginning within the one before it."""
    if not text:
        return []
    size = max(100, PASSAGE_BYTES * len(text) // len(text.encode("utf-8", "surrogatepass")))
    found, start = [], 0
    while True:
        end = _break(text, start + size * 2 // 3, start + size)
        found.append((start, end))
        if end >= len(text):
            return found
        start = max(start + 1, _word_start(text, end - int(size * OVERLAP), end))


def search(asked: PassageSearch) -> FoundPassages:
    """The passages that BM25 ranks first for the words of the question, together with those whose embeddings are next
    to its own where there are some; as many as there is room for. Without embeddings, and where none has any of the
    words: the beginning, and others at equal distances."""
    places = split(asked.text)
    ranked, near, unused = by_words(asked.text, places, asked.question), list[int](), ""
    if asked.vectors:
        near = _nearest(asked, len(places))
        unused = "" if near else DAMAGED
    order = fused(ranked, near) if near else ranked
    order = order or _spread(len(places), max(1, asked.chars // max(1, len(asked.text) // len(places) or 1)))
    chosen, room = set[int](), asked.chars
    for number in order:
        start, end = places[number]
        if end - start > room:
            break
        chosen.add(number)
        room -= end - start
    passages, past = list[DocumentPassage](), 0
    for number in sorted(chosen):
        start, end = max(places[number][0], past), places[number][1]
        passages.append(DocumentPassage(len(passages) + 1, start, end))
        past = end
    return FoundPassages(passages, len(places), bool(ranked), unused)


def fused(words: Sequence[int], meaning: Sequence[int]) -> list[int]:
    """One ranking of two, by the weighted sum of the reciprocal ranks; a number need not be in both."""
    scores = defaultdict[int, float](float)
    for ranking, weight in ((words, 1.0), (meaning, MEANING_WEIGHT)):
        for rank, number in enumerate(ranking, 1):
            scores[number] += weight / (RANK_OFFSET + rank)
    return sorted(scores, key=lambda number: (-scores[number], number))


def _nearest(asked: PassageSearch, count: int) -> list[int]:
    """All passages, the one whose embedding has the largest product with the question's first; none where what is kept
    of them cannot be read."""
    question = asked.question_vector
    try:
        rows = vectors.read(Path(asked.vectors), len(question), count)
    except (OSError, ValueError):
        return []
    scores = [sum(map(mul, row, question)) for row in rows]
    if any(score != score for score in scores):  # not a number
        return []
    return sorted(range(count), key=lambda number: (-scores[number], number))


def by_words(text: str, places: Sequence[tuple[int, int]], question: str) -> list[int]:
    """Numbers of the passages that have words of the question, as BM25 ranks them."""
    words = list(dict.fromkeys(part for word in _WORD.findall(question.lower()) for part in _parts(word)))[:MOST_WORDS]
    if not words:
        return []
    query = " OR ".join(f'"{_spaced(word)}"' for word in words)
    with contextlib.closing(sqlite3.connect(":memory:")) as index:
        index.execute("CREATE VIRTUAL TABLE p USING fts5 (t, tokenize = 'porter unicode61 remove_diacritics 2')")
        rows = ((at, _spaced(_plain(text[start:end]))) for at, (start, end) in enumerate(places))
        index.executemany("INSERT INTO p (rowid, t) VALUES (?, ?)", rows)
        found = index.execute("SELECT rowid FROM p WHERE p MATCH ? ORDER BY rank, rowid", (query,))
        return [row[0] for row in found]


def _parts(word: str) -> list[str]:
    """The word; of a run of signs without spaces, which does not say where words end, each two neighbours."""
    if len(word) < 3 or _SIGN.match(word) is None:
        return [word]
    return [word[at : at + 2] for at in range(len(word) - 1)]


def _spaced(text: str) -> str:
    """Each sign of a script without spaces as a word, so that a word there is a phrase of signs."""
    return _SIGN.sub(r" \1 ", text).strip()


def _plain(text: str) -> str:
    """Without what SQLite cannot take: halves of surrogate pairs, and zeros."""
    return text.encode("utf-8", "replace").decode().replace("\x00", " ")


def _spread(count: int, wanted: int) -> list[int]:
    wanted = min(count, wanted)
    return list(dict.fromkeys(at * count // wanted for at in range(wanted)))


def _break(text: str, low: int, high: int) -> int:
    """The end of a passage between two places: after a paragraph where one ends there, else a line, a sentence."""
    if high >= len(text):
        return len(text)
    for mark in _BREAKS:
        place = text.rfind(mark, low, high)
        if place >= 0:
            return place + len(mark)
    return high


def _word_start(text: str, low: int, high: int) -> int:
    """The first beginning of a word in [low, high), ``low`` where there is none."""
    found = re.compile(r"\s(?=\S)").search(text, max(0, low - 1), high)
    return found.end() if found is not None else low
