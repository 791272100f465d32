"""Three measurements of the cache besides the traces: a long prefix hit, host bookkeeping, a chat after a restart."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.bench.cache.figures import HitFigures, HostFigures, SavedFigures
from engine.bench.cache.traces import Words
from engine.bench.client import Answer, EngineClient
from engine.bench.folders import gptq_folder
from engine.bench.measure import median_ratio
from engine.bench.shapes import Shape
from engine.cache.offload.saved import SavedChats
from engine.catalogue import keys
from engine.protocol import LoadOptions, Sampling, Value
from engine.telemetry.records import StepRecord

LONG = 4000
"""Tokens of the prefix."""
MOST_SEQUENCES = 64
LONG_SHAPE = Shape("llama-35m", layers=8, hidden=512, ffn=1536, heads=8, kv_heads=4, vocabulary=8192, context=6144)
"""Used where the model's own context is too short; small enough that reading 4,000 tokens takes a second."""
_BRIEF = Sampling(temperature=0.0, max_tokens=4, ignore_eos=True, seed=1)
_REUSE: dict[str, Value] = {keys.PREFIX_CACHE: True, keys.SPECULATION: "off"}


def measure_hit(
    client: EngineClient, words: Callable[[int], Words], rounds: int, say: Callable[[str], None]
) -> HitFigures:
    """Ask two questions about each of several texts of 4,000 tokens: the first reads it, the second finds it cached."""
    say(f"a prefix of {LONG:,} tokens")
    cold: list[Answer] = []
    hit: list[Answer] = []
    client.answer(words(0).some(LONG), _BRIEF, {**_REUSE, keys.PREFIX_CACHE: False})
    for round in range(max(3, rounds)):
        some = words(1000 + round)
        text = some.some(LONG)
        for answers in (cold, hit):
            answers.append(client.answer([*text, *some.some(20)], _BRIEF, _REUSE))
    firsts = [[answer.timings.ttft_ms for answer in answers] for answers in (cold, hit)]
    return HitFigures(
        model=client.model.card.name,
        prompt=hit[0].usage.prompt_tokens,
        found=min(answer.usage.cached_tokens for answer in hit),
        cold=statistics.median(firsts[0]),
        hit=statistics.median(firsts[1]),
        ratio=median_ratio(firsts[1], firsts[0]),
    )


def measure_hit_of_shape(root: Path, rounds: int, say: Callable[[str], None]) -> HitFigures:
    """The same with random weights, for models whose context is too short."""
    folder = gptq_folder(LONG_SHAPE, root)
    with EngineClient() as client:
        client.load(str(folder))
        return measure_hit(client, lambda run: Words(range(2, LONG_SHAPE.vocabulary - 5), 1, run), rounds, say)


def measure_host(client: EngineClient, tokens: int = 64) -> HostFigures | None:
    """Measure the host's part of a step. None when the answers never all wrote in the same step."""
    prompts = [[(17 + 31 * number + 7 * place) % 256 + 3 for place in range(24)] for number in range(MOST_SEQUENCES)]
    sampling = Sampling(temperature=0.0, max_tokens=tokens, ignore_eos=True, seed=1)
    steps = _whole(client.together(prompts, sampling, _REUSE)[0].steps)
    steps += _whole(client.together(prompts, sampling, _REUSE)[0].steps)
    if not steps:
        return None

    def ms(part: Callable[[StepRecord], float]) -> float:
        return 1000 * statistics.median(part(step) for step in steps)

    return HostFigures(
        sequences=MOST_SEQUENCES,
        steps=len(steps),
        schedule=ms(lambda step: step.host.schedule),
        batch=ms(lambda step: step.host.batch),
        settle=ms(lambda step: step.host.settle),
        total=ms(lambda step: step.host_seconds),
        least=1000 * min(step.host_seconds for step in steps),
    )


def _whole(steps: Sequence[StepRecord]) -> list[StepRecord]:
    """The steps that did nothing but write one token for every answer."""
    return [step for step in steps if step.prefill_rows == 0 and step.decode_rows == step.generated == MOST_SEQUENCES]


def measure_saved(path: str, options: LoadOptions, rounds: int, say: Callable[[str], None]) -> SavedFigures:
    """Fill half the context with a chat, end the engine and ask a new one the next question, with files and without.

    Loading the model is no part of it. Raises EngineError.
    """
    say("a chat after a restart")
    answers: dict[bool, list[Answer]] = {False: [], True: []}
    size = 0
    for round in range(rounds):
        for files in (False, True):
            with tempfile.TemporaryDirectory(prefix="kvasir-bench-") as folder:
                answer, size = _restarted(path, options, Path(folder), files, round)
                answers[files].append(answer)
    firsts = {files: [answer.timings.ttft_ms for answer in given] for files, given in answers.items()}
    return SavedFigures(
        prompt=answers[True][0].usage.prompt_tokens,
        found=min(answer.usage.cached_tokens for answer in answers[True]),
        bytes=size,
        anew=statistics.median(firsts[False]),
        saved=statistics.median(firsts[True]),
        ratio=median_ratio(firsts[True], firsts[False]),
        equal=sum(one.ids == other.ids for one, other in zip(*answers.values(), strict=True)),
        rounds=rounds,
    )


def _restarted(path: str, options: LoadOptions, folder: Path, files: bool, round: int) -> tuple[Answer, int]:
    """The answer after the restart, and the bytes of the files."""
    prompt: list[int] = []
    for life in range(2):
        saved = SavedChats(folder, 0)
        with EngineClient(saved) as client:
            card, _ = client.load(path, "", options)
            client.set(keys.DISK_CACHE, 1.0 if files else 0.0)
            words = Words(range(3, card.vocabulary - 5), 1, 2000 + round)
            prompt = prompt or words.some(min(LONG, card.context // 2))
            client.answer(words.some(24), _BRIEF, _REUSE)
            answer = client.answer(prompt, _BRIEF, _REUSE, chat="chat")
            saved.flush(30.0)
            size = saved.sizes().size
        if life == 0:
            prompt = [*prompt, *answer.ids, *words.some(20)]
    return answer, size
