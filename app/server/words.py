"""What the page Server says."""

from __future__ import annotations

import time

from engine.protocol.access import NamedKey
from engine.protocol.serving import HttpRequest, HttpRequests

ABOUT = (
    "Programs on this computer can use the loaded model over HTTP, through the interfaces of OpenAI, Anthropic and "
    "Ollama. For other machines start kvasir serve."
)
OFF = "Off: no other program reaches the engine of this window."
NO_ENGINE = "It opens as soon as the engine runs."
KEYS = "A program shows a key with each request. A key opens HTTP alone, no settings, models or chats."
NO_KEYS = "No key yet."
SHOWN_ONCE = "Copy it now: it is not shown again, only its hash is kept. The configurations below have it meanwhile."
NO_REQUESTS = "No request yet."
COLUMNS = ("Time", "Key", "From", "Request", "Model", "Tokens", "Seconds", "Status")
TOKENS = "Tokens of the prompt and of the answer"


def opening(port: int) -> str:
    return f"Opening port {port}…"


def about_key(key: NamedKey) -> str:
    """When it was made, and its limits."""
    said = [f"made {_day(key.created)}"]
    if key.expires:
        said.append(f"{'expired' if key.expires <= time.time() else 'expires'} {_day(key.expires)}")
    if key.rate:
        said.append(f"{key.rate:,} requests a minute")
    if key.concurrent:
        said.append(f"{key.concurrent:,} at once")
    if key.service:
        said.append(key.service)
    return " · ".join(said)


def revoke(key: NamedKey) -> str:
    return f"Revoke the key {key.name}? Programs that use it are refused from their next request on."


def summary(told: HttpRequests) -> str:
    """What goes on now, and what went on since the engine's start."""
    if not told.total:
        return (
            NO_REQUESTS if not told.connections else f"{_count(told.connections, 'connection')} open, no request yet."
        )
    tokens = f"{told.prompt_tokens:,} tokens read, {told.generated_tokens:,} written"
    now = f"Now: {_count(told.connections, 'connection')}, {_count(told.running, 'request')} in progress."
    since = f"Since the engine's start: {_count(told.total, 'request')}, {tokens}."
    return f"{now} {since}"


def row(request: HttpRequest) -> tuple[str, ...]:
    """The words of a request in the order of COLUMNS."""
    tokens = f"{request.prompt_tokens:,} + {request.generated_tokens:,}" if request.model else ""
    return (
        time.strftime("%H:%M:%S", time.localtime(request.began)),
        request.key or "none",
        request.client,
        f"{request.method} {request.path}",
        request.model,
        tokens,
        "" if request.running else f"{request.seconds:.2f}",
        "running" if request.running else str(request.status or "broken off"),
    )


def _day(seconds: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
