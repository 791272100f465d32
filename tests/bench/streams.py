"""`python -m tests.bench streams`: answers at once over HTTP, Kvasir's server next to llama.cpp's on one GGUF file.

Both hold the model all the time and take turns in each round, in an order drawn by lot. All streams of a turn are asked
for at the same moment, each with a text of its own; temperature is 1, and no answer ends before its last token.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import httpx
import msgspec

from engine.doors.serve import open_socket
from engine.loading.memory.environment import without_bounds
from engine.services.experiments.measures.timing import Spread, spread
from engine.services.experiments.reports.tables import say, show_table
from tests.bench.worker import last_words

PROMPT_WORDS, ROOM = 64, 512
"""Words of a prompt; tokens that a stream of llama.cpp's server may have, prompt and answer."""
_START_SECONDS = 300.0


class Asked(Protocol):
    """A running server. ``title`` names it."""

    title: str

    def turn(self, prompts: Sequence[str], tokens: int) -> Turn:
        """Have all prompts answered at once. Raises RuntimeError where one fails."""


class Turn(NamedTuple):
    """Seconds of all answers; of the middle one until its first token; tokens of all together."""

    seconds: float
    first: float
    tokens: int

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds


class Server:
    """A program that answers `/v1/completions` on a port of this machine."""

    def __init__(self, title: str, port: int, token: str = "") -> None:
        self.title, self._url, self._token = title, f"http://127.0.0.1:{port}", token

    def turn(self, prompts: Sequence[str], tokens: int) -> Turn:
        """Implements :meth:`Asked.turn`."""
        return asyncio.run(self._turn(prompts, tokens))

    async def _turn(self, prompts: Sequence[str], tokens: int) -> Turn:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=self._url, headers=headers, limits=limits, timeout=None) as client:
            began = time.perf_counter()
            answers = await asyncio.gather(*(self._answer(client, each, tokens) for each in prompts))
            seconds = time.perf_counter() - began
        first = sorted(came - began for came, _ in answers)[len(answers) // 2]
        return Turn(seconds, first, sum(count for _, count in answers))

    async def _answer(self, client: httpx.AsyncClient, prompt: str, tokens: int) -> tuple[float, int]:
        """The moment of its first token, and how many came."""
        body = {
            "prompt": prompt,
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 1,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        first, count = 0.0, 0
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            if answer.is_error:
                raise RuntimeError(f"{self.title}: {(await answer.aread()).decode(errors='replace')}")
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                first = first or time.perf_counter()
                if usage := json.loads(line.removeprefix("data: ")).get("usage"):
                    count = usage["completion_tokens"]
        if count != tokens:
            raise RuntimeError(f"{self.title} wrote {count} tokens instead of {tokens}")
        return first, count


@contextmanager
def llama_server(program: Path, model: Path, threads: int, most: int) -> Iterator[Server]:
    """llama.cpp's server with room for ``most`` streams. Raises RuntimeError where it does not start."""
    with open_socket("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    command = [str(program), "-m", str(model), "--port", str(port), "-np", str(most), "-c", str(most * ROOM)]
    with _running([*command, "-t", str(threads), "-tb", str(threads)], port, without_bounds(os.environ)):
        yield Server("llama.cpp", port)


@contextmanager
def kvasir_server(model: Path, threads: int) -> Iterator[Server]:
    """Kvasir's server as it starts by itself. Raises RuntimeError where it does not start."""
    with tempfile.TemporaryDirectory(prefix="kvasir-bench-") as home:
        with open_socket("127.0.0.1", 0) as free:
            port = free.getsockname()[1]
        variables = {"KVASIR_HOME": home, "XDG_RUNTIME_DIR": home, "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "engine.doors.cli.main", "serve", "--model", str(model), "--port", str(port)]
        with _running(command, port, {**os.environ, **variables}):
            token = next(Path(home).rglob(f"token-{port}")).read_text().strip()
            yield Server("Kvasir", port, token)


@contextmanager
def _running(command: Sequence[str], port: int, environment: dict[str, str]) -> Iterator[None]:
    """The program from the moment when it is ready."""
    with tempfile.TemporaryFile("w+") as words:
        process = subprocess.Popen(command, stdout=words, stderr=words, env=environment)
        try:
            until = time.monotonic() + _START_SECONDS
            while not _ready(port):
                if process.poll() is not None or time.monotonic() > until:
                    words.seek(0)
                    raise RuntimeError(f"{command[0]} did not start: {last_words(words.read())}")
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait()


def _ready(port: int) -> bool:
    """Both say at /health whether a model is loaded: llama.cpp by its status, Kvasir by a field."""
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/health", timeout=10)
    except httpx.TransportError:
        return False
    return answer.is_success and answer.json().get("model", True) is not None


class StreamsRow(msgspec.Struct, frozen=True):
    """One server with so many streams: tokens a second of all together, and seconds until the middle one's first token.

    ``ratio``: Kvasir's speed over this server's, by pairs of rounds; None for Kvasir itself.
    """

    program: str
    streams: int
    speed: Spread
    first: Spread
    ratio: Spread | None


class StreamsFigures(msgspec.Struct, frozen=True):
    model: str
    threads: int
    rounds: int
    tokens: int
    rows: list[StreamsRow]

    def show(self) -> None:
        title = f"{self.model}, {self.tokens} tokens a stream, {self.threads} threads, {self.rounds} rounds"
        show_table(title, "streams | program | tokens/s of all | Kvasir to it | first token", map(_cells, self.rows))


def _cells(row: StreamsRow) -> str:
    ratio = "" if row.ratio is None else str(row.ratio)
    return f"{row.streams} | {row.program} | {row.speed} | {ratio} | {row.first.median:.2f} s"


def measure_streams(
    program: Path, model: Path, counts: Sequence[int], rounds: int, threads: int, tokens: int
) -> StreamsFigures:
    """Start both servers and measure. Raises RuntimeError where one does not start or fails."""
    with ExitStack() as stack:
        ours = stack.enter_context(kvasir_server(model, threads))
        theirs = stack.enter_context(llama_server(program, model, threads, max(counts)))
        rows = in_turns(ours, theirs, counts, rounds, tokens)
    return StreamsFigures(model.name, threads, rounds, tokens, rows)


def in_turns(ours: Asked, theirs: Asked, counts: Sequence[int], rounds: int, tokens: int) -> list[StreamsRow]:
    """Rows of both for each count, after a round that counts for nothing."""
    turns: dict[tuple[str, int], list[Turn]] = {}
    draw = random.Random(0)
    for number, count in itertools.product(range(rounds + 1), counts):
        prompts = [_prompt(draw) for _ in range(count)]
        for server in draw.sample([ours, theirs], 2):
            say(f"round {number} of {rounds}, {count} at once: {server.title}")
            made = server.turn(prompts, tokens)
            if number:
                turns.setdefault((server.title, count), []).append(made)
    return [
        StreamsRow(server.title, count, speed, first, ratio)
        for count in counts
        for server in (ours, theirs)
        for mine, made in [(turns[ours.title, count], turns[server.title, count])]
        for speed, first in [(spread([each.speed for each in made]), spread([each.first for each in made]))]
        for ratio in [None if server is ours else spread([a.speed / b.speed for a, b in zip(mine, made, strict=True)])]
    ]


def _prompt(draw: random.Random) -> str:
    """Words that nobody knows, so that nothing of it is in a cache and nothing can be guessed."""
    return " ".join("".join(draw.choices(string.ascii_lowercase, k=4)) for _ in range(PROMPT_WORDS))
