"""Captured steps without a GPU: a graph is played by running the frozen batch again.

Whatever a frozen batch took from the host would be that of its capture, and these tests would see it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.cache.policies import WindowWithSinks
from engine.cache.stores.kinds import KVKind
from engine.compute.attention.backends.sdpa import SdpaAttention
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import Batch, EmbeddedRows, ForwardOutput, SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.models.arenas import new_store
from engine.compute.models.families.llama import Model as Llama
from engine.compute.runner import graphs, recorders
from engine.compute.runner.ahead import capture_ahead, compile_ahead
from engine.compute.runner.buffers import Buffers
from engine.compute.runner.recorders import Captured, EarlyRecorder, Forward
from engine.compute.runner.runner import Runner
from engine.compute.vision.interface import Picture
from engine.compute.vision.placeholders import PlaceholderSpans
from tests.engine.compute.runner.graphs_support import CONTEXT, TREE, Capturing, Player, agree, graphs_of
from tests.kit.models import CONFIG, PAGES, VOCABULARY, RandomWeights, pages_for, tokens

PLACES = PlaceholderSpans([Picture(torch.zeros(1), (1, 3), 3, b"key")], [[0, 1, 2]], True)
VECTOR = torch.ones(1, CONFIG.hidden_size)


def runners(
    kind: KVKind = KVKind(), player: Player | None = None, early: bool = False, **numerics: bool
) -> tuple[Runner, Runner]:
    """One that captures, and one that never does, over the same weights."""
    made = []
    for plain in (player or Player(), None):
        modes = Numerics(**numerics)  # type: ignore[arg-type]
        modes.early = early
        recorder = None if plain is None else EarlyRecorder(plain, torch.device("cpu"), modes)
        store = new_store(CONFIG, PAGES, torch.float32, kind=kind)
        attention = AttentionDispatcher(modes, [Capturing()])
        made.append(
            Runner(
                Llama(CONFIG, RandomWeights(modes)),
                store,
                attention,
                context=CONTEXT,
                recorder=recorder,
                switches=modes,
            )
        )
    return made[0], made[1]


class Chats:
    """Sequences that are read, decoded and checked, on shuffled pages."""

    def __init__(self, count: int, seed: int) -> None:
        self.random = random.Random(seed)
        tables = pages_for(96, seed)
        self.pages = [next(tables) for _ in range(count)]
        self.texts: list[list[int]] = [[] for _ in range(count)]

    def rows(self, chat: int, count: int, wanted: int, parents: Sequence[int] | None = None) -> SequenceRows:
        start, new = len(self.texts[chat]), tokens(count, self.random.randrange(1 << 30))
        keep = count if parents is None else 1
        self.texts[chat] += new[:keep]
        # A table has pages for what is to come too, as when drafts are checked.
        return SequenceRows(new, start, self.pages[chat], wanted, parents)


KINDS = [KVKind(), KVKind("int8"), KVKind("fp8"), KVKind("int4")]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_captured_step_gives_what_the_eager_one_gives(kind: KVKind, seed: int) -> None:
    player = Player()
    captured, eager = runners(kind, player)
    chats = Chats(5, seed)
    for step in range(60):
        some = chats.random.sample(range(5), chats.random.randint(1, 5))
        some = [chat for chat in some if len(chats.texts[chat]) < 80]
        form = chats.random.choice(("decode", "decode", "chains", "tree", "read"))
        rows = []
        for chat in some:
            if form == "read" or not chats.texts[chat]:
                rows.append(chats.rows(chat, chats.random.randint(1, 9), 1))
            elif form == "tree":
                rows.append(chats.rows(chat, 5, 5, TREE))
            else:
                count = 1 if form == "decode" else chats.random.randint(1, 4)
                rows.append(chats.rows(chat, count, count))
        if not rows:
            break
        wanted = frozenset({0, 2}) if step % 13 == 0 else frozenset()
        agree(captured.forward(rows, want_hidden=wanted), eager.forward(rows, want_hidden=wanted))
        while graphs_of(captured).capture_one():
            pass
    assert player.replays > 12
    assert player.captures <= len(graphs_of(captured)) + 1


def test_padding_writes_page_0_alone_and_is_finite() -> None:
    captured, _ = runners()
    rows = [SequenceRows([1], 3, [5], 1), SequenceRows([2], 0, [7], 1), SequenceRows([3], 17, [9, 4], 1)]
    rows += [SequenceRows([4], 2, [11], 1), SequenceRows([5], 1, [12], 1)] * 1 + [SequenceRows([6], 1, [13], 1)]
    seven = [*rows, SequenceRows([7], 0, [14], 1)]
    for _ in range(4):
        out = captured.forward(seven)
    assert captured.eager == ""
    assert torch.isfinite(out.logits).all()
    keys = captured.kv.view(0).k.view(PAGES, 16, -1)
    assert torch.isfinite(keys).all()
    assert set(keys.abs().sum((1, 2)).nonzero().flatten().tolist()) == {0, 5, 7, 4, 11, 12, 13, 14}


def test_a_shape_is_captured_after_a_few_steps_or_in_an_idle_gap() -> None:
    player = Player()
    captured, _ = runners(player=player)
    said = []
    for place in range(4):
        captured.forward([SequenceRows([1], place, [3], 1)])
        said.append(captured.eager)
    assert said == [graphs.FIRST_USES, graphs.FIRST_USES, "", ""]
    assert (player.captures, player.replays) == (1, 2)
    captured.forward([SequenceRows([1, 2], 4, [3], 2)])
    assert graphs_of(captured).capture_one()
    assert not graphs_of(captured).capture_one()
    captured.forward([SequenceRows([1, 2], 6, [3], 2)])
    assert (captured.eager, player.captures, player.replays) == ("", 2, 3)


@pytest.mark.parametrize(("switch", "value"), [("graphs", False), ("batch_invariant", True)])
def test_nothing_is_captured_in_an_idle_gap_while_it_is_switched_off(switch: str, value: bool) -> None:
    player = Player()
    captured, _ = runners(player=player)
    captured.forward([SequenceRows([1], 3, [3], 1)])
    switches = captured.model.numerics  # type: ignore[attr-defined]
    setattr(switches, switch, value)
    assert not graphs_of(captured).capture_one()
    setattr(switches, switch, not value)
    assert graphs_of(captured).capture_one()
    assert player.captures == 1


def test_classes_of_context_are_captured_apart() -> None:
    captured, _ = runners()
    key, _ = graphs_of(captured).key(*_one(SequenceRows([1], 20, [3, 4], 1)))
    far, _ = graphs_of(captured).key(*_one(SequenceRows([1], 399, list(range(1, 26)), 1)))
    assert key is not None
    assert far is not None
    assert key.context == far.context == CONTEXT
    assert graphs.key_of(key.bucket, 1, 513, 100_000, key.asked).context == 4096
    assert graphs.classes_of(20_000) == [512, 4096, 16384, 20_000]


def _one(row: SequenceRows) -> tuple[list[SequenceRows], graphs.StepShape, graphs.ForwardOptions]:
    from engine.compute.runner.inputs import shape_of

    return [row], shape_of([row], 1), graphs.ForwardOptions()


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([SequenceRows([1] * 65, 0, list(range(1, 6)), 1)], graphs.TOO_MANY_ROWS.format(rows=64)),
        ([SequenceRows([1], 420, list(range(1, 30)), 1)], graphs.TOO_LONG),
        ([SequenceRows([1], 160, list(range(1, 12)), 1, policy=WindowWithSinks(64, 4))], graphs.RESTRICTED),
        ([SequenceRows([1], 160, list(range(1, 12)), 1, adapter=1)], graphs.ADAPTED),
        ([SequenceRows([1], 3, [3], 1, axes=PLACES)], graphs.PICTURES),
        ([SequenceRows([1, 2], 3, [3], 1, embedded=[EmbeddedRows(1, VECTOR)])], graphs.PICTURES),
    ],
)
def test_what_cannot_be_captured_says_why_and_runs(rows: list[SequenceRows], reason: str) -> None:
    captured, eager = runners()
    for _ in range(4):
        agree(captured.forward(rows), eager.forward(rows))
        assert captured.eager == reason


def test_keys_that_are_shared_are_read_once_instead() -> None:
    captured, eager = runners()
    rows = [SequenceRows([chat], 260, [*range(1, 17), 20 + chat], 1) for chat in range(5)]
    for _ in range(4):
        agree(captured.forward(rows), eager.forward(rows))
        assert captured.eager == graphs.SHARED


def test_other_reasons() -> None:
    row = [SequenceRows([1], 3, [3], 1)]
    off, _ = runners(graphs=False)
    off.forward(row)
    assert off.eager == graphs.SWITCHED_OFF
    exact, _ = runners(batch_invariant=True)
    exact.forward(row)
    assert exact.eager == graphs.INVARIANT
    kivi, _ = runners(KVKind("kivi"))
    kivi.forward([SequenceRows([1], 3, [3], 1, more_pages=[[3]])])
    assert kivi.eager == graphs.RESTRICTED
    captured, eager = runners()
    hidden = captured.forward(row, layers=(0, 1)).hidden[1]
    agree(captured.forward(row, layers=(1, 2), hidden_in=hidden), eager.forward(row, layers=(1, 2), hidden_in=hidden))
    assert captured.eager == graphs.CONTINUED
    assert eager.eager == graphs.NOT_HERE
    planned = Runner(
        captured.model, captured.kv, AttentionDispatcher(candidates=[SdpaAttention()]), context=9, recorder=Player()
    )
    for _ in range(4):
        planned.forward(row)
    assert planned.eager == "the attention backend sdpa plans each step on the host"


def test_parts_of_the_layers_have_graphs_of_their_own() -> None:
    captured, eager = runners()
    for place in range(5):
        rows = [SequenceRows([place], place, [3], 1)]
        agree(captured.forward(rows, layers=(0, 1)), eager.forward(rows, layers=(0, 1)))
        assert (captured.eager == "") == (place > 1)
        agree(captured.forward(rows, skip=frozenset({1})), eager.forward(rows, skip=frozenset({1})))
        agree(captured.forward(rows), eager.forward(rows))
    assert len(graphs_of(captured)) == 3


def test_out_of_memory_at_a_capture_drops_all_graphs_and_says_so() -> None:
    player = Player()
    captured, eager = runners(player=player)
    rows = [SequenceRows([1], 3, [3], 1)]
    for _ in range(3):
        captured.forward(rows)
    assert len(graphs_of(captured)) == 1
    player.error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB")
    two = [*rows, SequenceRows([2], 4, [5], 1)]
    for _ in range(4):
        agree(captured.forward(two), eager.forward(two))
    assert captured.eager == graphs.NO_MEMORY
    assert len(graphs_of(captured)) == 0
    agree(captured.forward(rows), eager.forward(rows))
    assert captured.eager == graphs.NO_MEMORY


def test_graphs_give_way_where_a_step_has_no_memory() -> None:
    captured, eager = runners()
    rows = [SequenceRows([1], 3, [3], 1)]
    for _ in range(3):
        captured.forward(rows)
    assert graphs_of(captured).give_up()
    assert not graphs_of(captured).give_up()
    agree(captured.forward(rows), eager.forward(rows))
    assert captured.eager == graphs.NO_MEMORY


def test_what_every_chat_begins_with_is_captured_at_load() -> None:
    player = Player()
    captured, eager = runners(player=player)
    capture_ahead(captured, CONTEXT)
    assert player.captures == len(graphs.classes_of(CONTEXT)) == 1
    rows = [SequenceRows([1], 3, [3], 1)]
    agree(captured.forward(rows), eager.forward(rows))
    assert captured.eager == ""


def test_going_through_steps_to_compile_them_leaves_page_0_empty() -> None:
    captured, eager = runners()
    told: list[tuple[int, int]] = []
    assert compile_ahead(captured, CONTEXT, lambda done, of: told.append((done, of))) == 0
    assert told == [], "nothing was launched"
    assert not captured.kv.view(0).k[:16].any()
    rows = [SequenceRows([1], 3, [3], 1)]
    agree(captured.forward(rows), eager.forward(rows))


def test_page_0_is_emptied_where_going_through_steps_fails() -> None:
    def fail() -> None:
        raise ImportError("No module named 'triton'")

    captured, _ = runners()
    with pytest.raises(ImportError):
        compile_ahead(captured, CONTEXT, lambda done, of: None, fail)
    assert not captured.kv.view(0).k[:16].any()


def test_the_least_recently_used_graph_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_GRAPHS", 2)
    player = Player()
    captured, eager = runners(player=player)
    for answers in (1, 2, 3):
        rows = [SequenceRows([1], 3, [3 + i], 1) for i in range(answers)]
        for _ in range(3):
            agree(captured.forward(rows), eager.forward(rows))
        assert captured.eager == ""
    assert (len(graphs_of(captured)), player.captures) == (2, 3)
    assert not graphs_of(captured).capture_one(), "an idle moment does not bring back what gave way"
    one = [SequenceRows([1], 3, [3], 1)]
    agree(captured.forward(one), eager.forward(one))
    assert captured.eager == graphs.FIRST_USES


def test_a_capture_that_fails_leaves_the_others() -> None:
    player = Player()
    captured, eager = runners(player=player)
    rows = [SequenceRows([1], 3, [3], 1)]
    for _ in range(3):
        captured.forward(rows)
    player.error = RuntimeError("operation not permitted when stream is capturing\nmore")
    two = [*rows, SequenceRows([2], 4, [5], 1)]
    for _ in range(4):
        agree(captured.forward(two), eager.forward(two))
    assert captured.eager == "it could not be captured (operation not permitted when stream is capturing)"
    captured.forward(rows)
    assert captured.eager == ""


def test_what_is_captured_has_run_before_and_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    player = Player()
    captured, eager = runners(player=player)
    batches: list[Batch] = []
    take, run, recording = Buffers.take, Runner._run, [False]

    def record(inner: Callable[[], ForwardOutput]) -> Captured:
        recording[0] = True
        found = Player.record(player, inner)
        recording[0] = False
        return found

    def taken(self: Buffers, *args: Any, **options: Any) -> Any:
        assert not recording[0], "a capture may not wait for the last transfer"
        return take(self, *args, **options)

    def ran(self: Runner, batch: Batch, *args: Any) -> ForwardOutput:
        if batch.host.frozen:
            batches.append(batch)
        return run(self, batch, *args)

    monkeypatch.setattr(Buffers, "take", taken)
    monkeypatch.setattr(player, "record", record)
    monkeypatch.setattr(graphs_of(captured), "_run", lambda batch, asked: ran(captured, batch, asked))
    rows = [SequenceRows([1], 3, [3], 1)]
    for _ in range(3):
        agree(captured.forward(rows), eager.forward(rows))
    assert captured.eager == ""
    first, second = batches[:2]
    assert first is not second, "plans of the first lie outside the graph's memory"
    assert (first.host, first.tokens.data_ptr()) == (second.host, second.tokens.data_ptr())


def test_rotations_that_move_make_graphs_anew() -> None:
    player = Player()
    captured, eager = runners(player=player)
    rows = [SequenceRows([1], 3, [3], 1)]
    for _ in range(3):
        captured.forward(rows)
    captured.model.reserve(50_000)  # a longer text has come, by this runner or another of the model's
    agree(captured.forward(rows), eager.forward(rows))
    assert (player.captures, len(graphs_of(captured))) == (2, 1)


def test_tables_that_a_step_itself_makes_larger_move_its_graph() -> None:
    player = Player()
    captured, eager = runners(player=player)
    for _ in range(3):
        captured.forward([SequenceRows([1], 3, [3], 1)])
    wide = [SequenceRows([1], 3, [3] * 40, 1)]  # pages for what is to come, more than a whole context's
    agree(captured.forward(wide), eager.forward(wide))
    assert (captured.eager, player.captures) == ("", 2)


def test_a_capture_that_fails_without_a_word_is_named() -> None:
    player = Player(error=AssertionError())
    captured, eager = runners(player=player)
    rows = [SequenceRows([1], 3, [3], 1)]
    for _ in range(3):
        agree(captured.forward(rows), eager.forward(rows))
    assert captured.eager == "it could not be captured (AssertionError)"


def test_a_pool_whose_graphs_are_all_gone_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        def replay(self) -> None:
            pass

    pools = count()
    used: list[int] = []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(pools))
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool, stream, **options: nullcontext(used.append(pool)))
    recorder, nothing = recorders.CudaRecorder(torch.device("cpu")), ForwardOutput(torch.zeros(0), {})
    kept = [recorder.record(lambda: nothing) for _ in range(2)]
    del kept[0]
    kept.append(recorder.record(lambda: nothing))
    assert len(set(used)) == 1
    kept.clear()
    recorder.record(lambda: nothing)
    assert used[-1] != used[0]


def test_memory_that_moves_makes_graphs_anew() -> None:
    player = Player()
    captured, eager = runners(player=player)
    rows = [SequenceRows([1], 3, [3], 1)]
    for _ in range(3):
        agree(captured.forward(rows), eager.forward(rows))
    captured._inputs.tables.reserve(200, 64)
    agree(captured.forward(rows), eager.forward(rows))
    assert (player.captures, len(graphs_of(captured))) == (2, 1)


class Early(Player):
    """It knows which runs were of early launches, and fails to capture these with an ``error``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reason: str | None = None) -> None:
        super().__init__()
        self.rooms: list[int] = []
        self.fails: Exception | None = None
        monkeypatch.setattr(recorders.early, "declines", lambda device: reason)
        monkeypatch.setattr(recorders.triton_launch, "early", self.early)

    @contextmanager
    def early(self, order: recorders.triton_launch.Weights, room: int) -> Iterator[None]:
        self.rooms.append(room)
        yield

    def record(self, run: Forward) -> Captured:
        before, found = len(self.rooms), super().record(run)
        if self.fails is not None and len(self.rooms) > before:
            raise self.fails
        return found


def test_kernels_start_early_while_they_are_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    player = Early(monkeypatch)
    captured, eager = runners(player=player)
    switches, rows = captured.model.numerics, [SequenceRows([1], 3, [3], 1)]  # type: ignore[attr-defined]
    for early, room in ((False, 0), (True, 0), (True, 8), (False, 8)):
        switches.early, switches.ahead = early, room
        player.rooms.clear()
        for _ in range(3):
            agree(captured.forward(rows), eager.forward(rows))
        # Once to have all loaded, once for the capture, and in each replay.
        assert len(player.rooms) >= (3 if early else 0)
        assert set(player.rooms) == ({room} if early else set())
        assert (captured.eager, graphs_of(captured).late) == ("", "")
    assert player.captures == 4


def test_steps_are_captured_without_early_launches_where_these_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    player = Early(monkeypatch)
    player.fails = RuntimeError("CUDA error: invalid resource handle")
    captured, eager = runners(player=player, early=True)
    rows = [SequenceRows([1], 3, [3], 1)]
    for _ in range(3):
        agree(captured.forward(rows), eager.forward(rows))
    assert captured.eager == ""
    assert graphs_of(captured).late == "a step could not be captured so (CUDA error: invalid resource handle)"
    captured.model.numerics.early = False  # type: ignore[attr-defined]
    agree(captured.forward(rows), eager.forward(rows))
    assert graphs_of(captured).late == "", "nobody asks for it"
    player.fails = torch.OutOfMemoryError("CUDA out of memory")
    captured.model.numerics.early = True  # type: ignore[attr-defined]
    agree(captured.forward(rows), eager.forward(rows))
    assert captured.eager == graphs.NO_MEMORY


def test_a_gpu_that_starts_no_kernel_early_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    player = Early(monkeypatch, "its trial failed")
    captured, eager = runners(player=player, early=True)
    for _ in range(3):
        agree(captured.forward([SequenceRows([1], 3, [3], 1)]), eager.forward([SequenceRows([1], 3, [3], 1)]))
    assert (captured.eager, player.rooms, graphs_of(captured).late) == ("", [], "its trial failed")


def test_results_outlive_the_next_step() -> None:
    captured, _ = runners()
    rows = [SequenceRows([1], 3, [3], 1)]
    for _ in range(3):
        first = captured.forward(rows, want_hidden=frozenset({1}))
    kept: list[Tensor] = [first.logits.clone(), first.hidden[1].clone()]
    captured.forward([SequenceRows([9], 4, [3], 1)], want_hidden=frozenset({1}))
    assert captured.eager == ""
    assert torch.equal(first.logits, kept[0])
    assert torch.equal(first.hidden[1], kept[1])
    assert first.logits.shape == (1, VOCABULARY)
