"""Models that Kvasir writes in other formats, read by the programs that these formats are of, and by Kvasir."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

from engine.base.errors import CheckpointError
from engine.formats.gguf.pretokenizers import PRE_TOKENIZERS
from engine.formats.gguf.tokenizer import FileText
from engine.formats.open import open_checkpoint
from engine.services.quantise import packed, pieces
from engine.services.quantise.plain import FORMATS, GGUF, convert
from engine.services.training.errors import RecipeError, RecipeStopped
from tests.conformance import gguf_converter
from tests.conformance import gguf_tokenizers as texts
from tests.conformance.engine_support import Ours, relative
from tests.conformance.packed_support import (
    BASE,
    PROMPT,
    TOLERANCE,
    compare,
    likeliest,
    save,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    bitsandbytes = pytest.importorskip("bitsandbytes")

pytestmark = pytest.mark.usefixtures("one_thread", "quiet")
TEMPLATE = "{% for message in messages %}{{ message['content'] }}<|im_end|>{% endfor %}"
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 32, "tie_word_embeddings": True, "pad_token_id": 0}


@pytest.fixture
def quiet() -> Iterator[None]:
    """transformers and the package warn of much."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def byte_level(pre: str) -> tokenizers.Tokenizer:
    """A vocabulary of the kind that files call ``pre``, with its rules spelled out as a model's own file does."""
    rules = PRE_TOKENIZERS[pre]
    trial = tokenizers.Tokenizer(tokenizers.models.BPE())
    rules.apply_to(trial)
    cut = texts.digits_apart() if pre == "smollm" else trial.pre_tokenizer
    return texts.byte_level(cut, trial.normalizer, rules.whole_words)


def pieces_of(metadata: dict[str, Any]) -> tokenizers.Tokenizer:
    return FileText(metadata).tokenizer().inner


def source(
    folder: Path, family: str = "Llama", tokenizer: tokenizers.Tokenizer | None = None, **options: Any
) -> transformers.PreTrainedModel:
    """A tiny model of 16 bits with a tokenizer; its table has rows that no token has."""
    folder.mkdir()
    inner = byte_level("smollm") if tokenizer is None else tokenizer
    torch.manual_seed(4)
    rows = -(-inner.get_vocab_size() // 32) * 32 + 32
    model = save(folder, lambda name, weight: None, None, family, {"vocab_size": rows, **options})
    (folder / "tokenizer.json").write_text(inner.to_str())
    ends = next(token for token in ("<|im_end|>", "<eos>", "</s>") if inner.token_to_id(token) is not None)
    about = {"eos_token": ends, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return model


def make(folder: Path, to: str, out: Path, stop: Callable[[], bool] = lambda: False) -> Path:
    """The model as other programs are given it: the folder, or its one GGUF file."""
    out.mkdir(exist_ok=True)
    convert(folder, to, out, lambda done, total, name: None, stop)
    return next(out.glob("*.gguf"), out)


# --- safetensors ------------------------------------------------------------------------------------------------------


def test_nf4_is_what_bitsandbytes_writes(tmp_path: Path) -> None:
    source(tmp_path / "source", "Qwen2")
    made = load_file(make(tmp_path / "source", "nf4", tmp_path / "made") / "model.safetensors")
    plain = load_file(tmp_path / "source" / "model.safetensors")
    linear = [name for name in plain if name.endswith("_proj.weight")]
    assert len(linear) == 14
    for name in linear:
        codes, state = bitsandbytes.functional.quantize_4bit(
            plain[name], blocksize=64, quant_type="nf4", compress_statistics=False
        )
        expected = {name: codes, **{f"{name}.{key}": value for key, value in state.as_dict(packed=True).items()}}
        for key, value in expected.items():
            found = made.pop(key)
            assert found.dtype == value.dtype
            assert torch.equal(found, value), key
    rest = {name: tensor for name, tensor in plain.items() if name not in linear}
    assert made.keys() == rest.keys()
    assert all(torch.equal(made[name], tensor) for name, tensor in rest.items())


@pytest.mark.parametrize("family", ["Llama", "Qwen2"])
@pytest.mark.parametrize("to", ["nf4", "int8"])
def test_transformers_reads_the_same_model(tmp_path: Path, monkeypatch, to: str, family: str) -> None:
    source(tmp_path / "source", family)
    made = make(tmp_path / "source", to, tmp_path / "made")
    # It asks for the package accelerate, which only spreads a model over devices.
    from transformers.quantizers import quantizer_bnb_4bit

    monkeypatch.setattr(quantizer_bnb_4bit, "is_accelerate_available", lambda *_: True)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(made, dtype=torch.float32).eval()
    four_bits = [module for module in theirs.modules() if isinstance(module, bitsandbytes.nn.Linear4bit)]
    assert len(four_bits) == (14 if to == "nf4" else 0)
    # It computes such models in 16 bits; the test compares more of them.
    for parameter in theirs.parameters():
        parameter.data = parameter.float() if parameter.is_floating_point() else parameter.data
    for module in four_bits:
        module.support_avx512bf16_for_cpu = False
        module.compute_dtype = module.weight.quant_state.dtype = torch.float32
    ours = Ours(made)
    assert {linear.kind for name, linear in ours.model.linears() if name != "head"} == {
        {"nf4": "table4", "int8": "int8"}[to]
    }
    assert compare(ours, theirs) <= TOLERANCE
    text = ours.greedy(PROMPT, 20)
    assert text == likeliest(theirs, text)
    assert open_checkpoint(made).chat_template().source == TEMPLATE


@pytest.mark.parametrize("to", ["nf4", "int8"])
def test_a_model_that_sees_keeps_its_tower(tmp_path: Path, monkeypatch, to: str) -> None:
    from transformers.quantizers import quantizer_bnb_4bit

    monkeypatch.setattr(quantizer_bnb_4bit, "is_accelerate_available", lambda *_: True)
    inner = byte_level("smollm")
    own = {"vocab_size": 1024, "sliding_window_pattern": 2, "final_logit_softcapping": None, "head_dim": 32}
    text = transformers.Gemma3TextConfig(**{**BASE, **own, "tie_word_embeddings": True})
    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
              "image_size": 32, "patch_size": 16}  # fmt: skip
    config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=1)
    torch.manual_seed(1)
    transformers.Gemma3ForConditionalGeneration(config).save_pretrained(tmp_path / "source")
    (tmp_path / "source" / "tokenizer.json").write_text(inner.to_str())
    made = make(tmp_path / "source", to, tmp_path / "made")
    plain = load_file(tmp_path / "source" / "model.safetensors")
    tower = {name: tensor for name, tensor in plain.items() if "vision" in name}
    found = load_file(made / "model.safetensors")
    assert tower
    assert all(torch.equal(found[name], tensor) for name, tensor in tower.items())
    theirs = transformers.AutoModelForImageTextToText.from_pretrained(made, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = theirs(input_ids=torch.tensor([PROMPT])).logits[0]
    assert relative(Ours(made).logits([PROMPT])[0], expected) < (0.02 if to == "nf4" else TOLERANCE)


def test_int8_is_near_and_its_scales_are_rounded_first(tmp_path: Path) -> None:
    rows = torch.randn(64, 96, generator=torch.Generator().manual_seed(1))
    rows[3] = 0
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        codes, scales = packed.to_int8(rows, dtype)
        assert codes.abs().max() == 127
        assert (
            (codes * scales.float()[:, None] - rows).abs() <= 0.502 * scales.float()[:, None] + 1e-9
        ).float().mean() > 0.99
        assert not codes[3].any()
    source(tmp_path / "source")
    made = load_file(make(tmp_path / "source", "int8", tmp_path / "made") / "model.safetensors")
    plain = load_file(tmp_path / "source" / "model.safetensors")
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32

    name = "model.layers.1.mlp.down_proj.weight"
    codes = unpack_from_int32(made[f"{name}_packed"], 8, torch.Size(made[f"{name}_shape"].tolist()))
    error = codes * made[f"{name}_scale"].float() - plain[name].float()
    assert error.norm() < 0.01 * plain[name].float().norm()


def test_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source(tmp_path / "source")
    one = load_file(make(tmp_path / "source", "nf4", tmp_path / "one") / "model.safetensors")
    monkeypatch.setattr(packed, "SHARD", 100_000)
    several = make(tmp_path / "source", "nf4", tmp_path / "several")
    files = sorted(several.glob("*.safetensors"))
    assert len(files) > 2
    together: dict[str, torch.Tensor] = {}
    for file in files:
        together |= load_file(file)
    assert together.keys() == one.keys()
    assert all(torch.equal(together[name], one[name]) for name in one)
    assert torch.equal(Ours(several).logits([PROMPT])[0], Ours(tmp_path / "one").logits([PROMPT])[0])


# --- GGUF -------------------------------------------------------------------------------------------------------------

CASES: dict[str, dict[str, Any]] = {
    "llama": {"family": "Llama", "tokenizer": lambda: byte_level("llama-bpe"), "rope_parameters": LLAMA3},
    "llama of pieces": {
        "family": "Llama",
        "tokenizer": lambda: pieces_of(texts.sentencepiece_metadata(texts.sentencepiece_model())),
    },
    "mistral": {"family": "Mistral", "tokenizer": lambda: byte_level("gpt-2"), "sliding_window": 32},
    "llama with biases": {"family": "Llama", "attention_bias": True, "mlp_bias": True},
    "qwen2": {"family": "Qwen2", "tokenizer": lambda: byte_level("qwen2"), "rope_parameters": YARN},
    "qwen3": {"family": "Qwen3", "tokenizer": lambda: byte_level("qwen2"), "head_dim": 64, "tie_word_embeddings": True},
    "gemma2": {
        "family": "Gemma2",
        "tokenizer": lambda: pieces_of(texts.gemma_metadata(texts.gemma_model())),
        "sliding_window": 32,
        **GEMMA,
    },
    "gemma3": {
        "family": "Gemma3",
        "tokenizer": lambda: pieces_of(texts.gemma_metadata(texts.gemma_model())),
        "sliding_window": 32,
        "num_hidden_layers": 7,
        **GEMMA,
    },
}


@pytest.mark.parametrize(("case", "to"), list(zip(CASES, (*GGUF, *GGUF), strict=False)))
def test_gguf_holds_the_model(tmp_path: Path, case: str, to: str) -> None:
    """Names and the order of rows are those of the package's own table and of the tests' converter."""
    options = dict(CASES[case])
    tokenizer = options.pop("tokenizer", lambda: byte_level("smollm"))()
    reference = source(tmp_path / "source", options.pop("family"), tokenizer, **options)
    file = make(tmp_path / "source", to, tmp_path / "made")
    read = gguf.GGUFReader(file)
    kind = gguf.GGMLQuantizationType[to.removeprefix("gguf-").upper()]
    stored = {tensor.name: tensor for tensor in read.tensors}
    architecture = read.get_field("general.architecture").contents()
    expected = dict(gguf_converter.tensors(reference, architecture, False))
    assert stored.keys() - {"rope_freqs.weight"} == expected.keys()
    head = "token_embd.weight" if reference.config.tie_word_embeddings else "output.weight"
    with torch.no_grad():
        for name, tensor in expected.items():
            of = gguf.GGMLQuantizationType.F32 if tensor.data.ndim == 1 else kind
            of = gguf.GGMLQuantizationType.Q8_0 if name == head else of
            assert stored[name].tensor_type == of, name
            codes = gguf.quants.quantize(tensor.data.contiguous().numpy(), of)
            assert (stored[name].data == codes).all(), name
            tensor.put_back(torch.from_numpy(gguf.quants.dequantize(codes, of)).view(tensor.data.shape))
    ours = Ours(file)
    assert compare(ours, reference) <= TOLERANCE
    text = ours.greedy(PROMPT, 20)
    assert text == likeliest(reference, text)


@pytest.mark.parametrize("case", ["llama", "llama of pieces", "mistral", "qwen2", "gemma2"])
def test_gguf_keeps_the_tokenizer(tmp_path: Path, case: str) -> None:
    options = dict(CASES[case])
    tokenizer = options.pop("tokenizer")()
    source(tmp_path / "source", options.pop("family"), tokenizer, **options)
    ends = [index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special][:2]
    settings = {"temperature": 0.6, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.1, "eos_token_id": ends}
    (tmp_path / "source" / "generation_config.json").write_text(json.dumps(settings))
    before = open_checkpoint(tmp_path / "source")
    after = open_checkpoint(make(tmp_path / "source", "gguf-q8_0", tmp_path / "made"))
    for text in texts.texts(40, seed=9):
        for special in (False, True):
            ids = before.tokenizer().encode(text, special)
            assert after.tokenizer().encode(text, special) == ids, text
        assert after.tokenizer().decode(ids) == before.tokenizer().decode(ids)
    assert after.chat_template().source == TEMPLATE
    assert set(ends) <= set(after.generation_config.eos_ids)
    assert after.generation_config.sampling.top_k == 20
    assert after.generation_config.sampling.temperature == pytest.approx(0.6)


def test_llama_cpp_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama.cpp is installed for `kvasir bench` only")
    source(tmp_path / "source", "Llama", byte_level("llama-bpe"), rope_parameters=LLAMA3)
    file = make(tmp_path / "source", "gguf-q8_0", tmp_path / "made")
    (theirs,) = gguf_converter.by_llama_cpp(file, [PROMPT])
    ours = Ours(file).logits([PROMPT])[0]
    # It rounds what it multiplies the weights with to 8 bits: 2 %, in Q4_0 as in Q8_0.
    assert (theirs - ours).norm() < 0.04 * ours.norm()
    assert torch.equal(theirs.argmax(-1), ours.argmax(-1))


# --- stopped and killed -----------------------------------------------------------------------------------------------


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("to", ["nf4", "int8", "gguf-q4_0"])
def test_one_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str) -> None:
    source(tmp_path / "source")
    make(tmp_path / "source", to, tmp_path / "whole")
    monkeypatch.setattr(packed, "SHARD", 200_000 if to != "gguf-q4_0" else packed.SHARD)
    if to != "gguf-q4_0":
        make(tmp_path / "source", to, tmp_path / "parts")
    expected = content(tmp_path / ("whole" if to == "gguf-q4_0" else "parts"))
    monkeypatch.setattr(pieces, "SYNCED", 1024)
    written: list[int] = []
    write = pieces._write
    monkeypatch.setattr(
        pieces, "_write", lambda stream, piece, stopped: (written.append(1), write(stream, piece, stopped))
    )
    runs = 0
    while True:
        asked = iter(range(12))
        runs += 1
        try:
            make(tmp_path / "source", to, tmp_path / "made", lambda asked=asked: next(asked, None) is None)
            break
        except RecipeStopped:
            assert "config.json" not in content(tmp_path / "made")
            assert not list((tmp_path / "made").glob("*.gguf"))
            unfinished = next((tmp_path / "made").glob("model*.unfinished"), None)
            if unfinished is not None and runs == 2:  # as after a loss of power
                with unfinished.open("r+b") as stream:
                    stream.truncate(unfinished.stat().st_size - 700)
    assert runs > 2
    assert content(tmp_path / "made") == expected
    count = len(written)
    make(tmp_path / "source", to, tmp_path / "made")
    assert len(written) == count, "what is whole is not written again"
    assert content(tmp_path / "made") == expected


KILLED = """
import os, signal, sys
from pathlib import Path
from engine.services.quantise import pieces
from engine.services.quantise.plain import convert
pieces.SYNCED = 1024
def report(done, total, name):
    if done == 9:
        os.kill(os.getpid(), signal.SIGKILL)
convert(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), report, lambda: False)
"""


@pytest.mark.long
def test_one_that_was_killed_goes_on(tmp_path: Path) -> None:
    source(tmp_path / "source")
    make(tmp_path / "source", "gguf-q5_1", tmp_path / "whole")
    (tmp_path / "made").mkdir()
    arguments = [sys.executable, "-c", KILLED, tmp_path / "source", "gguf-q5_1", tmp_path / "made"]
    root = Path(__file__).parents[2]
    assert subprocess.run(arguments, cwd=root, check=False, timeout=100).returncode == -signal.SIGKILL
    assert [file.suffix for file in (tmp_path / "made").iterdir()] == [pieces.UNFINISHED]
    make(tmp_path / "source", "gguf-q5_1", tmp_path / "made")
    assert content(tmp_path / "made") == content(tmp_path / "whole")


# --- refused ----------------------------------------------------------------------------------------------------------


def refused(folder: Path, to: str, words: str, error: type[Exception] = RecipeError) -> None:
    out = folder.with_name(f"{folder.name}-{to}")
    with pytest.raises(error, match=words):
        make(folder, to, out)
    assert not list(out.glob("*.gguf"))
    assert not (out / "config.json").exists()


def test_what_is_packed_already(tmp_path: Path) -> None:
    source(tmp_path / "source")
    made = make(tmp_path / "source", "nf4", tmp_path / "made")
    file = make(tmp_path / "source", "gguf-q4_0", tmp_path / "file")
    for to in FORMATS:
        refused(made, to, r"not a model in plain 16 or 32 bits \(bitsandbytes NF4\)")
        refused(file, to, r"not a model in plain 16 or 32 bits \(GGUF Q4_0")
    refused(tmp_path / "source", "gguf-q4_k_m", "needs calibration text, or is not a format")


def test_families_and_tokenizers_without_words(tmp_path: Path) -> None:
    source(tmp_path / "olmo", "Olmo2", pad_token_id=0)
    refused(tmp_path / "olmo", "gguf-q4_0", "Kvasir writes GGUF of Gemma2, .* and this model is Olmo2ForCausalLM")
    assert make(tmp_path / "olmo", "nf4", tmp_path / "made").is_dir()
    source(tmp_path / "window", "Qwen2", use_sliding_window=True, sliding_window=32, max_window_layers=1)
    refused(tmp_path / "window", "gguf-q4_0", "GGUF has no words for this model's windows")
    odd = texts.byte_level(texts.split(r"\p{L}|[^\p{L}]+"))
    source(tmp_path / "odd", tokenizer=odd)
    refused(tmp_path / "odd", "gguf-q4_0", "cuts text in a way that GGUF has no name for")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<|im_end|>": 0, "a": 1}, unk_token="a"))
    source(tmp_path / "words", tokenizer=words)
    refused(tmp_path / "words", "gguf-q4_0", "cuts text in a way that GGUF has no name for")


def test_experts(tmp_path: Path) -> None:
    source(tmp_path / "source")
    config = transformers.MixtralConfig(**BASE, num_local_experts=4)
    transformers.MixtralForCausalLM(config).half().save_pretrained(tmp_path / "experts")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tmp_path / "source" / file, tmp_path / "experts")
    refused(tmp_path / "experts", "int8", "is a mixture of experts")
    refused(tmp_path / "experts", "gguf-q4_0", "this model is MixtralForCausalLM")


@pytest.mark.parametrize("to", ["nf4", "int8", "gguf-q4_0"])
def test_weights_that_are_no_numbers(tmp_path: Path, to: str) -> None:
    source(tmp_path / "source")
    file = tmp_path / "source" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.1.mlp.up_proj.weight"][5, 7] = torch.nan
    save_file(tensors, file)
    refused(tmp_path / "source", to, "holds values that are not numbers", CheckpointError)


@pytest.mark.parametrize("to", ["nf4", "gguf-q4_0"])
def test_a_folder_that_takes_nothing(tmp_path: Path, to: str) -> None:
    source(tmp_path / "source")
    with pytest.raises(RecipeError, match=r"cannot be written \(No such file or directory\)"):
        convert(tmp_path / "source", to, tmp_path / "nowhere", lambda *_: None, lambda: False)
