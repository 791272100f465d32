"""Training heads: what is learned, what is written, and that a broken run ends as an unbroken one."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from engine.services.training import features, places, training
from engine.services.training.eagle import EagleHead
from engine.services.training.errors import RecipeError
from engine.services.training.features import FeatureCache
from engine.services.training.heads import TrainableHeads
from engine.services.training.medusa import TrainableMedusaHeads
from engine.services.training.train_heads import load_heads, train_heads
from engine.services.training.training import TrainingProgress
from tests.engine.services.training.recipe_support import (
    LENGTH,
    Plain,
    all_rows,
    held_out_rows,
    open_target,
    plan,
    write_sure_model,
    write_text,
)
from tests.kit.pairs import each_value

KINDS: tuple[str, ...] = ("medusa", "eagle")
FILES = {"medusa": "medusa_lm_head.safetensors", "eagle": "model.safetensors"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models") / "tiny"
    write_sure_model(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text"))


def after(calls: int) -> Callable[[], bool]:
    """Cancels when it is asked for the so-and-so-many-th time."""
    count = iter(range(1_000_000))
    return lambda: next(count) >= calls


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_falls_and_what_was_learned_is_drafted(
    model: Path, text: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On four rows again and again: of a random model nothing can be learned that holds for other rows."""
    monkeypatch.setattr(training, "SHOW_SECONDS", -1.0)
    reports: list[TrainingProgress] = []
    chosen = plan(model, text, tmp_path / "heads", kind, steps=80, rows=6)
    outcome = train_heads(chosen, reports.append)
    losses = [report.loss for report in reports if report.loss is not None]
    assert len(losses) == 81
    assert sum(losses[-10:]) < 0.75 * sum(losses[:10])
    assert reports[-1].share == 1.0
    assert outcome.before is not None
    target = open_target(model)
    learned = all_rows(target, chosen)[2:]
    cache = FeatureCache(64, tmp_path / "unused")
    cache.append(learned, target.features([row.tokens for row in learned]))
    batch = cache.batch(range(len(learned)), target.device)
    fresh: TrainableHeads = (
        TrainableMedusaHeads(64, 2) if kind == "medusa" else EagleHead(target.config, torch.Generator())
    )
    before, after = (heads.measure([batch], target) for heads in (fresh, load_heads(tmp_path / "heads", target)))
    assert after.tokens_per_step > before.tokens_per_step + 0.2
    assert after.accuracies[0][0] > before.accuracies[0][0] + 0.1


def test_medusa_files_are_of_the_hubs_layout_and_accuracies_are_counted_right(
    model: Path, text: Path, tmp_path: Path
) -> None:
    """Against a count of ranks by full sorting, on states that transformers computes."""
    chosen = plan(model, text, tmp_path / "heads", steps=30)
    outcome = train_heads(chosen)
    assert {file.name for file in (tmp_path / "heads").iterdir()} == {"config.json", FILES["medusa"]}
    weights = load_file(tmp_path / "heads" / FILES["medusa"])
    names = {f"{head}.{block}.linear.{part}" for head in (0, 1) for block in (0, 1) for part in ("weight", "bias")}
    assert {name: (tuple(t.shape), t.dtype) for name, t in weights.items()} == {
        name: ((64, 64) if name.endswith("weight") else (64,), torch.float16) for name in names
    }
    config = json.loads((tmp_path / "heads" / "config.json").read_text())
    expected = {"medusa_num_heads": 2, "medusa_num_layers": 2, "shares_head": True, "hidden_size": 64, "vocab_size": 95}
    assert expected.items() <= config.items()

    plain = Plain(model, tmp_path / "heads", FILES["medusa"])
    hits, count = torch.zeros(2, 10), 0
    chains = 0
    for row in held_out_rows(open_target(model), chosen):
        states = plain.states(row.tokens)
        for t in range(len(row.tokens)):
            if t + 2 < row.counted or t + 3 >= len(row.tokens):
                continue
            count += 1
            right = True
            for head in (0, 1):
                x = states[t]
                for block in (0, 1):
                    weight, bias = (plain.weights[f"{head}.{block}.linear.{part}"] for part in ("weight", "bias"))
                    x = x + F.silu(weight @ x + bias)
                order = plain.says(x).sort(descending=True).indices.tolist()
                rank = order.index(row.tokens[t + 2 + head])
                if rank < 10:
                    hits[head, rank] += 1
                right = right and rank == 0
                chains += right
    assert outcome.after is not None
    assert outcome.after.positions == count > 100
    torch.testing.assert_close(torch.tensor(outcome.after.accuracies), hits / count, atol=1.5 / count, rtol=0)
    torch.testing.assert_close(torch.tensor(config["accuracies"]), hits / count, atol=1.5 / count + 1e-4, rtol=0)
    assert outcome.after.tokens_per_step == pytest.approx(1 + chains / count, abs=2 / count)


def eagle_layer(
    w: dict[str, torch.Tensor], x: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]
) -> torch.Tensor:
    """The one layer of a hub's EAGLE-1 head for its newest row x [64]: 4 heads of 16, 2 of keys and values."""
    at = len(keys)

    def turned(y: torch.Tensor) -> torch.Tensor:
        angle = at / 10000 ** (torch.arange(0, 16, 2) / 16)
        a, b = y[:, :8], y[:, 8:]
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)

    part = "layers.0.self_attn."
    q = turned((w[f"{part}q_proj.weight"] @ x).view(4, 16))
    keys.append(turned((w[f"{part}k_proj.weight"] @ x).view(2, 16)))
    values.append((w[f"{part}v_proj.weight"] @ x).view(2, 16))
    mixed = []
    for head in range(4):
        scores = torch.stack([key[head // 2] @ q[head] / 4 for key in keys])
        mixed.append((scores.softmax(0)[:, None] * torch.stack([value[head // 2] for value in values])).sum(0))
    x = x + w[f"{part}o_proj.weight"] @ torch.cat(mixed)
    y = x / (x.square().mean() + 1e-6).sqrt() * w["layers.0.post_attention_layernorm.weight"]
    gated = F.silu(w["layers.0.mlp.gate_proj.weight"] @ y) * (w["layers.0.mlp.up_proj.weight"] @ y)
    return x + w["layers.0.mlp.down_proj.weight"] @ gated


@pytest.mark.slow
def test_eagle_files_are_of_the_hubs_layout_and_acceptance_is_that_of_real_drafting(
    model: Path, text: Path, tmp_path: Path
) -> None:
    """Against chains that are drafted one by one, each draft fed back, with nothing but the file's tensors."""
    chosen = plan(model, text, tmp_path / "heads", "eagle", steps=40, temperature=0.0)
    outcome = train_heads(chosen)
    plain = Plain(model, tmp_path / "heads", FILES["eagle"])
    layer = "layers.0."
    parts = [f"self_attn.{name}_proj" for name in "qkvo"] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    wanted = {"fc.weight", "fc.bias", f"{layer}post_attention_layernorm.weight", *(f"{layer}{p}.weight" for p in parts)}
    assert set(plain.weights) == wanted
    config = json.loads((tmp_path / "heads" / "config.json").read_text())
    expected = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 64, "bias": True}
    assert expected.items() <= config.items()

    table = plain.model.model.embed_tokens.weight.detach()
    accepted, count = [0] * 5, 0
    with torch.no_grad():
        for row in held_out_rows(open_target(model), chosen):
            states = plain.states(row.tokens)
            for root in range(max(0, row.counted - 2), len(row.tokens) - 6):
                keys: list[torch.Tensor] = []
                values: list[torch.Tensor] = []
                state = states[0]
                for t in range(root + 1):
                    fed = torch.cat((table[row.tokens[t + 1]], states[t]))
                    x = plain.weights["fc.weight"] @ fed + plain.weights["fc.bias"]
                    state = eagle_layer(plain.weights, x, keys, values)
                count += 1
                for depth in range(5):
                    draft = int(plain.says(state).argmax())
                    if draft != row.tokens[root + 2 + depth]:
                        break
                    accepted[depth] += 1
                    x = plain.weights["fc.weight"] @ torch.cat((table[draft], state)) + plain.weights["fc.bias"]
                    state = eagle_layer(plain.weights, x, keys, values)
    assert outcome.after is not None
    assert outcome.after.positions == count > 30
    assert accepted[1] > 0, "or feeding back would not be tried"
    for found, mine in zip(outcome.after.reached, accepted, strict=True):
        assert found == pytest.approx(mine / count, abs=1.5 / count)


@each_value(calls=[0, 1, 6], kind=KINDS)
def test_a_resumed_run_equals_an_unbroken_one(model: Path, text: Path, tmp_path: Path, kind: str, calls: int) -> None:
    """Stopped before any row was made, before the first step, and after some."""
    train_heads(plan(model, text, tmp_path / "whole", kind))
    stopped = train_heads(plan(model, text, tmp_path / "broken", kind), cancelled=after(calls))
    assert stopped.after is None
    assert not (tmp_path / "broken" / FILES[kind]).exists()
    assert stopped.steps == max(0, calls - 1)
    interrupted = train_heads(plan(model, text, tmp_path / "broken", kind), cancelled=after(0))
    assert interrupted.after is None
    gone_on = train_heads(plan(model, text, tmp_path / "broken", kind, resume=True))
    assert gone_on.resumed
    assert gone_on.steps == 12
    whole, broken = (load_file(tmp_path / name / FILES[kind]) for name in ("whole", "broken"))
    assert all(torch.equal(whole[name], broken[name]) for name in whole)
    other = train_heads(plan(model, text, tmp_path / "other", kind, seed=1))
    assert other.steps == 12
    assert not all(torch.equal(t, whole[n]) for n, t in load_file(tmp_path / "other" / FILES[kind]).items())


def test_rows_come_back_as_they_were_made(model: Path, text: Path, tmp_path: Path) -> None:
    """Half of them begin with the text and go on with what the model says."""
    chosen = plan(model, text, tmp_path / "heads", temperature=1.0)
    target = open_target(model)
    rows = all_rows(target, chosen)
    assert rows == all_rows(target, chosen)
    own = [row for row in rows if row.counted < len(row.tokens)]
    assert len(own) == -(-len(rows) // 2)
    assert all(len(row.tokens) <= LENGTH for row in rows)
    greedy = target.write([own[0].tokens[: own[0].counted]], 0.0, torch.Generator())[0]
    logits = target.logits(target.features([greedy]))
    assert greedy[own[0].counted :] == logits.argmax(-1)[own[0].counted - 1 : -1].tolist()


def test_what_is_kept_is_not_mixed_up(model: Path, text: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no training to go on with"):
        train_heads(plan(model, text, tmp_path / "heads", resume=True))
    train_heads(plan(model, text, tmp_path / "heads"), cancelled=after(4))
    with pytest.raises(RecipeError, match="other text or other settings"):
        train_heads(plan(model, text, tmp_path / "heads", heads=3))
    state = tmp_path / "heads" / places.UNFINISHED / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(RecipeError, match="damaged"):
        train_heads(plan(model, text, tmp_path / "heads"))
    outcome = train_heads(plan(model, text, tmp_path / "heads", heads=3, resume=False))
    assert not outcome.resumed
    assert len(load_file(tmp_path / "heads" / FILES["medusa"])) == 3 * 4


def test_features_on_disk_are_those_in_memory(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_heads(plan(model, text, tmp_path / "memory"))
    monkeypatch.setattr(features, "IN_MEMORY", 1000)
    limited = FeatureCache.__init__
    monkeypatch.setattr(FeatureCache, "__init__", lambda self, size, file: limited(self, size, file, 1000))
    spilled: list[bool] = []
    train_heads(
        plan(model, text, tmp_path / "disk"),
        lambda report: spilled.append((tmp_path / "disk" / places.UNFINISHED / "features.bin").is_file()),
    )
    assert spilled[-1]
    one, other = (load_file(tmp_path / name / FILES["medusa"]) for name in ("memory", "disk"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_comes_back_from_disk(tmp_path: Path, dtype: torch.dtype) -> None:
    from engine.services.training.rows import TrainingRow

    rows = [TrainingRow([1, 2, 3], 1), TrainingRow([4, 5], 0)]
    states = torch.randn(5, 8).to(dtype)
    cache = FeatureCache(8, tmp_path / "states.bin", in_memory=0)
    cache.append(rows[:1], states[:3])
    cache.append(rows[1:], states[3:])
    batch = cache.batch([1, 0], torch.device("cpu"))
    assert torch.equal(batch.features[0, :2], states[3:].float())
    assert torch.equal(batch.features[1], states[:3].float())
    assert batch.features[0, 2].abs().sum() == 0
    assert batch.tokens.tolist() == [[4, 5, 0], [1, 2, 3]]
    assert batch.lengths.tolist() == [2, 3]
    cache.close()
    assert not (tmp_path / "states.bin").exists()


def test_a_full_disk_is_said(model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(training, "save_file", full)
    with pytest.raises(RecipeError, match=r"cannot be written \(No space left on device\). Make room"):
        train_heads(plan(model, text, tmp_path / "heads"))


def test_trained_heads_are_read_back(model: Path, text: Path, tmp_path: Path) -> None:
    outcome = train_heads(plan(model, text, tmp_path / "heads", "eagle"))
    target = open_target(model)
    heads = load_heads(tmp_path / "heads", target)
    cache = FeatureCache(64, tmp_path / "unused")
    rows = held_out_rows(target, plan(model, text, tmp_path, "eagle"))
    cache.append(rows, target.features([row.tokens for row in rows]))
    assert heads.measure([cache.batch(range(len(rows)), target.device)], target) == outcome.after
    later = train_heads(plan(model, text, tmp_path / "again", "eagle", start=tmp_path / "heads"))
    assert later.before == outcome.after, "it begins with what was trained"
    with pytest.raises(RecipeError, match="another kind"):
        train_heads(plan(model, text, tmp_path / "other", "medusa", start=tmp_path / "heads"))
    (tmp_path / "heads" / "config.json").unlink()
    with pytest.raises(RecipeError, match="holds no heads"):
        load_heads(tmp_path / "heads", target)


def test_places(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    target = open_target(model)
    assert places.place_for(target, "medusa") == model / "heads" / "medusa"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert places.place_for(target, "eagle") == tmp_path / "data" / "heads" / target.fingerprint / "eagle"
