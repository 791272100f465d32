"""Switches of how keys and values are kept."""

from __future__ import annotations

from engine.catalogue.option import Choice, Option


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
        of=("kv_kind", "kivi"),
    )


KV_KINDS = (
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
        "harm, leaves the last 128 tokens as they are, and shares no text between prompts.",
        shows="tokens that fit into the cache, bits per element, and perplexity against 16 bits",
        reference="Liu et al. 2024, KIVI (arXiv 2402.02750)",
        choices=(
            Choice("16bit", "16-bit"),
            Choice("int8", "int8", ("packed cache",)),
            Choice("int4", "int4", ("packed cache",)),
            Choice("kivi", "KIVI", ("packed cache",)),
        ),
        compare=("16bit", "int8"),
    ),
    _kivi_bits(
        "kv_key_bits",
        "KIVI: bits of keys",
        "How many bits an element of a key takes, besides one for its share of scale and minimum. "
        "Keys decide which tokens are looked at and suffer first: models with few KV heads are better served by 4.",
    ),
    _kivi_bits(
        "kv_value_bits",
        "KIVI: bits of values",
        "How many bits an element of a value takes, besides one for its share of scale and minimum. "
        "Errors of values are averaged over the tokens that are looked at, so 2 does less harm here.",
    ),
)
