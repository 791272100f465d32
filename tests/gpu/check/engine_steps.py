"""The part "engine": a Llama of 8B with random weights in the whole engine. Also "speculation" and "peers".

The folder is one as GPTQ leaves it: 4 bits in groups of 128 and an output head in 16 bits. The first measurement after
the load is a chat, so that whatever is compiled or captured in it was forgotten by the load.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import torch

from engine.decoding.telemetry.records import StepRecord
from engine.library.paths import bundled_model, cache_folder
from engine.loading.memory.bandwidth import measure_bandwidth
from engine.protocol import ChatMessage, Sampling, Value, keys
from engine.services.client import Answer, EngineClient, whole_steps
from engine.services.experiments.workloads.shapes import EIGHT_B, Shape, gptq_folder
from tests.bench.compare import compare, named_programs
from tests.bench.programs import COMPARED
from tests.gpu.check import trace
from tests.gpu.check.notes import Measures, Setting
from tests.gpu.check.watching import Watch, watching

TOY = Shape("toy", layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, vocabulary=504, context=4096)
BATCHES = (1, 8, 32)
SWITCHES = (keys.CUDA_GRAPHS, keys.ASYNC_SCHEDULING, keys.EARLY_LAUNCH, keys.FETCHED_AHEAD)
MODES: dict[str, tuple[Value, ...]] = {
    "eager": (False, False, False, 0),
    "graphs": (True, False, False, 0),
    "asynchronous": (False, True, False, 0),
    "both": (True, True, False, 0),
    "early": (True, True, True, 0),
    "early, 8 MB ahead": (True, True, True, 8),
}
""":data:`SWITCHES`. "both" is how the engine is served; with kernels that start early it is for `first` to measure."""
SERVED = "both"
EARLY = tuple(mode for mode in MODES if mode.startswith("early"))
SETTINGS: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0.0}, "default": {"temperature": 0.6, "top_p": 0.9}}
PLAIN: dict[str, Value] = {keys.SPECULATION: "off"}
PROMPTS = (128, 512, 2048)
SHORT = 64
QUESTIONS = Path(__file__).parents[3] / "assets" / "demo" / "evaluation" / "questions.jsonl"


def engine(setting: Setting) -> Measures:
    """See the module. ``figures["decode N"]`` is for N answers at once, by sampling and mode."""
    with ExitStack() as stack:
        watch = stack.enter_context(watching())
        root = cache_folder() / "bench"
        if setting.dry:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvasir-check-")))
        client = stack.enter_context(EngineClient())
        bench = EngineBench(client, watch, root, setting)
        yield "load", bench.load
        yield "chat", bench.chat
        for batch in BATCHES:
            yield f"decode {batch}", lambda batch=batch: bench.decode(batch)
        yield "profile", bench.profile
        yield "prompts", bench.prompts
        yield "captures", watch.figure
        yield "equal on 8B", bench.equal_on_shape
        yield "equal answers", bench.equal_answers
        yield "load again", bench.load_again
        yield "8-bit head", bench.packed_head


class EngineBench:
    """The measurements of one loaded shape, in turn."""

    def __init__(self, client: EngineClient, watch: Watch, root: Path, setting: Setting) -> None:
        self.client, self.watch, self.root, self.dry = client, watch, root, setting.dry
        self.shape = TOY if setting.dry else EIGHT_B
        self.tokens, self.rounds = (3, 1) if setting.dry else (64, 2)
        self.modes = tuple(mode for mode in MODES if mode not in EARLY)
        self.read = 0.0
        self.folder = Path()
        self.step_seconds: dict[str, float] = {}
        """Of one answer that is drawn greedily, by mode."""

    def load(self) -> Iterator[dict[str, Any]]:
        """Seconds of the first load in this process, which compiles; what is loaded."""
        began = time.perf_counter()
        self.folder = gptq_folder(self.shape, self.root, packed_head=False)
        made = time.perf_counter() - began
        yield {"made": made}
        began = time.perf_counter()
        card, fit = self.client.load(str(self.folder))
        seconds = time.perf_counter() - began
        model = self.client.model.model
        assert model is not None
        self.read = measure_bandwidth(self.client.model.device)
        yield {
            "made": made,
            "seconds": seconds,
            "read": self.read,
            "weights": model.storage_size(),
            "bytes a step": model.bytes_read_per_step(),
            "kv tokens": fit.kv_tokens,
            "variants": len(self.watch.compiled),
            "captured": len(self.watch.captures),
            "capturing seconds": sum(capture.seconds for capture in self.watch.captures),
            "peak": torch.cuda.max_memory_allocated() if not self.dry else 0,
            "paths": sorted({linear.path for _, linear in model.linears()}),
            "notices": list(card.notices),
        }

    def load_again(self) -> dict[str, Any]:
        """In the same process: what remains is reading and packing."""
        began = time.perf_counter()
        self.client.load(str(self.folder))
        return {"seconds": time.perf_counter() - began}

    def chat(self) -> dict[str, Any]:
        """A chat up to the end of the context, as an app has it: turns of all lengths, their prefix in the cache."""
        compiled, captured = len(self.watch.compiled), len(self.watch.captures)
        full = 64 if self.dry else min(self.shape.context, self.client.model.fit.kv_tokens)
        sampling = Sampling(**SETTINGS["default"], max_tokens=2 if self.dry else 48, ignore_eos=True, seed=1)
        text: list[int] = []
        lengths = iter((9, 14, 11)) if self.dry else _turns()
        gaps: list[float] = []
        steps: list[StepRecord] = []
        while len(text) + (more := next(lengths, full)) + (sampling.max_tokens or 0) < full:
            text += self.shape.prompt(more, 101 * len(text))
            answer = self.client.answer(text, sampling, {keys.PREFIX_CACHE: True}, chat="gpu-check")
            text += answer.ids
            gaps += answer.gaps
            steps += answer.steps
        reasons = Counter(step.eager for step in steps if step.rows.decode and not step.captured)
        return {
            "tokens": len(text),
            "compiled": len(self.watch.compiled) - compiled,
            "names": self.watch.compiled[compiled:],
            "captured": len(self.watch.captures) - captured,
            "longest gap ms": 1000 * max(gaps),
            "median gap ms": 1000 * statistics.median(gaps),
            "eager steps": dict(reasons.most_common(8)),
        }

    def decode(self, batch: int) -> Iterator[dict[str, Any]]:
        """All modes in turn, in every round."""
        found: dict[str, Any] = {}
        for name, settings in SETTINGS.items():
            steps: dict[str, list[StepRecord]] = {mode: [] for mode in self.modes}
            for round in range(self.rounds + 1):
                for mode in self.modes:
                    self.turn(mode)
                    records = self.together(batch, settings)[0].steps
                    if round:
                        steps[mode] += whole_steps(records, batch)
            found[name] = {mode: self.row(steps[mode], batch) for mode in self.modes}
            if name == "greedy" and batch == 1:
                self.step_seconds = {mode: row["step ms"] / 1000 for mode, row in found[name].items()}
            for mode, row in found[name].items():
                print(f"  {batch} {name}, {mode}: {row}", flush=True)
            yield found
        speed = {name: {mode: row["tok/s"] for mode, row in rows.items()} for name, rows in found.items()}
        greedy = speed["greedy"]
        yield {
            **found,
            "default to greedy": speed["default"][SERVED] / greedy[SERVED],
            "both to graphs": greedy[SERVED] / greedy["graphs"],
        }

    def turn(self, mode: str) -> None:
        """Switch to a mode, as far as the machine has its switches."""
        known = self.client.state()
        for key, value in zip(SWITCHES, MODES[mode], strict=True):
            if key in known and not known[key].disabled_reason:
                self.client.set(key, value)

    def together(self, batch: int, settings: Mapping[str, Any], tokens: int = 0) -> list[Answer]:
        """Answers to as many short prompts, without drafts."""
        prompts = [self.shape.prompt(4 if self.dry else SHORT, 31 * number) for number in range(batch)]
        sampling = Sampling(**settings, max_tokens=tokens or self.tokens, ignore_eos=True, seed=1)
        return self.client.together(prompts, sampling, PLAIN)

    def row(self, steps: list[StepRecord], batch: int) -> dict[str, Any]:
        """Medians over steps in which all answers grew by a token."""
        if not steps:
            raise RuntimeError(f"{batch} answers never grew together")
        durations = sorted(step.duration for step in steps)
        middle = statistics.median(durations)
        return {
            "tok/s": batch / middle,
            "step ms": 1000 * middle,
            "p95 ms": 1000 * durations[len(durations) * 95 // 100],
            "host ms": 1000 * statistics.median(step.host_seconds for step in steps),
            "of read": statistics.median(step.bytes_read for step in steps) / middle / self.read,
            "captured": sum(bool(step.captured) for step in steps) / len(steps),
            "eager because": next((step.eager for step in steps if step.eager), ""),
            "late because": next((step.late for step in steps if step.late), ""),
        }

    def profile(self) -> Iterator[dict[str, Any]]:
        """The last steps of one greedy answer, eager and as it is served."""
        found: dict[str, Any] = {}
        for mode in ("eager", SERVED):
            self.turn(mode)
            tokens = 3 if self.dry else 2 * trace.STEPS + 8
            self.together(1, SETTINGS["greedy"], tokens)
            nodes = trace.recorded(lambda tokens=tokens: self.together(1, SETTINGS["greedy"], tokens), not self.dry)
            found[mode] = trace.summary(nodes, tokens, self.step_seconds.get(mode))
            yield found

    def prompts(self) -> Iterator[dict[str, Any]]:
        """Time to the first token of prompts that nobody has read before, while nobody decodes."""
        self.turn(SERVED)
        found: dict[str, Any] = {}
        sampling = Sampling(temperature=0.0, max_tokens=1, ignore_eos=True, seed=1)
        for count in PROMPTS:
            length = count // 32 if self.dry else count
            waits = []
            for round in range(2 if self.dry else 6):
                answer = self.client.answer(self.shape.prompt(length, 997 * round), sampling, PLAIN)
                waits.append(answer.timings.ttft_ms)
            wait = statistics.median(waits[1:])
            found[str(count)] = {"ttft ms": wait, "tok/s": 1000 * length / wait, "first ms": waits[0]}
            yield found

    def packed_head(self) -> dict[str, Any]:
        """What one answer gains where the output head is quantised to 8 bits while the model is loaded."""
        self.turn(SERVED)
        spec = self.client.state().get(keys.OUTPUT_HEAD)
        if spec is None or "int8" in spec.disabled_choices or spec.disabled_reason:
            return {"tok/s": None, "gain": None, "absent": spec.disabled_reason if spec is not None else "no switch"}
        speeds = []
        for choice in ("file", "int8"):
            self.client.set(keys.OUTPUT_HEAD, choice)
            self.together(1, SETTINGS["greedy"])
            row = self.row(whole_steps(self.together(1, SETTINGS["greedy"])[0].steps, 1), 1)
            speeds.append(row["tok/s"])
        return {**row, "gain": speeds[1] / speeds[0], "absent": ""}

    def equal_on_shape(self) -> dict[str, Any]:
        """Greedy answers of the shape, eager and as served. Random weights often leave two tokens nearly as likely."""
        answers = {}
        for mode in ("eager", SERVED):
            self.turn(mode)
            answers[mode] = [self._ids(self.shape.prompt(20 + number, 53 * number), SETTINGS["greedy"]) for number in
                             range(2 if self.dry else 16)]  # fmt: skip
        return compared(answers)

    def equal_answers(self, questions: int | None = None) -> dict[str, Any]:
        """200 answers of the bundled model, half of them greedy, eager and as served; it writes true text."""
        known = bundled_model()
        self.client.load(known.path)
        lines = QUESTIONS.read_text().splitlines()[: 1 if self.dry else questions]
        asked = [ChatMessage.of("user", json.loads(line)["question"]) for line in lines]
        prompts = [self.client.model.encode_prompt([message]) for message in asked]
        answers = {}
        for mode in ("eager", SERVED):
            self.turn(mode)
            answers[mode] = [self._ids(prompt, settings) for settings in SETTINGS.values() for prompt in prompts]
        return compared(answers)

    def _ids(self, prompt: list[int], settings: Mapping[str, Any]) -> tuple[list[int], float]:
        """An answer's tokens, and the share of its decoding steps that were captured graphs."""
        sampling = Sampling(**settings, max_tokens=3 if self.dry else 32, ignore_eos=True, seed=1)
        answer = self.client.answer(prompt, sampling, PLAIN)
        steps = whole_steps(answer.steps, 1)
        return answer.ids, sum(bool(step.captured) for step in steps) / max(1, len(steps))


def _turns() -> Iterator[int]:
    """Lengths of messages: of a line, of a page, of a pasted file."""
    for number in range(200):
        yield (23, 310, 71, 900, 37, 150, 517, 12)[number % 8] + number


def compared(answers: dict[str, list[tuple[list[int], float]]]) -> dict[str, Any]:
    """How many answers are equal to the token, the first place where one differs, and what was captured."""
    pairs = list(zip(*answers.values(), strict=True))
    differing = [
        next(place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
        for (one, _), (other, _) in pairs
        if one != other
    ]
    return {
        "answers": len(pairs),
        "differ": len(differing),
        "first place": min(differing, default=None),
        "captured": statistics.mean(share for _, share in answers[SERVED]),
    }


def speculation(setting: Setting) -> Measures:
    """``figures["pair"][rate]["batch N"][way]``."""
    from tests.gpu import bench_speculation

    told = ["--rates", "0.6", "0.8", "0.9", "--batches", "1", "8", "--lengths", "4", "--rounds", "2"]
    if setting.dry:
        few = ["--batches", "1", "--lengths", "4", "--rounds", "1", "--tokens", "16"]
        told = ["--dry-run", "--rates", "0.6", "0.8", "0.9", *few]

    def pair() -> Iterator[dict[str, Any]]:
        found: dict[str, Any] = {}
        for figure in bench_speculation.figures_of(bench_speculation.options_of(told)):
            ways = found.setdefault(str(figure.rate), {}).setdefault(f"batch {figure.batch}", {})
            ways[figure.way] = figure._asdict()
            yield found

    yield "pair", pair


def peers(setting: Setting) -> Measures:
    """The same shape in this engine and in other programs, those that are installed, in turn; as ratios."""
    shape = TOY if setting.dry else EIGHT_B

    def compared() -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="kvasir-check-") as folder:
            root = Path(folder) if setting.dry else cache_folder() / "bench"
            programs = named_programs(("kvasir",) if setting.dry else COMPARED, shape, root)
            decoded, read = (2, 4) if setting.dry else (64, 512)
            rounds, threads = 1 if setting.dry else 3, torch.get_num_threads()
            figures = compare(
                shape, programs, rounds=rounds, threads=threads, decode_tokens=decoded, prompt_tokens=read
            )
        figures.show()
        return dict(msgspec.to_builtins(figures))

    yield "compared", compared
