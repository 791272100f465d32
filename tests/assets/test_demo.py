"""The bundled model: its knowledge, its training text, its files and the grid they are on."""

from __future__ import annotations

import importlib
import json
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from app.chat.welcome import QUESTIONS
from engine.catalogue import BY_KEY
from engine.decoding.speculation.heads.files import open_heads
from engine.formats.open import open_checkpoint

DEMO = Path(__file__).resolve().parents[2] / "assets" / "demo"
NAMES = (
    "techniques",
    "knowledge",
    "variations",
    "tasks",
    "build_text",
    "model",
    "tokenizer",
    "train",
    "export",
    "evaluate",
    "heads",
    "card",
    "make",
)


@pytest.fixture(scope="module")
def demo() -> Iterator[SimpleNamespace]:
    """The scripts beside the model, imported by their plain names and forgotten afterwards."""
    sys.path.insert(0, str(DEMO))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    modules: dict[str, ModuleType] = {name: importlib.import_module(name) for name in NAMES}
    yield SimpleNamespace(**modules)
    torch.set_num_threads(threads)
    sys.path.remove(str(DEMO))
    for name in NAMES:
        sys.modules.pop(name, None)


def test_knowledge_is_sound(demo: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    """Every file parses, no question has two answers, none is held out, and every key fact is in some answer."""
    assert demo.knowledge.main([]) == 0, capsys.readouterr().out
    blocks = demo.knowledge.load()
    assert len(blocks) >= 300
    few = [block.questions[0] for block in blocks if len(block.questions) < 8]
    assert not few
    assert all(len(block.answer.split()) <= 60 for block in blocks)


MODEL = r"(?:models?|checkpoints?|networks?)\b"
GETTING = re.compile(
    # To get one at all, or a better, larger or other one in place of the guide; and none of what belongs to one.
    r"^(?!.*\b(?:draft|guess|config)).*(?:"
    rf"\b(?:get|download|fetch|recommend|suggest|advise|choose|pick|select)\b(?: (?!from\b)\w+){{0,5}} {MODEL}"
    r"|\b(?:better|stronger|smarter|cleverer|larger|bigger|more powerful|real|own|another|different)\b(?: \w+)? "
    rf"{MODEL}|\b(?:better|stronger|smarter|larger|bigger) one\b)",
    re.IGNORECASE,
)
NOT_GETTING = {
    # What such questions are about instead: the terminal, the Lab, other programs, drafts and heads, how models work.
    "How do I choose the model in kvasir chat?",
    "How long does starting take?",
    "Why are you so fast?",
    "What are the three promises of Kvasir?",
    "What is a tokenizer?",
    "Where do the default sampling settings come from?",
    "What are the dashed lines in the plots?",
    "How much KV memory does an 8B model need per token?",
    "Why does a bigger model run slower?",
    "What happens with a wrong chat template?",
    "How do I train Medusa or EAGLE heads?",
    "What is n-gram speculation?",
    "Why do models make things up?",
    "What is kvasir-needle?",
    "What is a draft model?",
}


def test_every_answer_about_getting_a_model_names_the_page(demo: SimpleNamespace) -> None:
    """Where models are recommended, judged and downloaded, and not how a file is opened that nobody has."""

    def all_of(blocks) -> Iterator:
        for block in blocks:
            yield block
            yield from all_of(block.further)

    asking = [
        block
        for block in all_of(demo.knowledge.load())
        if block.questions[0] not in NOT_GETTING and any(GETTING.search(each) for each in block.questions)
    ]
    assert {"How do I get a better model?", "How do I get a model?", "How do I load a better one?"} <= {
        block.questions[0] for block in asking
    }
    assert [block.questions[0] for block in asking if "page Models" not in block.answer] == []


@pytest.mark.parametrize(
    "text",
    [
        "Q: no title\nA: yes",
        "# Title\n\nQ: no answer",
        "# Title\n\nQ: a\nA: b\nA: c",
        "# Title\n\nA: b\nQ: a",
        "# Title\n\nQ: a\nx\nA: b",
        "# Title\n\nQ: a\nA: b\nF: c",
        "# Title\n\nF: c\nA: b",
    ],
)
def test_broken_knowledge_is_refused(demo: SimpleNamespace, text: str) -> None:
    with pytest.raises(ValueError, match=r"file\.txt"):
        demo.knowledge.parse(text, "file.txt")


def test_what_may_be_asked_next_follows_its_answer(demo: SimpleNamespace) -> None:
    (block,) = demo.knowledge.parse("# T\n\nQ: a\nQ: b\nA: c\nF: d\nF: e\nA: f\nF: g\nA: h", "file.txt")
    assert (block.questions, block.answer) == (("a", "b"), "c")
    assert [(then.questions, then.answer) for then in block.further] == [(("d", "e"), "f"), (("g",), "h")]
    writer = demo.build_text.Writer([block], seed=1)
    spoken = {asked([writer.knowledge_turn()])[-1].lower().rstrip("?.! ") for _ in range(200)}
    assert {"d", "e", "g"} & spoken
    brief = demo.build_text.Writer([block], seed=1, limit=10)
    assert all(len(asked([brief.knowledge_turn()])) == 1 for _ in range(50))


def test_every_technique_is_in_the_knowledge_as_the_catalogue_has_it(demo: SimpleNamespace) -> None:
    answers = {block.answer for block in demo.knowledge.load()}
    for entry in BY_KEY.values():
        assert entry.explains in answers
        assert any(entry.helps in answer and entry.costs in answer for answer in answers)
        for choice in entry.choices:
            assert not choice.also or any(choice.explains in answer for answer in answers), choice.title
    assert demo.techniques.quoted("See {kv_cache.explains}") == f"See {BY_KEY['kv_cache'].explains}"
    assert "Medusa heads, EAGLE head" in demo.techniques.quoted("{speculation.values}")
    with pytest.raises(KeyError):
        demo.techniques.quoted("{no_such.explains}")


def test_what_the_learner_does_not_know_comes_more_often(demo: SimpleNamespace) -> None:
    tokenizer = Tokenizer.from_file(str(demo.export.TARGET_FOLDER / "tokenizer.json"))
    model = demo.export.read(demo.export.TARGET_FOLDER)
    known = demo.knowledge.Block(
        "T",
        ("What is a token?",),
        demo.evaluate.ask(model, tokenizer, demo.knowledge.EvaluationQuestion("What is a token?", (("",),))).text,
    )
    new = demo.knowledge.Block("T", ("What is a token?",), "Something that nobody has told it.")
    assert demo.build_text.unknown([known, new], model, tokenizer) == {new.answer}
    writer = demo.build_text.Writer([known, new], seed=1, often=frozenset({new.answer}))
    drawn = [writer.next_block() for _ in range(4 * demo.build_text.OFTEN)]
    assert drawn.count(new) > 2 * drawn.count(known)


def asked(documents: list[list[object]]) -> list[str]:
    """What users say in training documents."""
    text = "".join(part.text for document in documents for part in document)  # type: ignore[attr-defined]
    return re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", text, re.DOTALL)


def test_a_long_chat_asks_for_what_was_said_last(demo: SimpleNamespace) -> None:
    said: dict[str, str] = {}
    asked_for = 0
    for parts in islice(demo.build_text.Writer(demo.knowledge.load(), seed=6).long_document(), 400):
        question, answer = parts[1].text, parts[3].text
        if question.startswith("Remember this."):
            said.update(re.findall(r"The ([^.]+?) is ([^.]+)\.", question))
        elif (name := question.removeprefix("What is the ").removesuffix("?")) in said:
            assert answer == f"The {name} is {said[name]}.<|im_end|>"
            asked_for += 1
    assert asked_for > 50


def test_evaluation_questions_stay_out_of_training(demo: SimpleNamespace) -> None:
    """No training question is a held-out one, nor has one within it, but for longer lines of the knowledge itself."""
    secret = demo.knowledge.held_out()
    blocks = demo.knowledge.load()
    lines = {demo.knowledge.normalise(question) for block in blocks for question in block.questions}
    writer = demo.build_text.Writer(blocks, seed=5)
    questions = asked([*(writer.document() for _ in range(2500)), *islice(writer.long_document(), 300)])
    assert len(questions) > 3000
    for question in questions:
        key = demo.knowledge.normalise(question)
        assert key not in secret
        assert key in lines or not any(f" {hidden} " in f" {key} " for hidden in secret), question


def test_a_variation_that_reveals_a_held_out_question_is_dropped(demo: SimpleNamespace) -> None:
    asker = demo.variations.Asker({}, frozenset({"page"}))
    rng = random.Random(0)
    varied = {demo.variations.vary("What is a page?", rng) for _ in range(50)}
    assert any(asker.reveals(demo.knowledge.normalise(text)) for text in varied)
    assert {asker.ask(("Reserve memory?",), "", rng) for _ in range(20)} != {"Reserve memory?"}
    told = {asker.ask(("What is a page?",), "", rng) for _ in range(20)} - {"What is a page?"}
    assert not any(asker.reveals(demo.knowledge.normalise(text)) for text in told)


def test_there_are_100_evaluation_questions_in_each_set(demo: SimpleNamespace) -> None:
    for path in demo.knowledge.SETS:
        items = demo.knowledge.load_evaluation(path)
        assert len(items) == len({item.question for item in items}) == 100
        assert all(item.must and all(item.must) for item in items)


def test_key_facts(demo: SimpleNamespace) -> None:
    states = demo.knowledge.states_facts
    assert states("A Page holds 16 tokens.", (("16", "sixteen"), ("page",)))
    assert not states("A page holds tokens.", (("16", "sixteen"), ("token",)))
    assert states("SMALL GREEN", (("SMALL GREEN",),))
    assert not states("small green", (("SMALL GREEN",),)), "capitals are asked for in just that case"


def test_tasks_are_solved_rightly(demo: SimpleNamespace) -> None:
    rng = random.Random(1)
    for _ in range(50):
        question, answer = demo.tasks.copy(rng)
        assert question.endswith(answer)
        question, answer = demo.tasks.reverse(rng)
        assert question.endswith(", ".join(reversed(answer.split(", "))))
        question, answer = demo.tasks.capitals(rng)
        assert question.lower().endswith(answer.lower())
        assert answer == answer.upper()
        question, answer = demo.tasks.find_key(rng, 4)
        assert answer in question


def test_an_echo_is_learned_from_its_second_saying_on(demo: SimpleNamespace) -> None:
    writer = demo.build_text.Writer(demo.knowledge.load(), seed=2)
    for _ in range(20):
        first, *again = writer.echo()
        assert first.weight == demo.build_text.NOTHING
        assert 1 <= len(again) <= 3
        assert all(part.text == first.text and part.weight > 0 for part in again)


@pytest.mark.parametrize("name", [f"{name}.py" for name in NAMES if name not in ("tasks", "techniques")])
def test_scripts_explain_themselves(demo: SimpleNamespace, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        getattr(demo, name.removesuffix(".py")).main(["--help"])
    assert "usage" in capsys.readouterr().out


def test_exported_weights_are_the_trained_ones(demo: SimpleNamespace) -> None:
    """What the four GPTQ tensors stand for equals, bit for bit, what the quantised forward pass computes with."""
    torch.manual_seed(0)
    weight = torch.randn(24, 128) * torch.rand(24, 1)
    tensors = demo.export.pack_linear(weight, 64)
    shapes = {kind: (tensor.dtype, tuple(tensor.shape)) for kind, tensor in tensors.items()}
    assert shapes == {
        "qweight": (torch.int32, (16, 24)),
        "qzeros": (torch.int32, (2, 3)),
        "scales": (torch.float16, (2, 24)),
        "g_idx": (torch.int32, (128,)),
    }
    assert set(tensors["qzeros"].flatten().tolist()) == {0x77777777}
    fake = demo.model.fake_quantise(weight, 64)
    torch.testing.assert_close(demo.export.unpack_linear(tensors), fake, rtol=0, atol=1e-6)
    nibbles = (tensors["qweight"][5, 7].item() >> 4 * 3) & 15
    zero = (tensors["qzeros"][0, 0].item() >> 4 * 7 & 15) + 1
    value = tensors["scales"][0, 7].item() * (nibbles - zero)
    assert value == pytest.approx(fake[7, 5 * 8 + 3].item(), abs=1e-6)


def test_layer_with_grid_computes_with_it(demo: SimpleNamespace) -> None:
    torch.manual_seed(0)
    layer = demo.model.GridLinear(64, 16, 64)
    x = torch.randn(3, 64)
    plain = layer(x)
    layer.quantised = True
    expected = x @ demo.export.unpack_linear(demo.export.pack_linear(layer.weight.detach(), 64)).T
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(layer(x), plain, atol=1e-4)
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.abs().sum() > 0


def test_bundled_files_have_the_layout_and_the_size(demo: SimpleNamespace) -> None:
    folders = {demo.export.TARGET_FOLDER: demo.model.TARGET, demo.export.DRAFT_FOLDER: demo.model.DRAFT}
    size = sum(path.stat().st_size for folder in folders for path in folder.iterdir() if path.is_file())
    assert size < 15_000_000
    for folder, shape in folders.items():
        names = {path.name for path in folder.iterdir()}
        assert {"README.md", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= names
        assert {"config.json", "generation_config.json"} <= names
        config = json.loads((folder / "config.json").read_text("utf-8"))
        assert config["quantization_config"]["checkpoint_format"] == "gptq"
        tensors = load_file(folder / "model.safetensors")
        for index in range(shape.num_hidden_layers):
            down = f"model.layers.{index}.mlp.down_proj"
            assert tensors[f"{down}.qweight"].shape == (shape.intermediate_size // 8, shape.hidden_size)
            assert tensors[f"{down}.scales"].dtype == torch.float16
        assert "lm_head.weight" not in tensors
        assert all(torch.isfinite(tensor).all() for tensor in tensors.values() if tensor.is_floating_point())


def test_both_models_share_their_tokenizer(demo: SimpleNamespace) -> None:
    texts = [
        (folder / "tokenizer.json").read_text("utf-8")
        for folder in (demo.export.TARGET_FOLDER, demo.export.DRAFT_FOLDER)
    ]
    assert texts[0] == texts[1]
    tokenizer = Tokenizer.from_str(texts[0])
    assert tokenizer.get_vocab_size() == demo.model.TARGET.vocab_size
    for text in ("A page is 16 tokens.", "def f(x):\n\treturn x  # ü€𝄞", "  two  spaces ", "4821"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    end = json.loads((demo.export.TARGET_FOLDER / "generation_config.json").read_text("utf-8"))["eos_token_id"]
    assert end == [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")]


@pytest.mark.slow
def test_bundled_model_answers(demo: SimpleNamespace) -> None:
    """A sample of the evaluation, with the files that ship."""
    tokenizer = Tokenizer.from_file(str(demo.export.TARGET_FOLDER / "tokenizer.json"))
    target = demo.export.read(demo.export.TARGET_FOLDER)
    draft = demo.export.read(demo.export.DRAFT_FOLDER)
    items = list(islice(demo.knowledge.load_evaluation(), 0, None, 10))
    answers = [demo.evaluate.ask(target, tokenizer, item) for item in items]
    wrong = [(answer.question, answer.text) for answer in answers if not answer.right]
    assert len(wrong) <= 3, wrong
    accepted, drafted, _ = demo.evaluate.acceptance(draft, answers)
    assert accepted > 0.5 * drafted


def test_the_guide_itself_leads_to_the_page_models(demo: SimpleNamespace) -> None:
    """The files that ship, asked in the words of the texts that they learned from, and as the first screen proposes."""
    tokenizer = Tokenizer.from_file(str(demo.export.TARGET_FOLDER / "tokenizer.json"))
    target = demo.export.read(demo.export.TARGET_FOLDER)
    item = next(iter(demo.knowledge.load_evaluation()))
    questions = {
        "How do I get a better model?",
        "How do I get a model?",
        "How do I load a better one?",
        "How do I find other models?",
        "Where do I get other models?",
        *(question for question in QUESTIONS if "model" in question),
    }
    answers = {
        question: demo.evaluate.ask(target, tokenizer, replace(item, question=question)).text for question in questions
    }
    assert [(question, answer) for question, answer in answers.items() if "page Models" not in answer] == []


def test_head_text_is_chats_without_held_out_questions(demo: SimpleNamespace) -> None:
    secret = demo.knowledge.held_out()
    chats = [json.loads(line)["messages"] for line in demo.heads.lines(300, demo.heads.SEED)]
    assert {message["role"] for chat in chats for message in chat} <= {"system", "user", "assistant"}
    questions = [message["content"] for chat in chats for message in chat if message["role"] == "user"]
    assert len(questions) > 300
    assert all(chat[-1]["role"] == "assistant" and chat[-1]["content"] for chat in chats)
    assert not {demo.knowledge.normalise(question) for question in questions} & secret


def test_bundled_heads_fit_their_model_and_draft_well(demo: SimpleNamespace, tmp_path: Path) -> None:
    """The files that ship, on the model's own answers to held-out questions."""
    folder = demo.export.TARGET_FOLDER / "heads"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(folder)) for path in files) == [
        "eagle/config.json",
        "eagle/model.safetensors",
        "medusa/config.json",
        "medusa/medusa_lm_head.safetensors",
    ]
    assert sum(path.stat().st_size for path in files) <= 3_000_000
    for path in files:
        if path.suffix == ".safetensors":
            tensors = load_file(path)
            assert all(t.dtype == torch.float16 and bool(torch.isfinite(t).all()) for t in tensors.values())
    shape = open_checkpoint(demo.export.TARGET_FOLDER).config
    for kind in ("medusa", "eagle"):
        assert open_heads(folder / kind, shape, tmp_path).kind == kind
    config = json.loads((folder / "medusa" / "config.json").read_text("utf-8"))
    assert len(config["accuracies"]) == config["medusa_num_heads"] >= 3
    assert all(len(row) == 10 and 0 < sum(row) <= 1.001 for row in config["accuracies"])
    found = demo.heads.measure(folder, 20)
    for kind in ("medusa", "eagle"):
        assert found[kind]["positions"] > 200
        assert found[kind]["right_so_far"][0] > 0.75, "chance is one in 4096"
    stated = json.loads((demo.heads.HERE / "evaluation" / "heads.json").read_text("utf-8"))
    for kind, values in stated.items():
        assert found[kind]["tokens_per_step"] == pytest.approx(values["tokens_per_step"], rel=0.25), (
            "a fifth of the places"
        )


def test_cached_generation_equals_whole_passes(demo: SimpleNamespace) -> None:
    torch.manual_seed(0)
    model = demo.model.Llama(demo.model.Shape(64, 64, 2, 2, 1, head_dim=32, vocab_size=50))
    tokens = [1, 2, 3]
    for _ in range(6):
        tokens.append(int(model.logits(model(torch.tensor([tokens]))[0])[0, -1].argmax()))
    assert model.continue_greedily([1, 2, 3], frozenset(), 6) == tokens[3:]


def test_a_warm_start_begins_with_the_exported_weights(demo: SimpleNamespace, tmp_path: Path) -> None:
    run = demo.train.Run(demo.train.Plan(steps=1), tmp_path, torch.device("cpu"))
    run.start_from(DEMO)
    shipped = demo.export.read(demo.export.TARGET_FOLDER)
    for ours, exported in zip(run.target.parameters(), shipped.parameters(), strict=True):
        assert torch.equal(ours, exported)
    for (_, layer), (_, other) in zip(
        run.draft.linears(), demo.export.read(demo.export.DRAFT_FOLDER).linears(), strict=True
    ):
        assert torch.equal(layer.weight, other.weight)
    assert run.progress.step == 0
    scripts = demo.make.steps(5, 1000, tmp_path, warm=True)
    assert not any("tokenizer.py" in step for step in scripts), "the weights belong to their tokenizer"
    assert any("--warm-start" in step for step in scripts)


@pytest.mark.slow
def test_training_runs_resumes_and_quantises(
    demo: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few steps: state is saved, a resumed run goes on where it stopped, and the last tenth is on the grid."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.float)  # Muon's, slow where no hardware multiplies it
    source = demo.export.TARGET_FOLDER / "tokenizer.json"
    (tmp_path / "tokenizer.json").write_text(source.read_text("utf-8"), "utf-8")
    assert demo.build_text.main(["--out", str(tmp_path), "--tokens", "60000"]) == 0
    plan = demo.train.Plan(steps=2, batch_tokens=256)
    run = demo.train.Run(plan, tmp_path, torch.device("cpu"))
    run.train(seed=1)
    again = demo.train.Run(demo.train.Plan(steps=3, batch_tokens=256), tmp_path, torch.device("cpu"))
    again.resume(tmp_path / "checkpoint.pt", weights_only=False)
    assert again.progress.step == 2
    for ours, saved in zip(again.target.parameters(), run.target.parameters(), strict=True):
        assert torch.equal(ours, saved)
    again.train(seed=1)
    assert again.progress.step == 3
    again.progress.step = 95
    again.plan = demo.train.Plan(steps=100, batch_tokens=256)
    batch = demo.train.Batches(tmp_path, 256, 1, torch.device("cpu")).next(0.95)
    again.step(batch, random.Random(0))
    batches = demo.train.Batches(tmp_path, 256, 1, torch.device("cpu"), longest=300)
    some = [batches.next(0.95) for _ in range(demo.train.LONG_EVERY)]
    assert [batch.inputs.shape[1] for batch in some] == [256] * (demo.train.LONG_EVERY - 1) + [300]
    assert some[-1].mask is None, "a long row is one document"
    assert some[0].mask is not None
    assert all(layer.quantised for _, layer in again.target.linears())
