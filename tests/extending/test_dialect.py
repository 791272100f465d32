"""A dialect of HTTP in one folder: Text Generation Inference's /generate."""

from __future__ import annotations

import json

from engine.doors.http import dialects
from tests.engine.doors.network.conftest import Running
from tests.extending.tgi.routes import TgiRoutes


def test_a_dialect_of_http() -> None:
    dialects.register(TgiRoutes)
    running = Running()
    try:
        with running.http() as http:
            whole = http.post("/generate", json={"inputs": "abc"}).json()
            assert sorted(whole["generated_text"]) == ["a", "b", "c"]
            lines = http.post("/generate_stream", json={"inputs": "abc"}).text.split("\n\n")
            parts = [json.loads(line.removeprefix("data: ")) for line in lines if line]
            assert "".join(part["token"]["text"] for part in parts) == parts[-1]["generated_text"]
            assert sorted(parts[-1]["generated_text"]) == ["a", "b", "c"]
            assert "the prompt has" in http.post("/generate", json={"inputs": "abc" * 100}).json()["error"]
            assert http.post("/generate", json={}, headers={"Authorization": ""}).status_code == 401
            assert http.post("/generate", content="{").status_code == 422
    finally:
        running.stop()
