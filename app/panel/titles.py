"""An option's title, taken apart. Pure functions, no widgets."""

from __future__ import annotations


def in_two(title: str) -> tuple[str, str]:
    """A title's name and the term in brackets after it, which people can look up: ("Prefix caching",
    "RadixAttention")."""
    name, _, rest = title.partition(" (")
    return name, rest.removesuffix(")")
