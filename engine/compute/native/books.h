/* ggml's types whose neighbouring weights are an entry of a codebook, or digits of one number: what their words mean.
 *
 * They lie in lanes as a file has them, but for the float16 of a block, which is in ``supers``: uint32 [blocks, K / 256 *
 * book_words, 64]. A product opens them as it reads them, into the plane of 4-bit codes that TABLE4 has: the three lower
 * bits of a code are a digit of the entry, and the highest one says that the weight is negative, or of IQ1 which way it is
 * moved. See engine/compute/layers/linear/ggml_codebooks.py for the layouts. */
#pragma once
#include "ggml.h"
#include "products.h"
#include "simd.h"

/* Word j of a block, for a vector of features. */
INLINE Words word_at(const uint32_t *block, int64_t j) { return words_at(block + j * BLOCK); }

/* Four sets of seven signs in 28 bits -> a byte each. */
INLINE Words sevens(Words w) {
    return (w & 0x7F) | (w << 1 & 0x7F00) | (w << 2 & 0x7F0000) | (w << 3 & 0x7F000000);
}
/* Bytes of seven signs -> of eight, of which an even number is set. */
INLINE Words even(Words bytes) {
    static const int8_t parity[16] = {0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0};
    return bytes | look_up((bytes ^ bytes >> 4) & 0x0F0F0F0F, parity);
}
/* The eight signs in the lowest byte -> the highest bits of eight codes. */
INLINE Words signs_of(Words byte) { return (byte << 3 | byte << 10 | byte << 17 | byte << 24) & 0x88888888; }

/* The digit 3^-(i + 1) of the fractions that four bytes are, given 3^i. */
INLINE Words thirds(Words bytes, uint32_t power) {
    const Words low = (bytes & 0x00FF00FF) * power & 0x00FF00FF, high = (bytes >> 8 & 0x00FF00FF) * power & 0x00FF00FF;
    return (low * 3 >> 8 & 0x00FF00FF) | (high * 3 & 0xFF00FF00);
}
/* Codes of the eight weights from ``at`` on of a block of TQ1_0. */
INLINE Words ternary(const uint32_t *block, int64_t at) {
    static const uint32_t power[] = {1, 3, 9, 27, 81};
    int64_t low = at % 32 / 4, high = low + 1, first = at / 32, second = first;
    if (at >= 240) low = high = 12, first = (at - 240) / 4, second = first + 1;
    else if (at >= 160) low = 8 + at % 16 / 4, high = low + 1, first = second = (at - 160) / 16;
    return thirds(word_at(block, low), power[first]) | thirds(word_at(block, high), power[second]) << 4;
}

/* Unit i (of eight) of a block, for a vector of features: four words, each of the codes of eight weights. */
INLINE void open_unit(const int type, const uint32_t *book, const uint32_t *block, int64_t i, Words out[4]) {
    const int64_t half = i % 2 * 16;
    Words signs, down;
    switch (type) {
    case IQ2_XXS: signs = even(sevens(word_at(block, 2 * i + 1))); break;
    case IQ3_XXS: signs = even(sevens(word_at(block, 16 + i))); break;
    case IQ2_XS: {
        const Words a = word_at(block, 2 * i), b = word_at(block, 2 * i + 1);
        signs = even((a >> 9 & 0x7F) | (a >> 17 & 0x7F00) | (b << 7 & 0x7F0000) | (b >> 1 & 0x7F000000));
        break;
    }
    case IQ2_S: signs = word_at(block, 8 + i); break;
    case IQ3_S: signs = word_at(block, 18 + i); break;
    default: signs = (Words){0}; /* IQ1: none */
    }
#pragma GCC unroll 4
    for (int o = 0; o < 4; o++) {
        const Words eight = signs_of(signs >> 8 * o & 255);
        Words at, above;
        switch (type) {
        case TQ1_0: out[o] = ternary(block, 32 * i + 8 * o); break;
        case IQ2_XXS: out[o] = entries_at(book, word_at(block, 2 * i) >> 8 * o & 255) | eight; break;
        case IQ2_XS: out[o] = entries_at(book, word_at(block, 2 * i + o / 2) >> o % 2 * 16 & 511) | eight; break;
        case IQ2_S:
            above = word_at(block, 16 + i / 4) >> (i % 4 * 8 + 2 * o) & 3;
            out[o] = entries_at(book, (word_at(block, i) >> 8 * o & 255) | above << 8) | eight;
            break;
        case IQ3_XXS:
            at = word_at(block, 2 * i + o / 2) >> o % 2 * 16;
            out[o] = entries_at(book, at & 255) | entries_at(book, at >> 8 & 255) << 4 | eight;
            break;
        case IQ3_S:
            at = word_at(block, 2 * i + o / 2) >> o % 2 * 16;
            above = word_at(block, 16 + i / 4) >> (i % 4 * 8 + 2 * o);
            out[o] = entries_at(book, (at & 255) | (above << 8 & 256)) |
                     entries_at(book, (at >> 8 & 255) | (above << 7 & 256)) << 4 | eight;
            break;
        case IQ1_S:
            above = word_at(block, 8 + i / 2) >> half;
            down = -(above >> 15 & 1);
            out[o] = entries_at(book, (word_at(block, i) >> 8 * o & 255) | (above >> 3 * o & 7) << 8) | (down & 0x88888888);
            break;
        default: /* IQ1_M */
            above = word_at(block, 8 + i / 2) >> (half + 4 * o);
            down = -(above >> 3 & 1);
            out[o] = entries_at(book, (word_at(block, i) >> 8 * o & 255) | (above & 7) << 8) | (down & 0x88888888);
        }
    }
}

/* The number of a group's scale, g of its block, for a vector of features: twice it and one is what the scale counts. */
INLINE Words number_at(int64_t type, const uint32_t *block, int64_t g) {
    switch (type) {
    case IQ2_XXS: return word_at(block, 2 * g + 1) >> 28;
    case IQ3_XXS: return word_at(block, 16 + g) >> 28;
    case IQ2_XS: return word_at(block, 16 + g / 8) >> g % 8 * 4 & 15;
    case IQ2_S: return word_at(block, 18 + g / 8) >> g % 8 * 4 & 15;
    case IQ3_S: return word_at(block, 26) >> g * 4 & 15;
    case IQ1_S: return word_at(block, 8 + g / 2) >> (g % 2 * 16 + 12) & 7;
    case IQ1_M: return word_at(block, 12 + g / 8) >> (g / 4 % 2 * 16 + g % 4 * 3) & 7;
    default: return (Words){0}; /* TQ1_0 */
    }
}

#define EACH_BOOK(CASE)                                                                                                \
    CASE(IQ2_XXS) CASE(IQ2_XS) CASE(IQ2_S) CASE(IQ3_XXS) CASE(IQ3_S) CASE(IQ1_S) CASE(IQ1_M) CASE(TQ1_0)
