"""What a repository holds, through ``huggingface_hub`` itself, and what is said where the hub does not answer."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import urllib.error

import pytest

from engine.base.fetching.errors import unreachable
from engine.library import hub as library
from engine.library import keys
from engine.library.hub import HubFailed, Search
from engine.library.variants import is_safe
from tests.hub_server import Hub, Repository


def test_a_search_tells_what_is_known_of_each(hub: Hub) -> None:
    found = library.search(Search("model"))
    assert [model.repository for model in found] == ["some/model", "some/model-GGUF", "closed/model"]
    first, second, third = found
    assert (first.licence, first.formats, first.parameters) == ("mit", ["safetensors"], 30)
    assert first.architecture == "Qwen3ForCausalLM"
    assert (second.parameters, second.architecture, second.modified) == (8_000_000_000, "qwen3", "2026-11-24")
    assert third.gated
    assert [model.repository for model in library.search(Search("model", format="gguf"))] == ["some/model-GGUF"]
    assert [model.repository for model in library.search(Search(licence="mit"))] == ["some/model"]
    library.search(Search("x", parameters="min:3B,max:9B", author="some"))
    assert hub.asked[-1][1]["num_parameters"] == ["min:3B,max:9B"]
    assert hub.asked[-1][1]["author"] == ["some"]


def test_a_repository_of_gguf_is_a_model_for_each_kind(hub: Hub) -> None:
    found = library.repository("some/model-GGUF")
    told = [(variant.name, variant.quantisation, variant.bytes) for variant in found.variants]
    assert told == [("model-Q4_K_M.gguf", "Q4_K_M", 350_000), ("Q8_0/model-Q8_0.gguf", "Q8_0", 500_000)]
    parts = [file.name for file in found.variants[1].files]
    assert parts == [*(f"Q8_0/model-Q8_0-0000{part}-of-00002.gguf" for part in (1, 2)), "mmproj-model-F16.gguf"]
    assert found.revision == hub.repositories["some/model-GGUF"].revision


def test_parts_that_are_missing_are_no_model(hub: Hub) -> None:
    del hub.repositories["some/model-GGUF"].files["Q8_0/model-Q8_0-00002-of-00002.gguf"]
    assert [variant.name for variant in library.repository("some/model-GGUF").variants] == ["model-Q4_K_M.gguf"]


def test_safetensors_come_with_what_they_need_and_no_more(hub: Hub) -> None:
    found = library.repository("some/model")
    (variant,) = found.variants
    assert (variant.quantisation, found.model.quantisation) == ("gptq", "gptq")
    wanted = {"config.json", "tokenizer.json", "model.safetensors.index.json"}
    wanted |= {f"model-0000{part}-of-00002.safetensors" for part in (1, 2)}
    assert {file.name for file in variant.files} == wanted


def test_an_embedding_model_comes_with_how_it_is_pooled(hub: Hub) -> None:
    wanted = {"config.json", "model.safetensors", "1_Pooling/config.json", "2_Dense/config.json",
              "2_Dense/model.safetensors"}  # fmt: skip
    others = {"2_Dense/pytorch_model.bin", "onnx/model.onnx", "original/model.safetensors", "1_Pooling/other.json"}
    hub.repositories["some/embeddings"] = Repository(dict.fromkeys(wanted | others, b"{}"))
    (variant,) = library.repository("some/embeddings").variants
    assert {file.name for file in variant.files} == wanted


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"pytorch_model.bin": b"x", "config.json": b"{}"}, "Its weights are pickled"),
        ({"README.md": b"x"}, "neither safetensors next to a config.json, nor GGUF"),
        ({"model.safetensors": b"x"}, "neither safetensors next to a config.json, nor GGUF"),
        ({"../model.gguf": b"x"}, "names that not every disk takes"),
    ],
)
def test_a_repository_without_a_model_says_why(hub: Hub, files: dict[str, bytes], why: str) -> None:
    hub.repositories["no/model"] = Repository(files)
    found = library.repository("no/model")
    assert found.variants == []
    assert why in found.refused


@pytest.mark.parametrize("token", ["", "  ", "hf_gööd", "hf_good\n"])
def test_what_is_no_token_is_not_sent(hub: Hub, token: str) -> None:
    with pytest.raises(HubFailed, match="That is not a valid token"):
        library.check_token(token)
    assert hub.asked == []


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("model.gguf", True),
        ("Q4/model.gguf", True),
        ("../model.gguf", False),
        ("/etc/model.gguf", False),
        ("a/../../model.gguf", False),
        ("C:model.gguf", False),
        ("a\\..\\model.gguf", False),
        (".hidden/model.gguf", False),
        ("a//model.gguf", False),
        ("nul.gguf", False),
        ("what?.gguf", False),
        ("model.gguf ", False),
        ("mod\nel.gguf", False),
    ],
)
def test_names_that_lead_elsewhere(name: str, safe: bool) -> None:
    assert is_safe(name) is safe


@pytest.mark.parametrize(
    ("status", "why"),
    [(401, "does not know your token"), (429, "wants fewer questions"), (500, "answers with an error (HTTP 500)")],
)
def test_errors_of_the_hub(hub: Hub, status: int, why: str) -> None:
    hub.statuses = [status] * 9
    with pytest.raises(HubFailed) as failed:
        library.repository("some/model")
    assert why in str(failed.value)


def test_what_is_not_there(hub: Hub) -> None:
    with pytest.raises(HubFailed, match="has no model some/other"):
        library.repository("some/other")
    with pytest.raises(HubFailed, match="has no such revision"):
        library.repository("some/model", "0" * 40)
    for name in ("model", "a/b/c", "../etc", "some/mo del"):
        with pytest.raises(HubFailed, match="names no repository"):
            library.repository(name)


def test_a_page_in_between(hub: Hub) -> None:
    hub.page = b"<html>Please log in to this network.</html>"
    for ask in (lambda: library.repository("some/model"), lambda: library.search(Search("model"))):
        with pytest.raises(HubFailed, match="is not the hub"):
            ask()


def test_nobody_answers(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubFailed, match=r"^127\.0\.0\.1 cannot be reached \(Connection refused\)\. Check"):
        library.repository("some/model")


def test_without_a_network_it_says_so_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    offline = "You are offline: hub.invalid cannot be reached."
    for ask in (lambda: library.repository("some/model"), lambda: library.search(Search("model"))):
        with pytest.raises(HubFailed, match=f"^{offline} Check the network and try again"):
            ask()


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "You are offline: h cannot be reached. Wait."),
        (urllib.error.URLError(socket.gaierror(-3, "Try again")), "You are offline: h cannot be reached. Wait."),
        (
            ConnectionResetError(104, "Connection reset by peer"),
            "h cannot be reached (Connection reset by peer). Wait.",
        ),
        (ValueError("[Errno 5] odd"), "h cannot be reached (odd). Wait."),
        (TimeoutError(), "h cannot be reached (TimeoutError). Wait."),
    ],
)
def test_what_broke_a_connection(error: Exception, sentence: str) -> None:
    assert unreachable("h", error, "Wait.") == sentence


def test_the_token_is_told_and_kept_where_only_the_user_reads_it(hub: Hub) -> None:
    hub.tokens = {"hf_good"}
    with pytest.raises(HubFailed, match="does not know your token"):
        library.check_token("hf_bad")
    assert library.check_token("hf_good") == "somebody"
    where = keys.write(library.server(), "hf_good")
    file = keys.token_file()
    assert str(file) in where
    if os.name == "posix":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    library.repository("some/model")
    assert hub.authorised[-1] == ("/api/models/some/model", "hf_good")
    assert keys.read("another.example") == ""
    assert keys.forget(library.server())
    assert keys.read(library.server()) == ""
    assert not file.exists()
    library.repository("some/model")
    assert hub.authorised[-1] == ("/api/models/some/model", "")


def test_variables_that_are_wrong_end_nothing_but_what_needs_them() -> None:
    """huggingface_hub reads them when it is imported, by whatever part of the program."""
    wrong = {"HF_ENDPOINT": "http://hub:x", "HF_HUB_DOWNLOAD_TIMEOUT": "soon", "HF_HUB_ETAG_TIMEOUT": ""}
    code = (
        "import os\nfrom engine.library import hub\nassert os.environ['HF_ENDPOINT'] == 'http://hub:x'\nhub.endpoint()"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | wrong, capture_output=True, text=True)
    assert "HubFailed: HF_ENDPOINT is 'http://hub:x', which is not the address of a hub" in done.stderr
