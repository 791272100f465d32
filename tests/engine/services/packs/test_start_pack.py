"""An engine in a GPU pack, for real: a folder with spaces and umlauts, hostile surroundings, deaths at the start."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from websockets.sync.client import connect

import engine
from engine import protocol as p
from engine.services.packs import marker, start
from engine.services.packs.launch import BACK, FAILED, site_packages
from tests.engine.services.packs.packfolder import make_pack

TOKEN = "a-token-of-the-test"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a packaged program shares: engine/ and assets/ beside libraries that are not for the pack's engine."""
    internal = tmp_path_factory.mktemp("wo") / "Käse & Brot" / "_internal"
    source = Path(engine.__file__).parent
    shutil.copytree(source, internal / "engine", ignore=shutil.ignore_patterns("__pycache__"))
    (internal / "assets").symlink_to(source.parent / "assets")
    for name in ("torch", "numpy", "msgspec", "app"):
        (internal / f"{name}.py").write_text("raise ImportError('this one is the packaged program\\'s')")
    return internal


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "Übung mit Leerzeichen"
    (place / "data" / "gpu").mkdir(parents=True)
    monkeypatch.setenv("KVASIR_HOME", str(place))
    monkeypatch.setenv("KVASIR_MODELS", "")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("KVASIR_GPU_PACK", raising=False)
    return place


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's variables under which a Python of theirs would find other libraries, or none at all."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in ("torch", "msgspec", "sitecustomize", "usercustomize", "json"):
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} of the user was imported')")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("PYTHONHOME", str(folder))
    monkeypatch.setenv("PYTHONSTARTUP", str(folder / "torch.py"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/")
    monkeypatch.setenv("LC_ALL", "C")
    return folder


def packs_of(home: Path) -> Path:
    return home / "data" / "gpu"


def launched(program: Path, pack: Path) -> list[str]:
    return [sys.executable, "-I", "-S", str(program / "engine" / "services" / "packs" / "launch.py"), str(pack)]


@contextlib.contextmanager
def running(command: list[str], environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], p.Ready]]:
    """`serve --child`, once it is ready."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(TOKEN.encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline().decode()
        assert line, process.stderr.read().decode()
        yield process, msgspec.json.decode(line, type=p.Ready)
        process.stdin.close()
        assert process.wait(300) == 0, process.stderr.read().decode()
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def greet(port: int) -> p.Welcome:
    with connect(f"ws://127.0.0.1:{port}/ws", compression=None, max_size=p.MAX_FRAME, proxy=None) as socket:
        socket.send(p.encode(p.Hello(token=TOKEN, protocol=p.PROTOCOL)))
        welcome = p.decode_from_engine(socket.recv(timeout=300))
    assert isinstance(welcome, p.Welcome)
    return welcome


def from_source() -> list[str]:
    """The command line of this checkout, as another process starts it."""
    root = Path(engine.__file__).parent.parent
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n"
            "from engine.doors.cli.main import main; main()"]  # fmt: skip


@pytest.mark.slow
def test_the_engine_of_a_pack_answers(program, home, hostile):
    pack = make_pack(packs_of(home))
    marker.begin(packs_of(home))
    inner = start.environment(os.environ)
    with running([*launched(program, pack), "serve", "--child"], inner) as (process, ready):
        assert ready.pid == process.pid
        assert not (packs_of(home) / "starting").exists()
        welcome = greet(ready.port)
        assert welcome.notice == ""
        assert "kvasir-guide" in [model.name for model in welcome.models]
        assert all(str(program) in model.path for model in welcome.models)
        maps = Path(f"/proc/{process.pid}/maps").read_text() if sys.platform == "linux" else ""
        assert str(program / "torch") not in maps


def test_only_the_engine_is_imported_from_the_program(program, home):
    pack = make_pack(packs_of(home))
    code = (
        "import importlib.util, json, runpy, sys\n"
        f"sys.argv = ['launch.py', {str(pack)!r}]\n"
        f"launch = runpy.run_path({str(program / 'engine/services/packs/launch.py')!r}, run_name='launch')\n"
        f"launch['enter'](launch['Path']({str(pack)!r}), launch['Path']({str(program)!r}))\n"
        "from engine.library import paths\nimport numpy\n"
        "print(json.dumps([paths.__file__, str(paths._assets()), numpy.__file__, sys.path]))\n"
    )
    for flags in (["-I", "-S"], ["-I"]):
        done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        paths, assets, numpy, path = json.loads(done.stdout)
        assert Path(paths) == program / "engine" / "library" / "paths.py"
        assert Path(assets) == program / "assets"
        assert str(program) not in numpy
        assert not any(entry.startswith(str(program)) for entry in path)


@pytest.mark.skipif(os.name != "posix", reason="a process does not become another elsewhere")
def test_a_torch_that_cannot_be_loaded_leads_back_to_the_program(program, home):
    pack = make_pack(packs_of(home), libraries=False)
    (site_packages(pack) / "torch.py").write_text("raise ImportError('libtorch_cpu.so: file too short')")
    tells = f"import json, os, sys; print(json.dumps([sys.argv[1:], os.environ[{FAILED!r}]]))"
    outer = {**os.environ, BACK: json.dumps([sys.executable, "-c", tells])}
    command = [*launched(program, pack), "doctor", "--json"]
    done = subprocess.run(command, env=outer, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    arguments, why = json.loads(done.stdout)
    assert arguments == ["doctor", "--json"]
    assert "libtorch_cpu.so: file too short" in why
    assert "kvasir gpu repair" in why
    outer.pop(BACK)
    alone = subprocess.run(command, env=outer, capture_output=True, text=True, timeout=300)
    assert alone.returncode != 0
    assert "file too short" in alone.stderr


@pytest.mark.slow
def test_a_command_goes_on_in_the_pack_with_its_own_input_and_output(home, hostile, monkeypatch):
    make_pack(packs_of(home))
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with running([*from_source(), "serve", "--child"], outer) as (process, ready):
        assert ready.pid == process.pid  # the same process: its window can end it
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes() if sys.platform == "linux" else b"launch.py"
        assert b"launch.py" in command
        assert greet(ready.port).notice == ""
    assert not (packs_of(home) / "starting").exists()


@pytest.mark.slow
def test_a_pack_that_dies_at_the_start_is_left_after_two_deaths(home):
    pack = make_pack(packs_of(home), libraries=False)
    command = [*from_source(), "serve", "--child"]
    for expected in (1, 2):
        done = subprocess.run(command, input=TOKEN.encode() + b"\n", capture_output=True, timeout=300)
        assert done.returncode != 0
        assert marker.deaths(packs_of(home)) == expected
    with running(command, dict(os.environ)) as (_, ready):
        notice = greet(ready.port).notice
    assert "ended 2 times" in notice
    assert "kvasir gpu check" in notice
    start.activate(packs_of(home), pack.name, "cuda13")
    assert start.usable(packs_of(home)) == pack


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGTERM is POSIX's")
def test_a_window_that_closes_while_its_engine_starts_is_no_death(program, home):
    pack = make_pack(packs_of(home))
    marker.begin(packs_of(home))
    process = subprocess.Popen(
        [*launched(program, pack), "serve", "--child"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=start.environment(os.environ),
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        # It waits for its token: no ready line before.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
        process.terminate()
        assert process.wait(300) == -signal.SIGTERM
    assert marker.deaths(packs_of(home)) == 0


@pytest.mark.skipif(os.name != "posix", reason="SIGTERM is POSIX's")
@pytest.mark.parametrize(("seconds", "deaths"), [(3600.0, 0), (0.0, 1)])
def test_a_window_that_has_waited_too_long_counts_as_a_death(home, seconds, deaths):
    marker.begin(packs_of(home))
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom engine.services.packs import marker\n"
        f"marker.forgive_termination(Path(sys.argv[1]), {seconds})\nos.kill(os.getpid(), signal.SIGTERM)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(packs_of(home))], cwd=Path(engine.__file__).parents[1])
    assert done.returncode == -signal.SIGTERM
    assert marker.deaths(packs_of(home)) == deaths


@pytest.mark.slow
def test_the_self_test_of_a_pack_for_the_processor(home, hostile):
    result = start.self_test(make_pack(packs_of(home)))
    assert result.ok, result
    assert result.facts["torch"]
    assert "agrees" in result.facts["product"]
    assert "the processor" in result.sentence


def test_the_self_test_of_a_pack_without_its_libraries(home):
    result = start.self_test(make_pack(packs_of(home), libraries=False))
    assert not result.ok
    assert "torch" in result.sentence
    assert "kvasir gpu repair" in result.sentence


def test_the_self_test_of_a_pack_that_ends_the_process(home):
    pack = make_pack(packs_of(home), libraries=False)
    (start.site_packages(pack) / "torch.py").write_text(
        "import os, sys\nprint('no luck', file=sys.stderr)\nos._exit(3)"
    )
    result = start.self_test(pack)
    assert not result.ok
    assert not result.timed_out
    assert "no luck" in result.sentence


def test_the_self_test_of_a_pack_that_hangs(home):
    pack = make_pack(packs_of(home), libraries=False)
    (start.site_packages(pack) / "torch.py").write_text("import time\ntime.sleep(60)")
    result = start.self_test(pack, seconds=1.0)
    assert not result.ok
    assert result.timed_out


@pytest.mark.slow
def test_a_gpu_pack_without_gpu_fails_with_a_sentence(home):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    pack = make_pack(packs_of(home))
    note = json.loads((pack / "pack.json").read_text())
    (pack / "pack.json").write_text(json.dumps(note | {"device": "cuda"}))
    result = start.self_test(pack)
    assert not result.ok
    assert "GPU" in result.sentence
