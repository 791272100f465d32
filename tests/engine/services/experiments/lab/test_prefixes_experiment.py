"""Prefix caching in the Lab with the bundled model, and `kvasir lab`, which runs it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from engine.doors.cli.main import app
from engine.protocol import LoadOptions, keys
from engine.protocol.compared import busy_or_quiet
from engine.protocol.lab import LabIndex, LabLine, LabPicture, LabProgress, LabResult, Tree
from engine.services.client import EngineClient, EngineError
from engine.services.experiments import laboratory
from engine.services.experiments.experiment import Experiment, Lab, LabError
from engine.services.experiments.lab import BY_NAME, prefixes
from engine.services.experiments.lab.prefixes import ANSWER, USERS, common_of
from engine.services.experiments.workloads import conversations as workload

TEXT, PAGE = 120, 16
Recorded = tuple[list[LabLine], LabResult]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "LONGEST", TEXT)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    return tmp_path


@contextlib.contextmanager
def roomily(guide: EngineClient) -> Iterator[EngineClient]:
    """The guide, reading all prompts in one step, so that all users hold their pages at the same time.

    In batch-invariant arithmetic no near-tie can part the texts.
    """
    with Lab(guide).switched({keys.TOKEN_BUDGET: 2048, keys.BATCH_INVARIANT: True}):
        yield guide


@pytest.fixture
def roomy(guide: EngineClient) -> Iterator[EngineClient]:
    with roomily(guide) as client:
        yield client


@pytest.fixture(scope="module")
def recorded(guide: EngineClient) -> Recorded:
    """A run of the experiment: what it told, and its result."""
    told: list[LabLine] = []
    with pytest.MonkeyPatch.context() as patch, roomily(guide):
        patch.setattr(prefixes, "LONGEST", TEXT)
        return told, laboratory.run(Lab(guide, pairs=1), BY_NAME["prefixes"], told.append)


@pytest.fixture
def replayed(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """`kvasir lab` without a model, whose runs are the recorded one; by name, seed and pairs what was run."""
    ran: list[tuple[str, int, int]] = []

    def run(lab: Lab, experiment: Experiment, show: Callable[[LabLine], object]) -> LabResult:
        ran.append((experiment.page.name, lab.seed, lab.pairs))
        for line in recorded[0]:
            show(line)
        return msgspec.structs.replace(recorded[1], seed=lab.seed)

    monkeypatch.setattr(laboratory, "run", run)
    monkeypatch.setattr(EngineClient, "load", lambda *_: None)
    return ran


def test_numbers_agree_with_a_count_by_hand(roomy: EngineClient, recorded: Recorded) -> None:
    lab = Lab(roomy, pairs=1)
    told, result = recorded
    computed, first, pages = result.figures
    prompts = workload.asking(lab, TEXT, USERS, turn=1)  # after the warm-up
    lengths, shared = list(map(len, prompts)), common_of(prompts)
    assert PAGE < shared <= TEXT
    whole = [ceil((length + ANSWER - 1) / PAGE) for length in lengths[1:]]  # the last token of an answer is never read
    # All but the first find whole pages of the text, and copy the page in which it ends; the first one finds what the
    # chat template begins with, of an earlier conversation.
    before = [workload.asking(lab, TEXT, USERS, turn=0)[0], *[prompts[0]] * (USERS - 1)]
    found = sum(common_of(pair) for pair in zip(prompts, before, strict=True))
    assert computed.runs == [[sum(lengths)], [sum(lengths) - found]]
    # A full page with the same text from the start is held once, whoever read it; an unfinished one by its user alone.
    full = {tuple(prompt[:end]) for prompt in prompts[1:] for end in range(PAGE, len(prompt) + 1, PAGE)}
    own = sum(each - len(prompt) // PAGE for each, prompt in zip(whole, prompts[1:], strict=True))
    assert pages.runs == [[sum(whole)], [len(full) + own]]
    assert result.headline.endswith(f": {computed.runs[1][0]:,.0f} instead of {computed.runs[0][0]:,.0f}.")
    assert result.figures[result.asked] == first
    assert result.text is not None
    assert result.text.same
    assert result.text.tokens == USERS * ANSWER
    assert (result.name, result.seed, result.sides) == ("prefixes", 1, BY_NAME["prefixes"].page.sides)
    apart, tree = result.pictures
    assert isinstance(apart, Tree)
    assert isinstance(tree, Tree)
    assert [node.tokens for node in apart.nodes] == lengths
    assert sum(node.tokens for node in tree.nodes) == sum(lengths) - (USERS - 1) * shared
    assert {type(line) for line in told} == {LabProgress, LabPicture}


def test_every_run_has_another_conversation_and_users_ask_unlike_questions(guide: EngineClient) -> None:
    lab = Lab(guide)
    runs = [workload.asking(lab, 400, 3, turn) for turn in range(8)]
    assert all(common_of(prompts) > 200 for prompts in runs)
    assert all(len({tuple(prompt) for prompt in prompts}) == 3 for prompts in runs)
    assert common_of([prompts[0] for prompts in runs]) < PAGE


def test_settings_are_checked_and_only_those_that_are_not_usual_count(roomy: EngineClient) -> None:
    experiment = BY_NAME["prefixes"]
    chosen = laboratory.chosen(experiment, {"users": "3", "text": "3000"})
    assert chosen == {"users": 3}
    result = laboratory.run(Lab(roomy, seed=2, pairs=1, chosen=chosen), experiment, lambda _: None)
    assert len(result.pictures[0].nodes) == 3
    assert (result.chosen, result.settings["users"]) == ({"users": 3}, 3)
    for key, value, sentence in (
        ("users", "33", "users is a number from 3 to 32, not '33'."),
        ("users", "two", "users is a number from 3 to 32, not 'two'."),
        ("text", "300", "text is a number from 200 to 8,000 in steps of 200, not '300'."),
        ("text", "8" * 5000, f"text is a number from 200 to 8,000 in steps of 200, not '{'8' * 20}…'."),
        ("shoes", "3", "prefixes has no setting called 'shoes': it has text, users."),
    ):
        told = lab("prefixes", "--set", f"{key}={value}")
        assert (told.exit_code, told.stderr) == (1, f"kvasir: {sentence}\n")
    assert "kv_cache has no setting called 'users': it has none." in lab("kv_cache", "--set", "users=3").stderr
    for names in ((), ("all",), ("roofline",), ("prefixes", "quest"), ("prefixes", "roofline"), ("--results",)):
        told = lab(*names, "--set", "users=4")
        assert told.exit_code == 2
        assert "A setting is of one experiment" in " ".join(told.stderr.split())
    assert "such as users=4" in " ".join(lab("prefixes", "--set", "users").stderr.split())
    for each in BY_NAME.values():
        for setting in each.page.adjustable:
            assert setting.least <= setting.usual <= setting.most
            assert (setting.usual - setting.least) % setting.step == 0, "the slider reaches what is usual"
            assert (setting.most - setting.least) % setting.step == 0


def test_a_slow_model_reads_a_shorter_text(guide: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for speed, longest, length in ((1e6, 3000, 3000), (1000.0, 3000, 800), (10.0, 3000, 128), (10.0, 70, 70)):
        monkeypatch.setattr(workload, "reading_speed", lambda lab, speed=speed: speed)
        assert workload.affordable(Lab(guide, budget=40.0), longest, 128, reads=100) == length


def test_a_model_without_a_tokenizer_is_refused(guide: EngineClient) -> None:
    bare = dataclasses.replace(guide.model, files=None)
    for name in ("prefixes", "batching"):
        refusal = BY_NAME[name].refuses(bare, guide.state())
        assert refusal is not None
        assert "no tokenizer" in refusal.why


def lab(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["lab", "--device", "cpu", *arguments], prog_name="kvasir")


def lines(result: Result) -> list[LabLine]:
    return [msgspec.json.decode(line, type=LabLine) for line in result.stdout.splitlines()]


def test_the_list() -> None:
    (index,) = lines(lab("--json"))
    assert isinstance(index, LabIndex)
    assert [page.number for page in index.pages] == sorted(each.page.number for each in BY_NAME.values())
    assert {page.name for page in index.pages} == set(BY_NAME)
    assert not any(page.refused for page in index.pages if page.name in ("prefixes", "batching", "heads"))


def test_an_unknown_name() -> None:
    result = lab("perpetuum")
    assert result.exit_code == 1
    assert result.stderr.startswith("kvasir: There is no experiment called 'perpetuum': there are ")
    assert "prefixes" in result.stderr


def test_all_goes_on_after_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that another bundled model can show run with it, and the others with the model that was asked for."""
    ran: list[tuple[str, str, str]] = []

    def run(lab: Lab, experiment: Experiment, show: object) -> LabResult:
        ran.append((experiment.page.name, lab.model.card.name, lab.model.command.options.dtype))
        raise LabError("It cannot.")

    monkeypatch.setattr(laboratory, "run", run)
    monkeypatch.setattr(laboratory, "BY_NAME", {name: BY_NAME[name] for name in ("kivi", "window", "prefixes")})
    monkeypatch.setattr("engine.services.experiments.lab.BY_NAME", laboratory.BY_NAME)
    result = lab("all", "--dtype", "float32")
    assert result.exit_code == 1
    models = {"kivi": "kvasir-needle", "window": "kvasir-guide", "prefixes": "kvasir-guide"}
    assert ran == [(name, model, "float32") for name, model in models.items()]
    assert result.stderr.splitlines() == [f"kvasir: {name}: It cannot." for name in models]


@pytest.mark.slow
def test_one_that_is_refused_does_not_keep_another_from_running() -> None:
    result = lab("kivi", "prefixes", "--pairs", "1")
    assert result.exit_code == 0
    assert result.stderr.startswith("kvasir: kivi: kvasir-guide never learned ")
    assert result.stdout.startswith("prefixes: ")
    assert lab("kivi").exit_code == 1


def test_results_are_kept_and_shown_again(home: Path, replayed: list[tuple[str, int, int]]) -> None:
    first = lab("prefixes", "--pairs", "1", "--seed", "7", "--json")
    assert first.exit_code == 0, first.stderr
    assert replayed == [("prefixes", 7, 1)]
    *told, result = lines(first)
    assert isinstance(result, LabResult)
    assert (result.seed, result.model) == (7, "kvasir-guide")
    assert all(isinstance(line, LabProgress | LabPicture) for line in told)
    assert lines(lab("--results", "--json")) == [result]
    shown = lab("--results").stdout
    assert all(sentence in shown for sentence in (result.headline, result.second, busy_or_quiet(result.others)))
    (file,) = (home / "data" / "lab").glob("*.json")
    file.with_name("broken.json").write_text("{", "utf-8")  # passed over
    older = msgspec.structs.replace(result, date="2020-01-01T00:00:00+00:00", headline="An older one.")
    file.with_name("older.json").write_bytes(msgspec.json.encode(older))
    tried = msgspec.structs.replace(result, date="2100-01-01T00:00:00+00:00", chosen={"users": 12, "text": 8000})
    file.with_name("tried.json").write_bytes(msgspec.json.encode(tried))
    assert lines(lab("--results", "--json")) == [result], "the window shows the newest of each that is as usual"
    assert older.headline in lab("--results").stdout
    assert (
        f"prefixes with users=12, text=8000 (cut to {result.settings['text']}): {result.headline}"
        in lab("--results").stdout
    )


def test_the_model_is_loaded_as_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nf4" in lab("prefixes", "--quantise", "int3").stderr
    assert lab("--context", "0").exit_code == 2
    assert "neither GB, such as 6.5, nor a share" in " ".join(lab("--memory", "much").stderr.split())
    asked = []

    def load(client: EngineClient, path: str, draft: str, options: LoadOptions) -> None:
        asked.append(options)
        raise EngineError("It does not fit.")

    monkeypatch.setattr(EngineClient, "load", load)
    assert lab("--memory", "6.5", "--dtype", "float32", "--context", "4096").exit_code == 1
    lab("--memory", "60%")
    assert asked[0] == LoadOptions(memory=6.5e9, dtype="float32", context=4096, device="cpu")
    assert asked[1].memory == pytest.approx(0.6)


@pytest.mark.usefixtures("replayed")
def test_a_result_that_cannot_be_kept_is_shown(home: Path) -> None:
    (home / "data").mkdir()
    (home / "data" / "lab").write_text("in the way", "utf-8")
    result = lab("prefixes", "--pairs", "1")
    assert result.exit_code == 0
    assert "prompt tokens computed" in result.stdout
    assert result.stderr.startswith("kvasir: the result could not be kept: ")
