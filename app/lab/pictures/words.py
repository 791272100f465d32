"""What pictures and plots say of themselves. Pure functions, no widgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any

from app.lab.pictures.scale import placeable
from app.plots.words import count
from app.words import size
from engine.protocol.lab import (
    Amounts,
    Axis,
    Cells,
    Doing,
    Drafts,
    DraftToken,
    Fate,
    Heat,
    Lanes,
    Pages,
    Picture,
    Plot,
    Series,
    Span,
    Strip,
    Tree,
    TreeNode,
)

NO_PICTURE = "Picture"
COMPUTED, KEPT = "computed in this step", "kept in the KV cache"
FREE, RESERVED = "free", "reserved, empty"
SHARED, ONE_CHAT, READER = "read by several chats", "by one chat (its colour)", "a chat"
READ, NOT_READ, MARKED = "read", "not read", "what is looked for"
WITHIN, BEYOND = "within the limit", "beyond it"
DOING: dict[Doing, str] = {"waiting": "waiting", "reading": "reading", "writing": "writing", "idle": "idle"}
FATES: dict[Fate, str] = {"own": "the model's own", "accepted": "drafted, accepted", "refused": "drafted, refused"}
BYTES = ("B", "byte", "bytes")
PREFIXES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6))


def some(number: int, one: str, many: str = "") -> str:
    """For example "1 page", "2,048 pages"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def seconds(value: float) -> str:
    """For example "0 s", "0.25 s", "90 s"."""
    return f"{count(round(value, 3))} s"


def in_bytes(value: float) -> str:
    """For example "512 B", "3.5 kB", "48 kB", "1.2 GB"."""
    if not value or abs(value) >= 999_500:
        return size(value)
    return f"{value / 1e3:.{int(abs(value) < 9950)}f} kB" if abs(value) >= 1000 else f"{count(round(value))} B"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def token(text: str) -> str:
    """A token's text with its line breaks and, where there is nothing else, its blanks made visible."""
    seen = text.replace("\r", "").replace("\n", "↵").replace("\t", "→")
    return seen.strip() or "␣" * max(1, len(seen))


def cells_foot(columns: int, rows: int) -> str:
    return f"across: {some(columns, 'token')}; down: {some(rows, 'step')}"


def cells_step(step: int, computed: int, present: int) -> str:
    return f"Step {step + 1:,}: {computed:,} of {some(present, 'token')} computed"


def owner(names: list[str], owner: int) -> str:
    return names[owner] if owner < len(names) else f"request {owner + 1}"


def more(owners: int) -> str:
    return f"{owners:,} more"


def page(picture: Pages, page: int) -> str:
    held = picture.owners[page]
    if held < 0:
        return f"Page {page:,}: free"
    filled = _filled(picture, page)
    state = f"{percent(filled)} of its slots used" if filled > 0 else "reserved, empty"
    return f"Page {page:,}: {owner(picture.names, held)}, {state}"


def _filled(picture: Pages, page: int) -> float:
    return picture.filled[page] if page < len(picture.filled) else 0.0


def node(node: TreeNode) -> str:
    return f"{some(node.tokens, 'token')}, read by {some(len(node.readers), 'chat') if node.readers else 'no chat'}"


def span(lane: str, span: Span) -> str:
    return f"{lane}: {DOING[span.doing]} from {seconds(span.start)} to {seconds(span.end)}"


def earlier_steps(steps: int) -> str:
    return f"{some(steps, 'earlier step')} not shown"


def drafted(step: int, drafted: DraftToken) -> str:
    return f'Step {step:,}: "{token(drafted.text)}", {FATES[drafted.fate]}'


def across(picture: Heat) -> str:
    return f"{picture.across} →"


def down(picture: Heat) -> str:
    return f"← {picture.down}"


def heat_cell(picture: Heat, row: int, column: int) -> str:
    index = row * max(1, picture.columns) + column
    value = f"{picture.values[index]:.2f}" if index < len(picture.values) else "nothing"
    return f"{picture.down} {row:,}, {picture.across} {column:,}: {value}"


def strip_foot(pages: int) -> str:
    return f"the text from its start: {some(pages, 'page')}"


def strip_page(picture: Strip, page: int) -> str:
    looked_for = ", holds what is looked for" if page in picture.marked else ""
    return f"Page {page:,}: {percent(picture.read[page])} read{looked_for}"


def limit(value: float) -> str:
    return f"limit {in_bytes(value)}"


def amount(name: str, amount: float, limit: float) -> str:
    beyond = f", {in_bytes(amount - limit)} beyond the limit" if 0 < limit < amount else ""
    return f"{name}: {in_bytes(amount)}{beyond}"


def name(picture: Picture) -> str:
    """What kind of picture it is."""
    return _KINDS[type(picture)][0]


def sentence(picture: Picture) -> str:
    """The picture in one sentence."""
    return _KINDS[type(picture)][2](picture) if shows(picture) else nothing(picture)


def nothing(picture: Picture) -> str:
    """What stands in the place of an empty picture."""
    return _KINDS[type(picture)][1]


def shows(picture: Picture) -> bool:
    """Whether there is anything to paint."""
    match picture:
        case Cells():
            return bool(picture.computed) and max(picture.present, default=0) > 0
        case Pages():
            return bool(picture.owners)
        case Tree():
            return bool(picture.nodes)
        case Lanes():
            return bool(picture.lanes)
        case Drafts():
            return any(picture.steps)
        case Heat():
            return bool(picture.values)
        case Strip():
            return bool(picture.read)
        case Amounts():
            return bool(picture.names and picture.amounts)


def _cells(picture: Cells) -> str:
    steps = min(len(picture.computed), len(picture.present))
    computed, there = sum(picture.computed[:steps]), max(picture.present[:steps])
    again = f", {computed - there:,} of them again" if computed > there else ", none of them again"
    return f"{some(steps, 'step')}: {some(computed, 'token')} computed{again}."


def _pages(picture: Pages) -> str:
    filled = zip_longest(picture.owners, picture.filled[: len(picture.owners)], fillvalue=0.0)
    holders = [held for held, share in filled if held >= 0 and share > 0]
    free = sum(held < 0 for held in picture.owners)
    empty = len(picture.owners) - len(holders) - free
    parts = [f"{len(holders):,} hold tokens of {some(len(set(holders)), 'request')}"] if holders else []
    parts += [f"{empty:,} are reserved and empty"] if empty else []
    return f"{some(len(picture.owners), 'page')}: {', '.join([*parts, f'{free:,} free'])}."


def _tree(picture: Tree) -> str:
    readers = {reader for node in picture.nodes for reader in node.readers}
    held = sum(node.tokens for node in picture.nodes)
    read = sum(node.tokens * len(node.readers) for node in picture.nodes)
    return (
        f"{some(len(picture.nodes), 'node')} with {some(held, 'token')} for {some(len(readers), 'chat')}, "
        f"whose texts have {read:,} together."
    )


def _lanes(picture: Lanes) -> str:
    last = Counter(max(lane.spans, key=lambda span: span.end).doing for lane in picture.lanes if lane.spans)
    waits = f"; {last['waiting']:,} {'waits' if last['waiting'] == 1 else 'wait'}" if last["waiting"] else ""
    return f"{some(len(picture.lanes), 'request')} in {seconds(max(0.0, picture.seconds))}{waits}."


def _drafts(picture: Drafts) -> str:
    fates = Counter(token.fate for step in picture.steps for token in step)
    drafted, kept = fates["accepted"] + fates["refused"], fates["accepted"] + fates["own"]
    return (
        f"{some(len(picture.steps), 'step')}: {some(drafted, 'token')} drafted, {fates['accepted']:,} accepted, "
        f"{fates['refused']:,} refused; {kept / len(picture.steps):.1f} tokens a step."
    )


def _heat(picture: Heat) -> str:
    values = [value if value == value else 0.0 for value in picture.values]
    largest = max(range(len(values)), key=values.__getitem__)
    row, column = divmod(largest, max(1, picture.columns))
    rows = -(-len(values) // max(1, picture.columns))
    return f"{rows:,} by {picture.columns:,} values, the largest at {heat_cell(picture, row, column)}."


def _strip(picture: Strip) -> str:
    pages = len(picture.read)
    marked = [page for page in picture.marked if 0 <= page < pages]
    share = sum(value for value in picture.read if value == value) / pages
    found = sum(picture.read[page] > 0 for page in marked)
    looked = (
        f"; of {some(len(marked), 'page')} that {'holds' if len(marked) == 1 else 'hold'} what is looked for, "
        f"{found:,} {'was' if found == 1 else 'were'} read"
        if marked
        else ""
    )
    read = sum(value > 0 for value in picture.read)
    return f"{some(pages, 'page')}, {read:,} of them read, {percent(share)} of the text{looked}."


def _amounts(picture: Amounts) -> str:
    parts = [amount(*each, picture.limit) for each in zip(picture.names, picture.amounts, strict=False)]
    return "; ".join([*parts, *([limit(picture.limit)] if picture.limit > 0 else [])]) + "."


_KINDS: dict[type, tuple[str, str, Callable[[Any], str]]] = {
    Cells: ("Tokens computed in each step", "Nothing has been computed yet.", _cells),
    Pages: ("KV pages", "There are no pages yet.", _pages),
    Tree: ("Prefix tree", "Nothing is cached yet.", _tree),
    Lanes: ("Requests over time", "No request has come yet.", _lanes),
    Drafts: ("Drafted tokens", "Nothing has been drafted yet.", _drafts),
    Heat: ("Values", "There are no values yet.", _heat),
    Strip: ("Pages read", "Nothing has been read yet.", _strip),
    Amounts: ("Memory", "There are no amounts yet.", _amounts),
}


def axis(axis: Axis) -> str:
    """For example "Time (ms)"."""
    return f"{axis.title} ({axis.unit})" if axis.unit else axis.title


def value(axis: Axis, value: float) -> str:
    """A value of an axis without its unit, except where the unit is bytes: "2,048", "1.2 M", "48 kB"."""
    if axis.unit in BYTES:
        return in_bytes(value)
    return next((f"{value / power:,.3g} {prefix}" for prefix, power in PREFIXES if abs(value) >= power), count(value))


def with_unit(shown: Axis, number: float) -> str:
    """For example "34 ms"."""
    rounded = float(f"{number:.4g}")
    return value(shown, rounded) + (f" {shown.unit}" if shown.unit and shown.unit not in BYTES else "")


def point(plot: Plot, series: Series, index: int) -> str:
    """One point with its interval."""
    x, y = series.points[index]
    named = plot.categories[index] if index < len(plot.categories) else str(index + 1)
    where = named if plot.bars else with_unit(plot.x, x)
    between = interval(series, index)
    spread = (
        f" ({value(plot.y, float(f'{between[0]:.4g}'))} to {value(plot.y, float(f'{between[1]:.4g}'))})"
        if between
        else ""
    )
    return f"{series.name}, {where}: {with_unit(plot.y, y)}{spread}"


def interval(series: Series, index: int) -> tuple[float, float] | None:
    """Around one point, if it has one that has a place."""
    if index < len(series.low) and index < len(series.high):
        found = series.low[index], series.high[index]
        return found if all(placeable(end, False) for end in found) else None
    return None


def plot(plot: Plot) -> str:
    """A plot in one sentence for each of its series."""
    over = "" if plot.bars else f" over {axis(plot.x)}"
    parts = [
        (f"{series.name}: " if series.name else "") + _extent(plot.y, (y for _, y in series.points))
        for series in plot.series
    ]
    return f"{axis(plot.y)}{over}. {'; '.join(parts) or 'No data'}." + (f" {plot.note}" if plot.note else "")


def _extent(shown: Axis, values: Iterable[float]) -> str:
    known = [value for value in values if placeable(value, False)]
    if not known:
        return "no points"
    low, high = min(known), max(known)
    return with_unit(shown, low) if low == high else f"{value(shown, float(f'{low:.4g}'))} to {with_unit(shown, high)}"
