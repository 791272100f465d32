from __future__ import annotations

import pytest

from engine.base.sizes import billions, figure, human


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (human(999_499_999), "999 MB"),
        (human(999_999_999), "1.0 GB"),
        (human(1), "1 kB"),
        (billions(0), ""),
        (billions(8_190_000_000), "8.19B"),
        (billions(999_900_000), "1B"),
        (billions(999_400_000), "999M"),
        (billions(1_040_000_000_000), "1040B"),
        (figure(9.94), "9.9"),
        (figure(9.96), "10"),
        (figure(1320.2), "1,320"),
    ],
)
def test_figures_keep_their_form_where_the_unit_changes(written: str, said: str) -> None:
    assert written == said
