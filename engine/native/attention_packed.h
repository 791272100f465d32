/* How packed keys and values become float32 in registers; what attention_packed.c and attention_unpack.c share.
 *
 * A byte holds one code of 8 bits or a channel of each of 8 / b planes (PackedKV of engine/cache/stores/packed.py). Blocks of 16
 * bytes are 16 channels of every plane; numbers are kept in that order here, [blocks, planes, 16], filled up where a plane
 * ends within a block. Channels share scales and minima in groups of 32, looked up lane by lane.
 */
#pragma once
#include "attention.h"

#ifdef __AVX512BF16__

enum { GROUP = 32, MOST_BLOCKS = WIDEST_PACKED / LANES };

/* How a head's channels lie in memory; ``block`` counts blocks of bytes times planes, at most MOST_BLOCKS. */
typedef struct {
    int bits, planes, blocks;
    int64_t bytes;                     /* of a plane, and so of a head */
    int32_t group[MOST_BLOCKS][LANES]; /* of each channel, in the order of this file */
} Layout;

/* Scales and minima of a page's tokens, [token, group]; a token's scale alone for codes of 8 bits. */
typedef struct {
    float scale[PAGE][LANES], minimum[PAGE][LANES];
    float whole[2 * PAGE]; /* read 16 at a time */
} Meta;

INLINE Layout layout_of(int64_t width, int64_t bits) {
    Layout l = {.bits = (int)bits, .planes = (int)(8 / bits), .bytes = width * bits / 8};
    l.blocks = (int)((l.bytes + LANES - 1) / LANES);
    for (int b = 0; b < l.blocks; b++)
        for (int p = 0; p < l.planes; p++)
            for (int i = 0; i < LANES; i++) {
                const int32_t channel = (int32_t)(p * l.bytes) + b * LANES + i, last = (int32_t)width - 1;
                l.group[b * l.planes + p][i] = (channel < last ? channel : last) / GROUP;
            }
    return l;
}

INLINE int64_t channel_of(const Layout *l, int block, int plane) { return plane * l->bytes + block * LANES; }
INLINE __mmask16 lanes_of(const Layout *l, int block) {
    const int64_t left = l->bytes - block * LANES;
    return left >= LANES ? 0xFFFF : (__mmask16)((1u << left) - 1);
}

INLINE __m512i counting(void) {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* What code each four lowest bits stand for. */
INLINE __m512 table_of(const int bits) {
    return _mm512_cvtepi32_ps(bits == 2 ? _mm512_and_si512(counting(), _mm512_set1_epi32(3)) : counting());
}

/* A block of codes; planes are whole numbers of 8 bytes, and masked loads of bytes are slow. */
INLINE __m512i read_codes(const int bits, const uint8_t *codes, int whole) {
    const __m128i bytes = whole ? _mm_loadu_si128((const __m128i *)codes) : _mm_loadl_epi64((const __m128i *)codes);
    return bits == 8 ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
}

INLINE __m512 code_of(const int bits, const int plane, __m512i bytes, __m512 table) {
    if (bits == 8) return _mm512_cvtepi32_ps(bytes);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, bits * plane), table); /* looks at the lowest four bits only */
}

/* 16 float16 from ``from`` on, or 8 and zeros. */
INLINE __m512 halves(const uint16_t *from, __mmask16 lanes) {
    const __m256i half = _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)from));
    return _mm512_cvtph_ps(lanes == 0xFFFF ? _mm256_loadu_si256((const __m256i *)from) : half);
}

/* Meta of ``now`` tokens from slot ``slot`` on. */
INLINE void read_meta(const int bits, const uint16_t *meta, int64_t slot, int64_t kv_heads, int64_t kv_head,
                             int64_t width, int now, Meta *out) {
    if (bits == 8) {
        uint16_t some[PAGE] = {0};
        for (int i = 0; i < now; i++) some[i] = meta[(slot + i) * kv_heads + kv_head];
        _mm512_storeu_ps(out->whole, halves(some, 0xFFFF));
        return;
    }
    const int64_t groups = width / GROUP;
    const __mmask16 there = (__mmask16)((1u << groups) - 1);
    for (int i = 0; i < now; i++) {
        const __m512i pairs = _mm512_maskz_loadu_epi32(there, meta + ((slot + i) * kv_heads + kv_head) * groups * 2);
        _mm512_storeu_ps(out->scale[i], _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs)));
        _mm512_storeu_ps(out->minimum[i], _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16))));
    }
}
#endif
