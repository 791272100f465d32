"""Switches of the cache of keys and values."""

from __future__ import annotations

from engine.catalogue.option import Choice, Conflict, Option


def _kivi_bits(key: str, title: str, explains: str) -> Option:
    return Option(
        key=key,
        title=title,
        group="Cache",
        default="2",
        scope="engine",
        applies="cache",
        exactness="approximate",
        explains=explains,
        shows="bits per element, and perplexity against 16 bits",
        reference="Liu et al. 2024, KIVI (arXiv 2402.02750)",
        choices=(Choice("4", "4"), Choice("2", "2")),
        needs=("packed cache",),
    )


CACHE = (
    Option(
        key="kv_cache",
        title="KV cache",
        group="Cache",
        default=True,
        scope="request",
        applies="next request",
        exactness="lossless",
        explains="Keeps the keys and values of every token already read, so that each new token costs one row of work. "
        "Without it the whole text is computed again for every token.",
        shows="tokens per second, falling with length when off",
        compare=(False, True),
        conflicts=(
            Conflict(
                False,
                "speculation",
                ("ngram", "draft"),
                "Guessing ahead needs the KV cache: switch speculation off first.",
            ),
        ),
    ),
    Option(
        key="page_reservation",
        title="Page reservation",
        group="Cache",
        default="on_demand",
        scope="engine",
        applies="next request",
        exactness="lossless",
        explains="Hands out memory sixteen tokens at a time, as an answer grows. "
        "Reserving the whole context up front is what older servers did: most of it stays empty.",
        shows="share of the cache that holds no token",
        reference="Kwon et al. 2023, PagedAttention (arXiv 2309.06180)",
        choices=(Choice("on_demand", "on demand"), Choice("whole_context", "whole context")),
        compare=("whole_context", "on_demand"),
    ),
    Option(
        key="kv_kind",
        title="Kind of KV cache",
        group="Cache",
        default="16bit",
        scope="engine",
        applies="cache",
        exactness="approximate",
        explains="Packs keys and values into fewer bits, so that the same memory holds more text and each token reads "
        "less of it. "
        "int8 and int4 pack each token by itself; KIVI packs keys along the tokens, where outlying channels do no "
        "harm, and leaves the last 128 tokens as they are.",
        shows="tokens that fit into the cache, bits per element, and perplexity against 16 bits",
        reference="Liu et al. 2024, KIVI (arXiv 2402.02750)",
        choices=(
            Choice("16bit", "16-bit"),
            Choice("int8", "int8", ("packed cache",)),
            Choice("int4", "int4", ("packed cache",)),
            Choice("kivi", "KIVI", ("packed cache", "recent pages")),
        ),
        compare=("16bit", "int8"),
    ),
    _kivi_bits(
        "kv_key_bits",
        "KIVI: bits of keys",
        "Bits of a key's element where the cache is KIVI's, besides one bit for its share of scale and minimum. "
        "Keys decide which tokens are looked at, and suffer first: models with few KV heads are better served by 4.",
    ),
    _kivi_bits(
        "kv_value_bits",
        "KIVI: bits of values",
        "Bits of a value's element where the cache is KIVI's, besides one bit for its share of scale and minimum. "
        "Errors of values are averaged over the tokens that are looked at, so 2 does less harm here.",
    ),
)
