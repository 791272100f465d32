"""Kept weights: the same as made anew, never those of another model, and no trouble whatever the disk does."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.base.errors import LoadCancelled
from engine.compute.models.base import CausalLM
from engine.formats.load import Checkpoint, load_model
from engine.formats.open import open_checkpoint
from engine.formats.quantised import repacked
from engine.formats.quantised.repacked import Kept, clear, content_key, kept_files
from engine.formats.times import LoadTimes
from tests.engine.formats.llama_folders import write_dense

CPU = torch.device("cpu")
METHODS = ("nf4", "int4", "int8")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    write_dense(folder, layers=2, hidden=128, inner=256, vocabulary=64)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def opened(model: Path, method: Any = "nf4") -> Checkpoint:
    return open_checkpoint(model, need_tokenizer=False).quantised(method)


def load(model: Path, store: Path, method: Any = "nf4", **options: Any) -> tuple[CausalLM, LoadTimes, Kept]:
    checkpoint, times = opened(model, method), LoadTimes()
    kept = checkpoint.kept(store, CPU)
    return load_model(checkpoint, CPU, torch.bfloat16, kept=kept, times=times, **options), times, kept


def assert_same(found: CausalLM, expected: CausalLM) -> None:
    for (name, a), (_, b) in zip(found.linears(), expected.linears(), strict=True):
        assert a.kind == b.kind
        assert torch.equal(a.dequantised(torch.float32), b.dequantised(torch.float32)), name


def only(store: Path) -> Path:
    (file,) = kept_files(store)
    assert [path for path in store.iterdir() if path != file.path] == []
    return file.path


@pytest.mark.parametrize("method", METHODS)
def test_what_is_kept_is_what_was_made(model: Path, store: Path, method: str) -> None:
    expected = load_model(opened(model, method), CPU, torch.bfloat16)
    for turn in range(3):
        found, times, kept = load(model, store, method)
        assert_same(found, expected)
        assert kept.read == (turn > 0)
        assert ("quantising" in times.seconds) == (turn == 0)
        assert min(times.seconds.values()) >= 0
        assert not kept.notice
    del found
    assert only(store).stat().st_size > 0


def test_other_weights_have_another_file(model: Path, store: Path, tmp_path: Path) -> None:
    """A changed byte in the middle of one tensor, another time of the file, another method: nothing is shared."""
    keys = {opened(model, method).kept(store, CPU)._path for method in METHODS}
    file = model / "model.safetensors"
    stat = file.stat()
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    assert opened(copy).kept(store, CPU)._path in keys, "the same wherever it lies"
    entry = opened(copy).files.entries["model.layers.1.mlp.down_proj.weight"]
    raw = bytearray((copy / "model.safetensors").read_bytes())
    raw[entry.start + entry.size // 2] ^= 1
    (copy / "model.safetensors").write_bytes(raw)
    os.utime(copy / "model.safetensors", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert opened(copy).kept(store, CPU)._path not in keys, "a changed weight"
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1000))
    assert opened(model).kept(store, CPU)._path not in keys, "another time"
    assert len(keys) == 3


def test_a_model_that_was_replaced_is_quantised_anew(model: Path, store: Path) -> None:
    first, _, _ = load(model, store)
    tensors = load_file(model / "model.safetensors")
    save_file({name: value * 2 for name, value in tensors.items()}, model / "model.safetensors")
    second, times, _ = load(model, store)
    assert "quantising" in times.seconds
    a, b = (next(layer for _, layer in model.linears()).dequantised(torch.float32) for model in (first, second))
    assert torch.equal(a * 2, b)


def cut(raw: bytes) -> bytes:
    return raw[: len(raw) * 2 // 3]


def flipped(raw: bytes) -> bytes:
    return raw[:5000] + bytes([raw[5000] ^ 16]) + raw[5001:]


def flipped_index(raw: bytes) -> bytes:
    return raw[:-40] + bytes([raw[-40] ^ 1]) + raw[-39:]


def zeroed(raw: bytes) -> bytes:
    return raw[:8192] + bytes(8192) + raw[16384:]


@pytest.mark.parametrize("damage", [cut, flipped, flipped_index, zeroed, lambda raw: b"", lambda raw: b"x" * 500])
def test_a_damaged_file_is_made_again(model: Path, store: Path, damage: Callable[[bytes], bytes]) -> None:
    expected, _, _ = load(model, store)
    file = only(store)
    file.write_bytes(damage(file.read_bytes()))
    found, times, kept = load(model, store)
    assert_same(found, expected)
    assert "quantising" in times.seconds
    assert not kept.notice
    load(model, store)
    found, times, _ = load(model, store)
    assert "quantising" not in times.seconds
    assert_same(found, expected)


def test_a_cancelled_load_keeps_nothing(model: Path, store: Path) -> None:
    asked = iter(range(1000))
    with pytest.raises(LoadCancelled):
        load(model, store, cancelled=lambda: next(asked) == 5)
    assert list(store.iterdir()) == []


def test_a_full_disk_is_survived(model: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load_model(opened(model), CPU, torch.bfloat16)
    write, count = Kept._write, iter(range(1000))

    def full(self: Kept, *arguments: Any) -> Any:
        if next(count) > 7:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, *arguments)

    monkeypatch.setattr(Kept, "_write", full)
    found, _, kept = load(model, store)
    assert_same(found, expected)
    assert "could not be kept for the next load (No space left on device)" in kept.notice
    assert list(store.iterdir()) == []


def test_a_disk_that_is_nearly_full_is_left_alone(model: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(model)._replace(free=repacked.SPARE)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    _, _, kept = load(model, store)
    assert "nearly full" in kept.notice
    assert list(store.iterdir()) == []


def test_nothing_makes_way_where_that_would_not_be_enough(
    model: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(model, store, "int8")
    usage = shutil.disk_usage(model)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    _, _, kept = load(model, store, "nf4")
    assert "nearly full" in kept.notice
    assert only(store) == opened(model, "int8").kept(store, CPU)._path


def test_what_is_kept_can_be_read_where_nothing_can_be_written(
    model: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(model, store)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    _, times, kept = load(model, store)
    assert not kept.notice
    assert "quantising" not in times.seconds


@pytest.mark.parametrize("method", METHODS)
def test_loads_that_keep_the_same_at_once(model: Path, store: Path, method: str) -> None:
    """Two loads of one process, interleaved module by module."""
    expected = load_model(opened(model, method), CPU, torch.bfloat16)
    inner: list[CausalLM] = []

    def meanwhile(stage: str, fraction: float) -> None:
        if fraction > 0.5 and not inner:
            inner.append(load(model, store, method)[0])

    outer, _, kept = load(model, store, method, progress=meanwhile)
    assert not kept.notice
    again, times, _ = load(model, store, method)
    assert "quantising" not in times.seconds
    for found in (outer, *inner, again):
        assert_same(found, expected)
    assert only(store).stat().st_size <= opened(model, method).kept(store, CPU)._expected


@pytest.mark.parametrize("method", METHODS)
def test_progress_rises_and_the_seconds_add_up(model: Path, store: Path, method: str) -> None:
    for stage in ("quantising weights", "reading weights"):
        told: list[tuple[str, float]] = []
        begin = time.perf_counter()
        _, times, _ = load(model, store, method, progress=lambda stage, done: told.append((stage, done)))  # noqa: B023
        wall = time.perf_counter() - begin
        fractions = [done for _, done in told]
        assert fractions == sorted(fractions)
        assert fractions[-1] == 1
        assert {said for said, _ in told} == {stage}
        assert 0 < sum(times.seconds.values()) <= wall


@pytest.mark.parametrize(("as_in_file", "what"), [(False, "packing"), (True, "copying")])
def test_the_seconds_of_experts_are_packing_too(as_in_file: bool, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("engine.formats.times.time.perf_counter", lambda: now[0])

    class Source:
        def experts(self, *_: object) -> list[Any]:
            now[0] += 2
            return [SimpleNamespace(as_in_file=as_in_file)]

    times = LoadTimes()
    with times.of("copying"):
        times.timed(cast(Any, Source())).experts("", 1, ("up_proj",), (8,), 8, False)
    assert times.seconds.get(what) == 2 == sum(times.seconds.values())


def test_the_seconds_hold_all_that_a_load_waits_for(model: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second each in opening what is kept, in making it and in finishing it, on a clock of the test's own."""
    now = [0.0]
    monkeypatch.setattr("engine.formats.times.time.perf_counter", lambda: now[0])
    for name in ("_open", "_make_room", "_finish"):
        method = getattr(Kept, name)

        def slow(self: Kept, *arguments: Any, method: Callable[..., Any] = method) -> Any:
            now[0] += 1
            return method(self, *arguments)

        monkeypatch.setattr(Kept, name, slow)
    _, times, _ = load(model, store)
    assert sum(times.seconds.values()) == 3


def test_a_folder_that_cannot_be_made(model: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("in the way")
    _, times, kept = load(model, tmp_path / "kept")
    assert "could not be kept" in kept.notice
    assert "quantising" in times.seconds


def test_the_longest_unused_make_way(model: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = []
    for age, method in enumerate(METHODS):
        load(model, store, method)
        files.append(opened(model, method).kept(store, CPU)._path)
        os.utime(files[-1], (1000 + age, 1000 + age))
    load(model, store, "nf4")  # used again: now int4 is the one that was not for longest
    total = sum(file.size for file in kept_files(store))
    monkeypatch.setattr(repacked, "MOST_BYTES", total + 1000)
    os.utime(model / "model.safetensors", (5, 5))
    load(model, store, "nf4")
    assert not files[1].exists()
    assert files[0].exists()
    assert sum(file.size for file in kept_files(store)) <= total + 1000
    assert clear(store) > 0
    assert kept_files(store) == []


def test_what_a_dead_load_left_is_swept(model: Path, store: Path) -> None:
    store.mkdir()
    dead, alive = store / "a.4194999.unfinished", store / f"b.{os.getpid()}.unfinished"
    dead.touch()
    alive.touch()
    load(model, store)
    assert not dead.exists()
    assert alive.exists()


def test_the_key_follows_what_it_is_for(model: Path) -> None:
    entries = list(opened(model).files.entries.values())
    assert content_key(entries, "nf4", "cpu") != content_key(entries, "nf4", "cuda")
    assert content_key(entries, "nf4", "cpu") == content_key(reversed(entries), "nf4", "cpu")
    assert content_key(entries, "nf4", "cpu") != content_key(entries[1:], "nf4", "cpu")
