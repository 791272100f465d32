"""Chats come back as they were saved or not at all; the writer keeps up or says so; quotas and deletions hold."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.cache.offload import saved, saved_files, saved_folder
from engine.cache.offload.saved import Kind, SavedChats
from engine.cache.offload.saved_files import DATA, INDEX, ChatFiles, name_of
from engine.cache.stores.store import DenseKVStore
from engine.library import paths as config

PAGE = 96
KIND = Kind("model-1", "16-bit, all pages", "2 x int8[16, 3]", PAGE)
QUOTA = 1 << 20


def text(pages: int, seed: int = 0) -> list[int]:
    """Token ids of so many pages, other ones for another seed."""
    return [seed * 100_000 + i for i in range(pages * 16)]


def page_of(tokens: list[int], number: int) -> Tensor:
    """What this page of these tokens reads: it follows from all tokens up to its end."""
    generator = torch.Generator().manual_seed(hash(tuple(tokens[: number * 16 + 16])) % (1 << 60))
    return torch.randint(0, 256, (PAGE,), dtype=torch.uint8, generator=generator)


class Exports:
    """The pages of a sequence, and which of them were asked for."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens, self.asked = tokens, list[tuple[int, int]]()

    def __call__(self, first: int, stop: int) -> Tensor:
        self.asked.append((first, stop))
        return torch.stack([page_of(self.tokens, number) for number in range(first, stop)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "chats"


@pytest.fixture
def make(folder: Path) -> Iterator[Callable[..., SavedChats]]:
    made: list[SavedChats] = []

    def new(quota: int = QUOTA, **more: Any) -> SavedChats:
        made.append(SavedChats(folder, quota, **more))
        return made[-1]

    yield new
    for chats in made:
        chats.close()


def save(chats: SavedChats, chat: str, tokens: list[int], kind: Kind = KIND) -> list[tuple[int, int]]:
    exports = Exports(tokens)
    chats.save(chat, kind, tokens, exports)
    assert chats.flush(10)
    return exports.asked


def loaded(chats: SavedChats, chat: str, tokens: list[int], kind: Kind = KIND) -> int:
    """How many pages come back, each of them compared."""
    count = chats.match(chat, kind, tokens)
    if count == 0:
        return 0
    pages = chats.load(chat, kind, tokens, 0, count)
    if pages is None:
        return 0
    assert all(torch.equal(page, page_of(tokens, number)) for number, page in enumerate(pages))
    return len(pages)


def test_a_chat_comes_back_after_a_restart(make: Callable[..., SavedChats]) -> None:
    chats = make()
    assert save(chats, "a", [*text(3), 1, 2, 3]) == [(0, 3)]
    chats.close()
    again = make()
    assert loaded(again, "a", text(5)) == 3
    assert again.load("a", KIND, text(3), 1, 2) is not None
    assert again.counts.read == 4
    assert loaded(again, "b", text(5)) == 0


def test_only_new_pages_are_appended(make: Callable[..., SavedChats], folder: Path) -> None:
    chats = make()
    assert save(chats, "a", text(2)) == [(0, 2)]
    first = (folder / (name_of("a") + DATA)).read_bytes()
    assert save(chats, "a", text(2)) == []
    assert save(make(), "a", text(5)) == [(2, 5)]
    assert (folder / (name_of("a") + DATA)).read_bytes().startswith(first)
    assert loaded(make(), "a", text(5)) == 5


def test_a_chat_that_went_another_way_keeps_its_common_beginning(make: Callable[..., SavedChats], folder: Path) -> None:
    chats, other = make(), text(3) + text(1, seed=7)
    save(chats, "a", text(6))
    assert loaded(chats, "a", other) == 3
    assert save(chats, "a", other) == [(3, 4)]
    assert loaded(chats, "a", other) == 4
    assert loaded(chats, "a", text(6)) == 3
    assert (folder / (name_of("a") + DATA)).stat().st_size == 4 * PAGE
    half = text(6)[:40] + text(6, seed=5)  # within a page
    assert loaded(chats, "a", half) == 2


@pytest.mark.parametrize(
    "kind",
    [
        KIND._replace(model="model-2"),
        KIND._replace(namespace="int8"),
        KIND._replace(layout="1 x int8[16, 6]"),
        KIND._replace(page_bytes=PAGE // 2),
    ],
)
def test_pages_of_another_kind_are_not_given_out_and_are_replaced(make: Callable[..., SavedChats], kind: Kind) -> None:
    chats = make()
    save(chats, "a", text(3))
    assert chats.match("a", kind, text(3)) == 0
    assert chats.load("a", kind, text(3), 0, 3) is None
    assert loaded(chats, "a", text(3)) == 3, "they are another model's: nothing is wrong with them"
    chats.save("a", kind, text(2), lambda first, stop: torch.ones(stop - first, kind.page_bytes, dtype=torch.uint8))
    assert chats.flush(10)
    assert chats.match("a", kind, text(3)) == 2
    assert loaded(chats, "a", text(3)) == 0


def test_ranges_that_are_not_saved_are_not_loaded(make: Callable[..., SavedChats]) -> None:
    chats = make()
    save(chats, "a", text(3))
    for first, stop in ((0, 4), (-1, 2), (2, 2), (3, 2)):
        assert chats.load("a", KIND, text(9), first, stop) is None
    assert chats.counts.damaged == 0


def test_pages_of_a_store_travel_through_a_file(make: Callable[..., SavedChats]) -> None:
    store = DenseKVStore([(2, 4)] * 2, 6, torch.bfloat16)
    for layer in range(2):
        store.view(layer).k.normal_()
        store.view(layer).v.normal_()
    kind = Kind("m", "16-bit", store.page_layout, store.page_bytes)
    chats, pages = make(), [4, 1, 5]
    assert chats.save("a", kind, text(3), lambda first, stop: store.export_pages(pages[first:stop]))
    assert chats.flush(10)
    before = store.export_pages(pages)
    read = chats.load("a", kind, text(3), 0, 3)
    assert read is not None
    store.import_pages([2, 3, 4], read)
    assert torch.equal(store.export_pages([2, 3, 4]), before)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_files_are_their_users_only_and_named_by_a_hash(make: Callable[..., SavedChats], folder: Path) -> None:
    folder.mkdir(mode=0o755)
    save(make(), "../../etc/passwd\0\ud800", text(1))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    names = sorted(path.name for path in folder.iterdir())
    assert names == [name_of("../../etc/passwd\0\ud800") + end for end in (INDEX, DATA)]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())


# --- the quota ---------------------------------------------------------------------------------------------------


class Clock:
    now = 1e9

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_the_longest_unused_make_way_also_after_a_restart(make: Callable[..., SavedChats]) -> None:
    clock = Clock()
    chats = make(clock=clock)
    for chat in "abc":
        save(chats, chat, text(3, seed=ord(chat)))
    assert loaded(chats, "a", text(3, seed=ord("a"))) == 3
    each = chats.sizes().size // 3
    chats.close()
    small = make(quota=3 * each + 400, clock=clock)
    save(small, "d", text(3))
    assert [chat for chat in "abcd" if small.match(chat, KIND, text(3, seed=ord(chat) if chat != "d" else 0))] == [
        "a",
        "c",
        "d",
    ]
    assert small.counts.evicted == 1
    assert small.sizes() == (3, 3 * each)
    small.resize(each + 10)
    assert small.flush(10)
    assert small.sizes().chats == 1
    assert loaded(small, "d", text(3)) == 3


def test_the_files_never_take_more_than_the_quota(make: Callable[..., SavedChats], folder: Path) -> None:
    chats = make(quota=3000)
    for number in range(30):
        save(chats, str(number % 7), text(1 + number % 5, seed=number))
        files = sum(path.stat().st_size for path in folder.iterdir())
        assert files <= 3000
        assert chats.sizes().size == files
    assert chats.counts.evicted > 0


def test_a_chat_that_is_too_long_is_refused_and_what_was_saved_of_it_stays(make: Callable[..., SavedChats]) -> None:
    chats = make(quota=2000)
    save(chats, "a", text(3))
    assert save(chats, "a", text(30)) == []
    assert chats.counts.refused == 1
    assert loaded(chats, "a", text(30)) == 3


def test_a_quota_of_nothing_saves_nothing_and_deletes_nothing(make: Callable[..., SavedChats]) -> None:
    chats = make()
    save(chats, "a", text(3))
    chats.resize(0)
    assert save(chats, "b", text(3)) == []
    assert chats.match("a", KIND, text(3)) == 0
    off = make(quota=0)
    assert loaded(off, "a", text(3)) == 0
    off.resize(QUOTA)
    assert loaded(off, "a", text(3)) == 3
    off.clear()
    assert off.flush(10)
    assert off.sizes() == (0, 0)


def test_a_disk_that_is_nearly_full_is_left_alone(
    make: Callable[..., SavedChats], monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = make()
    save(chats, "a", text(2))
    monkeypatch.setattr(saved_folder, "SPARE", 1 << 62)
    save(chats, "a", text(3))
    assert chats.counts.refused == 1
    assert loaded(chats, "a", text(3)) == 2


# --- deleting ----------------------------------------------------------------------------------------------------


def test_a_forgotten_chat_leaves_nothing(make: Callable[..., SavedChats], folder: Path) -> None:
    chats = make()
    save(chats, "a", text(2))
    save(chats, "b", text(2))
    chats.forget("a")
    assert chats.match("a", KIND, text(2)) == 0
    assert chats.flush(10)
    assert {path.stem for path in folder.iterdir()} == {name_of("b")}
    assert loaded(chats, "b", text(2)) == 2
    chats.close()
    chats.forget("b")
    assert not list(folder.iterdir())


class Held:
    """A disk that waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.reached, fsync = threading.Event(), threading.Event(), os.fsync

        def wait(handle: int) -> None:
            self.reached.set()
            assert self.go.wait(300)
            fsync(handle)

        monkeypatch.setattr(os, "fsync", wait)


def test_a_chat_that_is_forgotten_while_it_is_written_leaves_nothing(
    make: Callable[..., SavedChats], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats, disk = make(), Held(monkeypatch)
    assert chats.save("a", KIND, text(2), Exports(text(2)))
    assert disk.reached.wait(300)
    assert chats.save("b", KIND, text(2), Exports(text(2)))
    chats.forget("a")
    chats.forget("b")
    disk.go.set()
    assert chats.flush(10)
    assert not list(folder.iterdir())
    assert chats.sizes() == (0, 0)


# --- the writer --------------------------------------------------------------------------------------------------


def test_a_slow_disk_keeps_nobody_waiting(
    make: Callable[..., SavedChats], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chats, disk = make(pending=5 * PAGE), Held(monkeypatch)
    assert chats.save("a", KIND, text(2), Exports(text(2)))
    assert disk.reached.wait(300)
    assert chats.match("a", KIND, text(2)) == 0, "it is not there yet"
    assert not chats.save("a", KIND, text(3), Exports(text(3))), "one write of a chat at a time"
    exports = Exports(text(9, seed=1))
    assert chats.save("b", KIND, text(9, seed=1), exports)
    assert exports.asked == [(0, 3)], "no more may wait"
    assert not chats.save("c", KIND, text(2, seed=2), Exports(text(2, seed=2)))
    assert chats.counts.dropped == 2
    chats.close(timeout=0.1)
    assert "2 are left out" in caplog.text
    disk.go.set()
    assert chats.flush(10)


def test_so_many_answers_may_wait(make: Callable[..., SavedChats], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "MOST_WRITES", 3)
    chats, disk = make(), Held(monkeypatch)
    accepted = [chats.save(chat, KIND, text(1), Exports(text(1))) for chat in "abcde"]
    assert accepted == [True, True, True, False, False]
    disk.go.set()
    assert chats.flush(10)
    assert chats.counts.written == 3


def test_a_disk_that_fails_costs_the_chat_and_nothing_else(
    make: Callable[..., SavedChats], folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chats = make()
    save(chats, "a", text(2))
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "no space left")))
        save(chats, "a", text(3))
    assert chats.counts.failed == 1
    assert "no space left" in caplog.text
    assert not list(folder.iterdir())
    save(chats, "a", text(3))
    assert loaded(chats, "a", text(3)) == 3


def test_a_folder_that_cannot_be_made_turns_saving_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    chats = SavedChats(tmp_path / "file" / "chats", QUOTA)
    assert "chats are not saved" in caplog.text
    assert not chats.save("a", KIND, text(2), Exports(text(2)))
    assert chats.match("a", KIND, text(2)) == 0
    assert chats.load("a", KIND, text(2), 0, 1) is None
    chats.forget("a")
    chats.clear()
    assert chats.sizes() == (0, 0)
    chats.close()


def test_after_closing_nothing_is_saved_or_loaded(make: Callable[..., SavedChats]) -> None:
    chats = make()
    chats.save("a", KIND, text(2), Exports(text(2)))
    chats.close()
    assert not chats.save("a", KIND, text(3), Exports(text(3)))
    assert loaded(chats, "a", text(2)) == 0
    assert loaded(make(), "a", text(2)) == 2


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("other", [text(6), text(2) + text(3, seed=9), text(5, seed=9)])
def test_a_writer_that_is_killed_anywhere_leaves_a_sound_chat(
    make: Callable[..., SavedChats], folder: Path, monkeypatch: pytest.MonkeyPatch, other: list[int]
) -> None:
    """Each call that touches the disk is the last one once; what is found is a beginning of the one text or the other,
    and at least what they have in common."""
    steps, whole = 0, saved_files._write_all
    common = next((i for i, (a, b) in enumerate(zip(text(4), other, strict=False)) if a != b), 64) // 16
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        save(make(), "a", text(4))
        files, left = ChatFiles(folder, name_of("a")), steps
        index = files.read_index()
        assert index is not None
        first = index.common_pages(KIND, saved.as_ids(other))

        def last(real: Callable[..., Any], half: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    half(*args)
                    raise Killed
                return real(*args)

            return call

        with monkeypatch.context() as watched:
            watched.setattr(os, "fsync", last(os.fsync))
            watched.setattr(os, "replace", last(os.replace))
            watched.setattr(
                saved_files, "_write_all", last(whole, lambda file, data: whole(file, data[: len(data) // 2]))
            )
            try:
                files.append(index, KIND, saved.as_ids(other), first, Exports(other)(first, len(other) // 16))
                done = True
            except Killed:
                done = False
        again = make()
        old, new = loaded(again, "a", text(4)), loaded(again, "a", other)
        assert again.counts.damaged == 0
        assert max(old, new) >= common
        assert not list(folder.glob("*.unfinished"))
        if done:
            assert new == len(other) // 16
            break
        steps += 1
    assert steps >= 5


def test_the_folder_is_beside_the_other_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    assert config.saved_cache_folder().parent == config.cache_folder()
    assert not config.saved_cache_folder().exists()
