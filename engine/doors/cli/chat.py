"""`kvasir chat`: a conversation in the terminal, or one answer on standard output."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from engine import catalogue
from engine.base.errors import plain
from engine.base.terminal import console as plain_console
from engine.catalogue import OptionError
from engine.decoding.scheduling.service import INTERACTIVE
from engine.decoding.speculation.heads.files import kind_of
from engine.doors.cli.errors import CommandFailed
from engine.doors.cli.tools import TerminalTools
from engine.library import paths as config
from engine.protocol import (
    FAILED,
    CallCollector,
    ChatMessage,
    Finished,
    LoadOptions,
    ModelCard,
    Sampling,
    StructuredOutput,
    Thinking,
    ToolCall,
    Value,
    keys,
)
from engine.protocol.rounds import ENOUGH, MOST_ROUNDS, seen_by
from engine.services.answers.answering import prompt_tokens
from engine.services.answers.refused import Refused
from engine.services.answers.request import AnswerRequest
from engine.services.answers.structured import held
from engine.services.client import CLOSE_SECONDS, EngineClient, EngineError
from engine.text.prompt import PromptForm

HELP = """/help    this list
/think   on, off or an effort (low, medium, high), where the model has them
/tools   the tools of MCP servers: their names, all or off; without any, which there are
/calls   calls of tools and their results since your last message, as a whole
/reset   forget the conversation
/quit    leave (also Ctrl-D)
Ctrl-C   stop the answer"""


ADAPTER = "the adapter"
"""The name of the one that was given on the command line."""


@dataclass(frozen=True, slots=True)
class ChatArguments:
    """The command line, checked for form. ``draft`` None takes the model's own; ``switches`` are catalogue entries."""

    model: str = ""
    draft: str | None = None
    system: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    switches: Mapping[str, str] = field(default_factory=dict)
    device: str = "auto"
    stats: bool = False
    raw: bool = False
    thinking: Thinking = field(default_factory=Thinking)
    load_options: LoadOptions = field(default_factory=LoadOptions)
    adapter: str = ""
    """The folder of a LoRA adapter that answers."""
    structured: StructuredOutput | None = None
    tools: Sequence[str] = ()
    """Names of the MCP servers whose tools an answer may call, or "all"."""


class FinishedAnswer(msgspec.Struct, frozen=True):
    """One answer as it ended; ``finished`` is None when Ctrl-C stopped it. ``calls`` are those that want results."""

    text: str
    thinking: str
    finished: Finished | None
    calls: list[ToolCall] = []

    @property
    def message(self) -> ChatMessage:
        return ChatMessage.of("assistant", self.text, thinking=self.thinking, calls=self.calls)


def run_chat(settings: ChatArguments, prompt: str | None) -> int:
    """Returns the exit code. Raises errors whose message is a sentence."""
    logging.basicConfig(level=logging.ERROR, format="%(message)s", stream=sys.stderr)
    path, draft = config.resolve(settings.model, settings.draft)
    for_engine, for_request = split_switches(settings.switches)
    console = plain_console(stderr=True)
    engine = EngineClient(device=settings.device)
    try:
        for key in [key for key in for_engine if catalogue.option(key).applies == "reload"]:
            engine.set(key, for_engine.pop(key))  # before the load, so that there is only one
        with console.status("loading") as status:
            card, _ = engine.load(
                path, draft, settings.load_options, lambda stage, done: status.update(f"{stage} {100 * done:.0f} %")
            )
        for key, value in for_engine.items():
            engine.set(key, value)
        if settings.adapter:
            engine.load_adapter(ADAPTER, settings.adapter)
        notices = [card.computing, *card.notices, card.draft_refused, _about_thinking(card, settings.thinking)]
        if settings.draft and (named := _named(draft, card)):
            for_request.setdefault(keys.SPECULATION, named)  # whoever names a draft wants it used
        chat = TerminalChat(engine, settings, for_request, console, list(filter(None, notices)))
        return chat.once(prompt) if prompt is not None else chat.converse()
    finally:
        engine.close(CLOSE_SECONDS)


def _named(draft: str, card: ModelCard) -> str:
    """The draft method of the draft model or the heads that were asked for; "" where they are not in use."""
    if card.draft or card.draft_refused:
        return "draft" if card.draft else ""
    kind = kind_of(Path(draft), config.copies_folder())
    return kind if kind is not None and kind in card.heads else ""


def harmless(text: str) -> str:
    """The text without control characters: what a model writes must not steer the terminal."""
    return plain(text, keep="\n\t", instead="")


def readable(text: str) -> str:
    """The text with U+FFFD for bytes that are no UTF-8, which the terminal or the shell passed on incomplete."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def split_switches(texts: Mapping[str, str]) -> tuple[dict[str, Value], dict[str, Value]]:
    """Engine-wide switches and those of one request, each value of its own type. Raises OptionError."""
    for_engine: dict[str, Value] = {}
    for_request: dict[str, Value] = {}
    for key, text in texts.items():
        option = catalogue.option(key)
        target = for_request if option.scope == "request" else for_engine
        target[key] = option.parse(text)
    problem = catalogue.conflict({**catalogue.defaults(), **for_engine, **for_request})
    if problem:
        raise OptionError(problem)
    return for_engine, for_request


class TerminalChat:
    """The conversation. The answers go to standard output, everything else to standard error.

    ``notices`` are said once, before the first answer: next to an error they would be a second sentence.
    """

    def __init__(
        self,
        engine: EngineClient,
        settings: ChatArguments,
        optimisations: Mapping[str, Value],
        console: Console,
        notices: Sequence[str] = (),
    ) -> None:
        self._engine, self._settings, self._console, self._notices = engine, settings, console, notices
        self._optimisations = dict(optimisations)
        self._thinking = settings.thinking
        self._tools = TerminalTools(console, settings.tools)
        self.reset()

    def reset(self) -> None:
        system = readable(self._settings.system)
        self._messages = [ChatMessage.of("system", system)] if system else []

    def once(self, prompt: str) -> int:
        """One answer; 130 when Ctrl-C stopped it. Raises :class:`CommandFailed` when it could not be finished."""
        prompt = readable(prompt)
        answer = self.ask(prompt) if self._settings.raw else self._answered(prompt)
        if answer.finished is None:
            return 130
        if answer.calls:
            raise CommandFailed(ENOUGH)
        if answer.finished.reason in FAILED:
            raise CommandFailed(answer.finished.detail or "The answer could not be finished. Try again.")
        return 0

    def converse(self) -> int:
        """Read lines until the end of input."""
        card = self._engine.model.card
        name = f"{card.name} with {card.draft}" if card.draft else card.name
        self._console.print(name, style="bold", end="")
        self._console.print(f"  {card.quantisation}, context {card.context:,}. /help lists the commands.")
        self._say_notices()
        interactive = sys.stdin.isatty()
        while True:
            try:
                line = self._console.input(Text("> ", style="bold")) if interactive else input()
            except EOFError:
                return 0
            except KeyboardInterrupt:
                self._console.print("\n/quit or Ctrl-D leaves", style="dim")
                continue
            line = readable(line)
            if line.strip().startswith("/"):
                if not self._command(line.strip()):
                    return 0
            elif line.strip():
                self._turn(line)

    def _command(self, line: str) -> bool:
        """Obey a command; False means to leave."""
        match line.split()[0]:
            case "/quit" | "/exit":
                return False
            case "/reset":
                self.reset()
                self._console.print("The conversation is forgotten.", style="dim")
            case "/think":
                self._think(line.split()[1:])
            case "/tools":
                self._tools.choose(line.split()[1:])
            case "/calls":
                last = max((at for at, each in enumerate(self._messages) if each.role == "user"), default=0)
                self._tools.show([part for message in self._messages[last:] for part in message.parts])
            case "/help":
                self._console.print(HELP)
            case unknown:
                self._console.print(f"There is no command {unknown}. /help lists them.")
        return True

    def _think(self, words: list[str]) -> None:
        """Switch what the model's chat template lets one switch, and say how it stands."""
        modes = self._engine.model.card.thinking
        choices = [*(["on", "off"] if modes.kind == "switchable" else []), *modes.efforts]
        if len(words) != 1 or words[0] not in choices:
            known = f"/think takes {', '.join(choices)}." if choices else "This model's thinking cannot be switched."
            self._console.print(known)
            return
        word = words[0]
        if word in modes.efforts:
            self._thinking = msgspec.structs.replace(self._thinking, effort=word)
        else:
            self._thinking = msgspec.structs.replace(self._thinking, on=word == "on")
        self._console.print(f"Thinking: {word}.", style="dim")

    def _turn(self, line: str) -> None:
        try:
            answer = self._answered(line)
        except (CommandFailed, EngineError, ValueError) as error:
            self._console.print(str(error), style="red")
            return
        self._footer(answer)
        if answer.calls and answer.finished is not None:
            self._console.print(ENOUGH, style="yellow")

    def _answered(self, text: str) -> FinishedAnswer:
        """The answer to a message of the user, after all calls of tools that lead to it; the conversation is kept up to
        there. One with calls is one call too many; it is as good as stopped where Ctrl-C stopped those."""
        messages = [*self._messages, ChatMessage.of("user", text)]
        for _ in range(MOST_ROUNDS):
            answer = self.ask(messages)
            self._messages = messages = [*messages, answer.message]
            if not answer.calls:
                break
            results, stopped = self._tools.results(answer.calls)
            self._messages = messages = [*messages, ChatMessage(role="tool", parts=list(results))]
            if stopped:
                return msgspec.structs.replace(answer, finished=None)
        return answer

    def ask(self, prompt: list[ChatMessage] | str) -> FinishedAnswer:
        """Stream one answer to standard output, its thinking dimmed to standard error. Ctrl-C stops it."""
        parts: list[str] = []
        thoughts: list[str] = []
        finished: Finished | None = None
        adapter = ADAPTER if self._settings.adapter else ""
        loaded = self._engine.model
        assert loaded.files is not None
        tools = None if isinstance(prompt, str) else self._tools.config(loaded.files.tools.notice)
        seen = prompt if isinstance(prompt, str) else seen_by(loaded.card, prompt)
        try:
            grammar, begins = held(loaded, self._settings.structured, tools)
            form = PromptForm(tools=tools, begins=begins)
            tokens = prompt_tokens(loaded, seen, self._thinking, form)._replace(grammar=grammar)
        except Refused as error:
            raise CommandFailed(str(error)) from error
        asked = AnswerRequest(
            seen,
            self._settings.sampling,
            self._thinking,
            form=form,
            optimisations=self._optimisations,
            adapter=adapter,
            service=INTERACTIVE.name,
        )
        events = self._engine.stream(asked, tokens)
        calls = CallCollector()
        try:
            for event in events:
                if not isinstance(event, Finished) or event.reason not in FAILED:
                    self._say_notices()
                if isinstance(event, Finished):
                    finished = event
                elif event.channel == "tool":
                    calls.take(event)
                elif not event.text:
                    continue  # a mark, or text that is still held back
                elif event.channel == "thinking":
                    thoughts.append(event.text)
                    self._show_thought(event.text)
                else:
                    if thoughts and not parts:
                        self._show_thought("\n\n")
                    parts.append(event.text)
                    print(harmless(event.text) if sys.stdout.isatty() else event.text, end="", flush=True)
        except KeyboardInterrupt:
            getattr(events, "close", lambda: None)()
        print(flush=True)
        if finished is not None and self._settings.stats:
            print(self._stats_line(finished), file=sys.stderr)
        wanted = calls.calls if finished is not None and finished.reason == "stop" else []
        return FinishedAnswer("".join(parts), "".join(thoughts), finished, wanted)

    def _say_notices(self) -> None:
        for notice in self._notices:
            self._console.print(notice, style="yellow")
        self._notices = ()

    def _show_thought(self, text: str) -> None:
        """Show thinking at a terminal only; a program that reads standard error gets the measurements alone."""
        if self._console.is_terminal:
            self._console.print(harmless(text), style="dim", end="", soft_wrap=True)

    def _footer(self, answer: FinishedAnswer) -> None:
        end = answer.finished
        if end is None:
            self._console.print("stopped", style="dim")
            return
        timings = end.timings
        self._console.print(
            f"{timings.tokens_per_second:.1f} tok/s · first {timings.ttft_ms:.0f} ms · "
            f"{timings.tokens_per_step:.2f} tok/step · {end.reason}",
            style="dim",
        )
        if end.detail:
            self._console.print(end.detail, style="red")

    def _stats_line(self, end: Finished) -> str:
        """The line of --stats."""
        card = self._engine.model.card
        stats = {
            "model": card.name,
            "reason": end.reason,
            "usage": end.usage,
            "timings": end.timings,
            "options": {key: spec.value for key, spec in self._engine.state().items()} | self._optimisations,
            "draft": card.draft,
        }
        return msgspec.json.encode(stats).decode()


def _about_thinking(card: ModelCard, asked: Thinking) -> str:
    """Say why the thinking asked for cannot be had, or "". Raises :class:`CommandFailed` for an unknown effort."""
    modes = card.thinking
    if asked.effort and asked.effort not in modes.efforts:
        known = f"Use {', '.join(modes.efforts)}." if modes.efforts else "Leave --effort out."
        raise CommandFailed(f"{card.name} knows no reasoning effort {asked.effort!r}. {known}")
    if asked.on is not None and modes.kind != "switchable" and asked.on is not (modes.kind == "always"):
        return f"{card.name} cannot switch its thinking, so it goes on as it is."
    return ""
