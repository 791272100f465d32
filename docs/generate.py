"""Write docs/optimisations.md from the catalogue: ``python docs/generate.py`` (a test compares the two)."""

from __future__ import annotations

from pathlib import Path

from engine.catalogue import CATALOGUE, Option

TARGET = Path(__file__).parent / "optimisations.md"

HEAD = """# The optimisations

Made from `engine/catalogue` by `python docs/generate.py`. Each row of the panel, each `--set KEY=VALUE` of
`kvasir chat` and each row of `kvasir bench` is one of these.

*Lossless* means the same mathematics: under "batch-invariant arithmetic" the text is equal to the token; in fast mode
the last bits may differ, because another kernel or another number of rows rounds differently.
"""

SCOPES = {"request": "each answer", "engine": "the whole engine"}


def page() -> str:
    """The page's text."""
    groups = dict.fromkeys(entry.group for entry in CATALOGUE)
    parts = [HEAD]
    for group in groups:
        parts.append(f"## {group}\n")
        parts.extend(_entry(entry) for entry in CATALOGUE if entry.group == group)
    return "\n".join(parts)


def _entry(entry: Option) -> str:
    facts = [f"values: {_values(entry)}", f"default: `{_word(entry.default)}`", entry.exactness]
    facts += [f"set for {SCOPES[entry.scope]}", f"takes effect: {entry.applies}"]
    if entry.of[0]:
        facts.append(f"only with `{entry.of[0]}` at `{_word(entry.of[1])}`")
    if entry.needs:
        facts.append("needs " + ", ".join(entry.needs))
    lines = [f"### {entry.title} (`{entry.key}`)\n", entry.explains + "\n", "- " + "; ".join(facts)]
    lines.append(f"- seen in: {entry.shows}")
    if entry.reference:
        lines.append(f"- source: {entry.reference}")
    lines.extend(f"- refused: {rule.reason}" for rule in entry.conflicts)
    return "\n".join(lines) + "\n"


def _values(entry: Option) -> str:
    if entry.choices:
        return ", ".join(f"`{choice.key}`" for choice in entry.choices)
    if entry.kind == "bool":
        return "`on`, `off`"
    zero = f" (0 is {entry.zero_means})" if entry.zero_means else ""
    return f"{entry.minimum:g} to {entry.maximum:g}{zero}"


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    TARGET.write_text(page())
