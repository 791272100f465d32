"""How many tokens of a prompt are kept, in the prefix tree or on disk: found without changing anything."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from engine.cache.offload.saved import SavedChats
from engine.loop.commands import FindKept
from tests.engine.loop.toy_engine import ToyEngine, toy_model

PROMPT = [1, 2, 3, 4] * 20


def kept(toy: ToyEngine, prompt: list[int], chat: str = "c", adapter: str = "") -> int:
    replies: list[int] = []
    before = toy.engine.cache_version()
    toy.engine.submit(FindKept(prompt, chat, adapter, replies.append))
    toy.step()
    assert toy.engine.cache_version() == before
    return replies[0]


def test_what_an_answer_left_in_the_tree_is_found() -> None:
    toy = ToyEngine()
    assert kept(toy, PROMPT) == 0
    toy.add("r", PROMPT, chat="c")
    toy.drain()
    assert kept(toy, [*PROMPT, 9]) == len(PROMPT)
    assert kept(toy, [*PROMPT[:40], 9, *PROMPT[41:]]) == 32, "up to the page in which it is another text"
    assert kept(toy, [9, *PROMPT]) == 0
    assert kept(toy, [*PROMPT, 9], chat="another") == len(PROMPT), "texts that begin alike share their pages"
    assert kept(toy, [*PROMPT, 9], adapter="not in memory") == 0
    assert toy.owned == 0
    toy.engine._options.set("prefix_cache", False)
    assert kept(toy, [*PROMPT, 9]) == 0


def test_what_a_chat_saved_is_found_after_a_restart(tmp_path: Path) -> None:
    model = dataclasses.replace(toy_model(), fingerprint="toy")
    saved = SavedChats(tmp_path, 1 << 30)
    toy = ToyEngine(model, saved, disk_cache=1.0)
    toy.add("r", PROMPT, chat="c")
    toy.drain()
    saved.close()
    again = SavedChats(tmp_path, 1 << 30)
    toy = ToyEngine(dataclasses.replace(toy_model(), fingerprint="toy"), again, disk_cache=1.0)
    assert kept(toy, [*PROMPT, 9]) == len(PROMPT)
    assert kept(toy, [*PROMPT, 9], chat="another") == 0, "files are a chat's own"
    assert toy.stepper.cache.tree.pages == 0, "nothing is loaded by asking"
    again.close()


def test_without_a_model_nothing_is_kept() -> None:
    toy = ToyEngine()
    toy.engine._stepper = None
    replies: list[int] = []
    toy.engine.submit(FindKept(PROMPT, "c", "", replies.append))
    toy.engine.step()
    assert replies == [0]
