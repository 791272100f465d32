"""Settings of other versions: earlier ones are taken over and kept, later ones are never written to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import version
from app.settings import store as store_module
from app.settings.store import SettingsStore, UserSettings
from tests.kit.examples import examples

FIRST = {
    "version": 1,
    "theme": "light",
    "text_scale": 1.2,
    "reduced_motion": True,
    "memory": 0.5,
    "context": 4096,
    "device": "cpu",
    "draft": False,
    "model": "/models/Qwen3 8B",
    "tint": True,
    "panel_open": False,
    "plots_open": True,
    "sidebar_open": False,
    "geometry": "AdnQywAD",
    "from_a_plugin": {"ærlig": [1, None]},
}
"""As the first release wrote it, and a key that it did not know."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "config" / "settings.json"
    path.parent.mkdir()
    return path


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program whose settings have a second version, in which the theme has another name."""
    monkeypatch.setattr(store_module, "VERSION", 2)
    monkeypatch.setitem(store_module.MIGRATIONS, 1, lambda raw: {**raw, "theme": raw["theme"].lower()})


def written(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))


def test_settings_of_the_first_release(path: Path) -> None:
    path.write_text(json.dumps(FIRST))
    store = SettingsStore(path)
    assert store.notice == ""
    kept = {name: value for name, value in FIRST.items() if name not in ("version", "from_a_plugin")}
    assert store.settings == UserSettings(**kept)
    store.update(text_scale=1.0)
    since = {"quantise": "none", "cache_open": False, "gpu_dismissed": "", "folder": "", "options": {}, "recent": []}
    since |= {
        "unload_after": 0,
        "titles": True,
        "passages": "auto",
        "download_limit": 0,
        "panel_all": False,
        "notify": True,
        "notify_after": 20,
        "tray": False,
        "close_to_tray": False,
        "quick_keys": "",
        "presets": {},
        "models": {},
        "kv_kind_before": "",
        "serve": False,
        "serve_port": 8642,
        "commands": [],
        "keys": {},
        "simple": False,
        "language": "",
    }
    assert written(path) == {**FIRST, "text_scale": 1.0, **since}


def test_the_earlier_file_is_kept_when_it_is_replaced(path: Path, second: None) -> None:
    content = json.dumps({**FIRST, "theme": "DARK"})
    path.write_text(content)
    store = SettingsStore(path)
    assert (store.settings.theme, store.notice) == ("dark", "")
    assert path.read_text() == content, "nothing is written before something changes"
    store.update(draft=True)
    store.update(draft=False)
    assert written(path)["version"] == 2
    assert path.with_name("settings.version-1.json").read_text() == content
    assert sorted(file.name for file in path.parent.iterdir()) == ["settings.json", "settings.version-1.json"]


def test_where_it_cannot_be_kept_it_is_not_replaced(path: Path, second: None) -> None:
    content = json.dumps(FIRST)
    path.write_text(content)
    path.with_name("settings.version-1.json").mkdir()
    store = SettingsStore(path)
    said: list[str] = []
    store.failed.connect(said.append)
    store.update(draft=True)
    assert path.read_text() == content
    assert "could not be written" in said[0]


def test_a_migration_that_fails_gives_the_defaults_and_keeps_the_file(path: Path, second: None) -> None:
    content = json.dumps({"version": 1, "theme": 7})
    path.write_text(content)
    store = SettingsStore(path)
    assert store.settings == UserSettings()
    assert str(path.with_name("settings.version-1.json")) in store.notice
    assert path.read_text() == content
    store.update(theme="dark")
    assert path.with_name("settings.version-1.json").read_text() == content
    assert written(path)["version"] == 2


def test_a_later_file_is_left_and_this_version_has_its_own(path: Path) -> None:
    content = '{"version": 7, "theme": {"hue": 3}}'
    path.write_text(content)
    store = SettingsStore(path)
    assert store.settings == UserSettings()
    assert "later version of Kvasir" in store.notice
    assert "settings.version-1.json" in store.notice
    store.update(theme="dark", draft=False)
    again = SettingsStore(path)
    assert again.settings == UserSettings(theme="dark", draft=False)
    assert again.notice == store.notice
    assert path.read_text() == content


def test_back_to_an_earlier_version_and_forward_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(json.dumps(FIRST))
    with monkeypatch.context() as upgraded:
        upgraded.setattr(store_module, "VERSION", 2)
        upgraded.setitem(store_module.MIGRATIONS, 1, lambda raw: raw)
        SettingsStore(path).update(context=512)
    back = SettingsStore(path)
    assert back.settings == SettingsStore(path.with_name("settings.version-1.json")).settings
    assert (back.settings.theme, back.settings.context) == ("light", 4096)
    back.update(theme="dark")
    assert written(path.with_name("settings.version-1.json"))["from_a_plugin"] == FIRST["from_a_plugin"]
    with monkeypatch.context() as upgraded:
        upgraded.setattr(store_module, "VERSION", 2)
        assert (SettingsStore(path).settings.theme, SettingsStore(path).settings.context) == ("light", 512)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcæ_", min_size=1), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@examples(60)
@given(
    unknown=st.dictionaries(st.text("abcæ", min_size=1, max_size=6), JSON, max_size=4),
    number=st.one_of(st.just(1), JSON),
)
def test_whatever_is_in_it_nothing_unknown_is_lost(
    tmp_path_factory: pytest.TempPathFactory, unknown: dict, number: object
) -> None:
    path = tmp_path_factory.mktemp("any") / "settings.json"
    content = json.dumps({"version": number, **unknown, "theme": "dark"})
    path.write_text(content, "utf-8")
    SettingsStore(path).update(draft=False)
    later = isinstance(number, int) and number > 1
    if later:
        assert path.read_text("utf-8") == content
        assert written(path.with_name("settings.version-1.json"))["draft"] is False
    else:
        assert written(path) == {**written(path), **unknown, "version": 1, "theme": "dark", "draft": False}


def test_the_version_that_last_ran_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert version.last_used(tmp_path) == ""
    version.remember(tmp_path)
    assert version.last_used(tmp_path) == version.installed() != ""
    monkeypatch.setattr(version, "installed", lambda: "9.9")
    version.remember(tmp_path)
    assert written(tmp_path / version.FILE) == {"kvasir": "9.9"}
    (tmp_path / version.FILE).write_text("[")
    assert version.last_used(tmp_path) == ""
    version.remember(tmp_path / "not there")  # logged, no more


def test_it_is_the_version_that_the_engine_says(tmp_path: Path) -> None:
    from engine.library import paths as config

    assert version.installed() == config.version()
