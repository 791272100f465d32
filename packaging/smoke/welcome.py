"""The engine's first words to a window: ``python3 welcome.py PORT`` with the token on standard input.

Standard library only, one file, as post.py is. Prints the Welcome as JSON (RFC 6455 for what lies around it).
"""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import sys
from typing import BinaryIO

TIMEOUT_S = 60.0
PROTOCOL = 1


def welcome(port: int, token: str) -> str:
    """Raises OSError, ValueError."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as line, line.makefile("rb") as answers:
        key = base64.b64encode(os.urandom(16)).decode()
        line.sendall(
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        status = answers.readline().decode().strip()
        if " 101" not in status:
            raise ValueError(f"no websocket: {status}")
        while answers.readline().strip():
            pass
        line.sendall(frame(json.dumps({"type": "hello", "token": token, "protocol": PROTOCOL}).encode()))
        return payload(answers).decode()


def frame(text: bytes) -> bytes:
    """One text frame of fewer than 64 KiB; a client's are masked, here with zeros."""
    length = bytes([0x80 | len(text)]) if len(text) < 126 else bytes([0x80 | 126]) + struct.pack(">H", len(text))
    return b"\x81" + length + bytes(4) + text


def payload(answers: BinaryIO) -> bytes:
    """Of the next text message, which may come in parts. Raises ValueError when none comes."""
    text = b""
    while head := answers.read(2):
        size = head[1] & 0x7F
        if size > 125:
            size = int.from_bytes(answers.read(2 if size == 126 else 8), "big")
        content = answers.read(size)
        if head[0] & 0x0F in (0, 1):
            text += content
            if head[0] & 0x80:
                return text
        elif head[0] & 0x0F == 8:
            break
    raise ValueError("the line was closed without a message")


if __name__ == "__main__":
    print(welcome(int(sys.argv[1]), sys.stdin.read().strip()))
