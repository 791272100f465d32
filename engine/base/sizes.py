"""Sizes for people. Light: commands that load no model use it too."""

from __future__ import annotations


def human(count: int) -> str:
    """Format a number of bytes: "5.1 GB", "740 MB", "12 kB"; less than a kilobyte counts as one."""
    if count >= 999_500_000:
        return f"{count / 10**9:.1f} GB"
    if count >= 10**6:
        return f"{count / 10**6:.0f} MB"
    return f"{-(-count // 1000)} kB"


def billions(parameters: int) -> str:
    """Format a number of parameters: "8.19B", "600M"; "" where it is not known (0)."""
    if not parameters:
        return ""
    unit, letter = (1e9, "B") if parameters >= 999.5e6 else (1e6, "M")
    return f"{float(f'{parameters / unit:.3g}'):g}{letter}"


def figure(number: float) -> str:
    """Format a number: "0.8", "7.4", "1,320"."""
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.1f}"
