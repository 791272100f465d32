"""The command line and the server, as that user and without a network."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from smoke.dialogue import QUESTION, sensible
from smoke.programs import Programs
from smoke.report import Report
from smoke.sandbox import Done, Running, Sandbox

POST = Path(__file__).with_name("post.py")
SERVE_S, ANSWER_S = 120.0, 180.0


def command_line(report: Report, sandbox: Sandbox, programs: Programs, version: str) -> None:
    """``--version``, ``chat``, ``doctor``, wrong usage, and that there is indeed no network."""

    def kvasir(*arguments: str) -> Done:
        return sandbox.run([*programs.kvasir, *arguments], cwd=programs.cwd, timeout=ANSWER_S)

    done = kvasir("--version")
    report.check(done.code == 0 and version in done.out, f"kvasir --version says {version}", done.text)
    report.figure("--version", f"{done.seconds:.1f} s")
    done = kvasir("chat", "--prompt", QUESTION)
    report.note(f"kvasir chat --prompt: {done.out.strip()}")
    report.check(
        done.code == 0 and sensible(done.out), "kvasir chat answers sensibly", f"exit code {done.code}\n{done.text}"
    )
    report.check("Traceback" not in done.text, "without a traceback", done.err)
    done = kvasir("doctor")
    report.note(done.text.strip())
    report.check(done.code == 0, "kvasir doctor ends well", f"exit code {done.code}\n{done.text}")
    report.check("Traceback" not in done.text, "kvasir doctor shows no traceback", done.text)
    done = kvasir("chat", "no-such-model", "--prompt", "x")
    wrong = done.code == 1 and "Traceback" not in done.text and "no-such-model" in done.text
    report.check(wrong, "a model that is not there is a sentence", f"exit code {done.code}\n{done.text}")
    done = kvasir()
    report.check(
        done.code == 2 and "display" in done.text, "without a display the window says so", f"{done.code} {done.text}"
    )


def server(report: Report, sandbox: Sandbox, programs: Programs) -> None:
    """``kvasir serve`` on a free port, asked over HTTP from inside its network."""
    command = [*programs.kvasir, "serve", "--port", "0"]
    with sandbox.start(command, cwd=programs.cwd) as running:
        address, token_file = wait_for_address(running)
        report.figure("serve", f"{time.monotonic() - running.began:.1f} s until it listens")
        token = running.file(token_file)
        report.check(token.stat().st_mode & 0o077 == 0, "the token is for its owner only")
        body = {"model": "kvasir-guide", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 200}
        url = f"{address}/v1/chat/completions"
        status, reply = ask(running, url, "", body)
        report.check(status == 401, "without the token it refuses", f"{status} {reply}")
        status, reply = ask(running, url, token.read_text().strip(), body)
        text = json.loads(reply)["choices"][0]["message"]["content"] if status == 200 else reply
        report.note(f"POST /v1/chat/completions: {text}")
        report.check(status == 200 and sensible(text), "it answers sensibly over HTTP", f"{status} {text}")
        running.send(signal.SIGTERM)
        done = running.wait(30.0)
        report.check(done.code == 0, "SIGTERM ends it with exit code 0", f"{done.code} {done.text[-1500:]}")
        report.check(not done.left, "nothing of it is left running", "\n".join(done.left))


def wait_for_address(running: Running) -> tuple[str, str]:
    """The address and the token's file, from what it prints. Raises RuntimeError when it ends first, TimeoutError."""
    until = time.monotonic() + SERVE_S
    while time.monotonic() < until:
        address = re.search(r"listens on (http://\S+)", running.out)
        token = re.search(r"The token is in (.+)\n", running.out)
        if address and token:
            return address[1], token[1]
        if not running.alive:
            raise RuntimeError(f"kvasir serve ended: {running.out}{running.err}")
        time.sleep(0.05)
    raise TimeoutError(f"kvasir serve does not listen after {SERVE_S:.0f} s: {running.out}{running.err}")


def ask(running: Running, url: str, token: str, body: dict) -> tuple[int, str]:
    """POST from inside; the status and the body. Waits while the model is still being loaded (503)."""
    until = time.monotonic() + ANSWER_S
    while True:
        done = subprocess.run(
            [*running.enter_network(), sys.executable, str(POST), url],
            input=json.dumps({"token": token, "body": body}),
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
        )
        if done.returncode:
            raise RuntimeError(f"{url} cannot be asked: {done.stderr[-1500:]}")
        status, _, reply = done.stdout.partition("\n")
        if int(status) != 503 or time.monotonic() > until:
            return int(status), reply
        time.sleep(0.2)
