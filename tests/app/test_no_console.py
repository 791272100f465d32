"""A program of Windows' without a console has no standard streams to complain to."""

import sys

from app import __main__ as start
from app import preflight


def test_the_window_starts_without_standard_streams(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(preflight, "has_display", lambda: False)
    assert start.main() == 2
    opened = [sys.stdout, sys.stderr]
    assert all(stream.write("x") == 1 for stream in opened)
    for stream in opened:
        stream.close()
