"""Values of switches that make answers slower, each with the faster one."""

from __future__ import annotations

from typing import NamedTuple

from engine.decoding.telemetry.why.facts import Facts, Rule, WhyReason
from engine.protocol import Reason, Value, keys


class SlowValue(NamedTuple):
    """A value of a switch that is there to show what the other is for, or to prove something."""

    key: str
    slow: Value
    fast: Value
    gain: float
    sentence: str
    detail: str = ""


SLOW_VALUES = (
    SlowValue(
        keys.KV_CACHE, False, True, 4.4, "The KV cache is off, so the whole text is computed again for every token."
    ),
    SlowValue(
        keys.BATCH_INVARIANT,
        True,
        False,
        4.2,
        "Batch-invariant arithmetic is on, which computes every row alike and takes several times as long.",
        "Without it equal settings still give the same text, but for two nearly equal tokens now and then.",
    ),
    SlowValue(
        keys.CUDA_GRAPHS,
        False,
        True,
        2.0,
        "Steps are not captured, so the device waits for Python between any two kernels.",
    ),
    SlowValue(
        keys.WEIGHTS,
        "16bit",
        "packed",
        2.0,
        "The model's weights are held unpacked, which makes them several times as much to read for each token.",
        "Packed, as in its file, they are the same numbers. The model is loaded again.",
    ),
    SlowValue(
        keys.ACTIVATIONS,
        "32bit",
        "auto",
        2.0,
        "Activations are multiplied in 32 bits, for which the processor takes several passes.",
        "With auto it has 8 bits where the model's predictions bear it, and 16 where not.",
    ),
    SlowValue(
        keys.ACTIVATIONS,
        "16bit",
        "8bit",
        1.4,
        "Activations are multiplied in 16 bits, which takes two passes.",
        "With 8 bits the text may change: the switch's row says how much for this model.",
    ),
    SlowValue(
        keys.ASYNC_SCHEDULING,
        False,
        True,
        1.2,
        "Asynchronous scheduling is off, so the GPU waits for the processor between two steps.",
    ),
    SlowValue(
        keys.PACKED_KERNEL,
        "torch",
        "native",
        1.1,
        "Packed weights are multiplied by PyTorch's operators instead of Kvasir's own code.",
        "The model is loaded again.",
    ),
    SlowValue(
        keys.PREFIX_CACHE,
        False,
        True,
        1.5,
        "Prefix caching is off, so each message computes the whole conversation before it again.",
    ),
)


def rule_of(case: SlowValue) -> Rule:
    def rule(facts: Facts) -> WhyReason | None:
        if facts.value(case.key) != case.slow or not facts.can(case.key, case.fast):
            return None
        return WhyReason(case.gain, Reason(sentence=case.sentence, detail=case.detail, keys={case.key: case.fast}))

    return rule
