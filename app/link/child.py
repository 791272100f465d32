"""The engine as a child process: start it, hand it its token, read its ready line, keep its last words."""

from __future__ import annotations

import logging
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO

import msgspec

from app.language import tr
from engine import protocol
from engine.base.installation import engine_command

log = logging.getLogger("engine")

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 3.0
_NOISE = ("Traceback", " ", "\t", "^", "DEBUG", "INFO", "WARNING")
"""Starts of lines that do not say why a process ended: the inside of a traceback, and log lines of ordinary work."""


class EngineDiedError(Exception):
    """The engine is gone or unusable; the text is a sentence for people."""


class EngineProcess:
    """One run of the engine, with ``environment`` added to the window's. Raises OSError when it cannot be started.

    Its standard input stays open for as long as this object lives: the engine exits at its end of file, and the
    operating system closes the pipe however the window ends.
    """

    def __init__(self, command: Sequence[str], token: str, environment: Mapping[str, str] | None = None) -> None:
        flags = getattr(subprocess, "CREATE_NO_WINDOW", 0)
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            creationflags=flags,
            env={**os.environ, **environment} if environment else None,
        )
        self._last_words: deque[str] = deque(maxlen=20)
        self._ready: queue.SimpleQueue[protocol.Ready | None] = queue.SimpleQueue()
        self._readers = [
            self._read(self._process.stdout, self._on_output),
            self._read(self._process.stderr, self._on_error),
        ]
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(token.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            log.warning("the engine ended before it read its token")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, timeout: float = READY_TIMEOUT_S) -> protocol.Ready:
        """Raises EngineDiedError when the process ends first, stays silent, or speaks another protocol."""
        try:
            ready = self._ready.get(timeout=timeout)
        except queue.Empty:
            raise EngineDiedError(
                tr("The engine did not answer within {seconds:.0f} seconds.", seconds=timeout)
            ) from None
        if ready is None:
            raise EngineDiedError(self.obituary())
        if ready.protocol != protocol.PROTOCOL:
            raise EngineDiedError(
                tr(
                    "The engine speaks protocol {engine} and the window {window}: "
                    "install both from the same version of Kvasir.",
                    engine=ready.protocol,
                    window=protocol.PROTOCOL,
                )
            )
        return ready

    def obituary(self) -> str:
        """Sentence on how it ended: signal or exit code, with its last line on standard error if that says why."""
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return tr("The engine stopped answering.")
        for reader in self._readers:
            reader.join(timeout=0.5)
        words = next((line for line in reversed(self._last_words) if line and not line.startswith(_NOISE)), "")
        if words:
            return tr("The engine stopped ({how}): {words}.", how=_spell(code), words=words.rstrip("."))
        return tr("The engine stopped ({how}).", how=_spell(code))

    def terminate(self) -> None:
        """Do not wait for it to read its input."""
        self._process.terminate()

    def stop(self, timeout: float = STOP_TIMEOUT_S) -> None:
        """Ask it to go by closing its input; after ``timeout`` seconds insist."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:
                log.debug("the engine's input was closed already")
        for end in (lambda: None, self._process.terminate, self._process.kill):
            end()
            try:
                self._process.wait(timeout=timeout)
                break
            except subprocess.TimeoutExpired:
                continue
        for reader in self._readers:
            reader.join(timeout=1.0)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _read(self, stream: IO[bytes] | None, take: object) -> threading.Thread:
        thread = threading.Thread(target=self._pump, args=(stream, take), name="kvasir-engine-output", daemon=True)
        thread.start()
        return thread

    def _pump(self, stream: IO[bytes], take: object) -> None:
        assert callable(take)
        try:
            for line in stream:
                take(line.decode(errors="replace").rstrip())
        except (OSError, ValueError):
            log.debug("the engine's output was closed while being read")
        if take == self._on_output:
            self._ready.put(None)

    def _on_output(self, line: str) -> None:
        try:
            self._ready.put(protocol.decode_ready(line))
        except msgspec.DecodeError:
            log.info("%s", line)

    def _on_error(self, line: str) -> None:
        self._last_words.append(line)
        log.info("%s", line)


def _spell(code: int) -> str:
    if code >= 0:
        return tr("exit code {code}", code=str(code))
    try:
        return tr("signal {name}", name=signal.Signals(-code).name)
    except ValueError:
        return tr("signal {name}", name=str(-code))


def default_command() -> list[str]:
    """The engine of this installation, as a child of the window."""
    return [*engine_command(), "serve", "--child"]
