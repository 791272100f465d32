/* Codes and scales of the blocks that files hold most of, straight into AVX-512 registers; others come unpacked. */
#pragma once
#include "ggml.h"

#if defined(__x86_64__)

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

typedef struct { __m512 scales, offsets; } Head;

AVX512 INLINE __m512 twice(__m256 eight) {
    const __m512i pairs = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return _mm512_permutexvar_ps(pairs, _mm512_castps256_ps512(eight));
}

AVX512 INLINE Head head_of(const int type, const uint8_t *p, const Unpacked *unpacked) {
    Head head = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (type == Q4_K || type == Q5_K) {
        uint64_t scales, minima;
        six_bits(p + 4, &scales, &minima);
        const __m256 eight = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)scales)));
        const __m256 least = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)minima)));
        head.scales = twice(_mm256_mul_ps(eight, _mm256_set1_ps(half(p))));
        head.offsets = twice(_mm256_mul_ps(least, _mm256_set1_ps(-half(p + 2))));
    } else if (type == Q6_K) {
        const __m512 scales = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(p + 192))));
        head.scales = _mm512_mul_ps(scales, _mm512_set1_ps(half(p + 208)));
    } else if (type == ANY) {
        head.scales = _mm512_load_ps(unpacked->scales);
        head.offsets = _mm512_load_ps(unpacked->offsets);
    }
    return head;
}

AVX512 INLINE __m512i wide(const uint8_t *bytes) {
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)bytes));
}

AVX512 INLINE __m512bh from_int8(const void *codes) {
    const __m512i low = _mm512_cvtepi8_epi32(_mm_loadu_si128(codes));
    const __m512i high = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)codes + 1));
    return _mm512_cvtne2ps_pbh(_mm512_cvtepi32_ps(high), _mm512_cvtepi32_ps(low));
}

/* Codes 32 i to 32 i + 31 of a step. */
AVX512 INLINE __m512bh codes_of(const int type, const uint8_t *p, const int i, const Unpacked *unpacked) {
    const __m512i fifteen = _mm512_set1_epi16(15);
    if (type == Q8_0) return from_int8(p + 34 * i + 2);
    if (type == ANY) return from_int8(unpacked->codes + 32 * i);
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
    return (__m512bh)_mm512_permutexvar_epi16(index, _mm512_load_si512(UNSIGNED));
}

#endif
