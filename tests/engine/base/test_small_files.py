"""Every small file that the program reads, damaged in every way: it costs itself, and nothing else."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import keyring
import msgspec
import pytest
from keyring.backends import fail

from app import version
from app.lab.runs import LabRuns
from app.settings.store import SettingsStore
from engine.base import folders
from engine.decoding.telemetry import runs
from engine.doors.cli.errors import CommandFailed
from engine.doors.cli.installation.running import window_address
from engine.doors.cli.measure import _show_again
from engine.library import curated, downloads, keys, local, others, paths, roots, store
from engine.loading import activations
from engine.loading.advice.draft_offers import Vocabularies
from engine.protocol.library import HubFile, HubVariant
from engine.services.experiments.kept import kept
from engine.services.packs import marker, start
from engine.services.packs import store as packs
from engine.services.packs.lists import PackFailed, available
from engine.services.quantise import plan
from engine.text.template import ChatTemplate
from engine.text.token_files import MAP, TokenFiles

HEX = "ab" * 32
DIGEST = f"sha256:{HEX}"
LAYER = {"mediaType": "application/vnd.ollama.image.model", "digest": DIGEST}
OTHERS = [("sound.gguf", "Ollama")]


def damage(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def pipe(file: Path) -> None:
    os.mkfifo(file)


def listening(file: Path) -> None:
    here = Path.cwd()
    os.chdir(file.parent)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(file.name)
    finally:
        os.chdir(here)


def sparse(file: Path) -> None:
    with file.open("wb") as out:
        out.truncate(100 << 20)


DAMAGE: dict[str, bytes | Callable[[Path], object]] = {
    "empty": b"",
    "cut": b'{"repository": "me/m", "var',
    "no UTF-8": b"\xff",
    "no UTF-8 in a text": b'{"repository": "me/m\xff", "a": "\xff", "folder": "\xff"}',
    "UTF-16": '{"repository": "me/m"}'.encode("utf-16"),
    "lists in lists": b"[" * 100_000,
    "objects in objects": b'{"a":' * 100_000,
    "nested where nothing is expected": b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "null": b"null",
    "a list": b"[1, 2]",
    "a text": b'"text"',
    "a number": b"3",
    "a long number": b"1" * 100_000,
    "infinite": b'{"a": 1e999, "kvasir": 1e999, "folder": NaN, "vocab_size": 1e999}',
    "half a character": b'{"a": "\\ud800", "folder": "\\ud800", "repository": "\\ud800"}',
    "NUL": b'{"a": "\\u0000", "folder": "\\u0000", "store": "\\u0000", "roots": ["\\u0000"], "data_folder": "\\u0000"}',
    "long": json.dumps({"store": "x" * 9000, "roots": ["y" * 9000], "folder": "z" * 9000, "a": "b" * 9000}).encode(),
    "zeros": b"\0" * 1000,
    "a pipe": pipe,
    "a socket": listening,
    "a folder": Path.mkdir,
    "endless": lambda file: file.symlink_to("/dev/zero"),
    "leads nowhere": lambda file: file.symlink_to(file.with_name("nothing")),
    "leads to itself": lambda file: file.symlink_to(file),
    "large": sparse,
}


class Small(NamedTuple):
    """A file, what reads it, and what that finds where it is damaged. What is in ``refused`` it may raise."""

    file: Path
    read: Callable[[], object]
    finds: tuple[object, ...]
    refused: tuple[type[Exception], ...] = ()


def small_files(home: Path) -> dict[str, Small]:
    data, config = home / "kvasir" / "data", home / "kvasir" / "config"
    models, ollama = data / "models", home / "home" / ".ollama" / "models"
    system = folders.SYSTEM.user_config_path.parent
    variant = HubVariant(name="m.gguf", format="gguf", quantisation="", bytes=4, files=[HubFile("m.gguf", 4)])
    for name in ("sound", "m"):
        folder = models / "me" / name
        folder.mkdir(parents=True)
        (folder / "m.gguf").write_bytes(b"GGUF")
        store.write_receipt(folder, store.Receipt(f"me/{name}", {"m.gguf": variant}, {"m.gguf": "1"}))
        job = downloads.Job(name, f"me/{name}", "1", "https://hub.example", variant, 0.0)
        (models / ".downloads" / name).mkdir(parents=True)
        (models / ".downloads" / name / "job.json").write_bytes(msgspec.json.encode(job))
        (data / "making" / name).mkdir(parents=True)
        (data / "making" / name / "plan.json").write_bytes(msgspec.json.encode(plan.WorkNote(name, "m", "gptq", 1)))
        manifest = ollama / "manifests" / "registry.ollama.ai" / "library" / name
        manifest.mkdir(parents=True)
        (manifest / "latest").write_text(json.dumps({"layers": [LAYER] if name == "sound" else []}))
    (ollama / "blobs").mkdir()
    (ollama / "blobs" / f"sha256-{HEX}").write_bytes(b"GGUF")
    (data / "gpu" / ("0" * 16)).mkdir(parents=True)
    (home / "lists").mkdir()
    stranger = home / "stranger"
    stranger.mkdir()
    (stranger / "model.safetensors").write_bytes(b"")

    def theirs() -> list[tuple[str, str]]:
        return [(each.name, each.origin) for each in others.models_of_others()]

    def listed() -> int:
        return len(local.stored_models(paths.known_models(), paths.bundled_folder()))

    def changed() -> object:
        roots.change(lambda now: now)
        return roots.read(), json.loads(roots.file().read_bytes())

    default, beside = roots.ModelRoots(), [("sound:latest", "Ollama")]
    whole = listed()
    return {
        "receipt": Small(
            models / "me" / "m" / "kvasir.json",
            lambda: [(path.parent.name, bool(store.unreadable())) for _, path in store.models()],
            ([("sound", True)], [("sound", False)]),
        ),
        "receipt, changed": Small(
            models / "me" / "m" / "kvasir.json", lambda: store.receipt_of(models / "me" / "m" / "m.gguf"), (None,)
        ),
        "models.json": Small(config / "models.json", roots.read, (default,)),
        "models.json, changed": Small(config / "models.json", changed, ((default, {}),)),
        "report": Small(stranger / local.REPORT, lambda: local.report_of(stranger), (None,)),
        "config.json": Small(
            stranger / "config.json",
            lambda: (roots.models_below(stranger), local._packing(stranger).get("embedding_bytes", 0)),
            (([], 0),),
        ),
        "index": Small(stranger / "model.safetensors.index.json", lambda: roots.whole_models(stranger), ([],)),
        "job": Small(
            models / ".downloads" / "m" / "job.json", lambda: [each.id for each in downloads.queue()], (["sound"],)
        ),
        "tokens": Small(keys.token_file(), lambda: keys.read("https://hub.example"), ("",)),
        "runs": Small(runs.file(), runs.read, ([],)),
        "result": Small(paths.lab_folder() / "kv_cache.json", kept, ([],)),
        "recommended": Small(home / "listed.json", lambda: curated.models(home / "listed.json"), ([],)),
        "vocabularies": Small(
            folders.cache_place() / "vocabularies" / "hashes.json", lambda: len(Vocabularies()._known), (0, 1, 4, 5)
        ),
        "plan": Small(
            data / "making" / "m" / "plan.json", lambda: [each.id for each in plan.unfinished()], (["sound"],)
        ),
        "seconds": Small(
            data / "making" / "m" / "seconds",
            lambda: plan.UnfinishedWork.of("m").took(2.0),
            (2.0, 5.0, float("inf")),
            (OSError,),
        ),
        "pack in use": Small(
            data / "gpu" / "active.json", lambda: start.chosen(data / "gpu"), (None,), (start.NotUsed,)
        ),
        "pack": Small(
            data / "gpu" / ("0" * 16) / "pack.json",
            lambda: (packs.read_receipt(data / "gpu" / ("0" * 16)), start._pack_of(data / "gpu", {"folder": "0" * 16})),
            (),
            (start.NotUsed,),
        ),
        "pack is starting": Small(data / "gpu" / "starting", lambda: marker.deaths(data / "gpu"), (0, 1, 3)),
        "list of a pack": Small(home / "lists" / "cuda13.txt", lambda: len(available()), (0, 1), (PackFailed,)),
        "figures": Small(home / "figures.json", lambda: _show_again(home / "figures.json"), (), (CommandFailed,)),
        "activations": Small(activations.file(), activations._read, ({},)),
        "window's address": Small(data / "window.address", window_address, (None,)),
        "index of the Lab": Small(home / "index.kept", lambda: LabRuns(None, kept=home / "index.kept").index, (None,)),
        "settings": Small(
            config / "settings.json", lambda: SettingsStore(config / "settings.json").settings.theme, ("system",)
        ),
        "tokens of a model": Small(stranger / MAP, lambda: TokenFiles.open(stranger).ends, ((),)),
        "template of a model": Small(
            stranger / "chat_template.json", lambda: ChatTemplate.open(stranger).own, (False,)
        ),
        "version": Small(data / version.FILE, lambda: version.last_used(data), ("",)),
        "manifest": Small(ollama / "manifests" / "registry.ollama.ai" / "library" / "m" / "latest", theirs, (beside,)),
        "pointer": Small(home / "home" / ".lmstudio-home-pointer", theirs, (beside,)),
        "Jan's settings": Small(system / "Jan" / "settings.json", theirs, (beside,)),
        "Jan's model": Small(
            folders.SYSTEM.user_data_path.parent / "Jan" / "data" / "llamacpp" / "models" / "m" / "model.yml",
            theirs,
            (beside,),
        ),
        "all": Small(models / "me" / "m" / "kvasir.json", lambda: listed() == whole - 1, (True,)),
    }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "kvasir"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KVASIR_GPU_LISTS", str(tmp_path / "lists"))
    for name in ("HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "KVASIR_MODELS", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    keyring.set_keyring(fail.Keyring())
    return tmp_path


@pytest.mark.skipif(os.name == "nt", reason="pipes and links lie elsewhere there")
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_costs_itself(home: Path, how: str) -> None:
    for name, small in small_files(home).items():
        small.file.parent.mkdir(parents=True, exist_ok=True)
        before = small.file.read_bytes() if small.file.is_file() else None
        small.file.unlink(missing_ok=True)
        what = DAMAGE[how]
        damage(small.file, what) if isinstance(what, bytes) else what(small.file)
        try:
            found = small.read()
        except small.refused:
            pass
        else:
            assert found in small.finds, f"{name}: {found}"
        finally:
            if small.file.is_dir() and not small.file.is_symlink():
                small.file.rmdir()
            else:
                small.file.unlink(missing_ok=True)
            if before is not None:
                small.file.write_bytes(before)
