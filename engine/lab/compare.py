"""Compare: the same prompts in columns of any settings, models and quantisations, side by side.

Each column has an engine of its own where memory allows, so that runs of all columns alternate, in an order drawn by
lot; else each is loaded in its turn, which is said. Prose and code are measured apart.
"""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import structs

from engine.bench.client import Answer, EngineClient, EngineError
from engine.bench.speculation.texts import plain
from engine.cache.policies import POLICIES, PolicySettings
from engine.catalogue import option
from engine.catalogue.metrics import FIRST_TOKEN, PER_STEP, SPEED
from engine.catalogue.option import OptionError
from engine.lab.experiment import NEAR_TIE, Lab, LabError, Measured, Pairs, Side, apart, gap_of
from engine.lab.run import device_of, machine
from engine.lab.workload import bytes_of
from engine.loading.model import LoadedModel, release_memory
from engine.memory.nvml import Meter
from engine.paths import ModelNotFound, find_model, version
from engine.protocol import ChatMessage, LoadOptions, Metric, Sampling, Value, keys
from engine.protocol.lab import Column, ColumnQuality, KindFigures, LabCompared, LabLine, LabText
from engine.runner.perplexity import MOST_TOKENS, ReaderFactory, score, scored
from engine.server.continuing import common
from engine.text.template import PromptError
from engine.text.tokenizer import Tokenizer

TOKENS = 64
MEMORY = Metric(title="weights and KV cache", unit="bytes", lower_is_better=True, counted=True)
ACCEPTED = Metric(title="draft tokens accepted", unit="%", counted=True)
JOULES = Metric(title="energy a token", unit="J", lower_is_better=True)
MEASURED = (
    Measured("speed", SPEED),
    Measured("first", FIRST_TOKEN),
    Measured("memory", MEMORY),
    Measured("per_step", PER_STEP),
    Measured("accepted", ACCEPTED),
)
KINDS = {"talk": "prose", "code": "code"}
"""Of the built-in prompts, and what they are called."""
PROMPTS = 2
"""Of each kind."""
RELOADED_ROUNDS = 3
"""Rounds where each run takes a load."""
LEAST_CONTEXT, FRAME = 2048, 512
"""Tokens of a column at the least, and of what a chat template puts around a prompt at the most."""


class Prompt(msgspec.Struct, frozen=True):
    """One line of a file of prompts: ``kind`` is "prose" or "code", or a name of the user's own. ``plain``: the text is
    to be continued, and no message of a chat."""

    text: str
    kind: str = "prose"
    plain: bool = False


class Asked(NamedTuple):
    """What to compare. ``prompts`` none: the built-in ones. ``text`` is scored for quality, "" for none."""

    columns: Sequence[Column]
    prompts: Sequence[Prompt] = ()
    text: str = ""
    tokens: int = TOKENS
    seed: int = 1
    pairs: int = 0
    seconds: float = 60.0
    temperature: float = 0.0
    device: str = "auto"


def text_of(file: Path) -> str:
    """The text of a file. Raises LabError for one without any, OSError."""
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise LabError(f"{file} is no text in UTF-8. Save it as such, or give another file.") from None
    if not text.strip():
        raise LabError(f"{file} is empty. Give a file with text.")
    return text


def prompts_of(file: Path) -> list[Prompt]:
    """Prompts of a file: a JSON object a line in a .jsonl, else the whole text as one. Raises LabError, OSError."""
    text = text_of(file)
    if file.suffix != ".jsonl":
        return [Prompt(text)]
    try:
        found = [msgspec.json.decode(line, type=Prompt) for line in text.splitlines() if line.strip()]
    except msgspec.MsgspecError as error:
        raise LabError(f'{file} is no file of prompts, a {{"text": …, "kind": …}} in each line: {error}.') from None
    if not all(prompt.text.strip() for prompt in found):
        raise LabError(f"{file} has a prompt without text. Take it out.")
    return found


def column(text: str) -> Column:
    """A column as the command line has it: ``NAME: key=value, key=value``, the name may be left out.

    ``model``, ``draft`` and ``quantise`` are keys as well as every switch. A text that begins with a brace is a
    :class:`Column` as JSON, in which names and paths may hold any sign. Raises :class:`LabError`.
    """
    if text.startswith("{"):
        try:
            read = msgspec.json.decode(text, type=Column)
        except msgspec.MsgspecError as error:
            raise LabError(f"A column is no JSON object of a name, a model and settings: {error}.") from None
        return structs.replace(read, set=_switches(read.set))
    name, colon, rest = text.partition(":")
    if not colon or "=" in name:
        name, rest = "", text
    told: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in rest.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise LabError(f"{part!r} is not KEY=VALUE, such as kv_kind=int8.")
        told[key.strip()] = value.strip()
    quantise = told.pop("quantise", "none")
    if quantise not in ("none", "nf4", "int4", "int8"):
        raise LabError(f"A column's quantise is none, nf4, int4 or int8, not {quantise!r}.")
    model, draft = told.pop("model", ""), told.pop("draft", None)
    return Column(
        name=name.strip() or rest.strip() or "as it is",
        model=model,
        draft="" if draft == "none" else draft,
        quantise=quantise,  # type: ignore[arg-type]
        set=_switches(told),
    )


def _switches(told: Mapping[str, Value]) -> dict[str, Value]:
    """Values of switches in their own types. Raises LabError."""
    try:
        return {key: option(key).parse(value) for key, value in told.items()}
    except OptionError as error:
        raise LabError(str(error)) from None


def compare(asked: Asked, show: Callable[[LabLine], object]) -> LabCompared:
    """Run the comparison, telling its progress. Raises :class:`LabError`."""
    if len(asked.columns) < 2:
        raise LabError("A comparison needs at least two columns.")
    sides = [_Side(asked, each) for each in asked.columns]
    try:
        together = _together(sides)
        kinds = [_measured(asked, sides, *each, show) for each in _kinds(sides[0], asked)]
        quality, absent = _quality(asked, sides, together)
        return LabCompared(
            columns=list(asked.columns),
            models=[side.name for side in sides],
            device=device_of(sides[0].client),
            machine=machine(),
            version=version(),
            date=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            seed=asked.seed,
            kinds=kinds,
            quality=quality,
            lossless=[side.promises(sides[0]) for side in sides[1:]],
            taken=f"Each column answered every prompt in {asked.tokens} tokens, once to warm up and then in rounds "
            "whose order was drawn by lot; medians over rounds, prose and code apart. Every prompt is read from its "
            "first token, whatever the prefix cache is set to; the speed leaves the prompt out."
            + ("" if together else _IN_TURN),
            absent=absent,
        )
    except (EngineError, ModelNotFound) as error:
        raise LabError(str(error)) from error
    finally:
        for side in sides:
            side.close()


_IN_TURN = (
    " The models do not fit side by side: each was loaded anew for every run, answered once shortly and was then "
    f"measured, in {RELOADED_ROUNDS} rounds, too few for a verdict."
)


def _together(sides: Sequence[_Side]) -> bool:
    """Whether all fit at once; else each closes the others when it runs. Raises EngineError for one that never fits."""
    try:
        for side in sides:
            side.open()
        return True
    except EngineError:
        for side in sides:
            side.alone = [other for other in sides if other is not side]
        for side in sides:
            side.open()
        return False


class _Side:
    """A column with its engine. ``alone``: those that must be closed while this one is open."""

    alone: Sequence[_Side] = ()

    def __init__(self, asked: Asked, of: Column) -> None:
        self._asked, self.column = asked, of
        self._client: EngineClient | None = None
        self._meter: Meter | None = None
        self.name = ""
        self.tokenizer: Tokenizer | None = None
        self.answers: dict[str, list[Answer]] = {}

    @property
    def client(self) -> EngineClient:
        """Its engine, with the model loaded and the switches set."""
        return self.open()

    def open(self) -> EngineClient:
        """Load it, unless it is. Raises EngineError, ModelNotFound."""
        if self._client is None:
            for other in self.alone:
                other.close()
            known = find_model(self.column.model or self._asked.columns[0].model)
            draft = known.draft if self.column.draft is None else self.column.draft
            asked = self._asked
            options = LoadOptions(quantise=self.column.quantise, device=asked.device, context=_context(asked))
            client = EngineClient()
            try:
                card, _ = client.load(known.path, draft and find_model(draft).path, options)
                for key, value in self.column.set.items():
                    if option(key).scope == "engine":
                        client.set(key, value)
            except (EngineError, ModelNotFound):
                client.close()
                raise
            self._client, self._meter = client, Meter(client.model.device)
            self.name, self.tokenizer = card.name, client.model.tokenizer
            if self.tokenizer is None:
                self.close()
                raise EngineError(f"{card.name} has no tokenizer: it can be asked nothing.")
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
            release_memory()

    def promises(self, first: _Side) -> bool:
        """Whether this column is to write what the first one writes."""
        mine, other = self.column, first.column
        alike = (mine.model or other.model, mine.quantise) == (other.model, other.quantise)
        keys_of = {*mine.set, *other.set}
        return alike and all(
            option(key).exactness_of(each.set[key]) == "lossless"
            for key in keys_of
            for each in (mine, other)
            if key in each.set
        )

    def encoded(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """As this column's model reads them; without a chat template as plain text."""
        found = []
        for prompt in prompts:
            chat = [ChatMessage(role="user", content=prompt.text)]
            try:
                found.append(self.client.model.encode_prompt(prompt.text if prompt.plain else chat))
            except PromptError:
                found.append(self.client.model.encode_prompt(prompt.text))
        return found

    def text(self, ids: Sequence[int]) -> str:
        assert self.tokenizer is not None
        return self.tokenizer.decode(list(ids))

    def run(self, kind: str, prompts: Sequence[Sequence[int]]) -> Side:
        """All prompts in turn."""
        asked, reloaded, client = self._asked, self._client is None, self.client
        sampling = Sampling(temperature=asked.temperature, max_tokens=asked.tokens, seed=asked.seed, ignore_eos=True)
        switches = {key: value for key, value in self.column.set.items() if option(key).scope == "request"}
        if reloaded:
            client.answer(prompts[0], structs.replace(sampling, max_tokens=2), switches)
        before = self._joules()
        answers = self.answers[kind] = [client.answer(ids, sampling, switches) for ids in prompts]
        spent = self._joules() - before
        written = sum(len(answer.ids) for answer in answers)
        seconds = sum(sum(answer.gaps) for answer in answers)
        proposed = sum(answer.timings.proposed for answer in answers)
        tokens = max(len(ids) + len(answer.ids) for ids, answer in zip(prompts, answers, strict=True))
        return {
            "speed": (written - len(answers)) / seconds if seconds else 0.0,
            "first": statistics.mean(answer.timings.ttft_ms for answer in answers),
            "memory": held(client.model, tokens),
            "per_step": written / max(1, sum(answer.timings.steps for answer in answers)),
            "accepted": 100 * sum(answer.timings.accepted for answer in answers) / proposed if proposed else 0.0,
            "joules": spent / max(1, written),
        }

    def _joules(self) -> float:
        """What the GPU has taken until now; 0 where nothing tells."""
        reading = self._meter.read() if self._meter is not None else None
        return (reading.joules or 0.0) if reading is not None else 0.0

    @property
    def tells_energy(self) -> bool:
        reading = self._meter.read() if self._meter is not None else None
        return reading is not None and reading.joules is not None


def _kinds(first: _Side, asked: Asked) -> Iterator[tuple[str, list[Prompt]]]:
    """Kinds of text with their prompts."""
    if asked.prompts:
        for kind in dict.fromkeys(prompt.kind for prompt in asked.prompts):
            yield kind, [prompt for prompt in asked.prompts if prompt.kind == kind]
        return
    words = plain(first.client.model)
    for key, kind in KINDS.items():
        yield kind, [Prompt(text, kind, plain=key == "code") for text in words[key][:PROMPTS]]


def _measured(
    asked: Asked, sides: Sequence[_Side], kind: str, prompts: Sequence[Prompt], show: Callable[[LabLine], object]
) -> KindFigures:
    read = [side.encoded(prompts) for side in sides]
    energy = (Measured("joules", JOULES),) if all(side.tells_energy for side in sides) else ()
    rounds = asked.pairs or (RELOADED_ROUNDS if sides[0].alone else 0)
    pairs = Pairs(Lab(sides[0].client, asked.seed, rounds, asked.seconds), kind, (*MEASURED, *energy))
    for progress in pairs.run([partial(side.run, kind, ids) for side, ids in zip(sides, read, strict=True)]):
        show(progress)
    places = range(len(prompts))
    return KindFigures(
        kind=kind,
        prompts=[prompt.text for prompt in prompts],
        figures=pairs.figures(),
        texts=[[_text(sides[0], side, kind, place, read[0][place]) for side in sides[1:]] for place in places],
    )


def _text(first: _Side, side: _Side, kind: str, place: int, prompt: Sequence[int]) -> LabText:
    """How a column's answer to a prompt differs from the first one's, and how near the scores were."""
    one, two = first.answers[kind][place].ids, side.answers[kind][place].ids
    texts_of = [first.text(one), side.text(two)]
    alike = _same_tokens(first, side)
    if one == two if alike else texts_of[0] == texts_of[1]:
        return LabText(same=True, tokens=len(one), sentence=f"Identical, {len(one)} tokens.", texts=texts_of)
    if not alike:
        return LabText(same=False, tokens=len(one), sentence="Another text, in other tokens.", texts=texts_of)
    at = common(one, two)
    gap = math.inf
    if first.name == side.name and at < min(len(one), len(two)):
        gap = gap_of(first.client.model, [*prompt, *one[:at]], one[at], two[at])
    sentence = f"Differs from token {at + 1} on.{apart(gap)}"
    return LabText(same=False, tokens=len(one), at=at, sentence=sentence, near_tie=gap < NEAR_TIE, texts=texts_of)


def _same_tokens(first: _Side, side: _Side) -> bool:
    """Whether ids mean the same in both."""
    assert first.tokenizer is not None
    assert side.tokenizer is not None
    return first.tokenizer.difference(side.tokenizer) == ""


def _context(asked: Asked) -> int:
    """Tokens that a column must hold: no more, so that several fit. No token stands for less than a character of a
    text or of a prompt's frame, as far as one is known before a model is loaded."""
    longest = max((len(prompt.text) for prompt in asked.prompts), default=0)
    return max(LEAST_CONTEXT, longest + FRAME + asked.tokens, min(len(asked.text), MOST_TOKENS))


def held(model: LoadedModel, tokens: int) -> float:
    """Bytes of a model's weights and of its cache with so many tokens, its draft's too."""
    return model.fit.weights + model.fit.draft_weights + sum(bytes_of(store, tokens) for store in model.stores)


def _quality(asked: Asked, sides: Sequence[_Side], together: bool) -> tuple[list[ColumnQuality | None], list[str]]:
    """Of each column after the first, on the user's text; where there is none, why."""
    none: list[ColumnQuality | None] = [None] * (len(sides) - 1)
    if not asked.text:
        return none, ["Perplexity and KL: no text was given to score."]
    if not together:
        return none, ["Perplexity and KL: the models do not fit side by side."]
    found, absent = none, []
    first = sides[0]
    for place, side in enumerate(sides[1:]):
        name = side.column.name
        if not _same_tokens(first, side) or first.client.model.card.vocabulary != side.client.model.card.vocabulary:
            absent.append(f"Perplexity and KL of {name}: its model has another vocabulary.")
            continue
        exact, present = (_reader(each) for each in (first, side))
        if exact is None or present is None:
            absent.append(f"Perplexity and KL of {name}: its model cannot score a text.")
            continue
        loaded = first.client.model
        assert loaded.tokenizer is not None
        ids = loaded.tokenizer.encode(asked.text)[: min(loaded.card.context, side.client.model.card.context)]
        try:
            scores = scored(score(ids, exact, present, loaded.card.vocabulary, name))
        except ValueError as error:
            absent.append(f"Perplexity and KL of {name}: {error}")
            continue
        found[place] = ColumnQuality(
            first=scores.exact,
            perplexity=scores.present,
            kl=scores.divergence,
            same_top=scores.same_top,
            tokens=scores.tokens,
        )
    return found, absent


def _reader(side: _Side) -> ReaderFactory | None:
    """Reads as requests of this column do."""
    loaded = side.client.model
    if loaded.readers is None:
        return None
    values = {key: spec.value for key, spec in side.client.state().items()} | side.column.set
    # QUEST chooses pages from the first row on, as where its cost is measured elsewhere.
    settings = PolicySettings(int(values[keys.WINDOW_TOKENS]), int(values[keys.QUEST_TOKENS]), 1)
    return loaded.readers(POLICIES[str(values[keys.PAGE_POLICY])](settings)).present
