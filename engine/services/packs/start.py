"""Start the engine from the GPU pack in use, or say why not. Standard library only: every command passes through here.

``active.json`` in the folder of packs names the pack in use::

    folder, kind    the pack's own folder and its kind
    tested          the fingerprint with which its self-test passed
    refused, reason the fingerprint with which it failed last, and the sentence that says how
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from engine.base import folders, installation
from engine.base.files import UnreadableFileError, read_json
from engine.services.packs import marker
from engine.services.packs.fingerprint import fingerprint, installed_version
from engine.services.packs.launch import BACK, FAILED, SELF_TEST, site_packages

COMMANDS = frozenset({"serve", "chat", "doctor", "bench", "lab", "compare", "models", "train-heads", "quantise"})
"""The commands that compute."""
REASON = "KVASIR_GPU_PACK_REASON"
SWITCH = "KVASIR_GPU_PACK"
TEST_SECONDS = 120.0
RETEST_SECONDS = 45.0
"""For a self-test before a start: the window waits 60 s for its engine, and the CPU engine is to be ready by then."""


class NotUsed(Exception):  # noqa: N818 - an outcome that a person is told about
    """The pack is there and the CPU engine goes on; the message is a sentence for a person."""


class SelfTest(NamedTuple):
    """Outcome of a self-test. ``timed_out``: it says nothing about the pack, which may do better next time."""

    ok: bool
    sentence: str
    facts: dict[str, str]
    timed_out: bool = False


def redirect(argv: list[str]) -> None:
    """Continue in the GPU pack, without returning, if ``argv`` is a command that computes and a tested pack fits.

    Else return, with the reason in ``KVASIR_GPU_PACK_REASON`` where there is a pack.
    """
    if installation.pack() is not None or not computes(argv[1:]):
        return
    os.environ.pop(REASON, None)
    packs = folders.packs_place()
    try:
        pack = usable(packs)
        if pack is None:
            return
        if argv[1] == "serve" and "--child" in argv:
            with contextlib.suppress(OSError):  # a full disk is no reason to leave the GPU alone
                marker.begin(packs)
        _go_on([*installation.pack_command(pack), *argv[1:]])
    except NotUsed as refusal:
        os.environ[REASON] = str(refusal)
    except OSError as error:
        marker.clear(packs)
        os.environ[REASON] = (
            f"The GPU pack could not be started ({error.strerror or error}). `kvasir gpu repair` may help."
        )


def computes(arguments: list[str]) -> bool:
    """Return True if a command line is for the pack. ``--device cpu`` is not: the program's own engine starts sooner,
    and is the way round a GPU that makes trouble."""
    if not arguments or arguments[0] not in COMMANDS or not {"-h", "--help"}.isdisjoint(arguments):
        return False
    if arguments[0] == "models" and not _computing(arguments[1:]):
        return False
    return "--device=cpu" not in arguments and ("--device", "cpu") not in itertools.pairwise(arguments)


def _computing(models: list[str]) -> bool:
    """Return True if this of `kvasir models` computes."""
    return models[:1] in (["check"], ["fit"], ["recommended"])


def usable(packs: Path) -> Path | None:
    """The folder of the pack in use, tested where that is due; None where there is none. Raises :class:`NotUsed`."""
    found = chosen(packs)
    if found is None:
        return None
    pack, active = found
    if active.get("tested") != (now := fingerprint()):
        _test_again(packs, pack, active, now)
    return pack


def chosen(packs: Path) -> tuple[Path, dict[str, Any]] | None:
    """The folder of the pack in use, whether it is due to be tested or not, and what ``active.json`` says; None where
    there is none. Raises :class:`NotUsed`."""
    active = read_active(packs)
    if active is None:
        return None
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no"):
        raise NotUsed(f"The GPU pack is not used because {SWITCH}={os.environ[SWITCH]} is set.")
    if failed := os.environ.pop(FAILED, ""):
        raise NotUsed(failed)  # launch.py has come back
    pack = _pack_of(packs, active)
    if marker.deaths(packs) >= marker.MAX_DEATHS:
        raise NotUsed(
            f"The GPU pack is not used: its engine ended {marker.MAX_DEATHS} times while it was starting. "
            "`kvasir gpu check` tests it, and uses it again if it passes."
        )
    return pack, active


def read_active(packs: Path) -> dict[str, Any] | None:
    """Read ``active.json``; None if there is none. Raises :class:`NotUsed` if it makes no sense."""
    try:
        active = read_json(packs / "active.json")
    except UnreadableFileError as error:
        raise NotUsed(
            f"The note on which GPU pack is in use cannot be read. {error.reason} `kvasir gpu check` writes it again."
        ) from error
    if active is None:
        return None
    if not isinstance(active.get("folder"), str):
        raise NotUsed("The note on which GPU pack is in use says nothing. `kvasir gpu check` writes it again.")
    return active


def write_active(packs: Path, active: Mapping[str, Any]) -> None:
    """Write ``active.json``, all of it or nothing. Raises OSError."""
    draft = packs / f"active.json.{os.getpid()}"
    try:
        draft.write_text(json.dumps(dict(active)), "utf-8")
        draft.replace(packs / "active.json")
    finally:
        draft.unlink(missing_ok=True)


def activate(packs: Path, folder: str, kind: str) -> None:
    """Use the pack in ``folder`` from now on: its self-test has passed here and now. Raises OSError."""
    write_active(packs, {"folder": folder, "kind": kind, "tested": fingerprint()})
    marker.clear(packs)


def self_test(pack: Path, seconds: float = TEST_SECONDS) -> SelfTest:
    """Run a pack's self-test in a process of its own, for at most ``seconds``."""
    command = [*installation.pack_command(pack), SELF_TEST]
    try:
        done = subprocess.run(
            command, env=environment(os.environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return SelfTest(False, f"The GPU pack's self-test did not end within {seconds:.0f} seconds.", {}, True)
    except OSError as error:
        return SelfTest(False, f"The GPU pack's interpreter could not be started ({error.strerror or error}).", {})
    for line in reversed(done.stdout.decode(errors="replace").splitlines()):
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            report = json.loads(line)
            facts = {str(name): str(fact) for name, fact in report["facts"].items()}
            return SelfTest(bool(report["ok"]) and done.returncode == 0, str(report["sentence"]), facts)
    words = done.stderr.decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(words) if line.strip()), f"exit code {done.returncode}")
    return SelfTest(False, f"The GPU pack's self-test ended early ({last[:300]}).", {})


def environment(outer: Mapping[str, str]) -> dict[str, str]:
    """The variables that a pack's engine gets: the user's, without those of Python and of the packaged program."""
    inner = {
        name: value
        for name, value in installation.without_own_libraries(outer).items()
        if not name.startswith(("PYTHON", "_PYI", "_MEI", REASON))
    }
    if version := installed_version():
        inner["KVASIR_VERSION"] = version
    # What is compiled for this GPU lies with what else can be made again, and goes with it.
    inner.setdefault("TRITON_CACHE_DIR", str(folders.cache_place() / "triton"))
    inner.setdefault("CUDA_CACHE_PATH", str(folders.cache_place() / "cuda"))
    return inner


def _pack_of(packs: Path, active: Mapping[str, Any]) -> Path:
    name = active["folder"]
    pack = packs / name
    if Path(name).name != name or name in ("", ".", "..") or not os.path.isdir(pack):
        raise NotUsed("The GPU pack's folder is gone. `kvasir gpu install` makes it again.")
    try:
        note = read_json(pack / "pack.json") or {}
        made_for, broken = str(note["python"]), note.get("broken", "")
        damaged = damaged_library(pack, note.get("libraries", {}))
    except (UnreadableFileError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotUsed(f"The GPU pack is incomplete ({error}). `kvasir gpu repair` completes it.") from error
    if broken:
        raise NotUsed(f"The GPU pack is not used. {broken} `kvasir gpu repair` puts it right.")
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if made_for.split(".")[:2] != ours.split(".") or not site_packages(pack).is_dir():
        raise NotUsed(
            f"The GPU pack was made for Python {made_for}, and this version of Kvasir runs on {ours}. "
            "`kvasir gpu install` makes one that fits."
        )
    if damaged:
        raise NotUsed(
            f"The GPU pack is not used: its file {Path(damaged).name} is missing or damaged. "
            "`kvasir gpu repair` downloads it again."
        )
    if not installation.python().is_file():
        raise NotUsed(f"The interpreter {installation.python()} is missing. Install Kvasir again.")
    return pack


def damaged_library(pack: Path, libraries: Mapping[str, int]) -> str:
    """The first of a pack's shared libraries that is not there, or not in its size; "" where all are."""
    for name, size in libraries.items():
        try:
            if os.stat(pack / name).st_size != size:
                return name
        except OSError:
            return name
    return ""


def _test_again(packs: Path, pack: Path, active: dict[str, Any], now: str) -> None:
    """Raises :class:`NotUsed` where the pack fails, at once where it has failed on the same machine before."""
    if active.get("refused") == now:
        raise NotUsed(str(active.get("reason", "The GPU pack's self-test failed.")))
    _say("The driver, the GPU or Kvasir has changed; the GPU pack is being tested.")
    result = self_test(pack, RETEST_SECONDS)
    if result.ok:
        active = {name: value for name, value in active.items() if name not in ("refused", "reason")}
        marker.clear(packs)
    reason = f"{result.sentence} The engine runs on the processor. `kvasir gpu check` tests the pack again."
    now = fingerprint()  # some drivers are loaded by the first that asks for them
    if not result.timed_out:
        with contextlib.suppress(OSError):  # it is tested again next time
            write_active(packs, active | ({"tested": now} if result.ok else {"refused": now, "reason": reason}))
    if not result.ok:
        _say(reason)
        raise NotUsed(reason)


def _say(sentence: str) -> None:
    sys.stderr.write(f"kvasir: {sentence}\n")
    sys.stderr.flush()


def _go_on(command: list[str]) -> NoReturn:
    """Standard input and output are handed on as they are. Raises OSError."""
    inner = environment(os.environ)
    if installation.packaged():  # a checkout's own start may need variables that the pack does not get
        inner[BACK] = json.dumps(installation.engine_command())
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if os.name == "posix":
        os.execve(command[0], command, inner)
    process = subprocess.Popen(command, env=inner)
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # the engine gets it too, and decides
            sys.exit(process.wait())
