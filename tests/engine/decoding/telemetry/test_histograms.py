"""Histograms of answers as Prometheus reads them."""

from __future__ import annotations

import re

from engine.decoding.telemetry.histograms import AnswerHistograms, Histogram, text
from engine.protocol import Finished, Timings, Usage


def end(tokens: int, ttft_ms: float = 200.0, total_ms: float = 1200.0) -> Finished:
    usage = Usage(prompt_tokens=30, cached_tokens=0, generated_tokens=tokens, seed=1)
    timings = Timings(
        queued_ms=50, ttft_ms=ttft_ms, total_ms=total_ms, tokens_per_second=10, tokens_per_step=1, steps=tokens
    )
    return Finished(id="a", reason="stop", usage=usage, timings=timings)


def test_a_value_counts_in_every_bucket_that_it_does_not_exceed() -> None:
    histogram = Histogram((1, 2.5))
    for value in (0.5, 1, 2, 99):
        histogram.add(value)
    assert "".join(histogram.lines("x")).splitlines() == [
        'x_bucket{le="1"} 2', 'x_bucket{le="2.5"} 3', 'x_bucket{le="+Inf"} 4', "x_sum 102.5", "x_count 4"
    ]  # fmt: skip


def test_a_label_stands_with_each_sample() -> None:
    histogram = Histogram((1,), "Lengths.")
    histogram.add(0.5, 3)
    assert text({"x": histogram}, "p:", 'a="b"').splitlines() == [
        "# HELP p:x Lengths.", "# TYPE p:x histogram",
        'p:x_bucket{a="b",le="1"} 3', 'p:x_bucket{a="b",le="+Inf"} 3', 'p:x_sum{a="b"} 1.5', 'p:x_count{a="b"} 3',
    ]  # fmt: skip


def test_answers_are_measured_in_seconds_and_tokens() -> None:
    answers = AnswerHistograms()
    answers.add(end(11))
    figures = dict(
        line.rsplit(" ", 1) for line in text(answers.measured, "kvasir_").splitlines() if not line.startswith("#")
    )
    sums = {name.removesuffix("_sum"): float(value) for name, value in figures.items() if name.endswith("_sum")}
    assert sums == {
        "kvasir_request_inference_time_seconds": 1.15,
        "kvasir_request_prefill_time_seconds": 0.15,
        "kvasir_request_decode_time_seconds": 1.0,
        "kvasir_request_num_preemptions": 0,
        "kvasir_time_to_first_token_seconds": 0.2,
        "kvasir_time_per_output_token_seconds": 0.1,
        "kvasir_e2e_request_latency_seconds": 1.2,
        "kvasir_request_queue_time_seconds": 0.05,
        "kvasir_request_prompt_tokens": 30,
        "kvasir_request_generation_tokens": 11,
    }
    assert figures['kvasir_time_to_first_token_seconds_bucket{le="0.1"}'] == "0"
    assert figures['kvasir_time_to_first_token_seconds_bucket{le="0.25"}'] == "1"


def test_what_an_answer_has_not_is_not_counted() -> None:
    answers = AnswerHistograms()
    answers.add(end(1))
    answers.add(end(0, ttft_ms=0.0))
    counts = dict(re.findall(r"^kvasir_(\w+)_count (\d+)$", text(answers.measured, "kvasir_"), re.MULTILINE))
    assert counts["time_per_output_token_seconds"] == "0", "there is none after the first"
    assert counts["time_to_first_token_seconds"] == "1"
    assert counts["request_generation_tokens"] == "2"
