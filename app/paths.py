"""Folders of the window's files. ``KVASIR_HOME`` replaces the system's folders by subfolders of one folder."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

_NAME = "kvasir"
SETTINGS_BYTES = 16 << 20
"""Largest size of the settings; those of each of a thousand models take one."""


def _folder(sub: str, default: str) -> Path:
    home = os.environ.get("KVASIR_HOME", "")
    folder = Path(home) / sub if home else Path(default)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # no other user may read chats
    return folder


def config_dir() -> Path:
    """Settings."""
    return _folder("config", platformdirs.user_config_dir(_NAME, appauthor=False))


def settings_file() -> Path:
    """The settings: at most :data:`SETTINGS_BYTES` are read."""
    return config_dir() / "settings.json"


def data_dir() -> Path:
    """Chats."""
    return _folder("data", platformdirs.user_data_dir(_NAME, appauthor=False))


def log_dir() -> Path:
    """The log file and its predecessors."""
    return _folder("log", platformdirs.user_log_dir(_NAME, appauthor=False))


def assets_dir() -> Path:
    """Icons and the bundled texts, next to the packages in a checkout and in an installation."""
    return Path(__file__).resolve().parent.parent / "assets"


def docs_dir() -> Path:
    """The documentation that the help shows, next to the assets."""
    return assets_dir().parent / "docs"


def licences_dir() -> Path:
    """The list and the texts of everything a package brings, next to the assets; missing in a checkout."""
    return assets_dir().parent / "licences"
