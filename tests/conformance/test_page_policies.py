"""Page policies in models of other families: native windows stay, learned sinks stay, refusals say why."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.cache.policies import WindowWithSinks
from engine.compute.batch import SequenceRows
from tests.conformance.engine_support import Ours, relative
from tests.conformance.families import GPT_OSS, MLA, TOLERANCE, VOCABULARY, Case, longrope, make, theirs

POLICY = WindowWithSinks(64, 4)
PROMPT = torch.randint(3, VOCABULARY, (170,), generator=torch.Generator().manual_seed(7)).tolist()


pytestmark = pytest.mark.usefixtures("one_thread")


def windowed(ours: Ours, chunk: int) -> torch.Tensor:
    parts = []
    for start in range(0, len(PROMPT), chunk):
        ids = PROMPT[start : start + chunk]
        rows = SequenceRows(ids, start, ours.pages(0), len(ids), policy=POLICY)
        parts.append(ours.runner.forward([rows]).logits)
    return torch.cat(parts)


@pytest.mark.parametrize("window", [8, 40, 64])
def test_a_native_window_hides_all_that_the_policy_would(window: int, tmp_path: Path) -> None:
    """Positions stay those of the text, and no sink is seen from beyond the window: the model as it was trained."""
    model = make(Case("mistral", "Mistral", {"sliding_window": window}), tmp_path)
    for chunk in (170, 13):
        assert relative(windowed(Ours(tmp_path), chunk), theirs(model, PROMPT)) < TOLERANCE


@pytest.mark.parametrize(
    "case",
    [
        Case("gpt-oss", "GptOss", GPT_OSS | {"num_hidden_layers": 1, "layer_types": ["full_attention"]}),
        Case("gemma2", "Gemma2", {"num_hidden_layers": 1, "head_dim": 16, "layer_types": ["full_attention"]}),
        Case("phi3 partial", "Phi3", {"num_hidden_layers": 1, "rope_parameters": {"rope_type": "default",
             "rope_theta": 500.0, "partial_rotary_factor": 0.5}}),
        Case("olmo2", "Olmo2", {"num_hidden_layers": 1}),
    ],
    ids=lambda case: case.name,
)  # fmt: skip
def test_one_layer_is_theirs_over_what_is_kept(case: Case, tmp_path: Path) -> None:
    """With learned sinks, softcapped scores, partial rotation and norms of queries, in transformers' arithmetic."""
    model, logits = make(case, tmp_path), windowed(Ours(tmp_path), 13)
    for t in (70, 100, 169):
        first = max(0, t + 1 - 64) // 16 * 16
        kept = [*PROMPT[:4], *PROMPT[first : t + 1]] if first else PROMPT[: t + 1]
        assert relative(logits[t], theirs(model, kept)[-1]) < TOLERANCE


def test_longrope_rotates_sinks_with_the_factors_of_their_sequence(tmp_path: Path) -> None:
    """A prompt beyond the original context, in one step: its keys have the long factors, and so have sinks' queries.

    What is kept is short, so the same weights are asked with the long factors in place of the short ones.
    """
    options = longrope(6) | {"original_max_position_embeddings": 128, "num_hidden_layers": 1}
    rope = options["rope_parameters"]
    always_long = options | {"rope_parameters": rope | {"short_factor": rope["long_factor"]}}
    make(Case("phi3 longrope", "Phi3", options), tmp_path / "two")
    make(Case("phi3 longrope", "Phi3", always_long), tmp_path / "one")
    logits = windowed(Ours(tmp_path / "two"), len(PROMPT))
    wanted = Ours(tmp_path / "one").logits([[*PROMPT[:4], *PROMPT[96:]]])[0]
    assert relative(logits[-1], wanted[-1]) < TOLERANCE


def test_refusals(tmp_path: Path) -> None:
    make(Case("opt", "OPT", {"ffn_dim": 96}), tmp_path / "opt")
    make(Case("deepseek", "DeepseekV2", MLA), tmp_path / "mla")
    assert "learned positions" in POLICY.refuses(Ours(tmp_path / "opt").config)
    assert "latent" in POLICY.refuses(Ours(tmp_path / "mla").config)
