"""An engine with the surface that the server needs and scripted answers: no tensors, its own thread as the real one."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import tokenizers
import torch
from msgspec import structs

from engine import catalogue
from engine.compute.runner.perplexity import Scores
from engine.decoding.telemetry.records import StepRecord
from engine.decoding.telemetry.why.facts import Machine
from engine.loading.model import LoadModel, Pictures, Reads
from engine.loop.cache_view import Holding, PagesSnapshot, PageView, TreeSnapshot, view
from engine.loop.commands import AddRequest, Command, Inspect, MeasureText, Shutdown
from engine.loop.events import Embedded, Event
from engine.protocol import (
    CacheStats,
    Cancel,
    Delta,
    Device,
    Error,
    Estimated,
    Finished,
    Fit,
    ForgetChat,
    GpuReading,
    Loaded,
    Loading,
    LoadOptions,
    MemoryByOwner,
    ModelCard,
    Options,
    OptionSpec,
    PageCounts,
    PageDescribed,
    PageOwner,
    Prefill,
    Recommended,
    Sampling,
    ServiceFigures,
    Set,
    SizeFit,
    Timings,
    TokenInfo,
    TreeNode,
    Unload,
    Unloaded,
    Usage,
)
from engine.text.channels import Split
from engine.text.formats.style import ToolStyle
from engine.text.grammar import Grammars
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.engine.decoding.telemetry.steps import running
from tests.engine.decoding.telemetry.steps import step as record_of
from tests.engine.text.samples import CHATML, trained

FIT = Fit(weights=1000, draft_weights=0, kv=1600, kv_tokens=160, activations=10, budget=5000, free=6000)


def card(path: str, draft: str = "", context: int = 64) -> ModelCard:
    return ModelCard(
        name=path.rsplit("/", 1)[-1],
        path=path,
        architecture="LlamaForCausalLM",
        parameters=1,
        quantisation="bf16",
        context=context,
        vocabulary=402,
        eos_ids=[2],
        has_chat_template=True,
        sampling=Sampling(temperature=1.0),
        draft=draft,
    )


class FakeEngine:
    """Answers a prompt with its own last tokens, upside down, or with a ``script``; a test may hold it back with
    ``gate``.

    Switches change nothing in the text except ``break_at``: with ``kv_cache`` off, the token of that index differs.
    """

    def __init__(self, emit: Callable[[Event], None], loaded: bool = True) -> None:
        self.emit = emit
        self.commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self.values = catalogue.defaults()
        self.gate = threading.Event()
        self.gate.set()
        self.load_gate = threading.Event()
        """Holds back loads, once they are announced."""
        self.load_gate.set()
        self.seen: list[Command] = []
        self.cancelled: set[str] = set()
        self.speed = {True: 20.0, False: 10.0}
        self.break_at: int | None = None
        self.flood = 0
        self.script = ""
        """Text of answers, in which calls of tools are found where the request has tools."""
        self.thinks = 0
        """How many tokens of an answer are thinking."""
        self.cut: tuple[str, str] | None = None
        """Reason and detail of an end that comes after one token."""
        self.fail_step = False
        self.says_length = False
        """Whether an answer that the limit ended says so; else all end with "stop"."""
        self.load_cancelled = threading.Event()
        self.template = CHATML
        self.pooling: str | None = None
        self.ranks = False
        self.context = 64
        self.version = 1
        self.pages: dict[str, list[int]] = {}
        """Of six pages, those that each request filled; they stay until the model goes."""
        self.texts: dict[str, list[int]] = {}
        self.chats: dict[str, str] = {}
        self.stats = CacheStats()
        self.cached = 0
        self.silent = False
        self.inspected: list[Inspect] = []
        self.scores: Scores | str = Scores(3, 2.0, 2.5, 0.25, "int4", same_top=0.5)
        self.loaded: Any = self._model("/models/tiny") if loaded else None

    def _model(self, path: str, draft: str = "") -> Any:
        tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(trained("chatml")))
        template = ChatTemplate(self.template)
        return SimpleNamespace(
            card=card(path, draft, self.context),
            fit=FIT,
            command=LoadModel(path, draft),
            files=SimpleNamespace(
                tokenizer=tokenizer,
                template=template,
                tools=ToolStyle(tokenizer, template, None),
                grammars=Grammars(tokenizer, [2], 402),
            ),
            embedding_size=8,
            pooling=self.pooling,
            ranks=self.ranks,
            encodes=False,
            reads=Reads(kv_per_token=64.0),
            model=None,
            device=torch.device("cpu"),
            pictures=Pictures(),
        )

    def speak(self, template: str, script: str, context: int = 4096) -> None:
        """Answer with a script from now on, as a model with this chat template."""
        self.template, self.script, self.context = template, script, context
        self.loaded = self._model("/models/tiny")

    # --- what the server uses ------------------------------------------------------------------------------------

    def submit(self, command: Command) -> None:
        if isinstance(command, Cancel):
            self.cancelled.add(command.id)
        self.commands.put(command)

    def cancel_load(self) -> None:
        self.load_cancelled.set()

    def catalogue_state(self) -> list[OptionSpec]:
        return catalogue.state(self.values, {"model", "packed weights"} if self.loaded else set())

    def cache_version(self) -> int:
        return self.version

    def cache_stats(self) -> CacheStats:
        return self.stats

    def cache_pages(self) -> PageCounts:
        used = sum(len(pages) for pages in self.pages.values())
        return PageCounts(total=10, used=used, live_tokens=16 * used)

    def service_targets(self) -> list[ServiceFigures]:
        return []

    def run(self) -> None:
        while True:
            command = self.commands.get()
            if isinstance(command, Inspect):
                self._inspect(command)
                continue
            self.seen.append(command)
            match command:
                case MeasureText():
                    command.reply(self.scores)
                case ForgetChat(chat=chat):
                    self.chats = {name: "" if of == chat else of for name, of in self.chats.items()}
                    self.version += 1
                case Shutdown():
                    return
                case AddRequest():
                    self._answer(command)
                case Set(key=key, value=value):
                    self._set(key, value)
                case LoadModel():
                    self._load(command)
                case Unload(reason=reason, idle=idle, path=path):
                    if path and (self.loaded is None or self.loaded.command.path != path):
                        continue
                    self.loaded = None
                    self.pages.clear()
                    self.version += 1
                    self.emit(Unloaded(reason=reason or "asked to", idle=idle))

    # --- the cache ------------------------------------------------------------------------------------------------

    def _inspect(self, command: Inspect) -> None:
        self.inspected.append(command)
        if self.silent:
            return
        if self.loaded is None:
            command.reply(None)
        elif command.kind == "pages":
            command.reply(self._view())
        elif command.kind == "tree":
            nodes = tuple(
                TreeNode(
                    id=number, parent=-1, tokens=len(text), idle_seconds=10.0 - number, hits=1, chat=self.chats[name]
                )
                for number, (name, text) in enumerate(self.texts.items())
            )
            heads = {number: text[:8] for number, text in enumerate(self.texts.values())}
            command.reply(TreeSnapshot(nodes, heads))
        else:
            command.reply(self._page(command.page))

    def _view(self) -> PagesSnapshot:
        held = [Holding(PageOwner(chat=self.chats[name], id=name), pages) for name, pages in self.pages.items()]
        refs = [0] * 7
        for pages in self.pages.values():
            for page in pages:
                refs[page] += 1
        return view(refs, held, swapped=2)

    def _page(self, page: int) -> PageView | None:
        for name, pages in self.pages.items():
            if page in pages:
                first = 16 * pages.index(page)
                described = PageDescribed(id="", page=page - 1, state="private", chats=[self.chats[name]], first=first)
                return PageView(described, tuple(self.texts[name][first : first + 16]))
        return PageView(PageDescribed(id="", page=page - 1, state="free")) if 1 <= page <= 6 else None

    # --- scripts -------------------------------------------------------------------------------------------------

    def _set(self, key: str, value: Any) -> None:
        try:
            self.values = catalogue.validated({key: value}, self.values, {"model", "packed weights"})
        except catalogue.OptionError as error:
            self.emit(Error(code="bad_option", message=str(error)))
            return
        self.emit(Options(catalogue=self.catalogue_state()))

    def _load(self, command: LoadModel) -> None:
        self.emit(Loading(model=command.path, stage="reading weights", fraction=0.5))
        self.load_gate.wait()
        if "broken" in command.path:
            self.emit(Error(code="bad_model", message="The file is damaged. Download it again."))
            return
        self.loaded = self._model(command.path, command.draft)
        self.emit(Loaded(card=self.loaded.card, fit=FIT))

    def _answer(self, command: AddRequest) -> None:
        most = self.loaded.card.context - (command.pooling is None)
        if len(command.prompt_ids) > most and command.window is None:
            self.emit(Error(code="prompt_too_long", message="The prompt is too long. Shorten it.", id=command.id))
            return
        if self.fail_step:
            raise RuntimeError("the fake engine breaks")
        values = {**self.values, **command.optimisations}
        ids = list(reversed(command.prompt_ids))[: command.sampling.max_tokens]
        if self.break_at is not None and not values["kv_cache"]:
            ids[self.break_at] = (ids[self.break_at] + 1) % 400
        free = [page for page in range(1, 7) if not any(page in held for held in self.pages.values())]
        self.pages[command.id] = free[: -(-len(command.prompt_ids) // 16)]
        self.texts[command.id], self.chats[command.id] = list(command.prompt_ids), command.chat
        self.version += 1
        told = [] if command.prompt_logprobs is None else [
            TokenInfo(id=id, logprob=-0.25 * number, top=[(7, -0.1)][: command.prompt_logprobs])
            for number, id in enumerate(command.prompt_ids) if number
        ]  # fmt: skip
        size = len(command.prompt_ids)
        self.emit(Prefill(id=command.id, done=size, cached=self.cached, total=size, tokens=told))
        if self.script:
            ids = self.loaded.files.tokenizer.encode(self.script, special=False)[: command.sampling.max_tokens]
        if command.pooling is not None:
            self.emit(Embedded(command.id, embedding(command.prompt_ids)))
            ids = []
        for answer in range(command.n):
            self._write(command, answer, ids, self.speed[bool(values["kv_cache"])])

    def _write(self, command: AddRequest, answer: int, ids: list[int], speed: float) -> None:
        whole = not self.says_length or len(ids) != command.sampling.max_tokens
        reason, written, detail = "stop" if whole else "length", 0, ""
        for number in range(self.flood):
            self.emit(
                Delta(id=command.id, answer=answer, text=f"{number:1023d}.", tokens=[TokenInfo(id=1, chars=1024)])
            )
        parser = self.loaded.files.tools.parser((), command.tools) if command.tools is not None else None
        for token in ids:
            self.gate.wait()
            if command.id in self.cancelled:
                reason = "cancelled"
                break
            if self.cut is not None and written:
                reason, detail = self.cut
                break
            text = self.loaded.files.tokenizer.id_to_bytes(token).decode(errors="replace")
            info = TokenInfo(id=token, chars=len(text))
            if command.sampling.logprobs is not None:
                biased = command.sampling.logit_bias if command.sampling.logprobs_drawn else {}
                top = [(id, -1.0 - number) for number, id in enumerate(biased)] or [(token, -0.5), (5, -2.0)]
                info = TokenInfo(id=token, chars=len(text), logprob=-0.5, top=top)
            written += 1
            if parser is not None:
                self._tell(command, answer, parser.push(token, text), info)
                if parser.stopped:
                    break
                continue
            channel = "thinking" if written <= self.thinks else "content"
            self.emit(Delta(id=command.id, answer=answer, text=text, tokens=[info], channel=channel))  # type: ignore[arg-type]
            self.emit(step(time.monotonic()))
        if parser is not None and not parser.stopped:
            self._tell(command, answer, parser.flush())
            detail = parser.notice
        usage = Usage(
            prompt_tokens=len(command.prompt_ids),
            cached_tokens=self.cached,
            generated_tokens=written,
            seed=7,
            thinking_tokens=min(written, self.thinks),
        )
        timings = Timings(queued_ms=1, ttft_ms=5, total_ms=9, tokens_per_second=speed, tokens_per_step=1, steps=written)
        self.emit(Finished(id=command.id, answer=answer, reason=reason, usage=usage, timings=timings, detail=detail))  # type: ignore[arg-type]

    def _tell(self, command: AddRequest, answer: int, told: Split, info: TokenInfo | None = None) -> None:
        tokens = [] if info is None else [structs.replace(info, chars=len(told.content))]
        self.emit(Delta(id=command.id, answer=answer, text=told.content, tokens=tokens))
        if told.calls:
            self.emit(Delta(id=command.id, answer=answer, text="", channel="tool", calls=list(told.calls)))


def embedding(ids: Sequence[int]) -> np.ndarray:
    """[8] float32, which tells the ids and their order."""
    return (
        np.array([(17 * place + 3 * id) % 101 - 50 for place, id in enumerate([*ids, *range(8)])], np.float32)[:8] / 50
    )


def step(at: float) -> StepRecord:
    """A step that decoded one token in 10 ms."""
    pages, queue = PageCounts(total=10, used=2, live_tokens=20), running(1)
    return record_of(at, duration=0.01, host_seconds=0.001, pages=pages, queue=queue)


class FakeProbes:
    """Fixed numbers."""

    reading: GpuReading | None = None

    def stop(self) -> None:
        """Nothing that it does takes long."""

    def device(self) -> Device:
        return Device(kind="cpu", name="fake", total_bytes=100, free_bytes=50)

    def devices(self) -> list[Device]:
        return [self.device()]

    def bandwidth(self, loaded: Any) -> float | None:
        return 1e6

    def recorder(self, loaded: Any, bandwidth: float) -> Any:
        return None

    def gpu(self, loaded: Any) -> GpuReading | None:
        return self.reading

    def machine(self, loaded: Any) -> Machine:
        return Machine()

    def memory(self, loaded: Any, used_share: float) -> MemoryByOwner:
        used = int(1600 * used_share)
        return MemoryByOwner(
            scope="process",
            weights=1000,
            kv_used=used,
            kv_reserved=1600 - used,
            other_kvasir=1,
            other_programs=2,
            total=9,
        )

    def recommended(self, loaded: Any, purpose: str = "") -> Recommended:
        return Recommended(models=[], stored={"/models/tiny": SizeFit("fits")})

    def estimate(self, path: str, draft: str, options: LoadOptions, loaded: Any, switches: Any) -> Estimated:
        if "huge" in path:
            return Estimated(id="", fits=False, sentence="It does not fit. Choose a smaller one.")
        return Estimated(id="", fits=True, fit=FIT, sentence=f"Fits {switches['weights']}.")
