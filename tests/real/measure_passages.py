"""How well passages of a document are found: ``python -m tests.real.measure_passages MODEL``, for docs/measurements.md.

For each question of passage_questions.py whether one of the first passages holds the answer: as BM25 ranks them, as the
embeddings of MODEL do, and both together as the window has it. And the seconds that embeddings of a text take.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import torch

from app.documents.passages import by_words, fused, split
from engine.services.embedder import Embedder
from tests.real.passage_questions import QUESTIONS

DOCS = Path(__file__).parents[2] / "docs"
FIRST = (5, 20)
PAGE_CHARS = 2500
PAGES = 100
WAYS = ("words", "meaning", "both")


def embeddings(embedder: Embedder, model: str, texts: list[str], kind: str) -> np.ndarray:
    """[texts, dimensions] float32, each of length 1."""
    parts: list[bytes] = []
    known = embedder.embed(model, texts, kind, lambda event: parts.append(event.vectors))  # type: ignore[arg-type]
    return np.frombuffer(b"".join(parts), "<f4").reshape(-1, known.dimensions)


def main() -> None:
    model, embedder = sys.argv[1], Embedder()
    hits: Counter[tuple[str, bool, int]] = Counter()
    asked = Counter(each.other for each in QUESTIONS)
    for page in dict.fromkeys(each.page for each in QUESTIONS):
        text = (DOCS / page).read_text("utf-8")
        places = split(text)
        began = time.perf_counter()
        kept = embeddings(embedder, model, [text[start:end] for start, end in places], "document")
        print(f"{page}: {len(text):,} characters, {len(places)} passages, {time.perf_counter() - began:.1f} s")
        for each in (each for each in QUESTIONS if each.page == page):
            at = text.index(each.answer)
            right = {n for n, (start, end) in enumerate(places) if start <= at and at + len(each.answer) <= end}
            assert right, each.answer
            near = [int(n) for n in np.argsort(-(kept @ embeddings(embedder, model, [each.text], "query")[0]))]
            words = by_words(text, places, each.text)
            ranks = {"words": words, "meaning": near, "both": fused(words, near)}
            rank = {way: next((n for n, each in enumerate(ranks[way], 1) if each in right), 0) for way in WAYS}
            hits.update((way, each.other, first) for way in WAYS for first in FIRST if 0 < rank[way] <= first)
            print("  ", *(f"{rank[way] or '-':>4}" for way in WAYS), each.text)
    for way, first in product(WAYS, FIRST):
        of = [f"{hits[way, other, first]} of {asked[other]}" for other in (True, False)]
        print(f"{way}, first {first}: in other words {of[0]}, in the same words {of[1]}")
    text = (DOCS / "measurements.md").read_text("utf-8")
    text = (text * (PAGES * PAGE_CHARS // len(text) + 1))[: PAGES * PAGE_CHARS]
    places = split(text)
    began, busy = time.perf_counter(), time.process_time()
    embeddings(embedder, model, [text[start:end] for start, end in places], "document")
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    threads = torch.get_num_threads()
    print(f"{PAGES} pages, {len(places)} passages, {threads} threads: {seconds:.1f} s, {busy:.1f} s of processor time")
    began = time.perf_counter()
    embeddings(embedder, model, ["What is kept?"], "query")
    print(f"a question: {1000 * (time.perf_counter() - began):.0f} ms; weights: {embedder.bytes / 1e6:.0f} MB")
    embedder.close()


if __name__ == "__main__":
    main()
