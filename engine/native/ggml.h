/* ggml's blocks, as GGUF files hold them (see engine/layers/linear/ggml_blocks.py for the types).
 *
 * A weight is code * scale + offset, code an integer of at most 8 bits; runs of 16 weights (or 32) share scale and
 * offset. Blocks of 32 weights are taken eight at a time, so that everything goes in steps of 256.
 */
#pragma once
#include "native.h"

enum { Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14 };
enum { IQ4_NL = 20, IQ4_XS = 23, MXFP4 = 39 };
enum { STEP = 256, RUNS = STEP / 16 };

typedef struct {
    const uint8_t *data;
    int64_t in_features, out_features, type, row_bytes;
} Ggml;

/* 256 weights: codes, and scale and offset of every run of 16. */
typedef struct {
    int8_t codes[STEP];
    float scales[RUNS], offsets[RUNS];
} __attribute__((aligned(64))) Unpacked;

INLINE int has_offsets(int64_t type) {
    return type == Q4_1 || type == Q5_1 || type == Q2_K || type == Q4_K || type == Q5_K;
}

/* Bytes of 256 weights. */
INLINE int64_t step_bytes(int64_t type) {
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
    default: return 136; /* IQ4_XS */
    }
}

INLINE float half(const uint8_t *bytes) {
    uint16_t bits;
    memcpy(&bits, bytes, 2);
    return half_value(bits);
}

/* The eight scales and eight minima of 6 bits that head Q4_K and Q5_K, as bytes of two words. */
INLINE void six_bits(const uint8_t *packed, uint64_t *scales, uint64_t *minima) {
    uint32_t word[3];
    memcpy(word, packed, 12);
    const uint32_t high_scales = (word[2] & 0x0F0F0F0F) | (word[0] >> 2 & 0x30303030);
    const uint32_t high_minima = (word[2] >> 4 & 0x0F0F0F0F) | (word[1] >> 2 & 0x30303030);
    *scales = (word[0] & 0x3F3F3F3F) | (uint64_t)high_scales << 32;
    *minima = (word[1] & 0x3F3F3F3F) | (uint64_t)high_minima << 32;
}

/* The weights from ``p`` on, ``left`` of them; of more than 256 the first 256, and zeros after fewer. */
void ggml_unpack(int64_t type, const uint8_t *p, int64_t left, Unpacked *out);
