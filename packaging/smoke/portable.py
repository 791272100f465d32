"""Try a finished program on the system it was built for: ``python portable.py PROGRAM_FOLDER``.

Standard library only, and nothing of Kvasir's own code: the program is asked as a person would ask it. Used after an
installation on Windows, in Kvasir.app (its folder Contents/MacOS) and on Linux; ``--command`` tries other programs.
All that is written goes to a temporary folder, or to ``--home``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

WINDOWS = sys.platform == "win32"
QUESTION = "What is Kvasir?"
PATIENCE_S = 180.0
"""The longest wait for any one answer: a machine's first start reads the whole program from its disk."""


class SmokeError(Exception):
    """The program did not do what it should; the text says what and shows what it said."""


class Program:
    """The command line and the window of one installation, with a folder of their own for all that they write."""

    def __init__(self, command: list[str], window: list[str], home: Path, cwd: Path | None = None) -> None:
        self.command, self.window, self.home, self._cwd = command, window, home, cwd
        dropped = ("PYTHONPATH", "PYTHONHOME", "KVASIR_MODELS")  # of the developer's, not of the person's
        self.environment = {key: value for key, value in os.environ.items() if key not in dropped}
        self.environment |= {"KVASIR_HOME": str(home), "QT_QPA_PLATFORM": "offscreen"}

    def answer(self, *arguments: str) -> str:
        """What a command that ends says on standard output. Raises :class:`SmokeError` when it fails."""
        whole = [*self.command, *arguments]
        try:
            done = subprocess.run(
                whole,
                env=self.environment,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SmokeError(f"{shlex.join(whole)} did not end within {PATIENCE_S:.0f} s.") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace")
            raise SmokeError(f"{shlex.join(whole)} ended with {done.returncode}: {said}")
        return done.stdout.decode("utf-8")

    @contextlib.contextmanager
    def running(self, whole: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        """A command that goes on until it is told to end, as Ctrl-C does; what it says is in ``said``."""
        group = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        out = (self.home / "said.txt").open("wb")
        with out, subprocess.Popen(
            whole,
            env=self.environment,
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            creationflags=group,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    @property
    def said(self) -> str:
        return (self.home / "said.txt").read_text(encoding="utf-8", errors="replace")


def wait_for(what: str, look: Callable[[], object], process: subprocess.Popen[bytes], program: Program) -> object:
    """What ``look`` finds, sooner or later. Raises :class:`SmokeError` when the process ends first, or patience."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        if process.poll() is not None:
            raise SmokeError(f"The program ended with {process.returncode} before {what}. It said: {program.said}")
        time.sleep(0.1)
    raise SmokeError(f"Waited {PATIENCE_S:.0f} s in vain for {what}. The program said: {program.said}")


def check_version(program: Program, expected: str) -> str:
    """``kvasir --version`` prints a version, and the expected one where there is one."""
    version = program.answer("--version").strip()
    if not re.fullmatch(r"\d+\.\d+\S*", version):
        raise SmokeError(f"kvasir --version says {version!r}, which is no version.")
    if expected and version != expected:
        raise SmokeError(f"kvasir --version says {version}, and {expected} was built.")
    return version


def check_chat(program: Program) -> str:
    """The bundled model knows what it was made for."""
    text = program.answer("chat", "--prompt", QUESTION, "--max-tokens", "60", "--temperature", "0")
    return _about_kvasir(text)


def check_serve(program: Program) -> str:
    """The server answers a chat completion with its token, and refuses one without; it ends at Ctrl-C."""
    with program.running([*program.command, "serve", "--port", "0"]) as process:
        pattern = re.compile(r"listens on (http://\S+?:\d+).*?The token is in (.+?)\r?\n", re.DOTALL)
        found = wait_for("it listened", lambda: pattern.search(program.said), process, program)
        assert isinstance(found, re.Match)
        address, token = found[1], Path(found[2]).read_text(encoding="utf-8").strip()
        body = {"model": "kvasir-guide", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 60}
        # Before the model is loaded the answer is a refusal, with a sentence.
        answered = wait_for("it answered", lambda: _post(address, token, body | {"temperature": 0}), process, program)
        assert isinstance(answered, dict)
        if _post(address, "not the token", body) is not None:
            raise SmokeError("The server answered somebody without its token.")
        interrupt(process)
        if (code := _ended(process, program)) != 0:
            raise SmokeError(f"kvasir serve ended with {code} when it was told to. It said: {program.said}")
    if Path(found[2]).exists():
        raise SmokeError(f"kvasir serve left its token behind: {found[2]}")
    return _about_kvasir(str(answered["choices"][0]["message"]["content"]))


def check_window(program: Program) -> str:
    """The window becomes visible, by its own log, with its engine behind it; it ends when it is told to."""
    log = program.home / "log" / "kvasir.log"

    def visible() -> re.Match[str] | None:
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        return re.search(r"window visible after [0-9.]+ s", text)

    with program.running(program.window) as process:
        found = wait_for("the window was visible", visible, process, program)
        assert isinstance(found, re.Match)
        time.sleep(3.0)  # an engine that cannot start says so by now
        text = log.read_text(encoding="utf-8", errors="replace")
        if process.poll() is not None or "uncaught exception" in text or "The engine stopped" in text:
            raise SmokeError(f"The window opened and then something failed:\n{text}")
        if WINDOWS:
            process.kill()  # a program without a console cannot be asked, and its window is drawn nowhere
        else:
            process.send_signal(signal.SIGTERM)
        code = _ended(process, program)
        if code and not WINDOWS:
            raise SmokeError(f"The window ended with {code} when it was told to.\n{text}")
    return found[0]


def _ended(process: subprocess.Popen[bytes], program: Program) -> int:
    """The exit code of a program that was told to end. Raises :class:`SmokeError` when it does not."""
    try:
        return process.wait(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise SmokeError(
            f"The program did not end within {PATIENCE_S:.0f} s when it was told to. It said: {program.said}"
        ) from None


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C, or what of it one process can send another on Windows."""
    process.send_signal(signal.CTRL_BREAK_EVENT if WINDOWS else signal.SIGINT)  # type: ignore[attr-defined,unused-ignore]


def _post(address: str, token: str, body: dict[str, object]) -> dict[str, object] | None:
    """The decoded answer of /v1/chat/completions; None for a refusal."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/v1/chat/completions", json.dumps(body).encode(), headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=PATIENCE_S) as response:
            decoded = json.loads(response.read())
            return decoded if isinstance(decoded, dict) else None
    except urllib.error.HTTPError:
        return None


def _about_kvasir(text: str) -> str:
    if "kvasir" not in text.lower():
        raise SmokeError(f"Asked {QUESTION!r}, the bundled model answered {text!r}.")
    return " ".join(text.split())


def commands(folder: Path | None, command: str) -> tuple[list[str], list[str]]:
    """The command line and the window: of a program folder, or of ``command``, whose window needs no argument."""
    if command:
        parts = shlex.split(command, posix=not WINDOWS)
        return parts, parts
    if folder is None:
        raise SystemExit("Name the program folder, or give --command.")
    suffix = ".exe" if WINDOWS else ""
    return [str(folder / f"kvasir{suffix}")], [str(folder / f"kvasir-window{suffix}")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where kvasir and kvasir-window lie")
    parser.add_argument("--command", default="", help="try this command line instead")
    parser.add_argument("--cwd", type=Path, default=None, help="the folder to run it in")
    parser.add_argument("--version", default="", help="what kvasir --version must say")
    parser.add_argument("--home", type=Path, default=None, help="keep what is written here")
    given = parser.parse_args()
    # A background shell has Ctrl-C ignored, which the programs would inherit: they could not be told to end.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.ExitStack() as stack:
        # What a program that was just ended still holds open cannot be deleted on Windows.
        kept = tempfile.TemporaryDirectory(prefix="kvasir smoke ", ignore_cleanup_errors=True)
        home = given.home or Path(stack.enter_context(kept))
        home.mkdir(parents=True, exist_ok=True)
        program = Program(*commands(given.folder, given.command), home, given.cwd)
        checks: list[tuple[str, Callable[[], str]]] = [
            ("version", lambda: check_version(program, given.version)),
            ("chat", lambda: check_chat(program)),
            ("serve", lambda: check_serve(program)),
            ("window", lambda: check_window(program)),
        ]
        for name, check in checks:
            began = time.monotonic()
            try:
                said = check()
            except SmokeError as error:
                print(f"{name}: FAILED. {error}", file=sys.stderr, flush=True)
                return 1
            print(f"{name}: {said} ({time.monotonic() - began:.1f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
