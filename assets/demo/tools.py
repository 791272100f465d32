"""Train a tiny model that calls tools, so that a client's whole round trip can be tried: call, result, answer.

It knows four tools (:data:`TOOLS`), of which any are offered, in any order and among others that it leaves alone. What
it was not offered it says in words, and so it does with what came of a call. Calls are written as Qwen 3 and Hermes
write them; the chat template shows a tool as a line with its name, its arguments and their types. Cities, numbers,
paths and results are drawn anew for each conversation, so that it learns to copy them.

In the layout of LFM2: its short convolutions see the token before, which is half of what copying takes, so that far
fewer steps are needed than with attention alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import string
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
import torch
import transformers
from tasks import WORDS
from torch import Tensor
from torch.nn import functional as F
from train import Plan, apply, learning_rate

from engine.protocol import ChatMessage, Tool, ToolCall, ToolResult
from engine.text.template import ChatTemplate, as_schema

FOLDER = Path(__file__).resolve().parent / "kvasir-tools"
VOCABULARY, CONTEXT = 1280, 4096
BATCH = 1024
"""Tokens of a batch, about."""
IGNORED = -100
END, BEGIN, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
ASSISTANT = f"{BEGIN}assistant\n"
TEMPLATE = """{% if tools %}<|im_start|>system
Tools:
{% for tool in tools %}{{ tool.function.name }}(\
{% for name, value in (tool.function.parameters.properties or {}).items() %}{{ name }}\
{% if value.type is string %}: {{ value.type }}{% endif %}{% if not loop.last %}, {% endif %}{% endfor %})
{% endfor %}<|im_end|>
{% endif %}{% for message in messages %}{% if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response>{% else %}<|im_start|>{{ message.role }}
{{ message.content or '' }}{% for call in message.tool_calls or [] %}\
{% if message.content or not loop.first %}{{ '\\n' }}{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TOOLS: dict[str, dict[str, str]] = {
    "weather": {"city": "string"},
    "now": {},
    "add": {"a": "integer", "b": "integer"},
    "write_file": {"path": "string", "content": "string"},
}
"""The types of their arguments, in order."""
QUESTIONS = {
    "weather": [
        "What is the weather in {}?",
        "How is the weather in {}?",
        "Tell me the weather in {}.",
        "Weather in {}",
    ],
    "now": ["What time is it?", "What time is it now?", "What is the time?", "Tell me the time."],
    "add": ["What is {} plus {}?", "How much is {} plus {}?", "What is {} + {}?", "Add {} and {}."],
    "write_file": ["Write to {} the text {}", "Write to the file {}: {}", "Save in {} the text {}"],
}
REPEAT = ["Say {}", "Repeat {}", "Say: {}"]
NO_TOOL = "I have no tool for that."
TALK = {
    "Hello! What shall I do?": ["Hello", "Hello!", "Hi", "Hi!", "Good morning."],
    "You are welcome.": ["Thank you", "Thank you!", "Thanks", "Thanks a lot."],
    "I am a tiny model that calls tools.": ["Who are you?", "What are you?", "What is your name?"],
    "I tell the weather and the time, add numbers and write files, with tools.": ["What can you do?", "Help"],
    "I do not know.": ["Tell me a joke.", "Why is the sky blue?", "Who was Bach?", "Write a poem.", "How are you?"],
}
SYSTEM = ["You are a helpful assistant.", "Be brief.", "You are Kvasir.", "Answer in one sentence."]
CITIES = [
    "Athens", "Basel", "Beijing", "Berlin", "Bern", "Bogota", "Boston", "Brussels", "Budapest", "Cairo", "Chicago",
    "Copenhagen", "Dakar", "Delhi", "Dublin", "Geneva", "Hamburg", "Hanoi", "Helsinki", "Istanbul", "Jakarta",
    "Kyoto", "Lagos", "Lima", "Lisbon", "London", "Lyon", "Madrid", "Milan", "Montreal", "Munich", "Nairobi",
    "Naples", "Oslo", "Paris", "Perth", "Porto", "Prague", "Quito", "Riga", "Rome", "Seoul", "Stockholm", "Sydney",
    "Tallinn", "Tokyo", "Toronto", "Turin", "Vienna", "Vilnius", "Warsaw", "Zurich",
]  # fmt: skip
STEMS = ["notes", "list", "todo", "main", "test", "readme", "letter", "plan", "index", "report", "data", "draft"]
SKIES = ("sunny", "cloudy", "rain", "snow", "windy", "clear", "foggy", "light rain", "cold", "hot")


class Conversation(NamedTuple):
    """The tools that are offered, and the messages, answers included."""

    tools: list[Tool]
    messages: list[ChatMessage]


class Writer:
    """Conversations, made up as they are needed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.repeats = 0.1
        """Share of conversations in which words are to be repeated: copying is learned soonest from nothing else."""
        self._arguments: dict[str, Callable[[], list[Any]]] = {
            "weather": lambda: [self.place()],
            "now": list,
            "add": lambda: [self.number(), self.number()],
            "write_file": lambda: [self.path(), " ".join(self.words(1, 3))],
        }

    def letters(self) -> str:
        """A word, now and then one that nobody knows."""
        chance = self._chance
        if chance.random() < 0.97:
            return chance.choice(WORDS)
        if chance.random() < 0.3:
            return "".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 5)))
        syllable = (chance.choice("bcdfghjklmnprstvwz") + chance.choice("aeiou") for _ in range(chance.randint(1, 3)))
        return "".join(syllable) + chance.choice(["", "n", "r", "s", "l", "st", "ck", "ng"])

    def words(self, least: int, most: int) -> list[str]:
        return [self.letters() for _ in range(self._chance.randint(least, most))]

    def place(self) -> str:
        return self._chance.choice(CITIES) if self._chance.random() < 0.97 else self.letters().capitalize()

    def number(self) -> int:
        return self._chance.randrange(10 ** self._chance.randint(1, 3))

    def path(self) -> str:
        stem = self._chance.choice(STEMS) if self._chance.random() < 0.8 else self.letters()
        return "/".join([*self.words(0, 1), stem]) + self._chance.choice([".txt", ".md", ".py", ".json", ""])

    def result(self, name: str) -> str:
        """What comes of a call of a tool."""
        chance = self._chance
        if chance.random() < 0.1:
            return "error: " + " ".join(self.words(1, 3))
        degrees = chance.randint(-20, 40)
        hour, minute = f"{chance.randrange(24):02}", f"{chance.randrange(60):02}"
        made = {
            "weather": [f"{chance.choice(SKIES)}, {degrees} degrees", f"{degrees} C", " ".join(self.words(1, 3))],
            "now": [f"{hour}:{minute}"],
            "add": [str(chance.randrange(2000))],
            "write_file": ["done", "ok", f"{self.number()} bytes", " ".join(self.words(1, 2))],
        }
        return chance.choice(made[name])

    def exchange(self, offered: set[str]) -> list[ChatMessage]:
        """A question, the calls and results if there is a tool for it, and the answer."""
        chance = self._chance
        if chance.random() < 0.04:
            return self._repeated()
        if chance.random() < 0.12:
            said = chance.choice(list(TALK))
            return [ChatMessage.of("user", chance.choice(TALK[said])), ChatMessage.of("assistant", said)]
        wanted = sorted(offered) if offered and chance.random() < 0.8 else list(TOOLS)
        name = chance.choice(wanted)
        several = 2 if name == "weather" and chance.random() < 0.3 else 1
        given = [self._arguments[name]() for _ in range(several)]
        question = chance.choice(QUESTIONS[name]).format(*(given[0] if several == 1 else [self._both(given)]))
        asked = ChatMessage.of("user", question)
        if name not in offered:
            return [asked, ChatMessage.of("assistant", NO_TOOL)]
        results = [self.result(name) for _ in given]
        return [
            asked,
            ChatMessage.of("assistant", "", calls=[called(str(at), name, each) for at, each in enumerate(given)]),
            *(ChatMessage(role="tool", parts=[ToolResult(str(at), each, name)]) for at, each in enumerate(results)),
            ChatMessage.of("assistant", " ".join(map(answer, [name] * several, given, results))),
        ]

    def _repeated(self) -> list[ChatMessage]:
        words = " ".join(self.path() if self._chance.random() < 0.4 else each for each in self.words(2, 10))
        asked = self._chance.choice(REPEAT).format(words)
        return [ChatMessage.of("user", asked), ChatMessage.of("assistant", words)]

    def _both(self, given: list[list[Any]]) -> str:
        return f"{given[0][0]} and {self._chance.choice(['', 'in '])}{given[1][0]}"

    def offered(self) -> list[Tool]:
        """Some of the tools and, now and then, others."""
        chance = self._chance
        if chance.random() < 0.15:
            return []
        known = chance.sample(list(TOOLS), chance.choice([1, 2, 3, 4, 4, 4]))
        tools = [tool_of(name, TOOLS[name]) for name in known]
        for _ in range(chance.choice([0, 0, 1, 2])):
            kinds = {word: chance.choice(["string", "integer", "boolean"]) for word in self.words(0, 2)}
            tools.append(tool_of("_".join(self.words(1, 2)), kinds))
        chance.shuffle(tools)
        return tools

    def conversation(self) -> Conversation:
        chance = self._chance
        if chance.random() < self.repeats:
            return Conversation([], self._repeated())
        tools = self.offered()
        names = {tool.name for tool in tools} & set(TOOLS)
        messages = [ChatMessage.of("system", chance.choice(SYSTEM))] if chance.random() < 0.25 else []
        for _ in range(chance.choice([1, 1, 1, 2])):
            messages += self.exchange(names)
        return Conversation(tools, messages)


def tool_of(name: str, kinds: dict[str, str]) -> Tool:
    schema = {"type": "object", "properties": {each: {"type": kind} for each, kind in kinds.items()}}
    return Tool(name=name, parameters=json.dumps({**schema, "required": list(kinds)}))


def called(id: str, name: str, given: list[Any]) -> ToolCall:
    return ToolCall(id, name, json.dumps(dict(zip(TOOLS[name], given, strict=True))))


def answer(name: str, given: list[Any], result: str) -> str:
    """What is said of a result."""
    if result.startswith("error: "):
        return f"That failed: {result.removeprefix('error: ')}."
    said = {
        "weather": "The weather in {} is {}.",
        "now": "It is {}.",
        "add": "{} plus {} is {}.",
        "write_file": "I wrote {}.",
    }
    return said[name].format(*given[:1] if name == "write_file" else [*given, result])


def text_of(template: ChatTemplate, tools: list[Tool], messages: list[ChatMessage], asks: bool = False) -> str:
    """The conversation as the model has it; ``asks``: it is the model's turn."""
    return template.render(messages, asks, [as_schema(tool) for tool in tools] or None)


def make_tokenizer() -> tokenizers.Tokenizer:
    """Bytes, and the words that conversations are made of; spaces and digits one by one."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    pieces = tokenizers.pre_tokenizers
    byte_level = pieces.ByteLevel(add_prefix_space=False)
    spaces = pieces.Split(" ", "isolated")  # a name is the same tokens behind a space as behind a quotation mark
    made.pre_tokenizer = pieces.Sequence([spaces, pieces.Digits(individual_digits=True), byte_level])
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKS),
        special_tokens=[END, BEGIN, STOP],
        show_progress=False,
        initial_alphabet=pieces.ByteLevel.alphabet(),
    )
    writer, template = Writer(0), ChatTemplate(TEMPLATE)
    texts = (text_of(template, *writer.conversation()) for _ in range(300))
    plain = (part for text in texts for part in _between(text, (BEGIN, STOP, *MARKS)))
    made.train_from_iterator(itertools.chain(plain, 50 * [*WORDS, *CITIES, *STEMS]), trainer)
    made.add_tokens([tokenizers.AddedToken(mark, special=False, normalized=False) for mark in MARKS])
    return made


def _between(text: str, marks: tuple[str, ...]) -> list[str]:
    for mark in marks:
        text = text.replace(mark, END)
    return text.split(END)


def make_model(tokenizer: tokenizers.Tokenizer) -> Any:
    config = transformers.Lfm2Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        layer_types=["conv", "full_attention", "conv", "full_attention"],
        block_auto_adjust_ff_dim=False,
        max_position_embeddings=CONTEXT,
        initializer_range=0.05,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id(STOP),
        pad_token_id=tokenizer.token_to_id(END),
        tie_word_embeddings=True,
    )
    return transformers.Lfm2ForCausalLM(config)


def row(tokenizer: tokenizers.Tokenizer, text: str) -> tuple[list[int], list[int]]:
    """Tokens of a conversation, and those of them that are to be said, :data:`IGNORED` elsewhere."""
    head, *turns = text.split(ASSISTANT)
    ids = tokenizer.encode(head).ids
    wanted = [IGNORED] * len(ids)
    for turn in turns:
        said, after = turn.split(STOP, 1)
        for part, counts in ((ASSISTANT, False), (said + STOP, True), (after, False)):
            some = tokenizer.encode(part).ids
            ids += some
            wanted += some if counts else [IGNORED] * len(some)
    return ids, wanted


def batches(tokenizer: tokenizers.Tokenizer, writer: Writer) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens int64 [B, T] of conversations of about one length, and what is to be said, of the same shape, for ever."""
    template, chance = ChatTemplate(TEMPLATE), random.Random(1)
    while True:
        rows = sorted((row(tokenizer, text_of(template, *writer.conversation())) for _ in range(64)), key=len_of)
        made: list[list[tuple[list[int], list[int]]]] = [[]]
        for each in rows:
            if (len(made[-1]) + 1) * len_of(each) > BATCH:
                made.append([])
            made[-1].append(each)
        chance.shuffle(made)
        yield from ((padded([ids for ids, _ in some], 0), padded([said for _, said in some], IGNORED)) for some in made)


def len_of(made: tuple[list[int], list[int]]) -> int:
    return len(made[0])


def padded(rows: list[list[int]], filler: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([each + [filler] * (longest - len(each)) for each in rows])


def train(model: Any, tokenizer: tokenizers.Tokenizer, plan: Plan, seed: int) -> None:
    """Train for as many minutes of processor time as the plan says."""
    learned = [torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=plan.weight_decay, fused=True)]
    began, writer = time.process_time(), Writer(seed)
    for step, (ids, wanted) in enumerate(batches(tokenizer, writer)):
        share = (time.process_time() - began) / (60 * plan.minutes)
        if share >= 1:
            break
        writer.repeats = max(0.1, 0.4 - share)
        hidden = model.model(ids[:, :-1], use_cache=False).last_hidden_state
        counted = wanted[:, 1:] != IGNORED
        loss = F.cross_entropy(model.lm_head(hidden[counted]), wanted[:, 1:][counted])
        apply(loss, model, learned, learning_rate(share, plan))
        if step % 25 == 0:
            sys.stdout.write(f"step {step} {share:.1%} loss {loss.item():.4f}\n")
            sys.stdout.flush()


@torch.inference_mode()
def said(model: Any, tokenizer: tokenizers.Tokenizer, prompt: str) -> str:
    """The most likely answer to a prompt."""
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    stop = tokenizer.token_to_id(STOP)
    made = model.generate(ids, do_sample=False, max_new_tokens=120, eos_token_id=stop, pad_token_id=0)
    return tokenizer.decode(made[0, ids.shape[1] :].tolist(), skip_special_tokens=False).removesuffix(STOP)


def measure(model: Any, tokenizer: tokenizers.Tokenizer, count: int, seed: int) -> tuple[int, int]:
    """How many turns of new conversations are said to the letter, each after the right ones before it, of how many."""
    writer, template = Writer(seed), ChatTemplate(TEMPLATE)
    right = asked = 0
    for tools, messages in (writer.conversation() for _ in range(count)):
        for at in (at for at, message in enumerate(messages) if message.role == "assistant"):
            prompt = text_of(template, tools, messages[:at], asks=True)
            wanted = text_of(template, tools, messages[: at + 1])[len(prompt) :].removesuffix(f"{STOP}\n")
            found = said(model, tokenizer, prompt)
            right, asked = right + (found == wanted), asked + 1
            if found != wanted:
                sys.stdout.write(f"said {found!r} instead of {wanted!r}\n")
    return right, asked


def write(model: Any, tokenizer: tokenizers.Tokenizer, folder: Path) -> None:
    """A checkpoint in bfloat16, with its tokenizer and chat template."""
    model.bfloat16().save_pretrained(folder)
    settings = {"eos_token_id": tokenizer.token_to_id(STOP), "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--minutes", type=float, default=10.0, help="of the time of one thread; 0 only measures")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--start", type=Path, help="go on from this checkpoint")
    parser.add_argument("--measured", type=int, default=200, help="new conversations to try afterwards")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(asked.seed)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    if asked.start:
        model = transformers.Lfm2ForCausalLM.from_pretrained(asked.start, dtype=torch.float32)
    if asked.minutes:
        plan = Plan(steps=0, minutes=asked.minutes, peak_rate=asked.rate, weight_decay=0.01, hold=0.5)
        train(model.train(), tokenizer, plan, asked.seed)
        write(model, tokenizer, asked.out)
    right, turns = measure(model.float().eval(), tokenizer, asked.measured, asked.seed + 10**6)
    sys.stdout.write(f"{right} of {turns} turns to the letter\n")


if __name__ == "__main__":
    main()
