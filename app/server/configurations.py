"""Configurations of other programs for this server, to be copied: what each needs, where it goes, how it is written.

A template names ``$url`` (the server's address), ``$v1`` (that with /v1), ``$catalogue`` (that of its models),
``$key``, ``$model``, ``$openai_model`` (with the prefix that LiteLLM routes by), ``$path`` (the model behind the
provider's name), ``$context`` (tokens) and ``$pictures`` (true or false). Each is put in as its language writes a
text.

Sources, as of November 2026: code.claude.com/docs/en/env-vars; developers.openai.com/codex/config-sample (Responses is
the only wire that is left); opencode.ai/docs/providers (the spelling of version 1, which version 2 reads too);
docs.cline.bot/provider-config/openai-compatible; docs.continue.dev/customize/model-providers/top-level/openai;
zed.dev/docs/ai/llm-providers (the key comes from a variable that is called like the provider);
docs.openwebui.com/features/openai; aider.chat/docs/llms/openai-compat.html.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from string import Template
from typing import NamedTuple

from app.language import tr

NO_KEY, NO_MODEL = "YOUR_KEY", "MODEL"
"""Where there is no key or model to put in."""


class SetupStep(NamedTuple):
    """One text to copy. ``where``: the file or place that it goes to; ``language``: how texts are written there."""

    where: str
    language: str
    template: str


class Client(NamedTuple):
    """``about``: a sentence on what it asks for; "" where nothing is to be said."""

    key: str
    title: str
    steps: tuple[SetupStep, ...]
    about: str = ""


class Values(NamedTuple):
    """What is put into a configuration. ``context``: tokens that the model reads at most."""

    url: str
    key: str = NO_KEY
    model: str = NO_MODEL
    context: int = 32_768
    pictures: bool = False


TERMINAL = tr("In a terminal")
_PYTHON = tr("In Python")
_SHELL = "shell"
CLIENTS = (
    Client(
        "claude-code",
        "Claude Code",
        (
            SetupStep(
                TERMINAL,
                _SHELL,
                """export ANTHROPIC_BASE_URL=$url
export ANTHROPIC_AUTH_TOKEN=$key
export ANTHROPIC_API_KEY=
export ANTHROPIC_MODEL=$model
export ANTHROPIC_DEFAULT_OPUS_MODEL=$model
export ANTHROPIC_DEFAULT_SONNET_MODEL=$model
export ANTHROPIC_DEFAULT_HAIKU_MODEL=$model
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
claude""",
            ),
        ),
        tr("Its first prompt has some {tokens:,} tokens: the model's context has to be longer.", tokens=20_000),
    ),
    Client(
        "codex",
        "Codex",
        (
            SetupStep(
                tr("In {file}", file="~/.codex/config.toml"),
                "json",
                """model = $model
model_provider = "kvasir"
model_context_window = $context

[model_providers.kvasir]
name = "Kvasir"
base_url = $v1
model_catalog_url = $catalogue
env_key = "KVASIR_API_KEY"
wire_api = "responses"
""",
            ),
            SetupStep(TERMINAL, _SHELL, "export KVASIR_API_KEY=$key\ncodex"),
        ),
        tr("It asks through /v1/responses alone. Its tools and prompt have some {tokens:,} tokens.", tokens=6_000),
    ),
    Client(
        "opencode",
        "opencode",
        (
            SetupStep(
                tr("In opencode.json of a project, or ~/.config/opencode/opencode.json"),
                "json",
                """{
  "$$schema": "https://opencode.ai/config.json",
  "model": $path,
  "provider": {
    "kvasir": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "Kvasir",
      "options": {
        "baseURL": $v1,
        "apiKey": $key
      },
      "models": {
        $model: {
          "name": $model,
          "limit": { "context": $context, "output": $context }
        }
      }
    }
  }
}
""",
            ),
        ),
    ),
    Client(
        "cline",
        "Cline",
        (
            SetupStep(
                tr("In Cline's settings"),
                "plain",
                """API Provider: OpenAI Compatible
Base URL: $v1
API Key: $key
Model ID: $model
Context Window Size: $context""",
            ),
        ),
    ),
    Client(
        "continue",
        "Continue",
        (
            SetupStep(
                tr("In {file}", file="~/.continue/config.yaml"),
                "json",
                """name: Kvasir
version: 0.0.1
schema: v1
models:
  - name: Kvasir
    provider: openai
    model: $model
    apiBase: $v1
    apiKey: $key
    roles: [chat, edit, apply]
    capabilities: [tool_use]
    defaultCompletionOptions:
      contextLength: $context
""",
            ),
        ),
    ),
    Client(
        "zed",
        "Zed",
        (
            SetupStep(
                tr("In Zed's settings.json"),
                "json",
                """{
  "language_models": {
    "openai_compatible": {
      "Kvasir": {
        "api_url": $v1,
        "available_models": [
          {
            "name": $model,
            "display_name": $model,
            "max_tokens": $context,
            "capabilities": {
              "tools": true,
              "images": $pictures,
              "parallel_tool_calls": true,
              "prompt_cache_key": false
            }
          }
        ]
      }
    }
  }
}
""",
            ),
            SetupStep(TERMINAL, _SHELL, "export KVASIR_API_KEY=$key\nzed"),
        ),
        tr("Instead of the variable, its settings take the key too (LLM Providers, Kvasir)."),
    ),
    Client(
        "open-webui",
        "Open WebUI",
        (
            SetupStep(
                TERMINAL,
                _SHELL,
                """export OPENAI_API_BASE_URL=$v1
export OPENAI_API_KEY=$key
export ENABLE_OLLAMA_API=False
open-webui serve""",
            ),
        ),
        tr(
            "Once it has run, connections are changed in its settings (Admin Panel, Connections). A container does not "
            "reach this address; see “Web pages and containers” in Help."
        ),
    ),
    Client(
        "aider",
        "aider",
        (
            SetupStep(
                TERMINAL,
                _SHELL,
                """export OPENAI_API_BASE=$v1
export OPENAI_API_KEY=$key
aider --model $openai_model""",
            ),
        ),
    ),
    Client(
        "python-openai",
        "Python: openai",
        (
            SetupStep(
                _PYTHON,
                "json",
                """import openai

client = openai.OpenAI(base_url=$v1, api_key=$key)
answer = client.chat.completions.create(
    model=$model,
    messages=[{"role": "user", "content": "Hello"}],
)
print(answer.choices[0].message.content)
""",
            ),
        ),
    ),
    Client(
        "python-anthropic",
        "Python: anthropic",
        (
            SetupStep(
                _PYTHON,
                "json",
                """import anthropic

client = anthropic.Anthropic(base_url=$url, api_key=$key)
answer = client.messages.create(
    model=$model,
    max_tokens=1024,
    messages=[{"role": "user", "content": "Hello"}],
)
print(answer.content[0].text)
""",
            ),
        ),
    ),
    Client(
        "curl",
        "curl",
        (
            SetupStep(
                TERMINAL,
                "curl",
                """curl $v1/chat/completions \\
  -H "Authorization: Bearer $key" \\
  -H "Content-Type: application/json" \\
  -d '{"model": $model, "messages": [{"role": "user", "content": "Hello"}]}'""",
            ),
        ),
    ),
)


def _quoted(text: str) -> str:
    """As JSON, TOML, YAML and Python write a text, all of which read these escapes."""
    return json.dumps(text)


def _in_single_quotes(text: str) -> str:
    """As JSON within a shell's single quotes."""
    return json.dumps(text).replace("'", "'\\''")


def _windows(text: str) -> str:
    """As PowerShell writes a text."""
    return "'" + text.replace("'", "''") + "'"


def texts(client: Client, values: Values, windows: bool = sys.platform == "win32") -> list[tuple[str, str]]:
    """Where each step of a client goes, and its text. ``windows``: a terminal is PowerShell."""
    return [(step.where, _text(step, values, windows)) for step in client.steps]


def _text(step: SetupStep, values: Values, windows: bool) -> str:
    words = {
        "url": values.url,
        "v1": f"{values.url}/v1",
        "catalogue": f"{values.url}/v1/models",
        "key": values.key,
        "model": values.model,
        "openai_model": f"openai/{values.model}",
        "path": f"kvasir/{values.model}",
    }
    bare = {"context": str(values.context), "pictures": str(values.pictures).lower()}
    powershell = windows and step.language == _SHELL
    write = _windows if powershell else _WRITERS[step.language]
    said = {name: write(word) for name, word in words.items()}
    if step.language == "curl":  # an address and a key need no quotes
        said |= {name: words[name] for name in ("v1", "key")}
    text = Template(_in_powershell(step.template) if powershell else step.template).substitute(said | bare)
    return text.rstrip("\n")


_WRITERS: Mapping[str, Callable[[str], str]] = {
    _SHELL: shlex.quote,
    "json": _quoted,
    "plain": str,
    "curl": _in_single_quotes,
}


def _in_powershell(template: str) -> str:
    """A template of commands whose variables are set as PowerShell sets them."""
    return re.sub(r"(?m)^export (\w+)=(.*)$", lambda found: f"$$env:{found[1]} = " + (found[2] or "''"), template)
