"""`python -m tests.bench peers` with small shapes, and scripts in place of llama.cpp: nothing is fetched."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import gguf
import msgspec
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from engine.cache.pool import PAGE_SIZE
from engine.doors.cli.main import app
from engine.protocol import LoadOptions
from engine.services.client import EngineClient
from engine.services.experiments.measures.timing import PeakMemory, Spread, spread
from engine.services.experiments.workloads.shapes import Shape
from tests.bench import __main__ as tools
from tests.bench import peers as suite
from tests.bench import turns as pairs
from tests.bench.binaries import Peer, built_folders, readings
from tests.bench.cases import FULL, Case, CasePlan
from tests.bench.gguf_files import gguf_file, gguf_header, step_bytes
from tests.bench.interleaved import Interleaving, Turns
from tests.bench.peers import PEER_SHAPES, PeerFiles, native_set, peer_files, peer_row, ratio_cell
from tests.bench.report import AllFigures
from tests.bench.sequences import HeldSequences
from tests.bench.turns import MemorySpeed, Turn, closest, pairing, steady_pairs

TINY = Shape("tiny", layers=2, hidden=256, ffn=512, heads=4, kv_heads=2, vocabulary=512, context=512, tied=True)
SMALL = CasePlan(prompts=(40,), contexts=(20, 48), streams=(1, 3), verify=(2,), verify_context=20, steps=3)

scripts = pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")

_BENCH = """
import json, sys
given = sys.argv[1:]
of = dict(zip(given, given[1:]))
noted = open({calls!r}, "a")
noted.write(" ".join(given) + "\\n")
print("some words", file=sys.stderr)
"""
_PROMPTS = """
print("no JSON yet")
print("[")
print(",\\n".join(json.dumps({"n_prompt": int(n), "samples_ns": [int(n) * 1_000_000]}) for n in of["-p"].split(",")))
print("]")
"""
_EACH = """
import time
block = bytearray(b"1" * 30_000_000)
time.sleep(0.2)
steps = int(of["-ntg"])
for tokens in of["-npp"].split(","):
    for streams in of["-npl"].split(","):
        """
_STEPS = (
    _EACH
    + """print(json.dumps({"pp": int(tokens), "tg": steps, "pl": int(streams), "t_tg": steps * 0.01}))
"""
)
_IK_STEPS = (
    _EACH
    + """print("|", tokens, "|", steps, "|", streams, "| 0 | 0 | 0 |", steps * 0.01, "| 0 |", file=sys.stderr)
"""
)


def peer_folder(root: Path, name: str = "llama.cpp", prompts: str = _PROMPTS, steps: str = _STEPS) -> Path:
    """A folder of scripts that note how they are called in ``calls`` and then do as they are told."""
    folder = root / name
    folder.mkdir(parents=True)
    for program, body in (("llama-bench", prompts), ("llama-batched-bench", steps)):
        script = folder / program
        script.write_text(f"#!{sys.executable}\n" + _BENCH.format(calls=str(folder / "calls")) + body)
        script.chmod(0o755)
    return folder


def test_what_the_programs_print_is_read() -> None:
    tests = [
        {"n_prompt": 128, "n_gen": 0, "samples_ns": [3_000_000, 1_000_000, 2_000_000], "devices": ["[", "]"]},
        {"n_prompt": 512, "n_gen": 0, "samples_ns": [8_000_000]},
    ]
    assert readings("loading\n" + json.dumps(tests, indent=2) + "\n") == {(128, 0): 0.002, (512, 0): 0.008}
    line = {"n_kv_max": 768, "pp": 128, "tg": 8, "pl": 4, "n_kv": 160, "t_pp": 0.5, "t_tg": 0.4, "speed_tg": 80.0}
    assert readings(f"\n{json.dumps(line)}\n\n") == {(128, 4): 0.05}
    table = """
main: n_kv_max = 768, n_batch = 2048
|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   128 |      8 |    1 |    136 |    0.500 |   256.00 |    0.200 |    40.00 |    0.700 |   194.29 |
|   128 |      8 |    2 |    144 |    0.500 |   256.00 |    0.240 |    66.67 |    0.740 |   194.59 |
"""
    assert readings(table) == {(128, 1): 0.025, (128, 2): 0.03}
    assert readings("nothing of the kind\n") == {}
    with pytest.raises(ValueError, match="Expecting"):
        readings('{"pp": 1')


@scripts
def test_how_the_programs_are_called(tmp_path: Path) -> None:
    """Each kind in one call, with room for the widest batch; verified rows share their keys and values."""
    prompts, alone, _, decodes, verifies = SMALL.turns()
    model = tmp_path / "model.gguf"
    for name in ("llama.cpp-avx2", "ik_llama.cpp-new-avx2"):
        peer = Peer(peer_folder(tmp_path, name, steps=_IK_STEPS if name.startswith("ik") else _STEPS))
        assert (f"{peer.title}-{peer.instructions}") == name
        assert peer.run(prompts, model, 2, 3) == [0.04]
        assert peer.run(alone + decodes, model, 2, 3) == [0.01] * 3
        assert peer.run(verifies, model, 2, 3) == [0.01]
        assert peer.peak > 30e6, "that of the program, not this process's, and while it ran"
        first, second, third = (peer.folder / "calls").read_text().splitlines()
        ours = f"-m {model} -t 2"
        mine = "--no-mmap" if name.startswith("ik") else "-lm none --output-format jsonl"
        assert first == f"-p 40 -n 0 -r 1 -o json {ours}"
        assert second == f"-c {3 * (48 + 3)} -npp 20,48 -ntg 3 -npl 1,3 -pps {mine} {ours}"
        unified = "" if name.startswith("ik") else " -kvu"
        assert third == f"-c {2 * (20 + 3)} -npp 20 -ntg 3 -npl 2 -pps {mine}{unified} {ours}"


@scripts
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("print('too bad', file=sys.stderr); sys.exit(3)", "llama-batched-bench stopped: too bad"),
        ("import os; os.kill(os.getpid(), 4)", "llama-batched-bench stopped by SIGILL: some words"),
        ("print('{')", r"llama-batched-bench printed what is not understood \(JSONDecodeError.*"),
        ("print('{}')", r"llama-batched-bench printed what is not understood \(KeyError\('pp'\)\)"),
        ("print('hello')", "llama-batched-bench did not print all times"),
    ],
)
def test_a_program_that_fails_says_so_in_a_sentence(tmp_path: Path, body: str, words: str) -> None:
    peer = Peer(peer_folder(tmp_path, steps=body))
    with pytest.raises(RuntimeError, match=f"^{words}$"):
        peer.run(SMALL.turns()[1], tmp_path / "model.gguf", 1, 3)


@scripts
def test_a_last_line_that_got_lost_is_asked_for_again(tmp_path: Path) -> None:
    once = f"if sum(1 for _ in open({str(tmp_path / 'llama.cpp' / 'calls')!r})) == 0: of['-npp'] = '20'\n"
    peer = Peer(peer_folder(tmp_path, steps=once + _STEPS))  # what it notes is not flushed before it ends
    assert peer.run(SMALL.turns()[3], tmp_path / "model.gguf", 1, 3) == [0.01] * 2
    assert len((peer.folder / "calls").read_text().splitlines()) == 2


@scripts
def test_folders_of_binaries(tmp_path: Path) -> None:
    root = tmp_path / "peers"
    folders = [peer_folder(root, name) for name in ("ik_llama.cpp-avx2", "llama.cpp-avx2")]
    (root / "build-llama.cpp").mkdir()
    assert built_folders([root]) == (folders, [])
    other = peer_folder(tmp_path / "other", "llama.cpp-avx2")
    found, absent = built_folders([folders[1], other, tmp_path / "nowhere"])
    assert found == [folders[1]]
    assert absent[0] == f"{other}: another folder of that name is measured already"
    assert absent[1].startswith(f"{tmp_path / 'nowhere'}: no llama-batched-bench in it")


class Entrant:
    """Takes as many seconds as told, and notes in ``turns`` what it was asked for."""

    peak = 0

    def __init__(self, title: str, turns: list[str], fails: str = "", instructions: str = "avx2") -> None:
        self.title, self.instructions = title, instructions
        self.turns, self.fails = turns, fails

    def run(self, cases: Sequence[Case], model: Path, threads: int, steps: int) -> list[float]:
        self.turns.append(f"{self.title} {cases[0].kind}")
        if cases[0].kind == self.fails:
            raise RuntimeError("it stopped: no message")
        return [float(len(self.turns))] * len(cases)


def run_in_turn(
    entrants: Sequence[Entrant], plan: CasePlan, rounds: int, memory: Callable[[], float]
) -> tuple[Turns, list[str]]:
    """What they ran, and what did not run."""
    absent: list[str] = []
    return Interleaving(entrants, Path("model"), plan, 1, memory, absent).run(rounds), absent


def test_all_take_turns_and_who_fails_is_not_asked_again() -> None:
    turns: list[str] = []
    entrants = [Entrant("A", turns), Entrant("B", turns, fails="decode"), Entrant("C", turns)]
    found, absent = run_in_turn(entrants, SMALL, 2, lambda: 50e9)
    all_three, two = ["A decode", "B decode", "C decode"], ["A decode", "C decode"]
    prompts, verifies = ["A prompt", "B prompt", "C prompt"], ["A verify", "B verify", "C verify"]
    assert turns == prompts + all_three + two + two + verifies + prompts + 3 * two + verifies
    assert absent == ["B avx2, decode: it stopped: no message"]
    prompt, decode, _, _, verify = (cases[0] for cases in SMALL.turns())
    assert set(found) == {("A", "avx2"), ("B", "avx2"), ("C", "avx2")}
    assert found["B", "avx2"].keys() == {prompt, verify}
    assert found["A", "avx2"][prompt] == [[Turn(1.0, 50e9, 50e9)], [Turn(14.0, 50e9, 50e9)]]
    assert found["C", "avx2"][decode] == [[Turn(6.0, 50e9, 50e9)], [Turn(18.0, 50e9, 50e9)]]


def test_a_turn_of_one_stream_is_repeated_until_memory_was_alike() -> None:
    """Whoever's turn was the longest ago has another; not more often than told, and not where enough rounds were."""
    one = CasePlan(prompts=(), contexts=(20,), streams=(1,), verify=(), steps=3)
    (case,) = one.turns()[0]

    def turns_of(speeds: list[float], rounds: int = 1, **others: str) -> tuple[str, list[list[Turn]]]:
        """By whom the turns were, told by their first letters; and Kvasir's. ``speeds``: those memory has in turn."""
        turns: list[str] = []
        entrants = [Entrant("Kvasir", turns), *(Entrant(name, turns, instructions=of) for name, of in others.items())]
        memory = iter(speeds)
        found, _ = run_in_turn(entrants, one, rounds, lambda: next(memory))
        assert next(memory, None) is None
        return "".join(turn[0] for turn in turns), [list(tries) for tries in found["Kvasir", "avx2"][case]]

    assert turns_of([50, 50, 52, 52], A="avx2")[0] == "KA"
    order, ours = turns_of([50, 50, 70, 70, 71, 71], A="avx2")
    assert order == "KAK"
    assert ours == [[Turn(1.0, 50, 50), Turn(3.0, 71, 71)]]
    assert turns_of([50, 50, 50, 70, 70, 50, 50, 50], A="avx2")[0] == "KAKA", "not during which memory changed"
    assert turns_of([50, 50] + [50, 70] * 5, A="avx2")[0] == "KAKAKA", "not for ever"
    assert turns_of([50, 50, 50, 50, 70, 70, 50, 50, 51, 51], A="avx2", B="avx2")[0] == "KABKB", "A has met Kvasir"
    assert turns_of([50, 50, 70, 70], A="avx512")[0] == "KA", "nobody to be compared with"
    assert turns_of([50] * 12 + [50, 50, 70, 70], rounds=4, A="avx2")[0] == "KAKAKAKA"


def test_cases_of_several_do_not_repeat_turns() -> None:
    turns: list[str] = []
    speeds = itertools.cycle([40e9, 80e9])
    plan = SMALL._replace(streams=(3,))
    run_in_turn([Entrant("Kvasir", turns), Entrant("A", turns)], plan, 1, lambda: next(speeds))
    assert turns == ["Kvasir prompt", "A prompt", "Kvasir decode", "A decode", "Kvasir verify", "A verify"]


def met(*speeds: float) -> list[list[Turn]]:
    """Rounds of one turn each, whose seconds are their number, in which memory was as fast as told all the time."""
    return [[Turn(float(number), speed, speed)] for number, speed in enumerate(speeds, 1)]


def test_rounds_count_where_memory_was_alike() -> None:
    ours, theirs = met(50, 50, 50, 70, 70), met(54.9, 56, 46, 70, 50)
    found = pairing(ours, theirs)
    assert found.alike
    assert [own.seconds for own, _ in found.pairs] == [1.0, 3.0, 4.0]
    assert all(own.seconds == other.seconds for own, other in found.pairs), "of the same round"
    # One round fewer is not enough: all count then, by their first turns.
    found = pairing([*ours[:3], [*ours[3], Turn(9.0, 51, 51)]], [*theirs[:3], [Turn(4.0, 50, 70)]])
    assert not found.alike
    assert [own.seconds for own, _ in found.pairs] == [1.0, 2.0, 3.0, 4.0]
    # Fewer rounds than are enough must be alike all; one that a side did not finish is none.
    assert pairing(met(50, 50), met(51, 51)).alike
    assert not pairing(met(50, 50), met(51, 70)).alike
    assert pairing(met(50, 50, 50), met(50, 50)).alike
    assert pairing([], met(50, 50)).pairs == []


def test_of_a_rounds_turns_the_closest_count() -> None:
    """Whatever they took, and only those during which memory was steady."""
    ours = [Turn(1.0, 50, 50), Turn(2.0, 70, 70), Turn(3.0, 40, 70)]
    theirs = [Turn(4.0, 55, 55), Turn(5.0, 71, 71)]
    assert closest(ours, theirs) == (ours[1], theirs[1])
    assert closest(ours[2:], theirs) is None
    assert steady_pairs([ours, ours[2:], ours[:1]], [theirs, theirs, theirs]) == [
        (ours[1], theirs[1]),
        (ours[0], theirs[0]),
    ]
    assert Turn(1.0, 40, 44).steady
    assert not Turn(1.0, 44, 40 - 0.1).steady
    assert Turn(1.0, 40, 44).memory == 42


def test_speeds_and_ratios_are_of_the_rounds_that_counted() -> None:
    """Shares are of all steady turns, whose memory need not be alike; a program compared with nobody has all."""
    case = Case("decode", 20)
    kept = case.context * 2 * 2 * TINY.layers * TINY.kv_heads * TINY.head_dim
    files = PeerFiles("Q4_0", Path("ours"), Path("theirs"), 1000 - kept, 2000 - kept)
    ours = [[Turn(1.0, 50, 50)]] * 3 + [[Turn(2.0, 50, 50), Turn(0.5, 70, 70)], [Turn(4.0, 50, 50)]]
    theirs = [[Turn(2.0, 50, 50)]] * 3 + [[Turn(2.0, 72, 72)], [Turn(2.0, 100, 100)]]
    turns = {("Kvasir", "avx2"): {case: ours}, ("A", "avx2"): {case: theirs}, ("A", "avx512"): {case: theirs}}
    own, other, alone = (peer_row(name, case, turns, TINY, files) for name in turns)
    assert (own.speed, other.speed) == (spread([1.0, 1.0, 1.0, 2.0]), spread([0.5] * 4))
    assert other.ratio == spread([2.0, 2.0, 2.0, 4.0])
    assert (own.ratio, own.share_ratio, alone.ratio, alone.share_ratio) == (None,) * 4
    assert other.memory == own.memory == (50, 72)
    assert (own.read, other.read) == (1000, 2000)
    assert other.share == spread([20.0, 20.0, 20.0, 2000 / 144, 10.0])
    assert other.share_ratio is not None
    assert other.share_ratio.pairs == 5, "that of the last round too, whose memory was not alike"
    assert alone.speed.pairs == 5
    fewer = {name: {case: rounds[case][2:]} for name, rounds in turns.items()}
    other = peer_row(("A", "avx2"), case, fewer, TINY, files)
    assert not other.alike
    assert other.ratio == spread([2.0, 1.0, 0.5]), "by the first turns of all rounds"
    assert other.memory == (50, 100)
    assert other.share_ratio is not None
    assert other.share_ratio.low == pytest.approx(0.75), "between 0.5 and 1"


def test_memory_is_measured_again_and_again() -> None:
    speed = MemorySpeed(32 << 20)
    assert all(1e8 < speed() < 1e13 for _ in range(2))


def test_what_is_measured() -> None:
    """The issue's grid: every context with every number of streams; one stream alone has its own turns."""
    prompts, *alone, decodes, verifies = FULL.turns()
    assert [case.rows for case in prompts] == [128, 512, 2048]
    assert [[(case.context, case.streams) for case in turn] for turn in alone] == [[(c, 1)] for c in (128, 512, 2048)]
    assert {(case.context, case.streams) for case in decodes} == {(c, s) for c in (128, 512, 2048) for s in (4, 8)}
    assert [(case.rows, case.streams) for case in verifies] == [(2, 1), (4, 1), (8, 1)]
    assert [str(case) for case in (prompts[2], alone[0][0], decodes[-1], verifies[0])] == [
        "prompt of 2,048",
        "decode at 128, 1 stream",
        "decode at 2,048, 8 streams",
        "verify 2 rows at 512",
    ]


def test_the_instructions_that_kvasir_is_held_to(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = {name: SimpleNamespace(name=name) for name in ("avx512bf16", "avx512vnni", "avx2", "portable")}
    monkeypatch.setattr(suite, "SETS", sets)
    monkeypatch.setattr(suite, "runs_here", lambda one: one.name != "avx512bf16")
    assert native_set("avx2") == "avx2"
    assert native_set("avx512") == "avx512vnni", "the best that this processor has"
    assert native_set("") == native_set("neon") == "auto"
    monkeypatch.setattr(suite, "runs_here", lambda one: False)
    assert native_set("avx512") == "avx512bf16", "which then says why it cannot be had"


@pytest.mark.slow
@scripts
def test_kvasir_next_to_a_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole command: a real model in a process of its own, ratios of the same rounds, and a peer that cannot."""
    monkeypatch.setattr(tools, "QUICK", SMALL)
    monkeypatch.setattr(tools, "PEER_SHAPES", {"1b": TINY})
    monkeypatch.setattr(pairs, "ALIKE", 1e9)  # whatever else runs on this machine
    folders = (peer_folder(tmp_path), peer_folder(tmp_path, "other", prompts="sys.exit('no such model')"))
    file = tmp_path / "figures.json"
    told = ["--quick", "--formats", "q4_k_m", "--rounds", "2", "--threads", "1", "--json", str(file)]
    done = CliRunner().invoke(tools.app, ["peers", *map(str, folders), *told])
    assert done.exit_code == 0, done.output
    report = msgspec.json.decode(file.read_bytes(), type=AllFigures)
    (figures,) = report.peers
    assert (figures.shape, figures.format, figures.steps, figures.rounds) == ("tiny", "Q4_K_M", 3, 2)
    assert figures.absent == ["other , prompt: llama-bench stopped: no such model"]
    cases = [case for turn in SMALL.turns() for case in turn]
    by_program = {
        name: {row.case: row for row in figures.rows if row.program == name} for name in ("Kvasir", "llama.cpp")
    }
    for case in cases:
        ours, theirs = by_program["Kvasir"][case], by_program["llama.cpp"][case]
        assert ours.ratio is None
        assert ours.speed.pairs == 2
        seconds = 0.04 if case.kind == "prompt" else 0.01
        assert theirs.speed.median == pytest.approx(case.tokens / seconds)
        assert theirs.ratio is not None
        assert theirs.ratio.median == pytest.approx(ours.speed.median / theirs.speed.median)
        assert [len(tries) for tries in theirs.turns] == [1, 1]
        assert theirs.alike
        speeds = [turn.memory for row in (ours, theirs) for tries in row.turns for turn in tries]
        assert theirs.memory == (min(speeds), max(speeds))
        known = msgspec.structs.replace(theirs, ratio=Spread(1.25, 1.2, 1.3, 2), memory=(45.2e9, 46.8e9))
        assert ratio_cell(known, 2) == "1.25 (1.20-1.30), 2 of 2 at 45-47 GB/s"
        apart = msgspec.structs.replace(known, alike=False)
        assert ratio_cell(apart, 2) == "1.25 (1.20-1.30), all 2, memory not alike, at 45-47 GB/s"
        if case.kind == "prompt":
            assert theirs.share is theirs.share_ratio is None
        else:
            keys_and_values = case.streams * case.context * 2 * 2 * TINY.layers * 128
            assert theirs.read == ours.read == step_bytes(TINY, "Q4_K_M") + keys_and_values
            own, other = ([theirs.read / (t.seconds * t.memory) for (t,) in row.turns] for row in (ours, theirs))
            assert theirs.share is not None
            assert theirs.share.median == pytest.approx(sum(other) / 2)
            assert theirs.share_ratio is not None
            assert theirs.share_ratio.median == pytest.approx(sum(a / b for a, b in zip(own, other, strict=True)) / 2)
    assert all(each.peak > 30e6 for each in figures.memory)
    shown = CliRunner().invoke(tools.app, ["show", str(file)]).output
    for words in ("decode at 48, 3 streams", "ours/llama.cpp", "left out: other", "at peak: Kvasir", "steady memory"):
        assert words in " ".join(done.output.split())
        assert words in " ".join(shown.split())
    shown = CliRunner().invoke(app, ["bench", "--load", str(file)]).output
    assert "The other figures of this file are shown from a checkout of Kvasir" in " ".join(shown.split())


def test_sequences_hold_copies_of_the_first(tmp_path: Path) -> None:
    with EngineClient() as client:
        client.load(str(gguf_file(TINY, tmp_path)), options=LoadOptions(dtype="float32"))  # in bfloat16 tokens tie
        sequences = HeldSequences(client.model, 2, 60)
        sequences.hold(2, 40, chunk=16)
        pages = -(-60 // PAGE_SIZE)
        kept = sequences.runner.kv.export_pages(range(1, 1 + 2 * pages))
        full = 40 // PAGE_SIZE
        assert kept[0].any()
        assert torch.equal(kept[:full], kept[pages : pages + full])
        # What another chunk size and a step for both make of the same text is the same.
        other = HeldSequences(client.model, 1, 60)
        other.hold(1, 24, chunk=64)
        other.hold(1, 40, chunk=64)
        both = sequences.forward(2, 3, 40, 3)
        assert both[:3] == other.forward(1, 3, 40, 3)
        # Closer to each other they are as before, of fewer pages.
        sequences.spread(43)
        assert sequences.pages_of(1).start == sequences.pages_of(0).stop == 1 + pages - 1
        sequences.hold(2, 40, chunk=16)
        assert sequences.forward(2, 3, 40, 3) == both


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K_M", "Q8_0"])
def test_files_are_mixed_as_those_that_people_have(tmp_path: Path, kind: str) -> None:
    shape = Shape("deep", layers=16, hidden=256, ffn=256, heads=4, kv_heads=2, vocabulary=64, tied=True)
    tensors = gguf.GGUFReader(gguf_file(shape, tmp_path, kind)).tensors
    types = {tensor.name: tensor.tensor_type.name for tensor in tensors}
    assert "output.weight" not in types, "a tied head is the token table"
    assert types["token_embd.weight"] == ("Q8_0" if kind == "Q8_0" else "Q6_K")
    finer = {name for name, type in types.items() if type == "Q6_K"} - {"token_embd.weight"}
    mixed = [0, 1, 4, 7, 10, 13, 14, 15] if kind == "Q4_K_M" else []
    assert finer == {f"blk.{layer}.{part}.weight" for layer in mixed for part in ("attn_v", "ffn_down")}
    assert step_bytes(shape, kind) == sum(tensor.n_bytes for tensor in tensors if len(tensor.shape) == 2)


def test_a_header_is_that_of_the_whole_file(tmp_path: Path) -> None:
    whole, header = gguf_file(TINY, tmp_path, "Q4_K_M"), tmp_path / "header.gguf"
    assert gguf_header(TINY, header, "Q4_K_M") == whole.stat().st_size
    assert whole.read_bytes().startswith(header.read_bytes())


def test_an_untied_head(tmp_path: Path) -> None:
    shape = Shape("untied", layers=1, hidden=256, ffn=256, heads=4, kv_heads=2, vocabulary=64)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(gguf_file(shape, tmp_path, "Q4_K_M")).tensors}
    assert tensors["output.weight"].tensor_type.name == "Q6_K"
    assert tensors["token_embd.weight"].tensor_type.name == "Q4_K"
    matrices = {name: tensor.n_bytes for name, tensor in tensors.items() if len(tensor.shape) == 2}
    assert step_bytes(shape, "Q4_K_M") == sum(matrices.values()) - matrices["token_embd.weight"]


def test_kvasir_in_gptq_stands_next_to_the_others_in_q4_0(tmp_path: Path) -> None:
    files = peer_files(TINY, "GPTQ-128", tmp_path)
    assert files.theirs == peer_files(TINY, "Q4_0", tmp_path).ours == tmp_path / "tiny-q4_0.gguf"
    assert files.their_bytes == step_bytes(TINY, "Q4_0")
    weights = load_file(files.ours / "model.safetensors")
    read = {name: tensor for name, tensor in weights.items() if name.endswith(("qweight", "scales"))}
    assert sum(tensor.nbytes for tensor in read.values()) == files.our_bytes
    assert weights["lm_head.scales"].shape == (TINY.hidden // 128, TINY.vocabulary)
    assert "GPTQ int4 of groups of 128" in files.title
    assert "the others in Q4_0" in files.title


def test_the_shapes_are_those_of_llama_3_2() -> None:
    """Parameters, token table once, in thousands of millions."""
    sizes = [
        sum(k * n for _, k, n in shape.linears()) + shape.vocabulary * shape.hidden for shape in PEER_SHAPES.values()
    ]
    assert [round(size / 1e9, 2) for size in sizes] == [1.24, 3.21]


def test_names_on_the_command_line(tmp_path: Path) -> None:
    for told, words in (
        (["--shapes", "8b"], "'8b' is not one of 1b, 3b"),
        (["--formats", "gptq"], "'gptq' is not one of q2_k, q4_0"),
        (["--streams", "1,3"], "'3' is not one of 1, 2, 4, 8, 16, 32"),
    ):
        done = CliRunner().invoke(tools.app, ["peers", str(tmp_path), *told])
        assert done.exit_code == 2
        assert words in done.output


def test_no_binaries_are_one_sentence_each(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    folders = [str(tmp_path), str(tmp_path / "other")]
    done = CliRunner().invoke(tools.app, ["peers", *folders, "--quick", "--shapes", "3b", "--json", str(file)])
    assert done.exit_code == 0
    assert done.output.count("left out") == 2
    assert msgspec.json.decode(file.read_bytes(), type=AllFigures).peers == []


@pytest.mark.parametrize("told", [["--peers", "folder"], ["--soak", "90"], ["--null", "40"], ["--formats", "all"]])
def test_the_programs_own_bench_says_where_these_went(told: list[str]) -> None:
    done = CliRunner().invoke(app, ["bench", *told])
    assert done.exit_code == 2
    assert "python -m tests.bench" in " ".join(done.output.replace("│", "").split())


def test_the_memory_of_a_process_that_has_ended() -> None:
    """It leaves the peak at what was seen."""
    with PeakMemory(0.001, 2**31 - 1) as memory:
        pass
    assert memory.peak == 0
    with PeakMemory(0.001, os.getpid()) as memory:
        pass
    assert memory.peak > 1e6
