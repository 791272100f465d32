"""What is offered to draft for a model: by vocabulary, by size, heads that fit, the list's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from engine.base import folders
from engine.doors.cli.main import app
from engine.formats.open import open_checkpoint
from engine.library import paths
from engine.loading.advice.draft_offers import Vocabularies, offers
from engine.protocol import StoredModel
from engine.protocol.library import decode_library_record
from engine.protocol.recommended import CuratedDraft, CuratedModel, DraftOffer
from engine.text.tokenizer import Tokenizer

DEMO = paths.bundled_folder()
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "kvasir"))


@pytest.fixture
def big(tmp_path: Path) -> StoredModel:
    """The bundled model without its heads, as a folder of many times its size."""
    folder = tmp_path / "big"
    shutil.copytree(DEMO / "kvasir-guide", folder, ignore=shutil.ignore_patterns("heads"))
    with (folder / "notes.bin").open("wb") as file:
        file.truncate(50_000_000)
    return stored(folder, repository="some/big")


def stored(path: Path, **more: str) -> StoredModel:
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    return StoredModel(name=path.name, path=str(path), format="safetensors", bytes=size, **more)


def found(big: StoredModel, *others: StoredModel, listed: tuple[CuratedModel, ...] = ()) -> list[DraftOffer]:
    return offers(Path(big.path), [big, *others], listed, CPU, torch.float32)


def one_token_off(tmp_path: Path) -> Path:
    """The bundled draft model, whose last token is written differently."""
    folder = tmp_path / "off"
    shutil.copytree(DEMO / "kvasir-guide-draft", folder)
    file = folder / "tokenizer.json"
    values = json.loads(file.read_text("utf-8"))
    words = values["model"]["vocab"]
    last = max(words, key=words.__getitem__)
    words[last + "\u0394"] = words.pop(last)
    values["model"]["merges"] = [pair for pair in values["model"]["merges"] if "".join(pair) != last]
    file.write_text(json.dumps(values), "utf-8")
    return folder


def test_smaller_models_of_the_same_vocabulary(big: StoredModel, tmp_path: Path) -> None:
    small, off = stored(DEMO / "kvasir-guide-draft"), stored(one_token_off(tmp_path))
    assert Tokenizer.open(off.path).vocabulary == Tokenizer.open(small.path).vocabulary
    (offer,) = found(big, small, off, stored(DEMO / "kvasir-hybrid"))  # whose layers carry states
    assert (offer.kind, offer.name, offer.path) == ("model", "kvasir-guide-draft", small.path)
    reads = [open_checkpoint(each.path).planned(torch.float32).bytes_read_per_step() for each in (small, big)]
    assert offer.cost == pytest.approx(reads[0] / reads[1], rel=0.2)  # both as their files store them
    assert 0 < offer.cost < 1


def test_not_those_that_are_nearly_as_large(big: StoredModel) -> None:
    small = stored(DEMO / "kvasir-guide-draft")
    (Path(big.path) / "notes.bin").unlink()
    assert found(stored(Path(big.path)), small) == []
    own = stored(Path(big.path), draft=small.path)  # which was made for it
    assert [offer.path for offer in found(own, small)] == [small.path]


def test_heads_where_they_belong_and_where_they_lie(big: StoredModel, tmp_path: Path) -> None:
    shutil.copytree(DEMO / "kvasir-guide" / "heads" / "medusa", Path(big.path) / "heads" / "medusa")
    elsewhere = tmp_path / "some-eagle"
    shutil.copytree(DEMO / "kvasir-guide" / "heads" / "eagle", elsewhere)
    offers_ = {offer.kind: offer for offer in found(big, stored(elsewhere))}
    assert set(offers_) == {"medusa", "eagle"}
    assert offers_["eagle"].path == str(elsewhere)
    assert all(offer.cost > 0 and offer.bytes > 0 for offer in offers_.values())
    config = elsewhere / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"vocab_size": 4097}))
    assert {offer.kind for offer in found(big, stored(elsewhere))} == {"medusa"}  # made for another model


def test_multi_token_layers_of_its_own() -> None:
    hybrid = stored(DEMO / "kvasir-hybrid")
    (offer,) = found(hybrid)
    assert (offer.kind, offer.path, offer.repository) == ("mtp", "", "")
    assert 0 < offer.cost < 1


def test_what_the_list_says_unless_it_is_here(big: StoredModel) -> None:
    model = CuratedModel(
        repository="some/big", variant="safetensors", format="safetensors", family="LlamaForCausalLM", parameters=1,
        purposes=["chat"], about="A test.", taken="2026-11-25", source="test",
        draft=CuratedDraft(kind="model", repository="some/small", variant="safetensors", bytes=7),
    )  # fmt: skip
    (offer,) = found(big, listed=(model,))
    assert (offer.repository, offer.variant, offer.path, offer.bytes) == ("some/small", "safetensors", "", 7)
    assert offer.cost == 0
    here = stored(DEMO / "kvasir-guide-draft", repository="some/small")
    assert [each.path for each in found(big, here, listed=(model,))] == [here.path]


def test_hashes_are_kept_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = one_token_off(tmp_path)
    known = Vocabularies()
    first = known.of(open_checkpoint(folder))
    assert first != known.of(open_checkpoint(DEMO / "kvasir-guide-draft"))
    known.keep()
    with monkeypatch.context() as patched:
        patched.setattr(Tokenizer, "open", None)  # it is not looked at again
        assert Vocabularies().of(open_checkpoint(folder)) == first
    shutil.copy(DEMO / "kvasir-guide-draft" / "tokenizer.json", folder)
    assert Vocabularies().of(open_checkpoint(folder)) != first
    (folders.cache_place() / "vocabularies" / "hashes.json").write_text("not json")
    assert Vocabularies().of(open_checkpoint(folder)) != first


def test_the_command() -> None:
    result = CliRunner().invoke(app, ["models", "drafts", "kvasir-guide", "--device", "cpu", "--json"])
    assert result.exit_code == 0, result.stderr
    told = [decode_library_record(line) for line in result.stdout.splitlines()]
    assert {each.kind for each in told} == {"model", "medusa", "eagle"}
    shown = CliRunner().invoke(app, ["models", "drafts", "kvasir-guide"], env={"COLUMNS": "200"})
    assert " % of the model" in shown.stdout
    assert "Nothing drafts" in CliRunner().invoke(app, ["models", "drafts", "kvasir-seeing"]).stdout
    assert "There is no model" in CliRunner().invoke(app, ["models", "drafts", "nobody"]).stderr
