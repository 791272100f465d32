"""The smoke test that every system's build goes through: it passes what works and names what does not."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PORTABLE = ROOT / "packaging" / "smoke" / "portable.py"

STAND_IN = """
import http.server, json, os, pathlib, signal, sys, time
fault, home, arguments = os.environ.get("FAULT"), pathlib.Path(os.environ["KVASIR_HOME"]), sys.argv[1:]
assert os.environ["QT_QPA_PLATFORM"] == "offscreen" and "PYTHONPATH" not in os.environ
text = "I cannot say." if fault == "answer" else "Kvasir answers \\u2192 here."
if arguments == ["--version"]:
    print("2.0.0" if fault == "version" else "1.2.3")
elif arguments[:1] == ["chat"]:
    sys.stdout.buffer.write(text.encode())
    sys.exit("It broke." if fault == "chat" else 0)
elif arguments[:1] == ["serve"]:
    token = home / "run" / "token"
    token.parent.mkdir()
    token.write_text("secret\\n")
    class Handler(http.server.BaseHTTPRequestHandler):
        asked = 0
        def do_POST(self):
            type(self).asked += 1
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            wrong = self.headers["Authorization"] != "Bearer secret" and fault != "open"
            loading = self.asked < 3
            self.send_response(401 if wrong else 503 if loading else 200)
            self.end_headers()
            if not wrong and not loading:
                assert body["messages"][0]["content"] == "What is Kvasir?"
                self.wfile.write(json.dumps({"choices": [{"message": {"content": text}}]}).encode())
        def log_message(self, *_): pass
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    print(f"Kvasir 1.2.3 listens on http://127.0.0.1:{server.server_port} (websocket: /ws).")
    print(f"The token is in {token}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        if fault != "token":
            token.unlink()
else:
    (home / "log").mkdir()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3 if fault == "end" else 0))
    said = "something else" if fault == "window" else "window visible after 0.50 s"
    more = "\\nThe engine stopped (exit code 1)." if fault == "engine" else ""
    (home / "log" / "kvasir.log").write_text(said + more)
    if fault == "window":
        sys.exit("No display.")
    while True:
        time.sleep(60)
"""


@pytest.fixture
def smoke(tmp_path, monkeypatch):
    """Runs the smoke test on the stand-in with a fault; its result."""
    script = tmp_path / "stand in.py"
    script.write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", "/of the developer")

    def run(fault):
        monkeypatch.setenv("FAULT", fault)
        command = f"'{sys.executable}' '{script}'"
        whole = [sys.executable, PORTABLE, "--command", command, "--version", "1.2.3", "--home", tmp_path / "a home"]
        return subprocess.run(whole, capture_output=True, text=True, check=False)

    return run


def test_a_program_that_works_passes(smoke):
    done = smoke("")
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["version", "chat", "serve", "window"]


def test_it_works_where_ctrl_c_is_ignored_as_in_a_background_shell(smoke):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = smoke("token")
    finally:
        signal.signal(signal.SIGINT, before)
    assert "left its token behind" in done.stderr, "it reached the end of serve"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("version", "version: FAILED. kvasir --version says 2.0.0, and 1.2.3 was built"),
        ("chat", "It broke."),
        ("answer", "chat: FAILED. Asked 'What is Kvasir?', the bundled model answered 'I cannot say.'"),
        ("open", "serve: FAILED. The server answered somebody without its token"),
        ("token", "serve: FAILED. kvasir serve left its token behind"),
        ("window", "window: FAILED. The program ended with 1 before the window was visible. It said: No display."),
        ("engine", "window: FAILED. The window opened and then something failed"),
        ("end", "window: FAILED. The window ended with 3"),
    ],
)
def test_what_does_not_work_is_named(smoke, fault, said):
    done = smoke(fault)
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.long
def test_the_source_tree_passes():
    command = [sys.executable, PORTABLE, "--command", f"{sys.executable} -m engine.doors.cli.main", "--cwd", ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "window visible after" in done.stdout
