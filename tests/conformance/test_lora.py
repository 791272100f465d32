"""LoRA adapters against transformers with ``W + scale * B A``, and against themselves: whatever else a step computes,
and whatever the cache and speculation do, an adapter's text is its own."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaForCausalLM

from engine.base.errors import CheckpointError
from engine.cache.offload.saved import SavedChats
from engine.compute.batch import SequenceRows
from engine.compute.layers.linear.adapted import Adapted
from engine.compute.models.adapters import Adapter, parts_of
from engine.formats.adapters.read import WEIGHTS, open_adapter
from engine.formats.adapters.sites import sites_of
from engine.formats.open import open_checkpoint
from engine.loading.parts.adapter import adapters_of
from engine.loop.commands import AddRequest
from engine.protocol import Adapters, LoadAdapter, Sampling, Set, UnloadAdapter
from tests.conformance.adapter_files import ALL, ATTENTION, merged, modules, write_adapter
from tests.conformance.engine_support import Ours, relative
from tests.conformance.families import GEMMA, GEMMA4_E, QWEN3_5, Case, make
from tests.conformance.gguf_converter import convert
from tests.conformance.gguf_families import random_model
from tests.conformance.gptq_packer import Packing, quantise
from tests.conformance.packed_support import save
from tests.kit.checkpoints import EOS, write_llama
from tests.kit.hosts import Host

TOLERANCE = 1e-4
PROMPT = [3, 40, 77, 9, 120, 5, 5, 61, 14, 90, 33, 2, 8]
PATTERNS = {
    "ranks": {"layers.1.self_attn.q_proj": 7, "down_proj": 3},
    "alpha_pattern": {r".*\.\d\..*(v_proj|none)": 5, "up_proj": 1.5},
}
CASES: dict[str, tuple[str, dict[str, Any], tuple[str, ...], dict[str, Any]]] = {
    "llama": ("Llama", {}, ALL, {}),
    "llama, q and v": ("Llama", {}, ("q_proj", "v_proj"), {"rank": 16}),
    "llama, up alone": ("Llama", {}, ("up_proj",), {"rank": 1}),
    "llama, rsLoRA": ("Llama", {}, ALL, {"use_rslora": True, "lora_alpha": 3}),
    "llama, patterns": ("Llama", {}, ALL, PATTERNS),
    "llama, patterns, rsLoRA": ("Llama", {}, ALL, PATTERNS | {"use_rslora": True}),
    "qwen3": ("Qwen3", {"head_dim": 16}, ALL, {}),
    "qwen2": ("Qwen2", {}, ALL, {}),
    "phi3": ("Phi3", {}, ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"), {}),
    "gemma3": ("Gemma3Text", GEMMA, ALL, {}),
    "gemma4, shared caches": ("Gemma4Text", GEMMA4_E, ("q_proj", "o_proj", "gate_proj", "down_proj"), {}),
    "qwen3.5, attention and MLPs": ("Qwen3_5Text", QWEN3_5, ALL, {}),
    "olmo2": ("Olmo2", {}, ALL, {}),
    "opt": ("OPT", {"ffn_dim": 96}, ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"),
            {}),
    "mixtral, attention": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}, ATTENTION, {}),
}  # fmt: skip


def attach(ours: Ours, folder: Path, adapter: Path) -> Adapter:
    """Put an adapter around the layers of a loaded model; returns it with its number."""
    checkpoint, model = open_checkpoint(folder, need_tokenizer=False), ours.model
    sites = sites_of(checkpoint, model)
    files = open_adapter(adapter, sites, checkpoint.config.architecture)
    number = model.adapters.new_number()
    found = Adapter(number, str(number), "", files.fingerprint(), 1, len(files.pairs), files.size(torch.float32))
    model.adapters.attach(found, parts_of(sites.found, files.read(model.dtype, model.device)))
    return found


def adapted(ours: Ours, tokens: list[int], adapter: int, sequence: int = 0) -> SequenceRows:
    return ours.row(tokens, 0, sequence, len(tokens))._replace(adapter=adapter)


def logits(ours: Ours, adapter: int, tokens: list[int] = PROMPT) -> Tensor:
    return ours.runner.forward([adapted(ours, tokens, adapter)]).logits


def made(family: str, folder: Path, **options: Any) -> tuple[Any, Path]:
    """transformers' model with random weights, and where it is saved."""
    return make(Case(family, family, options), folder), folder


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_added_weights(name: str, tmp_path: Path) -> None:
    family, options, targets, how = CASES[name]
    model, folder = made(family, tmp_path / "model", **options)
    adapter = write_adapter(tmp_path / "adapter", model, targets, **how)
    with torch.no_grad():
        expected, plain = (each(torch.tensor([PROMPT])).logits[0] for each in (merged(model, adapter), model))
    for invariant in (False, True):
        ours = Ours(folder, invariant=invariant)
        number = attach(ours, folder, adapter).number
        assert relative(logits(ours, number), expected) < TOLERANCE
        assert relative(logits(ours, 0), plain) < TOLERANCE
    assert relative(plain, expected) > 100 * TOLERANCE, "the adapter changes what the model says"


def test_an_adapter_of_a_packed_model(tmp_path: Path) -> None:
    """What it adds is added to what the packed weights stand for."""
    rng = np.random.default_rng(3)
    packing = Packing()

    def pack(name: str, weight: Tensor) -> tuple[dict[str, Tensor], Tensor] | None:
        if name == "lm_head":
            return None
        tensors, stands_for = quantise(weight.numpy(), packing, rng)
        return {key: torch.from_numpy(value) for key, value in tensors.items()}, torch.from_numpy(stands_for)

    folder = tmp_path / "model"
    folder.mkdir()
    model = save(folder, pack, GPTQ)
    adapter = write_adapter(tmp_path / "adapter", model)
    with torch.no_grad():
        expected = merged(model, adapter)(torch.tensor([PROMPT])).logits[0]
    ours = Ours(folder)
    number = attach(ours, folder, adapter).number
    kinds = {linear.kind for name, linear in ours.model.linears() if name != "head"}
    assert kinds == {"int4"}
    assert relative(logits(ours, number), expected) < TOLERANCE


def test_an_adapter_of_a_model_that_is_quantised_while_loading(tmp_path: Path) -> None:
    model, folder = made("Llama", tmp_path / "model", hidden_size=64, intermediate_size=128)
    adapter = write_adapter(tmp_path / "adapter", model)
    ours = Ours(folder, quantise="nf4")
    sites = sites_of(open_checkpoint(folder, need_tokenizer=False).quantised("nf4"), ours.model)
    with torch.no_grad():
        for name, module in modules(model, ALL):
            site = sites.found[name]
            layer = getattr(site.block, site.attribute)
            assert layer.kind == "table4"
            module.weight.copy_(layer.dequantised(torch.float32)[site.start : site.stop])
        expected = merged(model, adapter)(torch.tensor([PROMPT])).logits[0]
    number = attach(ours, folder, adapter).number
    assert relative(logits(ours, number), expected) < TOLERANCE


def test_an_adapter_of_a_gguf_file(tmp_path: Path) -> None:
    """Whose rows of q and k lie in another order than the adapter's."""
    model = random_model("smollm3", num_hidden_layers=3)
    file = tmp_path / "model.gguf"
    convert(model, file)
    adapter = write_adapter(tmp_path / "adapter", model)
    with torch.no_grad():
        expected = merged(model, adapter)(torch.tensor([PROMPT])).logits[0]
    ours = Ours(file)
    number = attach(ours, file, adapter).number
    assert relative(logits(ours, number), expected) < TOLERANCE


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, list[Path]]:
    """transformers' model, its folder, and two adapters of it of different ranks and modules."""
    root = tmp_path_factory.mktemp("pair")
    model, folder = made("Llama", root / "model")
    one, two = write_adapter(root / "a", model), write_adapter(root / "b", model, ("q_proj", "down_proj"), 9, seed=1)
    return model, folder, [one, two]


TEXTS = [PROMPT, PROMPT[:1], PROMPT[4:], PROMPT, [7] * 19, PROMPT[::-1]]


@pytest.mark.parametrize(
    ("dtype", "invariant"), [(torch.float32, False), (torch.float32, True), (torch.bfloat16, True)]
)
def test_rows_of_a_step_do_not_know_each_other(
    pair: tuple[Any, Path, list[Path]], dtype: torch.dtype, invariant: bool
) -> None:
    _, folder, adapters = pair
    ours = Ours(folder, dtype, invariant=invariant)
    one, two = (attach(ours, folder, adapter).number for adapter in adapters)
    chosen = [one, 0, two, two, one, 0]
    alone = [logits(ours, adapter, text) for text, adapter in zip(TEXTS, chosen, strict=True)]
    rows = [adapted(ours, text, adapter, s) for s, (text, adapter) in enumerate(zip(TEXTS, chosen, strict=True))]
    together = ours.runner.forward(rows).logits.split([len(text) for text in TEXTS])
    for found, expected in zip(together, alone, strict=True):
        assert torch.equal(found, expected) if invariant else relative(found, expected) < TOLERANCE
    assert not torch.allclose(alone[0], alone[3], atol=0.1), "two adapters say different things"


def test_without_adapters_the_layers_are_what_they_were(pair: tuple[Any, Path, list[Path]]) -> None:
    _, folder, adapters = pair
    ours = Ours(folder)
    before, plain = dict(ours.model.linears()), logits(ours, 0)
    first, second = (attach(ours, folder, adapter) for adapter in adapters)
    assert sum(isinstance(linear, Adapted) for _, linear in ours.model.linears()) == 4 * len(ours.model.layers)
    assert torch.equal(logits(ours, 0), plain)
    expected = logits(ours, second.number)
    ours.model.adapters.detach(first)
    assert torch.equal(logits(ours, second.number), expected)
    assert torch.equal(logits(ours, first.number), plain), "its number belongs to nobody now"
    assert sum(isinstance(linear, Adapted) for _, linear in ours.model.linears()) == 2 * len(ours.model.layers)
    ours.model.adapters.detach(second)
    now = dict(ours.model.linears())
    assert now.keys() == before.keys()
    assert all(now[name] is before[name] for name in before)


# --- in the engine -------------------------------------------------------------------------------------------------


class Lora(Host):
    """An engine with a model and two adapters, "one" and "two"."""

    def __init__(self, folder: Path, saved_chats: SavedChats | None = None) -> None:
        super().__init__(folder / "model", saved=saved_chats)
        for name in ("one", "two"):
            self.send(LoadAdapter(name=name, path=str(folder / name)))
        super().check()

    @property
    def told(self) -> list[Adapters]:
        """What was said of the adapters."""
        return [event for event in self.heard.others if isinstance(event, Adapters)]

    def check(self) -> None:
        if not self.expected_errors:
            super().check()

    expected_errors = False

    def send(self, command: Any) -> None:
        self.engine.submit(command)
        self.engine.step()

    def ask_with(self, adapters: list[str], sampling: Sampling, **more: Any) -> list[str]:
        """Each prompt of PROMPTS with each adapter."""
        ids = []
        for adapter in adapters:
            for prompt in PROMPTS:
                ids.append(f"{adapter}.{len(self.answers)}.{len(ids)}")
                self.engine.submit(AddRequest(ids[-1], prompt, sampling, optimisations=more, adapter=adapter))
        return ids


COMMON = [(7 * i + i * i // 5) % EOS for i in range(120)]
PROMPTS = [COMMON[:100], COMMON[:75], [*COMMON[:50], *COMMON[:40]]]
GREEDY = Sampling(temperature=0.0, max_tokens=14, ignore_eos=True)
SEEDED = Sampling(temperature=1.0, seed=11, max_tokens=14, ignore_eos=True)
WAYS = ["", "one", "two"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("lora")
    write_llama(root / "model", num_hidden_layers=4)
    model = LlamaForCausalLM.from_pretrained(root / "model", dtype=torch.float32)
    write_adapter(root / "one", model, strength=0.6)
    write_adapter(root / "two", model, ("q_proj", "v_proj", "gate_proj"), 8, seed=1, strength=0.6)
    return root


@pytest.fixture(scope="module")
def host(home: Path) -> Iterator[Lora]:
    with Lora(home) as host:
        yield host


@pytest.fixture(scope="module")
def alone(host: Lora) -> Callable[[Sampling], list[list[int]]]:
    """What each adapter says of each prompt, one after another and without sharing."""
    known: dict[int | None, list[list[int]]] = {}

    def texts(sampling: Sampling) -> list[list[int]]:
        if sampling.seed not in known:
            found = []
            for adapter in WAYS:
                for prompt in PROMPTS:
                    id = f"alone.{len(host.answers)}"
                    switches = {"prefix_cache": False}
                    host.engine.submit(AddRequest(id, prompt, sampling, optimisations=switches, adapter=adapter))
                    host.run()
                    found += host.of([id])
            known[sampling.seed] = found
        return known[sampling.seed]

    return texts


@torch.no_grad()
def likeliest(model: Any, prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


def test_greedy_text_is_that_of_added_weights(home: Path, alone: Callable[[Sampling], list[list[int]]]) -> None:
    model = LlamaForCausalLM.from_pretrained(home / "model", dtype=torch.float32).eval()
    expected = []
    for adapter in WAYS:
        other = merged(model, home / adapter) if adapter else model
        expected += [likeliest(other, prompt, 14) for prompt in PROMPTS]
    found = alone(GREEDY)
    assert found == expected
    assert len({tuple(text) for text in found}) == len(found), "every adapter says something else"


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_together_and_in_chunks(host: Lora, alone: Callable[[Sampling], list[list[int]]], sampling: Sampling) -> None:
    expected = alone(sampling)
    for budget in (512, 33):
        host.stepper.cache.tree.evict(1 << 30)
        ids = host.ask_with(WAYS, sampling)
        host.run(budget)
        assert host.of(ids) == expected


def test_the_prefix_tree_keeps_adapters_apart(host: Lora) -> None:
    prompt = [9, 8, 7, *COMMON[:97]]  # nobody asked it before

    def found(adapter: str) -> int:
        id = f"apart.{len(host.answers)}"
        host.engine.submit(AddRequest(id, prompt, GREEDY, adapter=adapter))
        host.run()
        return host.cached[id]

    assert [found(adapter) for adapter in WAYS] == [0, 0, 0]
    assert [found(adapter) for adapter in WAYS] == [99, 99, 99]
    assert host.stepper.cache.tree.pages >= 3 * 6, "each has pages of its own"


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_preemption_at_random_moments(host: Lora, alone: Callable[[Sampling], list[list[int]]], mode: str) -> None:
    expected = alone(SEEDED)
    host.set(preemption=mode, host_cache=1.0)
    for seed in range(2):
        ids = host.ask_with(WAYS, SEEDED)
        before = host.stepper.cache.stats.swapped_in
        assert host.run(100, random.Random(seed)) > 2
        assert host.of(ids) == expected
        if mode == "swap":
            assert host.stepper.cache.stats.swapped_in > before


@pytest.mark.parametrize("proposer", ["ngram", "exit", "skip"])
def test_speculation_changes_no_text(host: Lora, alone: Callable[[Sampling], list[list[int]]], proposer: str) -> None:
    for sampling in (GREEDY, SEEDED):
        expected = alone(sampling)
        host.stepper.cache.tree.evict(1 << 30)
        ids = host.ask_with(WAYS, sampling, speculation=proposer, draft_length=4, ngram_first=proposer == "ngram")
        host.run()
        assert host.of(ids) == expected
    told = set(host.sources(ids))
    assert proposer in told or proposer == "ngram", told


@pytest.mark.parametrize("proposer", ["exit", "skip"])
def test_the_models_own_layers_draft_with_the_adapter(
    host: Lora, proposer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, seen = host.stepper.model.runner, set()
    forward = runner.forward

    def spied(rows: Any, **options: Any) -> Any:
        seen.update((row.adapter, options.get("layers"), options.get("skip", frozenset())) for row in rows)
        return forward(rows, **options)

    monkeypatch.setattr(runner, "forward", spied)
    more = {"speculation": proposer, "draft_length": 3, "ngram_first": False}
    host.engine.submit(AddRequest(proposer, COMMON[:60], GREEDY, optimisations=more, adapter="two"))
    host.run()
    assert {adapter for adapter, _, _ in seen} == {2}
    assert len(seen) > 1, "there were drafts"


@pytest.fixture
def restarted(home: Path, tmp_path: Path) -> Iterator[tuple[Lora, list[int]]]:
    """An engine over the files of another, and a text that goes on from a chat that the other saved with "one"."""

    def over(saved_chats: SavedChats) -> Lora:
        engine = Lora(home, saved_chats)
        engine.set(disk_cache=1.0)
        return engine

    first = over(saved_chats := SavedChats(tmp_path / "chats", 1 << 30))
    first.engine.submit(AddRequest("asked", PROMPTS[0], GREEDY, chat="a chat", adapter="one"))
    first.run()
    assert saved_chats.flush(20)
    saved_chats.close()
    second = over(saved_chats := SavedChats(tmp_path / "chats", 1 << 30))
    yield second, [*PROMPTS[0], *first.of(["asked"])[0], 5, 6, 7]
    saved_chats.close()


def test_pages_on_disk_are_no_other_adapters(restarted: tuple[Lora, list[int]]) -> None:
    """Pages on disk belong to the contents of an adapter: another adapter does not find them."""
    second, longer = restarted
    for adapter in ("two", ""):
        second.engine.submit(AddRequest(f"on {adapter}", longer, GREEDY, chat="a chat", adapter=adapter))
        second.run()
        assert second.cached[f"on {adapter}"] == 0


def test_pages_on_disk_are_found_by_the_contents(home: Path, restarted: tuple[Lora, list[int]]) -> None:
    second, longer = restarted
    second.send(LoadAdapter(name="another name", path=str(home / "one")))
    second.engine.submit(AddRequest("on", longer, GREEDY, chat="a chat", adapter="another name"))
    second.run()
    assert second.cached["on"] == (len(longer) - 4) // 16 * 16
    second.engine.submit(
        AddRequest("plain", longer, GREEDY, adapter="another name", optimisations={"prefix_cache": False})
    )
    second.run()
    assert second.of(["on"]) == second.of(["plain"])


def test_loading_unloading_and_unknown_names(home: Path) -> None:
    host = Lora(home)
    host.expected_errors = True
    assert [[card.name for card in told.adapters] for told in host.told] == [["one"], ["one", "two"]]
    one = host.told[-1].adapters[0]
    assert (one.rank, one.modules, one.base) == (4, 4 * 7, "a tiny model")
    assert one.bytes == sum(tensor.nbytes for tensor in load_file(home / "one" / WEIGHTS).values())
    host.engine.submit(AddRequest("none", PROMPTS[0], GREEDY, adapter="three"))
    host.run()
    (error,) = host.heard.errors
    assert (error.code, error.id) == ("adapter_not_found", "none")
    assert error.message == "No adapter is called 'three'. Loaded are: one, two."
    host.send(LoadAdapter(name="one", path=str(home / "two")))
    assert host.heard.errors[-1].message == "The name one is in use already. Give the adapter another one."
    host.engine.submit(AddRequest("stopped", PROMPTS[0], GREEDY, adapter="one"))
    host.engine.submit(AddRequest("goes on", PROMPTS[0], GREEDY, adapter="two"))
    for _ in range(4):
        host.engine.step()
    host.send(UnloadAdapter(name="one"))
    host.run()
    assert (host.answers["stopped", 0].reason, host.answers["goes on", 0].reason) == ("cancelled", "length")
    assert [card.name for card in host.told[-1].adapters] == ["two"]
    host.send(UnloadAdapter(name="one"))
    assert host.heard.errors[-1].code == "adapter_not_found"
    host.send(Set(key="kv_kind", value="int8"))
    assert [card.name for card in host.told[-1].adapters] == ["two"], "another cache kind keeps the weights"
    host.send(Set(key="weights", value="16bit"))
    assert [each.name for each in adapters_of(host.engine.loaded)] == ["two"], "a load of the same model brings it back"


# --- bad input -----------------------------------------------------------------------------------------------------


def edited(config: dict[str, Any]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        file = folder / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | config))

    return edit


def tensors(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        found = load_file(folder / WEIGHTS)
        change(found)
        save_file(found, folder / WEIGHTS)

    return edit


Q_A, Q_B = (f"base_model.model.model.layers.0.self_attn.q_proj.lora_{half}.weight" for half in "AB")
BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (lambda folder: (folder / "adapter_config.json").unlink(), "has no adapter_config.json"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), f"it lacks {WEIGHTS}"),
    "config is no JSON": (lambda folder: (folder / "adapter_config.json").write_text("{"), "not valid JSON"),
    "other method": (edited({"peft_type": "IA3"}), "'IA3'"),
    "DoRA": (edited({"use_dora": True}), "DoRA"),
    "transposed": (edited({"fan_in_fan_out": True}), "fan_in_fan_out"),
    "modules to save": (edited({"modules_to_save": ["lm_head"]}), "modules_to_save"),
    "biases": (edited({"bias": "lora_only"}), "'lora_only'"),
    "other base": (edited({"init_lora_weights": "pissa_niter_4"}), "pissa_niter_4"),
    "parameters": (edited({"target_parameters": ["experts.down_proj"]}), "target_parameters"),
    "rank of text": (edited({"r": "4"}), '"r" is \'4\''),
    "large rank": (edited({"r": 513}), "from 1 to 512"),
    "no alpha": (edited({"lora_alpha": 0}), '"lora_alpha" is 0'),
    "pattern": (edited({"rank_pattern": {"(a+)+b": 4}}), "'(a+)+b'"),
    "rank in a pattern": (edited({"rank_pattern": {"q_proj": 9999}}), "the value 9999"),
    "alpha in a pattern": (edited({"alpha_pattern": {"q_proj": None}}), "the value None"),
    "other rank": (edited({"r": 5}), "has the shape [4, 96], where [5, 96] is needed for rank 5"),
    "no partner": (tensors(lambda found: found.pop(Q_B)), f"{Q_A} has no lora_B"),
    "other name": (tensors(lambda found: found.update({"what": found.pop(Q_A)})), "its tensor what is not a matrix"),
    "embedding": (
        tensors(lambda found: found.update({"base_model.model.model.embed_tokens.lora_embedding_A": found.pop(Q_A)})),
        "embed_tokens.lora_embedding_A is not a matrix",
    ),
    "head": (
        tensors(lambda found: found.update({name.replace("model.layers.0.self_attn.q_proj", "lm_head"): found.pop(name)
                                            for name in (Q_A, Q_B)})),
        "it adapts lm_head, and Kvasir computes no adapters of",
    ),
    "a layer more": (
        tensors(lambda found: found.update({name.replace("layers.0", "layers.3"): found.pop(name)
                                            for name in (Q_A, Q_B)})),
        "the one that is loaded has no module model.layers.3.self_attn.q_proj",
    ),
    "other width": (
        tensors(lambda found: found.update({Q_A: torch.zeros(4, 64)})), f"{Q_A} has the shape [4, 64], where [4, 48]",
    ),
    "transposed matrix": (
        tensors(lambda found: found.update({Q_B: found[Q_B].t().contiguous()})), f"{Q_B} has the shape [4, 48]",
    ),
    "whole numbers": (tensors(lambda found: found.update({Q_A: found[Q_A].to(torch.int8)})), "a matrix of 16- or 32"),
    "no numbers": (tensors(lambda found: found[Q_B].fill_(float("nan"))), f"{Q_B} holds values that are not numbers"),
    "truncated": (lambda folder: _cut(folder / WEIGHTS), "truncated"),
    "nothing in it": (tensors(lambda found: found.clear()), "holds no tensor"),
}  # fmt: skip


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_its_name(pair: tuple[Any, Path, list[Path]], name: str, tmp_path: Path) -> None:
    model, folder, _ = pair
    adapter = write_adapter(tmp_path / "adapter", model)
    edit, expected = BAD[name]
    edit(adapter)
    ours = Ours(folder)
    with pytest.raises(CheckpointError) as caught:
        attach(ours, folder, adapter)
    assert expected in str(caught.value)
    assert not ours.model.adapters.loaded
    assert not any(isinstance(linear, Adapted) for _, linear in ours.model.linears())


def test_pickled_weights_are_refused(pair: tuple[Any, Path, list[Path]], tmp_path: Path) -> None:
    model, folder, _ = pair
    adapter = write_adapter(tmp_path / "adapter", model)
    (adapter / WEIGHTS).rename(adapter / "adapter_model.bin")
    with pytest.raises(CheckpointError, match="pickled"):
        attach(Ours(folder), folder, adapter)


MOE = {"num_local_experts": 4, "num_experts_per_tok": 2}
MLA = {"num_key_value_heads": 4, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
       "q_lora_rank": None, "first_k_dense_replace": 3}  # fmt: skip


@pytest.mark.parametrize("family", ["Mixtral", "DeepseekV2"])
def test_experts_and_latent_attention_are_refused(family: str, tmp_path: Path) -> None:
    model, folder = made(family, tmp_path / "model", **(MOE if family == "Mixtral" else MLA))
    name = "model.layers.0.mlp.experts.0.w1" if family == "Mixtral" else "model.layers.0.self_attn.kv_b_proj"
    adapter = write_adapter(tmp_path / "adapter", model, ("o_proj",))
    halves = {half: f"base_model.model.{name}.lora_{half}.weight" for half in "AB"}
    tensors(
        lambda found: (found.clear(), found.update({halves["A"]: torch.zeros(4, 48), halves["B"]: torch.zeros(96, 4)}))
    )(adapter)
    with pytest.raises(CheckpointError, match=rf"it adapts {name}, and Kvasir computes no adapters of experts"):
        attach(Ours(folder), folder, adapter)
