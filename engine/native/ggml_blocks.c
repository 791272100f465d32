/* From the bytes of blocks to codes, scales and offsets, a step at a time. */
#include "ggml.h"

static const int8_t IQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t MX4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 16 bytes -> 32 codes, low nibbles first. */
INLINE void nibbles(const uint8_t *qs, int minus, int8_t *codes) {
    for (int j = 0; j < 16; j++) {
        codes[j] = (int8_t)((qs[j] & 15) - minus);
        codes[j + 16] = (int8_t)((qs[j] >> 4) - minus);
    }
}

INLINE void looked_up(const uint8_t *qs, const int8_t *table, int8_t *codes) {
#ifdef __AVX2__
    const __m128i bytes = _mm_loadu_si128((const __m128i *)qs), values = _mm_loadu_si128((const __m128i *)table);
    const __m128i low = _mm_and_si128(bytes, _mm_set1_epi8(15));
    const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
    _mm_storeu_si128((__m128i *)codes, _mm_shuffle_epi8(values, low));
    _mm_storeu_si128((__m128i *)codes + 1, _mm_shuffle_epi8(values, high));
#else
    for (int j = 0; j < 16; j++) {
        codes[j] = table[qs[j] & 15];
        codes[j + 16] = table[qs[j] >> 4];
    }
#endif
}

INLINE void fifth_bits(const uint8_t *qh, int8_t *codes) {
    uint32_t bits;
    memcpy(&bits, qh, 4);
    for (int j = 0; j < 32; j++) codes[j] = (int8_t)(codes[j] + (int)((bits >> j & 1) << 4));
}

INLINE void heads(const uint8_t *p, Unpacked *out) {
    uint64_t scales, minima;
    six_bits(p + 4, &scales, &minima);
    const float d = half(p), least = half(p + 2);
    for (int i = 0; i < RUNS; i++) {
        out->scales[i] = d * (float)(scales >> i / 2 * 8 & 255);
        out->offsets[i] = -(least * (float)(minima >> i / 2 * 8 & 255));
    }
}

/* ``blocks`` blocks of 32 weights, at most 8; what is missing of 256 weights becomes zero. */
static void unpack_small(int64_t type, const uint8_t *p, int blocks, Unpacked *out) {
    if (blocks < 8) memset(out, 0, sizeof *out);
    const int64_t bytes = step_bytes(type) / 8;
    for (int i = 0; i < blocks; i++, p += bytes) {
        int8_t *codes = out->codes + 32 * i;
        float scale, offset = 0;
        if (type == MXFP4) {
            const uint32_t bits = p[0] < 2 ? 0x00200000u << p[0] : (uint32_t)(p[0] - 1) << 23;
            memcpy(&scale, &bits, 4);
            looked_up(p + 1, MX4, codes);
        } else {
            scale = half(p);
            switch (type) {
            case Q4_0: nibbles(p + 2, 8, codes); break;
            case Q4_1: nibbles(p + 4, 0, codes); break;
            case Q5_0: nibbles(p + 6, 16, codes); fifth_bits(p + 2, codes); break;
            case Q5_1: nibbles(p + 8, 0, codes); fifth_bits(p + 4, codes); break;
            case Q8_0: memcpy(codes, p + 2, 32); break;
            default: looked_up(p + 2, IQ4, codes); /* IQ4_NL */
            }
            if (type == Q4_1 || type == Q5_1) offset = half(p + 2);
        }
        out->scales[2 * i] = out->scales[2 * i + 1] = scale;
        out->offsets[2 * i] = out->offsets[2 * i + 1] = offset;
    }
}

static void unpack_k(int64_t type, const uint8_t *p, Unpacked *out) {
    int8_t *codes = out->codes;
    if (type != Q2_K && type != Q4_K && type != Q5_K) memset(out->offsets, 0, sizeof out->offsets);
    switch (type) {
    case Q2_K:
        for (int i = 0; i < RUNS; i++) {
            out->scales[i] = half(p + 80) * (float)(p[i] & 15);
            out->offsets[i] = -(half(p + 82) * (float)(p[i] >> 4));
        }
        for (int i = 0; i < 8; i++)
            for (int l = 0; l < 32; l++) codes[32 * i + l] = (int8_t)(p[16 + i / 4 * 32 + l] >> 2 * (i % 4) & 3);
        break;
    case Q3_K:
        for (int i = 0; i < RUNS; i++) {
            const int low = p[96 + i % 8] >> i / 8 * 4 & 15, high = p[104 + i % 4] >> i / 4 * 2 & 3;
            out->scales[i] = half(p + 108) * (float)((low | high << 4) - 32);
        }
        for (int i = 0; i < 8; i++)
            for (int l = 0; l < 32; l++) {
                const int low = p[32 + i / 4 * 32 + l] >> 2 * (i % 4) & 3;
                codes[32 * i + l] = (int8_t)(low + ((p[l] >> i & 1) << 2) - 4);
            }
        break;
    case Q4_K:
        heads(p, out);
        for (int i = 0; i < 8; i++)
            for (int l = 0; l < 32; l++) codes[32 * i + l] = (int8_t)(p[16 + i / 2 * 32 + l] >> i % 2 * 4 & 15);
        break;
    case Q5_K:
        heads(p, out);
        for (int i = 0; i < 8; i++)
            for (int l = 0; l < 32; l++) {
                const int low = p[48 + i / 2 * 32 + l] >> i % 2 * 4 & 15;
                codes[32 * i + l] = (int8_t)(low | (p[16 + l] >> i & 1) << 4);
            }
        break;
    case Q6_K:
        for (int i = 0; i < RUNS; i++) out->scales[i] = half(p + 208) * (float)(int8_t)p[192 + i];
        for (int i = 0; i < 8; i++)
            for (int l = 0; l < 32; l++) {
                const int low = p[i / 4 * 64 + i % 2 * 32 + l] >> i % 4 / 2 * 4 & 15;
                codes[32 * i + l] = (int8_t)((low | (p[128 + i / 4 * 32 + l] >> 2 * (i % 4) & 3) << 4) - 32);
            }
        break;
    default: { /* IQ4_XS */
        const int high = p[2] | p[3] << 8;
        for (int i = 0; i < 8; i++) {
            const int scale = (p[4 + i / 2] >> i % 2 * 4 & 15) | (high >> 2 * i & 3) << 4;
            out->scales[2 * i] = out->scales[2 * i + 1] = half(p) * (float)(scale - 32);
            looked_up(p + 8 + 16 * i, IQ4, codes + 32 * i);
        }
    }
    }
}

void ggml_unpack(int64_t type, const uint8_t *p, int64_t left, Unpacked *out) {
    const int small = type < Q2_K || type == IQ4_NL || type == MXFP4;
    if (small) unpack_small(type, p, left < STEP ? (int)left / 32 : 8, out);
    else unpack_k(type, p, out);
}
