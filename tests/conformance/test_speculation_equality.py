"""Speculation on equals speculation off, token for token, on real models in fp32 with batch-invariant arithmetic."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import tokenizers
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine.cache.types import TREE
from engine.core.commands import AddRequest
from engine.core.engine import Engine
from engine.core.events import Event
from engine.loading.model import LoadModel
from engine.protocol import Delta, Error, Finished, LoadOptions, Sampling, Set, Source, Unload
from engine.sampling import noise
from engine.speculation.base import DraftTree
from engine.telemetry.records import StepRecord

LETTERS = string.ascii_letters + string.digits + string.punctuation
EOS = len(LETTERS)
BUNDLED = Path(__file__).parents[2] / "assets" / "demo"


def write_model(folder: Path, noise_scale: float, layers: int = 2, width: int = 64) -> None:
    """A tiny Llama of fixed random weights plus a little noise; one character is one token."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=EOS + 1,
        hidden_size=width,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=EOS,
        bos_token_id=None,
        initializer_range=0.12,
    )
    model = LlamaForCausalLM(config)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += noise_scale * parameter.std().nan_to_num() * torch.randn_like(parameter)
    model.save_pretrained(folder)
    letters = {letter: i for i, letter in enumerate(LETTERS)}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=letters, merges=[]))
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens([tokenizers.AddedToken("<end>", special=True)])
    inner.save(str(folder / "tokenizer.json"))


class Outcome(NamedTuple):
    tokens: list[int]
    text: str
    reason: str
    sources: list[Source]


class Host:
    """An engine with a real model loaded, stepped by hand."""

    def __init__(self, target: Path, draft: Path) -> None:
        self.outcomes: dict[tuple[str, int], Outcome] = {}
        self.steps: list[StepRecord] = []
        self.engine = Engine(self._hear, device="cpu")
        options = LoadOptions(device="cpu", dtype="float32", memory=300e6)
        self.engine.submit(LoadModel(str(target), str(draft), options))
        self.engine.submit(Set(key="batch_invariant", value=True))
        self.engine.submit(Set(key="speculation", value="off"))
        self.engine.step()
        assert self.engine.loaded is not None

    def _hear(self, event: Event) -> None:
        match event:
            case Delta(id=id, answer=answer, text=text, tokens=infos):
                old = self.outcomes.get((id, answer), Outcome([], "", "", []))
                self.outcomes[id, answer] = old._replace(
                    tokens=old.tokens + [info.id for info in infos],
                    text=old.text + text,
                    sources=old.sources + [info.source for info in infos],
                )
            case Finished():
                assert event.reason not in ("error", "memory"), event.detail
                key = event.id, event.answer
                self.outcomes[key] = self.outcomes[key]._replace(reason=event.reason)
            case Error():
                raise AssertionError(event.message)
            case StepRecord():
                self.steps.append(event)

    def answer(
        self, prompts: list[list[int]], sampling: Sampling, budget: int = 512, **optimisations: bool | int | str
    ) -> list[Outcome]:
        """All prompts at once, to their ends."""
        self.outcomes.clear()
        self.steps.clear()
        # Below the catalogue's least budget too: a chunk of one token is the hardest case.
        self.engine._options.values["token_budget"] = budget
        for number, prompt in enumerate(prompts):
            self.engine.submit(AddRequest(str(number), prompt, sampling, 1, optimisations))
        assert self.engine._stepper is not None
        for _ in range(5000):
            if not self.engine.step():
                break
            self.engine._stepper.cache.pool.check()
        assert self.engine._stepper.cache.pool.owners() in ([], [TREE])
        return [self.outcomes[str(number), 0] for number in range(len(prompts))]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "target", 0.0)
    write_model(folder / "draft", 0.08)
    host = Host(folder / "target", folder / "draft")
    yield host
    host.engine.submit(Unload())
    host.engine.step()


def prompts(batch: int) -> list[list[int]]:
    return [[(7 * i + 11 * b + (i * i) // 5) % EOS for i in range(9 + 5 * b)] for b in range(batch)]


def same(a: list[Outcome], b: list[Outcome]) -> bool:
    return [o[:3] for o in a] == [o[:3] for o in b]


SAMPLINGS = {
    "greedy": Sampling(temperature=0.0, max_tokens=24, ignore_eos=True),
    "sampled": Sampling(temperature=1.0, seed=11, max_tokens=24),
    "warped": Sampling(
        temperature=0.8, top_p=0.9, top_k=40, repetition_penalty=1.15, frequency_penalty=0.2, seed=12, max_tokens=24
    ),
}


@pytest.mark.parametrize("kind", list(SAMPLINGS))
@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("batch", [1, 8])
def test_on_equals_off(host: Host, kind: str, chunk: int, batch: int) -> None:
    plain = host.answer(prompts(batch), SAMPLINGS[kind])
    assert same(host.answer(prompts(batch), SAMPLINGS[kind], chunk, speculation="draft", draft_length=4), plain)
    # Now with a budget that holds the rows of all decodes, or a larger batch would never get to draft.
    budget = chunk if batch == 1 else max(chunk, batch * 5)
    for speculation in ("draft", "ngram"):
        drafted = host.answer(prompts(batch), SAMPLINGS[kind], budget, speculation=speculation, draft_length=4)
        assert same(drafted, plain)
    assert same(host.answer(prompts(batch), SAMPLINGS[kind], budget, speculation="draft"), plain)


def test_drafts_were_made_and_some_held_and_some_did_not(host: Host) -> None:
    """Otherwise the equalities above would say nothing."""
    for kind in SAMPLINGS:
        found = host.answer(prompts(8), SAMPLINGS[kind], speculation="draft", draft_length=4)
        sources = [source for outcome in found for source in outcome.sources]
        assert {"draft", "corrected", "bonus"} <= set(sources)
    copying = [[*prompts(1)[0][:6]] * 4]
    found = host.answer(copying, Sampling(temperature=0.0, max_tokens=60), speculation="ngram", draft_length=4)
    assert sum(len(step.drafts[0].proposed) for step in host.steps if step.drafts) > 0
    assert same(found, host.answer(copying, Sampling(temperature=0.0, max_tokens=60)))


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
@pytest.mark.parametrize("speculation", ["draft", "ngram"])
def test_limits_inside_an_accepted_run(host: Host, kind: str, speculation: str) -> None:
    sampling = SAMPLINGS[kind]
    whole = host.answer(prompts(1), sampling)[0]
    for length in range(1, 14):
        limited = host.answer(prompts(1), with_(sampling, max_tokens=length), speculation=speculation, draft_length=6)[
            0
        ]
        assert limited.tokens == whole.tokens[:length]
        assert limited.text == whole.text[: len(limited.text)]
        assert limited.reason == ("length" if length <= len(whole.tokens) else whole.reason)


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
@pytest.mark.parametrize("speculation", ["draft", "ngram"])
def test_stop_strings_inside_an_accepted_run(host: Host, kind: str, speculation: str) -> None:
    sampling = SAMPLINGS[kind]
    whole = host.answer(prompts(1), sampling)[0]
    assert len(whole.text) > 12
    for start in range(1, 12):
        stop = whole.text[start : start + 2]
        cut = whole.text.find(stop)
        stopped = host.answer(prompts(1), with_(sampling, stop=[stop]), speculation=speculation, draft_length=6)[0]
        assert (stopped.text, stopped.reason) == (whole.text[:cut], "stop")
        assert stopped.tokens == whole.tokens[: cut + 2]


def with_(sampling: Sampling, **changes: object) -> Sampling:
    return Sampling(**{**{name: getattr(sampling, name) for name in sampling.__struct_fields__}, **changes})


# --- negative controls: each breaks one thing that equality rests on ---------------------------------------------


def test_noise_that_ignores_the_place_would_be_noticed(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = host.answer(prompts(1), SAMPLINGS["sampled"])
    state = iter(range(1_000_000))
    monkeypatch.setattr(noise, "key", lambda seed, answer, index, salt=0: (next(state) * 7919, seed))
    assert not same(host.answer(prompts(1), SAMPLINGS["sampled"], speculation="draft", draft_length=4), plain)


def test_accepting_every_draft_would_be_noticed(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.speculation.verify import verifier
    from engine.speculation.verify.verifier import Verdict

    plain = host.answer(prompts(1), SAMPLINGS["greedy"])

    def credulous(tree: DraftTree, targets: list[int]) -> Verdict:
        return Verdict(tuple(range(len(tree.tokens))), targets[-1], "bonus")

    monkeypatch.setattr(verifier, "verify", credulous)
    assert not same(host.answer(prompts(1), SAMPLINGS["greedy"], speculation="draft", draft_length=4), plain)


@pytest.mark.skipif(not (BUNDLED / "kvasir-guide" / "model.safetensors").is_file(), reason="the model is not built yet")
@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_the_bundled_model(kind: str) -> None:
    torch.set_num_threads(1)
    host = Host(BUNDLED / "kvasir-guide", BUNDLED / "kvasir-guide-draft")
    loaded = host.engine.loaded
    assert loaded is not None
    questions = ["What is a page?", "Why is decoding bound by memory?", "What does the draft model do?"]
    asked = [loaded.tokenizer.encode(question) for question in questions]  # type: ignore[union-attr]
    sampling = with_(SAMPLINGS[kind], max_tokens=32)
    plain = host.answer(asked, sampling)
    for speculation in ("draft", "ngram"):
        assert same(host.answer(asked, sampling, 64, speculation=speculation, draft_length=4), plain)
