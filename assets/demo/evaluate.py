"""Measure the exported models: the 100 questions, draft acceptance, and the perplexity that 4 bits cost."""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from build_text import FULL, Writer, encode, pack
from export import DRAFT_FOLDER, TARGET_FOLDER, read, trained
from knowledge import DISTANT, QUESTIONS, EvaluationQuestion, load, load_evaluation, states_facts
from model import Llama
from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
DRAFT_LENGTH = 4
ANSWER_LIMIT = 120
CHATS = 8
"""Of as many tokens as the context has."""


@dataclass(frozen=True)
class Answer:
    """A question, what the model said to it, and whether the key facts are there."""

    question: str
    text: str
    right: bool
    prompt: list[int]
    tokens: list[int]


@dataclass(frozen=True)
class Report:
    """What was measured. Perplexities are per counted token, of answers and of held-out Python source."""

    questions: int
    right: int
    distant: int
    accepted: int
    drafted: int
    tokens_per_step: float
    answers_before: float | None
    answers_full: float | None
    answers_int4: float
    code_before: float | None
    code_full: float | None
    code_int4: float
    far: list[float]
    """Perplexities of answers in the quarters of a chat that fills the context."""

    @property
    def acceptance(self) -> float:
        """Share of drafted tokens that the target accepted, greedy."""
        return self.accepted / max(1, self.drafted)


def prompt_of(question: str, tokenizer: Tokenizer) -> list[int]:
    """Token ids of one user message in the chat template."""
    return tokenizer.encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n").ids


def ask(model: Llama, tokenizer: Tokenizer, item: EvaluationQuestion) -> Answer:
    stop = frozenset(tokenizer.token_to_id(token) for token in ("<|im_end|>", "<|endoftext|>"))
    prompt = prompt_of(item.question, tokenizer)
    tokens = model.continue_greedily(prompt, stop, ANSWER_LIMIT)
    text = tokenizer.decode(tokens)
    return Answer(item.question, text, states_facts(text, item.must), prompt, tokens)


@torch.inference_mode()
def acceptance(draft: Llama, answers: list[Answer]) -> tuple[int, int, int]:
    """Accepted tokens, drafted tokens and steps of greedy speculation with chains of DRAFT_LENGTH.

    A draft that agrees so far has seen the target's own text, so its guesses are read off one teacher-forced pass.
    """
    accepted = drafted = steps = 0
    for answer in answers:
        ids = torch.tensor([answer.prompt + answer.tokens])
        draft_tokens = draft.logits(draft(ids)[0])[0].argmax(-1).tolist()
        start = len(answer.prompt) - 1
        agrees = [draft_tokens[start + i] == token for i, token in enumerate(answer.tokens)]
        at = 0
        while at < len(agrees):
            window = agrees[at : at + DRAFT_LENGTH]
            taken = window.index(False) if False in window else len(window)
            accepted, drafted, steps = accepted + taken, drafted + len(window), steps + 1
            at += taken + 1
    return accepted, drafted, steps


@torch.inference_mode()
def perplexity(model: Llama, documents: list[tuple[list[int], list[int]]]) -> float:
    """exp of the mean loss over the tokens whose weight is not that of a frame or a question."""
    loss, count = 0.0, 0.0
    for ids, weights in documents:
        tokens = torch.tensor([ids[:1024]])
        mask = torch.tensor(weights[1:1024]) >= min(FULL, max(weights))
        logits = model.logits(model(tokens[:, :-1])[0])[0]
        losses = F.cross_entropy(logits, tokens[0, 1:], reduction="none")[mask]
        loss, count = loss + float(losses.sum()), count + losses.numel()
    return math.exp(loss / max(1.0, count))


@torch.inference_mode()
def perplexity_by_quarter(model: Llama, tokenizer: Tokenizer, chats: int) -> list[float]:
    """exp of the mean loss over the answers' tokens in each quarter of chats that fill the context."""
    length = model.shape.max_position_embeddings
    losses, counts = torch.zeros(4), torch.zeros(4)
    for ids, weights in zip(*pack(Writer(load(), seed=987_655), tokenizer, chats, length), strict=True):
        tokens = torch.from_numpy(ids.astype(np.int64))
        logits = model.logits(model(tokens[None, :-1])[0])[0]
        counted = torch.from_numpy(weights[1:] == FULL)
        loss = F.cross_entropy(logits, tokens[1:], reduction="none") * counted
        losses += loss.view(4, -1).sum(1)
        counts += counted.view(4, -1).sum(1)
    return [round(value, 3) for value in (losses / counts).exp().tolist()]


def held_out_documents(
    tokenizer: Tokenizer, count: int
) -> tuple[list[tuple[list[int], list[int]]], list[tuple[list[int], list[int]]]]:
    """Dialogues with fresh variations of the questions, and source of modules that were not in training."""
    writer = Writer(load(), seed=987_654, held_out_code=True)
    dialogues = [encode(writer.dialogue(), tokenizer) for _ in range(count)]
    return dialogues, [encode(writer.code(), tokenizer) for _ in range(count // 4)]


def measure(
    folders: tuple[Path, Path], build: Path, documents: int, answers: list[Answer], distant: list[Answer]
) -> Report:
    """Everything but the questions themselves, whose answers are given."""
    tokenizer = Tokenizer.from_file(str(folders[0] / "tokenizer.json"))
    accepted, drafted, steps = acceptance(read(folders[1]), answers)
    dialogues, code = held_out_documents(tokenizer, documents)
    scores: dict[str, tuple[float | None, float | None]] = {}
    for name, file in (("before", "before.pt"), ("full", "checkpoint.pt")):
        path = build / file
        model = trained(path)[0] if path.is_file() else None
        scores[name] = (perplexity(model, dialogues), perplexity(model, code)) if model else (None, None)
    final = read(folders[0])
    return Report(
        questions=len(answers),
        right=sum(answer.right for answer in answers),
        distant=sum(answer.right for answer in distant),
        accepted=accepted,
        drafted=drafted,
        tokens_per_step=(accepted + steps) / max(1, steps),
        answers_before=scores["before"][0],
        answers_full=scores["full"][0],
        answers_int4=perplexity(final, dialogues),
        code_before=scores["before"][1],
        code_full=scores["full"][1],
        code_int4=perplexity(final, code),
        far=perplexity_by_quarter(final, tokenizer, CHATS),
    )


def seen_questions(count: int) -> list[EvaluationQuestion]:
    """Questions straight from the knowledge, to tell recall from understanding; right means the exact answer."""
    blocks = load()
    chosen = random.Random(0).sample(blocks, min(count, len(blocks)))
    return [EvaluationQuestion(block.questions[0], ((block.answer,),)) for block in chosen]


def main(arguments: list[str] | None = None) -> int:
    """Ask the evaluation questions and measure; writes evaluation/report.json and evaluation/answers.jsonl."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--target", type=Path, default=TARGET_FOLDER)
    parser.add_argument("--draft", type=Path, default=DRAFT_FOLDER)
    parser.add_argument(
        "--build", type=Path, default=HERE / "build", help="training checkpoints, for the perplexity lost"
    )
    parser.add_argument("--documents", type=int, default=300, help="held-out dialogues for the perplexity")
    parser.add_argument("--questions", type=Path, default=QUESTIONS)
    parser.add_argument("--out", type=Path, default=HERE / "evaluation")
    parser.add_argument("--failures", action="store_true", help="print the wrong answers")
    parser.add_argument("--quick", action="store_true", help="questions only, nothing is written")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    tokenizer = Tokenizer.from_file(str(options.target / "tokenizer.json"))
    target = read(options.target)
    answers = [ask(target, tokenizer, item) for item in load_evaluation(options.questions)]
    for answer in answers:
        if options.failures and not answer.right:
            sys.stdout.write(f"WRONG {answer.question}\n      {answer.text}\n")
    sys.stdout.write(f"{sum(answer.right for answer in answers)} of {len(answers)} right\n")
    if options.quick:
        recalled = [ask(target, tokenizer, item) for item in seen_questions(50)]
        sys.stdout.write(
            f"{sum(answer.right for answer in recalled)} of {len(recalled)} headings recalled word for word\n"
        )
        return 0
    distant = [ask(target, tokenizer, item) for item in load_evaluation(DISTANT)]
    report = measure((options.target, options.draft), options.build, options.documents, answers, distant)
    options.out.mkdir(exist_ok=True)
    values = {**asdict(report), "acceptance": round(report.acceptance, 4)}
    (options.out / "report.json").write_text(json.dumps(values, indent=2) + "\n", "utf-8")
    lines = (json.dumps({"question": a.question, "answer": a.text, "right": a.right}) + "\n" for a in answers)
    (options.out / "answers.jsonl").write_text("".join(lines), "utf-8")
    sys.stdout.write(json.dumps(values, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
