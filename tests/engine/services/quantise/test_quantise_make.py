"""Models made by GPTQ and AWQ: their errors, their files by an oracle of its own, going on after a kill, bad input."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM
from typer.testing import CliRunner

from engine.base.errors import CheckpointError
from engine.base.fetching import room
from engine.base.fetching.errors import FetchFailed
from engine.compute.batch import SequenceRows
from engine.doors.cli.main import app
from engine.formats.load import load_model
from engine.formats.open import open_checkpoint
from engine.library import paths, store
from engine.library.local import report_of
from engine.loading.runners import new_runner
from engine.protocol.making import LayerError, MakeProgress, MakeReport, ModelQuality
from engine.services.quantise import calibrated, rotation
from engine.services.quantise import make as make_module
from engine.services.quantise.calibrated import LayerQuantiser
from engine.services.quantise.gptq import GPTQSettings, Solver
from engine.services.quantise.grid import Grid, GroupedWeights, nearest, relative_error
from engine.services.quantise.make import make
from engine.services.quantise.plain import plain_checkpoint
from engine.services.quantise.plan import MakePlan, UnfinishedWork, discard, making_folder, unfinished
from engine.services.quantise.quality import Quality
from engine.services.training.errors import RecipeError, RecipeStopped
from tests.engine.services.training.recipe_support import write_text
from tests.kit.checkpoints import write_llama

HYBRID = paths.bundled_folder() / "kvasir-hybrid"
LAYERS = 3
CPU = torch.device("cpu")
PROMPT = [3, 14, 15, 9, 2, 6, 5, 35, 8, 9, 7, 9]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(make_module, "WORST", 1000)
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama whose layers read inputs that go together: of rank 16, and some of them large."""
    folder = tmp_path_factory.mktemp("source") / "tiny"
    write_llama(folder, num_hidden_layers=LAYERS)
    tensors = load_file(folder / "model.safetensors")
    torch.manual_seed(2)
    table = tensors["model.embed_tokens.weight"]
    tensors["model.embed_tokens.weight"] = torch.randn(len(table), 16) @ torch.randn(16, table.shape[1]) * 0.3
    for name, tensor in tensors.items():
        if name.endswith("layernorm.weight"):
            tensors[name] = tensor * torch.randn(len(tensor)).exp()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text"))


def planned(model: Path, text: Path, to: str = "gptq", **changes: object) -> MakePlan:
    base = MakePlan(model, to, text=(text,), samples=12, length=64, device="cpu")
    return replace(base, **changes)  # type: ignore[arg-type]


def unmeasured(
    source: Path,
    made: Path,
    text: Sequence[str] | None,
    report: Callable[[int, int], None],
    stopped: Callable[[], bool],
) -> Quality:
    quality = ModelQuality(1, 2.0, 3.0)
    return Quality(quality, quality, 0.5, 0.75, 10)


def made(plan: MakePlan) -> Path:
    return make(plan, lambda report: None, lambda: False, unmeasured)


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def errors_of(folder: Path) -> list[LayerError]:
    """Of all layers: the fixture makes the report's list longer."""
    report = report_of(folder)
    assert report is not None
    return report.worst


# --- an oracle: the formulas of AutoGPTQ and AutoAWQ, in numpy -------------------------------------------------------


def words(values: torch.Tensor) -> np.ndarray:
    return values.numpy().view(np.uint32)


def along_rows(packed: np.ndarray, bits: int) -> np.ndarray:
    """``[W, n]`` -> ``[W * 32 / bits, n]``, the lowest bits first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return ((packed[:, None] >> shifts[None, :, None]) & (2**bits - 1)).reshape(-1, packed.shape[1]).astype(np.int64)


def gptq_weight(tensors: dict[str, torch.Tensor], module: str, bits: int, missing: int) -> np.ndarray:
    """``W [N, K]`` as GPTQModel's dequantize_weight computes it; ``missing`` is 1 in zero-points of version 1."""
    codes = along_rows(words(tensors[f"{module}.qweight"]), bits)
    zeros = along_rows(words(tensors[f"{module}.qzeros"]).T.copy(), bits).T + missing
    scales, group_of = tensors[f"{module}.scales"].numpy().astype(np.float32), tensors[f"{module}.g_idx"].numpy()
    return (scales[group_of] * (codes - zeros[group_of])).T.astype(np.float32)


def awq_weight(tensors: dict[str, torch.Tensor], module: str) -> np.ndarray:
    """As AutoAWQ's dequantize_gemm computes it: nibble i of a word holds column ``[0, 2, 4, 6, 1, 3, 5, 7][i]``."""

    def columns(packed: np.ndarray) -> np.ndarray:
        out = np.zeros((packed.shape[0], packed.shape[1] * 8), np.int64)
        for place, column in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
            out[:, column::8] = (packed >> np.uint32(4 * place)) & 15
        return out

    codes, zeros = (columns(words(tensors[f"{module}.{part}"])) for part in ("qweight", "qzeros"))
    scales = tensors[f"{module}.scales"].numpy().astype(np.float32)
    size = len(codes) // len(scales)
    return ((codes - zeros.repeat(size, 0)) * scales.repeat(size, 0)).T.astype(np.float32)


def oracle(source: Path, folder: Path, to: str, bits: int = 4) -> LlamaForCausalLM:
    """transformers' plain model with the weights that the packed ones stand for."""
    tensors, reference = tensors_of(folder), LlamaForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    state = reference.state_dict()
    said = json.loads((folder / "config.json").read_text())["quantization_config"]
    missing = {"gptq": 1, "gptq_v2": 0}[said.get("checkpoint_format", "gptq")]
    for name in list(state):
        module = name.removesuffix(".weight")
        if f"{module}.qweight" in tensors:
            weight = gptq_weight(tensors, module, bits, missing) if to == "gptq" else awq_weight(tensors, module)
            state[name] = torch.from_numpy(weight)
        else:
            state[name] = tensors[name].float()
    reference.load_state_dict(state)
    return reference


def ours(folder: Path) -> torch.Tensor:
    checkpoint = open_checkpoint(folder)
    loaded = load_model(checkpoint, CPU, torch.float32)
    return new_runner(loaded, 4, CPU).forward([SequenceRows(PROMPT, 0, [1], want_logits=len(PROMPT))]).logits


def assert_loads_as_written(source: Path, folder: Path, to: str, bits: int = 4) -> None:
    with torch.no_grad():
        expected = oracle(source, folder, to, bits)(torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(ours(folder), expected, rtol=1e-3, atol=1e-3)


# --- GPTQ and AWQ ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"static_groups": False},
        {"act_order": False},
        {"symmetric": False},
        {"symmetric": False, "static_groups": False, "group_size": -1},
        {"bits": 8},
    ],
    ids=lambda options: " ".join(f"{key}={value}" for key, value in options.items()) or "usual",
)
def test_gptq_is_closer_than_rounding_and_loads_as_written(model: Path, text: Path, options: dict[str, object]) -> None:
    folder = made(planned(model, text, **options))
    errors = errors_of(folder)
    assert len(errors) == 7 * LAYERS
    assert all(each.error < each.rounded for each in errors), errors
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    order = tensors_of(folder)["model.layers.0.mlp.gate_proj.g_idx"]
    in_runs = bool((order[1:] >= order[:-1]).all())
    # Only columns out of order, with groups that follow the order, need one when the model runs.
    assert config["desc_act"] is not in_runs
    assert in_runs == (options.get("static_groups", True) or options.get("group_size") == -1)
    assert_loads_as_written(model, folder, "gptq", int(str(options.get("bits", 4))))


def test_awq_is_closer_than_rounding_and_loads_as_written(model: Path, text: Path) -> None:
    folder = made(planned(model, text, "awq"))
    errors = errors_of(folder)
    assert len(errors) == 7 * LAYERS
    assert sum(each.error for each in errors) < 0.9 * sum(each.rounded for each in errors)
    assert_loads_as_written(model, folder, "awq")


class Unrounded(GroupedWeights):
    """Keeps a weight as it is, and writes it so."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight, self.scales = weight, torch.ones(len(weight), 1)

    def dense(self) -> torch.Tensor:
        return self.weight

    def divide_rows(self, divisor: torch.Tensor) -> None:
        self.weight = self.weight / divisor[:, None]

    def awq(self) -> dict[str, torch.Tensor]:
        return {"weight": self.weight}


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("Llama", {"input_layernorm", "self_attn.v_proj", "post_attention_layernorm", "mlp.up_proj"}),
        ("Qwen2", {"input_layernorm", "self_attn.v_proj", "post_attention_layernorm", "mlp.up_proj"}),
        ("Gemma2", {"input_layernorm", "self_attn.v_proj", "pre_feedforward_layernorm", "mlp.up_proj"}),
        ("Olmo2", {"self_attn.v_proj", "mlp.up_proj"}),
    ],
)
def test_awqs_scales_change_nothing_before_the_rounding(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, folded: set[str]
) -> None:
    """With biases in Qwen 2, norms that multiply by 1 + w in Gemma 2, and norms after the blocks in OLMo 2."""
    source, new = tmp_path / name, dict[str, torch.Tensor]()
    plain = write_family(source, name)
    quantise = LayerQuantiser.quantise

    def kept(self: LayerQuantiser, index: int, samples: calibrated.Samples) -> calibrated.MadeLayer:
        layer = quantise(self, index, samples)
        new.update(layer.tensors)
        return layer

    monkeypatch.setattr(calibrated, "nearest", lambda weight, *rest: Unrounded(weight))
    monkeypatch.setattr(LayerQuantiser, "quantise", kept)
    made(planned(source, text, "awq"))
    tokens, state = torch.tensor([PROMPT]), plain.state_dict()
    with torch.no_grad():
        before = plain(tokens).logits
        changed = {tensor for tensor in new if not torch.allclose(new[tensor], state[tensor], rtol=1e-2)}
        plain.load_state_dict(state | new)
        torch.testing.assert_close(plain(tokens).logits, before, rtol=1e-4, atol=1e-4)
    assert {f"model.layers.0.{module}.weight" for module in folded} <= changed


def write_family(folder: Path, name: str, vocabulary: int = 95, **options: object) -> transformers.PreTrainedModel:
    """A tiny random model of a family, whose vectors are random too; returned as transformers has it."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": vocabulary, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
        "eos_token_id": 94, "bos_token_id": None, "pad_token_id": None, "initializer_range": 0.12,
    }  # fmt: skip
    kind = getattr(transformers, f"{name}ForCausalLM")
    model = kind(kind.config_class(**sizes | options)).eval()
    with torch.no_grad():
        for tensor in (tensor for tensor in model.parameters() if tensor.dim() == 1):
            tensor += 0.3 * torch.randn_like(tensor)
    write_llama(folder, num_hidden_layers=1)  # for its tokenizer
    model.save_pretrained(folder)
    found: transformers.PreTrainedModel = model
    return found


def write_chat_tokenizer(folder: Path) -> None:
    """Of 4,096 tokens: GGUF has no name for the other one."""
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(paths.bundled_folder() / "kvasir-guide" / file, folder)


def test_gptq_of_inputs_that_have_nothing_in_common_is_rounding() -> None:
    torch.manual_seed(0)
    weight, grid = torch.randn(8, 64), Grid(4, symmetric=True)
    found = Solver(torch.eye(64), GPTQSettings(grid, 32)).quantised(weight)
    assert torch.equal(found.codes, nearest(weight, grid, 32, torch.ones(64)).codes)


def test_gptq_of_inputs_that_are_all_the_same_keeps_their_sum() -> None:
    """The errors of all columns but the last one cancel out."""
    torch.manual_seed(0)
    weight, hessian, grid = torch.randn(8, 64), torch.ones(64, 64) + 1e-3 * torch.eye(64), Grid(4, symmetric=True)
    found = Solver(hessian, GPTQSettings(grid, 32, act_order=False)).quantised(weight)
    rounded = nearest(weight, grid, 32)
    assert relative_error(weight, found.dense(), hessian) < 0.05 * relative_error(weight, rounded.dense(), hessian)


def test_inputs_that_are_always_0_count_for_nothing() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(200, 64)
    inputs[:, 5] = 0
    found = Solver(inputs.T @ inputs, GPTQSettings(Grid(4, symmetric=True), 32)).quantised(torch.randn(8, 64))
    assert bool(torch.isfinite(found.dense()).all())
    assert bool((found.dense()[:, 5] == 0).all())


@pytest.mark.slow
def test_the_hybrid_keeps_its_narrow_layers(text: Path) -> None:
    """The gates of a delta net have 4 outputs, which no word holds; its multi-token layer is none of the decoder's."""
    for to in ("gptq", "awq"):
        folder = made(planned(HYBRID, text, to, samples=6))
        tensors = tensors_of(folder)
        errors = errors_of(folder)
        assert len(errors) == 3 * 6 + 7
        assert all(each.error < each.rounded for each in errors if to == "gptq")
        assert "model.layers.0.linear_attn.in_proj_a.weight" in tensors
        assert "mtp.layers.0.mlp.up_proj.weight" in tensors
        config = json.loads((folder / "config.json").read_text())["quantization_config"]
        assert "in_proj_a" in json.dumps(config["dynamic" if to == "gptq" else "modules_to_not_convert"])
        assert bool(torch.isfinite(ours(folder)).all())


# --- going on --------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is no more."""


@pytest.mark.parametrize("to", ["gptq", "awq"])
def test_it_goes_on_after_a_kill_at_any_moment(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    whole = made(planned(model, text, to, out=tmp_path / "whole"))
    expected = {file.name: file.read_bytes() for file in whole.iterdir() if file.name != "kvasir-report.json"}
    quantised: list[int] = []
    quantise = LayerQuantiser.quantise

    def noted(self: LayerQuantiser, index: int, samples: calibrated.Samples) -> calibrated.MadeLayer:
        quantised.append(index)
        return quantise(self, index, samples)

    monkeypatch.setattr(LayerQuantiser, "quantise", noted)
    plan = planned(model, text, to, out=tmp_path / "killed")
    for moments in (3, 40, 90, 70):  # each run lives a little longer
        left = iter(range(moments))

        def stopped(left: object = left) -> bool:
            if next(left, None) is None:  # type: ignore[call-overload]
                raise Killed
            return False

        with pytest.raises(Killed):
            make(plan, lambda report: None, stopped, unmeasured)
        assert not plan.target.exists()
        (found,) = unfinished()
        assert (found.state, found.total, found.to) == ("paused", LAYERS, to)
        first = UnfinishedWork.of(found.id).done(LAYERS)
        assert found.done == first
        assert found.options == plan.options
    assert 0 < first < LAYERS
    quantised.clear()
    folder = made(plan)
    assert quantised == list(range(first, LAYERS))
    assert {f.name: f.read_bytes() for f in folder.iterdir() if f.name != "kvasir-report.json"} == expected
    assert not any(making_folder().iterdir())


def test_a_kill_while_it_is_measured_loses_no_layer(model: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*arguments: object) -> Quality:
        raise Killed

    with pytest.raises(Killed):
        make(planned(model, text), lambda report: None, lambda: False, killed)
    monkeypatch.setattr(LayerQuantiser, "quantise", killed)
    assert (made(planned(model, text)) / "config.json").is_file()


@pytest.mark.long
def test_processes_that_are_killed_at_random_moments(model: Path, text: Path, tmp_path: Path) -> None:
    whole = made(planned(model, text, out=tmp_path / "whole"))
    expected = {file.name: file.read_bytes() for file in whole.iterdir() if file.name != "kvasir-report.json"}
    out, moments = tmp_path / "killed", random.Random(0)
    command = (
        *(
            sys.executable,
            "-m",
            "engine.doors.cli.main",
            "quantise",
            str(model),
            "--to",
            "gptq",
            "--json",
            "--text",
            str(text),
        ),
        *("--samples", "12", "--length", "64", "--device", "cpu", "--out", str(out)),
    )
    kills = 0
    while not out.exists():
        # As many threads as here: sums of other parts have other last bits.
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(moments.choice((1, 2, 2, 3)))]
        assert all(lines)
        if kills < 12:
            time.sleep(moments.uniform(0, 0.3))
            process.kill()
            kills += 1
        process.communicate()
    assert {f.name: f.read_bytes() for f in out.iterdir() if f.name != "kvasir-report.json"} == expected
    assert not any(making_folder().iterdir())


def test_it_says_how_far_it_is_and_that_it_was_stopped(model: Path, text: Path) -> None:
    told: list[MakeProgress] = []
    with pytest.raises(RecipeStopped, match="The same command goes on"):
        make(planned(model, text), told.append, lambda: told[-1].done >= 2, unmeasured)
    assert [each.state for each in told] == ["reading", *["quantising"] * 3, "paused"]
    assert (told[-1].done, told[-1].total) == (2, LAYERS)
    discard(told[-1].id)
    assert not list(unfinished())
    with pytest.raises(RecipeError, match="Nothing unfinished has the ID"):
        discard(told[-1].id)


def test_other_options_are_another_model(model: Path, text: Path) -> None:
    ids = set()
    for options in ({}, {"bits": 8}, {"act_order": False}, {"samples": 11}, {"rotate": True}):
        told: list[MakeProgress] = []
        with pytest.raises(RecipeStopped):
            make(planned(model, text, **options), told.append, lambda: True, unmeasured)
        ids.add(told[0].id)
    assert len(ids) == 5


# --- rotated first ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Llama", {}),
        ("Llama", {"tie_word_embeddings": True}),
        ("Llama", {"hidden_size": 96, "attention_bias": True, "mlp_bias": True}),  # no power of two
        ("Llama", {"hidden_size": 256}),  # more than one factor of the Hadamard matrix
        ("Qwen2", {}),
        ("Qwen2", {"tie_word_embeddings": True}),
        ("Qwen3", {"tie_word_embeddings": True}),
        ("SmolLM3", {"tie_word_embeddings": True}),
        ("Phi3", {}),  # modules side by side in one tensor
        # Norms that multiply by 1 + w.
        ("Qwen3_5", {"layer_types": ["full_attention"] * 2}),
    ],
)
def test_a_rotated_model_computes_what_it_did(tmp_path: Path, name: str, options: dict[str, object]) -> None:
    source, out, tokens = tmp_path / "source", tmp_path / "out", torch.tensor([PROMPT])
    plain = write_family(source, name, **options)
    checkpoint = plain_checkpoint(source)
    rotation.check(checkpoint)
    told: list[tuple[int, int]] = []
    found = rotation.rotated(checkpoint, out, lambda done, total, what: told.append((done, total)), lambda: False)
    assert told[-1] == (len(found.files.entries),) * 2
    assert found.weight_bytes == rotation.rotated_bytes(checkpoint)
    before, after = tensors_of(source), tensors_of(out)
    down, norm = "model.layers.1.mlp.down_proj.weight", "model.layers.1.input_layernorm.weight"
    assert torch.equal(after[norm], torch.full_like(before[norm], name != "Qwen3_5"))
    torch.testing.assert_close(after[down].norm(dim=0), before[down].norm(dim=0))  # it is a rotation
    assert not torch.allclose(after[down], before[down], atol=0.1)
    with torch.no_grad():
        expected = plain(tokens).logits[0]
        theirs = type(plain).from_pretrained(out, dtype=torch.float32).eval()(tokens).logits[0]
    torch.testing.assert_close(theirs, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours(out), expected, rtol=1e-4, atol=1e-4)


def test_each_channel_is_spread_over_all_of_them() -> None:
    for width, block in ((64, 64), (256, 256), (96, 32), (640, 128)):
        matrix = rotation.Rotation(width)(torch.eye(width))
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(width), rtol=0, atol=1e-5)
        blocks = matrix.unflatten(0, (-1, block)).unflatten(-1, (-1, block))
        for place in range(width // block):
            torch.testing.assert_close(blocks[place, :, place].abs(), torch.full((block, block), block**-0.5))


def test_what_is_rotated_first_goes_on_after_a_kill_at_any_moment(model: Path, text: Path, tmp_path: Path) -> None:
    whole = made(planned(model, text, out=tmp_path / "whole", rotate=True))
    plan = planned(model, text, out=tmp_path / "killed", rotate=True)
    states = set()
    for moments in (2, 9, 60, 90):
        left, told = iter(range(moments)), list[MakeProgress]()
        with pytest.raises(RecipeStopped):
            make(plan, told.append, lambda left=left: next(left, None) is None, unmeasured)  # type: ignore[misc]
        states.add(told[-2].state)
        (found,) = unfinished()
        assert "--rotate" in found.options
    assert states == {"reading", "quantising"}
    folder = made(plan)
    assert tensors_of(folder).keys() == tensors_of(whole).keys()
    assert all(torch.equal(tensor, tensors_of(whole)[name]) for name, tensor in tensors_of(folder).items())
    assert_loads_as_written(model, folder, "gptq")
    report = report_of(folder)
    assert report is not None
    assert report.source == model.name
    assert not any(making_folder().iterdir())


@pytest.mark.parametrize("to", ["awq", "nf4", "int8", "gguf-q8_0"])
def test_every_format_can_be_rotated_first(text: Path, tmp_path: Path, to: str) -> None:
    source = tmp_path / "small"
    write_family(source, "Qwen3", 4096, tie_word_embeddings=True)
    write_chat_tokenizer(source)
    path = made(planned(source, text, to, rotate=True))
    assert "-rotated" in (path.parent.name if path.is_file() else path.name)
    assert path.suffix != ".gguf" or path.name.startswith("small-")
    before, after = (found.log_softmax(-1) for found in (ours(source), ours(path)))
    divergence = float((before.exp() * (before - after)).sum(-1).mean())
    assert divergence < (0.5 if to in ("awq", "nf4") else 0.01)


class Rounding(Solver):
    """In the place of GPTQ's."""

    def quantised(self, weight: torch.Tensor) -> GroupedWeights:
        return nearest(weight, self.settings.grid, self.settings.group)


def what_the_mlp_reads_with(folder: Path) -> torch.Tensor:
    """The first layer's gate and up, and the norm's weight in them, ``[2 * 96, 64]``."""
    layer = load_model(open_checkpoint(folder), CPU, torch.float32).layers[0]
    weight: torch.Tensor = layer.mlp.gate_up.dequantised(torch.float32) * layer.mlp_norm.weight  # type: ignore[attr-defined]
    return weight


@pytest.mark.parametrize("to", ["gptq", "nf4"])
def test_channels_that_stand_out_cost_the_others_less_when_they_are_rotated(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    source = tmp_path / "outliers"
    write_family(source, "Llama")
    tensors = load_file(source / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight", "gate_proj.weight", "up_proj.weight")):
            tensor[:, [3, 17, 40]] *= 20
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    monkeypatch.setattr(calibrated, "Solver", Rounding)
    weight, errors = what_the_mlp_reads_with(source), []
    for rotate, expected in ((False, weight), (True, rotation.Rotation(64)(weight))):
        found = what_the_mlp_reads_with(made(planned(source, text, to, rotate=rotate)))
        errors.append(float((found - expected).square().sum() / expected.square().sum()))
    assert errors[1] < 0.5 * errors[0], errors
    assert errors[1] < 0.02


@pytest.mark.parametrize("name", ["Gemma2", "Olmo2", "Mixtral", "hybrid"])
def test_what_is_built_otherwise_is_not_rotated(text: Path, tmp_path: Path, name: str) -> None:
    """Norms after the blocks, experts, layers with states."""
    source = HYBRID if name == "hybrid" else tmp_path / name
    if name != "hybrid":
        write_family(source, name)
    with pytest.raises(RecipeError, match=r"cannot be rotated: .* Leave --rotate out"):
        made(planned(source, text, "nf4", rotate=True))
    assert not list(unfinished())


# --- where it lies ---------------------------------------------------------------------------------------------------


def test_it_is_one_of_the_stores_models_with_its_report(model: Path, text: Path) -> None:
    folder = made(planned(model, text))
    assert ("made/tiny-GPTQ-4bit", folder) in store.models()
    assert any(each.path == str(folder) for each in paths.known_models())
    report = report_of(folder)
    assert isinstance(report, MakeReport)
    assert (report.name, report.path, report.source) == ("tiny-GPTQ-4bit", str(folder), "tiny")
    assert (report.kl, report.tokens, report.after.perplexity) == (0.5, 10, 2.0)
    assert [each.error for each in report.worst] == sorted((each.error for each in report.worst), reverse=True)
    (variant,) = store.read_receipt(folder).variants.values()  # type: ignore[union-attr]
    assert not store.damaged(folder, variant)
    with pytest.raises(RecipeError, match="exists already"):
        made(planned(model, text))
    store.remove(folder)
    assert not folder.exists()


@pytest.mark.parametrize("to", ["nf4", "gguf-q8_0"])
def test_a_format_without_a_text_lies_in_the_store_too(text: Path, tmp_path: Path, to: str) -> None:
    model = tmp_path / "small"
    write_family(model, "Llama", 4096)
    write_chat_tokenizer(model)
    path = made(planned(model, text, to))
    assert path in [path for _, path in store.models()]
    assert path.is_file() == to.startswith("gguf")
    report = report_of(path)
    assert report is not None
    assert (report.path, report.to, report.worst) == (str(path), to, [])
    assert bool(torch.isfinite(ours(path)).all())
    with pytest.raises(RecipeError, match="not a model in plain 16 or 32 bits"):
        made(planned(path, text))
    with pytest.raises(RecipeError, match="exists already"):
        made(planned(model, text, to))


def test_the_command_line(model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: str) -> tuple[int, list[str]]:
        result = CliRunner().invoke(app, ["quantise", *arguments])
        return result.exit_code, result.stdout.splitlines()

    options = ("--to", "gptq", "--text", str(text), "--samples", "12", "--length", "64", "--device", "cpu")
    monkeypatch.setattr(LayerQuantiser, "quantise", _interrupted)
    code, lines = run(str(model), *options, "--json")
    assert code == 130
    assert json.loads(lines[-1])["state"] == "paused"
    monkeypatch.undo()
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "home"))
    (left,) = (json.loads(line) for line in run("--unfinished", "--json")[1])
    assert left["state"] == "paused"
    assert run("--discard", left["id"]) == (0, [])
    code, lines = run(str(model), *options, "--json")
    assert code == 0, lines
    *progress, report = (json.loads(line) for line in lines)
    assert [each["state"] for each in progress if each["state"] != "measuring"][-1] == "done"
    assert report["after"]["perplexity"] > 1
    assert 0 < report["same_top"] <= 1
    code, lines = run("--report", progress[-1]["path"])
    assert code == 0
    assert any("KL divergence" in line for line in lines)
    assert sum("self_attn" in line or "mlp" in line for line in lines) == 5


def _interrupted(self: LayerQuantiser, index: int, samples: calibrated.Samples) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    list(samples())


# --- bad input -------------------------------------------------------------------------------------------------------


def test_what_cannot_be_made_is_refused_in_a_sentence(model: Path, text: Path, tmp_path: Path) -> None:
    short, empty, there = tmp_path / "short.txt", tmp_path / "empty", tmp_path / "there"
    short.write_text("too short to learn anything from")
    empty.mkdir()
    there.mkdir()
    refused = [
        (planned(model, tmp_path / "missing.txt"), "There is no text at"),
        (planned(model, empty), "holds no text"),
        (planned(model, short), "too short to calibrate with"),
        (planned(model, text, out=there), "exists already"),
        (planned(model, text, bits=3), "has 4 or 8 bits here, not 3"),
        (planned(model, text, "awq", bits=8), "has 4 bits here, not 8"),
        (planned(model, text, "fp2"), "is not a format"),
        (planned(model, text, group_size=64), "Groups of 64 do not suit"),
        (planned(model, text, memory=1000), "of memory while it is quantised"),
        (planned(paths.bundled_folder() / "kvasir-guide", text), "not a model in plain 16 or 32 bits"),
        (planned(tmp_path / "nothing", text), "There is no model at"),
    ]
    for plan, sentence in refused:
        with pytest.raises((RecipeError, CheckpointError), match=sentence):
            made(plan)
    assert not list(unfinished())


def test_what_is_unfinished_tells_the_command_that_goes_on_with_it(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[MakePlan] = []

    def stopped(plan: MakePlan, report: object, stop: object) -> Path:
        plans.append(plan)
        raise RecipeStopped("stopped")

    monkeypatch.setattr("engine.services.quantise.make.make", stopped)
    others = planned(
        model, text, bits=8, group_size=32, act_order=False, static_groups=False, symmetric=False, memory=10**9,
        out=(tmp_path / "out").resolve(), rotate=True,
    )  # fmt: skip
    for plan in (MakePlan(model, "gptq"), planned(model, text), others):
        CliRunner().invoke(app, ["quantise", str(model), "--to", plan.to, *plan.options, "--json"])
        assert plans[-1] == replace(plan, source=plans[-1].source)


def test_a_full_disk_is_found_before_the_first_layer(model: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free_bytes", lambda folder: 1000)
    told: list[MakeProgress] = []
    with pytest.raises(FetchFailed, match="not enough room"):
        make(planned(model, text), told.append, lambda: False, unmeasured)
    assert [each.state for each in told] == ["reading", "failed"]
    assert "not enough room" in told[-1].sentence
    assert not making_folder().exists()


def test_the_rotated_model_needs_room_too(model: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enough = room.MARGIN + plain_checkpoint(model).weight_bytes
    monkeypatch.setattr(room, "free_bytes", lambda folder: enough)
    with pytest.raises(FetchFailed, match="not enough room"):
        made(planned(model, text, "nf4", rotate=True))
    assert made(planned(model, text, "nf4")).is_dir()


def test_a_mixture_of_experts_is_refused(tmp_path: Path, text: Path) -> None:
    write_family(tmp_path / "moe", "Mixtral")
    with pytest.raises(RecipeError, match="has experts"):
        made(planned(tmp_path / "moe", text))


def test_weights_that_are_no_numbers_are_refused(model: Path, text: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    tensors = load_file(broken / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = float("nan")
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    for to in ("gptq", "awq"):
        with pytest.raises(RecipeError, match="not numbers"):
            made(planned(broken, text, to))


def test_a_model_that_cannot_be_measured_is_whole_all_the_same(model: Path, text: Path) -> None:
    def compare(*_: object) -> Quality:
        raise RecipeError("It does not fit.")

    plan = planned(model, text)
    path = make(plan, lambda report: None, lambda: False, compare)
    report = report_of(path)
    assert report is not None
    assert (report.unmeasured, report.tokens, report.kl) == ("It does not fit.", 0, 0.0)
    assert 0 < report.after.bytes < report.before.bytes
    assert report.worst


def test_the_store_may_be_on_another_disk(model: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which the files are copied first: none is renamed from one disk to another."""
    real = os.replace

    def one_disk(source: Path, target: Path) -> None:
        assert (making_folder() in Path(source).parents) == (making_folder() in Path(target).parents)
        real(source, target)

    plan = planned(model, text)
    monkeypatch.setattr("engine.services.quantise.make.same_disk", lambda one, other: False)
    monkeypatch.setattr(os, "replace", one_disk)
    monkeypatch.setattr(Path, "replace", one_disk)
    path = made(plan)
    assert path == plan.target
    assert (path / "config.json").is_file()
    assert not list(store.store_folder().glob(f"{store.UNFINISHED}/import-*"))
    assert not list(unfinished())


def test_another_model_that_came_meanwhile_is_not_replaced(model: Path, text: Path) -> None:
    plan = planned(model, text)

    def compare(*_: object) -> Quality:
        made(replace(plan, samples=11))  # of the same name
        return unmeasured(*_)  # type: ignore[arg-type]

    with pytest.raises(RecipeError, match="exists already"):
        make(plan, lambda report: None, lambda: False, compare)
    assert len(list(unfinished())) == 1


def test_a_name_that_the_store_does_not_keep_is_refused_at_once(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = shutil.copytree(model, tmp_path / ".hidden")
    with pytest.raises(RecipeError, match="not a valid name for a model here"):
        made(planned(odd, text))
    assert made(planned(odd, text, out=tmp_path / "shown")) == tmp_path / "shown"


def test_a_disk_that_cannot_be_written_to_is_told(model: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "move_in", full)
    told: list[MakeProgress] = []
    with pytest.raises(RecipeError, match="cannot be written"):
        make(planned(model, text), told.append, lambda: False, unmeasured)
    assert (told[-1].state, told[-1].done) == ("failed", LAYERS)
