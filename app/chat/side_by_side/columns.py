"""Columns of answers side by side: what each is asked with, and which answers of a chat stand so now. Knows no Qt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from app.history.records import Chat, StoredMessage
from app.history.tree import MessageTree
from app.language import tr
from app.settings.store import Preset
from engine.protocol import RemoteModel, Sampling

FEWEST, MOST = 2, 4
CHAT, SEED, HERE = "chat", "seed", "here"
TEMPERATURES = (0.0, 0.3, 0.7, 1.0, 1.3)
_TEMPERATURE, _PRESET, _REMOTE = "temperature", "preset", "remote"


class AnswerColumn(NamedTuple):
    """What one answer is asked with; the rest is as the chat has it. ``system`` None: the chat's system prompt."""

    heading: str
    sampling: Sampling
    system: str | None = None
    remote: RemoteModel | None = None


class Offer(NamedTuple):
    """Columns by their keys, under a heading."""

    heading: str
    columns: dict[str, AnswerColumn]


def offered(
    chat: Chat, presets: Mapping[str, Preset], remotes: Mapping[str, Sequence[RemoteModel]], model: str
) -> list[Offer]:
    """Everything that a column can be. ``model`` is the name of this computer's, "" for none."""
    sampling, remote = chat.sampling, chat.remote
    own = {
        CHAT: AnswerColumn(tr("This chat's settings"), sampling, remote=remote),
        SEED: AnswerColumn(tr("Another seed"), msgspec.structs.replace(sampling, seed=None), remote=remote),
    }
    if remote is not None and model:
        own[HERE] = AnswerColumn(tr("{model} on this computer", model=model), sampling)
    warm = {
        f"{_TEMPERATURE}:{value:g}": AnswerColumn(
            tr("Temperature {value:g}", value=value),
            msgspec.structs.replace(sampling, temperature=value),
            remote=remote,
        )
        for value in TEMPERATURES
    }
    kept = {
        f"{_PRESET}:{name}": AnswerColumn(name, preset.sampling, preset.system, remote)
        for name, preset in sorted(presets.items(), key=lambda item: item[0].casefold())
    }
    far = {
        f"{_REMOTE}:{each.server}:{each.model}": AnswerColumn(
            tr("{model} on {server}", model=each.model, server=each.server), sampling, remote=each
        )
        for models in remotes.values()
        for each in models
        if each != remote
    }
    groups = [Offer("", own), Offer(tr("Another temperature"), warm), Offer(tr("Presets"), kept)]
    return [group for group in (*groups, Offer(tr("Models of other servers"), far)) if group.columns]


def standing(tree: MessageTree) -> list[StoredMessage]:
    """The answers side by side at the end of the shown branch, from the left; none once one of them was chosen."""
    beside = tree.get(tree.leaf).stats.beside if tree.leaf in tree else None
    if beside is None or beside.chosen:
        return []
    found = [
        (other.place, message)
        for message in map(tree.get, tree.siblings(tree.leaf))
        if (other := message.stats.beside) is not None and other.group == beside.group and not other.chosen
    ]
    return [message for _, message in sorted(found, key=lambda item: item[0])] if len(found) >= FEWEST else []


def across(count: int, room: int, least: int, gap: int) -> int:
    """How many of ``count`` columns stand next to each other in ``room`` pixels, in rows as even as can be.

    Each is at least ``least`` wide, ``gap`` from the next.
    """
    most = min(count, max(1, (room + gap) // (least + gap)))
    rows = -(-count // most)
    return -(-count // rows)
