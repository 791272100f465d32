"""Switches of how keys and values are kept, and of which a row sees."""

from __future__ import annotations

from engine.catalogue.metrics import CACHE_BYTES, KV_BYTES
from engine.catalogue.option import Option, Relevance
from engine.protocol import CACHE_GROUP, Measure, keys

KV_KINDS = (
    Option(
        key=keys.KV_KIND,
        title="KV cache precision",
        group=CACHE_GROUP,
        common=True,
        default="16bit",
        applies="cache",
        exactness="approximate",
        explains="Stores keys and values in fewer bits, so that the same memory holds more text and each token reads "
        "fewer bytes of it. "
        "8-bit, FP8 and 4-bit quantise each token by itself; KIVI quantises keys per channel, where outlier channels "
        "do no harm, and leaves the last 128 tokens in 16 bits.",
        measure=Measure(
            "tokens that fit into the cache, bits per element, and perplexity against 16 bits",
            KV_BYTES,
            ("16bit", "int8"),
            "kivi",
        ),
        helps="Long contexts or many chats, where keys and values take more memory than the weights.",
        costs="The text may change; measure it on your own chat. On a small model in a processor's own cache the "
        "packed precisions are slower, because unpacking is work.",
        source=(
            "engine/cache/stores/kinds.py",
            "engine/cache/stores/codecs.py",
            "engine/cache/stores/packed_stores.py",
        ),
        also=("kind of KV cache", "KV cache quantisation", "quantised KV cache"),
    ),
    Option(
        key=keys.KV_HADAMARD,
        title="Hadamard rotation of keys",
        group=CACHE_GROUP,
        default=True,
        applies="cache",
        exactness="approximate",
        explains="Multiplies queries and keys by a Hadamard matrix before keys are packed. Their products stay what "
        "they were, and what was in a few large channels of a key is spread over all of them, so that none stretches "
        "the scale that the others share.",
        measure=Measure("perplexity against 16 bits", KV_BYTES, lab="kivi"),
        helps="Models whose keys have a few large channels: given such channels, the bundled model's text changed "
        "a third to a sixth as much; SmolLM2-135M's half (8 bits) and two thirds (4 bits).",
        costs="One more pass over queries and keys. Without such channels 4 bits change the text a fifth more.",
        source=("engine/compute/layers/hadamard.py",),
        also=("QuaRot", "rotated KV cache"),
        reference="Ashkboos et al. 2024, QuaRot (arXiv 2404.00456)",
        needs=("packed cache",),
        relevant=Relevance(of=(keys.KV_KIND, ())),
    ),
    Option(
        key=keys.PAGE_POLICY,
        title="Attention",
        group=CACHE_GROUP,
        default="keep_all",
        applies="cache",
        exactness="approximate",
        explains="Decides which earlier tokens a new token may look at: all of them, the last ones and the first four "
        "(StreamingLLM), or the pages that matter most (QUEST). "
        "The window keeps memory constant; QUEST keeps everything and reads less of it.",
        measure=Measure(
            "pages of a long answer, bytes read per token, and perplexity",
            CACHE_BYTES,
            ("keep_all", "window_sinks"),
            "window",
        ),
        helps="Very long texts: endless chats for the window, long documents for QUEST.",
        costs="The text may change. The window forgets what lies before it and shares no prefixes; QUEST needs the "
        "16-bit cache and sees only the pages it chooses.",
        source=(
            "engine/cache/policies.py",
            "engine/cache/techniques/quest/store.py",
            "engine/compute/attention/quest.py",
        ),
        also=("page policy", "attention policy"),
    ),
)
