"""Named keys of the server: kept as hashes, seen by a server that runs."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import msgspec
import pytest

from engine.protocol.access import AddedKey, AddKey, NamedKey, RevokeKey
from engine.protocol.operations import ADD_KEY, LIST_KEYS, REVOKE_KEY, ListKeys
from engine.services import keys
from engine.services.keys import KnownKeys
from engine.services.operations import OperationFailed, perform


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))


def add(name: str, **limits: int) -> AddedKey:
    return perform(ADD_KEY, AddKey(name=name, **limits))


def names() -> list[str]:
    return [each.name for each in perform(LIST_KEYS, ListKeys())]


def test_a_key_is_shown_once_and_only_its_hash_is_kept() -> None:
    made = add("laptop", rate=60, concurrent=2)
    kept = keys.file().read_text()
    assert made.key.startswith("kv-")
    assert len(made.key) == 3 + 43, "256 bits"
    assert made.key not in kept
    assert keys.hash_of(made.key) in kept
    assert perform(LIST_KEYS, ListKeys()) == [made.record]
    assert (made.record.rate, made.record.concurrent, made.record.expires) == (60, 2, 0)


@pytest.mark.skipif(os.name != "posix", reason="files have no modes there")
def test_only_the_user_can_read_them() -> None:
    add("laptop")
    add("phone")
    assert stat.S_IMODE(keys.file().stat().st_mode) == 0o600


def test_names_are_taken_once_and_are_words() -> None:
    add("laptop")
    with pytest.raises(OperationFailed, match="a key laptop already"):
        add("laptop")
    for name in ("", "two words", "a/b", "x" * 64, "-x", "ü"):
        with pytest.raises(OperationFailed, match="cannot be a key's name"):
            add(name)
    assert names() == ["laptop"]


def test_a_running_server_sees_what_is_added_and_revoked() -> None:
    known = KnownKeys()
    assert not known.any()
    laptop, phone = add("laptop"), add("phone")
    assert known.find(laptop.key) == laptop.record
    assert known.find(laptop.key[:-1]) is None
    assert perform(REVOKE_KEY, RevokeKey(name="laptop")) == laptop.record
    assert known.find(laptop.key) is None
    assert known.find(phone.key) == phone.record
    with pytest.raises(OperationFailed, match="no key 'laptop', only these: phone"):
        perform(REVOKE_KEY, RevokeKey(name="laptop"))


def test_a_key_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    made, known = add("guest", days=2), KnownKeys()
    assert known.find(made.key) == made.record
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2 * 24 * 3600)
    assert known.find(made.key) is None
    assert names() == ["guest"]


def test_a_damaged_file_opens_nothing_and_is_not_overwritten() -> None:
    made, known = add("laptop"), KnownKeys()
    assert known.find(made.key) is not None
    keys.file().write_text('{"keys": [{}]}')
    assert known.find(made.key) is None
    for act in (names, lambda: add("phone")):
        with pytest.raises(OperationFailed, match=r"does not hold what it should.*Delete it, and add the keys again"):
            act()
    assert keys.file().read_text() == '{"keys": [{}]}'


def test_a_record_tells_no_hash() -> None:
    assert "hash" not in msgspec.json.schema(NamedKey)["$defs"]["NamedKey"]["properties"]
