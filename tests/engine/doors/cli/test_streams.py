"""Standard streams that are missing, or that Windows would give a code page of its country."""

import io
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from engine.doors.cli.errors import CommandFailed, report_errors
from engine.doors.cli.streams import leave_deleted_folder, prepare_streams
from engine.doors.serve import stop_signals

TEXT = 'Ærlig talt → "日本語"'


class Console(io.TextIOWrapper):
    def isatty(self):
        return True


def pipe(encoding="cp1252", kind=io.TextIOWrapper):
    return kind(io.BytesIO(), encoding=encoding)


def test_a_stream_that_was_closed_takes_and_gives_nothing(monkeypatch):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    prepare_streams()
    opened = [sys.stdin, sys.stdout, sys.stderr]
    sys.stdout.write(TEXT)
    assert sys.stdin.read() == ""
    for stream in opened:
        stream.close()


def test_a_pipe_on_windows_speaks_utf8(monkeypatch):
    out = pipe()
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "stdout", out)
    prepare_streams()
    sys.stdout.write(json.dumps(TEXT, ensure_ascii=False))
    sys.stdout.flush()
    assert json.loads(out.buffer.getvalue().decode("utf-8")) == TEXT


@pytest.mark.parametrize(("platform", "kind"), [("linux", io.TextIOWrapper), ("win32", Console)])
def test_a_console_and_other_systems_keep_their_encoding(monkeypatch, platform, kind):
    out = pipe("latin-1", kind)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(sys, "stdout", out)
    prepare_streams()
    assert out.encoding == "latin-1"


@pytest.mark.parametrize(("encoding", "written"), [("latin-1", b"\xc6 \\u65e5"), ("utf-8", b"\xc3\x86 \xe6\x97\xa5")])
@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_what_cannot_be_spelled_ends_nothing(monkeypatch, encoding, written, errors):
    out = pipe(encoding)
    out.reconfigure(errors=errors)  # the second where the language is C
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "stdout", out)
    prepare_streams()
    sys.stdout.write("Æ 日")
    sys.stdout.write(b"\xff.gguf".decode("utf-8", "surrogateescape"))
    sys.stdout.flush()
    assert out.buffer.getvalue() == written + rb"\udcff.gguf"


def test_ctrl_break_stops_a_server_where_there_is_one(monkeypatch):
    assert stop_signals() == [signal.SIGINT, signal.SIGTERM]
    monkeypatch.setattr(signal, "SIGBREAK", 21, raising=False)
    assert stop_signals() == [signal.SIGINT, signal.SIGTERM, 21]


@pytest.mark.skipif(os.name == "nt", reason="a folder that a process stands in cannot be deleted there")
def test_a_working_folder_that_is_gone_is_left(tmp_path, monkeypatch, capsys):
    """Intel's MKL ends a process in such a folder, that of the engine below the window too."""
    gone, home = tmp_path / "gone", tmp_path / "home"
    gone.mkdir()
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(gone)
    leave_deleted_folder()
    assert Path.cwd() == gone
    gone.rmdir()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    leave_deleted_folder()
    assert Path.cwd() == home
    assert f"Paths count from {home}." in capsys.readouterr().err


def test_a_failure_is_one_line_whatever_it_names(capsys):
    with pytest.raises(SystemExit), report_errors():
        raise CommandFailed("/m/new\nkvasir: all is well\x1b[31m was not there.")
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "kvasir: /m/new\ufffdkvasir: all is well\ufffd[31m was not there."
