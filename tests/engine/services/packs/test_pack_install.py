"""A pack from a server to the engine's start: whole, cut, killed, stopped, refused."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from engine.protocol.gpu import PackProgress, decode_pack_report
from tests.engine.services.packs.packs_support import TORCH, Kvasir, Server, in_use, stand_ins, write_list
from tests.kit.interrupts import interruptible


def wait_for(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_whole_install_is_reported_tested_and_used(kvasir: Kvasir, server: Server) -> None:
    before = kvasir.status()
    sizes = sum(path.stat().st_size for path in server.folder.glob("*.whl"))
    assert (before.state, before.kind, before.gpu) == ("none", "cuda13", "NVIDIA Test 4090")
    code, (told,) = kvasir.run("status")
    assert (code, msgspec.structs.replace(told, free_bytes=0)) == (0, msgspec.structs.replace(before, free_bytes=0))
    assert before.download_bytes == sizes
    assert before.free_bytes > 0
    code, told = kvasir.run("install")
    assert code == 0
    stages = list(dict.fromkeys(report.stage for report in told if isinstance(report, PackProgress)))
    assert stages == ["checking", "downloading", "installing", "testing"]
    loading = [report for report in told if isinstance(report, PackProgress) and report.stage == "downloading"]
    assert (loading[0].done, loading[-1].done, loading[-1].total) == (0, sizes, sizes)
    assert "One matmul agrees." in told[-1].sentence
    in_use(kvasir)
    if sys.platform != "win32":  # nobody else looks into what lies there, chats included
        assert {path.stat().st_mode & 0o77 for path in (kvasir.packs, kvasir.packs.parent)} == {0}
    asked = len(server.log)
    assert kvasir.result("install").ok
    assert len(server.log) == asked  # it is there already
    assert "Every file is as it was installed." in kvasir.result("check").sentence


def test_a_line_cut_in_the_middle_goes_on_where_it_was(kvasir: Kvasir, server: Server) -> None:
    server.statuses = [503]
    server.cuts = [10, 1 << 30, 1 << 20, 1 << 19]
    assert kvasir.result("install").ok
    in_use(kvasir)
    helper, torch = server.asked("Helper_lib-1.0-py3-none-any.whl"), server.asked(TORCH)
    assert [(entry.status, entry.range) for entry in helper] == [(503, ""), (200, ""), (206, "bytes=10-")]
    assert [entry.range for entry in torch] == ["", f"bytes={1 << 20}-", f"bytes={(1 << 20) + (1 << 19)}-"]
    assert sum(entry.sent for entry in torch) == (server.folder / TORCH).stat().st_size  # nothing twice


def test_a_server_without_ranges_begins_anew(kvasir: Kvasir, server: Server) -> None:
    server.ranges = False
    server.cuts = [1 << 20, 1 << 20]
    assert kvasir.result("install").ok
    in_use(kvasir)
    assert [entry.status for entry in server.asked(TORCH)][-1] == 200


def test_a_line_that_stays_cut_is_told_and_kept(kvasir: Kvasir, server: Server) -> None:
    assert kvasir.status().download_bytes == sum(path.stat().st_size for path in server.folder.glob("*.whl"))
    server.cuts = [1 << 30, 1 << 20, 0, 0, 0, 0]
    failed = kvasir.result("install")
    assert not failed.ok
    assert "127.0.0.1 cannot be reached" in failed.sentence
    assert "kept" in failed.sentence
    status = kvasir.status()
    assert status.state == "partial"
    assert status.download_bytes == (server.folder / TORCH).stat().st_size - (1 << 20)
    server.cuts = []
    assert kvasir.result("install").ok
    in_use(kvasir)
    assert server.asked(TORCH)[-1].range == f"bytes={1 << 20}-"
    assert len(server.asked("Helper_lib-1.0-py3-none-any.whl")) == 1


def test_a_file_that_is_gone_is_told(kvasir: Kvasir, server: Server) -> None:
    server.statuses = [404]
    assert "HTTP 404" in kvasir.result("install").sentence
    assert len(server.log) == 1  # not tried again


@pytest.mark.parametrize("change", ["other bytes", "shorter", "longer"])
def test_a_file_with_another_hash_is_refused(kvasir: Kvasir, server: Server, change: str) -> None:
    path = server.folder / TORCH
    good = path.read_bytes()
    bad = {"other bytes": good[:-1] + bytes([good[-1] ^ 1]), "shorter": good[:-9], "longer": good + b"more"}[change]
    path.write_bytes(bad)
    refused = kvasir.result("install")
    assert not refused.ok
    how = {"other bytes": "its sha256 differs", "shorter": "it is shorter", "longer": "it is longer"}[change]
    assert refused.sentence.startswith(f"{TORCH} from 127.0.0.1 is not the file that it should be: {how}.")
    assert not (kvasir.packs / "active.json").exists()
    assert kvasir.status().state == "partial"
    path.write_bytes(good)
    assert not list(kvasir.packs.glob("*.part/wheels/torch*"))
    assert kvasir.result("install").ok
    in_use(kvasir)


def test_a_part_damaged_where_it_lay_is_fetched_again(kvasir: Kvasir, server: Server) -> None:
    server.cuts = [1 << 30, 1 << 20, 0, 0, 0, 0]
    assert not kvasir.result("install").ok
    server.cuts = []
    (part,) = kvasir.packs.glob("*.part/wheels/torch*.incomplete")
    part.write_bytes(b"\0" + part.read_bytes()[1:])
    assert kvasir.result("install").ok
    in_use(kvasir)
    assert server.asked(TORCH)[-1].range == ""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_ended_while_downloading_and_finished_later(kvasir: Kvasir, server: Server, how: int) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(name: str, sent: int) -> None:
        if name == TORCH and sent >= 1 << 20 and not go_on.is_set():
            reached.set()
            go_on.wait(300)

    server.gate = hold
    with interruptible():
        process = kvasir.start("install", "--json")
    assert reached.wait(300)
    (part,) = kvasir.packs.glob("*.part/wheels/torch*.incomplete")
    wait_for(lambda: part.stat().st_size >= 1 << 19, "the first bytes on the disk")
    process.send_signal(how)
    out, complaint = process.communicate(timeout=300)
    go_on.set()
    if how == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        last = decode_pack_report(out.splitlines()[-1])
        assert (process.returncode, last.ok) == (130, False)
        assert "Stopped. What was downloaded is kept" in last.sentence
        assert complaint == ""
    assert kvasir.status().state == "partial"
    had = part.stat().st_size
    assert had >= 1 << 19
    assert kvasir.result("install").ok
    assert server.asked(TORCH)[-1].range == f"bytes={had}-"
    in_use(kvasir)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_ended_while_installing_and_finished_later(kvasir: Kvasir, server: Server, how: int) -> None:
    # A uv that waits: the real one takes no time with wheels this small.
    real = Path(sys.executable).with_name("uv")
    waits, goes_on = kvasir.folder / "uv-waits", kvasir.folder / "uv-goes-on"
    slow = kvasir.folder / "slow-uv"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *"pip install"*)\n  touch "{waits}"; n=0\n'
        f'  until [ -e "{goes_on}" ] || [ $n -gt 600 ]; do sleep 0.1; n=$((n+1)); done;;\nesac\nexec "{real}" "$@"\n'
    )
    slow.chmod(0o755)
    process = kvasir.start("install", "--json", PACK_TEST_UV=str(slow))
    wait_for(waits.exists, "uv")
    process.send_signal(how)
    process.wait(300)
    process.communicate()
    assert not list(kvasir.packs.glob("*/pack.json"))
    assert kvasir.status().state == "partial"
    if how == signal.SIGKILL:  # its uv goes on writing, so nobody else may begin
        refused = kvasir.result("install")
        assert not refused.ok
        assert "Another Kvasir is installing" in refused.sentence
        goes_on.touch()
    asked = len(server.log)
    assert kvasir.result("install", PACK_TEST_LOCK_WAIT="60").ok
    assert len(server.log) == asked  # every file was there already
    in_use(kvasir)


def test_two_installers_do_not_meet(kvasir: Kvasir, server: Server) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(name: str, sent: int) -> None:
        reached.set()
        go_on.wait(300)

    server.gate = hold
    first = kvasir.start("install", "--json")
    assert reached.wait(300)
    for command in ("install", "remove"):
        second = kvasir.result(command)
        assert not second.ok
        assert "Another Kvasir is installing" in second.sentence
    go_on.set()
    first.communicate(timeout=300)
    assert first.returncode == 0
    in_use(kvasir)


def test_a_pack_that_fails_its_test_is_kept_and_not_used(kvasir: Kvasir, server: Server) -> None:
    write_list(kvasir.lists, stand_ins(server.folder, works=False), server.address)
    failed = kvasir.result("install")
    assert not failed.ok
    assert "No GPU answers." in failed.sentence
    assert "processor goes on" in failed.sentence
    status = kvasir.status()
    assert (status.state, status.active) == ("broken", False)
    assert status.reason == "No GPU answers."
    assert "tested" not in kvasir.active()


def test_in_words(kvasir: Kvasir) -> None:
    process = kvasir.start("install")
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert out.startswith("The GPU pack cuda13 is in use from the next start on.")
    shown, complaint = kvasir.start("status").communicate(timeout=300)
    assert complaint == ""
    assert "in use from the next start on" in shown
