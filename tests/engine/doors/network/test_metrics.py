"""What /metrics tells of answers."""

from __future__ import annotations

import re

import httpx

from tests.engine.doors.network.conftest import Running


def answers(http: httpx.Client) -> int:
    found = re.search(r"^kvasir_e2e_request_latency_seconds_count (\d+)$", http.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_whole_answers_are_counted_and_others_are_not(running: Running, http: httpx.Client) -> None:
    assert answers(http) == 0
    http.post("/v1/completions", json={"prompt": "a b c", "n": 2}).raise_for_status()
    assert answers(http) == 2
    running.engine.cut = ("memory", "Memory ran out.")
    assert http.post("/v1/completions", json={"prompt": "a b c"}).status_code == 503
    assert answers(http) == 2
