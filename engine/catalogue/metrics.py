"""The figures that show what a switch does, as fields of :class:`engine.protocol.Run`."""

from __future__ import annotations

from engine.protocol import Metric

SPEED = Metric(figure="tokens_per_second", title="tokens/s")
FIRST_TOKEN = Metric(figure="ttft_ms", title="TTFT", unit="ms", lower_is_better=True)
PER_STEP = Metric(figure="tokens_per_step", title="tokens per step")
UNUSED_SLOTS = Metric(figure="unused_slots", title="unused slots", unit="%", lower_is_better=True)
KV_BYTES = Metric(
    figure="kv_bytes_per_token", title="KV cache per token", unit="bytes", lower_is_better=True, counted=True
)
CACHE_BYTES = Metric(figure="cache_bytes", title="cache of this answer", unit="bytes", lower_is_better=True)
BYTES_READ = Metric(figure="read_bytes_per_token", title="read per token", unit="bytes", lower_is_better=True)
WEIGHT_BYTES = Metric(figure="weight_bytes", title="weights", unit="bytes", lower_is_better=True, counted=True)


def elsewhere(command: str, what: str, experiment: str = "") -> Metric:
    """Metric of a switch that one answer cannot show; ``experiment``: title of one in the Lab that shows its like."""
    lab = f"The Lab's “{experiment}” shows what it is for. " if experiment else ""
    return Metric(elsewhere=f"One answer alone cannot show this. {lab}{command} in a terminal measures it on {what}.")


PAUSED = elsewhere("kvasir bench --cache", "many chats")
MANY_CHATS = elsewhere("kvasir bench --cache", "many chats", "Prefix caching")
RESTART = elsewhere("kvasir bench --cache", "a chat that goes on after a restart", "Prefix caching")
HELD_TO_A_FORM = elsewhere("kvasir bench", "answers that are held to a schema")
OTHERS_WAIT = elsewhere("kvasir bench", "an answer that waits while another prompt is read", "Chunked prefill")
QUEUED = elsewhere("kvasir bench --scheduling", "every policy on one trace", "Skip-join MLFQ")
MORE_AT_ONCE = elsewhere("kvasir bench --cache", "many chats", "Batch size")
