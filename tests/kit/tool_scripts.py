"""A chat template that shows tools and calls, and the schema of a tool."""

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
