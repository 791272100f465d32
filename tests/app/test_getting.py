"""What can be downloaded: whether it is here or on its way, which file to take, and how it is called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.gpu.words import Button
from app.models import words
from app.models.state import getting
from engine.protocol import Download, HubModel, HubVariant, StoredModel

AGAIN = Button("get", "Try again")


@pytest.mark.parametrize(
    ("variant", "name", "same"),
    [
        ("Q4_K_M", "model-Q4_K_M.gguf", True),
        ("Q4_K_M", "sub/Model-q4_k_m-00001-of-00002.gguf", True),
        ("Q4_0", "gemma-4-E2B_q4_0-it.gguf", True),
        ("Q4_K", "model-Q4_K_M.gguf", False),
        ("F16", "model-BF16.gguf", False),
        ("Q4_0", "q4_0/model-Q8_0.gguf", False),
        ("UD-Q4_K_XL", "C:\\models\\Qwen3.5-UD-Q4_K_XL.gguf", True),
        ("model-Q4_K.gguf", "/m/a/b/model-Q4_K.gguf", True),
        ("model-Q4_K.gguf", "/m/a/b/model-Q4_K_M.gguf", False),
        ("model-Q4_K.gguf", "/m/a/b/other-model-Q4_K.gguf", False),
        ("Q8_0/model-Q8_0.gguf", "/m/a/b/Q8_0/model-Q8_0-00001-of-00002.gguf", True),
        ("a/model.gguf", "/m/b/model.gguf", False),
        ("safetensors", "safetensors", True),
        ("safetensors", "model-Q8_0.gguf", False),
        ("Q8_0", "safetensors", False),
    ],
)
def test_a_variant_is_known_by_name_or_kind(variant: str, name: str, same: bool) -> None:
    assert getting.names(variant, name) == same


def stored(**changes: object) -> StoredModel:
    usual = {"name": "x", "path": "/m/x-Q8_0.gguf", "format": "gguf", "bytes": 1, "repository": "a/x"}
    return StoredModel(**{**usual, **changes})


@pytest.mark.parametrize(
    ("state", "title"),
    [("waiting", "Queued"), ("running", "Downloading…"), ("paused", "Paused")],
)
def test_a_button_says_where_it_is(state: str, title: str) -> None:
    coming = Download(id="1", repository="a/x", variant="x-Q8_0.gguf", state=state)
    at = getting.place("a/x", "Q8_0", [], [coming])
    assert at == (None, coming)
    button = getting.button(at, "", "Get")
    assert (button.key, button.title, bool(button.why_not)) == ("get", title, True)
    here = getting.place("a/x", "Q8_0", [stored()], [coming])
    assert getting.button(here, "", "Get") == Button("load", "Load")
    assert getting.button(here, "/m/x-Q8_0.gguf", "Get").why_not == getting.LOADED
    assert not getting.trouble(here, "No."), "it came some other way"
    nowhere = getting.place("a/x", "Q8_0", [stored(missing=True), stored(repository="a/y")], [])
    assert getting.button(nowhere, "", "Get") == Button("get", "Get")
    assert (getting.button(nowhere, "", "Get", "No."), getting.trouble(nowhere, "No.")) == (AGAIN, "No.")
    assert getting.trouble(at, None) == ""


def test_one_that_was_stopped_says_why_and_can_be_tried_again() -> None:
    stopped = Download(id="1", repository="a/x", variant="x-Q8_0.gguf", state="failed", sentence="The disk is full.")
    at = getting.place("a/x", "Q8_0", [], [stopped])
    assert (getting.button(at, "", "Get"), getting.trouble(at, None)) == (AGAIN, "The disk is full.")


def variants(*kinds: str) -> list[HubVariant]:
    return [
        HubVariant(name=f"x-{kind}.gguf", format="gguf", quantisation=kind, bytes=size)
        for size, kind in enumerate(kinds, 1)
    ]


def test_which_file_to_take() -> None:
    usual = variants("Q2_K", "Q4_0", "Q4_K_M", "Q8_0", "F16")
    assert getting.recommended(usual, 8 * 10**9) == ("x-Q4_K_M.gguf", getting.USUAL)
    assert getting.recommended(usual, 0) == ("x-Q4_K_M.gguf", getting.USUAL)
    assert getting.recommended(usual, 6 * 10**8) == ("x-Q8_0.gguf", getting.FINE)
    assert getting.recommended(variants("Q4_0", "Q8_0"), 0) == ("x-Q4_0.gguf", getting.USUAL)
    too_large = [f"x-{kind}.gguf" for kind in ("Q4_0", "Q4_K_M", "Q8_0", "F16")]
    assert getting.recommended(usual, 8 * 10**9, too_large) == ("x-Q2_K.gguf", getting.LARGEST)
    assert getting.recommended(usual, 8 * 10**9, [*too_large, "x-Q2_K.gguf"]) is None, "none of them runs"
    assert getting.recommended(variants("Q4_K_M"), 0) is None, "nothing is chosen from one"
    assert getting.recommended(variants("Q8_0", "F16"), 8 * 10**9) is None


@given(st.lists(st.sampled_from(["Q2_K", "Q3_K_M", "Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "F16"]), unique=True),
       st.integers(0, 10**11), st.data())  # fmt: skip
def test_what_is_recommended_is_there_and_fits(kinds: list[str], parameters: int, data) -> None:
    among = variants(*kinds)
    large = data.draw(st.sets(st.sampled_from([each.name for each in among]))) if among else set()
    found = getting.recommended(among, parameters, large)
    assert found is None or found[0] in {each.name for each in among} - large


@pytest.mark.parametrize(
    ("format", "quantisation", "said"),
    [
        ("gguf", "Q4_K_M", "GGUF Q4_K_M"),
        ("gguf", "", "GGUF"),
        ("safetensors", "gptq", "GPTQ"),
        ("safetensors", "awq", "AWQ"),
        ("safetensors", "compressed-tensors", "compressed-tensors"),
        ("safetensors", "bfloat16", "bfloat16 safetensors"),
        ("safetensors", "", "safetensors"),
    ],
)
def test_a_packing_has_the_name_that_people_look_for(format, quantisation: str, said: str) -> None:
    assert words.packing(format, quantisation) == said
    shown = words.variant(HubVariant(name="x.gguf", format=format, quantisation=quantisation, bytes=1))
    assert shown == (said if format == "safetensors" else quantisation or "x.gguf")


def test_what_a_row_and_the_menu_say_of_a_model() -> None:
    sees = stored(format="safetensors", quantisation="awq", sees=True, bytes=3 * 10**9, about="Sees shapes.")
    assert words.in_menu(sees) == "3.0 GB · AWQ · sees pictures"
    assert words.stored(sees) == "Sees shapes · 3.0 GB · AWQ · sees pictures · a/x"
    found = HubModel(repository="a/x", formats=["safetensors", "gguf"], quantisation="gptq")
    assert words.found(found) == "GPTQ, GGUF"
