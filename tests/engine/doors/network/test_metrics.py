"""What /metrics tells of answers."""

from __future__ import annotations

import re

import httpx

from engine.protocol.from_engine import PageCounts
from tests.engine.doors.network.conftest import Running


def answers(http: httpx.Client) -> int:
    found = re.search(r"^kvasir_e2e_request_latency_seconds_count (\d+)$", http.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def by_vllms_names(http: httpx.Client) -> dict[str, float]:
    """Samples by their names and what their labels say beyond the model's."""
    own = 'model_name="tiny",engine="0"'
    lines = [line for line in http.get("/metrics").text.splitlines() if line.startswith("vllm:")]
    assert all(own in line for line in lines)
    return {line.rsplit(" ", 1)[0].replace(own, ""): float(line.rsplit(" ", 1)[1]) for line in lines}


def test_by_vllms_names(running: Running, http: httpx.Client) -> None:
    http.post("/v1/completions", json={"prompt": [5] * 20, "n": 2, "max_tokens": 3}).raise_for_status()
    assert http.get("/load").json() == {"server_load": 0}
    found = by_vllms_names(http)
    assert found["vllm:prompt_tokens_total{}"] == found["vllm:request_prompt_tokens_sum{}"] == 40
    assert found['vllm:request_success_total{,finished_reason="stop"}'] == 2
    assert (found["vllm:request_params_n_sum{}"], found["vllm:request_params_max_tokens_sum{}"]) == (2, 3)
    assert found["vllm:iteration_tokens_total_sum{}"] == found["vllm:generation_tokens_total{}"] > 0
    assert found["vllm:num_requests_running{}"] == 0
    (size,) = (name for name in found if name.startswith("vllm:cache_config_info"))
    assert 'block_size="16",num_gpu_blocks="10",kv_cache_size_tokens="160",kv_cache_max_concurrency="2.50"' in size
    running.engine.loaded = None
    assert "vllm:" not in http.get("/metrics").text


def test_text_that_is_only_kept_is_no_use_of_the_cache() -> None:
    assert PageCounts(total=10, used=4, live_tokens=50, cached=3).read_share == 0.1


def test_requests_in_progress(running: Running, http: httpx.Client) -> None:
    running.engine.gate.clear()
    with http.stream("POST", "/v1/completions", json={"prompt": "abc", "stream": True}):
        assert http.get("/load").json() == {"server_load": 1}
        running.engine.gate.set()


def test_whole_answers_are_counted_and_others_are_not(running: Running, http: httpx.Client) -> None:
    assert answers(http) == 0
    http.post("/v1/completions", json={"prompt": "a b c", "n": 2}).raise_for_status()
    assert answers(http) == 2
    running.engine.cut = ("memory", "Memory ran out.")
    assert http.post("/v1/completions", json={"prompt": "a b c"}).status_code == 503
    assert answers(http) == 2
