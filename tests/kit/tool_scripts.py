"""A chat template that shows tools and calls, the schema of a tool, and the grammar of another."""

from __future__ import annotations

from typing import Any

QWEN = """{%- if tools %}<|im_start|>system
{%- for tool in tools %}{{ "\\n" ~ (tool | tojson) }}{%- endfor %}<|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}
{%- for call in m.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{%- endfor %}{%- if m.role == "tool" %} of {{ m.name }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PATCH_GRAMMAR = """start: "*** Begin Patch" LF change+ "*** End Patch" LF?
change: added | deleted | updated
added: "*** Add File: " name LF ("+" /(.*)/ LF)+
deleted: "*** Delete File: " name LF
updated: "*** Update File: " name LF moved? lines?
moved: "*** Move to: " name LF
lines: (place | line)+ ("*** End of File" LF)?
place: ("@@" | "@@ " /(.+)/) LF -> place
line: ("+" | "-" | " ") /(.*)/ LF
name: /(.+)/
%import common.LF
"""
"""The language of the patches that Codex's apply_patch takes, in the words of Lark that its own grammar uses."""
