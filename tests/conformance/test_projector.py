"""Vision towers in GGUF, in a file next to the model's: written by llama.cpp's rules, compared with transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.vision.interface import Tower
from engine.formats.fingerprint import fingerprint
from engine.formats.gguf.projector import KINDS, find_projector
from engine.formats.open import open_checkpoint
from engine.formats.vision import load_tower
from engine.loading.model import LoadModel
from engine.loop.engine import Engine
from engine.loop.events import Event
from engine.protocol import LoadOptions, Unload
from tests.conformance.gguf_models import KIND, Shape, write
from tests.conformance.vision_models import CASES, CPU, SIZES, TOKENS, picture, save

PROJECTORS = {
    "qwen2_5_vl": ("qwen2.5vl_merger", "qwen2vl"),
    "qwen3_vl": ("qwen3vl_merger", "qwen3vl"),
    "qwen3_5": ("qwen3vl_merger", "qwen35"),
    "mistral3": ("pixtral", "llama"),
    "ministral3": ("pixtral", "mistral3"),
    "gemma3": ("gemma3", "gemma3"),
}
"""Case -> the projector's name and the language model's."""
WORDS = [
    "<unk>",
    "<s>",
    "</s>",
    "a",
    "b",
    "<start_of_image>",
    "<end_of_image>",
    "<|image_pad|>",
    "[IMG_BREAK]",
    "[IMG_END]",
]
SMALL = {"hidden": 48, "inner": 96, "heads": 4, "kv_heads": 2, "head_dim": 12}


def own_names(tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The tower's tensors by the names that llama.cpp's converter expects."""
    for name, tensor in tensors.items():
        plain = name.removeprefix("model.")
        if plain.startswith("vision_tower.") and ("encoder" in plain or "embeddings" in plain or "post_" in plain):
            plain = plain.replace("vision_tower.", "vision_tower.vision_model.").replace(
                "vision_model.vision_model", "vision_model"
            )
        if plain.startswith(("visual.", "vision_tower.", "multi_modal_projector.")):
            yield plain.replace("_weight", ".weight"), tensor


def permuted(weight: Tensor, heads: int) -> Tensor:
    """As the converter lays rows of queries and keys for ggml's rotation of neighbours."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def renamed(name: str, tensor: Tensor, projector: str, vision: Any, names: Any) -> Iterator[tuple[str, Tensor]]:
    """One tensor as the converter of a projector writes it."""
    if name.endswith("patch_embed.proj.weight"):
        yield from (("v.patch_embd.weight", tensor[:, :, 0]), ("v.patch_embd.weight.1", tensor[:, :, 1]))
        return
    if projector == "qwen2.5vl_merger" and ".qkv." in name:
        for part, rows in zip("qkv", tensor.chunk(3), strict=True):
            yield from renamed(name.replace("qkv", part), rows, projector, vision, names)
        return
    if "deepstack_merger_list" in name:
        index, module, end = name.split(".")[2:]
        own = {"norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2"}[module]
        yield f"v.deepstack.{vision.deepstack_visual_indexes[int(index)]}.{own}.{end}", tensor
        return
    if projector == "qwen3vl_merger" and name.startswith("visual.merger."):
        module, end = name.split(".")[2:]
        yield f"{ {'norm': 'v.post_ln', 'linear_fc1': 'mm.0', 'linear_fc2': 'mm.2'}[module] }.{end}", tensor
        return
    if projector == "pixtral" and name.endswith(("q_proj.weight", "k_proj.weight")):
        tensor = permuted(tensor, vision.num_attention_heads)
    if "soft_emb_norm" in name:
        tensor = tensor + 1
    found = names.get_name(name, (".weight", ".bias"))
    assert found is not None, name
    yield found, tensor


def kind_for(tensor: Tensor, kind: Any) -> Any:
    """Vectors stay in float32; rows that are no whole blocks are in float16, as the converter has it."""
    if tensor.ndim == 1:
        return KIND.F32
    whole = tensor.ndim == 2 and tensor.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0
    return kind if whole or kind in (KIND.F32, KIND.F16, KIND.BF16) else KIND.F16


def stored(tensor: Tensor, kind: Any) -> Any:
    return gguf.quants.quantize(tensor.float().contiguous().numpy(), kind)


def rounded(tensor: Tensor, kind: Any) -> Tensor:
    kind = kind_for(tensor, kind)
    if kind in (KIND.F32, KIND.F16, KIND.BF16):
        return tensor.to({KIND.F32: torch.float32, KIND.F16: torch.float16, KIND.BF16: torch.bfloat16}[kind]).float()
    return torch.from_numpy(gguf.quants.dequantize(stored(tensor, kind), kind))


def write_projector(file: Path, case: str, folder: Path, model: Any, kind: Any = KIND.F32, **values: Any) -> None:
    """The tower of a saved model, ``values`` in the place of the metadata's."""
    projector, _ = PROJECTORS[case]
    vision, processor = model.config.vision_config, CASES[case].processor
    layers = getattr(vision, "depth", None) or vision.num_hidden_layers
    writer = gguf.GGUFWriter(str(file), "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    side = int(getattr(vision, "num_position_embeddings", 25) ** 0.5) * vision.patch_size
    metadata = {
        "clip.projector_type": projector,
        "clip.vision.projection_dim": 48,
        "clip.vision.image_size": getattr(vision, "image_size", None) or side,
        "clip.vision.patch_size": vision.patch_size,
        "clip.vision.embedding_length": vision.hidden_size,
        "clip.vision.feed_forward_length": vision.intermediate_size,
        "clip.vision.block_count": layers,
        "clip.vision.attention.head_count": getattr(vision, "num_heads", None) or vision.num_attention_heads,
        "clip.vision.attention.layer_norm_epsilon": getattr(vision, "layer_norm_eps", 1e-6),
        "clip.vision.image_mean": [float(each) for each in processor.image_mean],
        "clip.vision.image_std": [float(each) for each in processor.image_std],
    }
    if projector == "qwen2.5vl_merger":
        metadata |= {"clip.use_silu": True, "clip.vision.n_wa_pattern": vision.fullatt_block_indexes[0] + 1}
        metadata |= {"clip.vision.window_size": vision.window_size}
    if projector == "qwen3vl_merger":
        taps = getattr(vision, "deepstack_visual_indexes", None) or []
        metadata |= {"clip.use_gelu": True, "clip.vision.is_deepstack_layers": [i in taps for i in range(layers)]}
    if projector.startswith("qwen"):
        metadata |= {"clip.vision.image_min_pixels": 900, "clip.vision.image_max_pixels": 4900}
        metadata |= {"clip.vision.spatial_merge_size": vision.spatial_merge_size}
    if projector == "pixtral":
        metadata |= {f"clip.use_{vision.hidden_act}": True, "clip.vision.spatial_merge_size": 2}
    if projector == "gemma3":
        metadata |= {"clip.use_gelu": True, "clip.vision.projector.scale_factor": 2}
    for key, value in (metadata | values).items():
        add = {bool: writer.add_bool, str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}
        add.get(type(value), writer.add_array)(key, value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, layers)
    for name, tensor in own_names(load_file(folder / "model.safetensors")):
        for own, part in renamed(name, tensor, projector, vision, names):
            packing = kind_for(part, kind)
            writer.add_tensor(own, stored(part, packing), raw_dtype=packing)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def words(writer: gguf.GGUFWriter) -> None:
    tokens = [*WORDS, *(f"<0x{byte:02X}>" for byte in range(160 - len(WORDS)))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([2, 3, 3, 1, 1, 3, 3, 3, 3, 3] + [6] * (len(tokens) - len(WORDS)))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def language_model(architecture: str, **metadata: Any) -> Any:
    """What the search for a tower asks of an opened model."""
    tokens = ["[IMG]" if word == "<|image_pad|>" and architecture in ("llama", "mistral3") else word for word in WORDS]
    if architecture == "gemma3":
        tokens[7] = "<image_soft_token>"
    return SimpleNamespace(metadata={"general.architecture": architecture, "tokenizer.ggml.tokens": tokens} | metadata)


def read(case: str, folder: Path, file: Path) -> Tower:
    """The tower next to a model ``file``, whose text model is that of the folder."""
    config = open_checkpoint(folder, need_tokenizer=False).config
    part, reason = find_projector(file, language_model(PROJECTORS[case][1]), config)
    assert part is not None, reason
    return load_tower(part, TOKENS.get, CPU, torch.float32)


def compare(case: str, model: Any, ours: Tower) -> None:
    for size in SIZES:
        image = picture(*size)
        inputs, shown = CASES[case].inputs(CASES[case].processor, image), ours.prepare(image)
        theirs, pixels = CASES[case].pixels(inputs, shown)
        torch.testing.assert_close(pixels, theirs, rtol=0, atol=1e-6)
        with torch.no_grad():
            expected = model.get_image_features(**inputs)
        parts = [part[0] if isinstance(part, list | tuple) else part for part in [expected.pooler_output]]
        parts += [part[0] for part in (getattr(expected, "deepstack_features", None) or [])]
        wanted = torch.cat([part.reshape(shown.tokens, -1) for part in parts], -1)
        torch.testing.assert_close(ours.forward([shown])[0], wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))


@pytest.mark.parametrize("kind", [KIND.F32, KIND.F16, KIND.BF16, KIND.Q8_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize("case", PROJECTORS)
def test_embeddings_are_those_of_transformers(case: str, kind: Any, tmp_path: Path) -> None:
    model = save(CASES[case], tmp_path)
    file = tmp_path / "mmproj-model.gguf"
    if kind != KIND.F32:
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.copy_(rounded(parameter, kind))
        model.save_pretrained(tmp_path)
    write_projector(file, case, tmp_path, model, kind)
    compare(case, model, read(case, tmp_path, tmp_path / "model-Q4_K_M.gguf"))


@pytest.mark.parametrize("case", ["qwen2_5_vl", "qwen3_vl"])
def test_a_model_is_opened_with_the_tower_next_to_it(case: str, tmp_path: Path) -> None:
    projector, architecture = PROJECTORS[case]
    biases = ("attn_q", "attn_k", "attn_v") if architecture == "qwen2vl" else ()
    sections = [2, 2, 2, 0]
    shape = Shape(architecture, {"": KIND.F32}, biases=biases, **SMALL)
    file = tmp_path / "model.gguf"

    def tokenizer(writer: gguf.GGUFWriter) -> None:
        words(writer)
        writer.add_rope_dimension_sections(sections)

    write(file, shape, tokenizer)
    alone = open_checkpoint(file)
    assert alone.vision is None
    assert "no file mmproj-….gguf, which has its vision tower, lies next to it" in alone.text_only
    (tmp_path / "hf").mkdir()
    model = save(CASES[case], tmp_path / "hf")
    write_projector(tmp_path / "mmproj-F32.gguf", case, tmp_path / "hf", model)
    for path in (file, tmp_path):
        opened = open_checkpoint(path)
        assert opened.vision is not None, opened.notices
        assert (opened.text_only, opened.notices) == ("", ())
        ours = load_tower(opened.vision, opened.tokenizer().token_id, CPU, torch.float32)
        assert ours.placeholder == WORDS.index("<|image_pad|>")
        compare(case, model, ours)
    rope = opened.config.positions.rope
    assert (rope.sections, rope.interleaved) == ((2, 2, 2), projector == "qwen3vl_merger")
    events: list[Event] = []
    engine = Engine(events.append, device="cpu")
    engine.submit(LoadModel(str(file), "", LoadOptions(device="cpu", dtype="float32", memory=200e6)))
    engine.step()
    assert engine.loaded is not None, events
    assert engine.loaded.card.pictures, engine.loaded.card.notices
    engine.submit(Unload())
    engine.step()


def test_what_lies_there_and_is_not_its_tower(tmp_path: Path) -> None:
    model = save(CASES["qwen3_vl"], tmp_path)
    config = open_checkpoint(tmp_path, need_tokenizer=False).config
    beside, file = tmp_path / "mmproj-F32.gguf", tmp_path / "some-Q4_K_M.gguf"

    def reason(architecture: str = "qwen3vl", **metadata: Any) -> str:
        part, why = find_projector(file, language_model(architecture, **metadata), config)
        assert part is None
        return why

    assert reason("qwen3") == ""
    write_projector(beside, "qwen3_vl", tmp_path, model, **{"clip.projector_type": "internvl"})
    assert "a vision tower of the kind 'internvl', and Kvasir reads qwen2.5vl_merger, qwen3vl" in reason()
    assert reason("qwen3") == ""  # a text model in the same folder
    write_projector(beside, "qwen3_vl", tmp_path, model)
    assert reason("gemma3") == ""
    assert "of the kind 'qwen3vl_merger'" not in reason("gemma4")
    assert "no <|image_pad|>" in reason(**{"tokenizer.ggml.tokens": ["a"]})
    write_projector(beside, "qwen3_vl", tmp_path, model, **{"clip.vision.projection_dim": 64})
    assert "is that of another model" in reason()
    write_projector(beside, "qwen3_vl", tmp_path, model, **{"clip.vision.block_count": 4})
    assert "lack the tensor visual.blocks.3" in reason()
    write_projector(beside, "qwen3_vl", tmp_path, model, **{"clip.vision.attention.head_count": 3})
    assert "does not divide into 3 heads" in reason()
    whole = beside.read_bytes()
    beside.write_bytes(whole[: len(whole) // 2])
    assert "is truncated" in reason()
    beside.write_bytes(whole)
    second = beside.with_name("mmproj-F16.gguf")
    second.write_bytes(whole)
    assert "2 vision towers lie next to it (mmproj-F16.gguf, mmproj-F32.gguf)" in reason()
    assert reason("qwen35") == ""
    second.rename(tmp_path / "Some-mmproj-F16.gguf")
    write_projector(tmp_path / "Some-mmproj-F16.gguf", "qwen3_vl", tmp_path, model)
    part, why = find_projector(file, language_model("qwen3vl"), config)
    assert part is not None, why


def test_a_projector_alone_is_no_model(tmp_path: Path) -> None:
    model = save(CASES["gemma3"], tmp_path / "hf")
    write_projector(tmp_path / "mmproj.gguf", "gemma3", tmp_path / "hf", model)
    with pytest.raises(CheckpointError, match="holds only what a model sees"):
        open_checkpoint(tmp_path / "mmproj.gguf")
    assert set(KINDS) == {projector for projector, _ in PROJECTORS.values()}


def test_another_file_of_the_tower_is_another_model(tmp_path: Path) -> None:
    """What was kept of chats with pictures came from the tower that there was."""
    shape = Shape(PROJECTORS["qwen3_vl"][1], {"": KIND.F32}, **SMALL)

    def tokenizer(writer: gguf.GGUFWriter) -> None:
        words(writer)
        writer.add_rope_dimension_sections([2, 2, 2, 0])

    file = tmp_path / "model.gguf"
    write(file, shape, tokenizer)
    (tmp_path / "hf").mkdir()
    model = save(CASES["qwen3_vl"], tmp_path / "hf")
    names = []
    for kind in (KIND.F32, KIND.Q8_0, None):
        (tmp_path / "mmproj.gguf").unlink(missing_ok=True)
        if kind is not None:
            write_projector(tmp_path / "mmproj.gguf", "qwen3_vl", tmp_path / "hf", model, kind)
        names.append(fingerprint(open_checkpoint(file)))
    assert len(set(names)) == 3
