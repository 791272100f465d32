"""Downloads through everything that may happen to them: whole and verified in the end, nothing lost, nothing half."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants

from engine.base.fetching import lock as one_process
from engine.base.fetching import room
from engine.base.fetching.download import CHUNK
from engine.base.fetching.errors import FetchFailed
from engine.library import downloads, keys, paths, store
from engine.library import hub as library
from engine.protocol.library import Download, HubRepository, HubVariant
from tests import hub_server
from tests.hub_server import Hub

PROCESS = Path(__file__).with_name("fetching_process.py")


def chosen(name: str, variant: str = "") -> tuple[HubRepository, HubVariant]:
    found = library.repository(name)
    return found, next(each for each in found.variants if variant in each.name)


def run(*wanted: tuple[str, str], rate: float = 0.0) -> list[Download]:
    """What was told of a run over these, to its end."""
    told: list[Download] = []
    working = downloads.Downloads(told.append, 2, rate)
    for name, variant in wanted:
        working.start(downloads.add(*chosen(name, variant)))
    working.finish()
    return told


def finish(job: Any) -> Download:
    """What was told last of a job that came to its end."""
    told: list[Download] = []
    working = downloads.Downloads(told.append)
    working.start(job)
    working.finish()
    return told[-1]


def content(hub: Hub, name: str, folder: Path) -> None:
    """Every file in ``folder`` is the hub's, but for the receipt and what a kill left of one."""
    for file in folder.rglob("*"):
        if file.is_file() and not file.name.startswith(store.RECEIPT):
            assert file.read_bytes() == hub.repositories[name].files[file.relative_to(folder).as_posix()], file


def known() -> set[str]:
    return {model.name for model in paths.known_models() if not model.name.startswith("kvasir-")}


def test_a_model_arrives_whole_and_is_known(hub: Hub) -> None:
    *before, last = run(("some/model", ""))
    assert (last.state, last.done) == ("done", last.total)
    assert {told.state for told in before} == {"waiting", "running"}
    folder = Path(last.path)
    assert folder == store.store_folder() / "some" / "model"
    content(hub, "some/model", folder)
    assert known() == {"some/model"}
    assert paths.find_model("some/model").path == str(folder)
    assert downloads.queue() == []
    assert [path.name for path in (store.store_folder() / ".downloads").iterdir()] == ["lock"]
    assert hub.sent["original/consolidated.00.pth"] == hub.sent["pytorch_model.bin"] == 0


def test_two_kinds_of_one_repository_share_what_they_share(hub: Hub) -> None:
    run(("some/model-GGUF", "Q4_K_M"))
    assert known() == {"model-Q4_K_M.gguf"}
    *_, last = run(("some/model-GGUF", "Q8_0"))
    assert known() == {"model-Q4_K_M.gguf", "model-Q8_0-00001-of-00002.gguf"}
    assert hub.sent["mmproj-model-F16.gguf"] == 50_000
    folder = store.store_folder() / "some" / "model-GGUF"
    content(hub, "some/model-GGUF", folder)
    assert last.path == str(folder / "Q8_0" / "model-Q8_0-00001-of-00002.gguf")

    freed = store.remove(Path(last.path))
    assert freed == 450_000
    assert known() == {"model-Q4_K_M.gguf"}
    assert (folder / "mmproj-model-F16.gguf").is_file()
    store.remove(folder / "model-Q4_K_M.gguf")
    assert not folder.parent.exists()


def test_a_line_that_is_cut_goes_on_where_it_was(hub: Hub) -> None:
    hub.cuts = [5000, 70_000, 1, 90_000]
    *_, last = run(("some/model-GGUF", "Q4_K_M"))
    assert last.state == "done"
    assert sum(hub.sent.values()) == last.total
    content(hub, "some/model-GGUF", store.store_folder() / "some" / "model-GGUF")


def test_another_part_than_was_asked_for_is_not_appended(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_server, "asked_span", lambda to, length: (0, length))
    hub.cuts = [1 << 30, 100_000]
    *_, last = run(("some/model-GGUF", "Q4_K_M"))
    assert last.state == "done", last.sentence
    content(hub, "some/model-GGUF", store.store_folder() / "some" / "model-GGUF")


def test_a_wrong_bit_is_noticed_and_nothing_is_offered(hub: Hub) -> None:
    hub.spoilt = {"model-Q4_K_M.gguf"}
    *_, last = run(("some/model-GGUF", "Q4_K_M"))
    assert last.state == "failed"
    assert "is not the file that it should be: its sha256 differs" in last.sentence
    assert known() == set()
    assert downloads.queue()[0].failed == last.sentence
    hub.spoilt = {"tokenizer.json"}
    *_, last = run(("some/model", ""))
    assert "its sha256 differs" in last.sentence
    hub.spoilt = set()
    *_, last = run(("some/model", ""))
    assert last.state == "done"


@pytest.mark.parametrize("fault", ["errors", "page", "gone"])
def test_a_hub_that_fails_costs_nothing_of_what_is_here(hub: Hub, fault: str) -> None:
    found, variant = chosen("some/model-GGUF", "Q4_K_M")
    job = downloads.add(found, variant)
    hub.cuts = [1 << 30, 100_000, 0, 0, 0]
    last = finish(job)
    assert last.state == "failed"
    assert "cannot be reached" in last.sentence
    assert last.done == 150_000
    hub.cuts = []
    if fault == "errors":
        hub.statuses = [503, 429]
    elif fault == "page":
        hub.page = b"<html>Please log in.</html>"
    else:
        kept = hub.repositories.pop("some/model-GGUF")
    last = finish(job)
    if fault != "errors":
        assert last.state == "failed"
        hub.page = b""
        if fault == "gone":
            assert "does not give model-Q4_K_M.gguf (HTTP 404" in last.sentence
            hub.repositories["some/model-GGUF"] = kept
        last = finish(job)
    assert last.state == "done"
    assert sum(hub.sent.values()) == variant.bytes


def test_a_gated_model_says_where_to_agree_and_a_token_opens_it(hub: Hub) -> None:
    *_, last = run(("closed/model", ""))
    assert last.state == "failed"
    assert f"Agree on {hub.address}/closed/model" in last.sentence
    hub.tokens = {"hf_good"}
    keys.write(library.server(), "hf_good")
    *_, last = run(("closed/model", ""))
    assert last.state == "done"
    given = [token for path, token in hub.authorised if path.startswith("/elsewhere/")]
    assert given
    assert set(given) == {""}  # the token is told to the hub alone
    hub.tokens = set()
    store.remove(Path(last.path))
    with pytest.raises(FetchFailed, match="does not know your token"):
        chosen("closed/model")


def test_a_token_that_is_taken_back_in_the_middle(hub: Hub) -> None:
    hub.tokens = {"hf_good"}
    keys.write(library.server(), "hf_good")
    job = downloads.add(*chosen("closed/model"))
    hub.tokens = set()
    last = finish(job)
    assert last.state == "failed"
    assert "is not given to your account" in last.sentence


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_pausing_and_resuming(hub: Hub) -> None:
    hub.pause = 0.02
    told: list[Download] = []
    working = downloads.Downloads(told.append)
    job = downloads.add(*chosen("some/model-GGUF", "Q8_0"))
    working.start(job)
    until(lambda: hub.sent["Q8_0/model-Q8_0-00002-of-00002.gguf"] > 30_000)
    working.pause(job.id)
    until(lambda: told[-1].state == "paused")
    working.finish()
    assert told[-1].done > 230_000
    standing = downloads.standing(downloads.read(job.id))
    assert (standing.state, standing.done) == ("paused", told[-1].done)
    working = downloads.Downloads(told.append)
    working.start(downloads.add(*chosen("some/model-GGUF", "Q8_0")))
    working.finish()
    assert told[-1].state == "done"

    job = downloads.add(*chosen("some/model-GGUF", "Q4_K_M"))
    downloads.cancel(job)
    assert downloads.queue() == []
    assert not (store.store_folder() / ".downloads" / job.id).exists()


def test_several_at_once_and_no_faster_than_allowed(hub: Hub) -> None:
    hub.pause = 0.01  # so that it comes in several blocks
    began = time.monotonic()
    told = run(("some/model-GGUF", "Q4_K_M"), ("some/model", ""), rate=6e5)
    seconds = time.monotonic() - began
    assert [each.state for each in told].count("done") == 2
    assert seconds > 0.8 * (350_000 + 520_000) / 6e5
    assert any(each.rate > 0 for each in told)


def test_a_full_disk_is_told_before_it_is_full(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=room.MARGIN + 100_000))
    *_, last = run(("some/model-GGUF", "Q4_K_M"))
    assert last.state == "failed"
    assert "There is not enough room" in last.sentence
    assert hub.sent == {}


def test_files_that_vanish_are_fetched_again(hub: Hub) -> None:
    *_, last = run(("some/model", ""))
    (Path(last.path) / "tokenizer.json").unlink()
    (receipt,) = [store.receipt_of(Path(last.path))]
    (variant,) = receipt.variants.values()
    assert store.damaged(Path(last.path), variant) == ["tokenizer.json"]
    before = sum(hub.sent.values())
    run(("some/model", ""))
    assert sum(hub.sent.values()) - before == 20_000
    content(hub, "some/model", Path(last.path))


def test_a_newer_revision_takes_the_place_of_the_old(hub: Hub) -> None:
    *_, first = run(("some/model", ""))
    files = hub.repositories["some/model"].files
    files["model-00001-of-00002.safetensors"] = random.Random(1).randbytes(300_000)
    before = hub.sent["model-00002-of-00002.safetensors"]
    *_, second = run(("some/model", ""))
    assert second.path == first.path
    content(hub, "some/model", Path(second.path))
    assert hub.sent["model-00002-of-00002.safetensors"] == before
    assert store.receipt_of(Path(second.path)).revisions["safetensors"] == hub.repositories["some/model"].revision


def test_files_that_a_newer_revision_does_not_have_are_gone(hub: Hub) -> None:
    run(("some/model", ""))
    files = hub.repositories["some/model"].files
    for name in [name for name in files if name.startswith("model-") or name.endswith("index.json")]:
        del files[name]
    files["model.safetensors"] = random.Random(2).randbytes(100_000)
    *_, second = run(("some/model", ""))
    names = {file.name for file in Path(second.path).iterdir()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors", store.RECEIPT}


def test_what_is_here_already_is_left_as_it_is(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, first = run(("some/model-GGUF", "Q4_K_M"))
    sent, node = sum(hub.sent.values()), Path(first.path).stat().st_ino
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    *_, again = run(("some/model-GGUF", "Q4_K_M"))
    assert again.state == "done"
    assert (sum(hub.sent.values()), Path(first.path).stat().st_ino) == (sent, node)


def test_a_store_behind_a_link(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large-disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "large-disk")
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "link"))
    *_, last = run(("some/model", ""))
    assert store.remove(Path(last.path).resolve()) > 0
    assert known() == set()


def test_a_page_in_place_of_a_file_is_no_beginning_of_it(hub: Hub) -> None:
    job = downloads.add(*chosen("some/model-GGUF", "Q4_K_M"))
    hub.page = b"<html>Please log in to this network.</html>"
    last = finish(job)
    assert "bytes that are not of" in last.sentence
    assert last.done == 0
    hub.page = b""
    run(("some/model-GGUF", "Q4_K_M"))
    assert sum(hub.sent.values()) == job.total


def test_nothing_is_fetched_offline(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    job = downloads.add(*chosen("some/model-GGUF", "Q4_K_M"))
    monkeypatch.setattr(constants, "is_offline_mode", lambda: True)
    last = finish(job)
    assert "HF_HUB_OFFLINE" in last.sentence
    assert hub.sent == {}


@pytest.mark.parametrize("odd", ['{"repository": "x"}', '{"repository": "some/odd", "variants": {"a": {}}}', "[]", "{"])
def test_an_odd_receipt_is_no_model(hub: Hub, odd: str) -> None:
    run(("some/model", ""))
    other = store.store_folder() / "some" / "odd"
    other.mkdir()
    (other / store.RECEIPT).write_text(odd)
    assert known() == {"some/model"}


def test_one_process_fetches_and_the_other_says_so(hub: Hub) -> None:
    job = downloads.add(*chosen("some/model-GGUF", "Q4_K_M"))
    with one_process.lock(store.store_folder() / ".downloads" / job.id / "lock", AssertionError()):
        *_, last = run(("some/model-GGUF", "Q4_K_M"))
        assert last.state == "failed"
        assert "Another Kvasir is downloading some/model-GGUF" in last.sentence
        with pytest.raises(FetchFailed, match="Another Kvasir"):
            downloads.cancel(job)
        assert downloads.standing(downloads.read(job.id)).state == "running"
        assert downloads.read(job.id).failed == ""  # it is the other's
    *_, last = run(("some/model-GGUF", "Q4_K_M"))
    assert last.state == "done"


def test_a_link_out_of_the_store_is_not_followed_into(hub: Hub, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    store.store_folder().mkdir(parents=True)
    (store.store_folder() / "some").symlink_to(outside)
    *_, last = run(("some/model-GGUF", "Q4_K_M"))
    assert last.state == "failed"
    assert "leads out of Kvasir's models" in last.sentence
    assert list(outside.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.long)])
def test_killed_at_random_moments(hub: Hub, kills: int) -> None:
    """Three at once, killed again and again: in the end all is whole, and no more than a block each was in vain."""
    hub.pause = 0.002
    wanted = [("some/model-GGUF", "Q4_K_M"), ("some/model-GGUF", "Q8_0"), ("some/model", "")]
    jobs = [downloads.add(*chosen(name, variant)) for name, variant in wanted]
    total = sum(job.total for job in jobs)
    chance = random.Random(2)
    for _ in range(kills):
        with subprocess.Popen([sys.executable, str(PROCESS)], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.15))
            process.kill()
        for name in known():  # whatever is offered is whole
            path = Path(paths.find_model(name).path)
            repository = store.receipt_of(path).repository
            content(hub, repository, store.folder_of(repository))
    subprocess.run([sys.executable, str(PROCESS)], check=True, capture_output=True)
    assert known() == {"model-Q4_K_M.gguf", "model-Q8_0-00001-of-00002.gguf", "some/model"}
    for name in ("some/model-GGUF", "some/model"):
        content(hub, name, store.store_folder() / name)
    assert downloads.queue() == []
    assert sum(hub.sent.values()) <= total + 3 * kills * CHUNK
    for file in hub.sent:
        starts = [start for name, start in hub.starts if name == file]
        # None began anew, but the file that two of them share: each may begin it, whichever is there first keeps it.
        assert starts == sorted(starts) or file.startswith("mmproj"), file


@pytest.mark.skipif(sys.platform == "win32", reason="a folder with an open file cannot be renamed there")
def test_a_download_that_is_started_while_it_is_cancelled_is_kept(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deleted is out of the way by then, and whoever is about to lock it there is told so."""
    wanted = chosen("some/model-GGUF", "Q4_K_M")
    job = downloads.add(*wanted)
    clear, ended = store.clear, []

    def meanwhile(folder: Path) -> None:
        monkeypatch.setattr(store, "clear", clear)
        ended.append(run(("some/model-GGUF", "Q4_K_M"))[-1])
        clear(folder)

    monkeypatch.setattr(store, "clear", meanwhile)
    downloads.cancel(job)
    assert ended[0].state == "done"
    content(hub, "some/model-GGUF", store.store_folder() / "some" / "model-GGUF")

    job = downloads.add(*chosen("some/model"))
    changing = store.changing

    def cancelled_first() -> AbstractContextManager[None]:
        monkeypatch.setattr(store, "changing", changing)
        downloads.cancel(job)
        return changing()

    monkeypatch.setattr(store, "changing", cancelled_first)
    last = finish(job)
    assert last.sentence == "The download of some/model was cancelled meanwhile. Download it again."
    assert downloads.queue() == []
