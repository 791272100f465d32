"""A column that a model of another server answers: what is seen of it from here, and why the rest is not."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

from engine.base.fetching.errors import FetchFailed
from engine.protocol import ChatMessage, Delta, Generate, ListRemotes, RemoteModel, Timings, Usage
from engine.protocol.lab import Column, LabText
from engine.protocol.operations import ANSWER_REMOTELY, LIST_REMOTES
from engine.services.answers.continuing import common
from engine.services.experiments.compare.columns import ComparedPrompt, ComparisonRequest
from engine.services.experiments.pairs import Side
from engine.services.operations import OperationFailed, perform

UNSEEN = "Not seen from here: it runs on another server."
ENDED = "This column ended early."
PIECES = "Pieces of its stream, as the server tells no counts of tokens."
AT_ONCE = "The server sends an answer in one piece."
NOT_TOLD = "The server does not tell it."
UNPROVED = (
    "Whether {} is lossless cannot be proved: there another program computes, with seeds, a tokenizer and kernels of "
    "its own, and tells no tokens. So only texts are compared."
)
TAKEN = (
    " Other servers are timed from here, the way to them included, and may have a prompt in their cache after its "
    "first time. They are asked in chats alone, so all columns were; answers end where their model ends them."
)


class _Answer(NamedTuple):
    """``arrivals`` of its pieces, by time.perf_counter()."""

    usage: Usage
    timings: Timings
    arrivals: list[float]


class RemoteColumn:
    """A failure there ends this column with its sentence, and no other one."""

    def __init__(self, request: ComparisonRequest, of: Column, remote: RemoteModel) -> None:
        self._request, self.column, self._remote = request, of, remote
        self.name = f"{remote.model} on {_place(remote.server)}"
        self.failed = ""
        self._texts: dict[str, list[str]] = {}
        self._whole: dict[str, int] = {}
        """Number of the texts, by their kind, that came to their ends."""
        self._remarks: dict[str, str] = {}

    def close(self) -> None:
        """Nothing is open between its answers."""

    def asking(self, kind: str, prompts: Sequence[ComparedPrompt]) -> Callable[[], Side]:
        """What answers all prompts in turn; from a failure on it gives no figures."""
        return partial(self._run, kind, prompts)

    def _run(self, kind: str, prompts: Sequence[ComparedPrompt]) -> Side:
        texts: list[str] = []
        if self.failed:
            return {}
        try:
            answers = [self._answer(prompt.text, texts) for prompt in prompts]
        except (OperationFailed, FetchFailed) as error:
            self.failed = str(error)
            self._whole.setdefault(kind, len(texts) - 1)
            self._texts.setdefault(kind, texts)
            return {}
        self._texts[kind], self._whole[kind] = texts, len(texts)
        return self._figures(answers)

    def _answer(self, prompt: str, texts: list[str]) -> _Answer:
        """The answer to one prompt; what came of its text is added to ``texts``, however it ends."""
        arrivals: list[float] = []
        texts.append("")

        def take(delta: Delta) -> None:
            arrivals.append(time.perf_counter())
            texts[-1] += delta.text

        chat = [ChatMessage.of("user", prompt)]
        request = Generate(id="compare", prompt=chat, sampling=self._request.sampling, remote=self._remote)
        end = perform(ANSWER_REMOTELY, request, take)
        if not arrivals:
            raise OperationFailed(f"{self._remote.server} gave an empty answer. Choose another prompt or model.")
        return _Answer(end.usage, end.timings, arrivals)

    def _figures(self, answers: Sequence[_Answer]) -> Side:
        figures = {
            "first": statistics.mean(answer.timings.ttft_ms for answer in answers),
            "total": statistics.mean(answer.timings.total_ms for answer in answers),
        }
        counted = all(answer.usage.generated_tokens for answer in answers)
        seconds = sum(answer.arrivals[-1] - answer.arrivals[0] for answer in answers)
        if seconds > 0:
            written = [answer.usage.generated_tokens if counted else len(answer.arrivals) for answer in answers]
            figures["speed"] = (sum(written) - len(answers)) / seconds
        if all(answer.usage.cached_told for answer in answers):
            figures["cached"] = sum(answer.usage.cached_tokens for answer in answers)
        self._remarks = {
            "speed": AT_ONCE if "speed" not in figures else "" if counted else PIECES,
            "cached": "" if "cached" in figures else NOT_TOLD,
        }
        return figures

    def remark(self, key: str, runs: Sequence[float]) -> str:
        """The sentence on a figure of this column, or on why it has no ``runs`` of it."""
        if key not in ("speed", "first", "total", "cached"):
            return UNSEEN
        if self.failed and not runs:
            return self.failed if key == "speed" else ENDED
        return self._remarks.get(key, "")

    def compared(self, kind: str, place: int, first: str, tokens: int) -> LabText:
        """How its answer to a prompt differs from the ``first`` column's, of so many tokens."""
        texts = self._texts.get(kind, [])
        text = texts[place] if place < len(texts) else ""
        told = partial(LabText, tokens=tokens, texts=[first, text])
        if place >= self._whole.get(kind, 0):
            return told(same=False, sentence=self.failed)
        if first == text:
            return told(same=True, sentence="The same text. That its tokens are the same cannot be proved there.")
        said = f"Another text from character {common(first, text) + 1:,} on."
        return told(same=False, sentence=f"{said} Whether it is lossless cannot be proved there.")


def _place(server: str) -> str:
    """A server's name with its host, which the name may be."""
    host = ""
    with contextlib.suppress(OperationFailed):  # whoever asks the server says so
        found = perform(LIST_REMOTES, ListRemotes())
        host = next((urlsplit(each.url).netloc for each in found if each.name == server), "")
    return server if host in ("", server) else f"{server} ({host})"
