"""The bounds of a page are those of its keys, whatever happened to them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.cache.stores.packed import PackedKV, Placement
from engine.cache.stores.store import DenseKVStore
from engine.cache.techniques.quest.store import DENSE_LAYERS, QuestStore
from tests.kit.examples import examples

PAGES, HEADS, WIDTH = 6, 2, 4
BOUNDED = [layer >= DENSE_LAYERS for layer in range(4)]


def rebuilt(kv: PackedKV) -> torch.Tensor:
    """The bounds by their definition, a page and a channel at a time."""
    keys = kv.k.view(PAGES, 16, HEADS, WIDTH)
    bounds = torch.zeros(PAGES, HEADS, 2 * WIDTH, dtype=kv.k.dtype)
    for page in range(PAGES):
        for head in range(HEADS):
            for channel in range(WIDTH):
                column = keys[page, :, head, channel].tolist()
                bounds[page, head, channel], bounds[page, head, WIDTH + channel] = min(column), max(column)
    return bounds


def test_the_first_layers_keep_no_bounds() -> None:
    store = QuestStore([(HEADS, WIDTH)] * 4, PAGES, torch.float32, bounded=BOUNDED)
    assert [store.view(layer).bounds is None for layer in range(4)] == [True, True, False, False]


def test_bounds_are_counted() -> None:
    plain = DenseKVStore([(HEADS, WIDTH)] * 4, PAGES, torch.bfloat16)
    store = QuestStore([(HEADS, WIDTH)] * 4, PAGES, torch.bfloat16, bounded=BOUNDED)
    # Two of four layers have, for each page, as much as two keys.
    assert store.bytes_per_token() - plain.bytes_per_token() == 2 * (2 * HEADS * WIDTH * 2) / 16
    assert store.storage_size() == store.bytes_per_token() * PAGES * 16


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.permutations(range(PAGES * 16)), st.integers(1, 40)),
        st.tuples(st.just("run"), st.permutations(range(60)), st.integers(1, 36)),
        st.tuples(st.just("move"), st.permutations(range(PAGES * 16)), st.integers(1, 20)),
        st.tuples(st.just("copy"), st.permutations(range(PAGES)), st.just(0)),
        st.tuples(st.just("swap"), st.permutations(range(PAGES)), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bounds_equal_a_rebuild_whatever_is_done(dtype: torch.dtype) -> None:
    @examples(60)
    @given(steps)
    def run(todo: list[tuple[str, list[int], int]]) -> None:
        torch.manual_seed(0)
        store = QuestStore([(HEADS, WIDTH)] * 2, PAGES, dtype, bounded=[True, True])
        for kind, order, count in todo:
            if kind in ("write", "run"):
                slots = torch.tensor(order[:count]) if kind == "write" else torch.arange(order[0], order[0] + count)
                pages = torch.unique(slots // 16) if count % 2 else None
                to = Placement(slots[None], [-1 if kind == "write" else order[0]], pages=pages)
                for layer in range(2):
                    k, v = torch.randn(2, count, HEADS, WIDTH).to(dtype)
                    store.write(layer, k, v, to)
            elif kind == "move":
                store.move_slots(torch.tensor(order[:count]), torch.tensor(order[-count:]))
            elif kind == "copy":
                store.copy_page(order[0], order[1])
            else:
                store.import_pages(order[-count:], store.export_pages(order[:count]))
        for layer in range(2):
            bounds = store.view(layer).bounds
            assert bounds is not None
            assert torch.equal(bounds, rebuilt(store.view(layer)))

    run()


def test_a_chunk_leaves_the_bounds_that_single_tokens_leave() -> None:
    """Also where the single tokens overwrite a rejected draft that held larger keys."""
    torch.manual_seed(1)
    k, v = torch.randn(2, 40, HEADS, WIDTH)
    slots = torch.tensor([page * 16 + i for page in (4, 1, 3) for i in range(16)])[:40]
    chunk, single = (QuestStore([(HEADS, WIDTH)], PAGES, torch.float32, bounded=[True]) for _ in range(2))
    chunk.write(0, k, v, Placement(slots[None], [-1]))
    for i in range(40):
        draft = slots[i : i + 5]
        single.write(0, 9 * torch.randn(len(draft), HEADS, WIDTH), v[: len(draft)], Placement(draft[None], [-1]))
        single.write(0, k[i : i + 1], v[i : i + 1], Placement(slots[None, i : i + 1], [int(slots[i])]))
    one, other = chunk.view(0).bounds, single.view(0).bounds
    assert one is not None
    assert other is not None
    assert torch.equal(one[[4, 1, 3]], other[[4, 1, 3]])
