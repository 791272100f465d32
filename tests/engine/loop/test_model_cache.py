"""What the cache of a model says of itself, and what it forgets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine.cache.pool import PAGE_SIZE
from engine.cache.prefix.radix import PrefixTree
from engine.loop.commands import AddRequest
from engine.protocol import ForgetChat, Sampling
from tests.engine.loop.toy_engine import ToyEngine, toy_model

LONG = Sampling(seed=2, max_tokens=20, ignore_eos=True)
SHARED = list(range(1, 17)) * 3  # three pages
ANNA, BERT = [*SHARED, *[3] * 20], [*SHARED, *[5] * 20]


def ask(toy: ToyEngine, id: str, prompt: list[int], chat: str, n: int = 1) -> None:
    toy.engine.submit(AddRequest(id, prompt, LONG, n, {}, chat=chat))


def runs(toy: ToyEngine) -> dict[str, int]:
    """Pages of the tree by the chat that read them last."""
    found: dict[str, int] = {}
    for node in toy.stepper.cache.tree.nodes():
        found[node.chat] = found.get(node.chat, 0) + len(node.keys)
    return found


def tree_of_two() -> ToyEngine:
    toy = ToyEngine()
    for id, prompt in (("anna", ANNA), ("bert", BERT)):
        ask(toy, id, prompt, id)
        toy.drain()
    assert runs(toy) == {"bert": 5, "anna": 2}, "the second has read the shared pages last"
    return toy


def test_a_deleted_chat_leaves_what_others_go_on_from() -> None:
    toy = tree_of_two()
    version = toy.engine.cache_version()
    toy.engine.submit(ForgetChat(chat="bert"))
    toy.drain()
    assert runs(toy) == {"anna": 5}, "the shared pages are hers now"
    assert toy.engine.cache_version() > version, "who looks at it is told"
    toy.engine.submit(ForgetChat(chat="anna"))
    toy.drain()
    assert runs(toy) == {}
    assert toy.engine.cache_pages().used == 0


def test_a_deleted_chat_leaves_host_memory() -> None:
    toy = ToyEngine(toy_model(pages=14), host_cache=1.0)
    for i in range(4):
        ask(toy, f"r{i}", [i + 1] * 70, "anna" if i < 3 else "bert")
        toy.drain()
    assert toy.engine.cache_stats().host_pages
    toy.engine.submit(ForgetChat(chat="anna"))
    toy.drain()
    assert set(runs(toy)) == {"bert"}
    assert toy.engine.cache_stats().host_pages == 0


def test_what_is_being_read_is_not_forgotten() -> None:
    toy = tree_of_two()
    ask(toy, "again", ANNA, "anna")
    toy.step()
    toy.engine.submit(ForgetChat(chat="anna"))
    toy.drain()
    assert toy.heard.answers["again", 0].reason == "length"
    assert toy.heard.answers["again", 0].tokens == toy.heard.answers["anna", 0].tokens


def test_a_hit_is_a_prompt_that_found_the_run() -> None:
    toy = tree_of_two()
    ask(toy, "again", BERT, "bert")
    toy.drain()
    shared, *rest = sorted(toy.stepper.cache.tree.nodes(), key=lambda node: node.depth)
    assert shared.hits == 2, "for bert, and for bert again"
    assert max(node.hits for node in rest if node.chat == "bert") == 1
    assert max(node.hits for node in rest if node.chat == "anna") == 0


def test_runs_come_in_the_order_in_which_they_were_made() -> None:
    toy = tree_of_two()
    before = [node.id for node in toy.stepper.cache.tree.nodes()]
    ask(toy, "again", ANNA, "anna")
    toy.drain()
    after = [node.id for node in toy.stepper.cache.tree.nodes()]
    assert [id for id in after if id in before] == before


@pytest.mark.parametrize("n", [1, 3])
def test_live_tokens_are_those_that_pages_hold(n: int) -> None:
    toy = ToyEngine()
    ask(toy, "first", ANNA, "anna")
    toy.drain()
    ask(toy, "a", [*ANNA, 7, 8, 9], "anna", n)
    ask(toy, "b", [9] * 37, "bert", n)
    seen = 0
    while toy.step():
        cache, running = toy.stepper.cache, toy.stepper.scheduler.running
        held = {page: PAGE_SIZE for node in cache.tree.nodes() for page in node.pages}
        for request in running:
            for place, page in enumerate(request.pages):
                here = min(PAGE_SIZE, max(0, request.num_computed - place * PAGE_SIZE))
                held[page] = max(held.get(page, 0), here)
        assert toy.engine.cache_pages().live_tokens == sum(held.values())
        seen += len(running) > 1
    assert seen


def test_pages_that_a_window_gave_up_hold_no_token() -> None:
    cache = ToyEngine().stepper.cache
    pages = cache.pool.allocate(4, "r")
    table = [pages[0], 0, 0, 0, *pages[1:]]
    held = SimpleNamespace(dead_pages=(1, 4), shared=0)
    request = SimpleNamespace(cache=held, num_computed=105, pages=table)
    assert cache.live_tokens([request]) == 105 - 3 * PAGE_SIZE  # type: ignore[list-item]


def test_a_tree_without_the_chat_forgets_nothing() -> None:
    toy = tree_of_two()
    tree: PrefixTree = toy.stepper.cache.tree
    before = (tree.version, tree.pages)
    tree.forget("carl")
    assert (tree.version, tree.pages) == before
