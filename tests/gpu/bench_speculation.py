"""Speculation on a SYNTHETIC pair: a big random model whose first layers agree with the whole at a chosen rate.

    python tests/gpu/bench_speculation.py [--shape 8b | mid] [--exit N] [--rates 0.6 0.8 0.9] [--batches 1 8 32]
                                          [--lengths 2 4 8] [--tokens 64] [--rounds 3] [--json FILE]

No trained pair is at hand where this runs, and random weights agree with nothing. So what the layers from ``--exit`` on
add to the stream is scaled by a factor, found by bisection, until the first layers alone draw the token of the whole
model that often (temperature and noise of the engine's kind, on random text). The draft model is a copy of these first
layers with the norm and the head: about a tenth of the weights. Its speed is real, and so is that of checking; that it
agrees is made. Where the engine has early exit, that drafts too, with the same layers. Then the engine's own step loop
writes for 1, 8 and 32 listeners, plain and with drafts in turn: at fixed lengths, at lengths that the engine chooses,
and as it chooses by itself, also where next to nothing agrees (rate 0). ``--shape mid`` is for CPUs, ``--dry-run``
checks the script there at a toy shape.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.compute.batch import SequenceRows
from engine.compute.layers.linear.base import Linear
from engine.compute.runner.runner import Runner
from engine.decoding.telemetry.records import StepRecord
from engine.library.paths import cache_folder
from engine.loading.model import LoadedModel
from engine.loading.runners import new_runner
from engine.protocol import Sampling, Value
from engine.services.client import EngineClient
from engine.services.experiments.measures.steps import own_steps
from engine.services.experiments.measures.timing import spread
from engine.services.experiments.workloads.shapes import SHAPES, Shape, gptq_folder
from tests.bench.folders import plain_folder

TOY = Shape("toy", layers=6, hidden=64, ffn=128, heads=4, kv_heads=2, vocabulary=504, context=1024)
MID = Shape("mid", layers=16, hidden=1024, ffn=3072, heads=16, kv_heads=8, vocabulary=16000, context=2048)
"""A step of 15 ms or more on two cores, in which the host's part is small as on a GPU with a large model."""
TEMPERATURE = 0.25
"""Random logits have a spread of about 1: colder, so that they weigh more than the noise of the draw."""
PROMPT, SEQUENCES, ROWS = 64, 8, 64
HALVINGS = 12


class Figure(NamedTuple):
    """One way at one rate and batch. ``holds``: of draft tokens whose predecessors held; ``found``: by bisection."""

    rate: float
    found: float
    factor: float
    batch: int
    way: str
    tokens_per_second: float
    plain: float
    speedup: float
    low: float
    high: float
    holds: float
    tokens_per_step: float


class Way(NamedTuple):
    title: str
    overrides: dict[str, Value]


def first_layers(folder: Path, layers: int, root: Path) -> Path:
    """A folder with the first ``layers`` of a model, its token table, its last norm and its head."""
    made = root / f"{folder.name}-first-{layers}"
    made.mkdir(parents=True, exist_ok=True)
    config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": layers}
    (made / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (made / name).write_bytes((folder / name).read_bytes())
    with safe_open(folder / "model.safetensors", "pt") as file:
        kept = [name for name in file.keys() if _layer(name) < layers]  # noqa: SIM118
        save_file({name: file.get_tensor(name) for name in kept}, made / "model.safetensors", metadata={"format": "pt"})
    return made


def _layer(name: str) -> int:
    """The layer that a tensor belongs to; -1: to none."""
    parts = name.split(".")
    return int(parts[2]) if parts[1] == "layers" else -1


class Later:
    """What the layers from ``first`` on write into the stream, to be scaled in place: no kernel more, no byte more."""

    def __init__(self, model: LoadedModel, first: int) -> None:
        assert model.model is not None
        self._held: list[tuple[Tensor, Tensor]] = []
        for index in range(first, len(model.model.layers)):
            for name, linear in model.model.layers[index].linears():
                if name in ("output", "down"):
                    self._held += [(tensor, tensor.clone()) for tensor in _factors(linear)]
                    self._linear = linear
        self._dtype, self._device = model.model.dtype, model.device
        self._check()

    @torch.inference_mode()
    def scale(self, factor: float) -> None:
        for tensor, original in self._held:
            tensor.copy_(original * factor)

    def _check(self) -> None:
        """That scaling what was found scales the product. Raises RuntimeError."""
        x = torch.ones(2, self._linear.in_features, dtype=self._dtype, device=self._device)
        x[1, ::2] = -0.5
        whole = self._linear.forward(x).float()
        self.scale(0.5)
        half = self._linear.forward(x).float()
        self.scale(1.0)
        if float((2 * half - whole).abs().max()) > 0.02 * float(whole.abs().max()):
            raise RuntimeError(f"the weights of {type(self._linear).__name__} cannot be scaled in place")


def _factors(linear: Linear) -> list[Tensor]:
    """The tensors that the layer's product is linear in."""
    names = ("weight", "scales", "scale_zero", "offsets")
    found = [getattr(linear, name, None) for name in names]
    return [tensor for tensor in found if isinstance(tensor, Tensor) and tensor.is_floating_point()]


class Agreement:
    """How often the first layers draw the token of all of them, on random text with the same noise for both."""

    def __init__(self, model: LoadedModel, first: int) -> None:
        assert model.model is not None
        self._model, self._device, self._vocabulary = model.model, model.device, model.card.vocabulary
        pages = ROWS // 16
        self._runner: Runner = new_runner(model.model, SEQUENCES * pages + 1, model.device)
        generator = torch.Generator().manual_seed(1)
        text = torch.randint(2, self._vocabulary, (SEQUENCES, ROWS), generator=generator).tolist()
        self._rows = [
            SequenceRows(tokens, 0, range(1 + number * pages, 1 + (number + 1) * pages), want_logits=ROWS)
            for number, tokens in enumerate(text)
        ]
        hidden = self._runner.forward(self._rows, layers=(0, first)).hidden[first]
        early = model.model.logits(hidden, torch.arange(SEQUENCES * ROWS, device=model.device))
        self._early = self._drawn(early)

    def rate(self) -> float:
        return float((self._drawn(self._runner.forward(self._rows).logits) == self._early).float().mean())

    def _drawn(self, logits: Tensor) -> Tensor:
        """[rows]; in parts, since a row of noise is as long as the vocabulary."""
        generator = torch.Generator(self._device).manual_seed(2)
        found = []
        for part in logits.split(64):
            uniform = torch.rand(part.shape, generator=generator, device=self._device).clamp_min_(1e-20)
            found.append((part.float() / TEMPERATURE - torch.log(-torch.log(uniform))).argmax(-1))
        return torch.cat(found)


def find_factor(later: Later, agreement: Agreement, rate: float) -> tuple[float, float]:
    """The factor at which the first layers agree at ``rate``, and the rate found there; 1 where they agree more."""
    low, high = 0.0, 1.0
    later.scale(high)
    if agreement.rate() >= rate:
        return high, agreement.rate()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        later.scale(middle)
        low, high = (middle, high) if agreement.rate() > rate else (low, middle)
    later.scale(low)
    return low, agreement.rate()


def ways(proposers: Sequence[str], lengths: Sequence[int], first: int) -> list[Way]:
    """Everyone who drafts with those layers, at each length and at the engine's own, then the engine's own choice."""
    found = []
    titles = {"draft": "first layers as a draft", "exit": "early exit"}
    for name in (name for name in titles if name in proposers):
        more: dict[str, Value] = {"exit_layer": first} if name == "exit" else {}
        for length in (*lengths, 0):
            overrides: dict[str, Value] = {"speculation": name, "draft_length": length, "ngram_first": False, **more}
            found.append(Way(f"{titles[name]}, " + (f"{length} ahead" if length else "adaptive"), overrides))
    return [*found, Way("automatic", {"speculation": "auto"})]


def measure(
    client: EngineClient, found: Sequence[Way], batch: int, tokens: int, rounds: int
) -> Iterator[tuple[Way, dict[str, float]]]:
    """Each way and plain decoding in turn; one round more warms up."""
    vocabulary = client.model.card.vocabulary
    prompts = [
        [5 + (31 * number + 7919 * place) % (vocabulary - 5) for place in range(PROMPT)] for number in range(batch)
    ]
    sampling = Sampling(temperature=TEMPERATURE, max_tokens=tokens, ignore_eos=True, seed=1)
    for way in found:
        pairs, steps = [], []
        for round in range(rounds + 1):
            plain = own_steps(client.together(prompts, sampling, {"speculation": "off"})[0].steps)
            own = own_steps(client.together(prompts, sampling, way.overrides)[0].steps)
            if round:
                pairs.append((_speed(own), _speed(plain)))
                steps += own
        gain = spread([own / plain for own, plain in pairs])
        made = [draft for step in steps for draft in step.drafts]
        kept = sum(sum(draft.accepted) for draft in made)
        # An answer whose last draft token held has seen none fail: reached are those kept and the first that failed.
        reached = kept + sum(
            draft.proposed[0] - _whole(draft.proposed, draft.accepted) for draft in made if draft.proposed
        )
        yield (
            way,
            {
                "tokens_per_second": statistics.median(own for own, _ in pairs),
                "plain": statistics.median(plain for _, plain in pairs),
                "speedup": gain.median,
                "low": gain.low,
                "high": gain.high,
                "holds": kept / reached if reached else 0.0,
                "tokens_per_step": sum(step.generated for step in steps)
                / max(1, sum(step.rows.decode for step in steps)),
            },
        )


def _whole(proposed: Sequence[int], accepted: Sequence[int]) -> int:
    """Answers that kept their whole chain: at each depth, those that kept it and drafted no further."""
    ends = [here - after for here, after in zip(proposed, [*proposed[1:], 0], strict=True)]
    goes_on = [*accepted[1:], 0]
    return sum(min(end, kept - after) for end, kept, after in zip(ends, accepted, goes_on, strict=True))


def _speed(steps: Sequence[StepRecord]) -> float:
    return sum(step.generated for step in steps) / sum(step.duration for step in steps)


def run(
    options: argparse.Namespace, shape: Shape, root: Path, folder: Callable[[Shape, Path], Path]
) -> Iterator[Figure]:
    """Every figure as soon as it is measured; the options are :func:`main`'s."""
    first = options.exit or max(1, round(shape.layers / 16))
    began = time.perf_counter()
    target = folder(shape, root)
    draft = first_layers(target, first, root)
    with EngineClient() as client:
        client.load(str(target), str(draft))
        model = client.model
        assert model.model is not None
        if model.drafting.model is None:
            raise RuntimeError(f"no draft: {model.card.draft_refused}")
        share = model.drafting.model.bytes_read_per_step() / model.model.bytes_read_per_step()
        print(f"SYNTHETIC pair: {shape.name}, random weights, {first} of {shape.layers} layers and the head draft: "
              f"{share:.0%} of the bytes; ready after {time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip
        later, agreement = Later(model, first), Agreement(model, first)
        found = ways([proposer.name for proposer in model.drafting.proposers], options.lengths, first)
        for rate in options.rates:
            factor, reached = find_factor(later, agreement, rate)
            print(f"agreement {reached:.2f} (wanted {rate}) where later layers write {factor:.3f} of what they did")
            for batch in options.batches:
                for way, measured in measure(client, found, batch, options.tokens, options.rounds):
                    figure = Figure(rate, reached, factor, batch, way.title, **measured)
                    print(f"  batch {batch:2} {way.title:34} {figure.tokens_per_second:7.0f} tok/s beside "
                          f"{figure.plain:7.0f}: {figure.speedup:.2f} ({figure.low:.2f}-{figure.high:.2f}), "
                          f"{figure.holds:.0%} hold, {figure.tokens_per_step:.2f} a step", flush=True)  # fmt: skip
                    yield figure


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """What was asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="8b", choices=(*SHAPES, MID.name))
    parser.add_argument("--exit", type=int, default=0, help="layers that draft; a sixteenth of them if left out")
    parser.add_argument("--rates", nargs="+", type=float, default=[0.6, 0.8, 0.9])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--lengths", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, at a toy shape")
    options = parser.parse_args(arguments)
    if options.shape != MID.name and not options.dry_run and not torch.cuda.is_available():
        parser.error("PyTorch finds no CUDA GPU here")
    return options


def figures_of(options: argparse.Namespace) -> Iterator[Figure]:
    """All that was asked for."""
    if options.dry_run:
        with tempfile.TemporaryDirectory(prefix="kvasir-bench-") as root:
            yield from run(options, TOY, Path(root), plain_folder)
    else:
        yield from run(options, {**SHAPES, MID.name: MID}[options.shape], cache_folder() / "bench", gptq_folder)


def main(arguments: list[str] | None = None) -> list[Figure]:
    options = options_of(arguments)
    figures = list(figures_of(options))
    if options.json:
        facts: dict[str, Any] = {
            "pair": "synthetic: random weights, later layers scaled until the first agree with the whole",
            "device": "cpu" if options.dry_run or options.shape == MID.name else torch.cuda.get_device_name(),
            "torch": str(torch.__version__),
        }
        options.json.write_text(json.dumps({**facts, "figures": [figure._asdict() for figure in figures]}, indent=1))
    return figures


if __name__ == "__main__":
    main()
