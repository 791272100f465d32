/* Codes and scales of blocks, straight into AVX-512 registers. */
#pragma once
#include "ggml.h"

#ifdef __AVX512BF16__

/* Codes by table: bfloat16 of 0 .. 31 and of -32 .. 31. */
static const uint16_t UNSIGNED[32] __attribute__((aligned(64))) = {
    0, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170,
    0x4180, 0x4188, 0x4190, 0x4198, 0x41A0, 0x41A8, 0x41B0, 0x41B8, 0x41C0, 0x41C8, 0x41D0, 0x41D8, 0x41E0, 0x41E8, 0x41F0, 0x41F8,
};
static const uint16_t SIGNED[64] __attribute__((aligned(64))) = {
    0xC200, 0xC1F8, 0xC1F0, 0xC1E8, 0xC1E0, 0xC1D8, 0xC1D0, 0xC1C8, 0xC1C0, 0xC1B8, 0xC1B0, 0xC1A8, 0xC1A0, 0xC198, 0xC190, 0xC188,
    0xC180, 0xC170, 0xC160, 0xC150, 0xC140, 0xC130, 0xC120, 0xC110, 0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040, 0xC000, 0xBF80,
    0, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170,
    0x4180, 0x4188, 0x4190, 0x4198, 0x41A0, 0x41A8, 0x41B0, 0x41B8, 0x41C0, 0x41C8, 0x41D0, 0x41D8, 0x41E0, 0x41E8, 0x41F0, 0x41F8,
};

/* And of what 4-bit codes look up, each table twice. */
static const uint16_t IQ4_VALUES[32] __attribute__((aligned(64))) = {
    0xC2FE, 0xC2D0, 0xC2A6, 0xC282, 0xC244, 0xC20C, 0xC1B0, 0xC120, 0x3F80, 0x4150, 0x41C8, 0x4218, 0x4254, 0x428A, 0x42B2, 0x42E2,
    0xC2FE, 0xC2D0, 0xC2A6, 0xC282, 0xC244, 0xC20C, 0xC1B0, 0xC120, 0x3F80, 0x4150, 0x41C8, 0x4218, 0x4254, 0x428A, 0x42B2, 0x42E2,
};
static const uint16_t MX4_VALUES[32] __attribute__((aligned(64))) = {
    0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40C0, 0x4100, 0x4140, 0x0000, 0xBF80, 0xC000, 0xC040, 0xC080, 0xC0C0, 0xC100, 0xC140,
    0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40C0, 0x4100, 0x4140, 0x0000, 0xBF80, 0xC000, 0xC040, 0xC080, 0xC0C0, 0xC100, 0xC140,
};

/* What 256 weights have in common: scales of each run of 16, or of each 32 weights. */
typedef struct {
    __m512 scales, offsets;
    float each[8] __attribute__((aligned(32)));
} Head;

INLINE __m512 twice(__m256 eight) {
    const __m512i pairs = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return _mm512_permutexvar_ps(pairs, _mm512_castps256_ps512(eight));
}

/* ``parts``: how many 32 weights there are of a step. */
INLINE Head head_of(const int type, const uint8_t *p, const int parts) {
    Head head = {_mm512_setzero_ps(), _mm512_setzero_ps(), {0}};
    if (type == Q4_K || type == Q5_K) {
        uint64_t scales, minima;
        six_bits(p + 4, &scales, &minima);
        const __m256 eight = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)scales)));
        const __m256 least = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)minima)));
        _mm256_store_ps(head.each, _mm256_mul_ps(eight, _mm256_set1_ps(half(p))));
        head.offsets = twice(_mm256_mul_ps(least, _mm256_set1_ps(-half(p + 2))));
    } else if (type == IQ4_XS) {
        const __m256i fours = _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0), twos = _mm256_srli_epi32(fours, 1);
        uint32_t lows;
        memcpy(&lows, p + 4, 4);
        const __m256i low = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)lows), fours), _mm256_set1_epi32(15));
        const __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32((p[2] | p[3] << 8) << 4), twos);
        const __m256i six = _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi32(48)));
        const __m256 scales = _mm256_cvtepi32_ps(_mm256_sub_epi32(six, _mm256_set1_epi32(32)));
        _mm256_store_ps(head.each, _mm256_mul_ps(scales, _mm256_set1_ps(half(p))));
    } else if (type == Q6_K) {
        const __m512 scales = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(p + 192))));
        head.scales = _mm512_mul_ps(scales, _mm512_set1_ps(half(p + 208)));
    } else if (type == Q2_K) {
        const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
        const __m512i scales = _mm512_and_si512(both, _mm512_set1_epi32(15)), minima = _mm512_srli_epi32(both, 4);
        head.scales = _mm512_mul_ps(_mm512_cvtepi32_ps(scales), _mm512_set1_ps(half(p + 80)));
        head.offsets = _mm512_mul_ps(_mm512_cvtepi32_ps(minima), _mm512_set1_ps(-half(p + 82)));
    } else if (type == Q3_K) {
        const __m512i fours = _mm512_set_epi32(4, 4, 4, 4, 4, 4, 4, 4, 0, 0, 0, 0, 0, 0, 0, 0);
        const __m512i twos = _mm512_set_epi32(6, 6, 6, 6, 4, 4, 4, 4, 2, 2, 2, 2, 0, 0, 0, 0);
        const __m256i eight = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 96)));
        uint32_t highs;
        memcpy(&highs, p + 104, 4);
        const __m512i four = _mm512_broadcast_i32x4(_mm_cvtepu8_epi32(_mm_cvtsi32_si128((int)highs)));
        const __m512i low = _mm512_and_si512(_mm512_srlv_epi32(_mm512_broadcast_i64x4(eight), fours), _mm512_set1_epi32(15));
        const __m512i high = _mm512_and_si512(_mm512_srlv_epi32(_mm512_slli_epi32(four, 4), twos), _mm512_set1_epi32(48));
        const __m512i scales = _mm512_sub_epi32(_mm512_or_si512(low, high), _mm512_set1_epi32(32));
        head.scales = _mm512_mul_ps(_mm512_cvtepi32_ps(scales), _mm512_set1_ps(half(p + 108)));
    } else if (type == Q4_1 || type == Q5_1) {
        float least[8] __attribute__((aligned(32))) = {0};
        for (int i = 0; i < parts; i++) least[i] = half(p + (type == Q4_1 ? 20 : 24) * i + 2);
        head.offsets = twice(_mm256_load_ps(least));
    }
    return head;
}

/* Of weights 32 i to 32 i + 31 of a step. */
INLINE __m512 scale_of(const int type, const uint8_t *p, const int i, const Head *head) {
    const __m512i run = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    switch (type) {
    case Q8_0: return _mm512_set1_ps(half(p + 34 * i));
    case Q4_0: case IQ4_NL: return _mm512_set1_ps(half(p + 18 * i));
    case Q4_1: return _mm512_set1_ps(half(p + 20 * i));
    case Q5_0: return _mm512_set1_ps(half(p + 22 * i));
    case Q5_1: return _mm512_set1_ps(half(p + 24 * i));
    case MXFP4: {
        const int exponent = p[17 * i]; /* of the doubled values: half of 2^(exponent - 127) */
        return _mm512_castsi512_ps(_mm512_set1_epi32(exponent < 2 ? 0x00200000 << exponent : (exponent - 1) << 23));
    }
    case Q4_K: case Q5_K: case IQ4_XS: return _mm512_set1_ps(head->each[i]);
    default: return _mm512_permutexvar_ps(_mm512_add_epi32(run, _mm512_set1_epi32(2 * i)), head->scales);
    }
}

INLINE __m512i wide(const uint8_t *bytes) {
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)bytes));
}

INLINE __m512bh from_int8(const void *codes) {
    const __m512i low = _mm512_cvtepi8_epi32(_mm_loadu_si128(codes));
    const __m512i high = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)codes + 1));
    return _mm512_cvtne2ps_pbh(_mm512_cvtepi32_ps(high), _mm512_cvtepi32_ps(low));
}

/* 16 bytes -> 32 nibbles, the low ones first. */
INLINE __m512i split(const uint8_t *bytes) {
    const __m512i high = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    const __m512i both = _mm512_broadcast_i64x4(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)bytes)));
    return _mm512_and_si512(_mm512_srlv_epi16(both, high), _mm512_set1_epi16(15));
}

/* The same with a fifth bit each, those of 32 codes in four bytes. */
INLINE __m512i split5(const uint8_t *bytes, const uint8_t *fifth) {
    uint32_t bits;
    memcpy(&bits, fifth, 4);
    const __m512i four = split(bytes);
    return _mm512_mask_add_epi16(four, bits, four, _mm512_set1_epi16(16));
}

INLINE __m512bh looked_up(__m512i index, const uint16_t *table) {
    return (__m512bh)_mm512_permutexvar_epi16(index, _mm512_loadu_si512(table));
}

/* Codes 32 i to 32 i + 31 of a step. */
INLINE __m512bh codes_of(const int type, const uint8_t *p, const int i) {
    const __m512i fifteen = _mm512_set1_epi16(15);
    if (type == Q8_0) return from_int8(p + 34 * i + 2);
    if (type == Q4_0) return looked_up(split(p + 18 * i + 2), SIGNED + 24);
    if (type == IQ4_XS) return looked_up(split(p + 8 + 16 * i), IQ4_VALUES);
    if (type == IQ4_NL) return looked_up(split(p + 18 * i + 2), IQ4_VALUES);
    if (type == MXFP4) return looked_up(split(p + 17 * i + 1), MX4_VALUES);
    if (type == Q4_1) return looked_up(split(p + 20 * i + 4), UNSIGNED);
    if (type == Q5_0) return looked_up(split5(p + 22 * i + 6, p + 22 * i + 2), SIGNED + 16);
    if (type == Q5_1) return looked_up(split5(p + 24 * i + 8, p + 24 * i + 4), UNSIGNED);
    if (type == Q2_K || type == Q3_K) {
        const uint8_t *low = p + (type == Q2_K ? 16 : 32) + i / 4 * 32;
        const __m512i two = _mm512_and_si512(_mm512_srli_epi16(wide(low), 2 * (i % 4)), _mm512_set1_epi16(3));
        if (type == Q2_K) return looked_up(two, UNSIGNED);
        const __m512i third = _mm512_srli_epi16(_mm512_slli_epi16(wide(p), 2), i);
        return looked_up(_mm512_or_si512(two, _mm512_and_si512(third, _mm512_set1_epi16(4))), SIGNED + 28);
    }
    if (type == Q6_K) {
        const __m512i low = _mm512_srli_epi16(wide(p + i / 4 * 64 + i % 2 * 32), i % 4 / 2 * 4);
        const __m512i high = _mm512_srli_epi16(_mm512_slli_epi16(wide(p + 128 + i / 4 * 32), 4), 2 * (i % 4));
        const __m512i index = _mm512_or_si512(_mm512_and_si512(low, fifteen),
                                              _mm512_and_si512(high, _mm512_set1_epi16(48)));
        return (__m512bh)_mm512_permutex2var_epi16(_mm512_load_si512(SIGNED), index, _mm512_load_si512(SIGNED + 32));
    }
    const int qs = type == Q4_K ? 16 : 48;
    __m512i index = _mm512_and_si512(_mm512_srli_epi16(wide(p + qs + i / 2 * 32), i % 2 * 4), fifteen);
    if (type == Q5_K) {
        const __m512i high = _mm512_srli_epi16(_mm512_slli_epi16(wide(p + 16), 4), i);
        index = _mm512_or_si512(index, _mm512_and_si512(high, _mm512_set1_epi16(16)));
    }
    return looked_up(index, UNSIGNED);
}

#endif
