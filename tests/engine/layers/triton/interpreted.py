"""Triton's interpreter, made ready: import this before anything that imports Triton.

Without native code, so that the kernels are held against torch's operators, whichever the processor.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"
os.environ["KVASIR_NATIVE"] = "off"

from triton.runtime import interpreter

_patch = interpreter._patch_lang_tensor


def _patch_for_numpy(tensor: type, scope: interpreter._LangPatchScope) -> None:
    """The bounds of a loop are arrays of one element, which numpy 2.4 no longer takes for integers (Triton 3.6.0)."""
    _patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patch_for_numpy
