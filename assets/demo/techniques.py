"""Questions and answers about every optimisation, made from engine/catalogue: the guide learns what Help says.

A hand-written answer in knowledge/ may quote the catalogue too: ``{kv_cache.explains}``, or ``{speculation.values}``
for the names of all values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import engine.loading.techniques  # noqa: F401 - fills the catalogue
from engine.catalogue import BY_KEY, Choice, Option

WHAT = (
    "What is {0}?",
    "what does {0} do",
    "How does {0} work?",
    "Explain {0} to me",
    "{0}",
    "What is {0} good for?",
    "Does Kvasir have {0}?",
    "I read about {0}, what is it?",
    "Can you tell me what {0} means?",
    "define {0}",
    "Describe {0} in plain words",
    "What is the idea of {0}?",
)
WHEN = (
    "When does {0} help?",
    "What does {0} cost?",
    "When should I use {0}?",
    "What is the drawback of {0}?",
    "Is {0} worth it?",
    "advantages and disadvantages of {0}",
    "Does {0} change the text?",
    "Should I switch {0} on?",
    "Is {0} lossless?",
    "Who profits from {0}?",
)
SEEN = (
    "How do I see the effect of {0}?",
    "How can I measure {0}?",
    "What should I watch when I try {0}?",
    "Which figure shows what {0} brings?",
    "measure {0}",
    "How do I know that {0} does anything?",
    "What does {0} bring on my computer?",
    "Where do I see {0} at work?",
)
_QUOTE = re.compile(r"\{(\w+)\.(\w+)\}")
_UNIT = re.compile(r" \((GB|tokens)\)$")


def quoted(answer: str) -> str:
    """``answer`` with what it quotes of the catalogue. Raises KeyError or AttributeError for an unknown quotation."""

    def words(match: re.Match[str]) -> str:
        entry = BY_KEY[match[1]]
        return ", ".join(choice.title for choice in entry.choices) if match[2] == "values" else getattr(entry, match[2])

    return _QUOTE.sub(words, answer)


def name(entry: Option) -> str:
    """The title without its unit."""
    return _UNIT.sub("", entry.title)


def names(entry: Option) -> tuple[str, ...]:
    """What people call the option; its title as a word in a sentence."""
    return (f'the switch "{name(entry)}"' if len(name(entry).split()) > 2 else name(entry), *entry.also)


def asked(templates: tuple[str, ...], called: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(template.format(word) for word in called for template in templates)


def when(entry: Option) -> str:
    return f"{name(entry)} helps with this: {entry.helps} Its cost: {entry.costs}"


def seen(entry: Option) -> str:
    return f"To see what {name(entry)} brings, press its measure button and watch this: {entry.measure.shows}."


def value(entry: Option, choice: Choice) -> str:
    return f"{choice.also[0]}, a value of the switch {name(entry)}: {choice.explains}"


def pairs() -> Iterator[tuple[str, tuple[str, ...], str, tuple[tuple[tuple[str, ...], str], ...]]]:
    """Of each technique: topic, ways to ask, answer, and what may be asked after that answer, with its answer."""
    for entry in BY_KEY.values():
        called = names(entry)
        further = (
            (("When does that help?", "What does it cost?", "Is it worth it?", "Any drawback?"), when(entry)),
            (("How can I see that?", "How do I measure it?", "What should I watch?"), seen(entry)),
        )
        yield entry.title, asked(WHAT, called), entry.explains, further
        yield entry.title, asked(WHEN, called), when(entry), ()
        yield entry.title, asked(SEEN, called), seen(entry), ()
        for choice in entry.choices:
            if choice.also:
                yield entry.title, asked(WHAT, choice.also), value(entry, choice), further
