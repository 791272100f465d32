"""Models that lie elsewhere, imported: named where they are, copied, or moved; and what is refused."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import msgspec
import pytest

from engine.base.fetching import room
from engine.library import importing, paths, roots, store
from engine.library.local import REPORT
from engine.protocol.making import MakeReport, ModelQuality
from engine.services.quantise.plan import UnfinishedWork, WorkNote
from tests.engine.library.library_support import (
    folder_model,
    gguf_model,
    kvasir,
    names,
    refused,
    sharded_model,
    split_model,
    told,
)
from tests.kit import forked


def unfinished() -> list[str]:
    folder = store.store_folder() / store.UNFINISHED
    return sorted(path.name for path in folder.iterdir() if path.name != "lock") if folder.is_dir() else []


def test_a_folder_is_used_where_it_lies(tmp_path: Path) -> None:
    folder = folder_model(tmp_path / "mine")
    (listed,) = told(kvasir("import", folder, "--json"))
    assert (listed["name"], listed["path"], listed["held"]) == ("mine", str(folder), "referred")
    assert paths.find_model("mine").path == str(folder)
    assert "is among the models already" in refused(kvasir("import", folder / "config.json"))
    assert "another model named mine" in refused(kvasir("import", folder_model(tmp_path / "other"), "--name", "mine"))
    folder.rename(tmp_path / "away")
    assert names() == set()
    assert "missing" in next(line for line in kvasir("list").stdout.splitlines() if line.startswith("mine"))
    (tmp_path / "away").rename(folder)
    assert names() == {"mine"}
    before = sorted(folder.iterdir())
    assert "Nothing was deleted" in kvasir("rm", "mine").stdout
    assert sorted(folder.iterdir()) == before
    assert names() == set()


def test_a_vanished_one_can_be_forgotten(tmp_path: Path) -> None:
    folder = folder_model(tmp_path / "mine")
    kvasir("import", folder)
    shutil.rmtree(folder)
    assert "Nothing was deleted" in kvasir("rm", "mine").stdout
    assert roots.read().references == []


@pytest.mark.parametrize("part", [0, 1])
def test_any_part_of_a_split_file_means_all_of_it(tmp_path: Path, part: int) -> None:
    parts = split_model(tmp_path / "here" / "tiny.gguf")
    (listed,) = told(kvasir("import", parts[part], "--json"))
    assert listed["path"] == str(parts[0])
    assert listed["bytes"] == sum(file.stat().st_size for file in parts)
    assert kvasir("import", "--copy", "--name", "me/tiny", parts[part]).exit_code == 0
    for file in parts:
        assert (store.store_folder() / "me" / "tiny" / file.name).read_bytes() == file.read_bytes()


def test_all_shards_are_copied_verified_and_deleted(tmp_path: Path) -> None:
    folder = sharded_model(tmp_path / "mine")
    *progress, listed = told(kvasir("import", "--copy", folder / "model-00002-of-00002.safetensors", "--json"))
    assert progress[-1]["done"] == progress[-1]["total"] > 5_000_000
    target = store.store_folder() / "imported" / "mine"
    assert (listed["name"], listed["path"], listed["held"]) == ("imported/mine", str(target), "copied")
    assert "repository" not in listed  # it is not of the hub
    assert "Every file is as it was" in kvasir("verify", "imported/mine").stdout
    assert unfinished() == []
    shutil.rmtree(folder)
    assert names() == {"imported/mine"}
    assert "free again" in kvasir("rm", "imported/mine").stdout
    assert not target.parent.exists()


def test_a_move_leaves_what_another_model_needs(tmp_path: Path) -> None:
    here = tmp_path / "here"
    one, other = gguf_model(here / "one-Q4_0.gguf"), gguf_model(here / "other.gguf")
    eyes = here / "mmproj-model.gguf"
    eyes.write_bytes(other.read_bytes())
    content = one.read_bytes()
    kvasir("import", one)
    assert kvasir("import", "--move", one, "--name", "me/one").exit_code == 0
    moved = store.store_folder() / "me" / "one"
    assert (moved / one.name).read_bytes() == content
    assert (moved / eyes.name).is_file()
    assert sorted(here.iterdir()) == [eyes, other]
    assert roots.read().references == []
    assert kvasir("import", "--move", other, "--name", "me/other").exit_code == 0
    assert not here.exists()


@pytest.mark.parametrize("name", ["a", "a/b/c", "../b", "a/..", "/a/b", "a\\b/c", "a/.b", "a/con", "a/b."])
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    file = gguf_model(tmp_path / "here" / "tiny.gguf")
    assert "is not a valid name for a model here" in refused(kvasir("import", "--copy", file, "--name", name))
    if name != "a":
        assert "is not a valid name for a model" in refused(kvasir("import", file, "--name", name))
    assert names() == set()
    assert not (store.store_folder() / "a").exists()


def test_what_is_no_model(tmp_path: Path) -> None:
    file = gguf_model(tmp_path / "two" / "one.gguf")
    shutil.copy(file, file.with_name("other.gguf"))
    (tmp_path / "notes.txt").write_text("no model")
    (tmp_path / "cut.gguf").write_bytes(file.read_bytes()[:1000])
    (tmp_path / "empty").mkdir()
    torn = sharded_model(tmp_path / "torn")
    (torn / "model-00002-of-00002.safetensors").unlink()
    parts = split_model(tmp_path / "parts" / "tiny.gguf")
    parts[-1].unlink()
    for path, sentence in (
        (tmp_path / "nothing", "There is no model at"),
        (tmp_path / "notes.txt", "is a file. Choose a GGUF file"),
        (tmp_path / "cut.gguf", "cut.gguf is"),
        (tmp_path / "empty", "has no config.json"),
        (tmp_path / "two", "holds 2 GGUF models (one.gguf, other.gguf). Choose one"),
        (torn, "model-00002-of-00002.safetensors"),
        (parts[0], f"{parts[-1].name} is missing"),
    ):
        for how in ([], ["--copy", "--name", "me/it"]):
            assert sentence in refused(kvasir("import", path, *how))
    assert names() == set()
    assert unfinished() == []


def test_a_link_out_of_the_folder(tmp_path: Path) -> None:
    folder = folder_model(tmp_path / "mine")
    (folder / "tokenizer.json").rename(tmp_path / "secret.json")
    (folder / "tokenizer.json").symlink_to(tmp_path / "secret.json")
    for how in ([], ["--copy"], ["--move"]):
        assert "is a link that leads out of the model's folder" in refused(kvasir("import", folder, *how))
    linked = tmp_path / "linked.gguf"
    linked.symlink_to(gguf_model(tmp_path / "here" / "tiny.gguf"))  # which was named itself
    assert kvasir("import", "--copy", linked).exit_code == 0
    assert not (store.store_folder() / "imported" / "linked" / "linked.gguf").is_symlink()


def test_a_model_that_is_there_already_stays(tmp_path: Path) -> None:
    file = gguf_model(tmp_path / "here" / "tiny.gguf")
    assert kvasir("import", "--copy", file).exit_code == 0
    held = store.store_folder() / "imported" / "tiny" / "tiny.gguf"
    before = held.stat().st_ino
    assert "There is a model imported/tiny already" in refused(kvasir("import", "--copy", file))
    assert "among the models already" in refused(kvasir("import", "--copy", held, "--name", "me/tiny"))
    assert held.stat().st_ino == before
    other = store.store_folder() / "me" / "own"
    other.mkdir(parents=True)
    (other / "notes.txt").write_text("mine")
    assert "with other files in it" in refused(kvasir("import", "--copy", file, "--name", "me/own"))
    assert [path.name for path in other.iterdir()] == ["notes.txt"]


def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = gguf_model(tmp_path / "here" / "tiny.gguf")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 1000, 1000))
    assert "There is not enough room" in refused(kvasir("import", "--copy", file))
    assert unfinished() == []


def test_a_copy_that_is_broken_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, copied = folder_model(tmp_path / "mine"), importing._copied

    def interrupted(source: Path, *rest: object) -> str:
        if source.name == "model.safetensors":
            raise KeyboardInterrupt
        return copied(source, *rest)  # type: ignore[arg-type]

    for how in ("--copy", "--move"):
        monkeypatch.setattr(importing, "_copied", interrupted)
        assert kvasir("import", how, folder).exit_code == 130
        assert (names(), unfinished()) == (set(), [])
        monkeypatch.undo()
    assert (folder / "model.safetensors").is_file()


def test_a_move_in_that_is_broken_off_is_no_model_and_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, replace, moved = folder_model(tmp_path / "mine"), Path.replace, []

    def fails(self: Path, target: Path) -> Path:
        if "files" in self.parts:
            moved.append(target)
            if len(moved) == 2:
                raise OSError(5, "Input/output error")
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fails)
        assert kvasir("import", "--move", folder, "--name", "me/it").exit_code == 1
    assert names() == set()
    assert (folder / "model.safetensors").is_file()
    assert kvasir("import", "--move", folder, "--name", "me/it").exit_code == 0
    assert names() == {"me/it"}
    assert "Every file is as it was" in kvasir("verify", "me/it").stdout


@pytest.mark.slow
def test_two_processes_import_the_same(tmp_path: Path) -> None:
    folder = sharded_model(tmp_path / "mine")
    told = ["models", "import", "--copy", "--name", "me/it", str(folder)]
    command = [sys.executable, "-m", "engine.doors.cli.main", *told]
    both = [forked.popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ends = [(process.communicate(timeout=300)[1], process.returncode) for process in both]
    assert sorted(code for _, code in ends) == [0, 1], ends
    (sentence,) = (said for said, code in ends if code)
    assert "There is a model me/it already" in sentence or "Another Kvasir is importing me/it" in sentence
    assert names() == {"me/it"}
    assert "Every file is as it was" in kvasir("verify", "me/it").stdout
    assert unfinished() == []


@pytest.mark.slow
def test_a_killed_copy_is_shown_and_swept(tmp_path: Path) -> None:
    file = gguf_model(tmp_path / "here" / "tiny.gguf")
    code = (
        "import sys, time, pathlib\n"
        "from engine.library import importing\n"
        "def tell(done, total):\n    print('copying', flush=True); time.sleep(60)\n"
        "importing.import_model(pathlib.Path(sys.argv[1]), 'copy', 'me/it', [], tell)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "copying\n"
    assert "Another Kvasir is importing me/it" in refused(kvasir("import", "--copy", file, "--name", "me/it"))
    assert importing.leftovers() == []  # somebody works on it
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert names() == set()
    (left,) = (each for each in told(kvasir("disk", "--json")) if each["type"] == "Leftover")
    assert left["bytes"] > 0
    assert kvasir("import", "--copy", file, "--name", "me/it").exit_code == 0
    assert (names(), unfinished()) == ({"tiny.gguf"}, [])


def report(path: Path) -> bytes:
    """As `kvasir quantise --out` writes it beside a model."""
    quality = ModelQuality(bytes=1, perplexity=2.0, tokens_per_second=3.0)
    made = MakeReport(path.name, str(path), "original", "nf4", quality, quality, kl=0.1, same_top=0.9, tokens=100)
    content = msgspec.json.encode(made)
    (path if path.is_dir() else path.parent).joinpath(REPORT).write_bytes(content)
    return content


@pytest.mark.parametrize("how", ["--copy", "--move"])
@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_a_report_of_how_a_model_was_made_comes_along(tmp_path: Path, how: str, kind: str) -> None:
    folder = tmp_path / "made"
    path = folder_model(folder) if kind == "safetensors" else gguf_model(folder / "made.gguf")
    content = report(path)
    (listed,) = told(kvasir("import", how, path, "--name", "me/it", "--json"))[-1:]
    assert (store.store_folder() / "me" / "it" / REPORT).read_bytes() == content
    assert listed["made_of"] == "original"
    assert (folder / REPORT).exists() == (how == "--copy")
    assert kvasir("rm", listed["path"]).exit_code == 0
    assert not (store.store_folder() / "me").exists()


def test_a_report_of_another_model_stays(tmp_path: Path) -> None:
    file = gguf_model(tmp_path / "here" / "tiny.gguf")
    report(gguf_model(tmp_path / "here" / "other.gguf"))
    assert kvasir("import", "--move", file, "--name", "me/it").exit_code == 0
    assert (tmp_path / "here" / REPORT).is_file()


def test_a_damaged_copy_is_not_to_be_fetched(tmp_path: Path) -> None:
    file = gguf_model(tmp_path / "tiny.gguf")
    kvasir("import", "--copy", file, "--name", "me/it")
    path = store.store_folder() / "me" / "it" / "tiny.gguf"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    said = refused(kvasir("verify", "tiny.gguf"))
    assert said.endswith(f"are missing or damaged. Delete it (kvasir models rm {path}), and make or import it again.")
    assert kvasir("rm", path).exit_code == 0
    assert kvasir("import", "--copy", file, "--name", "me/it").exit_code == 0


def test_an_unfinished_model_is_shown_and_deleted() -> None:
    work = UnfinishedWork.of("0123456789ab")
    work.begin(WorkNote("0123456789ab", "/models/big", "gptq", 3))
    work.hidden(0).write_bytes(bytes(1000))

    def left() -> list[dict]:
        return [each for each in told(kvasir("disk", "--json")) if each["type"] == "Leftover"]

    with work.alone():  # it is being made
        assert left() == []
        assert kvasir("disk", "--delete", work.folder).exit_code == 0
    (shown,) = left()
    assert (shown["name"], shown["path"]) == ("big as gptq", str(work.folder))
    assert shown["bytes"] > 1000
    assert kvasir("disk", "--delete", work.folder).exit_code == 0
    assert not work.folder.exists()
    assert left() == []
