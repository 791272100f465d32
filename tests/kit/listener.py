"""What an engine tells, collected by request."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.decoding.telemetry.records import StepRecord
from engine.protocol import Delta, Error, Finished, FinishReason, Source, TokenInfo


@dataclass
class Answer:
    """What the listener saw of one answer."""

    infos: list[TokenInfo] = field(default_factory=list)
    text: str = ""
    finished: Finished | None = None

    @property
    def tokens(self) -> list[int]:
        return [info.id for info in self.infos]

    @property
    def sources(self) -> list[Source]:
        return [info.source for info in self.infos]

    @property
    def reason(self) -> FinishReason | None:
        return self.finished.reason if self.finished else None


class Listener:
    """Collects events by request and checks what must hold of any stream of them."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], Answer] = {}
        self.errors: list[Error] = []
        self.steps: list[StepRecord] = []
        self.others: list[object] = []

    def __call__(self, event: object) -> None:
        match event:
            case Delta(id=id, answer=number, text=text, tokens=infos):
                answer = self.answers.setdefault((id, number), Answer())
                assert answer.finished is None, "tokens after the end"
                assert sum(info.chars for info in infos) <= len(text)
                answer.infos.extend(infos)
                answer.text += text
            case Finished():
                answer = self.answers.setdefault((event.id, event.answer), Answer())
                assert answer.finished is None, "finished twice"
                assert event.usage.generated_tokens == len(answer.infos), "the count of tokens is exact"
                answer.finished = event
            case Error():
                self.errors.append(event)
            case StepRecord():
                self.steps.append(event)
            case _:
                self.others.append(event)
