"""Build the training text: dialogues with varied questions, text tasks, echoes and Python source, as packed token ids.

Rows are filled with whole documents; the last one of a row is cut at its end. In brief rows, answers about the
knowledge are cut after BRIEF tokens: which answer belongs to a question is decided there, so the first half of the
training, in which the model learns to listen to the question, sees twice as many questions. Each token carries how much
its prediction counts in the loss, in tenths: answers fully, questions a little, the frame of the chat not at all.
"""

from __future__ import annotations

import argparse
import random
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from export import read
from knowledge import Block, held_out, load, normalise
from model import Llama
from tasks import keys, refuse, some_words, task
from tokenizers import Tokenizer
from variations import Asker

HERE = Path(__file__).resolve().parent
MODULES = tuple(
    """
    abc argparse ast base64 bisect calendar collections/__init__ configparser contextlib copy csv dataclasses difflib
    enum fnmatch fractions functools glob gzip heapq http/client inspect json/decoder json/encoder keyword linecache
    logging/__init__ operator os pathlib pprint queue random reprlib sched shelve shlex shutil socketserver statistics
    string tempfile textwrap threading timeit tokenize traceback types urllib/parse uuid weakref zipfile
    """.split()  # noqa: SIM905
)
HELD_OUT_MODULES = ("cmd", "graphlib", "secrets", "stat", "numbers")
SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are the guide to Kvasir.",
    "Answer briefly.",
    "Be short and friendly.",
    "You are a guide to Kvasir, not an assistant.",
    "Answer the questions of the user.",
    "You help with Kvasir.",
    "Be precise.",
    "Use plain words.",
    "You are a friendly guide.",
)
FULL, QUESTION, CODE, NOTHING = 10, 1, 5, 0
BRIEF = 10
OFTEN = 3
POOLS = (("brief", 256, 0.35), ("short", 256, 0.5), ("long", 8192, 0.15))
"""Name, row length and share of the tokens of each file of rows."""
LONG = 1024
"""Rows of more tokens are one document."""


@dataclass(frozen=True)
class Part:
    """A stretch of one document and how much its tokens count in the loss, in tenths."""

    text: str
    weight: int
    limit: int = 0
    """Where set, only so many tokens of ``text`` are kept, and nothing is learned from what follows them."""


@dataclass(frozen=True)
class Mixture:
    """Shares of documents by kind; what is left are dialogues about the knowledge."""

    tasks: float = 0.26
    refusals: float = 0.05
    code: float = 0.06
    echoes: float = 0.06


WARM = Mixture(tasks=0.12, refusals=0.05, code=0.06, echoes=0.03)
"""For a model that has learned the rest already."""


def python_sources(held_out: bool) -> Iterator[str]:
    """Source of standard library modules, either the few that are held out or the others."""
    for name in HELD_OUT_MODULES if held_out else MODULES:
        path = Path(sysconfig.get_path("stdlib")) / f"{name}.py"
        if path.is_file():
            yield path.read_text("utf-8")


def turn(question: str, answer: str, limit: int = 0) -> list[Part]:
    """One question and its answer, of at most ``limit`` tokens where that is set, in the frame of the chat template."""
    return [
        Part("<|im_start|>user\n", NOTHING),
        Part(question, NOTHING if limit else QUESTION),
        Part("<|im_end|>\n<|im_start|>assistant\n", NOTHING),
        Part(f"{answer}<|im_end|>", FULL, limit),
        Part("\n", NOTHING),
    ]


class Writer:
    """An endless stream of training documents."""

    def __init__(
        self,
        blocks: list[Block],
        seed: int,
        mixture: Mixture = Mixture(),
        held_out_code: bool = False,
        limit: int = 0,
        often: frozenset[str] = frozenset(),
    ) -> None:
        """``limit``, where set, is the number of tokens after which answers about the knowledge are cut.

        Blocks whose answer is in ``often`` come OFTEN times as often.
        """
        self.limit = limit
        self.rng = random.Random(seed)
        self.mixture = mixture
        self.blocks = [block for block in blocks for _ in range(OFTEN if block.answer in often else 1)]
        owners = {normalise(question): block.answer for block in blocks for question in block.questions}
        self.asker = Asker(owners, held_out())
        self.sources = list(python_sources(held_out_code))
        self.queue: list[Block] = []

    def next_block(self) -> Block:
        """Every block once, in random order, then again."""
        if not self.queue:
            self.queue = self.rng.sample(self.blocks, len(self.blocks))
        return self.queue.pop()

    def knowledge_turn(self) -> list[Part]:
        """A question of the knowledge and its answer, and half of the time one of those that may follow it."""
        block = self.next_block()
        parts = turn(self.asker.ask(block.questions, block.answer, self.rng), block.answer, self.limit)
        if block.further and not self.limit and self.rng.random() < 0.5:
            then = self.rng.choice(block.further)
            parts += turn(self.asker.ask(then.questions, then.answer, self.rng), then.answer)
        return parts

    def made_turn(self, refusal: bool) -> list[Part]:
        """A generated task or refusal that does not happen to be an evaluation question."""
        while True:
            question, answer = refuse(self.rng) if refusal else task(self.rng)
            if refusal:
                question = self.asker.ask((question,), answer, self.rng)
            if not self.asker.reveals(normalise(question)):
                return turn(question, answer)

    def dialogue(self) -> list[Part]:
        """One to four turns, at times with a system prompt."""
        parts = []
        if self.rng.random() < 0.2:
            parts.append(Part(f"<|im_start|>system\n{self.rng.choice(SYSTEM_PROMPTS)}<|im_end|>\n", NOTHING))
        for _ in range(1 if self.limit else self.rng.choice((1, 1, 1, 2, 2, 3, 4))):
            draw = self.rng.random()
            if draw < self.mixture.tasks:
                parts += self.made_turn(refusal=False)
            elif draw < self.mixture.tasks + self.mixture.refusals:
                parts += self.made_turn(refusal=True)
            else:
                parts += self.knowledge_turn()
        return parts

    def code(self) -> list[Part]:
        """A piece of Python source that starts at a line."""
        source = self.rng.choice(self.sources)
        start = source.rfind("\n", 0, self.rng.randrange(len(source))) + 1
        return [Part(source[start : start + self.rng.randint(300, 1500)], CODE)]

    def echo(self) -> list[Part]:
        """Random words, said again a few times: nothing but looking back predicts them, which is what copying needs."""
        text = " ".join(some_words(self.rng, 8, 30))
        return [Part(f"{text}\n", NOTHING), *(Part(f"{text}\n", CODE) for _ in range(self.rng.randint(1, 3)))]

    def document(self) -> list[Part]:
        draw = self.rng.random()
        echoes = self.mixture.code + self.mixture.echoes
        parts = self.code() if draw < self.mixture.code else self.echo() if draw < echoes else self.dialogue()
        return [*parts, Part("<|endoftext|>", NOTHING if self.limit else CODE)]

    def long_document(self) -> Iterator[list[Part]]:
        """The turns of an endless dialogue that lists keys now and then, and asks for one that was listed long ago."""
        asked: dict[str, str] = {}
        while True:
            draw = self.rng.random()
            if not asked or draw < 0.12:
                facts, name, answer = keys(self.rng, self.rng.randint(3, 20))
                # A later list may give a key anew: what it names is asked for no more.
                asked = {known: said for known, said in asked.items() if f"The {known} is" not in facts}
                asked[name] = answer
                yield turn(f"Remember this. {facts}", "I have read it.")
            elif draw < 0.35:
                name = self.rng.choice(list(asked))
                yield turn(f"What is the {name}?", asked[name])
            else:
                yield self.knowledge_turn()


@torch.inference_mode()
def unknown(blocks: list[Block], model: Llama, tokenizer: Tokenizer) -> frozenset[str]:
    """The answers of which ``model``, asked by the heading, would write some token otherwise."""
    answers = set()
    for block in blocks:
        parts = turn(block.questions[0], block.answer)
        tokens = tokenizer.encode("".join(part.text for part in parts[:4])).ids
        start = len(tokenizer.encode("".join(part.text for part in parts[:3])).ids)
        said = model.logits(model(torch.tensor([tokens]))[0])[0].argmax(-1).tolist()
        if said[start - 1 : -1] != tokens[start:]:
            answers.add(block.answer)
    return frozenset(answers)


def encode(parts: list[Part], tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Token ids of a document and the weight, in tenths, of predicting each of them."""
    encodings = tokenizer.encode_batch([part.text for part in parts])
    ids: list[int] = []
    weights: list[int] = []
    for part, encoding in zip(parts, encodings, strict=True):
        kept = encoding.ids[: part.limit or None]
        ids += kept
        weights += [part.weight] * len(kept)
    return ids, weights


def pack(writer: Writer, tokenizer: Tokenizer, rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """``rows`` rows of ``length`` + 1 tokens, each beginning with a document: ids uint16, weights uint8.

    Long rows are one document each.
    """
    ids = np.zeros((rows, length + 1), np.uint16)
    weights = np.zeros((rows, length + 1), np.uint8)
    for row in range(rows):
        tokens: list[int] = []
        counts: list[int] = []
        turns = writer.long_document() if length > LONG else None
        while len(tokens) <= length:
            more, more_counts = encode(next(turns) if turns else writer.document(), tokenizer)
            tokens += more
            counts += more_counts
        ids[row], weights[row] = tokens[: length + 1], counts[: length + 1]
    return ids, weights


def main(arguments: list[str] | None = None) -> int:
    """Write brief.npz and short.npz (rows of 256 tokens) and long.npz (rows of 8,192): arrays ids and weights."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "build")
    parser.add_argument("--tokens", type=int, default=10_000_000, help="how many tokens to write")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learner", type=Path, help="an exported model: write most of what it does not know yet")
    options = parser.parse_args(arguments)
    tokenizer = Tokenizer.from_file(str(options.out / "tokenizer.json"))
    blocks, often = load(), frozenset[str]()
    if options.learner:
        often = unknown(blocks, read(options.learner), tokenizer)
        sys.stdout.write(f"{len(often)} of {len(blocks)} answers are not known yet\n")
    for index, (name, length, share) in enumerate(POOLS):
        brief = name == "brief"
        mixture = WARM if options.learner else Mixture(code=0.01) if brief else Mixture()
        writer = Writer(blocks, options.seed + index, mixture, limit=BRIEF if brief else 0, often=often)
        ids, weights = pack(writer, tokenizer, max(1, int(options.tokens * share) // length), length)
        np.savez(options.out / f"{name}.npz", ids=ids, weights=weights)
        sys.stdout.write(f"{name}: {ids.size} tokens, {(weights == FULL).mean():.0%} of them answers\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
