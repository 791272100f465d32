"""A dialect of HTTP in one folder: llama.cpp's /completion."""

from __future__ import annotations

import json

from engine.doors.http import dialects
from tests.engine.doors.network.conftest import Running
from tests.extending.llamacpp.routes import LlamaCppRoutes


def test_a_dialect_of_http() -> None:
    dialects.register(LlamaCppRoutes)
    running = Running()
    try:
        with running.http() as http:
            whole = http.post("/completion", json={"prompt": "abc"}).json()
            assert whole["stop"]
            assert sorted(whole["content"]) == ["a", "b", "c"]
            lines = http.post("/completion", json={"prompt": "abc", "stream": True}).text.split("\n\n")
            parts = [json.loads(line.removeprefix("data: ")) for line in lines if line]
            assert sorted("".join(part["content"] for part in parts)) == ["a", "b", "c"]
            assert [part["stop"] for part in parts] == [False] * (len(parts) - 1) + [True]
            assert "the prompt has" in http.post("/completion", json={"prompt": "abc" * 100}).json()["error"]["message"]
            assert http.post("/completion", json={}, headers={"Authorization": ""}).status_code == 401
            assert http.post("/completion", content="{").status_code == 400
    finally:
        running.stop()
