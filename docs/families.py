"""Write docs/families.md, the model families and what each was compared with: ``python docs/families.py``.

Families are those of ``engine.compute.models.registry``; what was compared is what the tests in ``tests/conformance``
compare, whose cases are counted. (A test compares the page with this.)
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from engine.compute.models.registry import FAMILIES
from engine.compute.vision.registry import TOWERS
from engine.formats.gguf.architectures import ARCHITECTURES
from engine.formats.quantised.nested import TEXT_MODELS

ROOT = Path(__file__).parents[1]
TARGET = Path(__file__).parent / "families.md"
CONFORMANCE = ROOT / "tests" / "conformance"

HEAD = """# The families of models

Made from `engine/compute/models/registry.py` by `python docs/families.py`. *Logits* counts the shapes of tiny random
models whose logits in float32 were compared with those of transformers {version}, over prompts of several lengths read
whole and in chunks (`tests/conformance/test_logits.py`), and *GGUF* those that were also written as llama.cpp's
converter does (`tests/conformance/test_gguf_families.py`, and `test_gguf.py` there for Llama and Qwen); names are
GGUF's. Where llama.cpp is installed the second are compared with it, too. (Mistral and Mixtral are saved as llama,
whose shapes here are Mixtral's.)

| architecture | what it is | logits | GGUF |
| --- | --- | --- | --- |
"""
TAIL = """
Checkpoints that also understand pictures are served as their text model: {nested}.

Pictures are seen by {seeing}. The others, and all GGUF files, read text only and say so.
"""


def page() -> str:
    """The page's text."""
    version = metadata.version("transformers")
    nested = ", ".join(f"`{outer}` as `{inner}`" for outer, inner in TEXT_MODELS.items())
    seeing = ", ".join(f"`{outer}`" for outer in TOWERS)
    return HEAD.format(version=version) + "".join(_rows()) + TAIL.format(nested=nested, seeing=seeing)


def _rows() -> Iterator[str]:
    logits, files = _cases("test_logits.py", 1), _cases("test_gguf_families.py", 0)
    models = {f"{family.removesuffix('Text')}ForCausalLM": count for family, count in logits.items()}
    for architecture, module in FAMILIES.items():
        file = ROOT / "engine/compute/models/families" / f"{module.replace('.', '/')}.py"
        text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
        what = " ".join(text.split("\n\n")[0].split()).removesuffix(".")
        names = [name for name, kind in ARCHITECTURES.items() if kind.family == architecture]
        gguf = ", ".join(f"{name} ({files[name]})" if files[name] else name for name in names) or "–"
        yield f"| {architecture} | {what} | {models.get(architecture, '–')} | {gguf} |\n"


def _cases(file: str, argument: int) -> Counter[str]:
    """How many cases of a test there are for each value of an argument of ``Case``, as they stand in its source."""
    tree = ast.parse((CONFORMANCE / file).read_text("utf-8"))
    made = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "CASES"
    )
    calls = [node for node in ast.walk(made) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Case"]
    return Counter(str(ast.literal_eval(call.args[argument])) for call in calls)


def main() -> int:
    TARGET.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
