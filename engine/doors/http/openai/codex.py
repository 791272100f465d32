"""Models as Codex's catalogue describes them, which it reads from /v1/models.

Source: https://github.com/openai/codex, codex-rs/protocol/src/openai_models.rs. Fields that it wants and that say
nothing about a model here have the values of its own models.
"""

from __future__ import annotations

from typing import Literal

import msgspec

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
"""The words for efforts that it knows."""
INSTRUCTIONS = """\
You are a coding agent. You work in a terminal on the user's computer, through the tools that you are given.

- Look before you act: read the files that a task is about, and search for what you do not know.
- Do what was asked, completely, and nothing else. Change as little as does it, in the style of the code around it.
- Change files with apply_patch where you have it. Its text begins with *** Begin Patch and ends with *** End Patch.
- Run what shows that it works, if there is something, and read what it says.
- Do not commit, delete, or reach the network unless you are asked to.
- When you are done, say in few words what you did, and what is left."""
"""What a model is told that Codex knows nothing else of."""


class CodexEffort(msgspec.Struct):
    effort: str
    description: str


class CodexTruncation(msgspec.Struct, frozen=True):
    """How much of what a tool returned is kept."""

    mode: Literal["bytes", "tokens"] = "tokens"
    limit: int = 10_000


class CodexModel(msgspec.Struct, kw_only=True):
    """``freeform``: files are changed by a custom tool that takes a patch as text."""

    slug: str
    display_name: str
    description: str = "A model of this computer, served by Kvasir."
    base_instructions: str = INSTRUCTIONS
    context_window: int
    input_modalities: list[str]
    supported_reasoning_levels: list[CodexEffort]
    supports_reasoning_summaries: bool
    apply_patch_tool_type: Literal["freeform"] = "freeform"
    shell_type: str = "unified_exec"
    supports_parallel_tool_calls: bool = True
    truncation_policy: CodexTruncation = CodexTruncation()
    visibility: Literal["list"] = "list"
    supported_in_api: bool = True
    priority: int = 0
    capabilities: list[str]
    """llama.cpp's words, whose list of models has this name, too."""
    upgrade: None = None
    support_verbosity: bool = False
    default_verbosity: None = None
    experimental_supported_tools: list[str] = []
