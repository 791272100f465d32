"""Several folders of models, and the store on another disk: at no step is a model lost."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from engine.base.fetching import room
from engine.base.fetching.lock import lock
from engine.library import downloads, moving, paths, roots, store
from engine.library import hub as library
from engine.protocol.operations import LIST_MODELS, ListModels
from engine.services.operations import perform
from tests.engine.library.library_support import folder_model, gguf_model, kvasir, names, refused, sharded_model, told
from tests.hub_server import Hub


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def test_models_below_a_root_are_found(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    folder_model(root / "a" / "b" / "guide")
    shutil.copytree(root / "a" / "b" / "guide", root / "a" / "b" / "guide" / "heads")  # a part of it
    gguf_model(root / "flat.gguf")
    gguf_model(root / "1" / "2" / "3" / "4" / "deep.gguf")
    gguf_model(root / "1" / "2" / "3" / "4" / "5" / "deeper.gguf")
    gguf_model(root / ".hidden" / "hidden.gguf")
    sharded_model(root / "torn")
    (root / "torn" / "model-00001-of-00002.safetensors").unlink()
    (root / "around").symlink_to(root)
    picture = folder_model(root / "picture" / "unet")
    (picture / "config.json").write_text('{"_class_name": "UNet"}')
    assert kvasir("folders", "--add", root).exit_code == 0
    assert names() == {"guide", "flat.gguf", "deep.gguf"}
    assert paths.find_model("guide").path == str(root / "a" / "b" / "guide")
    shown = [each for each in told(kvasir("folders", "--json")) if not each.get("store")]
    assert [(each["path"], each["models"]) for each in shown] == [(str(root), 3)]
    for again in (root, root / "a"):
        assert "are looked for already" in refused(kvasir("folders", "--add", again))
    assert "There is no folder" in refused(kvasir("folders", "--add", tmp_path / "nothing"))
    assert kvasir("folders", "--remove", root).exit_code == 0
    assert names() == set()
    assert "are not looked for" in refused(kvasir("folders", "--remove", root))
    assert "that models are downloaded to" in refused(kvasir("folders", "--remove", store.store_folder()))


def test_a_root_that_is_unplugged_is_passed_over_and_said(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    gguf_model(root / "tiny.gguf")
    kvasir("folders", "--add", root)
    root.rename(tmp_path / "unplugged")
    listed = kvasir("list")
    assert listed.exit_code == 0
    assert f"Not there now, so not looked into: {root}." in listed.stdout
    assert "not there" in kvasir("folders").stdout
    (tmp_path / "unplugged").rename(root)
    assert names() == {"tiny.gguf"}
    assert "Not there" not in kvasir("list").stdout


def test_models_are_fetched_to_another_folder(hub: Hub, tmp_path: Path) -> None:
    kvasir("get", "some/model-GGUF", "Q4_K_M")
    usual, other = store.store_folder(), tmp_path / "disk"
    other.mkdir()
    assert kvasir("folders", "--downloads", other).exit_code == 0
    kvasir("get", "some/model")
    assert paths.find_model("some/model").path == str(other / "some" / "model")
    assert names() == {"some/model", "model-Q4_K_M.gguf"}
    held = {each["name"]: each["held"] for each in told(kvasir("list", "--json")) if "bundled" not in each}
    assert held == {"some/model": "fetched", "model-Q4_K_M.gguf": "fetched"}
    assert "Every file" in kvasir("verify", "model-Q4_K_M.gguf").stdout
    assert "free again" in kvasir("rm", "model-Q4_K_M.gguf").stdout
    kvasir("get", "some/model-GGUF", "Q8_0", "--later")
    assert "1 downloads are not finished" in refused(kvasir("folders", "--downloads", usual))
    other.rename(tmp_path / "unplugged")
    assert "Plug in its disk" in refused(kvasir("get", "some/model-GGUF", "Q4_K_M"))
    assert not other.exists()  # nothing was written in its place
    assert kvasir("folders", "--downloads", usual).exit_code == 0
    (tmp_path / "unplugged").rename(other)
    assert "some/model" in names()


def test_the_store_moves_with_all_that_is_in_it(hub: Hub, tmp_path: Path) -> None:
    kvasir("get", "some/model")
    kvasir("import", "--copy", gguf_model(tmp_path / "tiny.gguf"))
    kvasir("get", "some/model-GGUF", "Q8_0", "--later")
    source, target = store.store_folder(), tmp_path / "disk" / "models"
    before, known = files_of(source), names()
    *progress, listed = told(kvasir("folders", "--move-to", target, "--json"))
    assert progress[-1]["done"] == progress[-1]["total"] == sum(map(len, before.values()))
    assert (listed["path"], listed["models"]) == (str(target), 2)
    assert files_of(target) == before
    assert not source.exists()
    assert names() == known
    (job,) = downloads.queue()
    assert kvasir("resume", job.id).exit_code == 0
    assert "in " + str(target) in refused(kvasir("folders", "--move-to", target))
    assert kvasir("folders", "--move-to", source).exit_code == 0  # and back
    assert roots.read() == roots.ModelRoots()
    assert len(names()) == 3


STEPS = 23
"""Of moving six files: copied, compared, and in the end deleted one by one; and what is between."""


@pytest.mark.parametrize("step", [pytest.param(each, marks=[pytest.mark.long] * (each % 2)) for each in range(STEPS)])
def test_a_move_that_is_broken_off_loses_nothing(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Broken off at every change that it makes to the disk, and done again."""
    kvasir("get", "some/model")
    source, target = store.store_folder(), tmp_path / "disk"
    before = files_of(source)
    left = [step]

    def breaks(do: Callable) -> Callable:
        def once(*words: object, **rest: object) -> object:
            left[0] -= 1
            if left[0] == -1:
                raise KeyboardInterrupt
            return do(*words, **rest)

        return once

    with monkeypatch.context() as patch:
        for name in ("_copied", "_hash", "_make_store", "clear"):
            patch.setattr(moving, name, breaks(getattr(moving, name)))
        patch.setattr(roots, "change", breaks(roots.change))
        patch.setattr(Path, "unlink", breaks(Path.unlink))
        with pytest.raises(KeyboardInterrupt):
            moving.move_store(target)
    assert names() == {"some/model"}
    path = Path(paths.find_model("some/model").path)
    ((_, variant),) = store.variants_at(path)
    assert store.damaged(path, variant) == []
    with contextlib.suppress(roots.LibraryFailed):  # all of it was done but the last word
        moving.move_store(target)
    assert store.store_folder() == target
    assert files_of(target) == before
    assert not source.exists()
    assert roots.read().leaving == ""
    assert names() == {"some/model"}


def test_a_move_is_refused(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kvasir("get", "some/model")
    source = store.store_folder()
    before = files_of(source)
    full = tmp_path / "full"
    gguf_model(full / "theirs.gguf")
    assert "holds other files" in refused(kvasir("folders", "--move-to", full))
    assert "lie within each other" in refused(kvasir("folders", "--move-to", source / "inner"))
    job = downloads.add(found := library.repository("some/model-GGUF"), found.variants[0])
    working = source / store.UNFINISHED / job.id
    with lock(working / "lock", AssertionError()):
        assert "is being downloaded or imported" in refused(kvasir("folders", "--move-to", tmp_path / "disk"))
    downloads.cancel(job)
    with monkeypatch.context() as patch:
        patch.setattr(room, "free_bytes", lambda folder: 1000)
        assert "not enough room" in refused(kvasir("folders", "--move-to", tmp_path / "small"))
    with monkeypatch.context() as patch:
        patch.setattr(moving, "_hash", lambda path, progress=None: "other")
        assert "does not hold what was written" in refused(kvasir("folders", "--move-to", tmp_path / "broken"))
    assert store.store_folder() == source
    assert files_of(source) == before


def test_no_download_begins_while_the_store_moves(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = downloads.add(found := library.repository("some/model-GGUF"), found.variants[0])
    states: list[str] = []
    copied = moving._copied

    def meanwhile(*words: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(store, "lock", lambda path, refusal, wait: lock(path, refusal, 0.0))
            working = downloads.Downloads(lambda told: states.append(told.sentence))
            working.start(job)
            working.finish()
        copied(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(moving, "_copied", meanwhile)
    assert kvasir("folders", "--move-to", tmp_path / "disk").exit_code == 0
    assert "Another Kvasir is changing the models" in states[-1]
    assert not hub.starts
    assert [each.id for each in downloads.queue()] == [job.id]


def imported(tmp_path: Path, name: str = "me/tiny") -> None:
    """A model in the store."""
    assert kvasir("import", "--copy", gguf_model(tmp_path / "mine.gguf"), "--name", name).exit_code == 0


@pytest.mark.parametrize("away", [False, True])
def test_a_store_that_was_left_and_is_chosen_again_keeps_its_models(tmp_path: Path, away: bool) -> None:
    imported(tmp_path)
    first, second = store.store_folder(), tmp_path / "second"
    leaves = files_of(first)
    assert kvasir("folders", "--move-to", second).exit_code == 0
    shutil.copytree(second, first)  # as if it was broken off before anything was deleted
    roots.change(lambda now: msgspec.structs.replace(now, leaving=str(first)))
    if away:
        second.rename(tmp_path / "unplugged")
    assert kvasir("folders", "--downloads", first).exit_code == 0
    assert roots.read().leaving == ""
    if away:
        (tmp_path / "unplugged").rename(second)
    assert kvasir("folders", "--move-to", tmp_path / "third").exit_code == 0
    assert files_of(second) == leaves
    assert files_of(tmp_path / "third") == (leaves if away else {})
    assert names() == {"mine.gguf", *(["me/tiny/mine.gguf"] if away else [])}


def test_a_file_that_came_to_a_store_after_it_was_copied_stays_there(tmp_path: Path) -> None:
    imported(tmp_path)
    first = store.store_folder()
    assert kvasir("folders", "--move-to", tmp_path / "second").exit_code == 0
    later = first / "me" / "tiny" / "later.txt"
    later.parent.mkdir(parents=True)
    later.write_text("later")
    roots.change(lambda now: msgspec.structs.replace(now, leaving=str(first)))  # as if it was not yet deleted
    assert kvasir("folders", "--move-to", tmp_path / "third").exit_code == 0
    assert files_of(first) == {"me/tiny/later.txt": b"later"}


@pytest.mark.parametrize("link", [False, True])
def test_nothing_is_deleted_where_the_left_store_is_the_new_one(tmp_path: Path, link: bool) -> None:
    """What a version before this one may have written down."""
    imported(tmp_path)
    source = store.store_folder()
    before = files_of(source)
    (tmp_path / "link").symlink_to(source)
    left = tmp_path / "link" if link else source
    roots.change(lambda now: msgspec.structs.replace(now, leaving=str(left)))
    assert kvasir("folders", "--move-to", tmp_path / "disk").exit_code == 0
    assert files_of(tmp_path / "disk") == before


def test_a_move_from_a_folder_of_the_users_own_takes_only_models(tmp_path: Path) -> None:
    own, target = tmp_path / "own", tmp_path / "disk"
    theirs = {"letter.txt": b"Dear", ".git/HEAD": b"ref", "me/diary": b"1", "me/thesis/chapter.tex": b"2"}
    for name, content in theirs.items():
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_bytes(content)
    (own / "empty").mkdir()
    gguf_model(own / "theirs.gguf")
    kvasir("folders", "--downloads", own)
    imported(tmp_path)
    before = {name: content for name, content in files_of(own).items() if name.startswith("me/tiny/")}
    theirs["theirs.gguf"] = (own / "theirs.gguf").read_bytes()
    assert kvasir("folders", "--move-to", target).exit_code == 0
    assert files_of(target) == before
    assert files_of(own) == theirs
    assert (own / "empty").is_dir()
    assert not (own / "me" / "tiny").exists()
    assert names() == {"mine.gguf", "theirs.gguf"}


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_links_in_a_store_lead_where_they_led(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported(tmp_path)
    source, target = store.store_folder(), tmp_path / "a" / "b" / "disk"
    folder, outside = source / "me" / "tiny", tmp_path / "outside"
    outside.write_bytes(b"large")
    links = {
        "relative": os.path.relpath(outside, folder),
        "absolute": str(outside),
        "inside": "mine.gguf",
        "inside-absolute": str(folder / "mine.gguf"),
    }
    for name, leads in links.items():
        (folder / name).symlink_to(leads)
    before = files_of(source)

    def no_links(*words: object, **rest: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "symlink_to", no_links)
        assert "keeps no links" in refused(kvasir("folders", "--move-to", target))
    assert files_of(source) == before
    assert kvasir("folders", "--move-to", target).exit_code == 0
    assert not source.exists()
    assert files_of(target) == before
    assert (target / "me/tiny/inside-absolute").resolve() == target / "me/tiny/mine.gguf"


def moved_while_it_waits(monkeypatch: pytest.MonkeyPatch, target: Path) -> None:
    """Whoever changes the store next has waited for a move."""
    changing = store.changing

    @contextlib.contextmanager
    def waits() -> Iterator[None]:
        monkeypatch.setattr(store, "changing", changing)
        moving.move_store(target)
        with changing():
            yield

    monkeypatch.setattr(store, "changing", waits)


def test_a_download_that_waited_for_a_move_goes_on_where_the_store_is(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = downloads.add(found := library.repository("some/model-GGUF"), found.variants[0])
    source, states = store.store_folder(), []
    moved_while_it_waits(monkeypatch, tmp_path / "disk")
    working = downloads.Downloads(lambda told: states.append(told))
    working.start(job)
    working.finish()
    assert (states[-1].state, states[-1].sentence) == ("done", "")
    assert Path(states[-1].path).is_relative_to(tmp_path / "disk")
    assert not source.exists()
    assert downloads.queue() == []


def test_an_import_that_waited_for_a_move_goes_to_where_the_store_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(tmp_path)
    source = store.store_folder()
    moved_while_it_waits(monkeypatch, tmp_path / "disk")
    imported(tmp_path, "me/other")
    assert (tmp_path / "disk/me/other/mine.gguf").is_file()
    assert not source.exists()


def test_the_store_stays_where_it_is_while_a_model_is_imported(tmp_path: Path) -> None:
    imported(tmp_path)
    working = store.store_folder() / store.UNFINISHED / "import-1"
    working.mkdir()
    (tmp_path / "disk").mkdir()
    with lock(working / "lock", AssertionError()):
        assert "is being downloaded or imported" in refused(kvasir("folders", "--downloads", tmp_path / "disk"))
    assert kvasir("folders", "--downloads", tmp_path / "disk").exit_code == 0


def test_a_file_that_makes_no_sense_is_set_aside(tmp_path: Path) -> None:
    roots.file().parent.mkdir(parents=True)
    roots.file().write_text('{"roots": 7}')
    assert roots.read() == roots.ModelRoots()
    root = tmp_path / "disk"
    root.mkdir()
    assert kvasir("folders", "--add", root).exit_code == 0
    assert roots.file().with_name("models.json.broken").read_text() == '{"roots": 7}'
    assert roots.read().roots == [str(root)]


def test_what_is_watched_is_where_models_come_and_go(tmp_path: Path) -> None:
    root, mine = tmp_path / "disk", folder_model(tmp_path / "elsewhere" / "mine")
    file = gguf_model(root / "a" / "tiny.gguf")
    kvasir("folders", "--add", root)
    kvasir("import", mine)
    watched = perform(LIST_MODELS, ListModels()).watched
    assert {str(root), str(root / "a"), str(mine), str(mine.parent), str(file)} <= set(watched)
    assert not any("kvasir-guide" in path for path in watched)


def test_the_figures_of_the_disk(hub: Hub, tmp_path: Path) -> None:
    kvasir("get", "some/model")
    kvasir("get", "some/model-GGUF", "Q8_0", "--later")
    kept = paths.quantised_folder() / ("0" * 32 + ".packed")
    kept.parent.mkdir(parents=True)
    kept.write_bytes(bytes(5000))
    records = told(kvasir("disk", "--json"))
    kinds = {
        kind: [each for each in records if each["type"] == kind] for kind in ("Download", "Leftover", "ModelFolder")
    }
    assert [each["state"] for each in kinds["Download"]] == ["paused"]
    assert [(each["path"], each["bytes"], each["cached"]) for each in kinds["Leftover"]] == [(str(kept), 5000, True)]
    (folder,) = kinds["ModelFolder"]
    model = next(each for each in records if each.get("name") == "some/model")
    assert folder["bytes"] == model["bytes"] > 500_000
    assert 0 < folder["free"] < folder["total"]
    assert "5 kB" in kvasir("disk").stdout
    kvasir("disk", "--delete", str(kept))
    assert not kept.exists()
