"""The telemetry as Prometheus text (exposition format 0.0.4)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from engine.cache.pool import PAGE_SIZE
from engine.decoding.scheduling.service import CLASSES
from engine.decoding.telemetry import histograms
from engine.decoding.telemetry.histograms import AnswerHistograms
from engine.decoding.telemetry.window import TelemetryWindow
from engine.protocol import ModelCard, Telemetry

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_COUNTERS = (
    ("steps", "Steps done."),
    ("generated", "Tokens generated."),
    ("prefilled", "Prompt tokens computed."),
    ("proposed", "Draft tokens of a proposer."),
    ("accepted", "Draft tokens accepted."),
    ("preemptions", "Answers sent back to the queue for want of pages."),
    ("bytes_read", "Bytes of weights, keys and values read."),
    ("answers_started", "Answers that produced a first token."),
)
_GPU = (
    ("watts", "Power that the GPU takes."),
    ("limit_watts", "Power that the GPU may take."),
    ("celsius", "Temperature of the GPU."),
    ("core_mhz", "Clock of the GPU's multiprocessors."),
    ("memory_mhz", "Clock of the GPU's memory."),
)
_CACHE = (
    ("looked_up", "Prompt tokens looked up in the prefix cache."),
    ("hit", "Prompt tokens found in the prefix cache, which were not read again."),
    ("evicted_pages", "Pages given up for lack of room."),
    ("swapped_out", "Bytes of keys and values moved out of the device."),
    ("swapped_in", "Bytes of keys and values moved back into the device."),
)

_Labelled = dict[str, tuple[str, list[tuple[dict[str, object], float]]]]
"""Metrics with what explains them, and values with labels of theirs."""


def metrics(totals: Mapping[str, int], frame: Telemetry) -> str:
    """The text of one scrape."""
    return "".join(_lines(totals, frame))


def _lines(totals: Mapping[str, int], frame: Telemetry) -> Iterator[str]:
    for name, explains in _COUNTERS:
        yield from _metric(f"{name}_total", "counter", explains, [("", totals[name])])
    cache = frame.cache
    for name, explains in _CACHE:
        yield from _metric(f"cache_{name}_total", "counter", explains, [("", getattr(cache, name))])
    places = [('{place="host"}', cache.host_bytes), ('{place="disk"}', cache.disk_bytes)]
    yield from _metric("cache_swapped_bytes", "gauge", "Keys and values kept outside the device.", places)
    yield from _metric("generated_per_second", "gauge", "Tokens a second.", [("", frame.generated_per_second)])
    yield from _metric("prefilled_per_second", "gauge", "Prompt tokens a second.", [("", frame.prefilled_per_second)])
    memory, scope = frame.memory, frame.memory.scope
    owners = ("weights", "kv_used", "kv_reserved", "other_kvasir", "other_programs", "total", "pictures", "embedder")
    values = [(f'{{owner="{owner}",scope="{scope}"}}', getattr(memory, owner)) for owner in owners]
    yield from _metric("memory_bytes", "gauge", "Memory by owner.", values)
    pages = [(f'{{state="{state}"}}', getattr(frame.pages, state)) for state in ("total", "used")]
    yield from _metric("pages", "gauge", "Pages of the cache.", pages)
    yield from _metric("live_tokens", "gauge", "Tokens held in pages.", [("", frame.pages.live_tokens)])
    queue = [(f'{{state="{state}"}}', getattr(frame.queue, state)) for state in ("waiting", "running", "prefilling")]
    yield from _metric("requests", "gauge", "Answers by state.", queue)
    for name, explains in (("ended", "Answers that ended."), ("in_time", "Those that kept to their class's targets.")):
        values = [(f'{{service="{each}"}}', totals[f"{each} {name.replace('_', ' ')}"]) for each in CLASSES]
        yield from _metric(f"service_{name}_total", "counter", explains, values)
    for name, explains in _GPU:
        value = None if frame.gpu is None else getattr(frame.gpu, name)
        if value is not None:
            yield from _metric(f"gpu_{name}", "gauge", explains, [("", value)])
    if frame.gpu is not None and frame.gpu.joules is not None:
        explains = "Energy that the GPU took, counted from the first reading."
        yield from _metric("gpu_joules_total", "counter", explains, [("", frame.gpu.joules)])
    for name, explains in (
        ("joules_per_token", "Energy that the GPU took for each token generated."),
        ("ttft_ms", "Median time to first token."),
        ("itl_p50_ms", "Median inter-token latency."),
        ("itl_p95_ms", "95th percentile of inter-token latency."),
        ("step_ms", "Median duration of a step."),
        ("host_ms", "Median bookkeeping of a step."),
        ("bytes_per_token", "Bytes read per token generated."),
        ("bandwidth_share", "Share of the measured memory bandwidth used while decoding."),
    ):
        value = getattr(frame.latency if name.endswith("_ms") else frame, name)
        if value is not None:
            yield from _metric(name, "gauge", explains, [("", value)])


def llamacpp(totals: Mapping[str, int], frame: Telemetry, answers: AnswerHistograms) -> str:
    """The same figures by the names of llama.cpp's server, for what reads those.

    Source: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-task.cpp.
    """
    counters = {
        "prompt_tokens_total": ("Prompt tokens computed.", answers.read),
        "prompt_tokens_cached_total": ("Prompt tokens found in the prefix cache.", answers.cached),
        "prompt_seconds_total": ("Time of reading prompts.", answers.prompt_seconds),
        "tokens_predicted_total": ("Tokens generated.", totals["generated"]),
        "tokens_predicted_seconds_total": ("Time of answers after their first tokens.", answers.answer_seconds),
        "n_decode_total": ("Steps done.", totals["steps"]),
        "n_tokens_max": ("Tokens of the longest answer with its prompt.", answers.longest),
        "spec_decode_num_draft_tokens_total": ("Draft tokens of a proposer.", totals["proposed"]),
        "spec_decode_num_accepted_tokens_total": ("Draft tokens accepted.", totals["accepted"]),
        "spec_decode_num_drafts_total": ("Drafts verified.", totals["drafts"]),
    }
    gauges = {
        "prompt_tokens_seconds": ("Prompt tokens a second.", frame.prefilled_per_second),
        "predicted_tokens_seconds": ("Tokens a second.", frame.generated_per_second),
        "requests_processing": ("Answers in progress.", frame.queue.running),
        "requests_deferred": ("Answers that wait.", frame.queue.waiting),
        "n_busy_slots_per_decode": ("Answers of a step, on average.", totals["busy"] / max(totals["steps"], 1)),
    }
    return "".join(
        line
        for kind, found in (("counter", counters), ("gauge", gauges))
        for name, (explains, value) in found.items()
        for line in _metric(name, kind, explains, [("", value)], "llamacpp:")
    )


def vllm(window: TelemetryWindow, frame: Telemetry, answers: AnswerHistograms, card: ModelCard, refused: int) -> str:
    """The same figures by vLLM's names, with its labels, for dashboards that read those. ``card`` is that of the loaded
    model, ``refused`` counts requests that the limits of their keys refused.

    Source: https://docs.vllm.ai/en/latest/usage/metrics.
    """
    totals, cache, pages, queue = window.totals, frame.cache, frame.pages, frame.queue
    slots = pages.total * PAGE_SIZE
    size = {
        "block_size": PAGE_SIZE,
        "num_gpu_blocks": pages.total,
        "kv_cache_size_tokens": slots,
        "kv_cache_max_concurrency": f"{slots / card.context:.2f}",
    }
    ends: list[tuple[dict[str, object], float]] = [
        ({"finished_reason": reason}, count) for reason, count in sorted(answers.reasons.items())
    ]
    counters: _Labelled = {
        "prompt_tokens_total": ("Tokens of prompts of whole answers.", [({}, answers.read + answers.cached)]),
        "prompt_tokens_cached_total": ("Those of them found in the prefix cache.", [({}, answers.cached)]),
        "generation_tokens_total": ("Tokens generated.", [({}, totals["generated"])]),
        "prefix_cache_queries_total": ("Prompt tokens looked up in the prefix cache.", [({}, cache.looked_up)]),
        "prefix_cache_hits_total": ("Prompt tokens found in the prefix cache.", [({}, cache.hit)]),
        "num_preemptions_total": ("Answers sent back to the queue for want of pages.", [({}, totals["preemptions"])]),
        "spec_decode_num_drafts_total": ("Drafts verified.", [({}, totals["drafts"])]),
        "spec_decode_num_draft_tokens_total": ("Draft tokens of a proposer.", [({}, totals["proposed"])]),
        "spec_decode_num_accepted_tokens_total": ("Draft tokens accepted.", [({}, totals["accepted"])]),
        "request_success_total": ("Answers that ended.", ends),
        "admission_rejections_total": ("Requests refused by limits.", [({"reason": "key_limit"}, refused)]),
    }
    gauges: _Labelled = {
        "num_requests_running": ("Answers in progress.", [({}, queue.running)]),
        "num_requests_waiting": ("Answers that wait.", [({}, queue.waiting)]),
        "num_requests_waiting_by_reason": ("Answers that wait.", [({"reason": "capacity"}, queue.waiting)]),
        "kv_cache_usage_perc": ("Share of the cache that answers in progress read.", [({}, pages.read_share)]),
        "cache_config_info": ("Size of the cache.", [(size, 1)]),
    }
    own = {"model_name": card.name, "engine": 0}
    return "".join(
        line
        for kind, found in (("counter", counters), ("gauge", gauges))
        for name, (explains, values) in found.items()
        for line in _metric(name, kind, explains, [(f"{{{_labels(own | more)}}}", n) for more, n in values], "vllm:")
    ) + histograms.text(answers.measured | answers.asked | window.histograms, "vllm:", _labels(own))


def _labels(named: Mapping[str, object]) -> str:
    """Labels with their values, which are quoted as in JSON."""
    return ",".join(f"{name}={json.dumps(str(value), ensure_ascii=False)}" for name, value in named.items())


def _metric(
    name: str, kind: str, explains: str, values: Sequence[tuple[str, float]], prefix: str = "kvasir_"
) -> Iterator[str]:
    full = prefix + name
    yield f"# HELP {full} {explains}\n# TYPE {full} {kind}\n"
    for labels, value in values:
        yield f"{full}{labels} {value:g}\n" if isinstance(value, float) else f"{full}{labels} {value}\n"
