"""What the page Server says."""

from __future__ import annotations

import time

from app.language import figure, plural, tr
from engine.protocol.access import NamedKey
from engine.protocol.serving import HttpRequest, HttpRequests

ABOUT = tr(
    "Programs on this computer can use the loaded model over HTTP, through the interfaces of OpenAI, Anthropic and "
    "Ollama. For other machines start kvasir serve."
)
OFF = tr("Off: no other program reaches the engine of this window.")
NO_ENGINE = tr("It opens as soon as the engine runs.")
KEYS = tr(
    "A program sends a key with each request. A key allows requests only; it changes no settings, models or chats."
)
NO_KEYS = tr("No key yet.")
SHOWN_ONCE = tr(
    "Copy it now: it is not shown again, only its hash is kept. The configurations below have it meanwhile."
)
NO_REQUESTS = tr("No request yet.")
COLUMNS = (
    tr("Time"),
    tr("Key"),
    tr("From"),
    tr("Request"),
    tr("Model"),
    tr("Tokens"),
    tr("Seconds", "the title of a narrow column"),
    tr("Status"),
)
REQUEST_COLUMN, TOKENS_COLUMN = 3, 5
TOKENS = tr("Tokens of the prompt and of the answer")


def opening(port: int) -> str:
    return tr("Opening port {port}…", port=port)


def about_key(key: NamedKey) -> str:
    """When it was made, and its limits."""
    said = [tr("made {day}", day=_day(key.created))]
    if key.expires:
        day = _day(key.expires)
        said.append(tr("expired {day}", day=day) if key.expires <= time.time() else tr("expires {day}", day=day))
    if key.rate:
        said.append(tr("{rate:,} requests a minute", rate=key.rate))
    if key.concurrent:
        said.append(tr("{count:,} at once", count=key.concurrent))
    if key.service:
        said.append(key.service)
    return " · ".join(said)


def revoke(key: NamedKey) -> str:
    return tr("Revoke the key {name}? Programs that use it are refused from their next request on.", name=key.name)


def summary(told: HttpRequests) -> str:
    """What goes on now, and what went on since the engine's start."""
    connections = plural("1 connection", "{n:,} connections", told.connections)
    if not told.total:
        opened = tr("{connections} open, no request yet.", connections=connections)
        return opened if told.connections else NO_REQUESTS
    now = tr("Now: {connections}, {requests} in progress.", connections=connections, requests=_requests(told.running))
    since = tr(
        "Since the engine's start: {requests}, {read:,} tokens read, {written:,} written.",
        requests=_requests(told.total),
        read=told.prompt_tokens,
        written=told.generated_tokens,
    )
    return f"{now} {since}"


def row(request: HttpRequest) -> tuple[str, ...]:
    """The words of a request in the order of COLUMNS."""
    tokens = f"{figure(request.prompt_tokens)} + {figure(request.generated_tokens)}" if request.model else ""
    return (
        time.strftime("%H:%M:%S", time.localtime(request.began)),
        request.key or tr("none", "no key"),
        request.client,
        f"{request.method} {request.path}",
        request.model,
        tokens,
        "" if request.running else figure(request.seconds, ".2f"),
        tr("running") if request.running else str(request.status or tr("broken off")),
    )


def _day(seconds: int) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


def _requests(number: int) -> str:
    return plural("1 request", "{n:,} requests", number)
