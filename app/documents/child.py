"""The process that reads one file or searches one text, with bounds on its memory and its time.

    python -m app.documents.child read PATH        answers a ReadText
    python -m app.documents.child search           reads a Search, answers a Found

After ``--language de`` it speaks German. The answer is one line of JSON on standard output. Where there is none, the
last line on standard error says why, after "kvasir: ". What a hostile file costs, it costs this process, and not the
window or the engine.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from app import language
from app.language import tr
from engine.base.installation import own_module, packaged, program

FLAG = "--documents"
"""Argument with which the packaged window is this process."""
MEMORY_BYTES = 1536 << 20
SECONDS = 60.0
LOOK_S = 0.1
_LANGUAGE = "--language"


def command() -> list[str]:
    """Command that starts this process, which speaks the window's language; "read" and a path follow, or "search"."""
    start = [str(program("kvasir-window")), FLAG] if packaged() else own_module("app.documents.child")
    return start if language.code() == "en" else [*start, _LANGUAGE, language.code()]


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0, or 1 where there is no answer."""
    if len(arguments) > 1 and arguments[0] == _LANGUAGE:
        language.choose(arguments[1])  # before modules that hold texts
        arguments = arguments[2:]
    name = Path(arguments[1]).name if len(arguments) > 1 else tr("The text")
    bound_memory(MEMORY_BYTES)
    threading.Thread(target=_watch, args=(name,), daemon=True).start()
    try:
        answer = _answer(arguments)
    except MemoryError:
        return _fail(_greedy(name))
    except ValueError as error:
        return _fail(str(error))
    except OSError as error:
        from app.documents.reading import refusal

        return _fail(refusal(Path(name), error))
    except Exception as error:  # a parser's own, of which there are many kinds
        return _fail(tr("{name} cannot be read ({kind}).", name=name, kind=type(error).__name__))
    sys.stdout.buffer.write(answer + b"\n")
    sys.stdout.buffer.flush()
    return 0


def bound_memory(most: int) -> None:
    """Have an allocation beyond ``most`` bytes in all fail, where the system knows that: Windows and macOS do not."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a parser that is out of memory may crash
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > most:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _answer(arguments: Sequence[str]) -> bytes:
    if arguments and arguments[0] == "search":
        from app.documents.passages import search
        from app.documents.records import PassageSearch

        return msgspec.json.encode(search(msgspec.json.decode(sys.stdin.buffer.read(), type=PassageSearch)))
    from app.documents.reading import read
    from app.documents.records import whole

    found = read(Path(arguments[1]))
    return msgspec.json.encode(msgspec.structs.replace(found, text=whole(found.text)))  # some PDFs have halves


def _fail(sentence: str) -> int:
    sys.stderr.write(f"kvasir: {sentence}\n")
    sys.stderr.flush()
    return 1


def _watch(name: str) -> None:
    """End the process once it takes too long, or more memory than it may."""
    import psutil  # the window has this module for its command alone

    process, until = psutil.Process(), time.monotonic() + SECONDS
    while time.monotonic() < until:
        if process.memory_info().rss > MEMORY_BYTES:
            _give_up(_greedy(name))
        time.sleep(LOOK_S)
    _give_up(tr("{name} took more than {seconds:.0f} seconds to read, so it was given up.", name=name, seconds=SECONDS))


def _greedy(name: str) -> str:
    memory = MEMORY_BYTES >> 20
    return tr("{name} takes more than {memory:,} MB of memory to read, so it was given up.", name=name, memory=memory)


def _give_up(sentence: str) -> None:
    _fail(sentence)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
