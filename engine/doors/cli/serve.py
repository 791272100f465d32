"""`kvasir serve`: the engine for other programs, or for the window that started it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import typer

from engine.base import installation
from engine.base.terminal import say
from engine.doors.cli.errors import CommandFailed, importing
from engine.doors.security import Allowed
from engine.doors.serve import Server, announce, open_socket, stop_at_end_of_input, write_token
from engine.doors.tls import Tls, given, self_signed
from engine.library import paths as config
from engine.services.packs import marker
from engine.services.residency import Policy

log = logging.getLogger(__name__)

Chosen = tuple[str, str | None] | None
"""A model and its draft (None: its own), to be loaded at the start."""


def run_child(chosen: Chosen, device: str, policy: Policy = Policy(), logs: bool = False) -> int:
    """Serve the window. The token is the first line of standard input, at whose end we stop; a ready line tells the
    port."""
    from engine.loading.memory.probe import limit_threads

    _log_to_stderr()
    token = sys.stdin.buffer.readline().decode(errors="replace").strip()
    if not token:
        raise CommandFailed("No token came on standard input. Use `kvasir serve` without --child by hand.")
    server = _server("127.0.0.1", 0, token, device, policy, logs=logs)
    limit_threads(spare=1)  # with the window
    if chosen is not None:
        server.load(*config.resolve(*chosen), policy.options)

    def started() -> None:
        if (pack := installation.pack()) is not None:
            marker.clear(pack.parent)
        announce(server)
        stop_at_end_of_input(server)

    return _run(server, started)


def run_server(
    host: str,
    port: int,
    chosen: Chosen,
    device: str,
    policy: Policy = Policy(),
    adapters: Mapping[str, str] = {},
    fetches: bool = False,
    allowed: Allowed = Allowed(),
    tls: Tls | None = None,
    logs: bool = False,
) -> int:
    """Serve by hand: load the bundled model if no other is chosen, say where it listens and where the token lies.

    ``adapters`` are folders by name, which are loaded after it; all are needed. ``fetches``, ``allowed``, ``tls`` and
    ``logs``: see :class:`Server`.
    """
    _log_to_stderr()
    folders = config.resolve(*(chosen or ("", None)))
    token = secrets.token_urlsafe(32)
    server = _server(host, port, token, device, policy._replace(default=folders[0]), fetches, allowed, tls, logs)
    with contextlib.closing(server.listener):
        file = config.token_file(server.port)
        write_token(file, token)
        server.load(*folders, policy.options, needed=True, adapters=adapters)

        def started() -> None:
            shown = f"[{host}]" if ":" in host else host
            spoken = "websocket: /ws, OpenAI: /v1, Ollama: /api"
            scheme = "http" if tls is None else "https"
            say(f"Kvasir {config.version()} listens on {scheme}://{shown}:{server.port} ({spoken}).")
            say(f"The token is in {file}", flush=True)
            for line in _of_access(server, tls):
                say(line, flush=True)

        try:
            code = _run(server, started)
        finally:
            file.unlink(missing_ok=True)
    if server.failure:
        raise CommandFailed(server.failure)
    return code


def tls_of(
    makes: bool, certificate: Path | None, key: Path | None, host: str, allowed: Allowed = Allowed()
) -> Tls | None:
    """The TLS that the command line asks for, if it does. Raises typer.BadParameter and TlsFailed."""
    if key is not None and certificate is None:
        raise typer.BadParameter("A key needs its certificate: give --tls-cert too.", param_hint="--tls-key")
    if makes and certificate is not None:
        raise typer.BadParameter("It makes a certificate. Leave it out where you give one.", param_hint="--tls")
    if certificate is not None:
        return given(certificate, key)
    hosts = [re.sub(r":\d+$|[\[\]]", "", name) for name in allowed.hosts]
    return self_signed([host, *hosts]) if makes else None


def _of_access(server: Server, tls: Tls | None) -> Iterator[str]:
    """What whoever reaches the server from elsewhere has to know."""
    if tls is not None:
        yield f"The certificate is in {tls.certificate}, its SHA-256 fingerprint {tls.fingerprint}"
    if server.open and tls is None:
        yield "Keys and texts pass the network readable by others. --tls encrypts them."
    if server.open and not server.access.keys.any():
        yield "Programs on other machines need a key: kvasir keys add NAME"


def _server(
    host: str,
    port: int,
    token: str,
    device: str,
    policy: Policy,
    fetches: bool = False,
    allowed: Allowed = Allowed(),
    tls: Tls | None = None,
    logs: bool = False,
) -> Server:
    listener = open_socket(host, port)  # first: a port in use should not cost the import of torch
    with importing():
        from engine.cache.offload.saved import SavedChats
        from engine.loop.engine import Engine
        from engine.services.probes import MachineProbes

    saved = SavedChats(config.saved_cache_folder(), 0)  # the switch sets how much they may take
    engine = partial(Engine, device=device, saved=saved)
    probes = MachineProbes(device)
    return Server(listener, token, engine, probes, fetches, policy, allowed=allowed, tls=tls, logs=logs)


def _run(server: Server, started: Callable[[], None]) -> int:
    code = server.run(started)
    if server.hub.stepping:
        # A step or a load that does not end must not keep the process.
        if server.failure:
            log.error("%s", server.failure)
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
    return code


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
