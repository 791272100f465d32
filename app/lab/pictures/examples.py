"""A drawing of what each experiment shows, by its name, for as long as it has not been run. None of it is measured."""

from __future__ import annotations

from engine.protocol.lab import (
    Amounts,
    Cells,
    Drafts,
    DraftToken,
    Fate,
    Heat,
    LabTreeNode,
    Lane,
    Lanes,
    Pages,
    Picture,
    Span,
    Strip,
    Tree,
)


def _step(*drafted: tuple[Fate, int]) -> list[DraftToken]:
    """Draft tokens of a step, from each one's fate and its parent's place."""
    return [DraftToken(text="", fate=fate, parent=parent) for fate, parent in drafted]


EXAMPLES: dict[str, Picture] = {
    "kv_cache": Cells(computed=[4, 1, 1, 1, 1, 1], present=[4, 5, 6, 7, 8, 9]),
    "weights": Amounts(names=["", "", ""], amounts=[4.0, 2.0, 1.0]),
    "paging": Pages(
        owners=[0, 1, 0, 2, 2, 1, 3, 0, 1, 2, 3, 3, 0, 2, -1, -1], filled=[1.0] * 12 + [0.4, 0.6, 0.0, 0.0]
    ),
    "kivi": Heat(
        columns=12,
        values=[1.0 if at % 12 in (3, 8) else 0.3 * (at * 7 % 5) / 5 for at in range(72)],
        across="",
        down="",
    ),
    "quest": Strip(read=[1.0 if at in (0, 9, 17, 18, 23) else 0.0 for at in range(24)], marked=[17]),
    "window": Strip(read=[1.0 if at < 2 or at > 17 else 0.0 for at in range(24)]),
    "prefixes": Tree(
        nodes=[
            LabTreeNode(parent=-1, tokens=8, readers=[0, 1, 2, 3]),
            *(LabTreeNode(parent=0, tokens=2, readers=[reader]) for reader in range(4)),
        ]
    ),
    "batching": Lanes(
        lanes=[
            Lane(
                name="",
                spans=[
                    Span(start=start, end=start + 1, doing="reading"),
                    Span(start=start + 1, end=end, doing="writing"),
                ],
            )
            for start, end in ((0.0, 5.0), (1.0, 8.0), (2.0, 4.0), (4.0, 9.0), (5.0, 7.0))
        ],
        seconds=9.0,
    ),
    "chunked": Lanes(
        lanes=[
            *(
                Lane(
                    name="",
                    spans=[
                        Span(start=0.0, end=3.0, doing="writing"),
                        Span(start=3.0, end=6.0, doing="paused"),
                        Span(start=6.0, end=9.0, doing="writing"),
                    ],
                )
                for _ in range(3)
            ),
            Lane(
                name="",
                spans=[Span(start=3.0, end=6.0, doing="reading"), Span(start=6.0, end=9.0, doing="writing")],
            ),
        ],
        seconds=9.0,
    ),
    "mlfq": Lanes(
        lanes=[
            Lane(
                name="",
                spans=[
                    Span(start=0.0, end=2.0, doing="writing"),
                    Span(start=2.0, end=5.0, doing="paused"),
                    Span(start=5.0, end=9.0, doing="writing"),
                ],
            ),
            *(
                Lane(
                    name="",
                    spans=[
                        Span(start=start - 1.0, end=start, doing="waiting"),
                        Span(start=start, end=start + 1.0, doing="writing"),
                    ],
                )
                for start in (2.0, 3.0, 4.0)
            ),
        ],
        seconds=9.0,
    ),
    "speculation": Drafts(
        steps=[
            _step(("accepted", -1), ("accepted", 0), ("refused", 1), ("own", 1)),
            _step(("accepted", -1), ("accepted", 0), ("accepted", 1), ("own", 2)),
        ]
    ),
    "heads": Drafts(
        steps=[_step(("accepted", -1), ("refused", -1), ("accepted", 0), ("refused", 0), ("refused", 2), ("own", 2))]
    ),
    "batch_size": Amounts(names=["", "", "", ""], amounts=[1.0, 1.9, 3.2, 4.0]),
}
