"""`kvasir uninstall` beside the window's own code: all that it writes goes, and not while it is open."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from app import log as log_file
from app import paths, version
from app.documents.vectors import VectorFolder, VectorHead
from app.history.schema import VERSION
from app.history.store import HistoryStore
from app.settings.store import SettingsStore
from app.single import SingleInstance
from engine.doors.cli.installation.running import running
from engine.doors.cli.main import app
from tests.app import released_histories as released


def test_all_that_the_window_writes_is_known(qapp, own_folders: Path) -> None:
    data, config = paths.data_dir(), paths.config_dir()
    released.make(data / "history.db", 1)
    HistoryStore(data / "history.db").close()
    (data / "history.db").write_bytes(b"damaged" * 1000)
    HistoryStore(data / "history.db").close()
    vectors = VectorFolder(data / "passages")
    vectors.add(vectors.open("digest", VectorHead("f", 1, 1, "")), bytes(4))
    version.remember(data)
    (config / "settings.json").write_text("{")
    SettingsStore(config / "settings.json").update(theme="dark")
    (config / "settings.json").write_text('{"version": 9}')
    SettingsStore(config / "settings.json").update(theme="light")
    log_file.start(paths.log_dir())
    log_file.stop()
    written = {path.name for path in (own_folders / "kvasir").rglob("*") if path.is_file()}
    assert {
        f"history.db.before-{VERSION}",
        "settings.version-1.json",
        "settings.json.broken",
        "version.json",
    } <= written
    done = CliRunner().invoke(app, ["uninstall", "--purge-chats", "--purge-settings", "--purge-logs", "--yes"])
    assert done.exit_code == 0, done.output
    assert "Nothing of Kvasir's is left" in done.output
    assert not (own_folders / "kvasir").exists()


def test_an_open_window_is_found(qapp, tmp_path: Path) -> None:
    assert running() == ""
    window = SingleInstance(paths.data_dir())
    assert window.acquire()
    try:
        assert "window is open" in running()
        done = CliRunner().invoke(app, ["uninstall", "--purge-all", "--yes"])
        assert (done.exit_code, paths.data_dir().exists()) == (1, True)
    finally:
        window.release()
    assert running() == ""
