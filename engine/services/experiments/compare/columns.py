"""The columns of a comparison: how they are written, and each one's engine with its model and switches."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import structs

from engine.base.lines import split_lines
from engine.catalogue import option
from engine.catalogue.option import OptionError
from engine.compute.runner.perplexity import MOST_TOKENS
from engine.library.paths import ModelNotFound, find_model
from engine.loading.memory.nvml import Meter
from engine.loading.model import LoadedModel, release_memory
from engine.protocol import LoadOptions, RemoteModel, Sampling, Value
from engine.protocol.lab import Column
from engine.services.client import Answer, EngineClient, EngineError
from engine.services.experiments.experiment import LabError
from engine.services.experiments.pairs import Side
from engine.services.experiments.workloads.conversations import bytes_of
from engine.services.experiments.workloads.texts import encoded
from engine.text.tokenizer import Tokenizer

TOKENS = 64
"""Of an answer."""
LEAST_CONTEXT, FRAME = 2048, 512
"""Tokens of a column at the least, and of what a chat template puts around a prompt at the most."""


class ComparedPrompt(msgspec.Struct, frozen=True):
    """One line of a file of prompts: ``kind`` is "prose" or "code", or a name of the user's own. ``plain``: the text is
    to be continued, and no message of a chat."""

    text: str
    kind: str = "prose"
    plain: bool = False


class ComparisonRequest(NamedTuple):
    """Columns to compare. ``prompts`` none: the built-in ones. ``text`` is scored for quality, "" for none."""

    columns: Sequence[Column]
    prompts: Sequence[ComparedPrompt] = ()
    text: str = ""
    tokens: int = TOKENS
    seed: int = 1
    pairs: int = 0
    seconds: float = 60.0
    temperature: float = 0.0
    device: str = "auto"

    @property
    def elsewhere(self) -> bool:
        """True if a model of another server has a column."""
        return any(column.remote is not None for column in self.columns)

    @property
    def sampling(self) -> Sampling:
        """Sampling of every answer. Answers have one length, unless another server writes some, which may refuse to."""
        ignore_eos = not self.elsewhere
        return Sampling(temperature=self.temperature, max_tokens=self.tokens, seed=self.seed, ignore_eos=ignore_eos)


def text_of(file: Path) -> str:
    """The text of a file. Raises LabError for one without any, OSError."""
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise LabError(f"{file} is not text in UTF-8. Save it as such, or give another file.") from None
    if not text.strip():
        raise LabError(f"{file} is empty. Give a file with text.")
    return text


def prompts_of(file: Path) -> list[ComparedPrompt]:
    """Prompts of a file: a JSON object a line in a .jsonl, else the whole text as one. Raises LabError, OSError."""
    text = text_of(file)
    if file.suffix != ".jsonl":
        return [ComparedPrompt(text)]
    try:
        found = [msgspec.json.decode(line, type=ComparedPrompt) for line in split_lines(text) if line.strip()]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise LabError(f'{file} is not a file of prompts, a {{"text": …, "kind": …}} in each line: {error}.') from None
    if not all(prompt.text.strip() for prompt in found):
        raise LabError(f"{file} has a prompt without text. Take it out.")
    return found


def parse_column(text: str) -> Column:
    """A column as the command line has it: ``NAME: key=value, key=value``, the name may be left out.

    ``model``, ``draft`` and ``quantise`` are keys as well as every switch; with ``server`` the model is that server's.
    A text that begins with a brace is a :class:`Column` as JSON, in which names and paths may hold any sign. Raises
    :class:`LabError`.
    """
    if text.startswith("{"):
        try:
            read = msgspec.json.decode(text, type=Column)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise LabError(f"A column is not a JSON object of a name, a model and settings: {error}.") from None
        return structs.replace(read, set=parsed_switches(read.set))
    name, colon, rest = text.partition(":")
    if not colon or "=" in name:
        name, rest = "", text
    values: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in rest.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise LabError(f"{part!r} is not KEY=VALUE, such as kv_kind=int8.")
        values[key.strip()] = value.strip()
    quantise = values.pop("quantise", "none")
    if quantise not in ("none", "nf4", "int4", "int8"):
        raise LabError(f"A column's quantise is none, nf4, int4 or int8, not {quantise!r}.")
    model, draft, server = values.pop("model", ""), values.pop("draft", None), values.pop("server", "")
    return Column(
        name=name.strip() or rest.strip() or "baseline",
        model="" if server else model,
        remote=RemoteModel(server=server, model=model) if server else None,
        draft="" if draft == "none" else draft,
        quantise=quantise,  # type: ignore[arg-type]
        set=parsed_switches(values),
    )


def parsed_switches(values: Mapping[str, Value]) -> dict[str, Value]:
    """Values of switches in their own types. Raises LabError."""
    try:
        return {key: option(key).parse(value) for key, value in values.items()}
    except OptionError as error:
        raise LabError(str(error)) from None


class ColumnEngine:
    """A column with its engine. ``alone``: those that must be closed while this one is open."""

    alone: Sequence[ColumnEngine] = ()

    def __init__(self, request: ComparisonRequest, of: Column) -> None:
        self._request, self.column = request, of
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
            known = find_model(self.column.model or self._request.columns[0].model)
            draft = known.draft if self.column.draft is None else self.column.draft
            request = self._request
            options = LoadOptions(quantise=self.column.quantise, device=request.device, context=_context(request))
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
            files = client.model.files
            if files is None:
                self.close()
                raise EngineError(f"{card.name} has no tokenizer: it can be asked nothing.")
            self.name, self.tokenizer = card.name, files.tokenizer
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
            release_memory()

    def promises(self, first: ColumnEngine) -> bool:
        """Return True if this column must write what the first one writes: one model, and lossless switches alone."""
        mine, other = self.column, first.column
        alike = (mine.model or other.model, mine.quantise) == (other.model, other.quantise)
        keys_of = {*mine.set, *other.set}
        return alike and all(
            option(key).exactness_of(each.set[key]) == "lossless"
            for key in keys_of
            for each in (mine, other)
            if key in each.set
        )

    def encoded(self, prompts: Sequence[ComparedPrompt]) -> list[list[int]]:
        """Encode the prompts as this column's model reads them; without a chat template as plain text."""
        return [encoded(self.client.model, prompt.text, chat=not prompt.plain) for prompt in prompts]

    def text(self, ids: Sequence[int]) -> str:
        assert self.tokenizer is not None
        return self.tokenizer.decode(list(ids))

    @property
    def token_length(self) -> float:
        """Characters of a token, in the mean over its last answers."""
        answers = [answer.ids for answers in self.answers.values() for answer in answers]
        return sum(len(self.text(ids)) for ids in answers) / max(1, sum(map(len, answers)))

    def asking(self, kind: str, prompts: Sequence[ComparedPrompt]) -> Callable[[], Side]:
        """What answers all prompts in turn."""
        return partial(self._run, kind, self.encoded(prompts))

    def _run(self, kind: str, prompts: Sequence[Sequence[int]]) -> Side:
        reloaded, client, sampling = self._client is None, self.client, self._request.sampling
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
            "total": statistics.mean(answer.timings.total_ms for answer in answers),
            "cached": sum(answer.usage.cached_tokens for answer in answers),
            "memory": held(client.model, tokens),
            "per_step": written / max(1, sum(answer.timings.steps for answer in answers)),
            "accepted": 100 * sum(answer.timings.accepted for answer in answers) / proposed if proposed else 0.0,
            "joules": spent / max(1, written),
        }

    def _joules(self) -> float:
        """Energy that the GPU has taken until now, in joules; 0 if nothing reports it."""
        reading = self._meter.read() if self._meter is not None else None
        return (reading.joules or 0.0) if reading is not None else 0.0

    @property
    def tells_energy(self) -> bool:
        reading = self._meter.read() if self._meter is not None else None
        return reading is not None and reading.joules is not None


def _context(request: ComparisonRequest) -> int:
    """Tokens that a column must hold: no more, so that several fit. No token stands for less than a character of a
    text or of a prompt's frame, as far as one is known before a model is loaded."""
    longest = max((len(prompt.text) for prompt in request.prompts), default=0)
    return max(LEAST_CONTEXT, longest + FRAME + request.tokens, min(len(request.text), MOST_TOKENS))


def held(model: LoadedModel, tokens: int) -> float:
    """Bytes of a model's weights and of its cache with so many tokens, its draft's too."""
    return model.fit.weights + model.fit.draft_weights + sum(bytes_of(store, tokens) for store in model.stores)
