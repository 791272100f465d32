"""Heads are found, told apart, compared with their model, and read from pickles without running them."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.models.families.llama import read_config
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.decoding.speculation.heads import files as heads_module
from engine.decoding.speculation.heads.files import find_heads, kind_of, open_heads
from engine.decoding.speculation.heads.kind import HeadFiles
from engine.formats.heads import pickled
from engine.library import paths as places

HIDDEN, VOCABULARY = 16, 40
BEFORE = 1_600_000_000_000_000_000


@pytest.fixture
def target() -> ModelConfig:
    values = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": HIDDEN,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "vocab_size": VOCABULARY,
    }
    return read_config(RawConfig(values, Path("config.json")))


def medusa(heads: int = 3, blocks: int = 1, own: bool = True, hidden: int = HIDDEN) -> dict[str, Tensor]:
    found = {}
    for head in range(heads):
        for block in range(blocks):
            found[f"{head}.{block}.linear.weight"] = torch.randn(hidden, hidden)
            found[f"{head}.{block}.linear.bias"] = torch.randn(hidden)
        if own:
            found[f"{head}.{blocks}.weight"] = torch.randn(VOCABULARY, hidden)
    return found


def eagle(third: bool = False, hidden: int = HIDDEN) -> dict[str, Tensor]:
    found = {"fc.weight": torch.randn(hidden, (3 if third else 2) * hidden)}
    layer = "midlayer" if third else "layers.0"
    found[f"{layer}.self_attn.q_proj.weight"] = torch.randn(hidden, hidden)
    if third:
        found["d2t"] = torch.zeros(20, dtype=torch.int64)
        found["t2d"] = torch.zeros(VOCABULARY, dtype=torch.bool)
    return found


def write(folder: Path, tensors: dict[str, Any], name: str = "medusa_lm_head.pt", **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    if name.endswith(".safetensors"):
        save_file(tensors, folder / name)
    else:
        torch.save(tensors, folder / name)
    return folder


def refusal(path: Path, target: ModelConfig, **options: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_heads(path, target, path.parent / "copies", **options)
    text = str(caught.value)
    assert text.endswith(".")
    assert ". " in text, "it says what happened, then what to do"
    assert "\n" not in text
    return text


def same(opened: HeadFiles, tensors: dict[str, Tensor]) -> bool:
    names = opened.files.entries.keys()
    return names == tensors.keys() and all(torch.equal(opened.files.view(name), tensors[name]) for name in names)


# --- kinds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["medusa_lm_head.pt", "medusa_lm_head.safetensors", "model.safetensors", "any.bin"])
@pytest.mark.parametrize("own", [True, False])
def test_medusa_heads_open(tmp_path: Path, target: ModelConfig, name: str, own: bool) -> None:
    tensors = medusa(own=own)
    folder = write(tmp_path / "heads", tensors, name, medusa_num_heads=3, medusa_num_layers=1)
    opened = open_heads(folder, target, tmp_path / "copies")
    assert (opened.kind, opened.path, opened.notices) == ("medusa", folder, ())
    assert opened.layout is not None
    assert (opened.layout.heads, opened.layout.blocks, opened.layout.shares_head) == (3, 1, not own)
    assert opened.layout.accuracies is None
    assert same(opened, tensors)
    assert opened.resident_bytes(torch.bfloat16) == 2 * sum(tensor.numel() for tensor in tensors.values())


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("third", [True, False])
def test_eagle_heads_are_handed_on(tmp_path: Path, target: ModelConfig, name: str, third: bool) -> None:
    """Their config.json says that they are a Llama; the tensors say what they are."""
    folder = write(tmp_path / "heads", eagle(third), name, architectures=["LlamaForCausalLM"], vocab_size=VOCABULARY)
    opened = open_heads(folder, target, tmp_path / "copies", "eagle")
    assert (opened.kind, opened.layout) == ("eagle", None)
    assert opened.config.values["vocab_size"] == VOCABULARY
    assert same(opened, eagle(third)) is False
    assert opened.files.entries.keys() == eagle(third).keys()


def test_kinds_are_told_apart(tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    assert kind_of(write(tmp_path / "a", medusa(), "model.safetensors"), copies) == "medusa"
    assert kind_of(write(tmp_path / "b", eagle(), "model.safetensors"), copies) == "eagle"
    named = write(tmp_path / "c", eagle(True), "model.safetensors", architectures=["LlamaForCausalLMEagle3"])
    assert kind_of(named, copies) == "eagle"
    assert kind_of(write(tmp_path / "d", medusa(), "some.pt") / "some.pt", copies) == "medusa"
    plain = {"model.embed_tokens.weight": torch.randn(4, 4), "model.layers.0.mlp.up_proj.weight": torch.randn(4, 4)}
    model = write(tmp_path / "e", plain, "model.safetensors", architectures=["LlamaForCausalLM"])
    assert kind_of(model, copies) is None
    assert kind_of(write(tmp_path / "f", plain, "pytorch_model.bin"), copies) is None
    assert kind_of(tmp_path / "nothing", copies) is None
    assert not copies.exists()
    assert not (tmp_path / "d" / "some.safetensors").exists(), "asking writes nothing"


def test_heads_in_shards_open(tmp_path: Path, target: ModelConfig) -> None:
    tensors = eagle()
    folder = write(tmp_path / "heads", {"fc.weight": tensors["fc.weight"]}, "model-1.safetensors", eagle=True)
    save_file({name: t for name, t in tensors.items() if name != "fc.weight"}, folder / "model-2.safetensors")
    table = {name: f"model-{1 if name == 'fc.weight' else 2}.safetensors" for name in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    opened = open_heads(folder, target, tmp_path / "copies")
    assert opened.kind == "eagle"
    assert same(opened, tensors)


# --- where they are ----------------------------------------------------------------------------------------------


def test_places_in_their_order(tmp_path: Path) -> None:
    model, kept, copies = tmp_path / "model", tmp_path / "kept", tmp_path / "copies"
    model.mkdir()
    given = write(tmp_path / "given", medusa(), "model.safetensors")

    def found(kind: Any = "medusa", draft: Path | None = None) -> Path | None:
        return find_heads(kind, model, draft, kept, copies)

    assert found() is None
    write(kept / "medusa", medusa(), "model.safetensors")
    assert found() == kept / "medusa"
    write(model / "heads" / "medusa", medusa(), "model.safetensors")
    assert found() == model / "heads" / "medusa"
    assert found(draft=given) == given
    assert found("eagle", given) is None, "what was given is of the other kind"
    write(model / "heads" / "eagle", eagle(), "model.safetensors")
    assert found("eagle", given) == model / "heads" / "eagle"
    (tmp_path / "draft").mkdir()
    assert found(draft=tmp_path / "draft") == model / "heads" / "medusa", "a draft model's folder has no heads"
    assert find_heads("medusa", model, None, None, copies) == model / "heads" / "medusa"


def test_heads_of_a_single_file_model_lie_beside_it(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    write(tmp_path / "heads" / "medusa", medusa(), "model.safetensors")
    found = find_heads("medusa", tmp_path / "model.gguf", None, None, tmp_path / "copies")
    assert found == tmp_path / "heads" / "medusa"


def test_the_users_heads_are_with_the_users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    assert places.heads_folder() == tmp_path / "data" / "heads"
    assert not places.heads_folder().exists()


# --- what does not fit -------------------------------------------------------------------------------------------


def test_heads_of_another_width_are_refused(tmp_path: Path, target: ModelConfig) -> None:
    assert "states of 24 numbers" in refusal(write(tmp_path / "a", medusa(hidden=24)), target)
    assert "states of 24 numbers" in refusal(write(tmp_path / "b", eagle(hidden=24), "model.safetensors"), target)
    assert "states of 24 numbers" in refusal(write(tmp_path / "c", eagle(True, 24), "model.safetensors"), target)
    said = write(tmp_path / "d", medusa(own=False), medusa_num_heads=3, hidden_size=32)
    assert "states of 32 numbers" in refusal(said, target)


def test_heads_of_another_vocabulary_are_refused(tmp_path: Path, target: ModelConfig) -> None:
    larger = replace(target, vocab_size=VOCABULARY + 8)
    assert "vocabulary of 40 tokens" in refusal(write(tmp_path / "a", medusa()), larger)
    said = write(tmp_path / "b", medusa(own=False), medusa_num_heads=3, vocab_size=VOCABULARY)
    assert "vocabulary of 40 tokens" in refusal(said, larger)
    assert "vocabulary of 40 tokens" in refusal(write(tmp_path / "c", eagle(True), "model.safetensors"), larger)
    config = {"architectures": ["LlamaForCausalLM"], "vocab_size": VOCABULARY}
    assert "vocabulary of 40" in refusal(write(tmp_path / "d", eagle(), "model.safetensors", **config), larger)


def without(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in tensors.items() if key != name}


BROKEN: dict[str, tuple[dict[str, Tensor], dict[str, Any], str]] = {
    "a bias missing": (without(medusa(), "1.0.linear.bias"), {}, "lacks 1.0.linear.bias"),
    "an output layer missing": (without(medusa(), "1.1.weight"), {}, "lacks 1.1.weight"),
    "a head missing": ({n: t for n, t in medusa().items() if n[0] != "1"}, {}, "lacks 1.0.linear.bias"),
    "a block too many": (medusa() | {"2.1.linear.weight": torch.randn(16, 16)}, {}, "has 2.1.linear.weight"),
    "a strange tensor": (medusa() | {"model.norm.weight": torch.ones(16)}, {}, "a tensor 'model.norm.weight'"),
    "heads promised": (medusa(), {"medusa_num_heads": 4}, "promises 4"),
    "blocks promised": (medusa(blocks=2), {"medusa_num_layers": 1}, "2 residual blocks"),
    "sharing promised": (medusa(), {"shares_head": True}, "disagree"),
    "own layers promised": (medusa(own=False), {"shares_head": False}, "disagree"),
    "a wrong shape": (medusa() | {"2.0.linear.weight": torch.randn(16, 17)}, {}, "2.0.linear.weight"),
    "whole numbers": (medusa() | {"2.0.linear.bias": torch.ones(16, dtype=torch.int32)}, {}, "int32"),
    "accuracies of two": (medusa(), {"accuracies": [[0.5], [0.4]]}, "accuracies"),
    "accuracies above 1": (medusa(), {"accuracies": [[0.5], [0.4], [1.5]]}, "accuracies"),
    "accuracies in words": (medusa(), {"accuracies": [[0.5], [0.4], ["many"]]}, "accuracies"),
}


@pytest.mark.parametrize("form", ["pt", "safetensors"])
@pytest.mark.parametrize("case", list(BROKEN))
def test_broken_heads_are_refused(tmp_path: Path, target: ModelConfig, case: str, form: str) -> None:
    tensors, config, says = BROKEN[case]
    folder = write(tmp_path / "heads", tensors, f"medusa_lm_head.{form}", medusa_num_heads=3)
    (folder / "config.json").write_text(json.dumps({"medusa_num_heads": 3} | config))
    assert says in refusal(folder, target)


def test_heads_that_are_none_are_refused(tmp_path: Path, target: ModelConfig) -> None:
    assert "no heads at" in refusal(tmp_path / "nothing", target)
    (tmp_path / "empty").mkdir()
    assert "no weights" in refusal(tmp_path / "empty", target)
    plain = write(tmp_path / "plain", {"a.weight": torch.ones(3)}, "model.safetensors")
    assert "does not hold Medusa heads or an EAGLE head" in refusal(plain, target)
    other = write(tmp_path / "other", eagle(), "model.safetensors")
    assert "does not hold Medusa heads." in refusal(other, target, kind="medusa")
    two = write(write(tmp_path / "two", medusa(), "one.safetensors"), medusa(), "two.safetensors")
    assert "one.safetensors, two.safetensors" in refusal(two, target)
    nameless = write(tmp_path / "nameless", {"midlayer.x": torch.ones(3)}, "m.safetensors", architectures=["Eagle3"])
    assert "no fc.weight" in refusal(nameless, target)


def test_what_config_json_says_of_accuracies_is_kept(tmp_path: Path, target: ModelConfig) -> None:
    rows = [[0.7, 0.1], [0.5, 0.1, 0.05], [0.3]]
    folder = write(tmp_path / "heads", medusa(), medusa_num_heads=3, accuracies=rows)
    opened = open_heads(folder, target, tmp_path / "copies").layout
    assert opened is not None
    assert opened.accuracies == ((0.7, 0.1), (0.5, 0.1, 0.05), (0.3,))


def test_more_heads_than_config_json_knows_are_used(tmp_path: Path, target: ModelConfig) -> None:
    """The first repositories on the hub say 2 and hold 5."""
    folder = write(tmp_path / "heads", medusa(5), medusa_num_heads=2, medusa_num_layers=1)
    opened = open_heads(folder, target, tmp_path / "copies")
    assert opened.layout is not None
    assert opened.layout.heads == 5
    assert "holds 5 heads" in opened.notices[0]


# --- pickles -----------------------------------------------------------------------------------------------------


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    read: list[Path] = []
    original = pickled.read_tensors

    def counted(file: Path) -> dict[str, Tensor]:
        read.append(file)
        return original(file)

    monkeypatch.setattr(pickled, "read_tensors", counted)
    monkeypatch.setattr(heads_module, "read_tensors", counted)
    return read


def test_a_pickle_is_read_once(tmp_path: Path, target: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    read = count_reads(monkeypatch)
    tensors = medusa()
    folder, copies = write(tmp_path / "heads", tensors), tmp_path / "copies"
    file = folder / "medusa_lm_head.pt"
    assert same(open_heads(folder, target, copies), tensors)
    assert same(open_heads(folder, target, copies), tensors)
    assert same(open_heads(file, target, copies), tensors)
    assert read == [file]
    assert (folder / "medusa_lm_head.safetensors").is_file()
    assert sorted(path.name for path in folder.iterdir()) == ["medusa_lm_head.pt", "medusa_lm_head.safetensors"]


def test_a_pickle_that_changed_is_read_again(
    tmp_path: Path, target: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = count_reads(monkeypatch)
    folder, copies = write(tmp_path / "heads", medusa()), tmp_path / "copies"
    open_heads(folder, target, copies)
    changed = medusa()
    torch.save(changed, folder / "medusa_lm_head.pt")
    os.utime(folder / "medusa_lm_head.pt", ns=(BEFORE, BEFORE))
    assert same(open_heads(folder, target, copies), changed)
    assert same(open_heads(folder, target, copies), changed)
    assert len(read) == 2


@pytest.mark.parametrize("kind", ["medusa", "eagle"])
def test_a_folder_that_cannot_be_written_has_its_copy_elsewhere(
    tmp_path: Path, target: ModelConfig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = count_reads(monkeypatch)
    tensors = medusa() if kind == "medusa" else eagle()
    folder, copies = write(tmp_path / "heads", tensors, "pytorch_model.bin"), tmp_path / "copies"
    # Tests may run as a user to whom nothing is forbidden; a folder in the copy's place stops any.
    (folder / "pytorch_model.safetensors").mkdir()
    assert same(open_heads(folder, target, copies), tensors)
    count = len(read)
    assert same(open_heads(folder, target, copies), tensors)
    assert len(read) == count
    assert [file.suffix for file in copies.iterdir()] == [".safetensors"]


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path, target: ModelConfig) -> None:
    folder = write(tmp_path / "heads", medusa())
    (folder / "medusa_lm_head.safetensors").mkdir()
    (tmp_path / "copies").write_text("a file where the folder should be")
    assert "neither" in refusal(folder, target)


def test_somebody_elses_safetensors_beside_a_pickle_is_taken(
    tmp_path: Path, target: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = count_reads(monkeypatch)
    theirs = medusa()
    folder = write(write(tmp_path / "heads", theirs, "medusa_lm_head.safetensors"), medusa())
    assert same(open_heads(folder, target, tmp_path / "copies"), theirs)
    assert read == []


def test_tensors_that_share_memory_are_copied_apart(tmp_path: Path, target: ModelConfig) -> None:
    tensors = medusa()
    tensors["1.1.weight"] = tensors["0.1.weight"]
    tensors["2.0.linear.weight"] = tensors["1.0.linear.weight"].t()
    assert same(open_heads(write(tmp_path / "heads", tensors), target, tmp_path / "copies"), tensors)


class Exploit:
    """Unpickled by a trusting reader, it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_the_exploit_works_on_a_trusting_reader(tmp_path: Path) -> None:
    """Otherwise the tests below would say nothing."""
    torch.save(medusa() | {"3.0.linear.bias": Exploit(tmp_path / "mark")}, tmp_path / "evil.pt")
    torch.load(tmp_path / "evil.pt", weights_only=False)
    assert (tmp_path / "mark").is_dir()


@pytest.mark.parametrize("place", ["value", "key", "alone", "legacy"])
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path, target: ModelConfig, place: str) -> None:
    mark, folder = tmp_path / "mark", tmp_path / "heads"
    folder.mkdir()
    file = folder / "medusa_lm_head.pt"
    evil: Any = Exploit(mark)
    match place:
        case "value":
            torch.save(medusa() | {"3.0.linear.bias": evil}, file)
        case "key":
            torch.save({(1, evil): torch.ones(1)}, file)
        case "alone":
            torch.save(evil, file)
        case _:
            file.write_bytes(pickle.dumps({"0.0.linear.bias": evil}))
    assert "pickle that Kvasir does not read" in refusal(folder, target)
    assert not mark.exists()
    assert kind_of(folder, tmp_path / "copies") in ("medusa", None)
    assert not mark.exists()
    assert [path.name for path in folder.iterdir()] == ["medusa_lm_head.pt"]


@pytest.mark.parametrize(
    "contents",
    [
        [torch.ones(3)],
        {"a": 1},
        {"a": "text"},
        {"a": {"b": torch.ones(3)}},
        {3: torch.ones(3)},
        {},
        torch.ones(3),
        {"a": torch.ones(3).to_sparse()},
        {"a": torch.empty(3, device="meta")},
        {"a": torch.ones(3, dtype=torch.complex64)},
        {"a": torch.ones(1).expand(10_000_000_000)},
    ],
    ids=str,
)
def test_anything_but_named_tensors_is_refused(tmp_path: Path, target: ModelConfig, contents: Any) -> None:
    assert "pickle that Kvasir does not read" in refusal(write(tmp_path / "heads", contents), target)


def test_a_compressed_pickle_is_refused(tmp_path: Path, target: ModelConfig) -> None:
    folder = write(tmp_path / "heads", medusa())
    file = folder / "medusa_lm_head.pt"
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    assert "compressed" in refusal(folder, target)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
def test_a_cut_pickle_is_refused(tmp_path: Path, target: ModelConfig, share: float) -> None:
    folder = write(tmp_path / "heads", medusa())
    file = folder / "medusa_lm_head.pt"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    assert "pickle that Kvasir does not read" in refusal(folder, target)
