"""Files that were changed, cut or made by somebody else: pages come back as they were written, or not at all."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from engine.cache.offload.saved import Kind, SavedChats
from engine.cache.offload.saved_files import DATA, INDEX, MAGIC, VERSION, ChatFiles, _digest, name_of

PAGE, PAGES = 64, 5
KIND = Kind("model", "16-bit", "4 x uint8[16, 1]", PAGE)
TOKENS = list(range(PAGES * 16))
CONTENT = torch.randint(0, 256, (PAGES, PAGE), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def chat(tmp_path: Path) -> ChatFiles:
    """A saved chat "a"."""
    chats = SavedChats(tmp_path / "whole", 1 << 20)
    assert chats.save("a", KIND, TOKENS, lambda first, stop: CONTENT[first:stop])
    chats.close()
    return ChatFiles(tmp_path / "whole", name_of("a"))


def read(folder: Path, tokens: list[int] = TOKENS) -> tuple[int, int]:
    """How many pages came back, each of them compared, and how many chats were found damaged."""
    chats = SavedChats(folder, 1 << 20)
    count, got = chats.match("a", KIND, tokens), 0
    assert 0 <= count <= PAGES
    for page in range(count):
        data = chats.load("a", KIND, tokens, page, page + 1)
        if data is not None:
            assert torch.equal(data[0], CONTENT[page]), "garbage"
            got += 1
    assert chats.flush(10)
    damaged = chats.counts.damaged
    if damaged:
        assert chats.match("a", KIND, tokens) == 0
        assert chats.sizes() == (0, 0)
    chats.close()
    return got, damaged


def damage(path: Path, rng: random.Random) -> str:
    """Change the file in one of many ways; what was done."""
    raw = bytearray(path.read_bytes())
    what = rng.choice(["flip", "flips", "cut", "grow", "swap", "zero"])
    at = rng.randrange(len(raw))
    if what == "flip":
        raw[at] ^= 1 << rng.randrange(8)
    elif what == "flips":
        for _ in range(rng.randrange(2, 20)):
            raw[rng.randrange(len(raw))] ^= rng.randrange(1, 256)
    elif what == "cut":
        del raw[at:]
    elif what == "grow":
        raw += rng.randbytes(rng.randrange(1, 300))
    elif what == "swap":
        other = rng.randrange(len(raw))
        raw[at : at + 16], raw[other : other + 16] = raw[other : other + 16], raw[at : at + 16]
    else:
        raw[at:] = bytes(len(raw) - at)
    path.write_bytes(raw)
    return what


def fuzz(chat: ChatFiles, folder: Path, rounds: int, seed: int) -> None:
    rng, found = random.Random(seed), 0
    for _ in range(rounds):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(chat.data.parent, folder)
        for end in rng.choice([(DATA,), (INDEX,), (DATA, INDEX)]):
            before = (folder / (chat.name + end)).read_bytes()
            damage(folder / (chat.name + end), rng)
            if end == INDEX and (folder / (chat.name + end)).read_bytes() != before:
                found += 1
        got, damaged = read(folder)
        assert damaged <= 1
        assert got == PAGES or damaged == 1
    assert found > rounds // 3


def test_changed_files_are_ignored_and_deleted(chat: ChatFiles, tmp_path: Path) -> None:
    fuzz(chat, tmp_path / "changed", 500, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_changed_files_are_ignored_and_deleted_many(chat: ChatFiles, tmp_path: Path, seed: int) -> None:
    fuzz(chat, tmp_path / "changed", 2000, seed=100 + seed)


def test_every_byte_of_both_files_counts(chat: ChatFiles) -> None:
    sound = {path: path.read_bytes() for path in (chat.data, chat.index)}
    for path, whole in sound.items():
        for at in range(len(whole)):
            for each, raw in sound.items():
                each.write_bytes(raw)
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            assert read(path.parent)[1] == 1, (path.suffix, at)


GOOD: dict[str, Any] = {
    "version": VERSION,
    "model": KIND.model,
    "namespace": KIND.namespace,
    "layout": KIND.layout,
    "page_tokens": 16,
    "page_bytes": PAGE,
    "tokens": b"".join(token.to_bytes(4, "little") for token in TOKENS),
    "checksums": bytes(4 * PAGES),
}
DEEP = b"\x91" * 100_000 + b"\xc0"


@pytest.mark.parametrize(
    "body",
    [
        {**GOOD, "version": VERSION + 1},
        {**GOOD, "version": "1"},
        {**GOOD, "page_bytes": -PAGE},
        {**GOOD, "page_bytes": 0},
        {**GOOD, "page_tokens": 32},
        {**GOOD, "page_tokens": 1 << 63},
        {**GOOD, "tokens": GOOD["tokens"][:-1]},
        {**GOOD, "tokens": TOKENS},
        {**GOOD, "checksums": bytes(4 * PAGES + 1)},
        {**GOOD, "checksums": [0] * PAGES},
        {**GOOD, "model": None},
        {**GOOD, "data": "/etc/passwd"},
        {key: value for key, value in GOOD.items() if key != "tokens"},
        {},
        [],
        "text",
        DEEP,
        b"",
        GOOD,  # sound, but of other pages
    ],
    ids=lambda body: "deep" if body is DEEP else None,
)
def test_a_forged_index_is_refused(chat: ChatFiles, body: Any) -> None:
    raw = body if isinstance(body, bytes) else msgspec.msgpack.encode(body)
    chat.index.write_bytes(MAGIC + _digest(raw) + raw)
    assert read(chat.data.parent) == (0, 1)


def test_an_index_that_names_more_than_there_is_gives_nothing_of_it(chat: ChatFiles) -> None:
    count = 5_000
    more = {
        **GOOD,
        "tokens": b"".join(i.to_bytes(4, "little") for i in range(count * 16)),
        "checksums": bytes(4 * count),
    }
    raw = msgspec.msgpack.encode(more)
    chat.index.write_bytes(MAGIC + _digest(raw) + raw)
    chats = SavedChats(chat.data.parent, 1 << 30)
    tokens = list(range(count * 16))
    assert chats.match("a", KIND, tokens) == count
    assert chats.load("a", KIND, tokens, 2_000, 2_003) is None
    chats.close()
    assert chats.counts.damaged == 1


@pytest.mark.parametrize("size", [1 << 62, (1 << 64) - 1])
def test_sizes_of_an_index_reserve_no_memory(chat: ChatFiles, size: int) -> None:
    raw = msgspec.msgpack.encode({**GOOD, "page_bytes": size})
    chat.index.write_bytes(MAGIC + _digest(raw) + raw)
    assert read(chat.data.parent) == (0, 0), "pages of another kind"


def test_an_index_that_is_absurdly_long_is_not_read(chat: ChatFiles) -> None:
    os.truncate(chat.index, 1 << 40)  # with nothing in it
    chats = SavedChats(chat.data.parent, 1 << 50)
    assert chats.match("a", KIND, TOKENS) == 0
    chats.close()
    assert chats.counts.damaged == 1
    assert not chat.index.exists()


@pytest.mark.skipif(os.name != "posix", reason="links and pipes of POSIX")
@pytest.mark.parametrize("end", [DATA, INDEX])
@pytest.mark.parametrize("what", ["link", "pipe"])
def test_links_and_pipes_are_not_followed(chat: ChatFiles, tmp_path: Path, end: str, what: str) -> None:
    path, aside = chat.data.parent / (chat.name + end), tmp_path / "aside"
    shutil.move(path, aside)
    if what == "link":
        path.symlink_to(aside)
    else:
        os.mkfifo(path)
    before = aside.read_bytes()
    assert read(chat.data.parent) == (0, 1)
    assert aside.read_bytes() == before


def test_a_folder_in_the_place_of_a_file_harms_nobody(chat: ChatFiles) -> None:
    chat.index.unlink()
    chat.index.mkdir()
    chats = SavedChats(chat.data.parent, 1 << 20)
    assert chats.match("a", KIND, TOKENS) == 0
    assert chats.save("b", KIND, TOKENS, lambda first, stop: CONTENT[first:stop])
    chats.close()
    assert chats.counts.written == PAGES


def test_what_is_not_a_saved_chat_is_left_alone(chat: ChatFiles) -> None:
    folder = chat.data.parent
    for name in ("notes.txt", "abc.pages", "notes.index", f"{'0' * 32}.other"):
        (folder / name).write_text("mine")
    (folder / f"{'1' * 32}{DATA}").write_text("without an index")
    (folder / f"{'2' * 32}{INDEX}.77.unfinished").write_text("half")
    assert read(folder) == (PAGES, 0)
    assert len(list(folder.iterdir())) == 2 + 4
