"""Triton's interpreter, made ready: import this before anything that imports Triton.

Without native code, so that the kernels are held against torch's operators, whichever the processor.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
os.environ["KVASIR_NATIVE"] = "off"

import numpy
from triton import language
from triton.runtime import interpreter

_patch_tensor = interpreter._patch_lang_tensor
_patch_language: Callable[[Any], interpreter._LangPatchScope] = interpreter._patch_lang
_numpy_scalar: Callable[[Any], numpy.dtype[Any]] = cache(interpreter._get_np_dtype)


def _patch_for_numpy(tensor: type, scope: interpreter._LangPatchScope) -> None:
    """The bounds of a loop are arrays of one element, which numpy 2.4 no longer takes for integers (Triton 3.6.0)."""
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


@cache
def _languages(function: Any) -> list[ModuleType]:
    """The modules of the language that a function sees."""
    seen = function.__globals__.values()
    return [module for module in (language, language.core) if any(each is module for each in seen)]


def _patch_once(function: Any) -> interpreter._LangPatchScope:
    """Triton 3.6.0 looks through the language for each call of a function by a kernel, for which all is patched."""
    places = (language.tensor.__add__, *(module.load for module in _languages(function)))
    if any(map(language.core.is_builtin, places)):
        return _patch_language(function)
    return interpreter._LangPatchScope()


def _numpy_type(type: Any) -> numpy.dtype[Any]:
    """From a table that Triton 3.6.0 makes anew for each tensor."""
    element = type.element_ty if isinstance(type, language.block_type) else type
    return numpy.dtype("uint64") if isinstance(element, language.pointer_type) else _numpy_scalar(element)


interpreter._patch_lang_tensor = _patch_for_numpy
interpreter._patch_lang = _patch_once
interpreter._get_np_dtype = _numpy_type
# Whether integers overflow is worked out and then not asserted, as the option `debug` is not set.
interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)
