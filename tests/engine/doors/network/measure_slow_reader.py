"""What a client that does not read costs the others: python tests/engine/doors/network/measure_slow_reader.py [rounds]

The bundled model answers five streams at once, and four are timed. The fifth is read like the others, which is the
control, or not until they have ended; both in turns. The system keeps only 16 KB for each connection, so that the
server soon waits for the fifth. Prints tokens a second of the four, the time between two chunks of theirs, the
server's processor time, and in how many chunks the fifth got its tokens.
"""
# ruff: noqa: T201

from __future__ import annotations

import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT))
TOKENS, READERS, KEPT, TOKEN = 400, 4, 1 << 14, "a token of this script"


def serve() -> None:
    from engine.doors.serve import Server, announce, open_socket
    from engine.library import paths as config
    from engine.loop.engine import Engine
    from engine.services.probes import MachineProbes

    listener = open_socket("127.0.0.1", 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KEPT)  # those that it accepts have it too
    server = Server(listener, TOKEN, partial(Engine, device="cpu"), MachineProbes("cpu"))
    server.load(*config.resolve("", None), needed=True)
    server.run(partial(announce, server))


class Round(NamedTuple):
    speed: float
    """Tokens a second of one of the four."""
    gaps: list[float]
    """Seconds between their chunks."""
    chunks: int
    """In which the fifth got its tokens."""
    processor: float
    """Seconds of the server's processor time for all."""


def asked(port: int, receive: int = 0) -> socket.socket:
    """A connection on which a stream was asked for, with a receive buffer of so many bytes."""
    body = {"prompt": "What is a page?", "max_tokens": TOKENS, "ignore_eos": True, "logprobs": 20, "stream": True}
    data = json.dumps(body).encode()
    client = socket.socket()
    if receive:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    client.connect(("127.0.0.1", port))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}"
    client.sendall(f"{head}\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    return client


def read(client: socket.socket, times: list[float]) -> int:
    """Until the end; how many chunks came, and at which moments something did."""
    chunks = 0
    while part := client.recv(1 << 16):
        times.append(time.perf_counter())
        chunks += part.count(b"data: {")
    return chunks


def one_round(server: psutil.Process, port: int, fifth_reads: bool) -> Round:
    times: list[list[float]] = [[] for _ in range(READERS + 1)]
    before = sum(server.cpu_times()[:2])
    clients = [*(asked(port) for _ in range(READERS)), asked(port, 0 if fifth_reads else KEPT)]
    both = list(zip(clients, times, strict=True))
    with ThreadPoolExecutor(READERS + 1) as pool:
        reading = [pool.submit(read, *one) for one in both[: READERS + fifth_reads]]
        chunks = [one.result() for one in reading]
    if not fifth_reads:
        chunks.append(read(*both[-1]))
    for client in clients:
        client.close()
    four = times[:READERS]
    gaps = [later - sooner for each in four for sooner, later in itertools.pairwise(each)]
    speed = statistics.mean(TOKENS / (each[-1] - each[0]) for each in four)
    return Round(speed, gaps, chunks[-1], sum(server.cpu_times()[:2]) - before)


def show(name: str, rounds: list[Round]) -> None:
    speeds, spent = [one.speed for one in rounds], [one.processor for one in rounds]
    parts = statistics.quantiles([gap for one in rounds for gap in one.gaps], n=100)
    print(
        f"{name}: {statistics.median(speeds):.1f} tokens/s ({min(speeds):.1f} to {max(speeds):.1f}); between chunks "
        f"{1000 * parts[49]:.0f} ms, 99 in 100 at most {1000 * parts[98]:.0f}; processor "
        f"{statistics.median(spent):.2f} s ({min(spent):.2f} to {max(spent):.2f}); fifth: {TOKENS} tokens in "
        f"{statistics.median(one.chunks for one in rounds):.0f} chunks"
    )


def main(rounds: int = 8) -> None:
    measured: dict[bool, list[Round]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, __file__, "--serve"]
        environment = {**os.environ, "KVASIR_HOME": home}
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                port = json.loads(process.stdout.readline())["port"]
                server = psutil.Process(process.pid)
                time.sleep(10)  # the model is loaded, and what its device reads is measured
                one_round(server, port, True)
                for number in range(2 * rounds):
                    reads = number % 4 in (0, 3)
                    measured[reads].append(one_round(server, port, reads))
            finally:
                process.terminate()
    show("the fifth reads (control)", measured[True])
    show("the fifth does not read", measured[False])


if __name__ == "__main__":
    serve() if "--serve" in sys.argv else main(*map(int, sys.argv[1:]))
