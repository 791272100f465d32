"""`kvasir uninstall`: what is kept is listed item by item, what is named goes, and nothing else."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engine.base import installation
from engine.base.sizes import human
from engine.doors.cli.installation import program_files
from engine.doors.cli.installation.desktop import ENTRY, install
from engine.doors.cli.installation.inventory import inventory, remove
from engine.doors.cli.installation.running import window_address
from engine.doors.cli.main import app
from engine.library import paths as config
from engine.library import roots
from engine.library.store import Receipt, write_receipt
from engine.protocol.library import HubFile, HubVariant

PYTHON = sys.executable
KINDS = ("settings", "chats", "models", "making", "heads", "gpu", "caches", "logs")
HASH = "0123456789abcdef" * 2
FILES = {
    "settings": ["config/settings.json", "config/settings.version-1.json", "config/settings.json.broken"],
    "chats": [
        "data/history.db",
        "data/history.db-wal",
        "data/history.db.before-4",
        "data/history.db.before-4.unfinished-journal",
        "data/history.damaged-17.db",
        "data/version.json",
        f"data/passages/{HASH}-{HASH}.vectors",
    ],
    "models": ["data/models/Qwen3/config.json", "data/models/Qwen3/model.safetensors", "data/models/a-Q4.gguf"],
    "making": [
        "data/making/0123456789ab/plan.json",
        "data/runs.json",
        "data/runs.17",
        "data/activations.json",
        "data/activations.json.lock",
        "data/lab/kivi-1.json",
    ],
    "heads": ["data/heads/abc/medusa/medusa_lm_head.safetensors", "data/heads/copies/x.safetensors"],
    "gpu": ["data/gpu/active.json", "data/gpu/abc/lib/python3.11/site-packages/torch/x.so"],
    "caches": [
        f"cache/quantised/{HASH}.packed",
        f"cache/quantised/{HASH}.0.17.unfinished",
        f"cache/chats/{HASH}.pages",
        f"cache/chats/{HASH}.index",
        "cache/bench/shape/model.safetensors",
        "cache/trials.json",
    ],
    "logs": ["log/kvasir.log", "log/kvasir.log.4"],
}
FOREIGN = [
    "config/notes.txt",
    "data/history.txt",
    "data/history.db.my own copy",
    "data/runs.txt",
    "data/passages/mine.vectors",
    "data/models/holiday.zip",
    "data/models/thesis/chapter.tex",
    "cache/quantised/mine.packed",
    "cache/chats/readme",
    "log/diary",
    "log/other program.log",
    "elsewhere/file",
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home of æ"
    home.mkdir()
    monkeypatch.setenv("KVASIR_HOME", str(home))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("KVASIR_MODELS", raising=False)
    return home


def fill(home: Path, names: list[str], content: bytes = b"x" * 1000) -> None:
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)


def all_files() -> list[str]:
    return [name for names in FILES.values() for name in names]


def there(home: Path) -> set[str]:
    return {path.relative_to(home).as_posix() for path in home.rglob("*") if not path.is_dir() or path.is_symlink()}


def uninstall(*arguments: str, answers: str = "") -> Result:
    return CliRunner().invoke(app, ["uninstall", *arguments], input=answers)


def test_a_listing_changes_nothing(home: Path) -> None:
    fill(home, all_files() + FOREIGN)
    before = there(home)
    shown = uninstall("--dry-run")
    assert shown.exit_code == 0, shown.output
    listed = json.loads(uninstall("--json", "--purge-all").stdout)
    assert there(home) == before
    assert {item["key"]: item["bytes"] for item in listed["items"]} == {
        key: 1000 * len(names) for key, names in FILES.items()
    }
    for item in listed["items"]:
        assert item["folder"] in shown.output
        assert item["purge"] is True
    models = next(item for item in listed["items"] if item["key"] == "models")
    assert {Path(path).name for path in models["others"]} == {"holiday.zip", "thesis"}
    assert "holiday.zip" in shown.output
    assert listed["done"] is False


def test_a_listing_makes_no_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert uninstall("--json").exit_code == 0
    assert uninstall("--purge-all", "--yes").exit_code == 0
    assert not home.exists(), "an empty folder of Kvasir's goes"
    monkeypatch.delenv("KVASIR_HOME")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert uninstall("--dry-run").exit_code == 0
    assert list(home.parent.iterdir()) == []


@pytest.mark.parametrize("key", KINDS)
def test_one_flag_deletes_one_item(home: Path, key: str) -> None:
    fill(home, all_files() + FOREIGN)
    done = uninstall(f"--purge-{key}", "--yes")
    assert done.exit_code == 0, done.output
    with_it = [name for name in FILES["caches"] if key == "chats" and name.startswith("cache/chats")]
    assert there(home) == set(all_files() + FOREIGN) - {*FILES[key], *with_it}


def test_all_deletes_all_of_kvasirs_and_names_what_is_left(home: Path) -> None:
    fill(home, all_files() + FOREIGN)
    done = uninstall("--purge-all", "--yes")
    assert done.exit_code == 0, done.output
    assert there(home) == set(FOREIGN)
    for name in ("notes.txt", "holiday.zip", "thesis", "mine.packed", "diary"):
        assert name in done.output
    assert "pip uninstall kvasir" in done.output


def test_without_foreign_files_nothing_is_left(home: Path) -> None:
    fill(home, all_files())
    fill(home, ["run/token-1"])  # of a server that was killed
    done = uninstall("--purge-all", "--yes", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["done"], report["left"], report["failed"]) == (True, [], [])
    assert not home.exists()


def test_yes_alone_keeps_everything(home: Path) -> None:
    fill(home, all_files())
    assert uninstall("--yes").exit_code == 0
    assert there(home) == set(all_files())


def test_questions_keep_by_default(home: Path) -> None:
    fill(home, all_files() + FOREIGN)
    before = there(home)
    for answers in ("\n" * 20, "", "n\n" * 20, "y\ny\n", "y\n" * 9 + "n\n"):
        asked = uninstall(answers=answers)
        assert asked.exit_code == 0, asked.output
        assert "Nothing was deleted" in asked.output
        assert there(home) == before


def test_questions_item_by_item(home: Path) -> None:
    fill(home, all_files() + FOREIGN)
    # settings, chats, models, what is none, unfinished ones, heads, gpu, caches, logs; go on
    asked = uninstall(answers="y\nn\nn\ny\nn\nn\nn\nyes\nn\ny\n")
    assert asked.exit_code == 0, asked.output
    gone = set(FILES["settings"] + FILES["caches"] + ["data/models/holiday.zip", "data/models/thesis/chapter.tex"])
    assert there(home) == set(all_files() + FOREIGN) - gone


def test_what_a_flag_names_is_not_asked_about(home: Path) -> None:
    fill(home, FILES["settings"] + FILES["logs"])
    asked = uninstall("--purge-logs", answers="n\ny\n")
    assert "Delete the settings?" in asked.output
    assert "Delete the logs?" not in asked.output
    assert there(home) == set(FILES["settings"])


def test_links_are_never_followed(home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    fill(outside, ["model/config.json", "big/config.json", "heads/a", "cache/b"])
    fill(home, ["data/models/own/config.json", "data/gpu/abc/file", f"cache/chats/{HASH}.index"])
    (home / "data/models/linked").symlink_to(outside / "model")
    (home / "data/models/own/deep").symlink_to(outside / "big")
    (home / "data/gpu/abc/deep").symlink_to(outside)
    (home / "data/heads").symlink_to(outside / "heads")
    (home / "cache/bench").symlink_to(outside / "cache")
    (home / f"cache/chats/{HASH}.pages").symlink_to(outside / "heads" / "a")
    before = there(outside)
    assert "a link to" in uninstall("--dry-run").output
    assert sum(item.size for item in inventory()) == 3000
    done = uninstall("--purge-all", "--yes")
    assert done.exit_code == 0, done.output
    assert there(outside) == before
    assert not home.exists()


def test_a_link_is_named_with_where_it_leads(home: Path, tmp_path: Path) -> None:
    fill(tmp_path, ["large disk/abc/lib.so"])
    (home / "data").mkdir()
    (home / "data" / "gpu").symlink_to(tmp_path / "large disk")
    done = uninstall("--purge-gpu", "--yes")
    assert f"gpu, a link to {tmp_path / 'large disk'}, which stays" in done.output
    assert not (home / "data").exists()
    assert (tmp_path / "large disk/abc/lib.so").exists()


def test_a_models_folder_that_is_a_link(home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "disk"
    fill(outside, ["model/config.json"])
    (home / "data").mkdir()
    (home / "data/models").symlink_to(outside)
    assert uninstall("--purge-models", "--yes").exit_code == 0
    assert there(outside) == {"model/config.json"}
    assert not os.path.lexists(home / "data/models")


def test_of_a_store_in_a_folder_of_the_users_own_only_what_was_fetched_goes(home: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    fill(own, [".downloads/lock", "me/fetched/a.gguf", "me/theirs/config.json", "all/fetched/a.gguf", "letter"])
    variant = HubVariant(
        name="a.gguf", format="gguf", quantisation="", bytes=1000, files=[HubFile(name="a.gguf", bytes=1000)]
    )
    for name in ("me/fetched", "all/fetched"):
        write_receipt(own / name, Receipt(name, {"a.gguf": variant}))
    roots.change(lambda now: roots.ModelRoots(store=str(own)))
    models = next(item for item in inventory() if item.key == "models")
    assert {entry.path for entry in models.others} == {own / "letter", own / "me/theirs"}
    assert uninstall("--purge-models", "--yes").exit_code == 0
    assert there(own) == {"me/theirs/config.json", "letter"}
    assert not (own / "all").exists()


def test_folders_of_the_users_own_are_never_touched(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own models"
    fill(own, ["one/config.json", "b.gguf"])
    monkeypatch.setenv("KVASIR_MODELS", str(own))
    fill(home, FILES["models"])
    assert str(own) not in uninstall("--json").stdout
    assert uninstall("--purge-all", "--yes").exit_code == 0
    assert there(own) == {"one/config.json", "b.gguf"}


def test_it_is_the_folders_that_the_window_uses(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from app import paths

    for variable in ("KVASIR_HOME", ""):
        if not variable:
            monkeypatch.delenv("KVASIR_HOME")
            for name in ("CONFIG", "DATA", "STATE", "CACHE"):
                monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
        places = config.places()
        assert (places.config, places.data, places.log) == (paths.config_dir(), paths.data_dir(), paths.log_dir())
        assert (places.cache, places.run) == (config.cache_folder(), config.runtime_folder())


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may delete anything")
def test_what_cannot_be_deleted_is_said(home: Path) -> None:
    fill(home, FILES["logs"])
    (home / "log").chmod(0o500)
    done = uninstall("--purge-logs", "--yes")
    (home / "log").chmod(0o700)
    assert done.exit_code == 1
    assert "cannot be deleted" in done.output


def test_a_failure_within_a_folder_is_told_and_the_rest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, ["tree/keep/a", "tree/b"])
    real = os.unlink

    def refuse(path: str, **where: int) -> None:
        if os.path.basename(path) == "a":
            raise PermissionError(13, "Permission denied", path)
        real(path, **where)

    monkeypatch.setattr(os, "unlink", refuse)
    failed = remove(tmp_path / "tree")
    assert there(tmp_path) == {"tree/keep/a"}
    assert failed[0] == f"{tmp_path / 'tree/keep/a'} cannot be deleted (Permission denied)."


def test_it_waits_for_a_server_to_end(home: Path) -> None:
    fill(home, FILES["chats"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        fill(home, [f"run/token-{port}"])
        done = uninstall("--purge-all", "--yes")
    assert done.exit_code == 1
    assert f"port {port}" in done.output
    assert set(FILES["chats"]) <= there(home)
    assert uninstall("--purge-all", "--yes").exit_code == 0
    assert not home.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="a socket file")
def test_it_waits_for_the_window_to_be_closed(home: Path) -> None:
    fill(home, FILES["chats"])
    with socket.socket(socket.AF_UNIX) as server:
        address = home.parent / "kvasir-window"
        server.bind(str(address))
        server.listen()
        left = {"data/window.address", "data/window.lock"}
        fill(home, left)
        (home / "data" / "window.address").write_text(str(address.with_name("other")))
        assert window_address() is None, "what is not called so is another program's"
        (home / "data" / "window.address").write_text(str(address))
        done = uninstall("--purge-all", "--yes")
        assert done.exit_code == 1
        assert "window is open" in done.output
        assert there(home) == {*FILES["chats"], *left}
    assert uninstall("--purge-all", "--yes").exit_code == 0, "what a crash left behind is nobody's answer"
    assert not address.exists()
    assert not home.exists()


# --- the program itself ----------------------------------------------------------------------------------------------


@pytest.fixture
def portable(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program folder with what counts of one."""
    folder = tmp_path / "Programme æ 1" / "kvasir-0.1.0"
    fill(folder, ["kvasir", "kvasir-window", "kvasir-engine", "_internal/torch/lib.so", "python/bin/python3.11"])
    fill(folder, ["tools/uv", "README", "share/icons/hicolor/48x48/apps/kvasir.png"])
    entry = "[Desktop Entry]\nType=Application\nName=Kvasir\nExec=kvasir %f\nIcon=kvasir\n"
    fill(folder, ["share/applications/kvasir.desktop"], entry.encode())
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(folder / "kvasir-engine"))
    assert installation.program_folder() == folder
    return folder


def test_a_portable_program_goes_with_its_menu_entry(home: Path, portable: Path, tmp_path: Path) -> None:
    install(portable, tmp_path / "share")
    fill(home, all_files())
    listed = json.loads(uninstall("--json", "--purge-all").stdout)
    assert listed["program"]["kind"] == "portable"
    assert listed["program"]["bytes"] > 8000
    assert listed["menu"]
    done = uninstall("--purge-all", "--yes")
    assert done.exit_code == 0, done.output
    assert not portable.exists()
    assert not home.exists()
    assert not (tmp_path / "share").exists() or not list((tmp_path / "share").rglob("*"))


def test_nothing_is_imported_once_the_program_is_gone(home: Path, portable: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfolder = Path(sys.argv.pop(1))\n"
        "class Guard:\n"
        "    def find_spec(self, name, *_):\n"
        "        if not folder.exists():\n"
        "            print('imported afterwards:', name)\n"
        "sys.meta_path.insert(0, Guard())\n"
        "sys.frozen, sys.executable = True, str(folder / 'kvasir-engine')\n"
        "from engine.doors.cli.main import main\nmain()\n"
    )
    for command in (["--purge-program", "--yes"], ["--purge-program", "--yes", "--json"]):
        fill(portable, ["kvasir-engine", "_internal/x"])
        done = subprocess.run(
            [PYTHON, "-c", code, str(portable), "uninstall", *command],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "imported afterwards" not in done.stdout
        assert not portable.exists()


def test_a_portable_program_stays_unless_it_is_named(home: Path, portable: Path) -> None:
    fill(home, FILES["logs"])
    before = there(portable)
    done = uninstall("--purge-logs", "--yes")
    assert there(portable) == before
    assert str(portable) in done.output
    asked = uninstall(answers="y\nn\n")  # the program; go on
    assert "Remove the program itself?" in asked.output
    assert there(portable) == before
    assert uninstall(answers="y\ny\n").exit_code == 0
    assert not portable.exists()


def test_what_lies_in_the_folder_of_the_program_stays(home: Path, portable: Path) -> None:
    fill(portable, ["my models/a.gguf"])
    done = uninstall("--purge-program", "--yes")
    assert done.exit_code == 0, done.output
    assert there(portable) == {"my models/a.gguf"}
    assert "not Kvasir's" in done.output


def test_the_menu_entry_of_another_version_stays(home: Path, portable: Path, tmp_path: Path) -> None:
    other = tmp_path / "kvasir-9"
    fill(other, ["kvasir"])
    fill(other, ["share/applications/kvasir.desktop"], (portable / "share" / ENTRY).read_bytes())
    install(other, tmp_path / "share")
    assert uninstall("--purge-program", "--yes").exit_code == 0
    assert str(other) in (tmp_path / "share" / ENTRY).read_text()


def test_a_program_of_its_folder_that_runs_is_in_the_way(home: Path, portable: Path) -> None:
    sleep = next(path for path in (Path("/usr/bin/sleep"), Path("/bin/sleep")) if path.exists())
    runs = portable / "kvasir-window"
    runs.write_bytes(sleep.read_bytes())
    runs.chmod(0o755)
    with subprocess.Popen([str(runs), "60"]) as process:
        try:
            done = uninstall("--purge-all", "--yes")
        finally:
            process.kill()
    assert done.exit_code == 1
    assert f"process {process.pid}" in done.output
    assert runs.exists()
    assert uninstall("--purge-all", "--yes").exit_code == 0
    assert not portable.exists()


@pytest.fixture
def debian(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[str]]]:
    """A program below /usr; gives the commands that were run."""
    monkeypatch.setattr(program_files, "program_folder", lambda: Path("/usr/lib/kvasir"))
    ran: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(program_files.subprocess, "run", run)
    monkeypatch.setattr(program_files.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv("DISPLAY", ":0")
    return lambda: ran


def test_the_menu_entry_goes_with_the_program_and_nothing_else_is_promised(
    home: Path, portable: Path, tmp_path: Path
) -> None:
    install(portable, tmp_path / "share")
    fill(home, FILES["logs"])
    done = uninstall(answers="n\nn\ny\ny\n")  # logs, the menu, the program; go on
    assert done.exit_code == 0, done.output
    assert f"Go on and take Kvasir out of your menu and delete the program in {portable}?" in done.output
    assert there(home) == set(FILES["logs"])
    assert not portable.exists()
    assert not (tmp_path / "share" / ENTRY).exists()


def test_a_menu_entry_that_stays_is_said_and_the_rest_goes(
    home: Path, portable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(portable, tmp_path / "share")
    fill(home, FILES["logs"])
    real = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == ENTRY.name:
            raise PermissionError(13, "Permission denied", str(path))
        real(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    done = uninstall("--purge-logs", "--purge-program", "--yes")
    assert done.exit_code == 1
    assert "The menu entry cannot be removed (Permission denied" in done.output
    assert not home.exists()
    assert not portable.exists()


def test_debians_package_is_removed_by_its_command_and_only_on_a_yes(
    home: Path, debian: Callable[[], list[list[str]]]
) -> None:
    fill(home, all_files())
    done = uninstall("--purge-all", "--yes")
    assert done.exit_code == 0, done.output
    assert "sudo apt remove kvasir" in done.output
    assert "sudo apt remove kvasir" in uninstall(answers="n\n").output
    assert debian() == []
    asked = uninstall(answers="y\ny\n")
    assert asked.exit_code == 0, asked.output
    assert debian() == [["pkexec", "apt-get", "remove", "kvasir", "-y"]]


def test_sizes_for_people() -> None:
    assert [human(count) for count in (0, 1, 999_000, 1_500_000, 5_100_000_000)] == [
        "0 kB",
        "1 kB",
        "999 kB",
        "2 MB",
        "5.1 GB",
    ]
