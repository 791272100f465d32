/* ggml's blocks, as GGUF files hold them (see engine/layers/linear/ggml_blocks.py for the types), taken 256 weights at a
 * time: one block of a K-quant, or eight of 32 weights. */
#pragma once
#include "native.h"

enum { Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14 };
enum { IQ4_NL = 20, IQ4_XS = 23, MXFP4 = 39 };
enum { STEP = 256, RUNS = STEP / 16 };

/* 256 weights: codes as in the file (of Q8_0 signed), and what they mean for each group of 16 or 32: float16 halves and
 * shifts, or bytes (scales, signed but for Q2_K, and minima) that multiply super and least. */
typedef struct {
    uint8_t codes[STEP];
    uint16_t halves[RUNS], shifts[RUNS];
    uint8_t scales[RUNS], minima[RUNS];
    uint16_t super, least;
} Step;

/* Bytes of 256 weights. */
int64_t step_bytes(int64_t type);

/* The weights at ``p``: 256, or fewer whole blocks of 32. */
void read_step(int64_t type, const uint8_t *p, int64_t count, Step *out);
