"""Workload of the experiments on speculation: three texts, written with draft methods and without."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from engine.decoding.telemetry.pairs import LEAST
from engine.loading.model import LoadedModel
from engine.protocol import Metric, OptionSpec, Value, keys
from engine.protocol.lab import Drafts, DraftToken
from engine.services.client import Answer, EngineClient
from engine.services.experiments.experiment import Lab, LabError, Refusal
from engine.services.experiments.measures.steps import Drafted, decoding
from engine.services.experiments.pairs import Measured, Side
from engine.services.experiments.sides import PLAIN, greedy
from engine.services.experiments.workloads.conversations import too_short
from engine.services.experiments.workloads.texts import Prompt, Text, texts

AHEAD, NODES = 4, 16
"""Tokens drafted ahead in each step, and those of a tree: fixed, so that what does not pay is not switched off."""
TEXTS = {"edit": ("an edit", 3), "talk": ("free talk", 1), "noise": ("noise", 1)}
"""What each text is called, and how many prompts of it are asked. As a rule easy, hard and hopeless to foresee."""
EASY, HARD = "edit", "talk"
LEAST_CONTEXT = 512
SHORTEST, LONGEST = 16, 96
PROBE = 12
"""Tokens of the answer that tells how fast the model writes."""
SPEEDS = {key: Measured(f"{key} speed", Metric(title=f"tokens a second, {title}")) for key, (title, _) in TEXTS.items()}
PER_STEP = {
    key: Measured(f"{key} per step", Metric(title=f"tokens a step, {title}", counted=True))
    for key, (title, _) in TEXTS.items()
}


class Method(NamedTuple):
    """A draft method of the loaded model; "off" is none, and "auto" the engine's own choice. ``ahead``: tokens that it
    drafts in each step, whether that pays or not; 0 for as many as pay."""

    name: str
    title: str
    trees: bool = False
    ahead: int = AHEAD

    @property
    def switches(self) -> dict[str, Value]:
        """Its own drafts alone, accepted only where they are what the model would have written."""
        found: dict[str, Value] = {keys.SPECULATION: self.name, keys.ACCEPTANCE: "keyed"}
        if self.name not in ("off", "auto"):
            found |= {keys.NGRAM_FIRST: False, keys.NGRAM_CHATS: False, keys.DRAFT_LENGTH: self.ahead}
        return found | ({keys.TREE_NODES: NODES} if self.trees else {})


OFF = Method("off", "off")


def methods(state: Mapping[str, OptionSpec], names: Iterable[str]) -> list[Method]:
    """List those of ``names`` that the loaded model has."""
    spec = state[keys.SPECULATION]
    trees = state[keys.TREE_NODES].of_values
    return [
        Method(name, spec.titles[name], name in trees)
        for name in names
        if not spec.disabled_reason and name not in spec.disabled_choices
    ]


def refused(model: LoadedModel, state: Mapping[str, OptionSpec], names: Sequence[str]) -> Refusal | None:
    """Refuse a loaded model that has none of these methods, or no room for the texts."""
    spec = state[keys.SPECULATION]
    if not methods(state, names):
        return Refusal(spec.disabled_reason or spec.disabled_choices[names[0]], "The bundled model can show it.")
    return too_short(model, LEAST_CONTEXT, "these texts need")


def asked(lab: Lab, sides: int) -> list[Text]:
    """The three texts, in answers as long as so many sides can write in the time that there is.

    Prompts whose answers end by themselves come before those that would repeat themselves. Raises LabError.
    """
    kinds = {text.key: text for text in texts(lab.model, PROBE)}
    if not kinds.keys() >= TEXTS.keys():
        raise LabError("The model has no tokenizer, so it cannot be asked for a text. Take the bundled model.")
    prompt = kinds[EASY].prompts[-1].ids
    timings = [lab.client.answer(prompt, greedy(PROBE), PLAIN).timings for _ in range(2)][-1]
    counts = {key: count for key, (_, count) in TEXTS.items()}
    seconds = lab.budget / ((LEAST + 1) * sides)  # of a run of one side

    def reading() -> float:
        """Seconds that reading the prompts takes."""
        read = sum(len(each.ids) for key in counts for each in _first(kinds[key], counts[key]))
        return read * timings.ttft_ms / 1000 / len(prompt)

    if reading() > seconds / 2:
        counts = dict.fromkeys(counts, 1)
    writing = timings.tokens_per_second * (seconds - reading()) / sum(counts.values())
    found = {text.key: text for text in texts(lab.model, round(max(SHORTEST, min(LONGEST, writing))))}
    return [found[key]._replace(prompts=_first(found[key], count)) for key, count in counts.items()]


def _first(text: Text, count: int) -> list[Prompt]:
    return sorted(text.prompts, key=lambda each: each.sampling.ignore_eos)[:count]


class Writing:
    """One side: the texts written with one method, and what its runs gave."""

    def __init__(self, client: EngineClient, kinds: Sequence[Text], method: Method) -> None:
        self._client, self._kinds, self.method = client, kinds, method
        self.runs: list[dict[str, list[Answer]]] = []
        """Answers by text."""
        self._steps: dict[str, list[list[Drafted]]] = {text.key: [] for text in kinds}

    @property
    def answers(self) -> dict[str, list[Answer]]:
        """Those of the last run."""
        return self.runs[-1]

    def write(self) -> list[Answer]:
        """All texts once more, for what they say."""
        return [answer for kind in self._kinds for answer in self._write(kind)]

    def _write(self, kind: Text) -> list[Answer]:
        return [self._client.answer(*prompt, self.method.switches) for prompt in kind.prompts]

    def run(self) -> Side:
        figures: dict[str, float] = {}
        self.runs.append({})
        for kind in self._kinds:
            answers = self.answers[kind.key] = self._write(kind)
            self._steps[kind.key].append([step for answer in answers for step in decoding(answer.steps)])
            # The first token of an answer comes from reading the prompt, and no draft was asked for it.
            written = sum(len(answer.ids) - 1 for answer in answers)
            seconds = sum(answer.timings.total_ms - answer.timings.ttft_ms for answer in answers) / 1000
            figures[f"{kind.key} speed"] = written / max(seconds, 1e-9)
            figures[f"{kind.key} per step"] = written / max(1, sum(answer.timings.steps - 1 for answer in answers))
        return figures

    @property
    def prompts(self) -> list[list[int]]:
        """Token ids of the prompts, in the order of :meth:`all`."""
        return [prompt.ids for kind in self._kinds for prompt in kind.prompts]

    def all(self) -> list[Answer]:
        """The answers of the last run."""
        return [answer for answers in self.answers.values() for answer in answers]

    def steps(self, key: str, plain: Writing, first: int = 0) -> list[Drafted]:
        """Its steps on one text from run ``first`` on, costs in plain steps: those of the same text in the plain side's
        run beside it.

        Runs in which that had no step (its answer was one token, which comes from reading the prompt) are left out.
        """
        found = []
        for mine, beside in zip(self._steps[key][first:], plain._steps[key][first:], strict=True):
            if not beside:
                continue
            unit = statistics.median(step.cost for step in beside)
            found += [step._replace(cost=step.cost / unit, draft_cost=step.draft_cost / unit) for step in mine]
        return found

    def typical(self, key: str) -> int:
        """The answer to a text whose tokens a step are the middle of all: its place."""
        answers = self.answers[key]
        ranked = sorted(range(len(answers)), key=lambda place: len(answers[place].ids) / answers[place].timings.steps)
        return ranked[len(ranked) // 2]

    def drafts(self, key: str, place: int = 0) -> Drafts:
        """Step by step, what was drafted of one answer to a text."""
        return Drafts(steps=steps_of(self.answers[key][place], self._client.model))


def steps_of(answer: Answer, model: LoadedModel) -> list[list[DraftToken]]:
    """List the draft tokens of each step of an answer, their fate, and the step's own token; no other answer ran."""
    assert model.files is not None
    decode = model.files.tokenizer.decode
    found, place = [], 0
    for step in answer.steps:
        tokens: list[DraftToken] = []
        last, accepted = -1, 0
        for tree in step.trees:
            last, accepted = tree.accepted[-1] if tree.accepted else -1, len(tree.accepted)
            parents = range(-1, len(tree.tokens) - 1) if tree.parents is None else tree.parents
            tokens = [
                DraftToken(text=decode([token]), fate="accepted" if node in tree.accepted else "refused", parent=parent)
                for node, (token, parent) in enumerate(zip(tree.tokens, parents, strict=True))
            ]
        if step.generated > accepted:  # an answer may end with an accepted token
            tokens.append(DraftToken(text=decode([answer.ids[place + accepted]]), fate="own", parent=last))
        place += step.generated
        if tokens:
            found.append(tokens)
    return found
