"""`kvasir models …` as it is typed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from engine.doors.cli.main import app
from engine.library import downloads, paths, store
from tests.hub_server import Hub


def kvasir(*words: str, **rest: str) -> Result:
    return CliRunner().invoke(app, ["models", *words], env={"COLUMNS": "300"}, **rest)


def told(result: Result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_from_a_search_to_a_model_and_back(hub: Hub) -> None:
    found = kvasir("search", "model", "--format", "gguf")
    assert "some/model-GGUF" in found.stdout
    assert "8B" in found.stdout
    assert "closed/model" not in found.stdout
    shown = kvasir("show", "some/model-GGUF")
    assert "apache-2.0" in shown.stdout
    assert "Q4_K_M" in shown.stdout
    which = kvasir("get", "some/model-GGUF")
    assert which.exit_code == 1
    assert "holds several models; say which: Q4_K_M (350 kB), Q8_0 (500 kB)." in which.stderr
    got = kvasir("get", "some/model-GGUF", "q4_k_m")
    assert got.exit_code == 0, got.stderr
    assert "model-Q4_K_M.gguf" in got.stdout
    listed = kvasir("list")
    assert "model-Q4_K_M.gguf" in listed.stdout
    gone = kvasir("rm", "model-Q4_K_M.gguf")
    assert gone.stdout == "350 kB free again.\n"
    assert "model-Q4_K_M.gguf" not in kvasir("list").stdout


def test_lines_for_the_window(hub: Hub) -> None:
    assert next(iter(told(kvasir("search", "--json"))))["repository"] == "some/model"
    (shown,) = told(kvasir("show", "some/model", "--json"))
    assert shown["variants"][0]["quantisation"] == "gptq"
    *_, last = told(kvasir("get", "some/model", "--json"))
    assert last["type"] == "Download"
    assert last["state"] == "done"
    models = {each["name"]: each for each in told(kvasir("list", "--json"))}
    assert models["some/model"]["repository"] == "some/model"
    assert models["kvasir-guide"]["bundled"]


def test_what_goes_wrong_is_one_sentence(hub: Hub) -> None:
    for words, sentence in (
        (("show", "some/other"), "has no model some/other"),
        (("get", "some/model-GGUF", "Q2_K"), "'Q2_K' is not one of them"),
        (("get", "closed/model"), "Agree on"),
        (("search", "--size", "big"), "is not a range of sizes"),
        (("rm", "kvasir-guide"), "was not downloaded by Kvasir"),
        (("downloads", "--cancel", "nothing"), "There is no download nothing"),
    ):
        failed = kvasir(*words)
        assert failed.exit_code == 1, words
        assert sentence in failed.stderr
        assert "Traceback" not in failed.stderr
    (job,) = downloads.queue()
    listed = kvasir("downloads")
    assert job.id in listed.stdout
    assert "failed" in listed.stdout
    assert job.id not in kvasir("downloads", "--cancel", job.id).stdout


def test_a_token_is_tried_before_it_is_kept(hub: Hub) -> None:
    hub.tokens = {"hf_good"}
    refused = kvasir("token", input="hf_bad\n")
    assert "does not know your token" in refused.stderr
    assert "somebody" in kvasir("token", input="hf_good\n").stdout
    assert kvasir("get", "closed/model").exit_code == 0
    assert "Every file is as it was downloaded" in kvasir("verify", "closed/model").stdout
    weights = store.store_folder() / "closed" / "model" / "model.safetensors"
    weights.write_bytes(bytes(len(weights.read_bytes())))
    assert "model.safetensors of closed/model are missing or damaged" in kvasir("verify", "closed/model").stderr
    assert kvasir("token", "--forget").stdout == "The token is deleted.\n"


@pytest.mark.parametrize(("size", "wanted"), [("3B-9B", "min:3B,max:9B"), ("-8b", "max:8B"), ("20B-", "min:20B")])
def test_sizes(hub: Hub, size: str, wanted: str) -> None:
    assert kvasir("search", "--size", size).exit_code == 0
    assert hub.asked[-1][1]["num_parameters"] == [wanted]


def test_a_fetched_model_is_loaded_by_its_name(hub: Hub) -> None:
    kvasir("get", "some/model")
    assert paths.find_model("some/model").path == str(store.store_folder() / "some" / "model")
