"""The first minutes of a GPU, tried without one: the plan, its calls on a clock that is pretended, and its table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.gpu.check import apart, notes
from tests.gpu.check.first import decisions, plan, run
from tests.gpu.check.first.plan import BY_NAME, PARTS, Part
from tests.gpu.check.notes import Notes, Setting

ROOT = Path(__file__).parents[1]
DRY = Setting(dry=True)


def names(parts: list[Part]) -> list[str]:
    return [part.name for part in parts]


def test_all_parts_are_planned_in_their_order_where_there_is_time() -> None:
    assert sum(part.minutes for part in PARTS) == run.MINUTES
    assert planned(25) == names(list(PARTS))
    assert {part.rank for part in PARTS} == set(range(len(PARTS)))
    assert list(run.MEASURES) == names(list(PARTS))


def planned(minutes: float, parts: tuple[Part, ...] = PARTS) -> list[str]:
    return names(plan.planned(parts, minutes))


def test_the_most_important_are_planned_first_where_there_is_not() -> None:
    nine = planned(9)
    assert nine == ["start", "memory", "one-row", "boundary", "attention", "early"]
    rest = tuple(part for part in PARTS if part.name not in nine)
    assert planned(5, rest) == ["engine"], "what is served comes next"
    assert planned(16, rest) == names(sorted(rest, key=lambda part: part.number)), "there is time for all that is left"
    for minutes in (0.3, 1, 2.5, 6, 14, 24.9):
        chosen = planned(minutes)
        assert sum(BY_NAME[name].minutes for name in chosen[:-1]) <= minutes, "the last one may be begun"
    assert planned(0.3) == []
    assert planned(2.6, (BY_NAME["engine"],)) == ["engine"], "half of it is worth a begin"


class Device:
    """A GPU on a clock of its own: each part takes as many seconds as it is told, or is stopped."""

    def __init__(self, taking: dict[str, float], failing: tuple[str, ...] = ()) -> None:
        self.now, self.taking, self.failing = 100.0, taking, failing
        self.started: list[str] = []

    def clock(self) -> float:
        return self.now

    def start(self, part: Part, out: Path, setting: Setting, limit: float) -> bool:
        self.started.append(part.name)
        taken = self.taking.get(part.name, 30.0)
        self.now += min(limit, taken) + 1
        errors = {"all": "RuntimeError: no"} if part.name in self.failing else {}
        content = {"part": part.name, "code": notes.code(), "figures": {}, "errors": errors}
        notes.write(out / part.file, content | {"complete": taken <= limit})
        return not errors and taken <= limit


def test_a_call_keeps_its_minutes_and_the_next_one_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two calls of nine and of five minutes, the first with a part that hangs and one that fails."""
    device = Device({"one-row": 1000.0}, failing=("memory",))
    run.run(PARTS, 9, tmp_path, DRY, device.start, device.clock)
    assert device.now <= 100 + 9 * 60
    assert device.started[:5] == ["start", "memory", "one-row", "boundary", "attention"]
    assert "engine" not in device.started, "of five minutes less than half were left"
    told = capsys.readouterr().out
    assert "--- 3 one-row, at most 180 s" in told
    assert "FAILED: memory, all: RuntimeError: no" in told
    assert "left for another call: one-row, " in told
    assert (tmp_path / "decisions.txt").read_text() in told
    again = Device({})
    run.run(PARTS, 5, tmp_path, DRY, again.start, again.clock)
    assert again.now <= 100 + 5 * 60
    assert again.started[0] == "one-row"
    assert not {"start", "memory", "boundary", "attention"} & set(again.started), "these are measured, or failed"
    assert "measured before: start, memory, boundary, " in capsys.readouterr().out


def test_without_enough_time_nothing_is_begun(tmp_path: Path) -> None:
    device = Device({})
    run.run(PARTS, 0.5, tmp_path, DRY, device.start, device.clock)
    assert device.started == []
    assert "not measured: part engine has not run" in (tmp_path / "decisions.txt").read_text()


def test_a_part_goes_on_with_what_it_has_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def measures() -> notes.Measures:
        for name in ("a", "b", "c"):
            yield name, lambda name=name: taken.append(name) or len(taken)

    def failing() -> notes.Measures:
        yield "a", lambda: taken.append("a") or 7
        yield "b", lambda: {}["b"]

    file = tmp_path / "one.json"
    assert not Notes(file, "one", DRY).take(failing())
    assert Notes(file, "one", DRY, go_on=True).take(measures()) is False, "what failed is not taken again"
    assert taken == ["a", "c"]
    kept = json.loads(file.read_text())
    assert kept["figures"] == {"a": 7, "c": 2}
    assert (kept["done"], list(kept["errors"])) == (["a", "b", "c"], ["b"])
    for stopped, expected in ((1, ["b"]), (2, [])):
        taken.clear()
        notes.write(
            file, kept | {"done": ["a", "c"], "stopped": {"b": stopped}, "errors": {"b": "stopped after 5 seconds"}}
        )
        Notes(file, "one", DRY, go_on=True).take(measures())
        assert taken == expected, "what was stopped is tried once more"
        assert bool(json.loads(file.read_text())["errors"]) == (not expected)
    taken.clear()
    monkeypatch.setattr(notes, "code", lambda: "another")
    assert Notes(file, "one", DRY, go_on=True).take(measures())
    assert taken == ["a", "b", "c"], "figures of other code are not kept"


def test_a_process_that_is_stopped_leaves_what_it_measured(tmp_path: Path) -> None:
    """The part measures what it is told when it is killed, and that is counted."""
    file = tmp_path / BY_NAME["memory"].file
    content = {"part": "memory", "measuring": "latency", "figures": {"bandwidth": 1}, "errors": {}, "stopped": {}}
    file.write_text(json.dumps(content))
    assert not apart.run_apart(["first", "--out", str(tmp_path), "--here", "memory", "--dry"], file, "memory", 0.05)
    kept = json.loads(file.read_text())
    assert kept["figures"] == {"bandwidth": 1}
    assert kept["errors"] == {"latency": "stopped after 0 seconds"}
    assert kept["stopped"] == {"latency": 1}


def test_one_part_in_this_process(tmp_path: Path) -> None:
    assert run.main(["--dry", "--out", str(tmp_path), "--here", "early"]) == 0
    kept = run.figures(tmp_path)["early"]
    assert kept["complete"]
    assert kept["figures"]["producer"]["absent"] == "there is no GPU"
    if not torch.cuda.is_available():
        assert run.main(["--out", str(tmp_path)]) == 1


def part(figures: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"figures": figures, "errors": {}, "machine": {"card": "NVIDIA H200"}, **more}


def cuts(**microseconds: float) -> dict[str, Any]:
    named = {"served": "served", "two": decisions.SLICES[2], "four": decisions.SLICES[4],
             "strip": "StripCut(8, 16, 8, 2)", "ring": "RingCut(8, 16, 8, 4)"}  # fmt: skip
    return {named[name]: {"microseconds": value} for name, value in microseconds.items()}


def steps(by_keys: dict[int, tuple[float, float, float]]) -> dict[str, Any]:
    """Microseconds of each form by the number of keys."""
    forms = ("one kernel", "one kernel for all kinds", "three kernels")
    return {
        str(keys): {form: {"microseconds": each} for form, each in zip(forms, taken, strict=True)}
        for keys, taken in by_keys.items()
    }


FIGURES: dict[str, dict[str, Any]] = {
    "start": part({"load": {"hits": 43, "misses": 2, "missed": ["attend", "gemm"], "seconds": 4.5}}),
    "memory": part({
        "under way": {"read": 4.28e12, "8": 1.4e12, "16": 2.7e12, "24": 3.9e12, "32": 4.2e12},
        "latency": {"memory": 680.0, "level 2": 260.0},
    }),
    "boundary": part({
        "boundary": {"triton": 2.1, "dependent launch": 1.2},
        "carve-out": {"cost": 0.7},
    }),
    "one-row": part({
        "down": cuts(served=11.0, two=15.0, four=11.1), "gate_up": cuts(served=22.0, two=20.0, four=24.0),
        "o": {"served": {"error": "no memory"}},
    }, errors={"qkv": "Traceback\nOutOfMemoryError: no memory"}),
    "rows": part({"32 rows": {"o": cuts(served=9.0, four=8.9)}}),
    "attention": part({
        "dense": {"512": {"256": {"microseconds": 5.0}, "64": {"microseconds": 3.4}},
                  "8192": {"256": {"microseconds": 10.0}}},
        "int4": {"8192": {"256": {"microseconds": 12.0}}},
        "int4, a step": steps({64: (5.0, 4.0, 8.0), 256: (5.5, 5.0, 8.5), 1024: (6.0, 6.5, 9.0)}),
        "int8, a step": steps({64: (5.0, 4.9, 8.0), 256: (5.5, 5.4, 8.5)}),
    }),
    "chain": part({"as served": {"us": 66.0}, "unfused": {"us": 80.0}, "replays": {"differ": 0},
                   "early": {"us": 60.0}, "4 MB ahead": {"us": 57.0}, "8 MB ahead": {"us": 58.0},
                   "early replays": {"differ": 0}}),
    "early": part({"producer": {"wrong": 0, "control": 49}}),
    "engine": part({"decode 1": {"greedy": {"both": {"tok/s": 655.0}}},
                    "profile": {"both": {"top": [{"kernel": "multiply", "us a step": 900.0}]}}}),
    "prompts": part({str(rows): {"packed": packed, "dequantised": whole}
                     for rows, packed, whole in ((128, 100.0, 150.0), (256, 180.0, 190.0), (512, 350.0, 240.0))}),
    "equal": part({"answers": {"differ": 3}, "chat": {"compiled": 0}}),
    "mixture": part({
        "as served": {"us": 40.0, "kernels": 8.0}, "sorted": {"us": 55.0, "kernels": 14.0},
        "eight rows": {"us": 70.0, "kernels": 9.0}, "eight rows, sorted": {"us": 66.0, "kernels": 15.0},
        "with delta nets": {"kernel us": 30.0, "kernels": 8.0},
    }),
}  # fmt: skip


def with_resident(ring: float) -> dict[str, Any]:
    """Part 3 with resident products of every matrix."""
    return part({
        "down": cuts(served=11.0, strip=10.5), "gate_up": cuts(served=22.0, strip=21.8, ring=ring),
        "o": cuts(served=6.0, strip=6.1), "qkv": cuts(served=7.0, strip=7.0),
    })  # fmt: skip


def test_resident_products_are_held_to_the_read_ceiling_and_to_what_is_served() -> None:
    found = decided(
        **{"one-row": with_resident(17.0), "chain": part({"as served": {"us": 66.0}, "resident": {"us": 60.0}})}
    )
    assert found["resident products"][1:] == ("on: they pay", "40.6 µs for a layer's four, as served 46.0")
    assert found["gates and ups in strips"][1:] == ("Gluon will do", "86% of the read ceiling")
    assert found["a layer with resident products"].do == "on: they pay"
    slow = decided(
        **{"one-row": with_resident(21.6), "chain": part({"as served": {"us": 66.0}, "resident": {"us": 65.0}})}
    )
    assert slow["resident products"].do == slow["a layer with resident products"].do == "leave them off"
    assert slow["gates and ups in strips"].do.startswith("below it")
    assert decided()["resident products"].by.startswith("not measured")


def decided(**changed: dict[str, Any]) -> dict[str, decisions.Decision]:
    return {each.about: each for each in decisions.decided(FIGURES | changed)}


def test_each_decision_names_its_number() -> None:
    found = decided()
    told = {about: each.do for about, each in found.items()}
    assert told["compiled kernels"] == "find out which part of the key differs (attend, gemm)"
    assert told["bytes under way (UNDER_WAY)"] == "24 KB a multiprocessor"
    assert told["early launch"] == "fetch the next weights into level 2 first"
    assert told["carve-out"] == "one for all kernels of a step"
    assert told["slices of down"] == "keep 4: 2 are slower"
    assert told["down, one row"] == "keep what is served"
    assert told["gate_up, one row"] == f"take {decisions.SLICES[2]}"
    assert told["o, 32 rows"] == "keep what is served", "a gain of one percent is none"
    assert told["fewest keys of a split, 512 keys"] == "64"
    assert told["keys of int4, 8192"].startswith("its kernel does not pay")
    assert told["a step over int4, or by kernels.attend"] == "take kernels.attend below 1024 keys"
    assert told["a step over int4, or by three kernels"] == "keep what is served"
    assert told["a step over int8, or by kernels.attend"] == "keep what is served", "two percent is no gain"
    assert found["a step over dense"].by.startswith("not measured")
    assert told["a layer"] == "as the model of a step has it"
    assert told["a layer that starts early"] == "turn it on for this card"
    assert told["megabytes fetched ahead"] == "4 MB ahead"
    assert told["decode 1"] == "reached"
    assert told["rows of torch's product (MANY_PLANE_ROWS)"] == "above 256"
    assert told["answers"] == "mend it first"
    assert told["a long chat compiles"] == "as it has to be"
    assert told["a mixture's layer"] == "three kernels for its experts"
    assert told["a mixture's layer, 8 rows"] == "sort its rows: that is faster"
    assert told["a layer with a delta net"] == "as it has to be"
    assert found["qkv, one row"] == ("qkv, one row", "", "not measured: one-row, OutOfMemoryError: no memory")
    assert found["o, one row"].do == "", "nothing of it was measured"
    assert found["decode 8"].by.startswith("not measured")
    table = decisions.table(FIGURES)
    assert table.startswith("NVIDIA H200\n")
    assert "FAILED: one-row, qkv: OutOfMemoryError: no memory" in table
    assert "655 tok/s of 640" in table


@pytest.mark.parametrize(
    ("name", "figures", "about", "do"),
    [
        ("boundary", {"boundary": {"triton": 2.1, "dependent launch": 0.8}}, "early launch", "go on with it"),
        ("attention", {"int4, a step": steps({64: (5.0, 4.0, 8.0), 256: (6.0, 5.0, 8.0)})},
         "a step over int4, or by kernels.attend", "take kernels.attend up to 256 keys"),
        ("attention", {"dense, a step": steps({64: (5.0, 5.0, 8.0), 256: (6.0, 6.0, 5.0)})},
         "a step over dense, or by three kernels", "take three kernels at 256 keys"),
        ("boundary", {"boundary": {"triton": 2.1, "dependent launch": 1.9}}, "early launch",
         "stop: keep five kernels, fetch ahead by a side branch"),
        ("early", {"producer": {"wrong": 2, "control": 40}}, "early launch", "off: replays read what was not written"),
        ("early", {"producer": {"wrong": 0, "control": 0}}, "test of early launch",
         "mend it: its control found nothing"),
        ("early", {}, "early launch", "leave it off until part early has run"),
        ("one-row", {"down": cuts(served=15.0, two=9.0, four=15.0)}, "slices of down", "revert to 2 at once"),
        ("start", {"load": {"hits": 45, "misses": 0, "missed": [], "seconds": 4.5}}, "compiled kernels",
         "keep: nothing was compiled"),
        ("memory", {"under way": {"read": 4e12, "8": 1e12, "16": 2e12}}, "bytes under way (UNDER_WAY)",
         "at least 16 KB"),
        ("prompts", {"128": {"packed": 9.0, "dequantised": 5.0}}, "rows of torch's product (MANY_PLANE_ROWS)",
         "from fewer than 128"),
        ("chain", {"as served": {"us": 90.0}}, "a layer that starts early", ""),
        ("chain", {"as served": {"us": 60.0}, "early": {"us": 59.0}}, "a layer that starts early",
         "leave it off: it gains nothing"),
        ("chain", {"as served": {"us": 60.0}, "early": {"us": 50.0}}, "a layer that starts early",
         "leave it off until its replays are compared"),
        ("chain", {"as served": {"us": 60.0}, "early": {"us": 50.0}, "early replays": {"differ": 1}},
         "a layer that starts early", "off: its replays differ"),
        ("chain", {"as served": {"us": 60.0}, "early": {"us": 50.0}, "4 MB ahead": {"us": 49.5}},
         "megabytes fetched ahead", "leave it out"),
        ("early", {"producer": {"wrong": 1, "control": 9}}, "a layer that starts early", "off: its replays differ"),
        ("engine", {"decode 1": {"greedy": {"both": {"tok/s": 600.0}, "early": {"tok/s": 650.0}}}}, "decode 1",
         "reached"),
        ("chain", {"as served": {"us": 90.0}}, "a layer", "mend the model of a step, or what it is served by"),
        ("chain", {"as served": {"us": 90.0}, "unfused": {"us": 80.0}}, "fused kernels", "off: they are slower"),
        ("rows", {"32 rows": {"o": cuts(served=1.0) | {"x": {"microseconds": "much"}}}}, "some rows", ""),
    ],
)  # fmt: skip
def test_other_figures_decide_otherwise(name: str, figures: dict[str, Any], about: str, do: str) -> None:
    found = decided(**{name: part(figures)})
    assert about in found
    assert found[about].do == do


def compiled(kernel: Any, signature: dict[str, str], constants: dict[int, Any], **options: Any) -> list[str]:
    """Instructions for an H100, which is not here."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from tests.gpu.machine_code import disassembled

    aligned = {(place,): [["tt.divisibility", 16]] for place, type in enumerate(signature.values()) if "*" in type}
    source = ASTSource(kernel, signature, {(place,): value for place, value in constants.items()}, aligned)
    return disassembled(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options))


def test_a_program_has_no_more_under_way_than_it_is_said_to() -> None:
    """Each load of 16 bytes takes its address from the one before, in every copy of the loop that the compiler made."""
    pytest.importorskip("triton")
    from tests.gpu.check import probes

    signature = {"data": "*i32", "out": "*i32", "turns": "i32", "mask": "i32", "SIZE": "constexpr"}
    lines = compiled(probes.read_pieces, signature, {4: probes.PIECE}, num_warps=4, num_stages=1)
    loads = [line for line in lines if line.startswith("LDG")]
    assert loads
    assert all(line.startswith("LDG.E.128 ") for line in loads)
    assert not any("+0x" in line for line in loads), "two loads of one address would be under way at once"


def test_the_control_reads_before_it_waits() -> None:
    pytest.importorskip("triton")
    from engine.compute.native import early_kernels

    signature = {"x": "*i32", "y": "*i32", "COUNT": "constexpr", "WAITS": "constexpr"}
    for waits in (True, False):
        lines = compiled(early_kernels.after, signature, {2: 128, 3: waits}, num_warps=4, launch_pdl=True)
        kinds = [line.split()[0] for line in lines if line.startswith(("LDG", "STG", "ACQBULK"))]
        wait = kinds.index("ACQBULK")
        assert ("LDG.E" in kinds[:wait] or "LDG.E.128" in kinds[:wait]) == (not waits), kinds
        assert not any(kind.startswith("STG") for kind in kinds[:wait])


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_part_runs_dry(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.check", "first", "--dry", "--minutes", "25", "--out", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = run.figures(tmp_path)
    assert list(found) == names(list(PARTS))
    assert not any(content["errors"] for content in found.values())
    assert all(content["complete"] for content in found.values())
    assert decisions.DRY in done.stdout
    by = {each.about: each.do for each in decisions.decided(found)}
    for about in ("down, one row", "o, 32 rows", "a layer", "decode 1", "answers", "a mixture's layer", "replays",
                  "a step over int4, or by kernels.attend"):  # fmt: skip
        assert by[about], about
