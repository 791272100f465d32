"""Write docs/optimisations.md from the catalogue: ``python docs/generate.py`` (a test compares the two).

The window's help shows the same page, a technique at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import engine.loading.techniques  # noqa: F401 - fills the catalogue
from engine.catalogue import BY_KEY, Choice, Option
from engine.catalogue.exclusions import EXCLUSIONS, MISSING

TARGET = Path(__file__).parent / "optimisations.md"

HEAD = """# The optimisations

Made from `engine/catalogue` by `python docs/generate.py`. Each row of the panel, each `--set KEY=VALUE` of
`kvasir chat` and each row of `kvasir bench` is one of these; [which of them go together](together.md).

*Lossless* means the same mathematics: under "batch-invariant arithmetic" the text is equal to the token; in fast mode
the last bits may differ, because another kernel or another number of rows rounds differently.
"""

SCOPES = {"request": "each answer", "engine": "the whole engine"}
APPLIES = {
    "live": "at once",
    "next request": "with the next answer",
    "cache": "with the next answer, after the cache is dropped",
    "reload": "after the model is loaded again",
}
EXACTNESS = {
    "lossless": "Lossless.",
    "same distribution": "Other words, equally likely.",
    "approximate": "Lossy.",
    "model property": "A property of the model.",
}
_ARXIV = re.compile(r"arXiv (\d{4}\.\d{5})")
_ADDRESS = re.compile(r"\((https://[^)]+)\)")


def page() -> str:
    """The page's text."""
    groups = dict.fromkeys(entry.group for entry in BY_KEY.values())
    parts = [HEAD]
    for group in groups:
        parts.append(f"## {group}\n")
        parts.extend(_entry(entry) for entry in BY_KEY.values() if entry.group == group)
    return "\n".join(parts)


def _entry(entry: Option) -> str:
    return f"### {entry.title} (`{entry.key}`)\n\n" + "\n\n".join(_paragraphs(entry)) + "\n"


def _paragraphs(entry: Option) -> Iterator[str]:
    yield entry.explains
    if entry.choices:
        yield "\n".join(_value(entry, choice) for choice in entry.choices)
    yield f"**When it helps.** {entry.helps}"
    yield f"**What it costs.** {EXACTNESS[entry.exactness]} {entry.costs}"
    yield f"**What to watch.** {entry.measure.shows[0].upper()}{entry.measure.shows[1:]}. {_measure(entry)}"
    yield f"**Setting.** `--set {entry.key}=VALUE`: {_values(entry)}. {_reach(entry)}"
    for need in (*entry.needs, *entry.relevant.capabilities):
        yield f"**Where it cannot apply.** {MISSING[need]}"
    for rule in EXCLUSIONS:
        if rule.one.key == entry.key:
            yield f"**Not together.** {rule.reason}"
    if entry.also:
        yield f"**Also called** {', '.join(entry.also)}."
    if entry.reference:
        yield f"**Paper.** {_linked(entry.reference)}."
    yield "**In the source.** " + ", ".join(f"`{path}`" for path in entry.source)


def _value(entry: Option, choice: Choice) -> str:
    own = f" {EXACTNESS[choice.exactness]}" if choice.exactness and choice.exactness != entry.exactness else ""
    told = {choice.title, *re.split(r" \(|\)", choice.title)}
    names = ", ".join(f"**{name}**" for name in (choice.title, *(other for other in choice.also if other not in told)))
    return f"- {names} (`{choice.key}`)  \n  {choice.explains}{own}"


def _measure(entry: Option) -> str:
    said = []
    metric = entry.measure.metric
    if metric.elsewhere:
        said.append(metric.elsewhere)
    elif entry.measure.compare:
        said.append(f"The measure button in the panel shows it on this computer: {metric.title}.")
    if entry.exactness == "approximate":
        said.append("The panel also measures on the chat on screen what it costs in quality.")
    return " ".join(said)


def _reach(entry: Option) -> str:
    scope, applies = SCOPES[entry.scope], APPLIES[entry.applies]
    said = f"The default is `{_word(entry.default)}`. It is set for {scope} and takes effect {applies}."
    other, values = entry.relevant.of
    if other:
        at = ", ".join(f"`{_word(value)}`" for value in values)
        said += f" It means something only with `{other}` at {at}."
    return said


def _linked(reference: str) -> str:
    reference = _ARXIV.sub(r"[arXiv \1](https://arxiv.org/abs/\1)", reference)
    return _ADDRESS.sub(lambda match: match[0] if "arxiv.org" in match[1] else f"([link]({match[1]}))", reference)


def _values(entry: Option) -> str:
    if entry.choices:
        return ", ".join(f"`{choice.key}`" for choice in entry.choices)
    if entry.kind == "bool":
        return "`on`, `off`"
    zero = f" (0 is {entry.range.zero_means})" if entry.range.zero_means else ""
    return f"{entry.range.minimum:,.10g} to {entry.range.maximum:,.10g}{zero}"


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
