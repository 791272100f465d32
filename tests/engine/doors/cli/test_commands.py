"""The command as a user runs it, in processes of its own, on the bundled model."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result
from websockets.sync.client import connect

from engine import protocol as p
from engine.doors.cli.main import app
from tests.kit import forked


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    return {**kept, "KVASIR_HOME": str(tmp_path), "KVASIR_MODELS": "", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


@pytest.fixture
def at_home(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has the environment of those that it starts."""
    for name in ("KVASIR_HOME", "KVASIR_MODELS", "NO_COLOR"):
        monkeypatch.setenv(name, environment[name])


def here(*arguments: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(app, arguments, prog_name="kvasir")


def kvasir(environment: dict[str, str], *arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "engine.doors.cli.main", *arguments]
    return forked.run(command, input, env=environment)


def one_sentence(done: subprocess.CompletedProcess[str] | Result) -> str:
    assert (done.exit_code if isinstance(done, Result) else done.returncode) == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("kvasir: ")
    return line


def test_no_display(environment: dict[str, str]) -> None:
    done = kvasir(environment)
    assert done.returncode == 2
    assert "kvasir chat" in done.stderr
    assert "kvasir serve" in done.stderr


def test_help_and_version_import_nothing_heavy(environment: dict[str, str]) -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom engine.doors.cli.main import app\n"
        "for argument in ('--help', '--version'):\n"
        "    assert CliRunner().invoke(app, [argument]).exit_code == 0\n"
        "assert not {'torch', 'numpy', 'tokenizers', 'starlette', 'jinja2'} & set(sys.modules), sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("chat", "--set", "speculation"),
        ("chat", "--raw"),
        ("chat", "--device", "tpu"),
        ("serve", "--port", "99999"),
        ("serve", "--device", "tpu"),
        ("serve", "--tls-key", "key.pem"),
        ("serve", "--child", "--tls"),
        ("x",),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "Usage:" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("none-such", "--prompt", "x"), "There is no model 'none-such'"),
        (("empty", "--prompt", "x"), "config.json"),
        (("--prompt", "word " * 9000), "context length is 8192 tokens"),
        (("--prompt", "x", "--set", "a=b"), "no optimisation called"),
    ],
    ids=["name", "folder", "length", "option"],
)
@pytest.mark.usefixtures("at_home")
def test_failures_are_one_sentence(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    place = [str(tmp_path / "empty") if each == "empty" else each for each in arguments]
    assert says in one_sentence(here("chat", *place))


@pytest.mark.parametrize("arguments", [(), ("chat", "--prompt", "x"), ("serve", "--port", "0"), ("doctor",)])
def test_instructions_that_are_none_are_one_sentence(arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    strange = {**environment, "KVASIR_NATIVE": "sse9"}
    assert "KVASIR_NATIVE is 'sse9', which is none of auto" in one_sentence(kvasir(strange, *arguments))


@pytest.mark.slow
@pytest.mark.usefixtures("at_home")
def test_one_answer_and_its_statistics(environment: dict[str, str]) -> None:
    asked = ("chat", "--prompt", "What is a page?", "--max-tokens", "8", "--seed", "5", "--stats")
    plain = kvasir(environment, *asked)
    assert plain.returncode == 0
    stats = json.loads(plain.stderr.strip().splitlines()[-1])
    assert stats["model"] == "kvasir-guide"
    assert stats["usage"]["seed"] == 5
    assert stats["reason"] in ("stop", "length")
    drafted = here(*asked, "--set", "speculation=draft", "--set", "batch_invariant=on")
    assert json.loads(drafted.stderr.strip().splitlines()[-1])["options"]["speculation"] == "draft"
    exact = here(*asked, "--set", "batch_invariant=on")
    assert exact.stdout == drafted.stdout != ""


@pytest.mark.slow
def test_doctor(environment: dict[str, str]) -> None:
    done = kvasir(environment, "doctor")
    assert done.returncode == 0, done.stderr
    for part in ("kvasir-guide", "qkv (int4)", "attention", "read bandwidth", "C compiler", "torch"):
        assert part in done.stdout
    folders = "".join(done.stdout.split())  # a long path is folded
    assert str(Path(environment["KVASIR_HOME"]) / "data" / "heads") in folders
    assert str(Path(environment["KVASIR_HOME"]) / "cache" / "chats") in folders


@pytest.mark.usefixtures("at_home")
def test_a_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"Port {port} is in use" in one_sentence(here("serve", "--port", str(port)))


@pytest.fixture
def child(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "engine.doors.cli.main", "serve", "--child"]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.slow
def test_a_child_serves_loads_answers_and_goes(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("secret\n")
    child.stdin.flush()
    ready = p.decode_ready(child.stdout.readline())
    assert ready.pid == child.pid
    with connect(f"ws://127.0.0.1:{ready.port}/ws", max_size=p.MAX_FRAME, compression=None) as ws:

        def until(kind: type) -> p.Message:
            while True:
                message = p.decode_from_engine(ws.recv(timeout=300))
                assert not isinstance(message, p.Error), message.message
                if isinstance(message, kind):
                    return message

        ws.send(p.encode(p.Hello(token="secret", protocol=p.PROTOCOL)))
        welcome = until(p.Welcome)
        assert isinstance(welcome, p.Welcome)
        assert "kvasir-guide" in [model.name for model in welcome.models]
        ws.send(p.encode(p.Estimate(id="e", model="kvasir-guide")))
        estimated = until(p.Estimated)
        assert isinstance(estimated, p.Estimated)
        assert estimated.fits, estimated.sentence
        ws.send(p.encode(p.Load(model="kvasir-guide")))
        loaded = until(p.Loaded)
        assert isinstance(loaded, p.Loaded)
        assert loaded.card.draft == "kvasir-guide-draft"
        ws.send(p.encode(p.Subscribe(topics=["telemetry"])))
        telemetry = until(p.Telemetry)
        assert isinstance(telemetry, p.Telemetry)
        assert telemetry.memory.weights == loaded.fit.weights + loaded.fit.draft_weights
        sampling = p.Sampling(max_tokens=12, seed=1, ignore_eos=True)
        ws.send(p.encode(p.Generate(id="g", prompt=[p.ChatMessage.of("user", "Hello")], sampling=sampling)))
        finished = until(p.Finished)
        assert isinstance(finished, p.Finished)
        assert finished.usage.generated_tokens == 12
        ws.send(p.encode(p.Compare(id="c", key="kv_cache", prompt="Once", sampling=sampling, rounds=1)))
        compared = until(p.Compared)
        assert isinstance(compared, p.Compared)
        assert [run.tokens for run in compared.runs] == [12, 12]
        ws.send(p.encode(p.Generate(id="long", prompt="x", sampling=p.Sampling(ignore_eos=True))))
        until(p.Delta)
        ws.send(p.encode(p.Cancel(id="long")))
        cancelled = until(p.Finished)
        assert isinstance(cancelled, p.Finished)
        assert cancelled.reason == "cancelled"
    child.stdin.close()
    assert child.wait(300) == 0


@pytest.mark.usefixtures("at_home")
def test_a_child_without_a_token() -> None:
    assert "No token came" in one_sentence(here("serve", "--child"))


@pytest.mark.slow
def test_a_server_leaves_its_token_and_takes_it_away(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "engine.doors.cli.main", "serve", "--port", "0"]
    with forked.popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split("listens on ")[1].split()[0]
        file = Path(process.stdout.readline().removeprefix("The token is in ").strip())
        assert file.parent == tmp_path / "run"
        assert file.stat().st_mode & 0o777 == 0o600
        headers = {"Authorization": f"Bearer {file.read_text().strip()}"}
        assert httpx.get(f"{address}/v1/models", headers=headers, timeout=300).status_code == 200
        assert httpx.get(f"{address}/v1/models", headers={"Authorization": "Bearer x"}, timeout=300).status_code == 401
        process.terminate()
        assert process.wait(300) in (0, -15)
    assert not file.exists()
