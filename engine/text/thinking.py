"""Choices about thinking that a chat template gives people, found out by rendering it."""

from __future__ import annotations

from contextlib import suppress

from engine.protocol import ThinkingModes
from engine.text.channels import ChannelStyle, HarmonyStyle, TagStyle
from engine.text.template import ChatTemplate, PromptError

EFFORTS = ("low", "medium", "high")
_PROBE = ({"role": "user", "content": "?"},)


def thinking_modes(template: ChatTemplate, style: ChannelStyle | None) -> ThinkingModes:
    """``style`` is the model's own. A template can switch if it renders otherwise when told to."""
    try:
        plain = template.render(_PROBE)
        on = template.render(_PROBE, enable_thinking=True)
        off = template.render(_PROBE, enable_thinking=False)
    except PromptError:  # it wants another conversation; without a probe nothing is offered
        return ThinkingModes()
    if on != off:
        return ThinkingModes(kind="switchable", default=plain == on, efforts=_efforts(template, True))
    return ThinkingModes(kind="always" if _thinks(template, style) else "none", efforts=_efforts(template, None))


def _efforts(template: ChatTemplate, thinking: bool | None) -> list[str]:
    """The efforts that the template does not refuse, if it renders each of them differently."""
    texts: dict[str, str] = {}
    for effort in EFFORTS:
        with suppress(PromptError):
            texts[effort] = template.render(_PROBE, enable_thinking=thinking, reasoning_effort=effort)
    return list(texts) if len(set(texts.values())) == len(texts) > 1 else []


def _thinks(template: ChatTemplate, style: ChannelStyle | None) -> bool:
    """Return True if the template expects thinking; tags that are merely in the vocabulary promise nothing."""
    if isinstance(style, TagStyle):
        return any(pair.closes in template.source for pair in style.pairs)
    return isinstance(style, HarmonyStyle)
