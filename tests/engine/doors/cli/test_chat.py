from __future__ import annotations

import _thread
import io
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from engine.catalogue import OptionError
from engine.doors.cli.chat import ChatArguments, TerminalChat, _about_thinking, _named, harmless, split_switches
from engine.doors.cli.errors import CommandFailed
from engine.doors.cli.main import app
from engine.doors.security import Allowed
from engine.loop.commands import AddRequest, Command
from engine.loop.events import Event
from engine.protocol import Cancel, Delta, LoadOptions, Sampling, Thinking, ThinkingModes, TokenInfo
from engine.services.answers.request import AnswerRequest, PromptTokens
from engine.services.client import EngineClient, EngineError
from engine.services.residency import Policy
from engine.text.template import ChatTemplate
from tests.engine.doors.network.fake import FakeEngine, card

PATIENCE_S = 120


@pytest.fixture
def engine() -> Iterator[EngineClient]:
    made = EngineClient(make_engine=lambda emit, device, saved: FakeEngine(emit))  # type: ignore[arg-type,return-value]
    yield made
    fake(made).gate.set()
    made.close()


def fake(engine: EngineClient) -> FakeEngine:
    return engine.engine  # type: ignore[return-value]


def chat(engine: EngineClient, **settings: Any) -> tuple[TerminalChat, io.StringIO]:
    errors = io.StringIO()
    made = ChatArguments(**settings)
    return TerminalChat(engine, made, {}, Console(file=errors, width=200)), errors


def backwards(engine: EngineClient, text: str) -> str:
    tokenizer = fake(engine).loaded.files.tokenizer
    return tokenizer.decode(tokenizer.encode(text)[::-1])


def test_one_answer_goes_to_standard_output(engine: EngineClient, capsys: pytest.CaptureFixture[str]) -> None:
    talk, errors = chat(engine, raw=True, stats=True, sampling=Sampling(seed=4, max_tokens=100))
    assert talk.once("abc def") == 0
    captured = capsys.readouterr()
    assert captured.out == backwards(engine, "abc def") + "\n"
    stats = json.loads(captured.err)
    assert stats["model"] == "tiny"
    assert stats["timings"]["tokens_per_second"] == 20.0
    assert stats["usage"]["generated_tokens"] > 0
    assert stats["options"]["kv_cache"] is True
    assert errors.getvalue() == ""
    command = fake(engine).seen[-1]
    assert isinstance(command, AddRequest)
    assert command.continues
    assert command.sampling.seed == 4


def test_a_conversation(
    engine: EngineClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n\n/help\n/what\nx\n/reset\ny\n/quit\nnever read\n"))
    talk, errors = chat(engine, system="S")
    assert talk.converse() == 0
    requests = [c for c in fake(engine).seen if isinstance(c, AddRequest)]
    decode = fake(engine).loaded.files.tokenizer.decode
    prompts = [decode(list(r.prompt_ids), False) for r in requests]
    assert [p.count("<|im_start|>user") for p in prompts] == [1, 2, 1]
    assert all(p.startswith("<|im_start|>system\nS<|im_end|>") for p in prompts)
    assert "no command /what" in errors.getvalue()
    assert "/reset   forget" in errors.getvalue()
    assert "20.0 tok/s" in errors.getvalue()


def test_an_error_does_not_end_the_conversation(
    engine: EngineClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("z" * 300 + "\nhi\n"))
    talk, errors = chat(engine)
    assert talk.converse() == 0
    assert "The prompt is too long. Shorten it." in errors.getvalue()
    assert len(capsys.readouterr().out) > 2
    with pytest.raises(EngineError, match="too long"):
        talk.once("z" * 300)


def test_ctrl_c_stops_the_answer_and_not_the_program(engine: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(io.StringIO):
        def write(self, text: str) -> int:
            if self.getvalue() == "" and text:
                super().write(text)
                fake(engine).gate.clear()  # the engine would go on for ever
                raise KeyboardInterrupt
            return super().write(text)

    out = Interrupted()
    monkeypatch.setattr("sys.stdout", out)
    talk, _ = chat(engine, raw=True)
    monkeypatch.setattr(engine, "_abandon", lambda names, old=engine._abandon: (fake(engine).gate.set(), old(names)))
    # The cancellation is queued before the gate opens in the real order too: the fake looks at it after each token.
    answer = talk.ask("abcdef ghijkl mnopqr stuvwx")
    assert answer.finished is None
    assert answer.text
    assert len(fake(engine).cancelled) == 1
    assert talk.ask("ab").text == backwards(engine, "ab")


def test_a_model_does_not_steer_the_terminal() -> None:
    assert harmless("a\x1b[2J\x07\x9bb\tc\nd é🎉") == "a[2Jb\tc\nd é🎉"


def test_switches() -> None:
    assert split_switches({"token_budget": "64", "speculation": "ngram", "draft_length": "3"}) == (
        {"token_budget": 64},
        {"speculation": "ngram", "draft_length": 3},
    )
    for bad in ({"nothing": "1"}, {"token_budget": "many"}, {"kv_cache": "off", "speculation": "ngram"}):
        with pytest.raises(OptionError):
            split_switches(bad)


def test_set_waits_until_it_holds(engine: EngineClient) -> None:
    engine.set("token_budget", 64)
    assert fake(engine).values["token_budget"] == 64
    with pytest.raises(EngineError, match="lies between"):
        engine.set("token_budget", 1)


def test_load(engine: EngineClient) -> None:
    stages: list[str] = []
    assert engine.load("/x/good", progress=lambda stage, fraction: stages.append(stage))[0].name == "good"
    assert stages == ["reading weights"]
    with pytest.raises(EngineError, match="damaged"):
        engine.load("/x/broken")


def test_a_dead_engine_is_said(engine: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(engine).fail_step = True
    monkeypatch.setattr("threading.excepthook", lambda args: None)
    with pytest.raises(EngineError, match="The engine stopped"):
        list(engine.stream(AnswerRequest(""), PromptTokens([1, 2, 3])))


def test_ctrl_c_is_heard_while_the_engine_is_silent(
    engine: EngineClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As during a long prompt: no event comes, and the main thread waits."""
    waits, wait, queue = threading.Event(), engine._next, fake(engine).submit

    def next_event() -> Event:
        waits.set()
        return wait()

    def submit(command: Command) -> None:
        queue(command)
        if isinstance(command, Cancel):
            fake(engine).gate.set()

    def press() -> None:
        assert waits.wait(PATIENCE_S)
        _thread.interrupt_main()

    # Background shells start programs that ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    fake(engine).gate.clear()
    monkeypatch.setattr(engine, "_next", next_event)
    monkeypatch.setattr(fake(engine), "submit", submit)
    finger = threading.Thread(target=press)
    finger.start()
    talk, _ = chat(engine, raw=True)
    try:
        answer = talk.ask("abcdef")
    finally:
        signal.signal(signal.SIGINT, before)
    finger.join()
    assert answer.finished is None
    assert len(fake(engine).cancelled) == 1
    assert talk.ask("ab").text == backwards(engine, "ab")


def test_thinking_is_dimmed_on_standard_error_for_a_person_only(
    engine: EngineClient, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(engine).thinks = 3
    talk, errors = chat(engine, raw=True)
    assert talk.once("abc def") == 0
    said = capsys.readouterr().out
    assert errors.getvalue() == ""
    screen = io.StringIO()
    person = TerminalChat(engine, ChatArguments(raw=True), {}, Console(file=screen, width=200, force_terminal=True))
    answer = person.ask("abc def")
    assert capsys.readouterr().out == said == answer.text + "\n"
    assert answer.thinking + answer.text == backwards(engine, "abc def")
    assert answer.thinking
    assert "\x1b[2m" in screen.getvalue()
    assert (
        "".join(part.split("m", 1)[-1] for part in screen.getvalue().split("\x1b[")).strip() == answer.thinking.strip()
    )


def test_thinking_without_a_word_leaves_no_trace(engine: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def stream(*_: object) -> Iterator[Delta]:
        yield Delta(id="a", answer=0, text="", tokens=[TokenInfo(id=1)], channel="thinking")
        yield Delta(id="a", answer=0, text="Yes.", tokens=[TokenInfo(id=2)])

    screen = io.StringIO()
    monkeypatch.setattr(engine, "stream", stream)
    person = TerminalChat(engine, ChatArguments(raw=True), {}, Console(file=screen, force_terminal=True))
    answer = person.ask("abc")
    assert (answer.text, answer.thinking) == ("Yes.", "")
    assert screen.getvalue() == ""


def test_thinking_is_switched_in_the_conversation(
    engine: EngineClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = fake(engine).loaded
    loaded.files.template = ChatTemplate(
        "{{ enable_thinking }}|{{ reasoning_effort }}|{% for m in messages %}{{ m.thinking }}{% endfor %}"
    )
    fake(engine).thinks = 2
    modes = ThinkingModes(kind="switchable", efforts=["low", "medium", "high"])
    loaded.card = msgspec.structs.replace(loaded.card, thinking=modes)
    monkeypatch.setattr("sys.stdin", io.StringIO("a\n/think on\nb\n/think low\nc\n/think off\n/think maybe\nd\n"))
    talk, errors = chat(engine)
    assert talk.converse() == 0
    requests = [c for c in fake(engine).seen if isinstance(c, AddRequest)]
    prompts = [loaded.files.tokenizer.decode(list(request.prompt_ids)) for request in requests]
    heads = ["||", "True||", "True|low|", "False|low|"]
    assert [prompt[: len(head)] for prompt, head in zip(prompts, heads, strict=True)] == heads
    assert prompts[0] == heads[0]
    assert all(len(prompts[i]) > len(heads[i]) for i in (1, 2, 3))  # what the answers before it thought
    assert "/think takes on, off, low, medium, high." in errors.getvalue()
    loaded.card = msgspec.structs.replace(loaded.card, thinking=ThinkingModes())
    talk._command("/think on")
    assert "cannot be switched" in errors.getvalue()


def test_what_the_command_line_asks_of_thinking_is_checked() -> None:
    made = card("/models/tiny")
    assert _about_thinking(made, Thinking()) == ""
    assert _about_thinking(made, Thinking(on=False)) == ""
    assert "tiny cannot switch its thinking" in _about_thinking(made, Thinking(on=True))
    with pytest.raises(CommandFailed, match="Leave --effort out"):
        _about_thinking(made, Thinking(effort="low"))
    knows = msgspec.structs.replace(made, thinking=ThinkingModes(kind="always", efforts=["low", "high"]))
    assert _about_thinking(knows, Thinking(effort="low")) == ""
    with pytest.raises(CommandFailed, match="Use low, high"):
        _about_thinking(knows, Thinking(effort="most"))


def test_notices_are_said_before_an_answer_and_not_beside_an_error(
    engine: EngineClient, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = io.StringIO()
    talk = TerminalChat(engine, ChatArguments(raw=True), {}, Console(file=errors, width=200), ["Computing in float32."])
    with pytest.raises(EngineError, match="too long"):
        talk.once("z" * 300)
    assert errors.getvalue() == ""
    for _ in range(2):
        assert talk.once("abc") == 0
    assert errors.getvalue() == "Computing in float32.\n"


def test_who_is_named_beside_the_model_drafts() -> None:
    heads = Path(__file__).parents[4] / "assets" / "demo" / "kvasir-guide" / "heads"
    made = card("/models/tiny")
    with_heads = msgspec.structs.replace(made, heads=["medusa", "eagle"])
    assert _named(str(heads / "medusa"), with_heads) == "medusa"
    assert _named(str(heads / "eagle" / "model.safetensors"), with_heads) == "eagle"
    assert _named(str(heads / "medusa"), msgspec.structs.replace(made, draft_refused="They cannot.")) == ""
    assert _named(str(heads / "medusa"), made) == ""
    assert _named("/models/small", msgspec.structs.replace(with_heads, draft="small")) == "draft"


def test_the_context_and_the_packing_go_with_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of chat, serve and doctor; `kvasir models check` is tested on its own."""
    asked: list[object] = []

    def load(*arguments: object, **_: object) -> NoReturn:
        given = (value.options if isinstance(value, Policy) else value for value in arguments)
        asked.extend(value for value in given if isinstance(value, LoadOptions))
        raise CommandFailed("seen")

    monkeypatch.setattr("engine.services.client.EngineClient.load", load)
    monkeypatch.setattr("engine.doors.cli.serve.run_server", load)
    for command in (["chat", "--prompt", "hi"], ["doctor"], ["serve"]):
        result = CliRunner().invoke(app, [*command, "--context", "640", "--quantise", "nf4"])
        assert (result.exit_code, "seen" in result.output) == (1, True), result.output
    assert asked == [LoadOptions(context=640, quantise="nf4")] * 3


def test_serve_hands_on_what_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Policy] = []
    seen: list[Allowed] = []

    def serve(*arguments: object) -> NoReturn:
        asked.extend(value for value in arguments if isinstance(value, Policy))
        seen.extend(value for value in arguments if isinstance(value, Allowed))
        raise CommandFailed("seen")

    monkeypatch.setattr("engine.doors.cli.serve.run_server", serve)
    monkeypatch.setattr("engine.doors.cli.serve.run_child", serve)
    for given in ([], ["--load-on-demand", "--unload-after", "0.5"], ["--child", "--unload-after", "10"]):
        assert "seen" in CliRunner().invoke(app, ["serve", *given]).output
    assert asked == [Policy(), Policy(30.0, True), Policy(600.0)]
    asked.clear()
    let_in = [
        "--allow-origin",
        "http://localhost:3000/",
        "--allow-origin",
        "vscode-webview://*",
        "--allow-host",
        "nas:1",
    ]
    CliRunner().invoke(app, ["serve", *let_in])
    assert seen[-1] == Allowed(["http://localhost:3000", "vscode-webview://*"], ["nas:1"])
    for wrong in (
        ["--allow-origin", "localhost:3000"],
        ["--allow-origin", "http://a/b"],
        ["--allow-host", "http://nas"],
    ):
        assert CliRunner().invoke(app, ["serve", *wrong]).exit_code == 2
    refused = CliRunner().invoke(app, ["serve", "--child", "--load-on-demand"])
    assert (refused.exit_code, "The window chooses models itself." in refused.output) == (2, True)
