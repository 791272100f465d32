"""Hubs that lie, repositories and files with names that steer a terminal: what is said of them is a plain sentence."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from typer.testing import Result

from engine.base.fetching import room
from engine.base.fetching.errors import FetchFailed
from engine.library import downloads, keys, paths, roots, store
from engine.library import hub as library
from engine.library.hub import HubFailed, Search
from tests.engine.library.library_support import kvasir, told
from tests.hub_server import Hub, Repository

EVIL = "[/]\x1b]0;evil\x07\x1b[31m\x9bNO\u202e"
CLI = Path(paths.__file__).parents[1] / "doors" / "cli"


def plainly(result: Result) -> str:
    """What a command says, as text that neither steers the terminal nor is Python's."""
    said = result.stdout + result.stderr
    assert result.exit_code in (0, 1), said
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]", said), said
    assert "should not" not in said
    assert not re.search(r"Traceback|\w(Error|Exception)\b|\[Errno", said), said
    return said


def test_words_of_strangers_are_plain_text(hub: Hub) -> None:
    hub.repositories = {
        "some/odd": Repository(
            {"m[old]-Q4_0.gguf": b"GGUF" * 500, f"{EVIL}.gguf": b"GGUF"},
            tags=["gguf", f"license:{EVIL}"],
            gguf={"total": 10, "architecture": EVIL},
        )
    }
    assert "[/]" in plainly(kvasir("search"))
    assert "m[old]-Q4_0.gguf" in plainly(kvasir("show", "some/odd"))
    plainly(kvasir("get", "some/odd"))
    listed = plainly(kvasir("list"))
    assert listed.count("m[old]-Q4_0.gguf") == 2  # its name and its path
    for words in (("disk",), ("downloads",), ("verify", "m[old]-Q4_0.gguf"), ("rm", EVIL)):
        plainly(kvasir(*words))


HASH = "a" * 40
LIES: dict[str, list[dict[str, object]]] = {
    "sizes": [
        {"siblings": [{"rfilename": "m-Q4_0.gguf", "size": size, "blobId": HASH}]}
        for size in ("9", [1], float("nan"), -1, 1 << 80, True)
    ],
    "names": [
        {"siblings": [{"rfilename": name, "size": 9, "blobId": HASH}]}
        for name in (3, None, "\ud800.gguf", "x" * 300 + ".gguf", "a/" * 2000 + "m.gguf", EVIL + ".gguf", "", "/")
    ],
    "hashes": [
        {"siblings": [{"rfilename": "m-Q4_0.gguf", "size": 9, **hash}]}
        for hash in ({}, {"lfs": {"sha256": None}}, {"blobId": "x"})
    ],
    "files": [{"siblings": value} for value in (5, "x", {}, [3], None)],
    "ids": [{"id": value} for value in ("x", "a/b/c", "../x/y", "..", "other/model", 5, None, "a/" + "b" * 500)],
    "facts": [{name: value} for name in ("sha", "likes", "lastModified") for value in (EVIL, [], -1, 1 << 90)],
}


@pytest.mark.parametrize("lies", LIES)
def test_a_hub_that_lies_is_a_sentence(hub: Hub, lies: str) -> None:
    for said in LIES[lies]:
        hub.repositories = {"some/model": Repository({"m-Q4_0.gguf": b"GGUF" * 500}, **{"tags": ["gguf"], **said})}
        with contextlib.suppress(HubFailed):
            library.search(Search())
        with contextlib.suppress(HubFailed):
            found = library.repository("some/model")
            assert found.variants == [] or lies == "facts", said
    plainly(kvasir("get", "some/model"))  # the last of them
    assert not [path for path in roots.store_folder().glob("*/*") if path.parent.name != ".downloads"]


@pytest.mark.parametrize("name", ["tags", "gguf", "safetensors", "config"])
def test_what_an_owner_says_may_be_anything(hub: Hub, name: str) -> None:
    for value in (5, "x", [3], {"a": [[]]}, {"total": -1, "architecture": 3, "architectures": [None], "parameters": 9}):
        hub.repositories = {"some/model": Repository({"m-Q4_0.gguf": b"GGUF" * 500}, **{"tags": ["gguf"], name: value})}
        if name != "tags":  # which the hub of the tests itself reads
            assert [found.repository for found in library.search(Search())] == ["some/model"]
        (variant,) = library.repository("some/model").variants
        assert variant.name == "m-Q4_0.gguf"


@pytest.mark.parametrize("link", ["http://[::1", "http://127.0.0.1:x/", "ftp://evil", "//elsewhere/api", "\ud800", ""])
def test_a_further_page_that_is_no_address(hub: Hub, monkeypatch: pytest.MonkeyPatch, link: str) -> None:
    monkeypatch.setattr(library, "_asked", lambda url: ([{"id": "some/model"}], {"next": {"url": link}}))
    with contextlib.suppress(HubFailed):
        assert {each.repository for each in library.search(Search())} == {"some/model"}


def test_one_repository_that_makes_no_sense_leaves_the_others(hub: Hub) -> None:
    hub.repositories["some/odd"] = Repository({}, likes="many")
    assert "some/odd" not in (said := plainly(kvasir("search", "some")))
    assert "some/model-GGUF" in said


def test_a_repository_that_is_called_otherwise_is_named(hub: Hub) -> None:
    hub.repositories["some/old"] = Repository({"m-Q4_0.gguf": b"GGUF"}, id="new/name")
    with pytest.raises(HubFailed, match="calls some/old new/name now"):
        library.repository("some/old")
    hub.repositories["Some/Model"] = hub.repositories["some/model"]
    hub.repositories["Some/Model"].info["id"] = "some/model"
    assert library.repository("Some/Model").model.repository == "some/model"


def test_an_answer_has_an_end(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.page = b" " * (library.MOST_BYTES + 1)
    with pytest.raises(HubFailed, match="answers with more than 16 MB"):
        library.repository("some/model")
    hub.page = b"[" * 100_000
    with pytest.raises(HubFailed, match="is not the hub"):
        library.repository("some/model")

    def drip(to: BaseHTTPRequestHandler) -> None:
        to.send_response(200)
        for number in range(100):
            time.sleep(0.05)
            to.send_header(f"X-{number}", "x")
            to.flush_headers()

    monkeypatch.setattr(library, "PATIENCE", 0.3)
    hub.answer = drip  # type: ignore[method-assign]
    with pytest.raises(HubFailed, match="does not answer in time"):
        library.repository("some/model")


def test_a_next_page_that_is_no_address_is_a_sentence(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    links = {"next": {"url": "http://[::"}}
    monkeypatch.setattr(library, "_asked", lambda page: ([{"id": "some/model"}], links))
    with pytest.raises(HubFailed, match="is not the hub"):
        library.search(Search("model"))


def test_nothing_is_asked_that_the_user_did_not_ask_for(hub: Hub) -> None:
    agents, answer = set(), hub.answer

    def listen(to: BaseHTTPRequestHandler) -> None:
        agents.add(to.headers["User-Agent"])
        answer(to)

    hub.answer = listen  # type: ignore[method-assign]
    kvasir("search", "model")
    kvasir("get", "some/model-GGUF", "Q4_K_M")
    assert agents == {f"kvasir/{paths.version()}"}
    assert {path.partition("/some/")[0] for path, _ in hub.asked} == {"/api/models", "", "/elsewhere"}
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"


def test_a_token_belongs_to_scheme_host_and_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def told_at(address: str) -> str:
        monkeypatch.setenv("HF_ENDPOINT", address)
        return library.token_of_user()

    keys.write("https://hub.example", "hf_one")
    keys._write_file({**keys._read_file(), "old.example": "hf_old"})  # as an earlier version wrote it
    assert told_at("https://hub.example/") == told_at("https://hub.example:443") == "hf_one"
    assert (
        told_at("http://hub.example") == told_at("https://hub.example:8443") == told_at("https://hub.example.org") == ""
    )
    assert (told_at("https://old.example"), told_at("http://old.example"), told_at("https://old.example:1")) == (
        "hf_old", "", "",
    )  # fmt: skip
    for address in ("hub.example", "ftp://hub.example", "https://", "https://hub.example:x", "https://h\n"):
        with pytest.raises(HubFailed, match="HF_ENDPOINT is"):
            told_at(address + "x" * address.endswith("\n"))


def test_names_that_are_no_utf8_cost_their_model(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "-draft").mkdir(parents=True)
    (root / "-draft" / "config.json").write_text("{}")
    for name in (b"\xff.gguf", b"sound.gguf", b"a[b] \x1b[31m.gguf", b"x" * 250 + b".gguf"):
        Path(os.fsdecode(bytes(root) + b"/" + name)).write_bytes(b"GGUF")
    folder = root / "me" / "m"
    folder.mkdir(parents=True)
    (folder / "kvasir.json").write_bytes(b'{"repository": "me/m\xff"}')
    for words in (("folders", "--add", str(root)), ("folders", "--downloads", str(root)), ("list",)):
        said = plainly(kvasir(*words))
    assert "a[b] \ufffd[31m.gguf" in said
    assert f"{folder / 'kvasir.json'} is not text in UTF-8" in said
    found = kvasir("list", "--json")
    assert {"sound.gguf", "a[b] \x1b[31m.gguf"} <= {each.get("name") for each in told(found)}
    assert "\ufffd.gguf is left out, because its name is not UTF-8" in found.stderr


def test_a_full_disk_is_the_same_sentence_each_time(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(job: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(downloads, "_write", full)
    assert f"The disk of {store.store_folder()} is full." in plainly(kvasir("get", "some/model-GGUF", "Q4_K_M"))
    for number in (5, 13, 30, 36):
        with pytest.raises(FetchFailed, match=r"\. (Check|Choose) "), room.disk_errors(Path("disk")):
            raise OSError(number, os.strerror(number), "name")


def test_what_commands_print_passes_one_place() -> None:
    """`print` is left for the answers of a model alone, and rich's console for nobody."""
    allowed = {"chat.py": 3, "main.py": 1, "uninstall.py": 2}
    for file in CLI.rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        names = [call.id for call in calls if isinstance(call, ast.Name)]
        assert names.count("print") == allowed.get(file.name, 0), file
        assert not {"Console", "TextColumn"} & {*names}, file
