"""What is the same for all cases of a run is made once: the terminal's commands from their functions' signatures (a
tenth of a second), and the certificates that clients trust (a fortieth of one)."""

from __future__ import annotations

import functools
import ssl
from typing import Any

import typer.testing

_made: tuple[Any, Any] = typer.testing._get_command, ssl.create_default_context


def pytest_configure() -> None:
    typer.testing._get_command, ssl.create_default_context = map(functools.cache, _made)  # type: ignore[assignment]


def pytest_unconfigure() -> None:
    typer.testing._get_command, ssl.create_default_context = _made
