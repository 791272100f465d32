/* See ggml.h. */
#include "ggml.h"

int64_t step_bytes(int64_t type) {
    switch (type) {
    case Q4_0: case IQ4_NL: return 8 * 18;
    case Q4_1: return 8 * 20;
    case Q5_0: return 8 * 22;
    case Q5_1: return 8 * 24;
    case Q8_0: return 8 * 34;
    case MXFP4: return 8 * 17;
    case Q2_K: return 84;
    case Q3_K: return 110;
    case Q4_K: return 144;
    case Q5_K: return 176;
    case Q6_K: return 210;
    case TQ2_0: return 66;
    default: return book_words(type) ? 4 * book_words(type) + (type == IQ1_M ? 0 : 2) : 136; /* IQ4_XS */
    }
}

int64_t book_words(int64_t type) {
    switch (type) {
    case IQ1_S: return 12;
    case TQ1_0: return 13;
    case IQ1_M: return 14;
    case IQ2_XXS: return 16;
    case IQ2_XS: return 18;
    case IQ2_S: return 20;
    case IQ3_XXS: return 24;
    case IQ3_S: return 27;
    default: return 0;
    }
}

INLINE uint16_t half_at(const uint8_t *bytes) { return (uint16_t)(bytes[0] | bytes[1] << 8); }

void read_book(int64_t type, const uint8_t *p, uint32_t *words, uint16_t *super) {
    const int64_t count = book_words(type);
    if (type == IQ1_M) /* spread over the upper four bits of the last four numbers of 16 bits */
        *super = (uint16_t)(p[49] >> 4 | (p[51] & 0xF0) | (p[53] & 0xF0) << 4 | (p[55] & 0xF0) << 8);
    else *super = half_at(type == TQ1_0 ? p + 4 * count : p);
    if (type != IQ1_M && type != TQ1_0) p += 2;
    for (int64_t i = 0; i < count; i++, p += 4) words[i] = half_at(p) | (uint32_t)half_at(p + 2) << 16;
}

/* 16 bytes -> 32 codes, low nibbles first. */
INLINE void nibbles(const uint8_t *qs, uint8_t *codes) {
    for (int j = 0; j < 16; j++) codes[j] = qs[j] & 15, codes[j + 16] = qs[j] >> 4;
}

INLINE void fifth_bits(const uint8_t *qh, uint8_t *codes) {
    for (int j = 0; j < 32; j++) codes[j] |= (uint8_t)((qh[j / 8] >> j % 8 & 1) << 4);
}

/* One block of 32, whose float16 scale stands first if it has one. */
INLINE void read_small(int64_t type, const uint8_t *p, int i, Step *out) {
    uint8_t *codes = out->codes + 32 * i;
    out->halves[i] = half_at(p);
    out->shifts[i] = half_at(p + 2);
    out->scales[i] = p[0];
    switch (type) {
    case MXFP4: nibbles(p + 1, codes); break;
    case Q4_1: nibbles(p + 4, codes); break;
    case Q5_0: nibbles(p + 6, codes); fifth_bits(p + 2, codes); break;
    case Q5_1: nibbles(p + 8, codes); fifth_bits(p + 4, codes); break;
    case Q8_0: memcpy(codes, p + 2, 32); break;
    default: nibbles(p + 2, codes); /* Q4_0, IQ4_NL */
    }
}

/* The eight scales and eight minima of 6 bits that head Q4_K and Q5_K, and what multiplies them. */
INLINE void read_head(const uint8_t *p, Step *out) {
    const uint8_t *packed = p + 4;
    out->super = half_at(p);
    out->least = half_at(p + 2);
    for (int i = 0; i < 4; i++) {
        out->scales[i] = packed[i] & 63;
        out->minima[i] = packed[4 + i] & 63;
        out->scales[4 + i] = (uint8_t)((packed[8 + i] & 15) | packed[i] >> 6 << 4);
        out->minima[4 + i] = (uint8_t)(packed[8 + i] >> 4 | packed[4 + i] >> 6 << 4);
    }
}

void read_step(int64_t type, const uint8_t *p, int64_t count, Step *out) {
    uint8_t *codes = out->codes;
    switch (type) {
    case Q2_K:
        memcpy(out->scales, p, RUNS); /* minima are their upper halves */
        out->super = half_at(p + 80);
        out->least = half_at(p + 82);
        for (int k = 0; k < STEP; k++) codes[k] = p[16 + k / 128 * 32 + k % 32] >> 2 * (k / 32 % 4) & 3;
        break;
    case Q3_K:
        out->super = half_at(p + 108);
        for (int i = 0; i < RUNS; i++) {
            const int low = p[96 + i % 8] >> i / 8 * 4 & 15, high = p[104 + i % 4] >> i / 4 * 2 & 3;
            out->scales[i] = (uint8_t)((low | high << 4) - 32);
        }
        for (int k = 0; k < STEP; k++)
            codes[k] = (uint8_t)((p[32 + k / 128 * 32 + k % 32] >> 2 * (k / 32 % 4) & 3) | (p[k % 32] >> k / 32 & 1) << 2);
        break;
    case Q4_K:
        read_head(p, out);
        for (int k = 0; k < STEP; k++) codes[k] = p[16 + k / 64 * 32 + k % 32] >> k / 32 % 2 * 4 & 15;
        break;
    case Q5_K:
        read_head(p, out);
        for (int k = 0; k < STEP; k++)
            codes[k] = (uint8_t)((p[48 + k / 64 * 32 + k % 32] >> k / 32 % 2 * 4 & 15) | (p[16 + k % 32] >> k / 32 & 1) << 4);
        break;
    case Q6_K:
        out->super = half_at(p + 208);
        memcpy(out->scales, p + 192, RUNS);
        for (int k = 0; k < STEP; k++) {
            const int low = p[k / 128 * 64 + k % 64] >> k / 64 % 2 * 4 & 15;
            codes[k] = (uint8_t)(low | (p[128 + k / 128 * 32 + k % 32] >> 2 * (k / 32 % 4) & 3) << 4);
        }
        break;
    case TQ2_0:
        out->halves[0] = half_at(p + 64);
        out->minima[0] = 1;
        for (int k = 0; k < STEP; k++) codes[k] = p[k / 128 * 32 + k % 32] >> 2 * (k / 32 % 4) & 3;
        break;
    case IQ4_XS:
        out->super = half_at(p);
        for (int i = 0; i < 8; i++) {
            const int low = p[4 + i / 2] >> i % 2 * 4 & 15, high = half_at(p + 2) >> 2 * i & 3;
            out->scales[i] = (uint8_t)((low | high << 4) - 32);
            nibbles(p + 8 + 16 * i, codes + 32 * i);
        }
        break;
    default:
        for (int i = 0; i < count / 32; i++, p += step_bytes(type) / 8) read_small(type, p, i, out);
    }
}
