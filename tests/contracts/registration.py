"""How a kind registers: a class of its test file, ``Test…``, that inherits from a contract and says what differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest


class Contract:
    """Properties are methods. ``cases`` names the values that they get, by the name of the argument."""

    cases: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        for name in metafunc.fixturenames:
            if name in self.cases:
                metafunc.parametrize(name, list(self.cases[name].values()), ids=list(self.cases[name]))
