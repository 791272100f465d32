"""A small engine that speaks the contract of the real one (token on stdin, ready line, /ws) with scripted answers.

The last user message picks the script: it may begin with "one list", "one paragraph", "one code" or a number and "tokens"; then it looks for the words "code", "long", "essay", "prefill", "refuse",
"crash", "cut" and "multi"; "diverge", "overflow" and "oversized" for the cache; anything else gets two paragraphs. The answer names the seed, so that a regenerated one differs.
One that continues gets the rest of that. With tools, each line "use NAME ARGUMENTS" of it is a call, and results are quoted; with "forever" they are called again.
A model called "thinker" thinks first, unless it is told not to; one called "harmony" has efforts instead of a switch.

    python -m tests.kit.fake_engine [--rate TOKENS_A_SECOND] [--die-at-start] [--loaded] [--batch TOKENS_A_FRAME]
        [--gpu-pack STATE.json] [--named NAME] [--answers ANSWERS.json]

The same runs as a thread of the tests (engine_thread.py), so nothing here may be shared by two engines.

NAME is that of another model and of the device. ANSWERS has what operations answer, by their names.
With the state of a GPU pack (fake_gpu.py) it computes on "a GPU" where that is active, dies there if "dies", and says
its "notice" otherwise.
"""

# ruff: noqa: E501, C408

from __future__ import annotations

import argparse
import json
import os
import random
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any

import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Request, Response, ServerConnection, serve

import engine.loading.techniques  # noqa: F401  (registers what drafts)
from engine import protocol as p
from engine.decoding.speculation.technique import drafting
from tests.kit.fake_cache import FakeCache
from tests.kit.fake_speculation import STEP, acceptance, drafters, exactness, source, switches
from tests.kit.specs import refusing, spec_of

THREADS = "kvasir-fake-engine"
"""How all threads of an engine are called: tests of the window may leave none behind."""
ANSWER = (
    "Each conversation grows by one token at a time, and nobody knows how long it will be. If memory were reserved for "
    "the longest possible answer, most of it would stay **empty**. Pages fix that: memory is handed out sixteen tokens at a time.\n\n"
    "This answer was drawn with seed {seed}."
)
CODE = (
    "Each conversation grows by one token at a time, and nobody knows how long it will be. If memory were reserved for "
    "the longest possible answer, most of it would stay empty.\n\n"
    "```python\ndef slot(position: int) -> int:\n    # where a token's key lies\n    page = table[position // 16]\n"
    "    return page * 16 + position % 16\n```\n\n"
    "Two chats that begin with the same system prompt can point at the `same` pages, so the second one starts at once.\n\n"
    "1. take a page\n2. fill it\n3. take the next\n\n| kind | bits |\n| --- | --- |\n| body | 4 |\n| residual | 16 |\n"
)
THOUGHTS = (
    "The person asks about pages. Let me think about what a page is in a cache of keys and values.\n\n"
    "A page holds sixteen tokens. Memory is handed out a page at a time, so that at most fifteen slots of a sequence "
    "are empty. That is the point to make first.\n\nThen the second point: two chats can share pages. <b>Keep it short</b>, "
    "and mention the table that says which page comes next."
)
FIT = p.Fit(
    weights=10 << 20,
    draft_weights=1 << 20,
    kv=4 << 20,
    kv_tokens=2048,
    activations=1 << 20,
    budget=1 << 30,
    free=6 << 30,
)
WORDS = [
    "the",
    "cache",
    "keeps",
    "keys",
    "and",
    "values",
    "in",
    "pages",
    "so",
    "that",
    "nothing",
    "is",
    "computed",
    "twice",
    "while",
    "tokens",
    "stream",
]


def long_answer(tokens: int) -> str:
    """Markdown of paragraphs, lists and code, about ``tokens`` tokens."""
    parts, count, index = [], 0, 0
    while count < tokens:
        index += 1
        if index % 5 == 0:
            body = "\n".join(f"    value_{i} = table[{i}] * 16 + {i} % 16  # slot" for i in range(12))
            part = f"```python\ndef step_{index}(table):\n{body}\n    return value_1\n```"
        elif index % 5 == 3:
            part = "\n".join(f"- item {i}: {' '.join(WORDS[:9])}" for i in range(6))
        else:
            part = f"Paragraph **{index}**. " + " ".join(WORDS[(index + i) % len(WORDS)] for i in range(90)) + "."
        parts.append(part)
        count += len(tokenise(part))
    return "\n\n".join(parts)


def maths(tokens: int) -> str:
    """Markdown of about ``tokens`` tokens with many formulas, no two of which are the same."""
    parts, count, index = [], 0, 0
    while count < tokens:
        index += 1
        inline = f"where $x_{{{index}}} \\in \\mathbb{{R}}^{{{index}}}$ and \\(\\alpha_{{{index}}} < \\frac{{1}}{{{index}}}\\) hold"
        display = f"$$\n\\mathrm{{score}}_{{{index}}} = \\frac{{Q K_{{{index}}}^\\top}}{{\\sqrt{{d_{{{index}}}}}}} + \\sum_{{i=0}}^{{{index}}} w_i\n$$"
        part = f"Step {index}, {inline}, {' '.join(WORDS[:9])}.\n\n{display}"
        parts.append(part)
        count += len(tokenise(part))
    return "\n\n".join(parts)


def tokenise(text: str) -> list[str]:
    return re.findall(r"\s?\w+|\s?[^\w\s]|\s+", text)


def catalogue() -> list[p.OptionSpec]:
    """A catalogue with one entry of each kind."""

    def entry(**fields: object) -> p.OptionSpec:
        base = dict(explains="What it does. What it costs.", scope="request", applies="next request")
        return spec_of(**{**base, **fields})

    return [
        entry(key="kv_cache", title="KV cache", group="Cache", kind="bool", default=True, value=True, exactness="lossless", compare=[False, True],
              common=True, lab="prefixes"),
        entry(key="reserve", title="KV allocation", group="Cache", kind="choice", default="on demand", value="on demand", exactness="lossless",
              choices=["on demand", "whole context"], choice_titles=["paged", "whole"], scope="engine", applies="cache"),
        entry(key="quest", title="QUEST sparse pages", group="Cache", kind="bool", default=False, value=False, exactness="approximate",
              disabled_reason="Needs a context above 4,096 tokens."),
        entry(key="kv_kind", title="KV bits", group="Cache", kind="choice", default="16-bit", value="16-bit", exactness="approximate", common=True,
              choices=["16-bit", "int8", "int4"], choice_titles=["16", "8", "4"], scope="engine", applies="cache", compare=["16-bit", "int4"]),
        *switches(entry),
        entry(key="chunked_prefill", title="Chunked prefill", group="Scheduling", kind="bool", default=True, value=True, exactness="lossless",
              compare=[False, True], scope="engine", applies="live"),
        entry(key="weights", title="Weights", group="Weights", kind="choice", default="packed", value="packed", exactness="lossless", common=True,
              choices=["packed", "16-bit"], scope="engine", applies="reload"),
    ]  # fmt: skip


class Engine:
    """State shared by connections: what is loaded, the catalogue, the requests that run, the threads.

    ``crash`` is called in the midst of an answer that asks for it, with the engine's last words.
    """

    def __init__(
        self, arguments: argparse.Namespace, environment: Mapping[str, str], token: str, crash: Callable[[str], None]
    ) -> None:
        self.arguments, self.token, self.crash = arguments, token, crash
        self.over = threading.Event()
        """Whoever waits for time to pass waits for this, too."""
        self.sessions: list[Session] = []
        self.threads: list[threading.Thread] = []
        self.random = random.Random()
        self.catalogue = catalogue()
        self.card: p.ModelCard | None = card("tiny", None) if arguments.loaded else None
        self.idle = ""
        """The path of the model that was unloaded for being idle."""
        self.cancelled: dict[str, threading.Event] = {}
        self.adapters: list[p.AdapterCard] = []
        self.comparing: set[str] = set()
        """The ids of comparisons that run."""
        self.taking = threading.Lock()
        """Held while a switch is set and told."""
        self.cache = FakeCache(arguments.pages)
        self.pack = pack_of(arguments.gpu_pack, environment)

    def start(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        """Do it in a thread that ends with the engine."""
        thread = threading.Thread(target=work, args=arguments, name=THREADS, daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread

    def serve(self, socket: ServerConnection) -> None:
        """One connection, in a thread of the server's."""
        thread, session = threading.current_thread(), Session(self, socket)
        thread.name = socket.recv_events_thread.name = THREADS
        self.threads.append(thread)
        self.sessions.append(session)
        session.run()

    def end(self) -> None:
        """Connections break off, as they do when a process ends; returns when all threads have ended."""
        self.over.set()
        for session in self.sessions:
            session.break_off()
        for stopped in list(self.cancelled.values()):
            stopped.set()
        for thread in self.threads:  # those that are added meanwhile, too
            thread.join()

    def refuse_helpers(self) -> None:
        """As after a load of a model that nothing drafts for."""
        self.catalogue = [
            msgspec.structs.replace(refusing(s, {"draft": "Needs a draft model."}), value="off")
            if s.key == "speculation"
            else s
            for s in self.catalogue
        ]

    def value(self, key: str) -> p.Value:
        return next(spec.value for spec in self.catalogue if spec.key == key)


def pack_of(state: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The facts of the GPU pack that this engine runs from or says something about."""
    if not state or environment.get("KVASIR_GPU_PACK") == "off":
        return {}
    return json.loads(Path(state).read_text())


def card(name: str, draft: str | None) -> p.ModelCard:
    drafted = draft or ("" if draft == "" else "tiny-draft")
    return p.ModelCard(
        name=name.rsplit("/", 1)[-1], path=name if name.startswith("/") else f"/models/{name}",
        architecture="LlamaForCausalLM", parameters=4_000_000_000 if "large" in name else 8_000_000,
        quantisation="GPTQ 4-bit, groups of 64", context=2048, vocabulary=4096, eos_ids=[0], has_chat_template=True,
        sampling=p.Sampling(temperature=0.7, top_p=0.9), draft="" if draft and "heads" in draft else drafted,
        heads=["medusa", "eagle"] if draft and "heads" in draft else [],
        thinking=modes(name),
        notices=["The int4 kernel declined, because its group size is 96; a slower one is in use."] if "odd" in name else [],
    )  # fmt: skip


def modes(name: str) -> p.ThinkingModes:
    if "harmony" in name:
        return p.ThinkingModes(kind="always", efforts=["low", "medium", "high"])
    return p.ThinkingModes(kind="switchable") if "thinker" in name else p.ThinkingModes()


class Session:
    """One connection. Answers run in threads of their own."""

    def __init__(self, engine: Engine, socket: ServerConnection) -> None:
        self.engine, self.socket = engine, socket
        self.closed = False
        self.topics: frozenset[str] = frozenset()

    @property
    def open(self) -> bool:
        return not (self.closed or self.engine.over.is_set())

    def send(self, message: p.Message) -> None:
        if not self.open:
            return
        try:
            self.socket.send(p.encode(message))
        except ConnectionClosed:
            self.closed = True

    def break_off(self) -> None:
        """Without a closing handshake."""
        with suppress(OSError):  # closed already
            self.socket.socket.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        try:
            self.converse()
        except ConnectionClosed:
            pass
        finally:
            self.closed = True

    def converse(self) -> None:
        hello = p.decode_to_engine(self.socket.recv())
        if not isinstance(hello, p.Hello) or hello.token != self.engine.token:
            self.send(p.Error(code="unauthorised", message="The token is wrong. Start the engine from the window."))
            return
        pack = self.engine.pack
        name, kind = ("Fake GPU", "cuda") if pack.get("active") else ("Fake CPU", "cpu")
        device = p.Device(kind=kind, name=name, total_bytes=8 << 30, free_bytes=6 << 30)
        models = [
            p.KnownModel(name="tiny", path="/models/tiny", draft="/models/tiny-draft"),
            p.KnownModel(name="odd", path="/models/odd"),
        ]
        if named := self.engine.arguments.named:
            models.append(p.KnownModel(name=named, path=f"/models/{named}", draft=f"/models/{named}"))
            device = p.Device(kind=kind, name=named, total_bytes=8 << 30, free_bytes=6 << 30)
        self.send(
            p.Welcome(
                protocol=p.PROTOCOL,
                version="0",
                device=device,
                catalogue=self.engine.catalogue,
                models=models,
                loaded=self.engine.card,
                notice=pack.get("notice", ""),
                drafters=[each.style for each in drafting()],
            )
        )
        for frame in self.socket:
            try:
                message = p.decode_to_engine(frame)
            except ValueError as error:
                self.send(
                    p.Error(
                        code="unknown_message",
                        message=f"That message is not known ({error}). Use protocol {p.PROTOCOL}.",
                    )
                )
                continue
            getattr(self, f"on_{type(message).__name__.lower()}", lambda _: None)(message)

    def on_load(self, message: p.Load) -> None:
        self.engine.over.wait(self.engine.arguments.load_seconds)
        if "missing" in message.model:
            self.send(
                p.Error(
                    code="model_missing",
                    message=f"There is no model at {message.model}. Choose a folder with config.json.",
                )
            )
            return
        for stage, fraction in (("reading the header", 0.1), ("reading weights", 0.6), ("making the cache", 0.95)):
            self.send(p.Loading(model=message.model, stage=stage, fraction=fraction))
            self.engine.over.wait(0.02)
        self.engine.card, self.engine.adapters, self.engine.idle = card(message.model, message.draft), [], ""
        if "plain" in message.model:
            self.engine.refuse_helpers()
        self.send(p.Loaded(card=self.engine.card, fit=FIT))
        self.send(p.Options(catalogue=self.engine.catalogue))

    def on_unload(self, message: p.Unload) -> None:
        self.engine.card = None
        self.send(p.Unloaded(reason=message.reason))

    def on_unloadafter(self, message: p.UnloadAfter) -> None:
        """Time flies: it is over at once. A model called "vanishing" cannot be loaded again."""
        if message.minutes and self.engine.card is not None:
            self.engine.idle, self.engine.card = self.engine.card.path.replace("vanishing", "missing"), None
            reason = (
                f"It was unloaded after {message.minutes:g} minutes without a request. The next one loads it again."
            )
            self.send(p.Unloaded(reason=reason, idle=True))

    def on_loadadapter(self, message: p.LoadAdapter) -> None:
        if "bad" in message.path:
            text = "The adapter bad cannot be used: it is a DoRA adapter. Choose another adapter."
            self.send(p.Error(code="bad_adapter", message=text))
            return
        made = p.AdapterCard(name=message.name, path=message.path, rank=16, modules=224, bytes=84_000_000)
        self.engine.adapters = [*self.engine.adapters, made]
        self.send(p.Adapters(adapters=self.engine.adapters))

    def on_unloadadapter(self, message: p.UnloadAdapter) -> None:
        self.engine.adapters = [card for card in self.engine.adapters if card.name != message.name]
        self.send(p.Adapters(adapters=self.engine.adapters))

    def on_set(self, message: p.Set) -> None:
        specs = self.engine.catalogue
        if any(spec.key == message.key and spec.disabled_reason for spec in specs):
            self.send(
                p.Error(code="bad_option", message="QUEST cannot apply now. It needs a context above 4,096 tokens.")
            )
            return
        if self.engine.value(message.key) != message.value and self.take(message.key, message.value):
            for id in list(self.engine.comparing):  # a cache that is made again ends what runs in it
                self.engine.cancelled[id].set()

    def take(self, key: str, value: p.Value) -> bool:
        """Set a switch; whether that made the cache again. One at a time: the last catalogue sent is that in force."""
        with self.engine.taking:
            spec = next(spec for spec in self.engine.catalogue if spec.key == key)
            self.engine.catalogue = [
                msgspec.structs.replace(s, value=value, exactness=exactness(s, value)) if s.key == key else s
                for s in self.engine.catalogue
            ]
            again = spec.applies in ("cache", "reload") and self.engine.card is not None
            if again:
                self.send(p.Loaded(card=self.engine.card, fit=FIT, rebuilt=spec.applies == "cache"))
            self.send(p.Options(catalogue=self.engine.catalogue))
            return again

    def on_counttokens(self, message: p.CountTokens) -> None:
        tokens = tokenise(joined(message.prompt))
        kept = self.engine.cache.kept(tokens) if message.chat else None
        self.send(p.Counted(id=message.id, tokens=len(tokens), kept=kept))

    def on_why(self, message: p.Why) -> None:
        """What its switches are at that is slow."""
        if self.engine.card is None:
            self.send(p.Error(code="no_model", message="No model is loaded. Load one first.", id=message.id))
            return
        found = []
        if not self.engine.value("kv_cache"):
            found.append(p.Reason(sentence="The KV cache is off.", keys={"kv_cache": True}))
        if self.engine.value("draft_length"):
            detail = "Automatic lengths rest where drafts do not pay."
            fast: dict[str, p.Value] = {"draft_length": 0, "speculation": "off"}
            found.append(p.Reason(sentence="What is drafted is refused four times in five.", detail=detail, keys=fast))
        if self.engine.card.notices:
            found.append(
                p.Reason(sentence=self.engine.card.notices[0], action="Choose another format.", place="models")
            )
        self.send(
            p.Reasons(
                id=message.id,
                reasons=found,
                limit="A token reads 4.0 GB: no more than 5.0 tokens a second are possible.",
                parts=[
                    "A step takes 23 ms.",
                    "Of the last prompt's 84 tokens 48 came from the cache, and 36 were read.",
                ],
            )
        )

    def on_estimate(self, message: p.Estimate) -> None:
        self.send(p.Estimated(id=message.id, fits=True, sentence="It fits: 15 MB of 6 GB."))

    def on_call(self, message: p.Call) -> None:
        """What ANSWERS has for the operation: its events, and an answer or an error's sentence; nothing has no end."""
        said = json.loads(Path(self.engine.arguments.answers).read_bytes()) if self.engine.arguments.answers else {}
        script = said.get(message.operation, {})
        for event in script.get("events", ()):
            self.send(p.CallEvent(id=message.id, event=raw(event)))
        if "error" in script:
            self.send(p.Error(code="failed", message=script["error"], id=message.id))
        elif "answer" in script:
            self.send(p.CallAnswer(id=message.id, answer=raw(script["answer"])))

    def on_cancel(self, message: p.Cancel) -> None:
        self.engine.cancelled.setdefault(message.id, threading.Event()).set()

    def on_subscribe(self, message: p.Subscribe) -> None:
        """Takes the place of the subscription before."""
        begun, self.topics = bool(self.topics), frozenset(message.topics)
        if not begun:
            self.engine.start(self.telemetry, message.rate)

    def on_describepage(self, message: p.DescribePage) -> None:
        self.send(self.engine.cache.describe(message))

    def on_forgetchat(self, message: p.ForgetChat) -> None:
        self.engine.cache.forget(message.chat)

    def on_measurecost(self, message: p.MeasureCost) -> None:
        if self.engine.card is None:
            self.send(p.Error(code="no_model", message="No model is loaded. Load one first.", id=message.id))
            return
        setting = str(self.engine.value("kv_kind"))
        self.send(
            p.Cost(
                id=message.id, tokens=1310, exact=12.31, present=12.52, divergence=0.0123, setting=setting, error=0.004
            )
        )

    def on_generate(self, message: p.Generate) -> None:
        self.engine.start(self.answer, message)

    def on_compare(self, message: p.Compare) -> None:
        self.engine.start(self.compare, message)

    def compare(self, message: p.Compare) -> None:
        """Eight pairs, the second side 2.1 times as fast; a prompt with "differ" gets two texts, "slow" waits.

        A switch of the engine is set both ways, as by the real one.
        """
        spec = next(spec for spec in self.engine.catalogue if spec.key == message.key)
        values = message.values or [*spec.measure.compare]
        asked = message.prompt if isinstance(message.prompt, str) else message.prompt[-1].content
        stopped = self.engine.cancelled.setdefault(message.id, threading.Event())
        both_ways = spec.applies in ("cache", "reload")
        self.engine.comparing.add(message.id)
        for i in range(18):
            if both_ways:
                self.take(message.key, values[i % 2])
            if stopped.wait(0.5 if "slow" in asked else 0.005):
                self.engine.comparing.discard(message.id)
                self.send(p.Error(code="cancelled", message="The comparison was stopped.", id=message.id))
                return
            self.send(p.CompareProgress(id=message.id, done=i + 1, total=18))
        self.engine.comparing.discard(message.id)
        if both_ways:
            self.take(message.key, spec.value)
        same = "differ" not in asked
        metrics = [p.Metric(figure="tokens_per_second", title="tokens/s"), spec.measure.metric]
        effects = [
            p.Effect(metric=metric, before=40, after=84, ratio=2.1, low=1.9, high=2.3, pairs=8, verdict="better")
            for metric in dict.fromkeys(metrics)
            if metric.figure
        ]
        texts = [] if same else ["A page holds sixteen tokens.", "A page holds 16 tokens, and no more."]
        self.send(
            p.Compared(
                id=message.id,
                key=message.key,
                values=values,
                runs=[],
                same=same,
                before=40,
                after=84,
                ratio=2.1 if same else None,
                first_difference=None if same else 3,
                effects=effects,
                texts=texts,
            )
        )

    def answer(self, message: p.Generate) -> None:
        began = time.monotonic()
        prompt = joined(message.prompt)
        asked = prompt if isinstance(message.prompt, str) else message.prompt[-1 - message.continues].content
        if self.engine.card is None and self.engine.idle:
            self.on_load(p.Load(model=self.engine.idle))
            if self.engine.card is None:
                self.send(p.Error(code="load_failed", message="There is no model there.", id=message.id))
                return
        card = self.engine.card  # an unload may take it away while this writes
        if card is None or "refuse" in asked:
            self.send(
                p.Error(
                    code="prompt_too_long", message="The prompt is longer than the context. Shorten it.", id=message.id
                )
            )
            return
        if "oversized" in asked and message.overflow == "stop":
            text = "The conversation takes 2,400 tokens and the context holds 2,048. Shorten it."
            self.send(p.Error(code="prompt_too_long", message=text, id=message.id))
            return
        if message.remote is not None and message.remote.server == "gone":
            self.send(p.Error(code="failed", message="gone cannot be reached.", id=message.id))
            return
        if message.adapter and message.adapter not in [card.name for card in self.engine.adapters]:
            text = f"No adapter is called {message.adapter!r}. None is loaded: load it first."
            self.send(p.Error(code="adapter_not_found", message=text, id=message.id))
            return
        self.cut(message, asked)
        read = tokenise(prompt)
        cached = self.engine.cache.begin(message.chat, message.id, read)
        diverged = (
            {"diverged": cached, "divergence": "the chat template leaves earlier thinking out"}
            if "diverge" in asked
            else {}
        )
        self.send(p.Prefill(id=message.id, done=cached, cached=cached, total=len(read), **diverged))
        seed = message.sampling.seed if message.sampling.seed is not None else self.engine.random.getrandbits(31)
        stopped = self.engine.cancelled.setdefault(message.id, threading.Event())
        if "prefill" in asked:
            for done in range(0, 1025, 128):
                self.send(p.Prefill(id=message.id, done=done, cached=0, total=1024))
                self.engine.over.wait(0.03)
        thinks = card.thinking.kind != "none" and message.thinking.on is not False
        thoughts = tokenise(THOUGHTS) if thinks else []
        tokens = [
            *thoughts,
            *tokenise(f"[{message.adapter}] " if message.adapter else ""),
            *tokenise(f"[{message.remote.model}] " if message.remote is not None else ""),
            *tokenise(quoted(message) or script(asked, seed)),
        ]
        if message.continues:
            said, text = message.prompt[-1], "".join(tokens[len(thoughts) :])
            thoughts = tokenise(rest_of(THOUGHTS, said.thinking)) if said.thinking and not said.content else []
            tokens = [*thoughts, *tokenise(rest_of(text, said.content))]
        most = message.sampling.max_tokens if message.sampling.max_tokens is not None else len(tokens)
        ended, tokens = most >= len(tokens), tokens[:most]
        first = time.monotonic()
        rate, batch = self.engine.arguments.rate, self.engine.arguments.batch
        sent = 0
        while sent < len(tokens) and not stopped.is_set() and self.open:
            if ("crash" in asked and sent > 20) or ("kill" in asked and sent > 20):
                self.engine.crash("RuntimeError: the fake engine was told to crash")
                return
            thinking = sent < len(thoughts)
            some = tokens[sent : min(sent + batch, len(thoughts)) if thinking else sent + batch]
            infos = [self.token(t, sent + i) for i, t in enumerate(some)]
            channel = "thinking" if thinking else "content"
            self.send(p.Delta(id=message.id, channel=channel, text="".join(some), tokens=infos))
            sent += len(some)
            if sent % 64 < len(some):
                self.engine.cache.grow(message.chat, read + tokens[:sent])
            self.engine.over.wait(max(0.0, first + sent / rate - time.monotonic()))
        for place, call in enumerate(calls_of(message)):
            half = len(call.arguments) // 2
            begin = p.ToolCallDelta(index=place, id=call.id, name=call.name, arguments=call.arguments[:half])
            rest = p.ToolCallDelta(index=place, arguments=call.arguments[half:])
            for part in (begin, rest):
                self.send(p.Delta(id=message.id, channel="tool", text="", calls=[part]))
        self.engine.cache.grow(message.chat, read + tokens[:sent])
        self.engine.cache.end(message.chat)
        spent = max(1e-6, time.monotonic() - first)
        reason = "cancelled" if stopped.is_set() else ("length" if "cut" in asked or not ended else "stop")
        if "overflow" in asked and message.overflow == "stop" and reason == "stop":
            reason = "context"
        usage = p.Usage(
            prompt_tokens=len(read),
            cached_tokens=cached,
            generated_tokens=sent,
            seed=seed,
            thinking_tokens=min(sent, len(thoughts)),
        )
        drafted = bool(self.drafters)
        steps = -(-sent // STEP) if drafted else sent
        timings = p.Timings(queued_ms=0, ttft_ms=1000 * (first - began) + 3, total_ms=1000 * (time.monotonic() - began),
                            tokens_per_second=sent / spent, tokens_per_step=sent / max(1, steps), steps=steps,
                            proposed=STEP * steps if drafted else 0, accepted=sent - steps)  # fmt: skip
        self.send(p.Finished(id=message.id, reason=reason, usage=usage, timings=timings))

    def cut(self, message: p.Generate, asked: str) -> None:
        """Where the script wants it, leave out all but the first two messages and the last (system prompt counted)."""
        if not any(word in asked for word in ("overflow", "oversized")) or isinstance(message.prompt, str):
            return
        if message.overflow == "drop_middle":
            last = len(message.prompt) - 1
            self.send(p.ContextCut(id=message.id, policy="drop_middle", first=2, last=last, tokens=4210))
        elif message.overflow == "window":
            self.send(p.ContextCut(id=message.id, policy="window", sinks=4, window=2048))

    @property
    def drafters(self) -> tuple[str, ...]:
        return drafters(self.engine.value("speculation"))

    def token(self, text: str, index: int) -> p.TokenInfo:
        return p.TokenInfo(id=index % 4096, source=source(self.drafters, index), chars=len(text))

    def telemetry(self, rate: float) -> None:
        start = time.monotonic()
        shown_pages = None
        while self.open:
            now = time.monotonic() - start
            memory = p.MemoryByOwner(scope="process", weights=900 << 20, kv_used=int(60 + 20 * (now % 5)) << 20, kv_reserved=300 << 20,
                                     other_kvasir=200 << 20, other_programs=2 << 30, total=8 << 30)  # fmt: skip
            self.send(p.Telemetry(time=now, generated_per_second=80 + 10 * (now % 2), prefilled_per_second=0, memory=memory,
                                  pages=self.engine.cache.counts(), cache=self.engine.cache.stats(),
                                  queue=p.QueueCounts(waiting=0, running=1, prefilling=0), acceptance=acceptance(self.drafters)))  # fmt: skip
            if "pages" in self.topics and (pages := self.engine.cache.page_map()) != shown_pages:
                shown_pages = pages
                self.send(pages)
            if "tree" in self.topics:
                self.send(self.engine.cache.tree())
            self.engine.over.wait(1 / rate)


def raw(record: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(record))


def joined(prompt: list[p.ChatMessage] | str) -> str:
    return prompt if isinstance(prompt, str) else "\n".join(message.content for message in prompt)


def calls_of(message: p.Generate) -> list[p.ToolCall]:
    """The calls that the last question wants, unless they have results."""
    if isinstance(message.prompt, str) or message.tools is None:
        return []
    asked = [each.content for each in message.prompt if each.role == "user"][-1]
    if message.prompt[-1].role == "tool" and "forever" not in asked:
        return []
    wanted = re.findall(r"^use (\S+) ?(.*)$", asked, re.MULTILINE)
    return [p.ToolCall(f"c{len(message.prompt)}{n}", name, given) for n, (name, given) in enumerate(wanted)]


def quoted(message: p.Generate) -> str:
    """What the tools returned last, "" for nothing."""
    results = [] if isinstance(message.prompt, str) else message.prompt[-1].results
    return "The tools said: " + "; ".join(result.content for result in results) if results else ""


def one_block(kind: str, tokens: int) -> str:
    """A single list, also of formulas, paragraph or code block of about ``tokens`` tokens: the worst case for painting."""
    if kind == "formulas":
        return "\n".join(
            f"- item {i}: $x_{{{i}}}^2 + \\alpha_{{{i}}}$ {' '.join(WORDS[:4])}" for i in range(tokens // 28)
        )
    if kind == "list":
        return "\n".join(f"- item **{i}**: {' '.join(WORDS[:8])}" for i in range(tokens // 14))
    if kind == "paragraph":
        return " ".join(WORDS[i % len(WORDS)] for i in range(tokens))
    return "```python\n" + "\n".join(f"value_{i} = table[{i}] * 16 + {i} % 16" for i in range(tokens // 12)) + "\n```"


def rest_of(text: str, begun: str) -> str:
    """What of ``text`` follows its beginning; something else behind another one."""
    return text[len(begun) :] if text.startswith(begun) else " is what it goes on with."


def script(asked: str, seed: int) -> str:
    if asked.startswith("Write a title"):
        return 'Title: **"Pages of a cache."**\n\nIt fits.'
    if asked.startswith("one "):
        return one_block(asked.split()[1], 2000)
    if (many := re.match(r"([0-9]+) tokens", asked)) is not None:
        return long_answer(int(many[1]))
    if "code" in asked:
        return CODE
    if "maths" in asked:
        return maths(2000)
    if "essay" in asked:
        return long_answer(2000)
    if "long" in asked or "crash" in asked:
        return long_answer(600)
    return ANSWER.format(seed=seed)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=400.0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--die-at-start", action="store_true")
    parser.add_argument("--load-seconds", type=float, default=0.0)
    parser.add_argument("--loaded", action="store_true")
    parser.add_argument("--pages", type=int, default=4096)
    parser.add_argument("--gpu-pack", default="")
    parser.add_argument("--named", default="")
    parser.add_argument("--answers", default="")
    return parser.parse_args(arguments)


def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    stdin: IO[bytes],
    stdout: IO[bytes],
    crash: Callable[[str], None],
) -> None:
    """One life: the token from ``stdin``, the ready line to ``stdout``, then service until ``stdin`` ends.

    Raises SystemExit with its last words where it is told to die at its start.
    """
    options = parse(arguments)
    token = stdin.readline().decode().strip()
    if options.die_at_start:
        sys.exit("The fake engine was told to die.")
    engine = Engine(options, environment, token, crash)
    if engine.pack.get("active") and engine.pack.get("dies"):
        sys.exit("The fake engine was told to die in its GPU pack.")

    def only_ws(connection: ServerConnection, request: Request) -> Response | None:
        return None if request.path == "/ws" else connection.respond(HTTPStatus.NOT_FOUND, "no such path\n")

    server = serve(
        engine.serve,
        "127.0.0.1",
        0,
        process_request=only_ws,
        compression=None,
        max_size=p.MAX_FRAME,
        ping_interval=None,
    )
    serving = threading.Thread(target=server.serve_forever, name=THREADS, daemon=True)
    serving.start()
    ready = p.Ready(port=server.socket.getsockname()[1], protocol=p.PROTOCOL, version="0", pid=os.getpid())
    stdout.write(p.encode(ready).encode() + b"\n")
    stdout.flush()
    stdin.read()  # the window holds the other end; when it goes, so does the engine
    engine.end()
    server.shutdown()
    serving.join()


def _crash(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()
    os._exit(3)


if __name__ == "__main__":
    run(sys.argv[1:], os.environ, sys.stdin.buffer, sys.stdout.buffer, _crash)
