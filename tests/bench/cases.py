"""The work that engines are compared on: rows of sequences, which every one of them has to compute somehow."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec


class Case(msgspec.Struct, frozen=True):
    """A step: ``rows`` new tokens for each of ``streams`` sequences that hold ``context`` tokens already.

    ``prompt`` computes a prompt of ``rows`` tokens and wants the logits of the last; the others want those of all
    rows: ``decode`` one row for each stream, ``verify`` several of one sequence, as draft tokens are verified.
    """

    kind: Literal["prompt", "decode", "verify"]
    context: int = 0
    rows: int = 1
    streams: int = 1

    @property
    def tokens(self) -> int:
        """The tokens that a step computes."""
        return self.rows * self.streams

    @property
    def of_memory(self) -> bool:
        """Whether memory decides on its time: one row, for which all weights are read."""
        return self.kind == "decode" and self.streams == 1

    def __str__(self) -> str:
        if self.kind == "prompt":
            return f"prompt of {self.rows:,}"
        if self.kind == "verify":
            return f"verify {self.rows} rows at {self.context:,}"
        return f"decode at {self.context:,}, {self.streams} stream{'s' * (self.streams > 1)}"


class CasePlan(NamedTuple):
    """Cases to measure. One time is taken over ``steps`` steps in a row; of prompts, over one."""

    prompts: tuple[int, ...] = (128, 512, 2048)
    contexts: tuple[int, ...] = (128, 512, 2048)
    streams: tuple[int, ...] = (1, 4, 8)
    verify: tuple[int, ...] = (2, 4, 8)
    verify_context: int = 512
    steps: int = 32

    def turns(self) -> list[list[Case]]:
        """The cases, all of one kind, that a program measures in one turn: those of memory's speed have one each."""
        decodes = [
            Case("decode", context, streams=streams) for streams in sorted(self.streams) for context in self.contexts
        ]
        turns = [
            [Case("prompt", rows=tokens) for tokens in self.prompts],
            *([case] for case in decodes if case.of_memory),
            [case for case in decodes if not case.of_memory],
            [Case("verify", self.verify_context, rows) for rows in self.verify],
        ]
        return [cases for cases in turns if cases]


FULL = CasePlan()
QUICK = CasePlan(prompts=(128, 512), contexts=(128,), streams=(1, 4), verify=(4,), verify_context=128, steps=16)
STREAMS = (1, 2, 4, 8, 16, 32)
"""Sequences that a plan may be told to decode at once."""
