"""Three measurements of the cache besides the traces: a long prefix hit, host bookkeeping, a chat after a restart."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engine.cache.offload.saved import SavedChats
from engine.loading.model import LoadModel
from engine.protocol import keys
from engine.services.client import Answer, EngineClient, whole_steps
from engine.services.experiments.measures.timing import median_ratio
from engine.services.experiments.reports.cache import HostFigures, ReuseFigures
from engine.services.experiments.reports.tables import say
from engine.services.experiments.sides import PLAIN, SHARING, greedy
from engine.services.experiments.workloads.shapes import Shape, gptq_folder
from engine.services.experiments.workloads.traces import words_of

LONG = 4000
"""Tokens of the prefix."""
MOST_SEQUENCES = 64
LONG_SHAPE = Shape("llama-35m", layers=8, hidden=512, ffn=1536, heads=8, kv_heads=4, vocabulary=8192, context=6144)
"""Used where the model's own context is too short; small enough that reading 4,000 tokens takes a second."""
_BRIEF = greedy(4)


def measure_hit(client: EngineClient, rounds: int) -> ReuseFigures:
    """Ask two questions about each of several texts of 4,000 tokens: the first reads it, the second finds it cached."""
    say(f"a prefix of {LONG:,} tokens")
    cold: list[Answer] = []
    hit: list[Answer] = []
    client.answer(words_of(client.model, 0).some(LONG), _BRIEF, PLAIN)
    for round in range(max(3, rounds)):
        some = words_of(client.model, 1000 + round)
        text = some.some(LONG)
        for answers in (cold, hit):
            answers.append(client.answer([*text, *some.some(20)], _BRIEF, SHARING))
    return _reuse(client.model.card.name, cold, hit)


def _reuse(model: str, cold: Sequence[Answer], hit: Sequence[Answer], size: int = 0) -> ReuseFigures:
    """The figures of answers in pairs; ``size``: bytes of the files that the second ones were found in."""
    read, found = ([answer.timings.ttft_ms for answer in answers] for answers in (cold, hit))
    return ReuseFigures(
        model=model,
        prompt=hit[0].usage.prompt_tokens,
        found=min(answer.usage.cached_tokens for answer in hit),
        cold=statistics.median(read),
        hit=statistics.median(found),
        ratio=median_ratio(found, read),
        rounds=len(hit),
        bytes=size,
        equal=sum(one.ids == other.ids for one, other in zip(cold, hit, strict=True)),
    )


def measure_hit_of_shape(root: Path, rounds: int) -> ReuseFigures:
    """The same with random weights, for models whose context is too short."""
    folder = gptq_folder(LONG_SHAPE, root)
    with EngineClient() as client:
        client.set(keys.ACTIVATIONS, "8bit")  # what random weights bear says nothing about a model
        client.load(str(folder))
        return measure_hit(client, rounds)


def measure_host(client: EngineClient) -> HostFigures | None:
    """Measure the host's part of a step. None when the answers never all wrote in the same step."""
    prompts = [[(17 + 31 * number + 7 * place) % 256 + 3 for place in range(24)] for number in range(MOST_SEQUENCES)]
    both = [client.together(prompts, greedy(64), SHARING)[0].steps for _ in range(2)]
    steps = [step for some in both for step in whole_steps(some, MOST_SEQUENCES)]
    if not steps:
        return None

    parts = {
        name: 1000 * statistics.median(getattr(step.host, name) for step in steps)
        for name in ("schedule", "batch", "settle")
    }
    totals = [1000 * step.host_seconds for step in steps]
    total, least = statistics.median(totals), min(totals)
    return HostFigures(sequences=MOST_SEQUENCES, steps=len(steps), total=total, least=least, **parts)


def measure_saved(load: LoadModel, rounds: int) -> ReuseFigures:
    """Fill half the context with a chat, end the engine and ask a new one the next question, with files and without.

    Loading the model is no part of it. Raises EngineError.
    """
    say("a chat after a restart")
    answers: dict[bool, list[Answer]] = {False: [], True: []}
    size = 0
    for round in range(rounds):
        for files in (False, True):
            with tempfile.TemporaryDirectory(prefix="kvasir-bench-") as folder:
                answer, size = _restarted(load, Path(folder), files, round)
                answers[files].append(answer)
    return _reuse(load.path, answers[False], answers[True], size)


def _restarted(load: LoadModel, folder: Path, files: bool, round: int) -> tuple[Answer, int]:
    """The answer after the restart, and the bytes of the files."""
    prompt: list[int] = []
    for life in range(2):
        saved = SavedChats(folder, 0)
        with EngineClient(saved) as client:
            card, _ = client.load(*load)
            client.set(keys.DISK_CACHE, 1.0 if files else 0.0)
            words = words_of(client.model, 2000 + round)
            prompt = prompt or words.some(min(LONG, card.context // 2))
            client.answer(words.some(24), _BRIEF, SHARING)
            answer = client.answer(prompt, _BRIEF, SHARING, chat="chat")
            saved.flush(30.0)
            size = saved.sizes().size
        if life == 0:
            prompt = [*prompt, *answer.ids, *words.some(20)]
    return answer, size
