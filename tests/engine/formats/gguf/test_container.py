"""GGUF containers: what sound files hold, and that no file, however wrong, does more than get a sentence."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from engine.base.errors import CheckpointError
from engine.formats.gguf.container import GGUFFile, read_header
from engine.formats.gguf.metadata import MAX_STRINGS
from tests.engine.formats.changes import other_bytes
from tests.engine.formats.gguf.gguf_files import (
    CODES,
    F32,
    LIST,
    TENSORS,
    TEXT,
    U32,
    VALUES,
    Info,
    Raw,
    infos,
    keys,
    text,
    whole,
    write,
)
from tests.kit.examples import examples


def refusal(file: Path) -> str:
    """The sentence, which comes quickly and takes little memory."""
    tracemalloc.start()
    begin = time.process_time()
    with pytest.raises(CheckpointError) as caught:
        GGUFFile.open(file)
    taken, (_, peak) = time.process_time() - begin, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 << 20
    assert taken < 5, "tracing memory makes it five times as slow"
    said = str(caught.value)
    assert said.endswith(".")
    assert "\n" not in said
    assert file.name in said
    return said


def refused(folder: Path, data: bytes) -> str:
    return refusal(write(folder, data))


# --- sound files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [None, 8, 64])
def test_a_file_by_hand(tmp_path: Path, version: int, alignment: int | None) -> None:
    values = VALUES + ([("general.alignment", Raw(U32, alignment))] if alignment else [])
    tensors = [t._replace(offset=-(-t.offset // 64) * 64) for t in TENSORS] if alignment == 64 else TENSORS
    opened = GGUFFile.open(write(tmp_path, whole(values, tensors, version, alignment or 32)))
    assert opened.metadata["tokenizer.ggml.tokens"] == ["<s>", "é", ""]
    assert opened.metadata["nested"] == [[1, 2], ["x"]]
    assert opened.entries["a.weight"].shape == (3, 64)
    assert opened.packed("a.weight").shape == (3, 36)
    assert opened.packed("c.weight").shape == (2, 144)
    assert opened.floating("b.weight").shape == (7,)
    opened.close()


def test_a_file_of_the_gguf_package(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "f32": rng.standard_normal((5, 32)).astype(np.float32),
        "f16": rng.standard_normal((2, 3, 4)).astype(np.float16),
        "q8": gguf.quants.quantize(
            rng.standard_normal((4, 64)).astype(np.float32), gguf.GGMLQuantizationType.Q8_0
        ),
    }  # fmt: skip
    file = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(str(file), "qwen2")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -3)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -30000)
    writer.add_uint32("u32", 4_000_000_000)
    writer.add_int32("i32", -2_000_000_000)
    writer.add_uint64("u64", 1 << 63)
    writer.add_int64("i64", -(1 << 62))
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "é\n")
    writer.add_array("flags", [True, False])
    writer.add_array("numbers", [1, -2])
    for name, array in arrays.items():
        writer.add_tensor(name, array, raw_dtype=gguf.GGMLQuantizationType.Q8_0 if name == "q8" else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    opened = GGUFFile.open(file)
    assert {key: value for key, value in opened.metadata.items() if key != "general.architecture"} == {
        "u8": 200, "i8": -3, "u16": 60000, "i16": -30000, "u32": 4_000_000_000, "i32": -2_000_000_000, "u64": 1 << 63,
        "i64": -(1 << 62), "f32": 0.5, "f64": 0.1, "yes": True, "text": "é\n", "flags": [True, False],
        "numbers": [1, -2],
    }  # fmt: skip
    assert type(opened.metadata["yes"]) is bool
    for name in ("f32", "f16"):
        assert torch.equal(opened.floating(name), torch.from_numpy(arrays[name]))
    assert torch.equal(opened.packed("q8"), torch.from_numpy(arrays["q8"]))
    assert opened.entries["q8"].shape == (4, 64)


def test_a_large_vocabulary_is_read_quickly(tmp_path: Path) -> None:
    tokens = [f"token {index}" for index in range(150_000)]
    values = [("tokens", Raw(LIST, (TEXT, tokens))), ("merges", Raw(LIST, (TEXT, tokens)))]
    file = write(tmp_path, whole(values, []))
    begin = time.process_time()
    metadata, _ = read_header(file)
    assert time.process_time() - begin < 0.7
    assert metadata["tokens"] == tokens


def test_several_files(tmp_path: Path) -> None:
    def part(number: int, count: int = 3, total: int = 3, **other: Any) -> bytes:
        numbering = {"split.no": (2, number), "split.count": (2, count), "split.tensors.count": (5, total)} | other
        values = [(key, Raw(*raw)) for key, raw in numbering.items()] + (VALUES if number == 0 else [])
        return whole(values, [Info(f"t{number}", (8,), 0, 0)])

    files = [write(tmp_path, part(n), f"big-0000{n + 1}-of-00003.gguf") for n in range(3)]
    for given_file in files:
        opened = GGUFFile.open(given_file)
        assert sorted(opened.entries) == ["t0", "t1", "t2"]
        assert opened.metadata["llama.block_count"] == 2
        assert opened.path == files[0]
    write(tmp_path, part(2, total=4), files[0].name)
    assert "Give the parts their original names" in refusal(files[0])
    write(tmp_path, part(0, total=4), files[0].name)
    with pytest.raises(CheckpointError, match="hold 3 tensors where 4 are expected"):
        GGUFFile.open(files[0])
    write(tmp_path, part(0), files[0].name)
    write(tmp_path, part(1, count=2), files[1].name)
    with pytest.raises(CheckpointError, match="one of 2 files by its content"):
        GGUFFile.open(files[0])
    numbered = [(key, Raw(2, value)) for key, value in (("split.no", 1), ("split.count", 3))]
    write(tmp_path, whole(numbered, [Info("t0", (8,), 0, 0)]), files[1].name)
    with pytest.raises(CheckpointError, match="hold the same tensor"):
        GGUFFile.open(files[0])
    files[1].unlink()
    with pytest.raises(CheckpointError, match=r"big-00002-of-00003.gguf is missing"):
        GGUFFile.open(files[0])
    alone = write(tmp_path, part(0), "renamed.gguf")
    assert "original names" in refusal(alone)
    assert "part 4 of 3" in refusal(write(tmp_path, part(0), "big-00004-of-00003.gguf"))


# --- wrong files --------------------------------------------------------------------------------------------------


def test_not_gguf(tmp_path: Path) -> None:
    assert "cannot be read (it is empty)" in refused(tmp_path, b"")
    assert "not a GGUF file" in refused(tmp_path, b"PK\x03\x04" + bytes(100))
    assert "Git LFS" in refused(tmp_path, b"version https://git-lfs.github.com/spec/v1\n")
    assert "of version 1," in refused(tmp_path, whole(VALUES, TENSORS, version=1))
    assert "big-endian" in refused(tmp_path, b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    with pytest.raises(CheckpointError, match="cannot be read"):
        GGUFFile.open(tmp_path / "nowhere.gguf")


def test_every_truncation(tmp_path: Path) -> None:
    data = whole(VALUES, TENSORS)
    for length in range(1, len(data)):
        with pytest.raises(CheckpointError):
            GGUFFile.open(write(tmp_path, data[:length]))


@pytest.mark.parametrize("count", [1 << 31, 1 << 40, 1 << 62, (1 << 64) - 1])
def test_huge_numbers(tmp_path: Path, count: int) -> None:
    head = b"GGUF" + struct.pack("<I", 3)
    refused(tmp_path, head + struct.pack("<QQ", count, 0) + bytes(100))
    refused(tmp_path, head + struct.pack("<QQ", 0, count) + bytes(100))
    one = head + struct.pack("<QQ", 0, 1)
    refused(tmp_path, one + struct.pack("<Q", count) + bytes(100))
    refused(tmp_path, one + text("key") + struct.pack("<IQ", TEXT, count) + bytes(100))
    refused(tmp_path, one + text("key") + struct.pack("<IIQQ", LIST, TEXT, 3, count) + bytes(100))
    for kind in (*CODES, TEXT, LIST):
        refused(tmp_path, one + text("key") + struct.pack("<IIQ", LIST, kind, count) + bytes(100))
    for sizes in ((count,), (count, count), (32, count, count, count)):
        data = head + struct.pack("<QQ", 1, 0) + infos([Info("t", sizes, 0, 0)])
        refused(tmp_path, data + bytes(1000))
    refused(tmp_path, head + struct.pack("<QQ", 1, 0) + infos([Info("t", (8,), 0, count & -32)]) + bytes(1000))


def test_many_small_things_are_bounded(tmp_path: Path) -> None:
    """Files that really are as large as they say."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("key") + struct.pack("<I", LIST)
    texts = head + struct.pack("<IQ", TEXT, MAX_STRINGS + 1) + bytes(8 * MAX_STRINGS + 8)
    assert "texts" in refused(tmp_path, texts)
    assert "absurdly large" in refused(tmp_path, head + struct.pack("<IQ", 0, 6 << 20) + bytes(6 << 20))
    assert "absurdly large" in refused(tmp_path, head + struct.pack("<IQ", 12, 3 << 20) + bytes(24 << 20))
    assert "absurdly large" in refused(tmp_path, head + struct.pack("<IQ", LIST, 1 << 20) + bytes(12 << 20))
    wide = text("\U0001f600" + "x" * 1000) * 30_000
    assert "absurdly large" in refused(tmp_path, head + struct.pack("<IQ", TEXT, 30_000) + wide)
    long = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("key") + struct.pack("<I", TEXT) + text("x" * (30 << 20))
    assert "bytes" in refused(tmp_path, long)
    many = b"".join(text(f"k{n}") + struct.pack("<IB", 0, 1) for n in range(20_000))
    assert "metadata keys" in refused(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, 0, 20_000) + many)
    assert "tensors" in refused(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, 1 << 16, 0) + bytes(1 << 22))


def test_what_contradicts_itself(tmp_path: Path) -> None:
    def values(*more: tuple[str, Raw]) -> bytes:
        return whole([*VALUES, *more], TENSORS)

    def tensors(*wrong: Info) -> bytes:
        return whole(VALUES, [*TENSORS, *wrong])

    end = 160 + 288
    assert "occurs twice" in refused(tmp_path, values(("llama.block_count", Raw(U32, 2))))
    deep = Raw(LIST, (LIST, [(LIST, [(U32, [1])])]))
    assert "nested" in refused(tmp_path, values(("deep", deep)))
    for alignment in (Raw(U32, 0), Raw(U32, 24), Raw(U32, 4), Raw(U32, 1 << 30), Raw(TEXT, "32"), Raw(F32, 32.0)):
        assert "alignment" in refused(tmp_path, values(("general.alignment", alignment)))
    assert read_header(write(tmp_path, values(("key", Raw(TEXT, b"C:\\Jos\xe9")))))[0]["key"] == "C:\\Jos\ufffd"
    assert "UTF-8" in refused(tmp_path, values(("key", Raw(LIST, (TEXT, [b"ok", b"\xc3"])))))
    assert "unknown type 13" in refused(tmp_path, whole(VALUES, TENSORS).replace(keys(VALUES[1:2]), text(VALUES[1][0])
           + struct.pack("<II", 13, 2)))  # fmt: skip
    assert "two tensors 'a.weight'" in refused(tmp_path, tensors(Info("a.weight", (8,), 0, end)))
    for offset in (0, 32, 96, 160, 416):
        assert "overlap" in refused(tmp_path, tensors(Info("d", (8,), 0, offset)))
    assert "not aligned" in refused(tmp_path, tensors(Info("d", (8,), 0, end + 8)))
    for sizes in ((), (0,), (8, 0), (1, 1, 1, 1, 1)):
        refused(tmp_path, tensors(Info("d", sizes, 0, end)))
    assert "whole number of Q4_0 blocks" in refused(tmp_path, tensors(Info("d", (33,), 2, end)))
    assert "type number 4," in refused(tmp_path, tensors(Info("d", (32,), 4, end)))
    assert "truncated" in refused(tmp_path, whole(VALUES, TENSORS, tail=1))
    assert "name" in refused(tmp_path, tensors(Info("x" * 2000, (8,), 0, end)))


def survive(folder: Path, data: bytes) -> None:
    """Open and read everything, or be told why not: nothing else, and neither slowly nor with much memory."""
    file = write(folder, data)
    begin = time.process_time()
    said = ""
    try:
        opened = GGUFFile.open(file)
        for name, entry in opened.entries.items():
            assert opened.packed(name).numel() == entry.size
        opened.close()
    except CheckpointError as error:
        said = str(error)
    assert said == "" or said.endswith(".")
    assert time.process_time() - begin < 1


def fuzz(folder: Path, count: int, seed: int) -> None:
    rng = random.Random(seed)
    data = whole(VALUES, TENSORS)
    tracemalloc.start()
    for _ in range(count):
        survive(folder, other_bytes(rng, data, 700))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 << 20


def test_mutated_files(tmp_path: Path) -> None:
    fuzz(tmp_path, 500, seed=1)


@pytest.mark.long
def test_many_mutated_files(tmp_path: Path) -> None:
    fuzz(tmp_path, 20_000, seed=2)


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300), st.integers(0, 5), st.integers(0, 5))
def test_random_bytes_after_a_sound_start(tmp_path: Path, rest: bytes, tensors: int, count: int) -> None:
    survive(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, tensors, count) + rest)
