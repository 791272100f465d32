"""Write the list of rooms into docs/inside.md: ``python docs/rooms.py`` (a test compares)."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = Path(__file__).parent / "inside.md"
BEGIN = "## The rooms of the engine"


def rooms() -> list[tuple[str, str]]:
    """The rooms from top to bottom as import-linter is told of them, each with the first line of its docstring."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (names,) = [each["layers"] for each in told if each["type"] == "layers"]
    sources = [(ROOT / "engine" / name / "__init__.py").read_text("utf-8") for name in names]
    said = [ast.get_docstring(ast.parse(source)) or "" for source in sources]
    return [(name, text.partition("\n")[0].removesuffix(".")) for name, text in zip(names, said, strict=True)]


def page() -> str:
    text = TARGET.read_text("utf-8")
    start = text.index("```text\n", text.index(BEGIN)) + len("```text\n")
    end = text.index("```", start)
    return text[:start] + "".join(f"{name:<11}{said}\n" for name, said in rooms()) + text[end:]


if __name__ == "__main__":
    TARGET.write_text(page(), "utf-8")
